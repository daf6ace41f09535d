//! Random networks, configurations and traffic: the invariants hold, and a seed is a run.

mod support;

use highwire_fabric::{
    Balancing, Buffering, DropReason, Ecn, Fabric, FabricConfig, Forwarding, LinkSpec, MarkWhen, Observer,
    ParallelFabric, Pfc, PortCounters, PortId, Priorities, Rate, Rerouting, Service, Span, Time, Topology,
    Trimming,
};
use highwire_stdx::Rng;
use support::{Frame, Station};

/// Counts what it is told, to compare with the counters.
#[derive(Default)]
struct Witness {
    sent: u64,
    full: u64,
    lost: u64,
    marked: u64,
    trimmed: u64,
    paused: u64,
}

impl Observer<Frame> for Witness {
    fn on_drop(&mut self, _: Time, _: PortId, reason: DropReason, _: &Frame) {
        match reason {
            DropReason::BufferFull => self.full += 1,
            DropReason::BitError | DropReason::LinkDown => self.lost += 1,
        }
    }
    fn on_mark(&mut self, _: Time, _: PortId, _: &Frame) {
        self.marked += 1;
    }
    fn on_trim(&mut self, _: Time, _: PortId, _: &Frame) {
        self.trimmed += 1;
    }
    fn on_pause(&mut self, _: Time, _: PortId, paused: Priorities) {
        self.paused += u64::from(paused != Priorities::NONE);
    }
    fn on_send(&mut self, _: Time, _: PortId, _: &Frame) {
        self.sent += 1;
    }
}

fn random_topology(rng: &mut Rng) -> Topology {
    let mut link = |gbps: &[u64]| LinkSpec {
        rate: Rate::from_gbps(*rng.pick(gbps)),
        delay: Span::from_ns(rng.between(10, 3000)),
    };
    let (near, far) = (link(&[10, 25, 40, 56]), link(&[40, 100]));
    let topology = match rng.below(4) {
        0 => Topology::star(rng.between(2, 80) as u32, near),
        1 => Topology::dumbbell(rng.between(1, 9) as u32, rng.between(1, 9) as u32, near, far),
        2 => Topology::leaf_spine(3, 2, rng.between(1, 5) as u32, near, far),
        _ => Topology::fat_tree(4, near),
    };
    topology.expect("the shape is possible")
}

fn random_config(rng: &mut Rng, topology: &Topology, is_acyclic: bool) -> FabricConfig {
    let priorities = rng.between(1, 3) as u8;
    let input_bytes = rng.between(20_000, 500_000);
    let worst = topology
        .links()
        .iter()
        .map(|l| Pfc::headroom_needed(l.spec.rate, l.spec.delay, 1500, Pfc::FRAME_BYTES));
    let headroom_bytes = worst.max().expect("there are links");
    let has_pfc = rng.chance(0.5) && is_acyclic;
    let xoff_bytes = rng.between(2_000, 100_000);
    let pfc = Pfc {
        priorities: Priorities(if rng.chance(0.5) { 0xff } else { 1 }),
        xoff_bytes,
        xon_bytes: xoff_bytes - rng.below(2_000),
        headroom_bytes,
        frame_bytes: Pfc::FRAME_BYTES,
    };
    let needed = u64::from(priorities) * (xoff_bytes + headroom_bytes);
    let ports = u64::from(topology.port_count());
    let buffering = if rng.chance(0.5) {
        Buffering::InputQueued { input_bytes: if has_pfc { needed + rng.below(5_000) } else { input_bytes } }
    } else {
        let pool_bytes = if has_pfc { ports * needed } else { 4 * input_bytes };
        Buffering::OutputQueued { pool_bytes, alpha_log2: rng.between(0, 4) as i8 - 2 }
    };
    let when = if rng.chance(0.5) { MarkWhen::Joining } else { MarkWhen::Leaving };
    FabricConfig {
        service: if rng.chance(0.3) { Service::Fifo } else { Service::RoundRobin },
        seed: rng.next_u64(),
        priorities,
        buffering,
        pfc: has_pfc.then_some(pfc),
        ecn: rng.chance(0.5).then_some(Ecn { when, ..Ecn::red(3_000, 60_000, 0.1) }),
        trimming: (!has_pfc && rng.chance(0.5)).then_some(Trimming {
            data_bytes_max: rng.between(3_000, 20_000),
            header_bytes_max: rng.between(100, 20_000),
            header_priority: priorities - 1,
        }),
        balancing: if rng.chance(0.5) { Balancing::Ecmp } else { Balancing::Spray },
        rerouting: *rng.pick(&[Rerouting::None, Rerouting::Local, Rerouting::Global]),
        forwarding: match rng.chance(0.5) {
            true => Forwarding::CutThrough { header_bytes: rng.below(100) as u32 },
            false => Forwarding::StoreAndForward,
        },
    }
}

