//! Tag matching: messages find the buffer that waits for their tag, whole or by rendezvous.

use crate::common::{A, B, End, Pair, Setup};
use highwire_rnic::{CreateError, Seen};
use highwire_verbs::{
    Access, Completion, CompletionOp, CompletionStatus, CqId, Operation, PostError, QpCaps, QpConfig,
    QpState, RecvWr, RegisterError, SendWr, Service, Sge, SgeList, SrqId, TagFlags, TagHandle, TagRequest,
    TaggedBuffer,
};
use highwire_wire::{TagHeader, TagOperation};

/// Bytes of a receive, and of a tagged buffer.
const ROOM: u32 = 512;
/// The offset of B's tagged buffers; receives of the queue lie before.
const TAGGED: u64 = 1 << 16;
/// The offset of the memory in A that B READs and writes its notices to.
const FAR: u64 = 1 << 16;
const TOLD: u64 = 1 << 17;
const WHOLE: TagFlags = TagFlags(TagFlags::MATCHED.0 | TagFlags::DATA_VALID.0);

/// A sends; B's queue pair takes its receives from a queue that matches tags.
struct Matching {
    pair: Pair,
    srq: SrqId,
    /// The queue in which everything of the queue's list completes.
    cq: CqId,
    seen: Vec<(Completion, u64, u32)>,
}

impl Matching {
    fn new() -> Matching {
        Matching::with(QpCaps::default(), 4)
    }

    fn with(caps: QpCaps, receives: u64) -> Matching {
        let mut pair = Pair::new(Setup::default());
        let node = &mut pair.net.nodes[B];
        let cq = node.rnic.create_cq();
        let srq = node.rnic.create_tagged_srq(node.pd, cq, 4, 16, 2).expect("an SRQ");
        let config = QpConfig {
            service: Service::Rc,
            pd: node.pd,
            send_cq: node.cq,
            recv_cq: node.cq,
            srq: Some(srq),
            caps,
            signal_all: false,
        };
        pair.ends[B] = End { node: B, qpn: node.rnic.create_qp(config).expect("a queue pair") };
        let node = &mut pair.net.nodes[A];
        let (pd, cq_a) = (node.pd, node.cq);
        let config =
            QpConfig { pd, send_cq: cq_a, recv_cq: cq_a, srq: None, caps: QpCaps::default(), ..config };
        pair.ends[A] = End { node: A, qpn: node.rnic.create_qp(config).expect("a queue pair") };
        let setup = Setup { psn: [7; 2], rnr_retry: 2, ..Setup::default() };
        [A, B].iter().for_each(|&side| pair.connect(side, &setup));
        let mut matching = Matching { pair, srq, cq, seen: Vec::new() };
        for wr_id in 0..receives {
            // In two pieces, so that a header is not in one.
            let (at, buffer) = (wr_id * u64::from(ROOM), matching.pair.buffers[B]);
            let sges = [buffer.sge(at, 10), buffer.sge(at + 10, ROOM - 10)];
            let wr = RecvWr { wr_id: 100 + wr_id, sges: &sges };
            matching.pair.net.nodes[B].rnic.post_srq_recv(srq, &wr).expect("posts");
        }
        matching
    }

    fn add(&mut self, place: u64, tag: u64) -> TagHandle {
        let sges = [self.pair.buffers[B].sge(TAGGED + place * u64::from(ROOM), ROOM)];
        self.add_at(place, tag, &sges).expect("adds")
    }

    fn add_at(&mut self, wr_id: u64, tag: u64, sges: &[Sge]) -> Result<TagHandle, PostError> {
        let buffer = TaggedBuffer { wr_id, tag, mask: 0xFFFF, sges: sges.into() };
        self.pair.net.nodes[B].rnic.add_tag(self.srq, buffer, &request(0, None))
    }

