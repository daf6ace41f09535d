//! Conversations on a good network, and with one fault at a time.

mod harness;

use harness::{Faults, Net, SERVICE, gid, reply, request};
use highwire_cm::{CallError, CommId, DisconnectCause, Event, table};
use highwire_stdx::Duration;
use highwire_wire::Qpn;
use highwire_wire::cm::{RejectReason, SidrStatus};

const MOMENT: Duration = Duration::from_millis(1);
const AGES: Duration = Duration::from_secs(600);

fn net() -> Net {
    let mut net = Net::new(2, 1, Faults::default());
    net.end(1).listen(SERVICE).expect("nobody listens yet");
    net
}

/// A connection on both ends, established.
fn connected(net: &mut Net) -> (CommId, CommId) {
    let asker = net.connect(0, 1, 0x10);
    net.run_for(MOMENT);
    let [Event::Requested { id, .. }] = net.events(1)[..] else { panic!("one request") };
    let now = net.now;
    net.end(1).accept(now, id, &reply(0x20), 0).expect("it was asked for");
    net.run_for(MOMENT);
    assert!(matches!(net.events(0)[..], [Event::Replied { id, .. }] if id == asker));
    net.end(0).establish(asker).expect("it was replied to");
    net.run_for(MOMENT);
    assert_eq!(net.events(1), [Event::Established { id }]);
    (asker, id)
}

#[test]
fn a_connection_is_made_used_and_ended() {
    let mut net = net();
    let (asker, answerer) = connected(&mut net);
    assert_eq!(net.spoken(), "0:REQ 1:REP 0:RTU");
    let now = net.now;
    net.end(0).disconnect(now, asker, b"bye").expect("it is in use");
    net.run_for(MOMENT);
    assert_eq!(net.spoken(), "0:DREQ 1:DREP");
    assert_eq!(net.events(1), [Event::Disconnected { id: answerer, cause: DisconnectCause::Peer }]);
    assert_eq!(net.events(0), [Event::Disconnected { id: asker, cause: DisconnectCause::Answered }]);
    net.run_for(AGES);
    assert_eq!(net.events(0), [Event::TimewaitExited { id: asker }]);
    assert_eq!(net.events(1), [Event::TimewaitExited { id: answerer }]);
    assert!(net.end(0).is_empty() && net.end(1).is_empty());
}

#[test]
fn the_answer_carries_what_was_asked_and_given() {
    let mut net = net();
    net.connect(0, 1, 0x10);
    net.run_for(MOMENT);
    let Event::Requested { id, from, request: got, .. } = net.events(1).remove(0) else {
        panic!("a request")
    };
    let sent = request(gid(0), gid(1), 0x10);
    assert_eq!(
        (from, got.qpn, got.starting_psn, got.private_data),
        (gid(0), sent.qpn, sent.starting_psn, sent.private_data)
    );
    assert_eq!((got.ca_guid, got.max_cm_retries, got.local_id & 0xFF, id.0 & 0xFF), (1, 15, 2, 3));
}

