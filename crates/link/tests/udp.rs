//! Real sockets on loopback addresses: packets arrive whole and in order.
//!
//! Every test has addresses of its own, so tests run side by side.
#![allow(unsafe_code, reason = "one test shares a port")]

use highwire_link::{
    Ecn, Link, OpenError, Order, Path, RxBatch, SharedPort, SteerBy, Transmitted, TxBatch, UdpConfig,
    UdpLink, lane_of,
};
use highwire_stdx::{Instant, Rng};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

const PATIENCE_MS: i32 = 2_000;

fn config(last: [u8; 2]) -> UdpConfig {
    UdpConfig::new(IpAddr::from([127, 77, last[0], last[1]]))
}

fn open(config: &UdpConfig) -> UdpLink {
    UdpLink::open(config).unwrap_or_else(|error| panic!("{error}"))
}

fn send(link: &mut UdpLink, batch: &mut TxBatch) {
    let done = link.transmit(Instant::ZERO, batch, &mut |_, _| {});
    assert_eq!((done, batch.is_empty()), (Transmitted::All, true));
}

/// A received packet: its sender, its place in its train, its bytes.
type Seen = (SocketAddr, u16, Vec<u8>);

/// Receives until `count` packets are there, or nothing more comes.
fn receive(link: &mut UdpLink, count: usize) -> Vec<Seen> {
    let mut batch = RxBatch::new();
    let mut seen = Vec::new();
    while seen.len() < count {
        if link.receive(Instant::ZERO, &mut batch) == 0 && !link.wait_readable(PATIENCE_MS).unwrap() {
            break;
        }
        seen.extend(batch.packets().map(|p| (p.source, p.train_index, p.bytes.to_vec())));
    }
    seen
}

/// A packet for QP `qpn` that carries `tag`.
fn packet(qpn: u32, tag: u8, bytes: usize) -> Vec<u8> {
    let mut packet = vec![tag; bytes];
    packet[4..8].copy_from_slice(&qpn.to_be_bytes());
    packet
}

#[test]
fn a_request_and_an_acknowledgement_leave_in_one_call() {
    let (mut a, mut b) = (open(&config([1, 1])), open(&config([1, 2])));
    let mut batch = TxBatch::new();
    batch.push(b.local(), &packet(1, 7, 20), Order::Free).unwrap();
    batch.push(b.local(), &packet(1, 8, 48), Order::Strict).unwrap();
    send(&mut a, &mut batch);
    let seen = receive(&mut b, 2);
    assert_eq!(seen, [(a.local(), 0, packet(1, 8, 48)), (a.local(), 1, packet(1, 7, 20))]);
    assert_eq!((a.totals().tx_packets, a.totals().tx_trains), (2, 1));
    assert_eq!((b.totals().rx_packets, b.totals().rx_trains), (2, 1));
}

#[test]
fn an_empty_datagram_is_a_ring_and_no_packet() {
    let mut link = open(&config([1, 3]));
    let neighbour = std::net::UdpSocket::bind((IpAddr::from([127, 77, 1, 4]), 0)).expect("a socket");
    neighbour.send_to(&[], link.local()).expect("sends");
    neighbour.send_to(&packet(1, 7, 48), link.local()).expect("sends");
    assert_eq!(receive(&mut link, 1).len(), 1);
    let totals = link.totals();
    assert_eq!((totals.rx_rings, totals.rx_packets, totals.rx_malformed), (1, 1, 0));
}

