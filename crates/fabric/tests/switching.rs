//! What switches do when packets meet: turns, priorities, pauses, marks, trims, drops.

mod support;

use highwire_fabric::{
    Buffering, BuildError, Ecn, Fabric, FabricConfig, HostId, MarkWhen, Observer, Pfc, PortId, Priorities,
    Rate, Service, Span, Time, Topology, Trimming, ViolationKind,
};
use support::{Frame, Network, Station, link40, network, received_numbers, stations};

fn star(hosts: u32) -> Topology {
    Topology::star(hosts, link40()).expect("a star")
}

/// Hosts 1 and on each send `each` packets of 1000 bytes to host 0 of a star at line rate.
fn converge(senders: u32, each: u32, config: FabricConfig) -> Network {
    let mut hosts = stations(senders + 1);
    for sender in 1..=senders {
        hosts[sender as usize] = Station::streaming(Frame::new(sender, 0, 1000), each);
    }
    network(star(senders + 1), config, hosts)
}

#[test]
fn inputs_take_turns() {
    let mut net = converge(3, 50, FabricConfig::default());
    net.run_to_rest().expect("no invariant breaks");
    let sources: Vec<u32> = net.host(HostId(0)).received.iter().map(|r| r.1.source).collect();
    assert_eq!(sources, [1, 2, 3].repeat(50));
}

#[test]
fn an_output_queued_switch_serves_in_the_order_of_arrival() {
    let buffering = Buffering::OutputQueued { pool_bytes: 1_000_000, alpha_log2: 0 };
    let mut hosts = stations(3);
    hosts[1] = Station::scripted((0..8).map(|n| (Time::ZERO, Frame::new(1, 0, 1000).numbered(n))));
    // A little later, and shorter: two of them arrive in the time of one.
    hosts[2] = Station::scripted((100..116).map(|n| (Time::from_ns(250), Frame::new(2, 0, 500).numbered(n))));
    let mut net = network(star(3), FabricConfig { buffering, ..FabricConfig::default() }, hosts);
    net.run_to_rest().expect("no invariant breaks");
    let order = received_numbers(&net, 0);
    assert_eq!(order[..9], [0, 100, 1, 101, 102, 2, 103, 104, 3]);
}

#[test]
fn an_input_queued_switch_may_serve_in_the_order_of_arrival() {
    let order = |service| {
        let mut hosts = stations(3);
        hosts[1] = Station::scripted((0..8).map(|n| (Time::ZERO, Frame::new(1, 0, 1000).numbered(n))));
        // A little later, and shorter: two of them arrive in the time of one.
        hosts[2] =
            Station::scripted((100..116).map(|n| (Time::from_ns(250), Frame::new(2, 0, 500).numbered(n))));
        let mut net = network(star(3), FabricConfig { service, ..FabricConfig::default() }, hosts);
        net.run_to_rest().expect("no invariant breaks");
        received_numbers(&net, 0)
    };
    assert_eq!(order(Service::Fifo)[..9], [0, 100, 1, 101, 102, 2, 103, 104, 3]);
    assert_eq!(order(Service::RoundRobin)[..9], [0, 100, 1, 101, 2, 102, 3, 103, 4]);
}

#[test]
fn the_higher_priority_goes_first() {
    let mut hosts = stations(3);
    hosts[1] = Station::streaming(Frame::new(1, 0, 1000), 100);
    let urgent = Frame { priority: 1, ..Frame::new(2, 0, 1000) };
    hosts[2] = Station::streaming(urgent, 100);
    let mut net = network(star(3), FabricConfig { priorities: 2, ..FabricConfig::default() }, hosts);
    net.run_to_rest().expect("no invariant breaks");
    let received = &net.host(HostId(0)).received;
    let last_urgent = received.iter().rposition(|r| r.1.priority == 1).expect("they have arrived");
    // Only the first ordinary packet, which found the output idle, is ahead of an urgent one.
    assert_eq!((received.len(), last_urgent), (200, 100));
}

/// The most that ever waited for one port, at all priorities.
#[derive(Default)]
struct Peak {
    port: u32,
    bytes: u64,
}

