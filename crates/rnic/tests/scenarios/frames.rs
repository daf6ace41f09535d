//! Frames of the Ethernet segment: which queue pair gets which frame, by rules and by hash.

use crate::common::{Buffer, Bytes, Node, gid};
use highwire_rnic::{ArrivedFrame, Counter, FlowId, TransportConfig};
use highwire_stdx::Instant;
use highwire_verbs::{
    Access, CompletionStatus, FlowError, FlowKind, FlowRule, FlowSpec, ModifyError, Operation, PostError,
    QpAttr, QpCaps, QpConfig, QpState, RecvWr, SEGMENT_GROUP, SEGMENT_QKEY, SendWr, Service, Spread,
    SpreadFields,
};
use highwire_wire::{Ext, LayerKind, Layers, Opcode, Qpn};

const FRAME: u32 = 60;

/// A station with some raw packet queue pairs.
struct Station {
    node: Node<Bytes>,
    buffer: Buffer,
}

impl Station {
    fn new() -> Station {
        let mut node = Node::new(0, Bytes::new(1 << 16), TransportConfig::default(), 1);
        let buffer = node.register(1 << 14, Access::LOCAL_WRITE);
        Station { node, buffer }
    }

    /// A queue pair in RTS with a few receives, numbered from `first` on.
    fn queue(&mut self, first: u64) -> Qpn {
        let (pd, cq) = (self.node.pd, self.node.cq);
        let caps = QpCaps::default();
        let config = QpConfig {
            service: Service::Raw,
            pd,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            caps,
            signal_all: true,
        };
        let qpn = self.node.rnic.create_qp(config).expect("a queue pair");
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            self.node.rnic.modify_qp(Instant::ZERO, qpn, &QpAttr::to_state(state)).expect("changes");
        }
        for wr_id in first..first + 4 {
            let sges = [self.buffer.sge(1024, 512), self.buffer.sge(2048, 1024)];
            let wr = RecvWr { wr_id, sges: &sges };
            self.node.rnic.post_recv(Instant::ZERO, qpn, &wr).expect("posts");
        }
        qpn
    }

    fn rule(&mut self, qpn: Qpn, rule: FlowRule) -> FlowId {
        self.node.rnic.add_flow(qpn, rule).expect("a rule")
    }

    /// Lets a frame arrive; returns the numbers of the receives that complete.
    fn arrive(&mut self, bytes: &[u8], from: Option<Qpn>) -> Vec<u64> {
        let layers = Layers::parse(bytes).expect("an Ethernet header");
        let (source, source_qpn) = from.map_or((gid(1), Qpn::new(99)), |qpn| (gid(0), qpn));
        let frame = ArrivedFrame { source, source_qpn, layers: &layers };
        let Node { rnic, memory, .. } = &mut self.node;
        rnic.handle_frame(Instant::ZERO, &frame, bytes, memory);
        let mut got: Vec<u64> = self.completions().into_iter().map(|(wr_id, _, _)| wr_id).collect();
        got.sort_unstable();
        got
    }

    fn completions(&mut self) -> Vec<(u64, CompletionStatus, u32)> {
        std::iter::from_fn(|| self.node.rnic.poll_completion())
            .map(|(_, completion)| (completion.wr_id, completion.status, completion.byte_len))
            .collect()
    }

    fn count(&self, counter: Counter) -> u64 {
        self.node.rnic.counters().value(counter)
    }
}

/// A UDP packet from 10.0.0.`host`, to a station or to all of them.
fn frame(host: u8, is_multicast: bool) -> Vec<u8> {
    let mut bytes = vec![if is_multicast { 1 } else { 2 }, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x08, 0x00];
    bytes.extend([0x45, 0, 0, 46, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, host, 10, 0, 1, 1]);
    bytes.extend([0x12, 0x34, 0x56, 0x78, 0, 26, 0, 0]);
    bytes.resize(FRAME as usize, 0x5A);
    bytes
}

