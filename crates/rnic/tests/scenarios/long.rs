//! The longest messages, of which only lengths travel.

use crate::RECOVERIES;
use crate::common::{BASE, End, Lengths, Link, Net, connect};
use highwire_rnic::TransportConfig;
use highwire_stdx::{Duration, Instant};
use highwire_verbs::{
    Access, CompletionStatus, LocalKey, Mtu, Operation, QpAttr, QpCaps, QpConfig, Recovery, RecvWr, Remote,
    RemoteKey, SendWr, Service, Sge,
};
use highwire_wire::Psn;

const LONGEST: u32 = 1 << 31;

/// Two RNICs whose memory is lengths, with a region of 2^31 bytes each.
struct Long {
    net: Net<Lengths>,
    ends: [End; 2],
    keys: [LocalKey; 2],
}

fn long(recovery: Recovery, transport: TransportConfig, mtu: Mtu) -> Long {
    let link = Link { latency: Duration::from_micros(1), ..Link::default() };
    let mut net = Net::new(vec![Lengths::default(); 2], link, transport, 1);
    let (mut ends, mut keys) = (Vec::new(), Vec::new());
    for (index, node) in net.nodes.iter_mut().enumerate() {
        let length = u64::from(LONGEST);
        node.memory.writable.push(BASE..BASE + length);
        let attr = highwire_verbs::RegionAttr { addr: BASE, length, iova: BASE, access: Access::ALL };
        keys.push(node.rnic.regions_mut().register(node.pd, attr).expect("registers"));
        let (pd, cq) = (node.pd, node.cq);
        let caps = QpCaps::default();
        let service = Service::Rc;
        let config = QpConfig { service, pd, send_cq: cq, recv_cq: cq, srq: None, caps, signal_all: true };
        ends.push(End { node: index, qpn: node.rnic.create_qp(config).expect("a queue pair") });
    }
    for index in 0..2 {
        let attr = QpAttr {
            access: Some(Access::ALL),
            path_mtu: Some(mtu),
            rq_psn: Some(Psn::new(0xFF_0000)),
            sq_psn: Some(Psn::new(0xFF_0000)),
            max_dest_rd_atomic: Some(1),
            max_rd_atomic: Some(1),
            min_rnr_timer: Some(1),
            timeout: Some(14),
            retry_count: Some(7),
            rnr_retry: Some(7),
            recovery: Some(recovery),
            ..QpAttr::default()
        };
        connect(&mut net.nodes[index], ends[index].qpn, ends[1 - index], Instant::ZERO, &attr, false);
        net.nodes[index].rnic.set_irn_accepted(ends[index].qpn, recovery == Recovery::Irn);
    }
    Long { net, ends: [ends[0], ends[1]], keys: [keys[0], keys[1]] }
}

#[test]
fn two_gibibytes_are_one_message() {
    for recovery in RECOVERIES {
        let Long { mut net, ends, keys } = long(recovery, TransportConfig::default(), Mtu::B4096);
        let remote = Remote { va: BASE, rkey: RemoteKey(keys[1].0) };
        let sges = [Sge { addr: BASE, length: LONGEST, lkey: keys[0] }];
        let receive = [Sge { addr: BASE, length: LONGEST, lkey: keys[1] }];
        net.nodes[1]
            .rnic
            .post_recv(net.now, ends[1].qpn, &RecvWr { wr_id: 9, sges: &receive })
            .expect("posts");
        for operation in [Operation::Write(remote), Operation::Read(remote), Operation::Send] {
            let wr = SendWr::new(1, operation, &sges);
            net.nodes[0].rnic.post_send(net.now, ends[0].qpn, &wr).expect("posts");
            net.run();
            let done = net.nodes[0].take_completions();
            let done: Vec<_> = done.iter().map(|c| (c.status, c.byte_len)).collect();
            assert_eq!(done, [(CompletionStatus::Success, LONGEST)], "{operation:?}");
        }
        assert_eq!(net.nodes[0].memory.placed, u64::from(LONGEST));
        assert_eq!(net.nodes[1].memory.placed, 2 * u64::from(LONGEST));
        assert_eq!(net.nodes[1].take_completions()[0].byte_len, LONGEST);
    }
}

/// Go-back-N may have half of all PSNs in flight. If the next request does not fit, only an acknowledgement makes room: the last
/// packet that fits asks for one, although no other packet does.
#[test]
fn the_last_packet_before_the_psns_run_out_asks_for_an_acknowledgement() {
    let transport = TransportConfig {
        ack_interval: u32::MAX,
        go_back_n_window: (1 << 23) - 2,
        ..TransportConfig::default()
    };
    let Long { mut net, ends, keys } = long(Recovery::GoBackN, transport, Mtu::B256);
    // Two of these messages have 7,812,500 packets; a third does not fit.
    let sges = [Sge { addr: BASE, length: 1_000_000_000, lkey: keys[0] }];
    let remote = Remote { va: BASE, rkey: RemoteKey(keys[1].0) };
    let node = &mut net.nodes[0];
    for message in 0..3 {
        let wr = SendWr::new(message, Operation::Write(remote), &sges);
        node.rnic.post_send(Instant::ZERO, ends[0].qpn, &wr).expect("posts");
    }
    let (mut sent, mut asked) = (0u32, Vec::new());
    while let Some(packet) = node.rnic.poll_transmit(Instant::ZERO) {
        sent += 1;
        if packet.headers.bth.ack_request {
            asked.push(sent);
        }
    }
    assert_eq!((sent, asked), (7_812_500, vec![7_812_500]));
}