/// Random packets both ways; the contents must be the same and strict packets in order.
fn check_random_packets(sender: UdpConfig, receiver: UdpConfig, seed: u64) {
    let (mut a, mut b) = (open(&sender), open(&receiver));
    let mut rng = Rng::new(seed);
    let mut batch = TxBatch::new();
    for round in 0..40 {
        let (mut strict, mut free) = (Vec::new(), Vec::new());
        for _ in 0..rng.between(1, 60) {
            let mut bytes = vec![0; *rng.pick(&[20, 48, 48, 48, 300, 1084, 4140])];
            rng.fill(&mut bytes);
            let order = if rng.chance(0.3) { Order::Free } else { Order::Strict };
            bytes[0] = u8::from(order == Order::Free);
            if batch.push(b.local(), &bytes, order).is_ok() {
                if order == Order::Free { &mut free } else { &mut strict }.push(bytes);
            }
        }
        send(&mut a, &mut batch);
        let seen = receive(&mut b, strict.len() + free.len());
        assert!(seen.iter().all(|s| s.0 == a.local()));
        let (seen_free, seen_strict): (Vec<_>, Vec<_>) =
            seen.into_iter().map(|s| s.2).partition(|bytes| bytes[0] == 1);
        assert!(seen_strict == strict && seen_free == free, "seed {seed}, round {round}");
    }
}

#[test]
fn random_packets_arrive_equal_with_trains() {
    check_random_packets(config([2, 1]), config([2, 2]), 1);
}

#[test]
fn random_packets_arrive_equal_without_gso() {
    check_random_packets(UdpConfig { gso: false, ..config([3, 1]) }, config([3, 2]), 2);
}

#[test]
fn random_packets_arrive_equal_without_gro() {
    check_random_packets(config([4, 1]), UdpConfig { gro: false, ..config([4, 2]) }, 3);
}

#[test]
fn a_full_train_arrives_whole() {
    let (mut a, mut b) = (open(&config([5, 1])), open(&config([5, 2])));
    let mut batch = TxBatch::new();
    for tag in 0..64 {
        batch.push(b.local(), &packet(3, tag, 1000), Order::Strict).unwrap();
    }
    send(&mut a, &mut batch);
    let seen = receive(&mut b, 64);
    for (index, (source, train_index, bytes)) in seen.iter().enumerate() {
        assert_eq!((*source, usize::from(*train_index)), (a.local(), index));
        assert_eq!(*bytes, packet(3, index as u8, 1000));
    }
    assert_eq!(seen.len(), 64);
    if a.totals().gso == 1 && b.totals().gro == 1 {
        assert_eq!((a.totals().tx_trains, b.totals().rx_trains), (1, 1));
    } else {
        println!("skipped: trains on both sides need UDP GSO and GRO (Linux 5.0)");
    }
}

#[test]
fn lanes_receive_the_packets_of_their_qps() {
    const LANES: usize = 4;
    let mut lanes = UdpLink::open_lanes(&config([6, 2]), LANES).unwrap_or_else(|error| panic!("{error}"));
    let to = lanes[0].local();
    assert!(lanes.iter().all(|lane| lane.local() == to));
    let mut a = open(&config([6, 1]));
    let mut batch = TxBatch::new();
    let mut rng = Rng::new(6);
    let mut expected = vec![Vec::new(); LANES];
    for tag in 0..200 {
        let packet = packet(rng.next_u32(), tag, 48);
        let lane = lane_of(&packet, LANES);
        batch.push(Path { class: lane as u8, ..to.into() }, &packet, Order::Strict).unwrap();
        expected[lane].push(packet);
    }
    send(&mut a, &mut batch);
    for (lane, expected) in lanes.iter_mut().zip(expected) {
        let seen: Vec<Vec<u8>> = receive(lane, expected.len()).into_iter().map(|s| s.2).collect();
        assert_eq!(seen, expected);
    }
}

