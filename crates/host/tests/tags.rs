//! Tag matching: messages find the buffer that waits for their tag, whole or by rendezvous.

mod common;

use common::{End, Setup, until};
use highwire_host::verbs::{
    Completion, CompletionOp, CompletionStatus, Operation, PostError, RecvWr, SendWr, Service, SgeList,
    TagFlags, TagRequest, TaggedBuffer,
};
use highwire_host::{LinkChoice, QueuePair, QueuePairConfig, SharedReceiveQueue, SharedReceiveQueueConfig};
use highwire_wire::{TagHeader, TagOperation};

const ROOM: u32 = 512;
/// Where tagged buffers lie; receives of the queue lie before.
const TAGGED: u64 = 1 << 16;
/// Where the sender keeps the bytes that the receiver READs.
const FAR: u64 = 1 << 18;
const MATCHED: TagFlags = TagFlags::MATCHED;
const WHOLE: TagFlags = TagFlags(TagFlags::MATCHED.0 | TagFlags::DATA_VALID.0);

struct Matching {
    sender: End,
    receiver: End,
    srq: SharedReceiveQueue,
    qp: QueuePair,
}

impl Matching {
    fn new(link: LinkChoice) -> Matching {
        let setup = Setup::new(Service::Rc, link);
        let [sender, receiver] = [setup.end(), setup.end()];
        let config = SharedReceiveQueueConfig {
            tags: Some((4, &receiver.cq)),
            ..SharedReceiveQueueConfig::new(16, 2)
        };
        let srq = receiver.device.create_shared_receive_queue(&receiver.pd, &config).expect("a queue");
        let config = QueuePairConfig { srq: Some(&srq), ..QueuePairConfig::new(Service::Rc, &receiver.cq) };
        let qp = receiver.pd.queue_pair(&config).expect("a queue pair");
        sender.qp.connect(&qp.endpoint(), &setup.options).expect("connects");
        qp.connect(&sender.qp.endpoint(), &setup.options).expect("connects");
        for wr_id in 0..4 {
            // In two pieces, so that a header is not in one.
            let at = 100 + wr_id * u64::from(ROOM);
            let sges = [receiver.buffer.sge(at, 10), receiver.buffer.sge(at + 10, ROOM - 10)];
            srq.post_recv(&RecvWr { wr_id: 100 + wr_id, sges: &sges }).expect("posts");
        }
        Matching { sender, receiver, srq, qp }
    }

    /// Adds a buffer at place `place`, which is also its number.
    fn add(&self, place: u64, tag: u64, unexpected: Option<u32>) -> highwire_host::verbs::TagHandle {
        let sges = [self.receiver.buffer.sge(TAGGED + place * u64::from(ROOM), ROOM)];
        let buffer = TaggedBuffer { wr_id: place, tag, mask: 0xFFFF, sges: SgeList::from(&sges[..]) };
        self.srq.add_tag(buffer, &TagRequest { wr_id: 0, signaled: false, unexpected }).expect("adds")
    }

    fn send(&self, operation: TagOperation, tag: u64, rest: &[u8]) {
        let mut header = [0; TagHeader::LEN];
        TagHeader { operation, context: 77, tag }.emit(&mut header);
        self.sender.buffer.write(0, &[&header[..], rest].concat());
        let sges = [self.sender.buffer.sge(0, (TagHeader::LEN + rest.len()) as u32)];
        self.sender.qp.post_send(&[SendWr::new(1, Operation::Send, &sges)]).expect("posts");
    }

    /// Offers `length` bytes at [`FAR`] of the sender's buffer to the tagged buffer `place`, which waits for them.
    fn offer(&self, place: u64, tag: u64, length: u32) {
        let remote = self.sender.buffer.remote(FAR);
        let at = [&remote.va.to_be_bytes()[..], &remote.rkey.0.to_be_bytes(), &length.to_be_bytes()].concat();
        self.send(TagOperation::Rendezvous, tag, &at);
        self.expect(place, CompletionOp::ReceiveTagged, MATCHED, tag);
    }