    /// Puts a message at `offset` of A's buffer and posts it.
    fn post(&mut self, offset: u64, operation: TagOperation, tag: u64, rest: &[u8]) {
        let mut header = [0; TagHeader::LEN];
        TagHeader { operation, context: 77, tag }.emit(&mut header);
        let message = [&header[..], rest].concat();
        let addr = self.pair.buffers[A].addr + offset;
        let memory = &mut self.pair.net.nodes[A].memory;
        memory.slice_mut(addr..addr + message.len() as u64).copy_from_slice(&message);
        self.pair.post(A, 1, Operation::Send, offset, message.len() as u32);
    }

    fn send(&mut self, operation: TagOperation, tag: u64, rest: &[u8]) {
        self.post(0, operation, tag, rest);
        self.run();
    }

    /// The place of `length` bytes at `offset` of A's buffer, in a rendezvous's form.
    fn place(&self, offset: u64, length: u32) -> Vec<u8> {
        let remote = self.pair.buffers[A].remote(offset);
        [&remote.va.to_be_bytes()[..], &remote.rkey.0.to_be_bytes(), &length.to_be_bytes()].concat()
    }

    /// Does a driver's work, until nothing happens any more.
    fn run(&mut self) {
        loop {
            self.pair.run();
            let completions = self.pair.completions(B);
            let node = &mut self.pair.net.nodes[B];
            for completion in &completions {
                match node.rnic.match_tags(completion, &mut node.memory) {
                    Seen::AsItIs => self.seen.push((*completion, 0, 0)),
                    Seen::Nothing => {}
                    Seen::Instead { cq, completion, tag, tag_context } => {
                        assert_eq!(cq, self.cq);
                        self.seen.push((completion, tag, tag_context));
                    }
                }
            }
            let begun = self.post_transfers();
            if completions.is_empty() && !begun {
                return;
            }
        }
    }

    fn post_transfers(&mut self) -> bool {
        let (qpn, now) = (self.pair.ends[B].qpn, self.pair.net.now);
        let node = &mut self.pair.net.nodes[B];
        let (mut begun, mut full) = (false, Vec::new());
        'next: while let Some(mut transfer) = node.rnic.next_transfer() {
            assert_eq!(transfer.qpn(), qpn);
            loop {
                let data = transfer.request().1.map(<[u8]>::to_vec);
                let word = data.map(|data| [node.copy_inline(&data)]);
                let (wr, _) = transfer.request();
                let flags = highwire_verbs::SendFlags { inline: word.is_some(), ..wr.flags };
                let wr = SendWr { flags, sges: word.as_ref().map_or(wr.sges, |word| word), ..wr };
                match node.rnic.post_send(now, qpn, &wr) {
                    Ok(()) => begun = true,
                    Err(PostError::QueueFull) => {
                        full.push(transfer);
                        continue 'next;
                    }
                    Err(_) => {
                        node.rnic.fail_transfer(now, &transfer);
                        begun = true;
                        continue 'next;
                    }
                }
                if !transfer.advance() {
                    continue 'next;
                }
            }
        }
        full.into_iter().for_each(|transfer| node.rnic.postpone_transfer(transfer));
        begun
    }

    /// Number, status, operation and flags of every new completion that the application sees.
    fn shown(&mut self) -> Vec<(u64, CompletionStatus, CompletionOp, TagFlags)> {
        let seen = std::mem::take(&mut self.seen);
        seen.iter().map(|(c, ..)| (c.wr_id, c.status, c.operation, c.flags.tags)).collect()
    }
}

fn request(wr_id: u64, unexpected: Option<u32>) -> TagRequest {
    TagRequest { wr_id, signaled: unexpected.is_some(), unexpected }
}

use CompletionOp::{ReceiveNoTag, ReceiveTagged, RemoveTag, SyncTags};
use CompletionStatus::{LocalLength, LocalProtection, LocalQpOperation, Success};