#[test]
fn processes_that_share_an_address_receive_what_ends_in_their_number() {
    let mut shared = SharedPort::open(&config([9, 2]), SteerBy::DestinationQpn).unwrap();
    assert_eq!((shared.len(), shared.add().unwrap(), shared.len()), (2, 2, 3));
    let to = shared.socket(0).local();
    let mut adopted = UdpLink::adopt(shared.socket(2).as_fd().try_clone_to_owned().unwrap(), &config([9, 9]))
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(adopted.local(), to, "an adopted socket keeps its address");
    let mut a = open(&config([9, 1]));
    let mut batch = TxBatch::new();
    let mut expected = vec![Vec::new(); 3];
    let mut rng = Rng::new(9);
    for tag in 0..200 {
        // Packets for shards that have no socket go to socket 0.
        let shard = rng.below(5) as u32;
        let packet = packet(rng.next_u32() << 8 | shard, tag, 48);
        batch.push(Path { class: shard as u8, ..to.into() }, &packet, Order::Strict).unwrap();
        expected[if shard < 3 { shard as usize } else { 0 }].push(packet);
    }
    // A datagram that is too short to name a queue pair.
    batch.push(Path { class: 99, ..to.into() }, &[1, 2, 3], Order::Strict).unwrap();
    send(&mut a, &mut batch);
    let mut nobody = receive(shared.socket(0), expected[0].len() + 1);
    let short = nobody.iter().position(|seen| seen.2 == [1, 2, 3]).expect("it arrives at socket 0");
    nobody.remove(short);
    nobody.sort_by_key(|seen| seen.2[0]);
    expected[0].sort_by_key(|packet| packet[0]);
    let bytes = |seen: Vec<(SocketAddr, u16, Vec<u8>)>| seen.into_iter().map(|s| s.2).collect::<Vec<_>>();
    assert_eq!(bytes(nobody), expected[0]);
    assert_eq!(bytes(receive(shared.socket(1), expected[1].len())), expected[1]);
    assert_eq!(bytes(receive(&mut adopted, expected[2].len())), expected[2]);
    // Packets that were not read are thrown away before another process gets the socket.
    batch.push(Path { class: 1, ..to.into() }, &packet(1, 1, 48), Order::Strict).unwrap();
    send(&mut a, &mut batch);
    shared.drain(1, &mut RxBatch::new());
    assert_eq!(shared.socket(1).receive(Instant::ZERO, &mut RxBatch::new()), 0);
}

#[test]
fn whoever_inherits_a_shared_port_binds_what_its_owner_has_not() {
    for bound in [false, true] {
        let mut shared = SharedPort::open(&config([9, 4]), SteerBy::DestinationQpn).unwrap();
        shared.prepare().unwrap();
        let mut sockets: Vec<_> = (0..2).map(|n| shared.fd(n).try_clone_to_owned().unwrap()).collect();
        sockets.push(shared.prepare().unwrap().try_clone_to_owned().unwrap());
        if bound {
            assert_eq!(shared.add().unwrap(), 2);
        }
        drop(shared);
        let mut next = SharedPort::inherit(sockets, &config([9, 4]), SteerBy::DestinationQpn).unwrap();
        assert_eq!((next.len(), next.add().unwrap()), (3, 3));
        let to = next.socket(0).local();
        let (mut a, mut batch) = (open(&config([9, 5])), TxBatch::new());
        for shard in 0..4 {
            let packet = packet(shard, 1, 48);
            batch.push(Path { class: shard as u8, ..to.into() }, &packet, Order::Strict).unwrap();
            send(&mut a, &mut batch);
            let seen = receive(next.socket(shard as usize), 1);
            assert_eq!((seen[0].2.clone(), next.socket(shard as usize).local()), (packet, to));
        }
    }
}

#[test]
fn a_shared_address_is_taken_for_everybody_else() {
    let shared = SharedPort::open(&config([9, 3]), SteerBy::ReceiverQpn).unwrap();
    assert!(!shared.is_empty());
    assert!(matches!(UdpLink::open(&config([9, 3])), Err(OpenError::PortTaken { .. })));
    assert!(matches!(
        SharedPort::open(&config([9, 3]), SteerBy::ReceiverQpn),
        Err(OpenError::PortTaken { .. })
    ));
}