impl Observer<Frame> for Peak {
    const SEES_QUEUES: bool = true;

    fn on_wait(&mut self, _: Time, port: PortId, bytes: u64) {
        if port.0 == self.port {
            self.bytes = self.bytes.max(bytes);
        }
    }
}

#[test]
fn eight_priorities_are_served_strictly() {
    let mut hosts = stations(9);
    for sender in 1..9 {
        let priority = (3 * sender % 8) as u8;
        hosts[sender as usize] = Station::streaming(Frame { priority, ..Frame::new(sender, 0, 1000) }, 20);
    }
    let buffering = Buffering::OutputQueued { pool_bytes: 1_000_000, alpha_log2: 0 };
    let config = FabricConfig { priorities: 8, buffering, ..FabricConfig::default() };
    // The switch's ports follow the hosts'.
    let peak = Peak { port: 9, bytes: 0 };
    let mut net = Fabric::observed(star(9), config, hosts, peak).expect("it fits");
    net.run_to_rest().expect("no invariant breaks");
    let order: Vec<u8> = net.host(HostId(0)).received.iter().map(|r| r.1.priority).collect();
    // The first one found the output idle.
    assert_eq!(order.len(), 160);
    assert!(order[1..].is_sorted_by(|before, after| before >= after), "{order:?}");
    // Before the last eight of 160 packets come, 19 have left, all of them of the highest priority but the first.
    assert_eq!((net.observer().bytes, net.queue_bytes_max(net.switch_port(0, 0))), (141_000, 20_000));
}

#[test]
fn a_full_input_drops_what_comes_next() {
    let buffering = Buffering::InputQueued { input_bytes: 10_000 };
    let mut net = converge(2, 100, FabricConfig { buffering, ..FabricConfig::default() });
    net.run_to_rest().expect("no invariant breaks");
    let totals = net.totals();
    // While both send, 200 packets come and 100 leave; 20 wait at the end.
    assert_eq!(totals.dropped.packets, 200 - net.host(HostId(0)).received.len() as u64);
    assert!((78..=82).contains(&totals.dropped.packets), "{totals:?}");
    assert_eq!(totals.dropped.bytes, totals.dropped.packets * 1000);
    assert_eq!(net.counters(net.switch_port(0, 0)).dropped, totals.dropped);
    assert!(net.queue_bytes_max(net.switch_port(0, 0)) <= 20_000);
}

#[test]
fn a_shared_pool_bounds_each_queue_by_what_is_free() {
    // With alpha = 1 one queue alone may hold half of the pool.
    let buffering = Buffering::OutputQueued { pool_bytes: 100_000, alpha_log2: 0 };
    let mut net = converge(4, 200, FabricConfig { buffering, ..FabricConfig::default() });
    net.run_to_rest().expect("no invariant breaks");
    assert_eq!(net.queue_bytes_max(net.switch_port(0, 0)), 50_000);
    assert!(net.totals().dropped.packets > 0);
}

fn pfc(priorities: Priorities) -> Option<Pfc> {
    let pfc = Pfc::for_input(100_000, Rate::from_gbps(40), Span::from_us(2), 1000)?;
    // Room for two priorities in 240 KB.
    Some(Pfc { priorities, ..pfc })
}

#[test]
fn pauses_concern_one_priority_only() {
    let mut hosts = stations(4);
    hosts[1] = Station::streaming(Frame::new(1, 0, 1000), 2000);
    let other = Frame { priority: 1, ..Frame::new(2, 3, 1000) };
    hosts[2] = Station::scripted((0..500).map(|n| (Time::from_us(100), other.numbered(n))));
    hosts[2].stream = Some((Frame::new(2, 0, 1000), 2000));
    let config = FabricConfig { priorities: 2, pfc: pfc(Priorities::ALL), ..FabricConfig::default() };
    let mut net = network(star(4), config, hosts);
    net.run_to_rest().expect("lossless means lossless");
    assert_eq!(net.host(HostId(0)).received.len(), 4000);
    let counters = net.counters(PortId(2));
    assert!(counters.pause_frames_received >= 2 && counters.paused > Span::from_us(50), "{counters:?}");
    // Host 2 was paused at priority 0 around 100 us, and its 500 packets of priority 1 left back to back all the same.
    let received = &net.host(HostId(3)).received;
    let took = received[499].0.since(received[0].0);
    assert_eq!(took, Span::from_ns(200) * 499);
}

