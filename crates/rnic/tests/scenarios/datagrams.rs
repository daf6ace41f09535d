//! Datagrams that a driver sends past the queue: the same packets and completions, and never before requests
//! that wait in the queue.

use crate::common::{A, B, BUFFER, Pair, QKEY, Setup};
use highwire_rnic::{Counter, Outgoing};
use highwire_verbs::{Completion, Datagram, Operation, QpAttr, QpState, SendFlags, SendWr, Service, Sge};
use highwire_wire::{Headers, Qpn};

/// A packet in a link's form.
#[derive(Clone, PartialEq, Debug)]
struct Packet {
    from: Qpn,
    to: highwire_verbs::Gid,
    headers: Headers,
    payload: Vec<(u64, u32)>,
}

fn packet(outgoing: &Outgoing<'_>) -> Packet {
    Packet {
        from: outgoing.qpn,
        to: outgoing.address.gid,
        headers: *outgoing.headers,
        payload: outgoing.payload.spans().map(|span| (span.addr, span.length)).collect(),
    }
}

/// Sends side A's datagram past the queue, if that is possible.
fn past(pair: &mut Pair, wr: &SendWr<'_>) -> Option<Packet> {
    let (now, qpn) = (pair.net.now, pair.ends[A].qpn);
    let mut sent = None;
    let put = |outgoing: &Outgoing<'_>| {
        sent = Some(packet(outgoing));
        true
    };
    let is_done = pair.net.nodes[A].rnic.send_datagram(now, qpn, wr, put);
    assert_eq!(is_done, sent.is_some());
    sent
}

/// Sends side A's datagram through the queue.
fn queued(pair: &mut Pair, wr: &SendWr<'_>) -> Option<Packet> {
    let (now, qpn) = (pair.net.now, pair.ends[A].qpn);
    let rnic = &mut pair.net.nodes[A].rnic;
    rnic.post_send(now, qpn, wr).expect("posts");
    let sent = rnic.poll_transmit(now).map(|outgoing| packet(&outgoing));
    // The packet has left.
    assert!(rnic.poll_transmit(now).is_none());
    sent
}

fn completions(pair: &mut Pair) -> Vec<Completion> {
    let rnic = &mut pair.net.nodes[A].rnic;
    std::iter::from_fn(|| rnic.poll_completion()).map(|(_, completion)| completion).collect()
}

fn counted(pair: &Pair) -> [u64; 2] {
    [Counter::PacketsSent, Counter::BytesSent].map(|counter| pair.count(A, counter))
}

#[test]
fn a_datagram_past_the_queue_is_the_packet_that_the_queue_would_have_sent() {
    let mut pairs = [Pair::new(Setup::of(Service::Ud)), Pair::new(Setup::of(Service::Ud))];
    let to = pairs[0].datagram_to(B);
    let buffer = pairs[0].buffers[A];
    let two = [buffer.sge(0, 100), buffer.sge(4096, 33)];
    let [none, one, most] = [[buffer.sge(0, 0)], [buffer.sge(7, 1)], [buffer.sge(0, 1024)]];
    let cases: [(Operation, SendFlags, Datagram, &[Sge]); 7] = [
        (Operation::Send, SendFlags::SIGNALED, to, &two),
        (Operation::SendImm(0x1234), SendFlags::default(), to, &one),
        (Operation::SendImm(5), SendFlags { solicited: true, ..SendFlags::SIGNALED }, to, &none),
        (Operation::Send, SendFlags::SIGNALED, to, &most),
        // An address that the driver knows, without a key.
        (Operation::Send, SendFlags { inline: true, ..SendFlags::SIGNALED }, to, &one),
        // The queue pair's own Q_Key.
        (Operation::Send, SendFlags::SIGNALED, Datagram { qkey: 1 << 31, ..to }, &[]),
        (Operation::Send, SendFlags::SIGNALED, Datagram { qpn: Qpn::new(0x77), ..to }, &one),
    ];
    for (number, (operation, flags, to, sges)) in cases.into_iter().enumerate() {
        let wr = SendWr { wr_id: number as u64, operation, flags, sges, datagram: Some(to) };
        let [a, b] = &mut pairs;
        // Alternately, one or the other goes past the queue: the numbers of the packets go on.
        let (a, b) = if number % 3 == 0 { (a, b) } else { (b, a) };
        let (fast, slow) = (past(a, &wr), queued(b, &wr));
        assert!(fast.is_some(), "{wr:?}");
        assert_eq!(fast, slow, "{wr:?}");
        let ended = completions(a);
        assert_eq!(ended.len(), usize::from(flags.signaled), "{wr:?}");
        assert_eq!(ended, completions(b), "{wr:?}");
        assert_eq!(counted(a), counted(b), "{wr:?}");
        if to.qkey == 1 << 31 {
            let own = fast.map(|packet| format!("{:?}", packet.headers.ext)).unwrap_or_default();
            assert!(own.contains(&QKEY.to_string()), "{own}");
        }
    }
}