    /// The receiver's next completion, with its tag.
    fn next(&self) -> (Completion, u64, u32) {
        until("a completion", || {
            self.sender.cq.poll(&mut []);
            self.receiver.cq.poll_tagged()
        })
    }

    #[track_caller]
    fn expect(&self, wr_id: u64, operation: CompletionOp, tags: TagFlags, tag: u64) {
        let (completion, found, context) = self.next();
        assert_eq!(completion.status, CompletionStatus::Success, "{completion:?}");
        assert_eq!((completion.wr_id, completion.operation, completion.flags.tags), (wr_id, operation, tags));
        assert_eq!((found, context), if tag == 0 { (0, 0) } else { (tag, 77) });
    }

    fn tagged(&self, place: u64, length: usize) -> Vec<u8> {
        self.receiver.buffer.to_vec((TAGGED + place * u64::from(ROOM)) as usize, length)
    }
}

const LINKS: [LinkChoice; 2] = [LinkChoice::Udp, LinkChoice::Auto];

#[test]
fn a_message_lies_in_the_buffer_that_waits_for_its_tag() {
    for link in LINKS {
        let matching = Matching::new(link);
        matching.add(1, 0x11, None);
        matching.add(2, 0x22, None);
        for round in 0..6 {
            // Receives of the queue are not used up by what matches.
            matching.send(TagOperation::Eager, 0x5_0022, &[round; 300]);
            matching.expect(2, CompletionOp::ReceiveTagged, WHOLE, 0x5_0022);
            assert_eq!(matching.tagged(2, 300), [round; 300]);
            matching.add(2, 0x22, None);
        }
        matching.send(TagOperation::NoTag, 0x11, b"none");
        // Six of four receives have gone round.
        matching.expect(102, CompletionOp::ReceiveNoTag, TagFlags::NONE, 0);
        matching.send(TagOperation::Eager, 0x11, &[9; ROOM as usize - TagHeader::LEN]);
        matching.expect(1, CompletionOp::ReceiveTagged, WHOLE, 0x11);
    }
}

#[test]
fn a_rendezvous_reads_the_message_and_tells_its_sender() {
    for link in LINKS {
        let matching = Matching::new(link);
        let message = matching.sender.fill(FAR as usize, 400, 3);
        matching.sender.receive(55, 1 << 17, 64);
        matching.add(3, 0x33, None);
        matching.offer(3, 0x33, 400);
        matching.expect(3, CompletionOp::ReceiveTagged, TagFlags::DATA_VALID, 0);
        assert_eq!(matching.tagged(3, 400), message);
        let mut ended: Vec<u64> = (0..2)
            .map(|_| {
                until("the sender's completions", || {
                    matching.receiver.cq.poll(&mut []);
                    matching.sender.cq.poll_one()
                })
                .wr_id
            })
            .collect();
        ended.sort_unstable();
        assert_eq!(ended, [1, 55]);
        let told = matching.sender.buffer.to_vec(1 << 17, TagHeader::LEN);
        let header = TagHeader::parse(&told.try_into().expect("16 bytes")).expect("a header");
        assert_eq!(header, TagHeader { operation: TagOperation::Finished, context: 77, tag: 0x33 });
    }
}

