//! The traffic class that a sender asks for: in the header that a datagram's receiver finds before it, in captures, and
//! on either link.

mod common;

use common::{End, QKEY, Setup, next_ok, until};
use highwire_host::verbs::{Address, Datagram, Gid, Operation, SendWr, Service};
use highwire_host::{Device, DeviceConfig, Engine, LinkChoice};
use highwire_wire::{Ethernet, Frame, LinkType, Opcode, icrc, pcap};

/// Expedited forwarding (RFC 3246): a class that no packet has by accident.
const CLASS: u8 = 0xB8;
/// The two bits that are ECN's and not the sender's to choose.
const ECN: u8 = 3;

fn send(from: &End, to: &Datagram, wr_id: u64) {
    let sges = [from.buffer.sge(0, 64)];
    let wr = SendWr { datagram: Some(*to), ..SendWr::new(wr_id, Operation::Send, &sges) };
    from.qp.post_send(&[wr]).expect("posts");
}

fn datagram(to: &End, traffic_class: u8) -> Datagram {
    let address = Address { traffic_class, ..Address::new(to.device.gid()) };
    Datagram { address, qpn: to.qp.qpn(), qkey: QKEY }
}

/// What the header before a datagram says, as a program reads it.
fn class_in(grh: &[u8]) -> u8 {
    match grh[20] >> 4 {
        4 => grh[21],
        _ => (u16::from_be_bytes([grh[0], grh[1]]) >> 4) as u8,
    }
}

#[test]
fn a_receiver_finds_the_senders_traffic_class_before_the_datagram() {
    for link in [LinkChoice::Udp, LinkChoice::Auto] {
        let [a, b] = &Setup::new(Service::Ud, link).pair();
        // A class on every second datagram: none may reach its neighbours in a train.
        let classes = [0, CLASS, 0, CLASS | ECN, 0x20, 0];
        for (index, class) in classes.into_iter().enumerate() {
            b.receive(index as u64, 4096 * index as u64, 512);
            send(a, &datagram(b, class), 100 + index as u64);
        }
        let mut found = [None; 6];
        for _ in classes {
            let completion = next_ok(b, a);
            let grh = b.buffer.to_vec(4096 * completion.wr_id as usize, 40);
            found[completion.wr_id as usize] = Some(class_in(&grh) & !ECN);
        }
        // Different classes may overtake each other, as on a network: what counts is that each has its own.
        found.sort_unstable();
        assert_eq!(found, [0, 0, 0, 0x20, CLASS, CLASS].map(Some), "{link}");
    }
}

#[test]
fn a_receiver_finds_the_traffic_class_over_ipv6() {
    let config = DeviceConfig {
        address: Some("::1".parse().expect("an address")),
        link: LinkChoice::Udp,
        engine: Engine::Inline,
        ..DeviceConfig::default()
    };
    // A machine without IPv6, or with another program there, has nothing to show.
    if let Err(error) = Device::open(&config).map(drop) {
        eprintln!("skipped: {error}");
        return;
    }
    let setup = Setup { config, ..Setup::new(Service::Ud, LinkChoice::Udp) };
    let a = setup.end();
    a.qp.activate(QKEY).expect("activates");
    // To itself, through the network.
    a.receive(1, 4096, 512);
    send(&a, &datagram(&a, CLASS), 2);
    let mut done = [until("one", || a.cq.poll_one()).wr_id, until("another", || a.cq.poll_one()).wr_id];
    done.sort_unstable();
    assert_eq!(done, [1, 2]);
    let grh = a.buffer.to_vec(4096, 40);
    assert_eq!((grh[0] >> 4, class_in(&grh) & !ECN), (6, CLASS));
    assert_eq!(a.device.gid(), Gid(grh[8..24].try_into().expect("sixteen bytes")));
}

#[test]
fn a_capture_shows_the_traffic_class_of_what_leaves_and_what_arrives() {
    let folder = std::env::temp_dir().join(format!("highwire-host-class-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    for link in [LinkChoice::Udp, LinkChoice::Shm] {
        let files = ["a", "b"].map(|name| folder.join(format!("{name}.pcap")));
        let ends = files.clone().map(|file| {
            let mut setup = Setup::new(Service::Ud, link);
            setup.config.capture = Some(file);
            setup.end()
        });
        Setup::new(Service::Ud, link).connect(&ends);
        let [a, b] = &ends;
        b.receive(1, 0, 512);
        send(a, &datagram(b, CLASS), 2);
        next_ok(b, a);
        drop(ends);
        for file in files {
            let bytes = std::fs::read(&file).expect("the capture");
            let mut classes = Vec::new();
            for record in pcap::Reader::new(&bytes).expect("a capture") {
                let record = record.expect("a whole record");
                let frame = Frame::parse(LinkType::Ethernet, record.bytes).expect("a RoCEv2 frame");
                let (_, ip_start) = Ethernet::parse(record.bytes).expect("an Ethernet frame");
                assert_eq!(icrc::verify_ip_packet(&record.bytes[ip_start..]), Ok(true));
                if frame.headers.bth.opcode == Opcode::UdSendOnly {
                    assert_eq!(frame.headers.bth.reserved6, 0, "nothing of ours is left in the BTH");
                    classes.push(frame.ip.traffic_class() & !ECN);
                }
            }
            assert_eq!(classes, [CLASS], "{link}, {}", file.display());
        }
    }
    std::fs::remove_dir_all(&folder).expect("it is ours");
}
