//! Messages that others send in a peer's name end nothing, and those of the peer itself still do.

mod harness;

use harness::{Faults, Net, SERVICE, gid, reply, request};
use highwire_cm::{CommId, DisconnectCause, Event};
use highwire_stdx::Duration;
use highwire_wire::Qpn;
use highwire_wire::cm::{CmMad, CmMessage, Drep, Dreq, Rej, RejectReason, Rejected, SidrRep, SidrStatus};

const MOMENT: Duration = Duration::from_millis(1);
const ASKER_QPN: u32 = 0x10;
const ANSWERER_QPN: u32 = 0x20;

/// An established connection, and the transaction in which it was made.
struct Connected {
    net: Net,
    asker: CommId,
    answerer: CommId,
    transaction: u64,
}

fn connected() -> Connected {
    let mut net = Net::new(2, 1, Faults::default());
    net.end(1).listen(SERVICE).expect("nobody listens yet");
    let (now, to, ask) = (net.now, gid(1), request(gid(0), gid(1), ASKER_QPN));
    let asker = net.end(0).connect(now, to, &ask, 0);
    let sent = net.end(0).poll_transmit().expect("a request is out");
    let transaction = CmMad::parse(&sent.mad).expect("what is sent parses").transaction_id;
    net.end(1).handle_mad(now, gid(0), &sent.mad);
    let answerer = net.events(1)[0].id();
    net.end(1).accept(now, answerer, &reply(ANSWERER_QPN), 0).expect("it was asked for");
    net.run_for(MOMENT);
    net.end(0).establish(asker).expect("it was replied to");
    net.run_for(MOMENT);
    net.events(0);
    net.events(1);
    net.spoken();
    Connected { net, asker, answerer, transaction }
}

impl Connected {
    /// Delivers `mad` to the responder, as if the requester had sent it; returns the events of both ends.
    fn forge(&mut self, mad: CmMad) -> [Vec<Event>; 2] {
        let now = self.net.now;
        self.net.end(1).handle_mad(now, gid(0), &mad.emit());
        self.net.run_for(MOMENT);
        [self.net.events(0), self.net.events(1)]
    }

    fn assert_alive(&mut self, what: &str) {
        let (asker, answerer) = (self.asker, self.answerer);
        assert!(self.net.end(0).is_established(asker), "{what}: the asker's end");
        assert!(self.net.end(1).is_established(answerer), "{what}: the other end");
    }

    fn dreq(&self) -> Dreq {
        Dreq {
            local_id: self.asker.0,
            remote_id: self.answerer.0,
            remote_qpn: Qpn::new(ANSWERER_QPN),
            private_data: [0; Dreq::PRIVATE_LEN],
        }
    }

    fn rej(&self) -> Rej {
        Rej {
            local_id: self.asker.0,
            remote_id: self.answerer.0,
            rejected: Rejected::Rep,
            reason: RejectReason::CONSUMER,
            info_len: 0,
            info: [0; Rej::INFO_LEN],
            private_data: [0; Rej::PRIVATE_LEN],
        }
    }
}

fn mad(transaction_id: u64, message: CmMessage) -> CmMad {
    CmMad { transaction_id, ece_options: 0, message }
}

#[test]
fn a_disconnection_must_name_both_ends_and_the_queue_pair() {
    type Change = fn(&mut Dreq);
    let forgeries: [(&str, Change); 4] = [
        ("identifier 0", |dreq| dreq.local_id = 0),
        ("another identifier of the peer", |dreq| dreq.local_id ^= 0x100),
        ("another queue pair", |dreq| dreq.remote_qpn = Qpn::new(ANSWERER_QPN + 1)),
        ("queue pair 0", |dreq| dreq.remote_qpn = Qpn::new(0)),
    ];
    for (what, change) in forgeries {
        let mut c = connected();
        let mut dreq = c.dreq();
        change(&mut dreq);
        assert_eq!(c.forge(mad(c.transaction, CmMessage::Dreq(dreq))), [[], []], "{what}");
        c.assert_alive(what);
    }
    let mut c = connected();
    let (id, cause) = (c.answerer, DisconnectCause::Peer);
    let true_one = mad(99, CmMessage::Dreq(c.dreq()));
    assert_eq!(c.forge(true_one)[1], [Event::Disconnected { id, cause }], "and the true one does end it");
}

#[test]
fn a_refusal_must_name_both_ends_and_the_transaction() {
    type Change = fn(&mut Rej, &mut u64);
    let forgeries: [(&str, Change); 4] = [
        ("one identifier alone", |rej, _| rej.local_id = 0),
        ("another identifier of the peer", |rej, _| rej.local_id ^= 0x100),
        ("another transaction", |_, transaction| *transaction ^= 1 << 40),
        ("too late, and another transaction", |rej, transaction| {
            (rej.reason, rej.remote_id) = (RejectReason::TIMEOUT, 0);
            *transaction ^= 1 << 40;
        }),
    ];
    for (what, change) in forgeries {
        let mut c = connected();
        let (mut rej, mut transaction) = (c.rej(), c.transaction);
        change(&mut rej, &mut transaction);
        assert_eq!(c.forge(mad(transaction, CmMessage::Rej(rej))), [[], []], "{what}");
        c.assert_alive(what);
    }
    let mut c = connected();
    let (id, cause) = (c.answerer, DisconnectCause::Stale);
    let true_one = mad(c.transaction, CmMessage::Rej(c.rej()));
    assert_eq!(c.forge(true_one)[1], [Event::Disconnected { id, cause }], "and the true one does end it");
}

