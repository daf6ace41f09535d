//! When messages are repeated, and for how long: one manager, its timers, and messages put into its hand.
//!
//! A lost message is rescued by the next repetition, so a conversation that succeeds says little. Here every message and its
//! time are counted.

mod harness;

use harness::{SERVICE, gid, reply, request};
use highwire_cm::{CommId, Config, ConnectionManager, DisconnectCause, Event};
use highwire_stdx::{Duration, Instant, Rng};
use highwire_wire::Qpn;
use highwire_wire::cm::{CmMad, CmMessage, SidrStatus};

/// One end, whose messages reach nobody unless the test carries them.
struct End {
    n: u8,
    manager: ConnectionManager,
    start: Instant,
    now: Instant,
    /// Milliseconds since the start, and the message.
    sent: Vec<(u64, CmMad)>,
    events: Vec<(u64, Event)>,
}

impl End {
    fn new(n: u8) -> End {
        let start = Instant::from_nanos(5_000_000_000);
        let mut manager =
            ConnectionManager::new(Config::new(u64::from(n) + 1, n), Rng::new(u64::from(n) + 9));
        manager.listen(SERVICE).expect("nobody listens yet");
        End { n, manager, start, now: start, sent: Vec::new(), events: Vec::new() }
    }

    fn ms(&self) -> u64 {
        (self.now - self.start).as_nanos() / 1_000_000
    }

    fn drain(&mut self) {
        while let Some(transmit) = self.manager.poll_transmit() {
            self.sent.push((self.ms(), CmMad::parse(&transmit.mad).expect("what is sent parses")));
        }
        while let Some(event) = self.manager.poll_event() {
            self.events.push((self.ms(), event));
        }
    }

    /// Runs the timers up to `ms` after the start.
    fn run_to(&mut self, ms: u64) {
        let until = self.start + Duration::from_millis(ms);
        self.drain();
        while let Some(at) = self.manager.poll_timeout().filter(|&at| at <= until) {
            self.now = self.now.max(at);
            self.manager.handle_timeout(self.now);
            self.drain();
        }
        self.now = until;
    }

    fn hand(&mut self, from: &End, mad: &CmMad) {
        self.manager.handle_mad(self.now, gid(from.n), &mad.emit());
        self.drain();
    }

    /// The messages since the last call, by time and name.
    fn spoken(&mut self) -> Vec<(u64, &'static str)> {
        self.sent.drain(..).map(|(at, mad)| (at, mad.message.attribute().as_str())).collect()
    }

    fn last(&self) -> CmMad {
        self.sent.last().expect("a message").1
    }

    fn connect(&mut self, to: u8) -> CommId {
        let ask = request(gid(self.n), gid(to), 0x10);
        let id = self.manager.connect(self.now, gid(to), &ask, 0);
        self.drain();
        id
    }
}

/// The times of a message and its fifteen repetitions from `start` on, and when its sender gives up: the pause doubles from
/// 100 ms and is never above 4.3 s.
fn schedule(start: u64) -> (Vec<u64>, u64) {
    let mut at = start;
    let mut times = vec![at];
    for pause in [100, 200, 400, 800, 1600, 3200].into_iter().chain([4300; 9]) {
        at += pause;
        times.push(at);
    }
    (times, at + 4300)
}

