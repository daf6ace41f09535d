//! Packets from the network for connections that go through shared memory: any user of the machine could have sent them.

mod common;

use common::{Setup, next_ok, until};
use highwire_host::verbs::{Gid, Operation, Service};
use highwire_host::{Endpoint, LinkChoice};
use highwire_wire::{Ext, Headers, ICRC_LEN, Opcode, PathIcrc, UDP_PORT};
use std::net::{Ipv4Addr, UdpSocket};

#[test]
fn what_the_network_brings_for_a_neighbours_connection_is_dropped_and_counted() {
    for service in [Service::Rc, Service::Uc] {
        let [a, b] = &Setup::new(service, LinkChoice::Auto).pair();
        // The reliable one writes to the memory directly: its owner sends no packet, but the other end knows
        // it all the same.
        b.receive(1, 0, 64);
        let bytes = a.fill(0, 64, 3);
        if service == Service::Rc {
            a.post(2, Operation::Write(b.buffer.remote(4096)), 0, 64);
            next_ok(a, b);
        }
        // A packet to either end, in the other's name, with the PSN that is expected next.
        for (victim, neighbour) in [(b, a), (a, b)] {
            let (to, from) = (victim.device.gid().to_ip(), neighbour.device.gid().to_ip());
            let psn = victim.qp.query().rq_psn;
            let opcode = if service == Service::Rc { Opcode::RcSendOnly } else { Opcode::UcSendOnly };
            let mut headers = Headers::new(opcode, victim.qp.qpn(), psn, Ext::None);
            headers.bth.ack_request = true;
            let mut packet = vec![0; headers.encoded_len()];
            headers.emit(&mut packet);
            packet.extend_from_slice(b"forged, all of it...");
            let forger = UdpSocket::bind((from, 0)).expect("any user may");
            let port = forger.local_addr().expect("an address").port();
            let path = PathIcrc::between((from, port), (to, UDP_PORT)).expect("one family");
            let icrc = path.icrc(0, &packet);
            packet.extend_from_slice(&icrc.to_le_bytes()[..ICRC_LEN]);
            until("the packet", || {
                forger.send_to(&packet, (to, UDP_PORT)).expect("sends");
                victim.cq.poll_one().map_or_else(
                    || (victim.device.counters().value("dropped_beside_shm") > 0).then_some(()),
                    |completion| panic!("{service}: {completion:?}"),
                )
            });
        }
        a.post(3, Operation::Send, 0, 64);
        next_ok(a, b);
        assert_eq!((next_ok(b, a).wr_id, b.buffer.to_vec(0, 64)), (1, bytes), "{service}");
    }
}

#[test]
fn what_the_network_brings_is_taken_where_there_is_no_channel() {
    let [a, b] = &Setup::new(Service::Rc, LinkChoice::Udp).pair();
    b.receive(1, 0, 64);
    a.post(2, Operation::Send, 0, 64);
    next_ok(a, b);
    next_ok(b, a);
    assert_eq!(b.device.counters().value("dropped_beside_shm"), 0);
}

#[test]
fn a_device_of_shared_memory_alone_sends_nothing_to_a_peer_that_is_no_neighbour() {
    for (link, unreachable) in [(LinkChoice::Shm, 1), (LinkChoice::Auto, 0)] {
        let setup = Setup::new(Service::Uc, link);
        let a = setup.end();
        // Any address of this machine will do that no device has.
        let elsewhere =
            (1..=u8::MAX).find_map(|last| UdpSocket::bind((Ipv4Addr::new(127, 9, 83, last), UDP_PORT)).ok());
        let elsewhere = elsewhere.expect("a free address");
        elsewhere.set_nonblocking(true).expect("a socket's mode");
        let gid = Gid::from_ip(elsewhere.local_addr().expect("an address").ip());
        a.qp.connect(&Endpoint { gid, ..a.qp.endpoint() }, &setup.options).expect("connects");
        a.post(1, Operation::Send, 0, 64);
        assert_eq!(until("it has left", || a.cq.poll_one()).wr_id, 1);
        assert_eq!(a.device.counters().value("dropped_unreachable"), unreachable, "{link:?}");
        assert_eq!(elsewhere.recv(&mut [0; 256]).is_err(), unreachable == 1, "{link:?}");
    }
}