#[test]
fn a_pause_counts_while_it_lasts() {
    let mut net = converge(2, 2000, FabricConfig { pfc: pfc(Priorities::ALL), ..FabricConfig::default() });
    let port = PortId(2);
    let (mut before, mut looks) = (None, 0);
    for step in 1..4000 {
        net.run_until(Time::from_ns(step * 200)).expect("no invariant breaks");
        let (now, counters) = (net.now(), net.counters(port));
        let frames = counters.pause_frames_received;
        // The same pause as at the last look.
        if let Some((then, paused, same)) = before.filter(|_| net.is_paused(port))
            && same == frames
            && now > then
        {
            assert_eq!(counters.paused, paused + now.since(then));
            looks += 1;
        }
        before = net.is_paused(port).then_some((now, counters.paused, frames));
    }
    assert!(looks > 10, "{looks}");
}

#[test]
fn unprotected_priorities_drop_while_protected_ones_pause() {
    let mut hosts = stations(3);
    for (sender, priority) in [(1, 0), (2, 1)] {
        hosts[sender as usize] = Station::streaming(Frame { priority, ..Frame::new(sender, 0, 1000) }, 1000);
    }
    hosts[1].stream = Some((Frame { priority: 0, ..Frame::new(1, 0, 1000) }, 1000));
    let config = FabricConfig { priorities: 2, pfc: pfc(Priorities(0b01)), ..FabricConfig::default() };
    let mut net = network(star(3), config, hosts);
    net.run_to_rest().expect("lossless means lossless");
    let of = |priority| net.host(HostId(0)).received.iter().filter(|r| r.1.priority == priority).count();
    assert_eq!((of(0), of(1)), (1000, 1000));
    assert_eq!(net.counters(PortId(2)).pause_frames_received, 0);
    assert!(net.counters(PortId(1)).pause_frames_received > 0);
}

#[test]
fn a_pause_frame_waits_for_its_wire() {
    // Sender and receiver of one long packet each way: the frame leaves behind the packet under way.
    let mut net = converge(2, 2000, FabricConfig { pfc: pfc(Priorities::ALL), ..FabricConfig::default() });
    net.run_to_rest().expect("lossless means lossless");
    let frames = net.totals().pause_frames;
    assert_eq!(frames, net.totals().pause_frames_received);
    // Each XOFF is followed by an XON, each a frame of 64 bytes that counts as traffic.
    assert_eq!(frames, 2 * net.totals().xoffs);
    let to_senders =
        net.counters(net.switch_port(0, 1)).sent.bytes + net.counters(net.switch_port(0, 2)).sent.bytes;
    assert_eq!(to_senders, frames * 64);
}

#[test]
fn too_little_headroom_fails_loudly() {
    // The headroom is for small packets, but the hosts send jumbo frames.
    let pfc = Pfc::for_input(100_000, Rate::from_gbps(40), Span::from_us(2), 64).expect("it fits");
    let buffering = Buffering::InputQueued { input_bytes: 100_000 };
    let mut hosts = stations(9);
    for sender in 1..9 {
        hosts[sender as usize] = Station::streaming(Frame::new(sender, 0, 9000), 100);
    }
    let mut net = network(
        star(9),
        FabricConfig { pfc: Some(pfc), buffering, seed: 77, ..FabricConfig::default() },
        hosts,
    );
    let violation = net.run_to_rest().expect_err("it must be noticed");
    assert!(
        matches!(violation.kind, ViolationKind::LosslessDrop { priority: 0, bytes: 9000, .. }),
        "{violation}"
    );
    assert_eq!(violation.seed, 77);
    assert!(violation.to_string().contains("switch s0 port"), "{violation}");
    assert_eq!(net.run_to_rest(), Err(violation));
}