#[test]
fn a_message_lies_in_the_buffer_that_waits_and_its_receive_is_used_again() {
    let mut matching = Matching::with(QpCaps::default(), 2);
    matching.add(1, 0x11);
    for round in 0..6 {
        let buffer = matching.pair.buffers[B];
        let pieces = [buffer.sge(TAGGED + 1024, 7), buffer.sge(TAGGED + 1500, ROOM)];
        matching.add_at(2, 0x22, &pieces).expect("adds");
        matching.send(TagOperation::Eager, 0x5_0022, &[round; 300]);
        let (completion, tag, context) = matching.seen[0];
        assert_eq!((completion.byte_len, tag, context), (300, 0x5_0022, 77));
        assert_eq!(matching.shown(), [(2, Success, ReceiveTagged, WHOLE)]);
        assert_eq!(matching.pair.bytes(B, TAGGED + 1024, 7), [round; 7]);
        assert_eq!(matching.pair.bytes(B, TAGGED + 1500, 293), [round; 293]);
    }
    matching.send(TagOperation::NoTag, 0x11, b"none");
    matching.send(TagOperation::Eager, 0x11, &[9; ROOM as usize - TagHeader::LEN]);
    // Six messages have used two receives in turn: the first is next.
    assert_eq!(
        matching.shown(),
        [(100, Success, ReceiveNoTag, TagFlags::NONE), (1, Success, ReceiveTagged, WHOLE)]
    );
}

#[test]
fn a_rendezvous_reads_the_message_and_then_tells_its_sender() {
    let mut matching = Matching::new();
    matching.pair.receive(A, 55, TOLD, 64);
    let log = matching.pair.watch();
    let buffer = matching.pair.buffers[B];
    let pieces = [buffer.sge(TAGGED, 7), buffer.sge(TAGGED + 1000, 395), buffer.sge(TAGGED + 2000, 9)];
    matching.add_at(3, 0x33, &pieces).expect("adds");
    let behind = matching.pair.bytes(B, TAGGED + 1393, 700);
    let place = matching.place(FAR, 400);
    matching.send(TagOperation::Rendezvous, 0x33, &place);
    let told = (3, Success, ReceiveTagged, TagFlags::DATA_VALID);
    assert_eq!(matching.shown(), [(3, Success, ReceiveTagged, TagFlags::MATCHED), told]);
    let there = [matching.pair.bytes(B, TAGGED, 7), matching.pair.bytes(B, TAGGED + 1000, 393)].concat();
    assert_eq!(there, matching.pair.bytes(A, FAR, 400));
    assert_eq!(matching.pair.bytes(B, TAGGED + 1393, 700), behind, "nothing else is touched");
    assert_eq!(matching.pair.outcomes(A), ["1 Success", "55 Success"]);
    let header = matching.pair.bytes(A, TOLD, 16).try_into().expect("16 bytes");
    let finished = TagHeader { operation: TagOperation::Finished, context: 77, tag: 0x33 };
    assert_eq!(TagHeader::parse(&header), Some(finished));
    let kinds: Vec<_> =
        log.borrow().iter().filter_map(|line| Some(line.split(' ').nth(1)?.to_owned())).collect();
    assert_eq!(
        kinds,
        ["RC_SEND_ONLY", "RC_ACK", "RC_READ", "RC_READ_RESPONSE_ONLY", "RC_SEND_ONLY", "RC_ACK"]
    );
}

#[test]
fn rendezvous_beyond_the_send_queue_wait_for_a_place() {
    let caps = QpCaps { max_send_wr: 3, ..QpCaps::default() };
    let mut matching = Matching::with(caps, 4);
    for place in 0..4 {
        matching.pair.receive(A, 50 + place, TOLD, 64);
        matching.add(place, place);
    }
    // All four come before B's driver looks, and the queue has room for three requests.
    for place in 0..4 {
        let at = matching.place(FAR + place * 100, 100);
        matching.post(1000 + place * 64, TagOperation::Rendezvous, place, &at);
    }
    matching.run();
    let shown = matching.shown();
    for place in 0..4 {
        let of: Vec<_> =
            shown.iter().filter(|shown| shown.0 == place).map(|shown| (shown.1, shown.3)).collect();
        assert_eq!(of, [(Success, TagFlags::MATCHED), (Success, TagFlags::DATA_VALID)], "{place}: {shown:?}");
        let there = matching.pair.bytes(B, TAGGED + place * u64::from(ROOM), 100);
        assert_eq!(there, matching.pair.bytes(A, FAR + place * 100, 100));
    }
    let told = matching.pair.outcomes(A).iter().filter(|outcome| outcome.starts_with('5')).count();
    assert_eq!((shown.len(), told), (8, 4));
}

