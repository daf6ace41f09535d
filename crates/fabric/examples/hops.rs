//! How many packet-hops the fabric carries per second of CPU time.
//!
//! Every host sends 2 MB to another (a permutation) with a fixed window and one acknowledgement per packet: 40 Gb/s, 2 us,
//! 1086-byte packets, 66-byte acknowledgements. `bare` has buffers without end; `full` has PFC and RED marking on 240 KB per
//! input. Both have virtual output queues and round robin. The best of three runs is printed.
//!
//! `cargo run --release -p highwire-fabric --example hops [6 | 16 [THREADS]]` (a fat tree's k; both without)

// A benchmark has a clock; the library has none.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::time::Instant;
use std::{env, fs};

use highwire_fabric::{
    Buffering, Ecn, Fabric, FabricConfig, Host, HostId, LinkSpec, Packet, ParallelFabric, Pfc, Priorities,
    Rate, Span, Time, Topology,
};

const WINDOW: u32 = 110;
const MESSAGE_BYTES: u32 = 2_000_000;

#[derive(Clone, Copy)]
struct Segment {
    source: u32,
    destination: u32,
    bytes: u32,
    is_marked: bool,
}

impl Packet for Segment {
    fn wire_bytes(&self) -> u32 {
        self.bytes
    }
    fn destination(&self) -> HostId {
        HostId(self.destination)
    }
    fn flow_hash(&self) -> u64 {
        u64::from(self.source) << 32 | u64::from(self.destination)
    }
    fn is_ecn_capable(&self) -> bool {
        self.bytes > 100
    }
    fn mark_congestion(&mut self) {
        self.is_marked = true;
    }
}

struct WindowHost {
    id: u32,
    peer: u32,
    to_send: u32,
    in_flight: u32,
    /// Acknowledgements that this host owes, and the host that gets them.
    owed: u32,
    owed_to: u32,
}

impl Host<Segment> for WindowHost {
    fn handle_packet(&mut self, _now: Time, packet: Segment) {
        if packet.bytes > 100 {
            self.owed += 1;
            self.owed_to = packet.source;
        } else {
            self.in_flight -= 1;
        }
    }
    fn handle_timeout(&mut self, _now: Time) {}
    fn poll_transmit(&mut self, _now: Time, _open: Priorities) -> Option<Segment> {
        let segment = |destination, bytes| Segment { source: self.id, destination, bytes, is_marked: false };
        if self.owed > 0 {
            self.owed -= 1;
            return Some(segment(self.owed_to, 66));
        }
        if self.to_send == 0 || self.in_flight == WINDOW {
            return None;
        }
        self.to_send -= 1;
        self.in_flight += 1;
        Some(segment(self.peer, 1086))
    }
    fn poll_timeout(&self) -> Time {
        Time::NEVER
    }
}

fn network(k: u32, is_full: bool) -> (Topology, FabricConfig, Vec<WindowHost>) {
    let link = LinkSpec { rate: Rate::from_gbps(40), delay: Span::from_us(2) };
    let topology = Topology::fat_tree(k, link).expect("an even k");
    let count = topology.host_count();
    let config = if is_full {
        let pfc = Pfc::for_input(240_000, link.rate, link.delay, 1086).expect("240 KB hold the headroom");
        let ecn = Ecn::red(5_000, 200_000, 0.01);
        FabricConfig { pfc: Some(pfc), ecn: Some(ecn), ..FabricConfig::default() }
    } else {
        let buffering = Buffering::InputQueued { input_bytes: u64::MAX / 2 };
        FabricConfig { buffering, ..FabricConfig::default() }
    };
    // An odd stride that is no multiple of a pod keeps neighbours from sending to neighbours.
    let host = |id| WindowHost {
        id,
        peer: (id * 7 + count / 2 + 1) % count,
        to_send: MESSAGE_BYTES / 1000,
        in_flight: 0,
        owed: 0,
        owed_to: 0,
    };
    let mut hosts: Vec<WindowHost> = (0..count).map(host).collect();
    if count.is_multiple_of(7) {
        (0..count).for_each(|id| hosts[id as usize].peer = (id + count / 2 + 1) % count);
    }
    (topology, config, hosts)
}

fn whole(
    (topology, config, hosts): (Topology, FabricConfig, Vec<WindowHost>),
) -> Fabric<Segment, WindowHost> {
    Fabric::new(topology, config, hosts).expect("the parts fit")
}

/// The same network on several threads: seconds by the clock and by the CPUs.
fn on_threads(k: u32, threads: usize) -> (f64, f64) {
    let (topology, config, hosts) = network(k, true);
    let parts = ParallelFabric::new(topology, config, hosts, vec![(); threads]);
    let mut parts: ParallelFabric<Segment, WindowHost> = parts.expect("the parts fit");
    let (cpu, clock) = (cpu_seconds(), Instant::now());
    parts.run_until(Time::NEVER).expect("no invariant breaks");
    (clock.elapsed().as_secs_f64(), cpu_seconds() - cpu)
}

/// CPU time of this process so far, in seconds: user and system ticks of 10 ms.
fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or("");
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|w| w.parse::<u64>().ok()).sum();
    ticks as f64 / 100.0
}

fn main() {
    let only: Option<u32> = env::args().nth(1).and_then(|k| k.parse().ok());
    if let Some((k, threads)) = only.zip(env::args().nth(2).and_then(|n| n.parse().ok())) {
        for count in [1, threads] {
            let (clock, cpu) = on_threads(k, count);
            println!("k={k} full, {count} threads: {clock:.2} s by the clock, {cpu:.2} s of CPU");
        }
        return;
    }
    println!("{:24} {:>9} {:>8} {:>8} {:>10}", "network", "hops", "events", "CPU s", "Mhops/s");
    for (k, repeats) in [(6, 4), (16, 1)].into_iter().filter(|&(k, _)| only.is_none_or(|o| o == k)) {
        for is_full in [false, true] {
            let mut best = (f64::MAX, 0, 0);
            let mut name = String::new();
            for _ in 0..3 {
                let mut all: Vec<_> = (0..repeats).map(|_| whole(network(k, is_full))).collect();
                let start = cpu_seconds();
                for fabric in &mut all {
                    fabric.run_until(Time::NEVER).expect("no invariant breaks");
                }
                let seconds = cpu_seconds() - start;
                let hops = all.iter().map(Fabric::packet_hops).sum::<u64>();
                let events = all.iter().map(Fabric::event_count).sum::<u64>();
                if seconds < best.0 {
                    best = (seconds, hops, events);
                }
                name = format!("{} hosts, {}", all[0].hosts().len(), if is_full { "full" } else { "bare" });
            }
            let (seconds, hops, events) = best;
            let (per_hop, rate) = (events as f64 / hops as f64, hops as f64 / seconds.max(0.01) / 1e6);
            println!("{name:24} {hops:>9} {per_hop:>8.2} {seconds:>8.2} {rate:>10.1}");
        }
    }
}