#[test]
fn impossible_configurations_say_why() {
    let build = |config| Fabric::<Frame, Station>::new(star(2), config, stations(2)).map(|_| ());
    let config = FabricConfig::default;
    let mut short = pfc(Priorities::ALL);
    short.iter_mut().for_each(|p| p.headroom_bytes = 20_000);
    let error = build(FabricConfig { pfc: short, ..config() }).expect_err("20 KB are only the wire");
    assert!(matches!(error, BuildError::Headroom { needed_bytes: 20_257, .. }), "{error:?}");
    let small = Buffering::InputQueued { input_bytes: 50_000 };
    let error = build(FabricConfig { pfc: pfc(Priorities::ALL), buffering: small, ..config() })
        .expect_err("too small");
    assert!(error.to_string().contains("the buffer of s0 has 50000 bytes"), "{error}");
    assert_eq!(build(FabricConfig { priorities: 9, ..config() }), Err(BuildError::Priorities(9)));
    let error = Fabric::<Frame, Station>::new(star(3), config(), stations(2)).map(|_| ());
    assert_eq!(error, Err(BuildError::HostCount { places: 3, hosts: 2 }));
}

#[test]
fn a_ring_under_pfc_can_deadlock_and_says_so() {
    // Every host sends three switches on, so that each link's buffer waits for room in the next one's.
    let mut ring = String::from("default 40Gbps 1us\nhost a b c d e f g\nswitch A B C D E F G\n");
    for (host, next) in
        ["a", "b", "c", "d", "e", "f", "g"].into_iter().zip(["B", "C", "D", "E", "F", "G", "A"])
    {
        ring += &format!("link {host} {0}\nlink {0} {next}\n", host.to_uppercase());
    }
    let mut hosts = stations(7);
    for host in 0..7 {
        hosts[host as usize] = Station::streaming(Frame::new(host, (host + 3) % 7, 1000), 3000);
    }
    let config = FabricConfig { pfc: pfc(Priorities::ALL), ..FabricConfig::default() };
    let mut net = network(Topology::parse(&ring).expect("a ring"), config, hosts);
    let violation = net.run_to_rest().expect_err("each waits for the next");
    assert!(matches!(violation.kind, ViolationKind::Deadlock { packets } if packets > 100), "{violation}");
}

#[test]
fn a_step_marks_exactly_what_joins_a_longer_queue() {
    let ecn = Some(Ecn::step(10_000));
    let mut net = converge(2, 30, FabricConfig { ecn, ..FabricConfig::default() });
    net.run_to_rest().expect("no invariant breaks");
    // Each 200 ns two packets come and one leaves: after n turns about n wait, and from 11 on every one is marked.
    let received = &net.host(HostId(0)).received;
    let marked = received.iter().filter(|r| r.1.is_marked).count();
    assert_eq!(net.totals().marked, marked as u64);
    assert!((36..=40).contains(&marked), "{marked}");
    let leaving = Some(Ecn { when: MarkWhen::Leaving, ..Ecn::step(10_000) });
    let mut net = converge(2, 30, FabricConfig { ecn: leaving, ..FabricConfig::default() });
    net.run_to_rest().expect("no invariant breaks");
    // Judged when leaving, the last to wait are not marked, but those already queued when the step was crossed are.
    let marks: Vec<bool> = net.host(HostId(0)).received.iter().map(|r| r.1.is_marked).collect();
    assert!(!marks[5] && marks[20] && marks[45] && !marks[55]);
}