#[test]
fn an_answer_to_a_disconnection_nobody_asked_for_ends_nothing() {
    let mut c = connected();
    let drep = Drep { local_id: c.asker.0, remote_id: c.answerer.0, private_data: [0; Drep::PRIVATE_LEN] };
    for transaction in [0, c.transaction] {
        assert_eq!(c.forge(mad(transaction, CmMessage::Drep(drep))), [[], []]);
    }
    c.assert_alive("DREP");
    let (now, id) = (c.net.now, c.answerer);
    c.net.end(1).disconnect(now, id, &[]).expect("it is in use");
    c.net.end(1).handle_mad(now, gid(0), &mad(c.transaction, CmMessage::Drep(drep)).emit());
    assert!(c.net.end(1).poll_event().is_none(), "the answer to a DREQ has that DREQ's transaction");
}

/// A request is under way without an answer: only the transaction proves that an answer's sender has read it.
#[test]
fn a_request_is_answered_only_in_its_own_transaction() {
    let mut net = Net::new(1, 1, Faults::default());
    let (now, ask) = (net.now, request(gid(0), gid(1), ASKER_QPN));
    let id = net.end(0).connect(now, gid(1), &ask, 0);
    let sent = net.end(0).poll_transmit().expect("a request is out");
    let transaction = CmMad::parse(&sent.mad).expect("what is sent parses").transaction_id;
    let mut rep = reply(ANSWERER_QPN);
    (rep.local_id, rep.remote_id) = (0x700, id.0);
    let rej = Rej {
        local_id: 0,
        remote_id: id.0,
        rejected: Rejected::Req,
        reason: RejectReason::CONSUMER,
        info_len: 0,
        info: [0; Rej::INFO_LEN],
        private_data: [0; Rej::PRIVATE_LEN],
    };
    for message in [CmMessage::Rep(rep), CmMessage::Rej(rej)] {
        net.end(0).handle_mad(now, gid(1), &mad(transaction ^ 1 << 63, message).emit());
        assert!(net.end(0).poll_event().is_none(), "{message:?}");
    }
    net.end(0).handle_mad(now, gid(1), &mad(transaction, CmMessage::Rep(rep)).emit());
    assert!(matches!(net.end(0).poll_event(), Some(Event::Replied { .. })));
}

#[test]
fn a_request_in_a_living_peers_name_ends_nothing() {
    let mut c = connected();
    let mut req = request(gid(0), gid(1), ASKER_QPN);
    req.local_id = 0x0123_4502;
    for attempt in 0..3 {
        assert_eq!(c.forge(mad(attempt, CmMessage::Req(req))), [[], []]);
    }
    c.assert_alive("REQ from a queue pair that is connected");
    assert_eq!(
        c.net.spoken(),
        "1:DREQ 1:REJ 1:DREQ 1:REJ 1:DREQ 1:REJ",
        "the peer is asked, and its silence is a yes"
    );
}

#[test]
fn a_reply_with_a_queue_pair_in_use_ends_nothing_of_a_peer_that_lives() {
    let mut c = connected();
    let second = c.net.connect(0, 1, 0x11);
    c.net.run_for(MOMENT);
    let id = c.net.events(1)[0].id();
    let now = c.net.now;
    c.net.end(1).accept(now, id, &reply(ANSWERER_QPN), 0).expect("it was asked for");
    c.net.run_for(MOMENT);
    let events = c.net.events(0);
    assert!(matches!(events[..], [Event::Replied { id, .. }] if id == second), "{events:?}");
    c.assert_alive("REP with a queue pair that is connected");
}

#[test]
fn a_datagram_service_is_found_only_in_the_questions_transaction() {
    let mut net = Net::new(1, 1, Faults::default());
    let now = net.now;
    let id = net.end(0).ask_service(now, gid(1), SERVICE, 0xFFFF, &[]).expect("short enough");
    let sent = net.end(0).poll_transmit().expect("a question is out");
    let transaction = CmMad::parse(&sent.mad).expect("what is sent parses").transaction_id;
    let rep = SidrRep {
        request_id: id.0,
        status: SidrStatus::SUCCESS,
        info_len: 0,
        qpn: Qpn::new(0x66),
        service_id: SERVICE,
        qkey: 1,
        info: [0; SidrRep::INFO_LEN],
        private_data: [0; SidrRep::PRIVATE_LEN],
    };
    net.end(0).handle_mad(now, gid(1), &mad(transaction ^ 1 << 63, CmMessage::SidrRep(rep)).emit());
    assert!(net.end(0).poll_event().is_none());
    net.end(0).handle_mad(now, gid(1), &mad(transaction, CmMessage::SidrRep(rep)).emit());
    assert!(matches!(net.end(0).poll_event(), Some(Event::ServiceAnswered { .. })));
}