/// Everything that follows from a seed.
struct Storm {
    seed: u64,
    topology: Topology,
    config: FabricConfig,
    stations: Vec<Station>,
    /// How many packets the stations will send.
    total: u64,
    /// When which link goes down or comes up.
    changes: Vec<(Time, usize, bool)>,
    noisy_link: Option<usize>,
}

fn storm(seed: u64) -> Storm {
    let mut rng = Rng::new(seed);
    let topology = random_topology(&mut rng);
    let has_faults = rng.chance(0.4);
    // New ways around a failure may close a circle of pauses, as on real networks.
    let config = random_config(&mut rng, &topology, !has_faults);
    let hosts = topology.host_count();
    let mut stations = support::stations(hosts);
    let mut total = 0;
    for (source, station) in stations.iter_mut().enumerate() {
        let mut at = Time::ZERO;
        for number in 0..rng.between(20, 120) as u32 {
            at += Span::from_ps(if rng.chance(0.7) { 0 } else { rng.below(3_000_000) });
            let destination = if rng.chance(0.5) { 0 } else { rng.below(u64::from(hosts)) as u32 };
            if destination == source as u32 {
                continue;
            }
            let frame = Frame {
                flow: rng.next_u64(),
                priority: rng.below(u64::from(config.priorities)) as u8,
                ..Frame::new(source as u32, destination, rng.between(40, 1500) as u32)
            };
            station.script.push_back((at, frame.numbered(number)));
            total += 1;
        }
    }
    let links = topology.links().len() as u64;
    let mut changes = Vec::new();
    let mut noisy_link = None;
    if has_faults {
        for _ in 0..3 {
            let (down, link) = (rng.below(100_000), rng.below(links) as usize);
            changes.push((Time::from_ns(down), link, false));
            changes.push((Time::from_ns(down + rng.below(50_000)), link, true));
        }
        noisy_link = Some(rng.below(links) as usize);
    }
    Storm { seed, topology, config, stations, total, changes, noisy_link }
}

/// What must be equal when a storm is played again: fingerprint, number of events, counters, and every station's log.
type Outcome = (u64, u64, PortCounters, Vec<Vec<(Time, Frame)>>);