#[test]
fn each_port_has_thresholds_in_proportion_to_its_rate() {
    // Two senders at 100 Gb/s fill the queue for a host at 10 Gb/s, and that for one at 100 Gb/s.
    let text = "host slow fast a b\nswitch s\nlink slow s 10Gbps 1us\nlink fast s 100Gbps 1us\n\
                link a s 100Gbps 1us\nlink b s 100Gbps 1us\n";
    let first_marked = |to: u32, ecn: Ecn| {
        let mut hosts = stations(4);
        for sender in [2, 3] {
            hosts[sender as usize] = Station::streaming(Frame::new(sender, to, 1000), 60);
        }
        let config = FabricConfig { ecn: Some(ecn), ..FabricConfig::default() };
        let mut net = network(Topology::parse(text).expect("it is right"), config, hosts);
        net.run_to_rest().expect("no invariant breaks");
        let received = &net.host(HostId(to)).received;
        received.iter().position(|r| r.1.is_marked).expect("some are marked")
    };
    let scaling = Ecn { per: Some(Rate::from_gbps(100)), ..Ecn::step(40_000) };
    let (slow, fast) = (first_marked(0, scaling), first_marked(1, scaling));
    // At the slow port 4 packets wait before one is marked, at the fast one 40.
    assert!((4..=8).contains(&slow), "{slow}");
    assert!((75..=85).contains(&fast), "{fast}");
    // Thresholds without a rate hold everywhere.
    assert!((41..=50).contains(&first_marked(0, Ecn::step(40_000))));
}

#[test]
fn red_marks_by_the_length_of_the_queue() {
    // A standing queue of about 100 KB between 0 and 200 KB: about half of the maximal probability.
    let ecn = Some(Ecn::red(0, 200_000, 0.4));
    let buffering = Buffering::InputQueued { input_bytes: 50_000 };
    let mut net = converge(2, 40_000, FabricConfig { ecn, buffering, ..FabricConfig::default() });
    net.run_to_rest().expect("no invariant breaks");
    let received = &net.host(HostId(0)).received;
    let share = net.totals().marked as f64 / received.len() as f64;
    assert!((share - 0.2).abs() < 0.01, "{share}");
}

#[test]
fn trimming_keeps_every_header() {
    let trimming = Trimming { data_bytes_max: 8_000, header_bytes_max: 8_000, header_priority: 1 };
    let config = FabricConfig { priorities: 2, trimming: Some(trimming), ..FabricConfig::default() };
    let mut net = converge(20, 6, config);
    net.run_to_rest().expect("no invariant breaks");
    let received = &net.host(HostId(0)).received;
    let trimmed = received.iter().filter(|r| r.1.is_trimmed).count();
    assert_eq!((received.len(), net.totals().dropped.packets), (120, 0));
    assert_eq!(net.totals().trimmed.packets, trimmed as u64);
    assert_eq!(net.totals().trimmed.bytes, trimmed as u64 * (1000 - 64));
    assert!((90..112).contains(&trimmed), "{trimmed}");
    // Headers overtake data: the first trimmed packet arrives while the data queue is full.
    let first = received.iter().position(|r| r.1.is_trimmed).expect("some were trimmed");
    assert!(first <= 3, "{first}");
    let all: Vec<u32> = (1..=20).flat_map(|s| [s; 6]).collect();
    let mut sources: Vec<u32> = received.iter().map(|r| r.1.source).collect();
    sources.sort_unstable();
    assert_eq!(sources, all);
}

#[test]
fn headers_are_dropped_only_when_their_own_queue_is_full() {
    let trimming = Trimming { data_bytes_max: 8_000, header_bytes_max: 640, header_priority: 1 };
    let config = FabricConfig { priorities: 2, trimming: Some(trimming), ..FabricConfig::default() };
    let mut net = converge(40, 6, config);
    net.run_to_rest().expect("no invariant breaks");
    let totals = net.totals();
    assert!(totals.dropped.packets > 0);
    assert_eq!(totals.dropped.bytes, totals.dropped.packets * 64);
    assert_eq!(net.host(HostId(0)).received.len() as u64 + totals.dropped.packets, 240);
}

#[test]
fn a_host_that_breaks_the_rules_is_named() {
    let mut hosts = stations(2);
    hosts[1] = Station::streaming(Frame::new(1, 7, 1000), 1);
    let mut net = network(star(2), FabricConfig::default(), hosts);
    let violation = net.run_to_rest().expect_err("there is no host 7");
    assert_eq!(violation.place, "host h1");
    assert!(violation.to_string().contains("to host 7, which does not exist"), "{violation}");
}
