use super::*;
use std::net::IpAddr;

fn gid(text: &str) -> Gid {
    Gid::from_ip(text.parse::<IpAddr>().expect("an address"))
}

/// Two devices, and the messages between them.
struct Pair {
    now: Instant,
    ends: [Negotiator; 2],
    gids: [Gid; 2],
    /// Each end's actions, without messages.
    seen: [Vec<Action>; 2],
    sent: u32,
    /// Whether anything sent arrives.
    connected: bool,
}

impl Pair {
    fn new() -> Pair {
        let gids = [gid("127.1.1.1"), gid("127.2.2.2")];
        let ends = [Negotiator::new(gids[0], Rng::new(1)), Negotiator::new(gids[1], Rng::new(2))];
        let seen = [Vec::new(), Vec::new()];
        Pair { now: Instant::from_nanos(1), ends, gids, seen, sent: 0, connected: true }
    }

    fn connection(&self, end: usize, sq_psn: Option<u32>) -> Connection {
        let (qpn, peer_qpn) = [(10, 20), (20, 10)][end];
        let rq_psn = [200, 100][end];
        Connection {
            qpn: Qpn::new(qpn),
            peer: self.gids[1 - end],
            peer_qpn: Qpn::new(peer_qpn),
            rq_psn: Psn::new(rq_psn),
            sq_psn: sq_psn.map(Psn::new),
        }
    }

    fn ask(&mut self, asker: Connection) {
        self.ends[0].on_connected(asker);
        self.ends[0].ask(self.now, asker.qpn);
    }

    fn drain(&mut self) {
        let mut idle = false;
        while !idle {
            idle = true;
            for end in 0..2 {
                while let Some(action) = self.ends[end].poll_action() {
                    idle = false;
                    let Action::Send(to, bytes) = action else {
                        self.seen[end].push(action);
                        continue;
                    };
                    self.sent += 1;
                    assert_eq!(to, self.gids[1 - end]);
                    if self.connected {
                        let source = self.gids[end];
                        self.ends[1 - end].handle_message(self.now, source, &bytes);
                    }
                }
            }
        }
    }

    /// Lets time pass until neither negotiator waits for a timeout.
    fn settle(&mut self) {
        self.drain();
        while let Some(next) = self.ends.iter().filter_map(Negotiator::poll_timeout).min() {
            self.now = self.now.max(next);
            self.ends.iter_mut().for_each(|end| end.handle_timeout(self.now));
            self.drain();
        }
    }
}

const QPN: Qpn = Qpn::new(10);

#[test]
fn a_connected_peer_accepts_before_it_says_so() {
    let mut pair = Pair::new();
    let (asker, answerer) = (pair.connection(0, Some(100)), pair.connection(1, None));
    pair.ends[1].on_connected(answerer);
    pair.ask(asker);
    pair.settle();
    assert_eq!(pair.seen[1], [Action::AcceptIrn(Qpn::new(20))]);
    assert_eq!(pair.seen[0], [Action::Release(QPN, Recovery::Irn)]);
    assert_eq!(pair.sent, 2);
}

#[test]
fn a_peer_that_connects_later_answers_by_itself() {
    let mut pair = Pair::new();
    let (asker, answerer) = (pair.connection(0, Some(100)), pair.connection(1, Some(200)));
    pair.ask(asker);
    pair.drain();
    assert_eq!(pair.seen[0], []);
    pair.ends[1].on_connected(answerer);
    pair.drain();
    assert_eq!(pair.seen[0], [Action::Release(QPN, Recovery::Irn)]);
}

#[test]
fn a_peer_that_never_connects_is_given_up_on() {
    let mut pair = Pair::new();
    let asker = pair.connection(0, Some(100));
    pair.ask(asker);
    pair.settle();
    assert_eq!(pair.seen[0], [Action::Release(QPN, Recovery::GoBackN)]);
    assert!(pair.now.as_nanos() >= NOT_YET_LIMIT.as_nanos());
}