#[test]
fn an_address_has_one_owner_and_the_error_names_it() {
    let lanes = UdpLink::open_lanes(&config([7, 1]), 2).unwrap_or_else(|error| panic!("{error}"));
    for wanted_lanes in [1, 2] {
        let Err(error) = UdpLink::open_lanes(&config([7, 1]), wanted_lanes) else {
            panic!("the address is taken");
        };
        let text = error.to_string();
        let OpenError::PortTaken { address, holders } = error else { panic!("{text}") };
        assert_eq!(address, lanes[0].local());
        assert_eq!(holders.len(), 1, "{holders:?}");
        let own = std::process::id();
        assert_eq!(holders[0].process.as_ref().map(|p| p.0), Some(own), "{text}");
        assert!(text.contains(&format!("process {own}")) && text.contains("HIGHWIRE_ADDR"), "{text}");
    }
    drop(lanes);
    open(&config([7, 1]));
}

#[test]
fn a_foreign_address_is_refused_with_those_that_are_there() {
    let Err(error) = UdpLink::open(&UdpConfig::new(IpAddr::from([203, 0, 113, 77]))) else {
        panic!("203.0.113.77 is for documentation and belongs to nobody");
    };
    let text = error.to_string();
    assert!(matches!(error, OpenError::NotLocal { .. }), "{text}");
    assert!(text.contains("203.0.113.77 is not an address of this machine; it has 127.0.0.1 (lo)"), "{text}");
}

#[test]
fn nobody_listening_is_reported_and_hurts_no_other_packet() {
    let (mut a, mut b) = (open(&config([8, 1])), open(&config([8, 2])));
    let absent = config([8, 3]);
    let absent = SocketAddr::new(absent.ip, absent.port);
    let mut batch = TxBatch::new();
    for tag in 0..20 {
        batch.push(absent, &packet(1, tag, 48), Order::Strict).unwrap();
        send(&mut a, &mut batch);
        batch.push(b.local(), &packet(1, tag, 48), Order::Strict).unwrap();
        send(&mut a, &mut batch);
    }
    let tags: Vec<u8> = receive(&mut b, 20).iter().map(|s| s.2[0]).collect();
    assert_eq!(tags, (0..20).collect::<Vec<u8>>());
    assert_eq!(a.receive(Instant::ZERO, &mut RxBatch::new()), 0);
    assert!(a.totals().icmp_refused > 0, "{:?}", a.totals());
    assert_eq!(a.take_refused(), Some(absent));
    assert_eq!(a.take_refused(), None);
    assert!(!a.wait_readable(0).unwrap(), "the error queue is still announced");
}

#[test]
fn failures_are_counted_by_name() {
    let mut a = open(&config([9, 1]));
    let mut batch = TxBatch::new();
    // No route leads from a loopback address to another machine.
    batch.push(SocketAddr::from(([240, 0, 0, 1], 4791)), &packet(1, 1, 48), Order::Strict).unwrap();
    send(&mut a, &mut batch);
    let totals = *a.totals();
    assert_eq!(totals.tx_packets, 0, "{totals:?}");
    assert_eq!(totals.tx_unreachable + totals.tx_forbidden, 1, "{totals:?}");
    let mut names = Vec::new();
    a.counters(&mut |name, _| names.push(name));
    assert!(names.iter().all(|name| name.starts_with("udp_")) && names.contains(&"udp_gso"));
}

#[test]
fn an_overflowing_receiver_counts_what_the_kernel_dropped() {
    let small = UdpConfig { receive_buffer_bytes: 4096, ..config([10, 2]) };
    let (mut a, mut b) = (open(&config([10, 1])), open(&small));
    let mut batch = TxBatch::new();
    for tag in 0..200 {
        batch.push(b.local(), &packet(1, tag, 200), Order::Strict).unwrap();
        send(&mut a, &mut batch);
    }
    let (mut rx, mut seen, mut markers) = (RxBatch::new(), 0, 0);
    // The count comes along with the next packet that finds room.
    while b.totals().rx_overflow == 0 && markers < 100 {
        while b.receive(Instant::ZERO, &mut rx) > 0 {
            seen += rx.len() as u64;
        }
        batch.push(b.local(), &packet(1, 255, 200), Order::Strict).unwrap();
        send(&mut a, &mut batch);
        markers += 1;
        assert!(b.wait_readable(PATIENCE_MS).unwrap());
        seen += b.receive(Instant::ZERO, &mut rx) as u64;
    }
    assert_eq!(seen + b.totals().rx_overflow, 200 + markers, "{:?}", b.totals());
    assert!(b.totals().rx_overflow > 0);
}