#[test]
fn a_rendezvous_that_fails_is_said_once_and_breaks_the_connection() {
    // The key is invalid: the READ is refused, and the notice to the sender is never sent.
    let mut matching = Matching::new();
    matching.add(2, 0x62);
    matching.send(TagOperation::Rendezvous, 0x62, &[[0xAB; 12].as_slice(), &16u32.to_be_bytes()].concat());
    let shown = matching.shown();
    assert_eq!(shown.len(), 2, "{shown:?}");
    assert_eq!(shown[0], (2, Success, ReceiveTagged, TagFlags::MATCHED));
    assert_eq!((shown[1].0, shown[1].1), (2, CompletionStatus::RemoteAccess));

    // A buffer's key is invalidated between match and READ, so the READ cannot be posted.
    let mut matching = Matching::new();
    let lost = matching.pair.net.nodes[B].register(256, Access::LOCAL_WRITE);
    matching.add_at(4, 0x64, &[lost.sge(0, 256)]).expect("adds");
    let place = matching.place(FAR, 64);
    matching.post(0, TagOperation::Rendezvous, 0x64, &place);
    matching.pair.run();
    let arrived = matching.pair.completions(B);
    let node = &mut matching.pair.net.nodes[B];
    let seen: Vec<_> = arrived.iter().map(|c| node.rnic.match_tags(c, &mut node.memory)).collect();
    assert!(matches!(
        seen[..],
        [Seen::Instead { completion: Completion { wr_id: 4, status: Success, .. }, .. }]
    ));
    node.deregister(&lost);
    let transfer = node.rnic.next_transfer().expect("one that has begun");
    node.rnic.fail_transfer(matching.pair.net.now, &transfer);
    matching.run();
    let (failed, _, _) = matching.seen.first().expect("its end");
    assert_eq!((failed.wr_id, failed.status), (4, LocalQpOperation));
    assert_eq!(matching.seen.iter().filter(|(c, ..)| c.wr_id == 4).count(), 1);
    assert_eq!(matching.pair.state(B), QpState::Error);
}

#[test]
fn a_rendezvous_goes_with_its_queue_pair() {
    let mut matching = Matching::new();
    matching.add(1, 0x11);
    let place = matching.place(FAR, 64);
    matching.post(0, TagOperation::Rendezvous, 0x11, &place);
    matching.pair.run();
    let arrived = matching.pair.completions(B);
    let (qpn, node) = (matching.pair.ends[B].qpn, &mut matching.pair.net.nodes[B]);
    assert!(matches!(node.rnic.match_tags(&arrived[0], &mut node.memory), Seen::Instead { .. }));
    node.rnic.destroy_qp(qpn).expect("goes");
    assert!(node.rnic.next_transfer().is_none());
}

#[test]
fn an_unexpected_message_keeps_new_buffers_out_until_it_is_known() {
    let mut matching = Matching::new();
    matching.send(TagOperation::Eager, 0x44, b"early");
    matching.add(1, 0x55);
    matching.send(TagOperation::Eager, 0x55, b"too early");
    let unexpected = |wr_id| (wr_id, Success, ReceiveTagged, TagFlags::NONE);
    assert_eq!(matching.shown(), [unexpected(100), unexpected(101)]);
    for (count, flags) in [(1, TagFlags::SYNC_NEEDED), (2, TagFlags::NONE)] {
        matching.pair.net.nodes[B].rnic.sync_tags(matching.srq, &request(7, Some(count))).expect("syncs");
        matching.run();
        assert_eq!(matching.shown(), [(7, Success, SyncTags, flags)]);
    }
    matching.send(TagOperation::Eager, 0x55, b"in time");
    assert_eq!(matching.shown(), [(1, Success, ReceiveTagged, WHOLE)]);
    let nothing = matching.pair.net.nodes[B].rnic.sync_tags(matching.srq, &request(7, None));
    assert_eq!(nothing, Err(PostError::Unsupported));
}

