//! Networks whose links differ: rates and times follow from the links themselves, whatever the order in which nodes and links
//! are named, and no flow is faster than its ideal.

mod common;

use std::fmt::Write;

use common::{graph_plan, nothing};
use highwire_fabric::{Balancing, HostId, Rate, Span, Time, Topology};
use highwire_sim::plan::{Plan, Scale};
use highwire_sim::scenario::{
    Cap, CongestionChoice, GoBackN, Irn, PfcChoice, QueuePairs, Scenario, Shape, Tcp, Transport,
};
use highwire_sim::{Flow, run};
use highwire_stdx::Rng;

/// A random network: its hosts, its switches, and its links with rates and delays.
struct Graph {
    hosts: Vec<String>,
    switches: Vec<String>,
    links: Vec<String>,
}

impl Graph {
    /// A tree of switches, with more links between them unless it is to stay a tree.
    fn random(rng: &mut Rng, is_tree: bool) -> Graph {
        let count = rng.between(1, 6);
        let switches: Vec<String> = (0..count).map(|s| format!("s{s}")).collect();
        let hosts: Vec<String> = (0..rng.between(2, 6)).map(|h| format!("h{h}")).collect();
        let mut links = Vec::new();
        let mut link = |rng: &mut Rng, a: &str, b: &str| {
            let rate = *rng.pick(&["10Gbps", "25Gbps", "40Gbps", "100Gbps"]);
            let delay = *rng.pick(&["500ns", "1us", "2us", "5us"]);
            links.push(format!("link {a} {b} {rate} {delay}"));
        };
        for s in 1..count {
            let before = rng.below(s) as usize;
            link(rng, &switches[before], &switches[s as usize]);
        }
        for _ in 0..if is_tree || count < 2 { 0 } else { rng.between(1, 6) } {
            let (a, b) = (rng.below(count), rng.below(count));
            if a != b {
                link(rng, &switches[a as usize], &switches[b as usize]);
            }
        }
        for host in &hosts {
            let at = rng.below(count) as usize;
            link(rng, host, &switches[at]);
        }
        Graph { hosts, switches, links }
    }

    /// Its text, with everything that has no order in a random one.
    fn text(&self, rng: &mut Rng) -> String {
        let mut shuffled = |items: &[String]| {
            let mut items = items.to_vec();
            for last in (1..items.len()).rev() {
                items.swap(last, rng.below(last as u64 + 1) as usize);
            }
            items
        };
        let (hosts, switches) = (shuffled(&self.hosts).join(" "), shuffled(&self.switches).join(" "));
        let mut text = format!("host {hosts}\nswitch {switches}\n");
        for link in shuffled(&self.links) {
            let _ = writeln!(text, "{link}");
        }
        text
    }
}

fn on(text: &str) -> Scenario {
    let mut scenario = Scenario::default();
    scenario.network.shape = Shape::Graph(text.into());
    scenario
}

fn host(text: &str, name: &str) -> HostId {
    Topology::parse(text).expect("it is right").host_named(name).expect(name)
}

/// A lone flow between two hosts, by name.
fn lone(text: &str, from: &str, to: &str, bytes: u64, seed: u64) -> Scenario {
    let mut scenario = on(text);
    scenario.seed = seed;
    scenario.flows = vec![Flow::new(host(text, from).0, host(text, to).0, bytes, Time::ZERO)];
    scenario.scheme.transport = Transport::Irn(Irn { cap: Cap::Packets(4096), ..Irn::default() });
    scenario
}

#[test]
fn the_order_of_names_changes_nothing() {
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let is_tree = rng.chance(0.5);
        let graph = Graph::random(&mut rng, is_tree);
        let (one, other) = (graph.text(&mut rng), graph.text(&mut rng));
        let product = |text: &str| on(text).network.bandwidth_delay_product().expect("it is right");
        assert_eq!(product(&one), product(&other), "seed {seed}\n{one}\n{other}");
        // What plans compute: timeouts, thresholds, caps.
        let scheme = |text: &str| {
            let plan = graph_plan(
                text,
                "transport = { protocol = \"irn\", congestion = \"dcqcn\" }\nnetwork = { pfc = true, buffer = \"2MB\" }",
            );
            let scenario = plan.runs()[0].scenario(&plan).expect("it is right");
            (scenario.scheme, scenario.network.ecn, scenario.network.pfc)
        };
        assert_eq!(scheme(&one), scheme(&other), "seed {seed}\n{one}\n{other}");
        for from in &graph.hosts {
            for to in graph.hosts.iter().filter(|to| *to != from) {
                let bytes = *rng.pick(&[1, 1024, 1500, 40_000]);
                let flow = |text: &str| {
                    let outcome = run(&lone(text, from, to, bytes, seed), &mut ()).expect("it runs");
                    (outcome.flows[0].ideal, outcome.flows[0].fct(), outcome.totals.retransmitted)
                };
                let (first, second) = (flow(&one), flow(&other));
                assert_eq!(first.0, second.0, "seed {seed}, {from} to {to}\n{one}\n{other}");
                assert_eq!((first.2, second.2), (0, 0), "seed {seed}: nothing was lost");
                if is_tree {
                    assert_eq!(first, second, "seed {seed}, {from} to {to}\n{one}");
                    assert_eq!(first.1, Some(first.0), "on its only way a lone flow takes its ideal time");
                }
            }
        }
    }
}