#[test]
fn a_queue_pair_that_signals_all_signals_those_too() {
    let mut pair = Pair::new(Setup { signal_all: true, ..Setup::of(Service::Ud) });
    let to = pair.datagram_to(B);
    let wr =
        SendWr { flags: SendFlags::default(), datagram: Some(to), ..SendWr::new(3, Operation::Send, &[]) };
    assert!(past(&mut pair, &wr).is_some());
    assert_eq!(completions(&mut pair).len(), 1);
}

#[test]
fn nothing_goes_past_the_queue_that_has_to_wait_or_to_fail_there() {
    let setup = Setup::of(Service::Ud);
    let mut pair = Pair::new(setup);
    let (to, buffer) = (pair.datagram_to(B), pair.buffers[A]);
    let sges = [buffer.sge(0, 8)];
    let sound = SendWr { datagram: Some(to), ..SendWr::new(1, Operation::Send, &sges) };
    let too_long = [buffer.sge(0, 1025)];
    let no_key = [Sge { lkey: highwire_verbs::LocalKey(0xBAD), ..sges[0] }];
    let beyond = [Sge { length: 64, ..buffer.sge(BUFFER - 8, 8) }];
    let group = Datagram { qpn: Qpn::MULTICAST, ..to };
    for wr in [
        SendWr { operation: Operation::Write(buffer.remote(0)), ..sound },
        SendWr { operation: Operation::Read(buffer.remote(0)), ..sound },
        SendWr { datagram: None, ..sound },
        SendWr { datagram: Some(group), ..sound },
        SendWr { sges: &too_long, ..sound },
        SendWr { sges: &no_key, ..sound },
        SendWr { sges: &beyond, ..sound },
    ] {
        assert_eq!(past(&mut pair, &wr), None, "{wr:?}");
    }
    // The link does not take the packet: then nothing has happened.
    let (now, qpn) = (pair.net.now, pair.ends[A].qpn);
    assert!(!pair.net.nodes[A].rnic.send_datagram(now, qpn, &sound, |_| false));
    assert_eq!((completions(&mut pair).len(), counted(&pair)), (0, [0, 0]));
    // A request waits in the queue.
    pair.net.nodes[A].rnic.post_send(now, qpn, &sound).expect("posts");
    assert_eq!(past(&mut pair, &sound), None);
    let first = pair.net.nodes[A].rnic.poll_transmit(now).map(|outgoing| packet(&outgoing)).expect("sends");
    assert_eq!(first.headers.bth.psn.value(), setup.psn[A], "none of those had a number");
    assert!(pair.net.nodes[A].rnic.poll_transmit(now).is_none());
    // The waiting request has left.
    assert!(past(&mut pair, &sound).is_some());
    for state in [QpState::Sqd, QpState::Error] {
        pair.modify(A, &QpAttr::to_state(state));
        assert_eq!(past(&mut pair, &sound), None, "{state:?}");
    }
    // Connections have no datagrams.
    let mut connected = Pair::new(Setup::default());
    assert_eq!(past(&mut connected, &SendWr { datagram: None, ..sound }), None);
    assert_eq!(past(&mut connected, &sound), None);
}