#[test]
fn silence_means_standard_roce_and_is_remembered() {
    let mut pair = Pair::new();
    pair.connected = false;
    let asker = pair.connection(0, Some(100));
    pair.ask(asker);
    pair.settle();
    assert_eq!(pair.seen[0], [Action::Release(QPN, Recovery::GoBackN)]);
    assert_eq!(pair.sent, TRIES);
    pair.ask(asker);
    pair.settle();
    assert_eq!((pair.sent, pair.seen[0].len()), (TRIES, 2));
    pair.now += STRANGER_MEMORY;
    pair.ask(asker);
    pair.drain();
    assert_eq!(pair.sent, TRIES + 1);
}

#[test]
fn a_closed_port_releases_at_once() {
    let mut pair = Pair::new();
    pair.connected = false;
    let asker = pair.connection(0, Some(100));
    pair.ask(asker);
    pair.drain();
    let peer = pair.gids[1];
    pair.ends[0].handle_unreachable(pair.now, peer);
    pair.drain();
    assert_eq!(pair.seen[0], [Action::Release(QPN, Recovery::GoBackN)]);
    assert_eq!(pair.ends[0].poll_timeout(), None);
}

#[test]
fn another_connection_of_the_same_queue_pair_is_refused() {
    let check = |change: fn(&mut Connection)| {
        let mut pair = Pair::new();
        let (asker, mut answerer) = (pair.connection(0, Some(100)), pair.connection(1, Some(200)));
        change(&mut answerer);
        pair.ends[1].on_connected(answerer);
        pair.ask(asker);
        pair.settle();
        assert_eq!(pair.seen[1], []);
        assert_eq!(pair.seen[0], [Action::Release(QPN, Recovery::GoBackN)]);
    };
    check(|c| c.peer_qpn = Qpn::new(11));
    check(|c| c.peer = gid("127.9.9.9"));
    check(|c| c.rq_psn = Psn::new(1));
    check(|c| c.sq_psn = Some(Psn::new(1)));
}

#[test]
fn a_peer_of_another_version_is_refused_in_its_own() {
    for version in [IRN_VERSION - 1, IRN_VERSION + 1] {
        let mut pair = Pair::new();
        let (asker, answerer) = (pair.connection(0, Some(100)), pair.connection(1, Some(200)));
        pair.ends[1].on_connected(answerer);
        pair.ends[0].on_connected(asker);
        pair.ends[0].ask(pair.now, asker.qpn);
        let Some(Action::Send(_, hello)) = pair.ends[0].poll_action() else { panic!("no question") };
        let hello = Message { irn_version: version, ..Message::parse(&hello).expect("a message") };
        pair.ends[1].handle_message(pair.now, pair.gids[0], &hello.emit());
        let Some(Action::Send(to, answer)) = pair.ends[1].poll_action() else { panic!("no refusal") };
        let answer = Message::parse(&answer).expect("a message");
        assert_eq!((to, answer.kind), (pair.gids[0], Kind::Refuse));
        assert_eq!((answer.irn_version, answer.nonce), (version, hello.nonce));
        assert_eq!(pair.ends[1].poll_action(), None, "nothing was accepted");
    }
}

#[test]
fn answers_that_nobody_asked_for_change_nothing() {
    let mut pair = Pair::new();
    pair.connected = false;
    let asker = pair.connection(0, Some(100));
    pair.ask(asker);
    let Some(Action::Send(_, hello)) = pair.ends[0].poll_action() else { panic!("no question") };
    let hello = Message::parse(&hello).expect("a message");
    let answer = Message {
        kind: Kind::Accept,
        from: pair.gids[1],
        from_qpn: hello.to_qpn,
        to_qpn: hello.from_qpn,
        ..hello
    };
    let forged = [
        (gid("127.3.3.3"), answer),
        (gid("127.3.3.3"), Message { from: gid("127.3.3.3"), ..answer }),
        (pair.gids[1], Message { nonce: answer.nonce ^ 1, ..answer }),
        (pair.gids[1], Message { from_qpn: Qpn::new(21), ..answer }),
        (pair.gids[1], Message { irn_version: IRN_VERSION - 1, ..answer }),
    ];
    for (source, message) in forged {
        pair.ends[0].handle_message(pair.now, source, &message.emit());
        assert_eq!(pair.ends[0].poll_action(), None, "{message:?}");
    }
    pair.ends[0].handle_message(pair.now, pair.gids[1], &answer.emit());
    assert_eq!(pair.ends[0].poll_action(), Some(Action::Release(QPN, Recovery::Irn)));
}