#[test]
fn a_lone_flow_takes_its_ideal_time_on_the_best_way_and_longer_on_others() {
    let mut with_choice = 0;
    for seed in 0..40 {
        let mut rng = Rng::new(1000 + seed);
        let graph = Graph::random(&mut rng, false);
        let text = graph.text(&mut rng);
        let (from, to) = (&graph.hosts[0], &graph.hosts[1]);
        // Each run's switches have other hashes, so all ways are found sooner or later.
        let fcts: Vec<(Span, Span)> = (0..40)
            .map(|hashes| {
                let outcome = run(&lone(&text, from, to, 30_000, hashes), &mut ()).expect("it runs");
                (outcome.flows[0].fct().expect("it is over"), outcome.flows[0].ideal)
            })
            .collect();
        let ideal = fcts[0].1;
        assert!(fcts.iter().all(|fct| fct.1 == ideal));
        let (least, most) = (fcts.iter().map(|f| f.0).min(), fcts.iter().map(|f| f.0).max());
        assert_eq!(least, Some(ideal), "seed {seed}\n{text}");
        with_choice += u32::from(least != most);
    }
    assert!(with_choice > 5, "{with_choice} of the networks have ways that differ");
}

#[test]
fn no_flow_is_faster_than_its_ideal() {
    for seed in 0..60 {
        let mut rng = Rng::new(2000 + seed);
        let graph = Graph::random(&mut rng, false);
        let mut scenario = on(&graph.text(&mut rng));
        scenario.seed = seed;
        if rng.chance(0.5) {
            scenario.network.balancing = Balancing::Spray;
        }
        scenario.scheme.headers.is_encoded = rng.chance(0.3);
        if rng.chance(0.3) {
            scenario.scheme.queue_pairs = QueuePairs::PerPair;
        }
        scenario.scheme.transport = match rng.below(3) {
            0 => Transport::Irn(Irn { cap: Cap::Unlimited, ..Irn::default() }),
            1 => Transport::GoBackN(GoBackN { window_packets: Some(300), ..GoBackN::without_pfc() }),
            _ => Transport::Tcp(Tcp { initial_window: 200, ..Tcp::default() }),
        };
        let hosts = graph.hosts.len() as u64;
        scenario.flows = (0..rng.between(1, 12))
            .map(|_| {
                let source = rng.below(hosts) as u32;
                let other = rng.below(hosts - 1) as u32;
                let bytes = *rng.pick(&[1, 700, 1025, 20_000, 200_000, 500_000]);
                let start = Time::from_us(rng.below(400));
                Flow::new(source, other + u32::from(other >= source), bytes, start)
            })
            .collect();
        let outcome = run(&scenario, &mut ()).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        for flow in &outcome.flows {
            assert!(flow.slowdown().is_some_and(|times| times >= 1.0), "seed {seed}: {flow:?}");
        }
    }
}

/// Two ways of equal length, one of them ten times as fast.
#[test]
fn the_faster_of_two_ways_is_the_ideal_one() {
    let text = "default 100Gbps 1us\nhost a b\nswitch s t f1 f2\nlink a s\nlink b t\n\
                link s f1 10Gbps\nlink f1 t 10Gbps\nlink s f2\nlink f2 t\n";
    let mut seen = Vec::new();
    for seed in 0..12 {
        let outcome = run(&lone(text, "a", "b", 10_000_000, seed), &mut ()).expect("it runs");
        let slowdown = outcome.flows[0].slowdown().expect("it is over");
        assert!(slowdown >= 1.0, "{slowdown}");
        seen.push(slowdown);
    }
    assert!(seen.contains(&1.0), "{seen:?}");
    assert!(seen.iter().any(|&slowdown| slowdown > 9.0), "{seen:?}");
}