fn from_host(host: u8) -> FlowRule {
    FlowRule::new(vec![FlowSpec::new(LayerKind::Ipv4, false, &[10, 0, 0, host], &[255; 4])])
}

#[test]
fn a_frame_goes_out_whole_to_everybody_on_the_segment() {
    let mut station = Station::new();
    let qpn = station.queue(0);
    let post = |station: &mut Station, length: u32| {
        let sges = [station.buffer.sge(0, 10), station.buffer.sge(64, length - 10)];
        let wr = SendWr::new(7, Operation::Send, &sges);
        station.node.rnic.post_send(Instant::ZERO, qpn, &wr)
    };
    // A path MTU and a header with a tag.
    assert_eq!(post(&mut station, 4096 + 19), Err(PostError::TooLong));
    assert_eq!(post(&mut station, 13), Err(PostError::TooShort));
    assert_eq!(post(&mut station, 4096 + 18), Ok(()));
    let out = station.node.rnic.poll_transmit(Instant::ZERO).expect("a packet");
    assert_eq!((out.address.gid, out.payload.len()), (SEGMENT_GROUP, 4096 + 18));
    assert_eq!((out.headers.bth.opcode, out.headers.bth.dest_qpn), (Opcode::UdSendOnly, Qpn::MULTICAST));
    assert!(
        matches!(out.headers.ext, Ext::Deth(deth) if deth.qkey == SEGMENT_QKEY && deth.source_qpn == qpn)
    );
    assert!(station.node.rnic.poll_transmit(Instant::ZERO).is_none());
    assert_eq!(station.completions(), [(7, CompletionStatus::Success, 4096 + 18)]);
    let write = SendWr::new(8, Operation::SendImm(1), &[]);
    assert_eq!(station.node.rnic.post_send(Instant::ZERO, qpn, &write), Err(PostError::Unsupported));
}

#[test]
fn a_frame_lies_in_its_receive_as_it_was() {
    let mut station = Station::new();
    let qpn = station.queue(0);
    station.rule(qpn, from_host(1));
    assert_eq!(station.arrive(&frame(1, false), None), [0]);
    let at = station.buffer.addr + 1024;
    assert_eq!(station.node.memory.slice(at..at + u64::from(FRAME)), frame(1, false));
    assert_eq!(station.arrive(&frame(2, false), None), []);
    assert_eq!(station.count(Counter::DroppedUnsteered), 1);
    // A frame that does not fit ends its receive in error, and nothing else.
    let mut long = frame(1, false);
    long.resize(512 + 1024 + 1, 0);
    station.arrive(&long, None);
    assert_eq!(station.count(Counter::DroppedTooLong), 1);
    assert_eq!(station.arrive(&frame(1, false), None), [2]);
}

#[test]
fn rules_of_the_best_priority_decide() {
    let mut station = Station::new();
    let [low, high, also_high] = [0, 10, 20].map(|first| station.queue(first));
    station.rule(low, FlowRule { priority: 5, ..FlowRule::new(Vec::new()) });
    station.rule(high, FlowRule { priority: 1, ..from_host(1) });
    let second = station.rule(also_high, FlowRule { priority: 1, ..from_host(1) });
    assert_eq!(station.arrive(&frame(1, false), None), [10, 20]);
    assert_eq!(station.arrive(&frame(2, false), None), [0]);
    let counts = station.node.rnic.remove_flow(second).expect("it was there");
    assert_eq!((counts.packets, counts.bytes), (1, u64::from(FRAME)));
    assert_eq!(station.arrive(&frame(1, false), None), [11]);
    // A rule that passes on does not keep the frame from lower rules.
    station.rule(also_high, FlowRule { passes_on: true, ..from_host(1) });
    assert_eq!(station.arrive(&frame(1, false), None), [12, 21]);
    station.rule(low, FlowRule { drops: true, ..from_host(1) });
    assert_eq!(station.arrive(&frame(1, false), None), [22]);
}