#[test]
fn congestion_marks_arrive() {
    for ecn in [Ecn::NotCapable, Ecn::Capable0, Ecn::CongestionExperienced] {
        let (mut a, mut b) = (open(&UdpConfig { ecn, ..config([11, 1]) }), open(&config([11, 2])));
        let mut batch = TxBatch::new();
        batch.push(b.local(), &packet(1, 1, 48), Order::Strict).unwrap();
        batch.push(b.local(), &packet(1, 2, 48), Order::Strict).unwrap();
        send(&mut a, &mut batch);
        let mut rx = RxBatch::new();
        assert!(b.wait_readable(PATIENCE_MS).unwrap());
        assert!(b.receive(Instant::ZERO, &mut rx) > 0);
        assert!(rx.packets().all(|p| p.ecn() == ecn), "{ecn:?}");
    }
}

#[test]
fn ipv6_works_as_ipv4_does() {
    let loopback = UdpConfig { port: 0, ..UdpConfig::new(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1])) };
    let (mut a, mut b) = match (UdpLink::open(&loopback), UdpLink::open(&loopback)) {
        (Ok(a), Ok(b)) => (a, b),
        (Err(error), _) | (_, Err(error)) => {
            println!("skipped: no IPv6 here: {error}");
            return;
        }
    };
    let mut batch = TxBatch::new();
    for tag in 0..10 {
        batch.push(b.local(), &packet(1, tag, 48), Order::Strict).unwrap();
    }
    batch.push(b.local(), &packet(1, 99, 20), Order::Free).unwrap();
    send(&mut a, &mut batch);
    let seen = receive(&mut b, 11);
    assert_eq!(seen.len(), 11);
    assert!(seen.iter().all(|s| s.0 == a.local()));
    assert_eq!(seen[10].2, packet(1, 99, 20));
}

#[test]
fn any_free_port_can_be_asked_for() {
    let lanes = UdpLink::open_lanes(&UdpConfig { port: 0, ..config([12, 1]) }, 3);
    let lanes = lanes.unwrap_or_else(|error| panic!("{error}"));
    assert!(lanes[0].local().port() != 0 && lanes.iter().all(|l| l.local() == lanes[0].local()));
    assert!(lanes[0].receive_buffer_bytes() > 0);
}

/// With several sockets at one address it is unknown which one is meant, and "unknown" is not "unread".
#[test]
fn whether_one_of_several_sockets_is_unread_cannot_be_told() {
    let socket = |address: (&str, u16)| {
        // SAFETY: plain system calls; the option is an int.
        let socket = unsafe {
            let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
            let on = 1i32;
            let length = size_of::<i32>() as libc::socklen_t;
            let option = (&raw const on).cast();
            assert_eq!(libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, option, length), 0);
            let port = address.1.to_be();
            let ip = u32::from_ne_bytes(address.0.parse::<std::net::Ipv4Addr>().unwrap().octets());
            let mut name: libc::sockaddr_in = std::mem::zeroed();
            (name.sin_family, name.sin_port, name.sin_addr.s_addr) = (libc::AF_INET as u16, port, ip);
            let length = size_of_val(&name) as libc::socklen_t;
            assert_eq!(libc::bind(fd, (&raw const name).cast(), length), 0);
            std::os::fd::FromRawFd::from_raw_fd(fd)
        };
        let socket: std::net::UdpSocket = socket;
        socket
    };
    let first = socket(("127.0.0.1", 0));
    let address = first.local_addr().unwrap();
    let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.send_to(&[1], address).unwrap();
    assert!(highwire_link::has_unread(address), "there is one, and it is unread");
    let second = socket(("127.0.0.1", address.port()));
    assert!(!highwire_link::has_unread(address), "there are two");
    drop(second);
    assert!(highwire_link::has_unread(address));
    drop(first);
    assert!(!highwire_link::has_unread(address), "there is none");
}
