//! Datagrams to many: multicast groups over both links.

mod common;

use common::{End, PATIENCE, QKEY, Setup, until};
use highwire_host::verbs::{Address, CompletionStatus, Datagram, Gid, Operation, RecvWr, SendWr, Service};
use highwire_host::{Engine, LinkChoice, MulticastError, QueuePair, QueuePairConfig, WaitFor};
use highwire_wire::Qpn;
use std::net::IpAddr;

const GRH: usize = 40;

/// A group that no other run of the tests uses: it is told by the device's own address.
fn group(end: &End, v6: bool) -> Gid {
    let Some([_, b, c, d]) = end.device.gid().to_ipv4().map(|ip| ip.octets()) else {
        panic!("a loopback address")
    };
    let ip: IpAddr = if v6 {
        format!("ff0e::{b:x}{c:02x}:{d:x}").parse().expect("an address")
    } else {
        [239, b, c, d].into()
    };
    Gid::from_ip(ip)
}

fn send(qp: &QueuePair, end: &End, to: Gid, byte: u8) {
    end.buffer.write(0, &[byte; 32]);
    let sges = [end.buffer.sge(0, 32)];
    let datagram = Some(Datagram { address: Address::new(to), qpn: Qpn::MULTICAST, qkey: QKEY });
    qp.post_send(&[SendWr { datagram, ..SendWr::new(99, Operation::Send, &sges) }]).expect("posts");
    let sent = until("the send's completion", || end.cq.poll_one());
    assert_eq!((sent.wr_id, sent.status), (99, CompletionStatus::Success));
}

fn receive(qp: &QueuePair, end: &End, wr_id: u64) {
    let sges = [end.buffer.sge(wr_id * 1024, 1024)];
    qp.post_recv(&RecvWr { wr_id, sges: &sges }).expect("posts");
}

/// Takes one message, which was sent by `from` to `group`.
#[track_caller]
fn expect(end: &End, wr_id: u64, from: &End, group: Gid, byte: u8) {
    assert!(end.cq.wait(WaitFor::Any, PATIENCE), "waited too long");
    let got = until("a completion", || end.cq.poll_one());
    assert_eq!((got.wr_id, got.status, got.byte_len), (wr_id, CompletionStatus::Success, 32 + GRH as u32));
    assert!(got.flags.grh && got.source_qpn == from.qp.qpn());
    let bytes = end.buffer.to_vec(wr_id as usize * 1024, GRH + 32);
    assert_eq!(bytes[GRH..], [byte; 32]);
    let address = |ip: Gid| ip.to_ipv4().map(|ip| ip.octets().to_vec());
    assert_eq!(Some(bytes[32..36].to_vec()), address(from.device.gid()));
    if let Some(group) = address(group) {
        assert_eq!(bytes[36..40], group);
    }
}

#[test]
fn everybody_in_the_group_gets_one_copy_and_nobody_else() {
    for link in [LinkChoice::Udp, LinkChoice::Auto, LinkChoice::Shm] {
        for (engine, v6) in [(Engine::Both, false), (Engine::Background, true)] {
            let setup = Setup::new(Service::Ud, link).engine(engine);
            let ends = [setup.end(), setup.end(), setup.end()];
            ends.iter().for_each(|end| end.qp.activate(QKEY).expect("activates"));
            let [a, b, outside] = &ends;
            let second = b.pd.queue_pair(&QueuePairConfig::new(Service::Ud, &b.cq)).expect("a queue pair");
            second.activate(QKEY).expect("activates");
            let group = group(a, v6);
            for (qp, end) in [(&a.qp, a), (&b.qp, b), (&second, b)] {
                for _ in 0..2 {
                    qp.attach_multicast(group).expect("attaches");
                }
                let first = if qp.qpn() == second.qpn() { 10 } else { 1 };
                (first..first + 3).for_each(|wr_id| receive(qp, end, wr_id));
            }
            (1..4).for_each(|wr_id| receive(&outside.qp, outside, wr_id));
            send(&a.qp, a, group, 7);
            expect(a, 1, a, group, 7);
            expect(b, 1, a, group, 7);
            expect(b, 10, a, group, 7);
            // A queue pair that is not in the group may send to it.
            send(&outside.qp, outside, group, 8);
            expect(a, 2, outside, group, 8);
            expect(b, 2, outside, group, 8);
            expect(b, 11, outside, group, 8);
            assert!(b.qp.detach_multicast(group) && !b.qp.detach_multicast(group));
            send(&a.qp, a, group, 9);
            expect(b, 12, a, group, 9);
            expect(a, 3, a, group, 9);
            assert!(ends.iter().all(|end| end.cq.poll_one().is_none()), "{link} {engine}");
        }
    }
}

#[test]
fn only_groups_can_be_joined_and_only_by_datagrams() {
    let setup = Setup::new(Service::Rc, LinkChoice::Auto);
    let end = setup.end();
    let refused = end.qp.attach_multicast(group(&end, false));
    assert!(matches!(refused, Err(MulticastError::Refused(_))), "{refused:?}");
    let refused = end.qp.attach_multicast(end.device.gid());
    assert!(matches!(refused, Err(MulticastError::Refused(_))), "{refused:?}");
    assert!(!end.qp.detach_multicast(group(&end, false)));
}
