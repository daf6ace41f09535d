use super::*;
use highwire_host::verbs::{Gid, Service};
use highwire_wire::{NakCode, Opcode};

const NEAR: u32 = 0x12;
const FAR: u32 = 0x13;

fn gid() -> Gid {
    Gid::from_ip([127, 83, 0, 1].into())
}

/// A process that is written entry by entry, each a microsecond after the one before.
struct Writing(Part);

impl Writing {
    fn new(process: u32, qpn: u32, peer_qpn: u32) -> Writing {
        let mut writing = Writing(Part { process, name: "x".into(), has_ended: true, ..Part::default() });
        writing.add(Event::Device { gid: gid(), name: "hw0".into() });
        writing.add(Event::State {
            qpn,
            service: Service::Rc,
            from: QpState::Rtr,
            to: QpState::Rts,
            peer_qpn,
            peer: gid(),
            retry_count: 7,
            rnr_retry: 6,
            timeout: 14,
        });
        writing
    }

    fn add(&mut self, event: Event) -> &mut Writing {
        let time_ns = 1_000 * (1 + self.0.entries.len() as u64);
        self.0.entries.push(Entry { time_ns, device: 0, event });
        self
    }

    fn post(&mut self, wr_id: u64) -> &mut Writing {
        let operation = CompletionOp::Write;
        let (va, rkey) = (0x7000, 0x5d12);
        self.add(Event::Posted(Request {
            qpn: NEAR,
            wr_id,
            operation,
            length: 4096,
            signaled: true,
            direct: false,
            va,
            rkey,
            to_qpn: 0,
        }))
    }

    fn end(&mut self, wr_id: u64, status: CompletionStatus) -> &mut Writing {
        self.add(Event::Completed { qpn: NEAR, wr_id, status, operation: CompletionOp::Write, bytes: 0 })
    }

    fn packet(&mut self, fate: PacketFate, psn: u32, syndrome: Option<Syndrome>) -> &mut Writing {
        let opcode = if syndrome.is_some() { Opcode::RcAck } else { Opcode::RcWriteOnly };
        let (opcode, peer) = (opcode.to_u8(), gid());
        self.add(Event::Packet(Packet {
            fate,
            qpn: NEAR,
            to_qpn: FAR,
            opcode,
            psn,
            length: 0,
            syndrome,
            peer,
            management: None,
        }))
    }

    fn text(&mut self, about: About, qpn: u32, text: &str) -> &mut Writing {
        self.add(Event::Text { about, qpn, text: text.into() })
    }
}

fn explain(parts: &[&Writing]) -> Explained {
    let mut findings = Findings::default();
    parts.iter().for_each(|writing| findings.read(&writing.0, 0));
    findings.finish(0)
}

fn check(explained: &Explained, number: usize, parts: &[&str]) {
    let words = &explained.wrong.get(number).unwrap_or_else(|| panic!("{explained:?}")).words;
    for part in parts {
        assert!(words.contains(part), "`{part}` is not in {words}");
    }
}

#[test]
fn nothing_wrong_is_nothing_found() {
    let mut writing = Writing::new(1, NEAR, FAR);
    writing.post(7).packet(PacketFate::Sent, 5, None);
    writing
        .packet(PacketFate::Received, 5, Some(Syndrome::Ack { credits: 31 }))
        .end(7, CompletionStatus::Success);
    let flushed = CompletionStatus::Flushed;
    writing.add(Event::Completed {
        qpn: NEAR,
        wr_id: 1,
        status: flushed,
        operation: CompletionOp::Receive,
        bytes: 0,
    });
    let explained = explain(&[&writing]);
    assert!(explained.wrong.is_empty(), "{explained:?}");
    assert!(explained.seen.contains("1 process, 1 queue pair, "), "{}", explained.seen);
}

