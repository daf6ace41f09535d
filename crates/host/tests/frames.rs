//! Raw Ethernet frames: one segment for all devices that reach each other's multicast.

mod common;

use common::{End, Setup, until};
use highwire_host::verbs::{
    CompletionStatus, FlowKind, FlowRule, FlowSpec, QpCaps, RecvWr, SPREAD_KEY_LEN, Service, Spread,
    SpreadFields,
};
use highwire_host::verbs::{Operation, SendWr};
use highwire_host::{Engine, LinkChoice, QueuePair, QueuePairConfig, SpreadConfig};
use highwire_wire::{LayerKind, Layers};

const FRAME: usize = 128;
const ROOM: u32 = 2048;

/// The segment is shared with every other test of this machine: a station's address is made from its device's.
fn station(end: &End) -> [u8; 6] {
    let [.., b, c, d] = end.device.gid().0;
    [2, 0, 127, b, c, d]
}

/// A UDP packet to `to`, from a host of this number.
fn frame(to: [u8; 6], host: u8) -> Vec<u8> {
    let mut bytes = to.to_vec();
    bytes.extend([2, 0, 0, 0, 0, 1, 0x08, 0x00]);
    bytes.extend([0x45, 0, 0, 114, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, host, 10, 0, 0, 1]);
    bytes.extend([0x12, 0x34, 0x56, 0x78, 0, 94, 0, 0]);
    bytes.resize(FRAME, host);
    bytes
}

fn for_station(end: &End) -> FlowRule {
    FlowRule::new(vec![FlowSpec::new(LayerKind::Ethernet, false, &station(end), &[0xFF; 6])])
}

fn receive(qp: &QueuePair, end: &End, wr_id: u64) {
    let sges = [end.buffer.sge(wr_id * u64::from(ROOM), ROOM)];
    qp.post_recv(&RecvWr { wr_id, sges: &sges }).expect("posts");
}

fn send(end: &End, bytes: &[u8]) {
    let place = 1 << 19;
    end.buffer.write(place, bytes);
    let sges = [end.buffer.sge(place as u64, bytes.len() as u32)];
    end.qp.post_send(&[SendWr::new(999, Operation::Send, &sges)]).expect("posts");
    let sent = until("the send's completion", || end.cq.poll_one());
    assert_eq!((sent.wr_id, sent.status), (999, CompletionStatus::Success));
}

#[track_caller]
fn expect(end: &End, wr_id: u64, bytes: &[u8]) {
    let got = until("a frame", || end.cq.poll_one());
    assert_eq!((got.wr_id, got.status, got.byte_len), (wr_id, CompletionStatus::Success, bytes.len() as u32));
    assert_eq!(end.buffer.to_vec(wr_id as usize * ROOM as usize, bytes.len()), bytes);
}

#[test]
fn a_frame_reaches_the_station_whose_rule_asks_for_it() {
    for link in [LinkChoice::Udp, LinkChoice::Auto, LinkChoice::Shm] {
        for engine in [Engine::Inline, Engine::Background] {
            let setup = Setup::new(Service::Raw, link).engine(engine);
            let [a, b] = [setup.end(), setup.end()];
            [&a, &b].into_iter().for_each(|end| end.qp.activate_raw().expect("activates"));
            let mut rule = for_station(&b);
            rule.specs.push(FlowSpec::new(LayerKind::Udp, false, &[0x56, 0x78, 0x12, 0x34], &[0xFF; 4]));
            let flow = b.qp.steer(rule).expect("steers");
            (0..4).for_each(|wr_id| receive(&b.qp, &b, wr_id));
            send(&a, &frame(station(&b), 1));
            send(&a, &frame(station(&a), 2));
            send(&a, &frame(station(&b), 3));
            expect(&b, 0, &frame(station(&b), 1));
            expect(&b, 1, &frame(station(&b), 3));
            let counts = flow.end();
            assert_eq!((counts.packets, counts.bytes), (2, 2 * FRAME as u64));
            // Another rule, on the same segment: nothing of the time between.
            send(&a, &frame(station(&b), 4));
            let _flow = b.qp.steer(for_station(&b)).expect("steers");
            send(&a, &frame(station(&b), 5)[..14]);
            expect(&b, 2, &frame(station(&b), 5)[..14]);
        }
    }
}

#[test]
fn a_sender_hears_itself_only_if_it_listens_in() {
    let setup = Setup::new(Service::Raw, LinkChoice::Auto);
    let end = setup.end();
    end.qp.activate_raw().expect("activates");
    let listener = end.pd.queue_pair(&QueuePairConfig::new(Service::Raw, &end.cq)).expect("a queue pair");
    listener.activate_raw().expect("activates");
    receive(&end.qp, &end, 0);
    receive(&listener, &end, 1);
    let _own = end.qp.steer(for_station(&end)).expect("steers");
    let _other = listener.steer(for_station(&end)).expect("steers");
    let bytes = frame(station(&end), 1);
    end.buffer.write(1 << 19, &bytes);
    let sges = [end.buffer.sge(1 << 19, FRAME as u32)];
    end.qp.post_send(&[SendWr::new(999, Operation::Send, &sges)]).expect("posts");
    let mut ended: Vec<u64> = (0..2).map(|_| until("an end", || end.cq.poll_one()).wr_id).collect();
    ended.sort_unstable();
    assert_eq!(ended, [1, 999]);
    assert!(
        end.qp
            .steer(FlowRule { specs: for_station(&end).specs, ..FlowRule::of_kind(FlowKind::Sniffer) })
            .is_err()
    );
}

#[test]
fn frames_are_spread_over_queues_by_their_hash() {
    let setup = Setup::new(Service::Raw, LinkChoice::Auto);
    let [a, b] = [setup.end(), setup.end()];
    a.qp.activate_raw().expect("activates");
    let caps = QpCaps { max_send_wr: 0, ..QpCaps::default() };
    let config = QueuePairConfig { caps, ..QueuePairConfig::new(Service::Raw, &b.cq) };
    let queues: Vec<QueuePair> = (0..4).map(|_| b.pd.queue_pair(&config).expect("a queue pair")).collect();
    for (index, queue) in queues.iter().enumerate() {
        queue.activate_raw().expect("activates");
        (0..8).for_each(|wr_id| receive(queue, &b, index as u64 * 8 + wr_id));
    }
    let key: [u8; SPREAD_KEY_LEN] = std::array::from_fn(|index| (index as u8).wrapping_mul(101) ^ 0x5A);
    let how = Spread { key, fields: SpreadFields::SOURCE_IPV4 };
    let table: Vec<&QueuePair> = queues.iter().collect();
    let spreading = SpreadConfig { table: &table, how, events: None };
    let qp = b.pd.spreading_queue_pair(&spreading).expect("a queue pair");
    let _flow = qp.steer(for_station(&b)).expect("steers");
    for host in 0..8 {
        let bytes = frame(station(&b), host);
        send(&a, &bytes);
        let got = until("a frame", || b.cq.poll_one());
        let layers = Layers::parse(&bytes).expect("an Ethernet header");
        assert_eq!(got.qpn, queues[how.hash(&layers) as usize % 4].qpn());
        assert_eq!(b.buffer.to_vec(got.wr_id as usize * ROOM as usize, FRAME), bytes);
    }
    assert!(b.pd.spreading_queue_pair(&SpreadConfig { table: &table[..3], ..spreading }).is_err());
    let elsewhere = SpreadConfig { table: &[&a.qp], ..spreading };
    assert!(b.pd.spreading_queue_pair(&elsewhere).is_err());
}