#[test]
fn an_unexpected_message_keeps_new_buffers_out_until_it_is_known() {
    let matching = Matching::new(LinkChoice::Auto);
    matching.send(TagOperation::Eager, 0x44, b"early");
    matching.expect(100, CompletionOp::ReceiveTagged, TagFlags::NONE, 0);
    matching.add(1, 0x55, Some(0));
    matching.send(TagOperation::Eager, 0x55, b"too early");
    matching.expect(101, CompletionOp::ReceiveTagged, TagFlags::NONE, 0);
    let sync = |unexpected| TagRequest { wr_id: 7, signaled: true, unexpected: Some(unexpected) };
    matching.srq.sync_tags(&sync(1)).expect("syncs");
    matching.expect(7, CompletionOp::SyncTags, TagFlags::SYNC_NEEDED, 0);
    matching.srq.sync_tags(&sync(2)).expect("syncs");
    matching.expect(7, CompletionOp::SyncTags, TagFlags::NONE, 0);
    matching.send(TagOperation::Eager, 0x55, b"in time");
    matching.expect(1, CompletionOp::ReceiveTagged, WHOLE, 0x55);
    assert_eq!(matching.tagged(1, 7), b"in time");
}

#[test]
fn what_does_not_fit_or_is_not_there_is_said() {
    let matching = Matching::new(LinkChoice::Auto);
    let sges = [matching.receiver.buffer.sge(TAGGED, 4)];
    let small = TaggedBuffer { wr_id: 9, tag: 1, mask: u64::MAX, sges: SgeList::from(&sges[..]) };
    let quiet = TagRequest { wr_id: 5, signaled: false, unexpected: None };
    matching.srq.add_tag(small.clone(), &quiet).expect("adds");
    matching.send(TagOperation::Eager, 1, b"seven..");
    let (completion, ..) = matching.next();
    assert_eq!((completion.wr_id, completion.status), (9, CompletionStatus::LocalLength));
    let handles: Vec<_> = (0..4).map(|place| matching.add(place, 0x60 + place, None)).collect();
    assert_eq!(matching.srq.add_tag(small, &quiet), Err(PostError::QueueFull));
    matching.srq.remove_tag(handles[1], &quiet).expect("removes");
    matching.srq.remove_tag(handles[1], &quiet).expect("says so");
    let (completion, ..) = matching.next();
    assert_eq!((completion.wr_id, completion.status), (5, CompletionStatus::Tag));
    // A rendezvous with a key that is none breaks the connection, and the buffer's completion says that it failed.
    let nowhere = [[0xAB; 12].as_slice(), &16u32.to_be_bytes()].concat();
    matching.send(TagOperation::Rendezvous, 0x62, &nowhere);
    let results: Vec<_> = (0..2).map(|_| matching.next().0).collect();
    assert!(results.iter().any(|c| c.wr_id == 2 && c.status != CompletionStatus::Success), "{results:?}");
    let plain = matching.receiver.device.shared_receive_queue(&matching.receiver.pd, 4, 1).expect("a queue");
    assert_eq!(plain.sync_tags(&quiet), Err(PostError::NoSuchQueue));
}

#[test]
fn a_rendezvous_waits_for_a_place_in_a_full_send_queue() {
    for link in LINKS {
        let matching = Matching::new(link);
        // The sender has no receives yet, so these stay until the queue is full.
        let sges = [matching.receiver.buffer.sge(0, 8)];
        let full = until("a full queue", || {
            let wr = SendWr::new(500, Operation::Send, &sges);
            matching.qp.post_send(&[wr]).err().map(|refused| refused.error)
        });
        assert_eq!(full, PostError::QueueFull);
        let message = matching.sender.fill(FAR as usize, 400, 5);
        matching.add(3, 0x33, None);
        matching.offer(3, 0x33, 400);
        let mut told = 0;
        let whole = until("the message", || {
            let _ = matching
                .sender
                .qp
                .post_recv(&RecvWr { wr_id: 55, sges: &[matching.sender.buffer.sge(1 << 17, 64)] });
            told += u32::from(matching.sender.cq.poll_one().is_some());
            matching.receiver.cq.poll_tagged().filter(|(completion, ..)| completion.wr_id != 500)
        });
        assert_eq!((whole.0.wr_id, whole.0.status), (3, CompletionStatus::Success));
        assert_eq!(whole.0.flags.tags, TagFlags::DATA_VALID);
        assert_eq!(matching.tagged(3, 400), message);
        assert!(told > 100, "{told}");
    }
}