#[test]
fn a_message_survives_the_wire_and_strangers_do_not() {
    let message = Message {
        kind: Kind::NotYet,
        irn_version: IRN_VERSION,
        nonce: 0x0123_4567_89AB_CDEF,
        from: gid("fe80::1"),
        from_qpn: Qpn::new(0xABCDEF),
        to_qpn: Qpn::new(0x123456),
        sq_psn: Psn::new(1),
        rq_psn: Psn::new(0xFFFFFF),
    };
    let bytes = message.emit();
    assert_eq!(Message::parse(&bytes), Some(message));
    assert_eq!(Message::parse(&bytes[..63]), None);
    for at in [0, 4, 5, 6, 51] {
        let mut other = bytes;
        other[at] ^= 0x20 | 1;
        assert_eq!(Message::parse(&other), None, "byte {at}");
    }
}

/// As text, as the dissector for Wireshark reads them, and as bytes.
#[test]
fn the_messages_are_those_that_others_read() {
    use std::fmt::Write;
    let mut text = String::new();
    for (kind, name) in [
        (Kind::Hello, "hello"),
        (Kind::Accept, "accept"),
        (Kind::Refuse, "refuse"),
        (Kind::NotYet, "not yet"),
    ] {
        let message = Message {
            kind,
            irn_version: IRN_VERSION,
            nonce: 0x0123_4567_89AB_CDEF,
            from: gid("127.1.1.1"),
            from_qpn: Qpn::new(0xABCDEF),
            to_qpn: Qpn::new(0x123456),
            sq_psn: Psn::new(1),
            rq_psn: Psn::new(0xFFFFFF),
        };
        let (from, to) = (message.from_qpn, message.to_qpn);
        writeln!(text, "{name} irn {IRN_VERSION} from {from} to {to}").expect("a string takes it");
        for word in message.emit().chunks(4) {
            write!(text, " {:08x}", u32::from_be_bytes(word.try_into().expect("whole words")))
                .expect("a string takes it");
        }
        text.push('\n');
    }
    let golden = include_str!("../../../../vectors/highwire/negotiation.txt");
    let golden: String =
        golden.lines().filter(|line| !line.starts_with('#')).flat_map(|line| [line, "\n"]).collect();
    assert!(text == golden, "vectors/highwire/negotiation.txt should read:\n{text}");
}

#[test]
fn ends_that_are_connected_anew_one_after_the_other_still_agree() {
    let mut pair = Pair::new();
    let [a, b] = [pair.connection(0, Some(100)), pair.connection(1, Some(200))];
    pair.ends[1].on_connected(b);
    pair.ask(a);
    pair.settle();
    // A goes first, and B answers as the connection that it still is.
    pair.ends[0].on_disconnected(a.qpn);
    pair.ask(a);
    pair.settle();
    pair.seen[1].clear();
    pair.ends[1].on_disconnected(b.qpn);
    pair.ends[1].on_connected(b);
    pair.settle();
    assert_eq!(pair.seen[1], [Action::AcceptIrn(b.qpn)]);
    // Another first PSN is another connection.
    pair.seen[1].clear();
    pair.ends[1].on_disconnected(b.qpn);
    pair.ends[1].on_connected(Connection { rq_psn: Psn::new(7), ..b });
    pair.settle();
    assert_eq!(pair.seen[1], []);
}