#[test]
fn what_does_not_fit_or_may_not_be_written_is_said() {
    let mut matching = Matching::new();
    let small = [matching.pair.buffers[B].sge(TAGGED, 4)];
    matching.add_at(9, 1, &small).expect("adds");
    matching.send(TagOperation::Eager, 1, b"seven..");
    assert_eq!(matching.shown(), [(9, LocalLength, ReceiveTagged, TagFlags::MATCHED)]);
    assert_eq!(matching.pair.bytes(B, TAGGED, 4).len(), 4);
    let gone = matching.pair.net.nodes[B].register(256, Access::LOCAL_WRITE);
    matching.add_at(8, 2, &[gone.sge(0, 256)]).expect("adds");
    matching.pair.net.nodes[B].deregister(&gone);
    matching.send(TagOperation::Eager, 2, b"nowhere");
    assert_eq!(matching.shown(), [(8, LocalProtection, ReceiveTagged, TagFlags::MATCHED)]);
    let constant = matching.pair.net.nodes[B].register(256, Access::REMOTE_READ);
    matching.add_at(7, 3, &[constant.sge(0, 256)]).expect("adds");
    matching.send(TagOperation::Eager, 3, b"constant");
    assert_eq!(matching.shown(), [(7, LocalProtection, ReceiveTagged, TagFlags::MATCHED)]);
    let handles: Vec<_> = (0..4).map(|place| matching.add(place, 0x60 + place)).collect();
    assert_eq!(matching.add_at(5, 9, &small), Err(PostError::QueueFull));
    let rnic = &mut matching.pair.net.nodes[B].rnic;
    for _ in 0..2 {
        rnic.remove_tag(matching.srq, handles[1], &request(6, None)).expect("says so");
    }
    matching.run();
    assert_eq!(matching.shown(), [(6, CompletionStatus::Tag, RemoveTag, TagFlags::NONE)]);
    // A message without room for a header has no tag.
    let sges = [matching.pair.buffers[A].sge(0, 5)];
    matching.pair.post_wr(A, &SendWr::new(1, Operation::Send, &sges)).expect("posts");
    matching.run();
    assert_eq!(matching.shown()[0].2, ReceiveNoTag);
}

#[test]
fn requests_of_the_application_are_its_own() {
    let mut matching = Matching::new();
    // The number that the first READ of the RNIC's own would have.
    for number in [0x7A67_7265_0000_0000, 0x7A67_7265_0000_0001] {
        matching.pair.receive(A, 61, TOLD, 64);
        matching.pair.post(B, number, Operation::Send, 0, 8);
        matching.run();
        assert_eq!(matching.shown(), [(number, Success, CompletionOp::Send, TagFlags::NONE)]);
    }
}

#[test]
fn the_list_holds_on_to_its_completion_queue_and_goes_with_its_queue() {
    let mut matching = Matching::new();
    let (qpn, srq, cq) = (matching.pair.ends[B].qpn, matching.srq, matching.cq);
    let node = &mut matching.pair.net.nodes[B];
    let rnic = &mut node.rnic;
    assert_eq!(rnic.create_tagged_srq(node.pd, CqId(99), 4, 16, 2), Err(CreateError::NoSuchCq));
    assert_eq!(rnic.destroy_cq(cq), Err(RegisterError::InUse));
    assert_eq!(rnic.destroy_srq(srq), Err(RegisterError::InUse));
    rnic.destroy_qp(qpn).expect("goes");
    rnic.destroy_srq(srq).expect("goes");
    assert!(!rnic.has_tags());
    rnic.destroy_cq(cq).expect("is free");
    let sges = SgeList::default();
    let buffer = TaggedBuffer { wr_id: 1, tag: 1, mask: 1, sges };
    assert_eq!(rnic.add_tag(srq, buffer, &request(1, None)), Err(PostError::NoSuchQueue));
    assert_eq!(rnic.sync_tags(srq, &request(1, Some(0))), Err(PostError::NoSuchQueue));
}