#[test]
fn default_rules_get_what_nobody_took_and_sniffers_everything() {
    let mut station = Station::new();
    let [normal, all, multicast, sniffer] = [0, 10, 20, 30].map(|first| station.queue(first));
    station.rule(sniffer, FlowRule::of_kind(FlowKind::Sniffer));
    station.rule(multicast, FlowRule::of_kind(FlowKind::MulticastDefault));
    station.rule(all, FlowRule::of_kind(FlowKind::AllDefault));
    station.rule(normal, from_host(1));
    assert_eq!(station.arrive(&frame(1, true), None), [0, 30]);
    assert_eq!(station.arrive(&frame(2, true), None), [10, 20, 31]);
    assert_eq!(station.arrive(&frame(2, false), None), [11, 32]);
    // A queue pair does not get its own frames, unless it sniffs.
    assert_eq!(station.arrive(&frame(1, false), Some(normal)), [12, 33]);
}

#[test]
fn the_hash_spreads_and_a_flow_stays_on_its_queue() {
    let mut station = Station::new();
    let queues: Vec<Qpn> = (0..4).map(|n| station.queue(n * 100)).collect();
    let how = Spread {
        key: std::array::from_fn(|n| (n as u8).wrapping_mul(37) + 11),
        fields: SpreadFields::SOURCE_IPV4,
    };
    let spreading = station.queue(1000);
    let rnic = &mut station.node.rnic;
    assert_eq!(rnic.spread(spreading, how, &queues[..3]), Err(ModifyError::OutOfRange("table")));
    assert_eq!(rnic.spread(spreading, how, &[Qpn::new(77)]), Err(ModifyError::NoSuchQp));
    assert_eq!(rnic.spread(spreading, how, &queues), Ok(()));
    station.rule(spreading, FlowRule::new(Vec::new()));
    let mut used = [0; 4];
    for host in 0..8 {
        let bytes = frame(host, false);
        let expected = how.hash(&Layers::parse(&bytes).expect("a header")) as usize % 4;
        let got = station.arrive(&bytes, None);
        match got[..] {
            [wr_id] => assert_eq!(wr_id / 100, expected as u64),
            // That queue's four receives are gone.
            _ => assert!(used[expected] >= 4),
        }
        used[expected] += 1;
    }
    assert!(used.iter().filter(|count| **count > 0).count() > 1, "{used:?}");
    // A queue that has gone gets nothing, and no other queue gets its frames instead.
    queues.iter().for_each(|qpn| station.node.rnic.destroy_qp(*qpn).expect("there"));
    assert_eq!(station.arrive(&frame(1, false), None), []);
}

#[test]
fn rules_are_for_raw_packet_queue_pairs_and_go_with_them() {
    let mut station = Station::new();
    let qpn = station.queue(0);
    let id = station.rule(qpn, from_host(1));
    assert_eq!(station.node.rnic.add_flow(Qpn::new(5), from_host(1)), Err(FlowError::NoSuchQp));
    let twice = FlowRule { specs: [from_host(1).specs, from_host(1).specs].concat(), ..from_host(1) };
    assert_eq!(station.node.rnic.add_flow(qpn, twice), Err(FlowError::BadSpecs));
    let (pd, cq) = (station.node.pd, station.node.cq);
    let (caps, service) = (QpCaps::default(), Service::Ud);
    let config = QpConfig { service, pd, send_cq: cq, recv_cq: cq, srq: None, caps, signal_all: true };
    let datagrams = station.node.rnic.create_qp(config).expect("a queue pair");
    assert_eq!(station.node.rnic.add_flow(datagrams, from_host(1)), Err(FlowError::NotRaw));
    station.node.rnic.destroy_qp(qpn).expect("there");
    assert!(!station.node.rnic.has_flows() && station.node.rnic.remove_flow(id).is_none());
}