#[test]
fn nobody_listens() {
    let mut net = Net::new(2, 1, Faults::default());
    let id = net.connect(0, 1, 0x10);
    net.run_for(MOMENT);
    let events = net.events(0);
    let [Event::Rejected { id: rejected, reject }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((*rejected, reject.reason), (id, RejectReason::INVALID_SERVICE_ID));
    let now = net.now;
    net.end(0).release(now, id);
    assert!(net.end(0).is_empty() && net.end(1).is_empty());
}

#[test]
fn a_service_may_pause() {
    let mut net = net();
    let now = net.now;
    net.end(1).unlisten(now, SERVICE);
    net.connect(0, 1, 0x10);
    net.run_for(MOMENT);
    assert_eq!(net.events(0), [], "neither heard nor refused");
    net.end(1).listen(SERVICE).expect("nobody listens");
    net.run_for(Duration::from_secs(1));
    assert!(matches!(net.events(1)[..], [Event::Requested { .. }]));
    let now = net.now;
    net.end(1).unlisten(now, SERVICE);
    net.run_for(Duration::from_secs(3));
    net.connect(0, 1, 0x11);
    net.run_for(MOMENT);
    assert!(matches!(net.events(0)[..], [Event::Rejected { .. }]));
}

#[test]
fn a_peer_that_was_just_there_may_come_back() {
    let mut net = Net::new(2, 1, Faults::default());
    net.end(1).listen(SERVICE).expect("nobody listens yet");
    let (asker, _) = connected(&mut net);
    let now = net.now;
    net.end(0).release(now, asker);
    net.run_for(MOMENT);
    net.events(1);
    // A peer without the rule of pauses, such as Linux.
    let mut stranger = Net::new(2, 9, Faults::default());
    std::mem::swap(&mut net.ends[1].manager, &mut stranger.ends[1].manager);
    net.connect(0, 1, 0x11);
    net.run_for(MOMENT);
    assert!(net.spoken().ends_with("0:REQ 1:REJ"));
    assert_eq!(net.events(0), [], "it asks again");
    net.end(1).listen(SERVICE).expect("nobody listens");
    net.run_for(Duration::from_secs(1));
    assert!(matches!(net.events(1)[..], [Event::Requested { .. }]));
    net.connect(0, 1, 0x12);
    net.end(1).unlisten(now, SERVICE);
    net.run_for(Duration::from_secs(9));
    assert!(matches!(net.events(0)[..], [Event::Rejected { .. }]), "but not for ever");
}

#[test]
fn the_application_says_no_and_why() {
    let mut net = net();
    net.connect(0, 1, 0x10);
    net.run_for(MOMENT);
    let id = net.events(1)[0].id();
    net.end(1).reject(id, RejectReason::CONSUMER, b"info", b"no room").expect("it was asked for");
    net.run_for(MOMENT);
    let Event::Rejected { reject, .. } = net.events(0).remove(0) else { panic!("rejected") };
    assert_eq!(
        (reject.reason, &reject.private_data[..7], reject.info_len),
        (RejectReason::CONSUMER, &b"no room"[..], 4)
    );
    assert_eq!(net.end(1).reject(id, RejectReason::CONSUMER, &[], &[]), Err(CallError::WrongState));
}

#[test]
fn an_application_that_takes_its_time_gets_it() {
    let mut net = net();
    let asker = net.connect(0, 1, 0x10);
    net.run_for(Duration::from_secs(60));
    let spoken = net.spoken();
    assert!(spoken.starts_with("0:REQ 0:REQ 1:MRA 0:REQ 1:MRA") && spoken.len() < 200, "patience: {spoken}");
    let id = net.events(1)[0].id();
    let now = net.now;
    net.end(1).accept(now, id, &reply(0x20), 0).expect("it waits");
    net.run_for(Duration::from_secs(2));
    assert_eq!(net.spoken(), "1:REP 1:REP 0:MRA");
    net.end(0).establish(asker).expect("replied to");
    net.run_for(MOMENT);
    assert_eq!(net.events(1), [Event::Established { id }]);
}

#[test]
fn an_application_that_never_decides_is_given_up() {
    let mut net = net();
    let asker = net.connect(0, 1, 0x10);
    net.run_for(AGES);
    assert_eq!(net.events(0), [Event::Unreachable { id: asker }]);
    assert!(matches!(&net.events(1)[..], [Event::Requested { id, .. }, Event::Rejected { id: also, reject }]
        if id == also && reject.reason == RejectReason::TIMEOUT));
}

#[test]
fn a_peer_that_is_not_there_is_given_up() {
    let mut net = Net::new(1, 1, Faults::default());
    let to = gid(9);
    let (now, ask) = (net.now, request(gid(0), to, 0x10));
    let id = net.end(0).connect(now, to, &ask, 0);
    net.run_for(AGES);
    assert_eq!(net.events(0), [Event::Unreachable { id }]);
    assert_eq!(net.spoken().matches("REQ").count(), 16, "once, and fifteen times again");
    assert_eq!(net.end(0).poll_timeout(), None);
}

#[test]
fn a_peer_that_vanishes_does_not_hold_the_end_up() {
    let mut net = net();
    let (asker, _) = connected(&mut net);
    net.faults.loss = 1.0;
    let now = net.now;
    net.end(0).disconnect(now, asker, &[]).expect("it is in use");
    net.run_for(AGES);
    let silence = Event::Disconnected { id: asker, cause: DisconnectCause::Silence };
    assert_eq!(net.events(0), [silence, Event::TimewaitExited { id: asker }]);
}

#[test]
fn a_lost_rtu_is_said_again() {
    let mut net = net();
    let asker = net.connect(0, 1, 0x10);
    net.run_for(MOMENT);
    let id = net.events(1)[0].id();
    let now = net.now;
    net.end(1).accept(now, id, &reply(0x20), 0).expect("asked for");
    net.run_for(MOMENT);
    net.faults.loss = 1.0;
    net.end(0).establish(asker).expect("replied to");
    net.run_for(MOMENT);
    net.faults.loss = 0.0;
    net.run_for(Duration::from_secs(1));
    assert_eq!(net.spoken(), "0:REQ 1:REP 0:RTU 1:REP 0:RTU");
    assert_eq!(net.events(1), [Event::Established { id }]);
}

#[test]
fn data_proves_what_a_lost_rtu_did_not() {
    let mut net = net();
    let asker = net.connect(0, 1, 0x10);
    net.run_for(MOMENT);
    let id = net.events(1)[0].id();
    let now = net.now;
    assert_eq!(net.end(1).notify_established(id), Err(CallError::WrongState));
    net.end(1).accept(now, id, &reply(0x20), 0).expect("asked for");
    net.run_for(MOMENT);
    net.end(1).notify_established(id).expect("accepted");
    assert_eq!(net.events(1), [Event::Established { id }]);
    net.end(0).establish(asker).expect("replied to");
    net.run_for(Duration::from_secs(1));
    assert_eq!(net.events(1), []);
}

#[test]
fn both_ends_part_at_once() {
    let mut net = net();
    let (asker, answerer) = connected(&mut net);
    let now = net.now;
    net.end(0).disconnect(now, asker, &[]).expect("in use");
    net.end(1).disconnect(now, answerer, &[]).expect("in use");
    net.run_for(MOMENT);
    for (end, id) in [(0, asker), (1, answerer)] {
        let events = net.events(end);
        assert!(matches!(events[..], [Event::Disconnected { id: ended, .. }] if ended == id), "{events:?}");
    }
}

#[test]
fn a_released_connection_ends_unseen() {
    let mut net = net();
    let (asker, answerer) = connected(&mut net);
    let now = net.now;
    net.end(0).release(now, asker);
    net.run_for(AGES);
    assert_eq!(net.events(0), []);
    assert_eq!(net.events(1)[0], Event::Disconnected { id: answerer, cause: DisconnectCause::Peer });
    assert!(net.end(0).is_empty());
}

#[test]
fn an_application_that_leaves_half_way_tells_the_other() {
    let mut net = net();
    let asker = net.connect(0, 1, 0x10);
    net.run_for(MOMENT);
    let (answerer, now) = (net.events(1)[0].id(), net.now);
    net.end(1).release(now, answerer);
    net.run_for(MOMENT);
    assert!(
        matches!(&net.events(0)[..], [Event::Rejected { reject, .. }] if reject.reason == RejectReason::CONSUMER)
    );
    net.end(0).release(now, asker);
    net.run_for(AGES);
    assert!(net.end(0).is_empty() && net.end(1).is_empty());

    let asker = net.connect(0, 1, 0x11);
    net.run_for(MOMENT);
    let answerer = net.events(1)[0].id();
    let now = net.now;
    net.end(0).release(now, asker);
    net.run_for(MOMENT);
    assert!(matches!(&net.events(1)[..], [Event::Rejected { id, reject }]
        if *id == answerer && reject.reason == RejectReason::TIMEOUT));
}

#[test]
fn a_peer_that_forgot_its_connection_gets_a_new_one_at_the_second_try() {
    let mut net = net();
    let (_, answerer) = connected(&mut net);
    net.spoken();
    // The same queue pair asks again under another identifier: its owner has lost its memory.
    let mut amnesiac = Net::new(2, 77, Faults::default());
    std::mem::swap(&mut net.ends[0].manager, &mut amnesiac.ends[0].manager);
    let again = net.connect(0, 1, 0x10);
    net.run_for(MOMENT);
    assert_eq!(net.spoken(), "0:REQ 1:DREQ 1:REJ 0:DREP", "the peer itself says that it has forgotten");
    assert_eq!(net.events(1), [Event::Disconnected { id: answerer, cause: DisconnectCause::Stale }]);
    assert!(matches!(&net.events(0)[..], [Event::Rejected { id, reject }]
        if *id == again && reject.reason == RejectReason::STALE_CONNECTION));
    net.connect(0, 1, 0x10);
    net.run_for(MOMENT);
    assert!(matches!(net.events(1)[..], [Event::Requested { .. }]));
}

#[test]
fn a_disconnection_of_nothing_is_confirmed() {
    let mut net = net();
    let (asker, answerer) = connected(&mut net);
    let mut amnesiac = Net::new(2, 77, Faults::default());
    std::mem::swap(&mut net.ends[1].manager, &mut amnesiac.ends[1].manager);
    let now = net.now;
    net.end(0).disconnect(now, asker, &[]).expect("in use");
    net.run_for(MOMENT);
    assert_eq!(net.events(0), [Event::Disconnected { id: asker, cause: DisconnectCause::Answered }]);
    assert_ne!(asker, answerer);
}

#[test]
fn strangers_cannot_end_or_make_connections_of_others() {
    let mut net = Net::new(3, 1, Faults::default());
    net.end(1).listen(SERVICE).expect("nobody listens yet");
    let (asker, answerer) = connected(&mut net);
    let dreq = highwire_wire::cm::Dreq {
        local_id: asker.0,
        remote_id: answerer.0,
        remote_qpn: Qpn::new(0x20),
        private_data: [0; highwire_wire::cm::Dreq::PRIVATE_LEN],
    };
    let message = highwire_wire::cm::CmMessage::Dreq(dreq);
    let mad = highwire_wire::cm::CmMad { transaction_id: 1, ece_options: 0, message }.emit();
    let now = net.now;
    net.end(1).handle_mad(now, gid(2), &mad);
    net.run_for(MOMENT);
    assert_eq!(net.events(1), []);
}

#[test]
fn a_datagram_service_is_found() {
    let mut net = net();
    let now = net.now;
    let id = net.end(0).ask_service(now, gid(1), SERVICE, 0xFFFF, b"who").expect("short enough");
    net.run_for(MOMENT);
    let Event::ServiceRequested { id: asked, request, .. } = net.events(1).remove(0) else { panic!("asked") };
    assert_eq!(&request.private_data[..3], b"who");
    let target = (Qpn::new(0x77), 0x0123_4567);
    net.end(1).answer_service(now, asked, SidrStatus::SUCCESS, target, b"me").expect("asked");
    net.run_for(MOMENT);
    let Event::ServiceAnswered { id: answered, reply } = net.events(0).remove(0) else { panic!("answered") };
    assert_eq!(
        (answered, reply.status, reply.qpn, reply.qkey),
        (id, SidrStatus::SUCCESS, target.0, target.1)
    );
    net.run_for(AGES);
    assert!(net.end(0).is_empty() && net.end(1).is_empty());
}

#[test]
fn a_datagram_service_is_not_found() {
    let mut net = net();
    let now = net.now;
    net.end(0).ask_service(now, gid(1), 99, 0xFFFF, &[]).expect("short enough");
    net.run_for(MOMENT);
    assert!(
        matches!(&net.events(0)[..], [Event::ServiceAnswered { reply, .. }] if reply.status == SidrStatus::UNSUPPORTED)
    );
    let lost = net.end(0).ask_service(now, gid(8), SERVICE, 0xFFFF, &[]).expect("short enough");
    net.run_for(AGES);
    assert_eq!(net.events(0), [Event::ServiceUnreachable { id: lost }]);
    assert!(net.end(0).is_empty());
}

#[test]
fn a_datagram_service_may_follow_a_connection() {
    let mut net = Net::new(2, 1, Faults::default());
    net.end(1).listen(SERVICE).expect("nobody listens yet");
    connected(&mut net);
    // A peer without the rule of pauses, and the connection is still in use.
    let mut stranger = Net::new(2, 9, Faults::default());
    std::mem::swap(&mut net.ends[1].manager, &mut stranger.ends[1].manager);
    let now = net.now;
    net.end(0).ask_service(now, gid(1), SERVICE, 0xFFFF, &[]).expect("short enough");
    net.run_for(MOMENT);
    assert_eq!(net.events(0), [], "it asks again");
    // However long the server takes, the client does not repeat its request less and less often.
    net.run_for(Duration::from_secs(4));
    assert_eq!(net.events(0), []);
    net.end(1).listen(SERVICE).expect("nobody listens");
    net.run_for(Duration::from_millis(40));
    assert!(matches!(net.events(1)[..], [Event::ServiceRequested { .. }]));
}

#[test]
fn a_server_that_does_not_come_back_is_believed_in_the_end() {
    let mut net = Net::new(2, 1, Faults::default());
    net.end(1).listen(SERVICE).expect("nobody listens yet");
    connected(&mut net);
    // A peer without the rule of pauses, and the connection is still in use.
    let mut stranger = Net::new(2, 9, Faults::default());
    std::mem::swap(&mut net.ends[1].manager, &mut stranger.ends[1].manager);
    let now = net.now;
    net.end(0).ask_service(now, gid(1), SERVICE, 0xFFFF, &[]).expect("short enough");
    net.run_for(Duration::from_secs(8));
    assert_eq!(net.events(0), [], "it asks again and again");
    net.run_for(Duration::from_secs(3));
    assert!(matches!(net.events(0)[..], [Event::ServiceAnswered { .. }]), "but not for ever");
}

#[test]
fn an_abandoned_conversation_ends_without_a_word() {
    let mut net = net();
    let (asker, answerer) = connected(&mut net);
    let said = net.log.len();
    net.end(0).abandon(asker);
    net.run_for(Duration::from_secs(60));
    assert_eq!(net.log[said..], [""; 0], "neither end has anything to say");
    assert_eq!((net.events(0), net.events(1)), (vec![], vec![]));
    assert!(net.end(0).is_empty());
    // The end that is left hears about it when it parts.
    let now = net.now;
    net.end(1).disconnect(now, answerer, &[]).expect("it is in use");
    net.run_for(MOMENT);
    assert!(matches!(net.events(1)[..], [Event::Disconnected { .. }]));

    let now = net.now;
    let asked = net.end(0).ask_service(now, gid(1), SERVICE, 0xFFFF, &[]).expect("short enough");
    let connecting = net.connect(0, 1, 77);
    net.drain();
    let said = net.log.len();
    net.end(0).abandon(asked);
    net.end(0).abandon(connecting);
    net.end(0).abandon(CommId(5));
    assert!(net.end(0).is_empty());
    assert_eq!(net.end(0).poll_timeout(), None, "no timer is left");
    net.drain();
    assert_eq!(net.log[said..], [""; 0]);
}

#[test]
fn wrong_calls_are_refused() {
    let mut net = net();
    let now = net.now;
    assert_eq!(net.end(1).listen(SERVICE), Err(CallError::ServiceInUse));
    let nobody = CommId(5);
    assert_eq!(net.end(0).establish(nobody), Err(CallError::UnknownId));
    assert_eq!(net.end(0).disconnect(now, nobody, &[]), Err(CallError::UnknownId));
    assert_eq!(net.end(0).accept(now, nobody, &reply(1), 0), Err(CallError::UnknownId));
    assert_eq!(net.end(0).reject(nobody, RejectReason::CONSUMER, &[], &[]), Err(CallError::UnknownId));
    net.end(0).release(now, nobody);
    let id = net.connect(0, 1, 1);
    assert_eq!(net.end(0).establish(id), Err(CallError::WrongState));
    assert_eq!(net.end(0).disconnect(now, id, &[]), Err(CallError::WrongState));
    assert_eq!(net.end(0).disconnect(now, id, &[0; 221]), Err(CallError::TooLong));
    assert_eq!(net.end(0).reject(id, RejectReason::CONSUMER, &[0; 73], &[]), Err(CallError::TooLong));
    assert_eq!(net.end(0).ask_service(now, gid(1), 1, 0, &[0; 217]), Err(CallError::TooLong));
}

#[test]
fn the_table_is_the_one_that_the_documentation_shows() {
    let golden = include_str!("golden/table.txt");
    assert_eq!(table::render(), golden, "\n{}", table::render());
}