fn times(spoken: &[(u64, &'static str)], name: &str) -> Vec<u64> {
    spoken.iter().filter(|(_, spoken)| *spoken == name).map(|(at, _)| *at).collect()
}

/// An asker and an answerer whose application has the request.
fn asked() -> (End, CommId, End, CommId) {
    let (mut asker, mut answerer) = (End::new(0), End::new(1));
    let id = asker.connect(1);
    let req = asker.last();
    answerer.hand(&asker, &req);
    let requested = answerer.events[0].1.id();
    (asker, id, answerer, requested)
}

/// Both ends, in use, with nothing said that is not counted.
fn in_use() -> (End, CommId, End, CommId) {
    let (mut asker, id, mut answerer, requested) = asked();
    answerer.manager.accept(answerer.now, requested, &reply(0x20), 0).expect("asked for");
    answerer.drain();
    let rep = answerer.last();
    asker.hand(&answerer, &rep);
    asker.manager.establish(id).expect("replied to");
    asker.drain();
    let rtu = asker.last();
    answerer.hand(&asker, &rtu);
    let _ = (asker.spoken(), answerer.spoken());
    (asker, id, answerer, requested)
}

#[test]
fn a_request_is_repeated_at_doubling_pauses_and_given_up() {
    let mut asker = End::new(0);
    let id = asker.connect(1);
    asker.run_to(600_000);
    let (expected, end) = schedule(0);
    assert_eq!(times(&asker.spoken(), "REQ"), expected);
    assert_eq!(asker.events, [(end, Event::Unreachable { id })]);
}

#[test]
fn a_reply_is_repeated_at_doubling_pauses_and_given_up() {
    let (_, _, mut answerer, id) = asked();
    answerer.run_to(70);
    answerer.manager.accept(answerer.now, id, &reply(0x20), 0).expect("asked for");
    answerer.run_to(600_000);
    let (expected, end) = schedule(70);
    assert_eq!(times(&answerer.spoken(), "REP"), expected);
    assert_eq!(answerer.events.last(), Some(&(end, Event::Unreachable { id })));
}

#[test]
fn a_parting_is_repeated_at_doubling_pauses_and_given_up() {
    let (mut asker, id, _, _) = in_use();
    asker.manager.disconnect(asker.now, id, &[]).expect("in use");
    asker.run_to(600_000);
    let (expected, end) = schedule(0);
    assert_eq!(times(&asker.spoken(), "DREQ"), expected);
    let silence = Event::Disconnected { id, cause: DisconnectCause::Silence };
    assert_eq!(asker.events[asker.events.len() - 2], (end, silence));
    let timewait = Config::new(1, 0).timewait.as_nanos() / 1_000_000;
    assert_eq!(asker.events.last(), Some(&(end + timewait, Event::TimewaitExited { id })));
}

#[test]
fn a_question_for_a_service_is_repeated_at_doubling_pauses_and_given_up() {
    let mut asker = End::new(0);
    let asked = asker.manager.ask_service(asker.now, gid(1), SERVICE, 0xFFFF, b"which");
    let id = asked.expect("short enough");
    asker.run_to(600_000);
    let (expected, end) = schedule(0);
    assert_eq!(times(&asker.spoken(), "SIDR_REQ"), expected);
    assert_eq!(asker.events, [(end, Event::ServiceUnreachable { id })]);
}

#[test]
fn patience_is_as_long_as_the_peer_asked_for_and_repetitions_do_not_count() {
    let (mut asker, id, mut answerer, _) = asked();
    // The answerer's application does not decide: a repeated REQ is answered by an MRA.
    asker.run_to(250);
    let req = asker.last();
    answerer.run_to(250);
    answerer.hand(&asker, &req);
    let mra = answerer.last();
    assert!(matches!(mra.message, CmMessage::Mra(_)));
    let _ = asker.spoken();
    asker.hand(&answerer, &mra);
    asker.run_to(30_000);
    // A second one does not lengthen it.
    asker.hand(&answerer, &mra);
    asker.run_to(600_000);
    // 4.096 us times 2^24 of the MRA, and times 2^20 for the way, both from the first MRA on.
    let end = 250 + (4_096 * (1u64 << 24) + 4_096 * (1 << 20)) / 1_000_000;
    let expected: Vec<u64> = (1..).map(|n| 250 + 4300 * n).take_while(|&at| at < end).collect();
    assert!(expected.len() > 15, "more repetitions than would be allowed without the MRA");
    assert_eq!(times(&asker.spoken(), "REQ"), expected);
    assert_eq!(asker.events, [(end, Event::Unreachable { id })]);
}

#[test]
fn every_answer_that_is_lost_is_said_again_when_its_message_is_repeated() {
    // REP.
    let (mut asker, _, mut answerer, id) = asked();
    answerer.manager.accept(answerer.now, id, &reply(0x20), 0).expect("asked for");
    answerer.drain();
    let (req, rep) = (asker.last(), answerer.last());
    let _ = answerer.spoken();
    answerer.hand(&asker, &req);
    assert_eq!(answerer.last(), rep);
    assert_eq!(answerer.spoken(), [(0, "REP")]);
    // RTU.
    asker.hand(&answerer, &rep);
    let CommId(number) = asker.events[0].1.id();
    asker.manager.establish(CommId(number)).expect("replied to");
    asker.drain();
    let rtu = asker.last();
    let _ = asker.spoken();
    asker.hand(&answerer, &rep);
    assert_eq!((asker.last(), asker.spoken()), (rtu, vec![(0, "RTU")]));
    // DREP, as often as the peer asks.
    answerer.hand(&asker, &rtu);
    asker.manager.disconnect(asker.now, CommId(number), &[]).expect("in use");
    asker.drain();
    let dreq = asker.last();
    let _ = answerer.spoken();
    answerer.hand(&asker, &dreq);
    let drep = answerer.last();
    for _ in 0..3 {
        answerer.hand(&asker, &dreq);
        assert_eq!(answerer.last(), drep);
    }
    assert_eq!(answerer.spoken(), [(0, "DREP"); 4]);
    let parted = |event: &&(u64, Event)| matches!(event.1, Event::Disconnected { .. });
    assert_eq!(answerer.events.iter().filter(parted).count(), 1, "the application hears of it once");
    asker.hand(&answerer, &drep);
    let answered = Event::Disconnected { id: CommId(number), cause: DisconnectCause::Answered };
    assert_eq!(asker.events.last(), Some(&(0, answered)), "answered, not given up");
}

#[test]
fn a_refusal_and_a_service_s_answer_are_said_again() {
    let (asker, _, mut answerer, id) = asked();
    let reason = highwire_wire::cm::RejectReason::CONSUMER;
    answerer.manager.reject(id, reason, &[], b"no").expect("asked for");
    answerer.drain();
    let (req, rej) = (asker.last(), answerer.last());
    let _ = answerer.spoken();
    answerer.hand(&asker, &req);
    assert_eq!((answerer.last(), answerer.spoken()), (rej, vec![(0, "REJ")]));

    let (mut asker, mut answerer) = (End::new(0), End::new(1));
    asker.manager.ask_service(asker.now, gid(1), SERVICE, 0xFFFF, b"which").expect("short enough");
    asker.drain();
    let question = asker.last();
    answerer.hand(&asker, &question);
    let id = answerer.events[0].1.id();
    let place = (Qpn::new(0x77), 0x1234);
    answerer
        .manager
        .answer_service(answerer.now, id, SidrStatus::SUCCESS, place, b"here")
        .expect("asked for");
    answerer.drain();
    let answer = answerer.last();
    let _ = answerer.spoken();
    answerer.hand(&asker, &question);
    assert_eq!((answerer.last(), answerer.spoken()), (answer, vec![(0, "SIDR_REP")]));
}