/// The cause is what the other end says; what follows from it is not told as a cause.
#[test]
fn a_refusal_has_the_other_end_s_reason_and_its_consequences_are_none() {
    let denial = "queue pair 0x13 refuses a peer's WRITE: the region does not cover it";
    let mut near = Writing::new(1, NEAR, FAR);
    near.post(7).post(8).packet(PacketFate::Sent, 5, None);
    near.packet(PacketFate::Received, 5, Some(Syndrome::Nak(NakCode::RemoteAccess)));
    near.end(7, CompletionStatus::RemoteAccess).end(8, CompletionStatus::Flushed);
    let mut far = Writing::new(2, FAR, NEAR);
    far.text(About::Denial, FAR, denial).text(About::Trouble, 0, denial);
    let both = explain(&[&near, &far]);
    assert_eq!(both.wrong.len(), 1, "{both:?}");
    let head = "queue pair 0x12 (RC): an RDMA WRITE of 4,096 bytes, wr_id 7, at 0x7000 with rkey 0x5d12, ends with IBV_WC_REM_ACCESS_ERR";
    check(&both, 0, &[head, "the peer refused it: queue pair 0x13 refuses", "does not cover it"]);
    let alone = explain(&[&near]);
    check(&alone, 0, &[head, "the peer with HIGHWIRE_LOG=1 says which"]);
    assert!(alone.notes.iter().any(|note| note.contains("flushed 1 request after")), "{alone:?}");
}

#[test]
fn a_peer_that_falls_silent_was_heard_last_at_a_time() {
    let mut writing = Writing::new(1, NEAR, FAR);
    writing.post(7).packet(PacketFate::Sent, 5, None);
    writing.packet(PacketFate::Received, 5, Some(Syndrome::Ack { credits: 31 }));
    (0..8).for_each(|_| {
        writing.packet(PacketFate::Sent, 6, None);
    });
    writing.end(7, CompletionStatus::RetryExceeded);
    writing.text(
        About::Failure,
        NEAR,
        "queue pair 0x12 (RC): an RDMA WRITE, wr_id 7, ends with IBV_WC_RETRY_EXC_ERR: no route",
    );
    let heard = [
        "0x13 at 127.83.0.1, stopped answering",
        "heard last at 0.000005000 s",
        "again 7 times",
        "; no route",
    ];
    check(&explain(&[&writing]), 0, &heard);
    let mut never = Writing::new(1, NEAR, FAR);
    never.post(7).packet(PacketFate::Sent, 5, None).end(7, CompletionStatus::RetryExceeded);
    check(&explain(&[&never]), 0, &["has never answered", "sent again 0 times", "packets do not arrive"]);
}

#[test]
fn an_empty_receive_queue_is_counted() {
    let mut writing = Writing::new(1, NEAR, FAR);
    writing.post(7);
    for _ in 0..412 {
        writing.packet(PacketFate::Sent, 5, None);
        writing.packet(PacketFate::Received, 5, Some(Syndrome::Rnr { timer: 1 }));
    }
    let mut healed = Writing(writing.0.clone());
    writing.end(7, CompletionStatus::RnrRetryExceeded);
    check(&explain(&[&writing]), 0, &["the peer's receive queue was empty 412 times (RNR)"]);
    let explained = explain(&[healed.end(7, CompletionStatus::Success)]);
    assert!(explained.wrong.is_empty());
    assert!(
        explained.notes.iter().any(|note| note.contains("receive queue empty 412 times (RNR)")),
        "{explained:?}"
    );
}

/// Whatever comes first is told first: a fault on purpose before what it has led to.
#[test]
fn the_first_cause_is_the_first() {
    let mut writing = Writing::new(1, NEAR, FAR);
    writing.post(7).packet(PacketFate::FaultLost, 5, None).packet(PacketFate::FaultLost, 5, None);
    writing.end(7, CompletionStatus::RetryExceeded);
    writing.text(About::Refusal, 0, "ibv_post_send fails with EINVAL: it is in ERR");
    writing.0.has_ended = false;
    let explained = explain(&[&writing]);
    check(&explained, 0, &["on purpose: 2 packets lost by a fault"]);
    check(&explained, 1, &["IBV_WC_RETRY_EXC_ERR"]);
    check(&explained, 2, &["ibv_post_send fails"]);
    assert!(explained.notes.iter().any(|note| note.contains("did not end by itself")), "{explained:?}");
}

#[test]
fn a_local_refusal_takes_its_own_line_along() {
    let mut writing = Writing::new(1, NEAR, FAR);
    let denial = "queue pair 0x12 refuses a local read: there is no such lkey";
    writing.post(7).text(About::Denial, NEAR, denial).end(7, CompletionStatus::LocalProtection);
    let explained = explain(&[&writing]);
    assert_eq!(explained.wrong.len(), 1, "{explained:?}");
    check(&explained, 0, &["IBV_WC_LOC_PROT_ERR", denial]);
}