impl Storm {
    fn play(self) -> Outcome {
        let Storm { seed, total, .. } = self;
        let name = format!("seed {seed}");
        let net = Fabric::observed(self.topology, self.config, self.stations, Witness::default());
        let mut net: Fabric<Frame, Station, Witness> = net.unwrap_or_else(|e| panic!("{name}: {e}"));
        self.changes.iter().for_each(|&(at, link, is_up)| net.schedule_link(at, link, is_up));
        self.noisy_link.iter().for_each(|&link| net.set_link_errors(link, 1e-5, 0.01));
        // Stopping anywhere must change nothing, and every stop must verify.
        for stop in 1..20 {
            net.run_until(Time::from_us(stop * 7))
                .and_then(|()| net.verify())
                .unwrap_or_else(|v| panic!("{name}: {v}"));
        }
        net.run_to_rest().unwrap_or_else(|v| panic!("{name}: {v}"));
        let (counters, witness) = (net.totals(), net.observer());
        let received: u64 = net.hosts().iter().map(|h| h.received.len() as u64).sum();
        let ended = counters.dropped.packets + counters.lost.packets + counters.unroutable.packets;
        assert_eq!(received + witness.full + witness.lost, total, "seed {seed}");
        assert_eq!(counters.dropped.packets, witness.full, "seed {seed}");
        assert_eq!(
            (counters.marked, counters.trimmed.packets),
            (witness.marked, witness.trimmed),
            "seed {seed}"
        );
        assert!(ended >= witness.full + witness.lost && witness.sent >= total, "seed {seed}");
        let (injected, delivered) = net.injected_and_delivered();
        assert_eq!((injected.packets, delivered.packets), (total, received), "seed {seed}");
        let (fingerprint, events) = (net.fingerprint(), net.event_count());
        (fingerprint, events, counters, net.into_parts().0.into_iter().map(|h| h.received).collect())
    }

    fn play_on_threads(self, threads: usize) -> Outcome {
        let seed = self.seed;
        let name = format!("seed {seed}, {threads} threads");
        let net = ParallelFabric::new(self.topology, self.config, self.stations, vec![(); threads]);
        let mut net: ParallelFabric<Frame, Station> = net.unwrap_or_else(|e| panic!("{name}: {e}"));
        self.changes.iter().for_each(|&(at, link, is_up)| net.schedule_link(at, link, is_up));
        self.noisy_link.iter().for_each(|&link| net.set_link_errors(link, 1e-5, 0.01));
        for stop in 1..4 {
            net.run_until(Time::from_us(stop * 31))
                .and_then(|()| net.verify())
                .unwrap_or_else(|v| panic!("{name}: {v}"));
        }
        net.run_to_rest().unwrap_or_else(|v| panic!("{name}: {v}"));
        let (fingerprint, events, counters) = (net.fingerprint(), net.event_count(), net.totals());
        (fingerprint, events, counters, net.into_parts().0.into_iter().map(|h| h.received).collect())
    }
}

#[test]
fn invariants_hold_and_a_seed_is_a_run() {
    let mut fingerprints = Vec::new();
    for seed in 0..150 {
        let first = storm(seed).play();
        assert!(first == storm(seed).play(), "seed {seed} gave two runs");
        fingerprints.push(first.0);
    }
    fingerprints.sort_unstable();
    fingerprints.dedup();
    assert_eq!(fingerprints.len(), 150);
}

#[test]
fn threads_change_nothing() {
    for seed in 0..30 {
        let whole = storm(seed).play();
        for threads in 1 + seed as usize % 2..=3 {
            let parts = storm(seed).play_on_threads(threads);
            let (expected, found) = ((whole.0, whole.1, whole.2), (parts.0, parts.1, parts.2));
            assert_eq!(found, expected, "seed {seed}, {threads} threads");
            assert!(
                parts.3 == whole.3,
                "seed {seed}, {threads} threads: other packets arrived, or at other times"
            );
        }
    }
}

#[test]
fn where_a_run_is_interrupted_does_not_matter() {
    let run = |stop_every: u64| {
        let link = LinkSpec { rate: Rate::from_gbps(40), delay: Span::from_us(2) };
        let mut hosts = support::stations(16);
        for sender in 1..16 {
            hosts[sender as usize] = Station::streaming(Frame::new(sender, sender / 2, 1086), 200);
        }
        let topology = Topology::fat_tree(4, link).expect("k=4");
        let mut net = support::network(topology, FabricConfig::default(), hosts);
        (1..200).for_each(|i| net.run_until(Time::from_ps(i * stop_every)).expect("no invariant breaks"));
        net.run_to_rest().expect("no invariant breaks");
        (net.fingerprint(), net.event_count())
    };
    assert_eq!(run(1), run(777_777));
    assert_eq!(run(1), run(10_000_000));
}