/// Four uplinks of 10 Gb/s carry what one host of 40 Gb/s sends, if packets are spread over them.
#[test]
fn spraying_over_slow_trunks_is_measured_by_all_of_them_together() {
    let mut scenario = Scenario::default();
    scenario.network.shape =
        Shape::LeafSpine { leaves: 2, spines: 4, hosts_per_leaf: 2, uplink_rate: Some(Rate::from_gbps(10)) };
    scenario.network.balancing = Balancing::Spray;
    scenario.scheme.transport = Transport::Irn(Irn { cap: Cap::Packets(4096), ..Irn::default() });
    scenario.flows = vec![Flow::new(0, 3, 2_000_000, Time::ZERO)];
    let slowdown = |scenario: &Scenario| {
        run(scenario, &mut ()).expect("it runs").flows[0].slowdown().expect("it is over")
    };
    let together = slowdown(&scenario);
    assert!((1.0..2.0).contains(&together), "{together}");
    // With half of the spines, 40 Gb/s do not fit: the ideal is that of 20 Gb/s.
    scenario.network.shape =
        Shape::LeafSpine { leaves: 2, spines: 2, hosts_per_leaf: 2, uplink_rate: Some(Rate::from_gbps(10)) };
    let half = run(&scenario, &mut ()).expect("it runs");
    let ideal = half.flows[0].ideal.as_secs_f64();
    let wire_bits = 2_000_000.0 * 8.0 * 1086.0 / 1024.0;
    assert!((ideal / (wire_bits / 20e9) - 1.0).abs() < 0.03, "{ideal}");
    assert!(half.flows[0].slowdown().is_some_and(|times| (1.0..2.0).contains(&times)));
}

#[test]
fn a_lone_flow_is_paced_by_its_own_link() {
    let text = "host a b c\nswitch s\nlink a s 100Gbps 1us\nlink b s 100Gbps 1us\nlink c s 10Gbps 1us\n";
    for congestion in [CongestionChoice::DCQCN, CongestionChoice::DCQCN_CONNECTX, CongestionChoice::TIMELY] {
        for (from, to, rate) in [("a", "b", 100), ("c", "a", 10), ("a", "c", 10)] {
            let mut scenario = lone(text, from, to, 3_000_000, 1);
            scenario.scheme.transport = Transport::GoBackN(GoBackN::default());
            scenario.network.pfc = PfcChoice::Computed;
            scenario.scheme.congestion = congestion;
            let outcome = run(&scenario, &mut ()).expect("it runs");
            let slowdown = outcome.flows[0].slowdown().expect("it is over");
            let is_paced = from == "c" || to == "b";
            assert!(
                !is_paced || slowdown < 1.02,
                "{congestion:?} from {from} to {to} at {rate} Gb/s: slowdown {slowdown}"
            );
        }
    }
}

#[test]
fn the_load_is_a_share_of_each_hosts_own_link() {
    let text = "host a b c d\nswitch s\nlink a s 100Gbps 1us\nlink b s 100Gbps 1us\nlink c s 25Gbps 1us\nlink d s 25Gbps 1us\n";
    let plan = graph_plan(text, "workload = { load = 0.5, duration = \"20ms\" }");
    let scenario = plan.runs()[0].scenario(&plan).expect("it is right");
    let sent = |name: &str| {
        let source = host(text, name);
        let flows = scenario.flows.iter().filter(|flow| flow.source == source);
        flows.map(|flow| flow.bytes + 62 * flow.bytes.div_ceil(1024)).sum::<u64>() as f64
    };
    for (names, gbps) in [(["a", "b"], 100.0), (["c", "d"], 25.0)] {
        let share = (sent(names[0]) + sent(names[1])) * 8.0 / (2.0 * gbps * 1e9 * 0.02);
        assert!((share / 0.5 - 1.0).abs() < 0.25, "{names:?}: {share}");
    }
}

#[test]
fn marking_thresholds_and_timeouts_follow_from_the_links() {
    let scheme = "transport = { protocol = \"irn\", congestion = \"dcqcn\" }";
    let read = |rate: &str| {
        let text = format!("default {rate} 2us\nhost a b\nswitch s\nlink a s\nlink b s\n");
        let plan = graph_plan(&text, scheme);
        plan.runs()[0].scenario(&plan).expect("it is right")
    };
    let at = |rate: &str, gbps| read(rate).network.ecn.expect("DCQCN wants marks").at(Rate::from_gbps(gbps));
    assert_eq!((at("100Gbps", 100).min_bytes, at("100Gbps", 100).max_bytes), (12_500, 500_000));
    assert_eq!((at("100Gbps", 40).min_bytes, at("100Gbps", 40).max_bytes), (5_000, 200_000));
    let rto_high = |rate: &str| match read(rate).scheme.transport {
        Transport::Irn(irn) => irn.rto_high,
        other => panic!("{other:?}"),
    };
    // 8 us there and back, and two inputs of 240 KB that drain into one output.
    assert_eq!(rto_high("40Gbps"), Span::from_us(120));
    assert_eq!(rto_high("100Gbps"), Span::from_us(60));
    assert_eq!(rto_high("10Gbps"), Span::from_us(400));
    // The same network as a shape and as a graph.
    let star = "figure = \"f\"\ntitle = \"t\"\nclaim = \"c\"\nnetwork = { shape = \"star\", hosts = 2, rate = \"100Gbps\" }\n[[scheme]]\nname = \"s\"\n";
    let plan = Plan::read("p.toml", &format!("{star}{scheme}"), Scale::Small, &nothing).expect("it is right");
    let shaped = plan.runs()[0].scenario(&plan).expect("it is right");
    assert_eq!((shaped.scheme, shaped.network.ecn), (read("100Gbps").scheme, read("100Gbps").network.ecn));
}
