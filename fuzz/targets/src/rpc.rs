//! Datagrams of RPCs: parsers keep their promises, and an endpoint in the middle of a conversation survives any datagram.

use highwire_rpc::wire::{Greeting, Header, Immediate, Kind, Messages, Part, Progress};
use highwire_rpc::{Config, Endpoint, Node, Received, RequestType};
use highwire_stdx::{Duration, Instant};
use highwire_verbs::{Address, Datagram, Gid};
use highwire_wire::Qpn;
use std::net::{IpAddr, Ipv4Addr};

const ECHO: RequestType = RequestType(1);
const PEER_QPN: Qpn = Qpn::new(77);
/// Low halves of the incarnations, so that inputs can contain them.
const OWN: u64 = 0x0101_0101;
const PEERS: u64 = 0x0202_0202;

/// A run of datagrams: two bytes of immediate, one of length, then as many bytes.
pub(crate) fn rpc(input: &[u8]) {
    let mut endpoint = in_conversation();
    let mut now = Instant::from_nanos(1_000_000);
    let mut rest = input;
    while let [kind, slot, length, bytes @ ..] = rest {
        let (bytes, behind) = bytes.split_at(usize::from(*length).min(bytes.len()));
        rest = behind;
        let immediate = u32::from(*kind) << 24 | u32::from(*slot) << 16;
        parse(immediate, bytes);
        // Mostly from the peer, with the right names, or hardly any datagram would be accepted.
        let mut whole = vec![0, 9, 1, 0];
        whole.extend_from_slice(&(PEERS as u32).to_be_bytes());
        whole.extend_from_slice(&(OWN as u32).to_be_bytes());
        whole.extend_from_slice(bytes);
        for bytes in [&whole[..], bytes] {
            endpoint.handle_receive(now, &Received { immediate, source_qpn: PEER_QPN, grh: None, bytes });
        }
        drain(&mut endpoint, now);
        now += Duration::from_micros(u64::from(*slot) * 100);
        endpoint.handle_timeout(now);
        drain(&mut endpoint, now);
    }
    // Time ends every call, even if answers were forged.
    for _ in 0..10_000 {
        if endpoint.running() == 0 {
            return;
        }
        now = endpoint.poll_timeout().unwrap_or(now).max(now);
        endpoint.handle_timeout(now);
        drain(&mut endpoint, now);
    }
    panic!("a call never ends");
}

/// An endpoint that has greeted, has been greeted, and waits for a response.
fn in_conversation() -> Endpoint {
    let mut config = Config::new(Node(1), OWN);
    config.slots = 4;
    let mut endpoint = Endpoint::new(config);
    endpoint.register(ECHO, |request, response| response.write(request.bytes));
    endpoint.register_nested(RequestType(2), |worker, request| async move {
        worker.sleep(Duration::from_micros(50)).await;
        request.bytes
    });
    let gid = Gid::from_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let to = Datagram { address: Address::new(gid), qpn: PEER_QPN, qkey: 0 };
    endpoint.add_peer(Node(9), to).expect("another node");
    for length in [10, 20_000] {
        let work = move |worker: highwire_rpc::Worker| async move {
            let _ = worker.call_within(Node(9), ECHO, &vec![3; length], Duration::from_millis(500)).await;
        };
        endpoint.spawn(work).expect("room for a worker");
    }
    drain(&mut endpoint, Instant::from_nanos(1));
    let greeting = Greeting { incarnation: PEERS, slots: 4, datagram_bytes: 4096 };
    let (mut head, mut body) = ([0; 16], [0; 12]);
    greeting.emit(&mut body);
    for (kind, to) in [(Kind::Hello, 0), (Kind::Welcome, OWN as u32)] {
        Header { node: 9, from: PEERS as u32, to, sequence: 0 }.emit(&mut head);
        let bytes = [&head[..], &body].concat();
        let immediate = Immediate { kind, count: 0, slot: 0, fence: 0 }.to_bits();
        let received = Received { immediate, source_qpn: PEER_QPN, grh: None, bytes: &bytes };
        endpoint.handle_receive(Instant::from_nanos(1), &received);
        drain(&mut endpoint, Instant::from_nanos(1));
    }
    endpoint
}

fn drain(endpoint: &mut Endpoint, now: Instant) {
    endpoint.run(now);
    endpoint.transmit(|outgoing| {
        assert!(outgoing.len() <= 4096, "a datagram is no longer than both ends can take");
        let bytes = [outgoing.head, outgoing.body, outgoing.tail].concat();
        assert!(Header::parse(&bytes).is_ok() && Immediate::from_bits(outgoing.immediate).is_ok());
        true
    });
}

/// Parsed bytes are emitted as the same bytes.
fn parse(immediate: u32, bytes: &[u8]) {
    if let Ok(parsed) = Immediate::from_bits(immediate) {
        assert_eq!(parsed.to_bits(), immediate);
    }
    if let Ok((header, body)) = Header::parse(bytes) {
        let mut again = [0; 16];
        header.emit(&mut again);
        assert_eq!([&again[..], body].concat(), bytes);
    }
    if let Ok(messages) = Messages::parse(bytes, 3) {
        assert_eq!(messages.map(|message| 4 + message.bytes.len()).sum::<usize>(), bytes.len());
    }
    if let Ok((part, body)) = Part::parse(bytes) {
        assert_eq!(part.range().len(), body.len());
        assert!(part.range().end <= part.total as usize);
    }
    if let Ok(greeting) = Greeting::parse(bytes) {
        let mut again = [0; 12];
        greeting.emit(&mut again);
        assert_eq!(&again[..], bytes);
    }
    if let Ok(progress) = Progress::parse(bytes) {
        let mut again = [0; 12];
        progress.emit(&mut again);
        assert_eq!(&again[..], bytes);
    }
}
