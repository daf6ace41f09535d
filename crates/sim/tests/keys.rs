//! What a plan says about failing links, trimming, cut-through, traces, trees and slow repetitions reaches the network, and every
//! invariant holds there.

mod common;

use common::nothing;
use highwire_fabric::{Balancing, Forwarding, Rate, Span, Time};
use highwire_sim::plan::{Plan, Scale};
use highwire_sim::scenario::{Cap, GoBackN, Irn, Shape, Transport};
use highwire_sim::{Flow, FlowId, Outcome, Scenario, run, run_on};
use highwire_stdx::Rng;

/// The plan of one scheme with these keys; files are given by name.
fn read(network: &str, transport: &str, workload: &str, rest: &str, files: &[(&str, &str)]) -> Plan {
    let text = format!(
        "figure = \"f\"\ntitle = \"t\"\nclaim = \"c\"\nseeds = 1\nnetwork = {{ {network} }}\ntransport = {{ {transport} }}\n\
         workload = {{ {workload} }}\n[[scheme]]\nname = \"s\"\n{rest}"
    );
    let load = |name: &str| match files.iter().find(|(file, _)| *file == name) {
        Some((_, text)) => Ok((*text).to_owned()),
        None => nothing(name),
    };
    Plan::read("p.toml", &text, Scale::Small, &load).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn errors(plan: &Plan) -> Vec<String> {
    let show = |f: &highwire_sim::plan::Finding| {
        let kind = if f.is_error { "error" } else { "warning" };
        format!("{kind}: {} {}: {}", f.about.line, f.about.key, f.about.problem)
    };
    plan.review().iter().map(show).collect()
}

fn play(plan: &Plan) -> Outcome {
    assert_eq!(errors(plan), Vec::<String>::new());
    let scenario = plan.runs()[0].scenario(plan).expect("it is right");
    let outcome = run(&scenario, &mut ()).unwrap_or_else(|error| panic!("{error}"));
    assert!(outcome.flows.iter().all(|flow| flow.received.is_some() && flow.acknowledged.is_some()));
    outcome
}

const INCAST: &str = "pattern = \"incast\", senders = 8, bytes = \"4MB\"";
const STAR: &str = "shape = \"star\", hosts = 9";

/// With trimming nobody waits for a timeout: each packet that lost its payload is named, and leaves once more. A header is lost only
/// where its own queue is full, which it is not here.
#[test]
fn a_trimmed_packet_costs_one_repetition_and_no_timeout() {
    for transport in ["cap = \"unlimited\"", "cap = \"bdp\""] {
        let network = format!("{STAR}, trimming = true, trim_above = \"50KB\", trim_headers = \"100KB\"");
        let totals = play(&read(&network, transport, INCAST, "", &[])).totals;
        assert!(totals.trimmed_packets > 100, "{totals:?}");
        assert_eq!((totals.dropped_packets, totals.timeouts), (0, 0), "{totals:?}");
        assert_eq!(totals.retransmitted, totals.trimmed_packets, "{totals:?}");
        let without = play(&read(STAR, transport, INCAST, "", &[])).totals;
        assert_eq!(without.trimmed_packets, 0);
    }
}

/// Also where headers are dropped, where go-back-N takes a header for a gap, and where flows mix.
#[test]
fn trimming_keeps_every_invariant_under_every_recovery() {
    let poisson = "duration = \"200us\", load = 0.9, time_limit = \"2s\"";
    let mut trimmed = 0;
    for transport in [
        "protocol = \"irn\"",
        "protocol = \"irn\", loss_recovery = \"no-sack\"",
        "protocol = \"irn\", loss_recovery = \"go-back-n\"",
        "protocol = \"irn\", entropy = \"per-packet\", reordering = 20",
        "protocol = \"irn\", congestion = \"aimd\"",
        "protocol = \"roce\", window = 111",
        "protocol = \"roce\", congestion = \"dcqcn\"",
    ] {
        for network in [
            "shape = \"leaf-spine\", trimming = true",
            "shape = \"leaf-spine\", trimming = true, trim_above = \"20KB\", trim_headers = \"132B\"",
            "shape = \"leaf-spine\", trimming = true, trim_above = \"20KB\", switches = \"output-queued\", buffer = \"1MB\"",
        ] {
            for workload in [poisson, "pattern = \"incast\", senders = 15, bytes = \"3MB\""] {
                let totals = play(&read(network, transport, workload, "", &[])).totals;
                trimmed += totals.trimmed_packets;
            }
        }
    }
    assert!(trimmed > 1_000, "{trimmed}");
}

#[test]
fn trimming_that_cannot_be_is_refused() {
    let found = |network: &str, transport: &str| errors(&read(network, transport, INCAST, "", &[]));
    let trimming = format!("{STAR}, trimming = true");
    let first = |found: Vec<String>| found.first().cloned().unwrap_or_default();
    let pfc = first(found(&format!("{trimming}, pfc = true"), ""));
    assert!(pfc.starts_with("error: 5 network.trimming: PFC drops nothing"), "{pfc}");
    let tcp = first(found(&trimming, "protocol = \"iwarp\""));
    assert!(tcp.starts_with("error: 5 network.trimming: iWARP's TCP has no use"), "{tcp}");
    let room = first(found(&format!("{trimming}, trim_headers = \"240KB\""), ""));
    assert!(room.starts_with("error: 5 network.trim_headers: a buffer of 240000 bytes"), "{room}");
    let unused = first(found(&format!("{STAR}, trim_above = \"1KB\""), ""));
    assert!(unused.starts_with("warning: 5 network.trim_above: nothing uses it here"), "{unused}");
}

/// A flow by itself takes exactly its ideal time where switches cut through, too: over links of one kind and of different ones.
#[test]
fn a_lone_flow_is_as_fast_as_its_ideal_where_switches_cut_through() {
    let shapes = [
        Shape::FatTree { k: 4 },
        Shape::Star { hosts: 16 },
        Shape::Dumbbell { left: 8, right: 8, trunk_rate: Some(Rate::from_gbps(10)) },
        Shape::Dumbbell { left: 8, right: 8, trunk_rate: Some(Rate::from_gbps(100)) },
        Shape::Graph("default 40Gbps 2us\nhost a b c d\nswitch s t\nlink a s 10Gbps\nlink b s\nlink c t 25Gbps\nlink d t\nlink s t 100Gbps\n".into()),
    ];
    for shape in shapes {
        for header_bytes in [0, 64, 700, 9_000] {
            for bytes in [1, 1024, 1500, 2049, 300_000] {
                for (from, to) in [(0, 3), (1, 2), (2, 0), (3, 1)] {
                    let mut scenario = Scenario::default();
                    scenario.network.shape = shape.clone();
                    scenario.network.forwarding = Forwarding::CutThrough { header_bytes };
                    scenario.scheme.transport = Transport::Irn(Irn { cap: Cap::Unlimited, ..Irn::default() });
                    scenario.flows = vec![Flow::new(from, to, bytes, Time::ZERO)];
                    let outcome =
                        run(&scenario, &mut ()).unwrap_or_else(|error| panic!("{shape:?}: {error}"));
                    let flow = &outcome.flows[0];
                    assert_eq!(
                        flow.fct(),
                        Some(flow.ideal),
                        "{bytes} bytes from {from} to {to}, {header_bytes} bytes of header, {shape:?}"
                    );
                }
            }
        }
    }
}

fn mixed(seed: u64, hosts: u32, count: u32) -> Vec<Flow> {
    let mut rng = Rng::new(seed);
    let mut flow = || {
        let source = rng.below(u64::from(hosts)) as u32;
        let other = rng.below(u64::from(hosts) - 1) as u32;
        let start = Time::from_ns(rng.below(100_000));
        Flow::new(source, other + u32::from(other >= source), rng.between(32, 150_000), start)
    };
    (0..count).map(|_| flow()).collect()
}

/// Random flows, spread or not, over uplinks that are slower, as fast or faster: none is faster than its ideal (the run checks it), and
/// nothing is lost or made. One thread or two: the same.
#[test]
fn no_flow_outruns_its_ideal_where_switches_cut_through() {
    for seed in 0..6 {
        for uplink in [None, Some(Rate::from_gbps(10)), Some(Rate::from_gbps(100))] {
            for balancing in [Balancing::Ecmp, Balancing::Spray] {
                let mut scenario = Scenario { seed, flows: mixed(seed, 8, 40), ..Scenario::default() };
                scenario.network.shape =
                    Shape::LeafSpine { leaves: 2, spines: 3, hosts_per_leaf: 4, uplink_rate: uplink };
                scenario.network.forwarding = Forwarding::CutThrough { header_bytes: 64 };
                scenario.network.balancing = balancing;
                if seed % 2 == 1 {
                    scenario.scheme.transport = Transport::GoBackN(GoBackN::without_pfc());
                }
                let outcome = run(&scenario, &mut ())
                    .unwrap_or_else(|error| panic!("{seed} {uplink:?} {balancing:?}: {error}"));
                assert!(outcome.flows.iter().all(|flow| flow.fct().expect("over") >= flow.ideal));
                assert_eq!(outcome, run_on(&scenario, 2, &mut ()).expect("no invariant breaks"));
            }
        }
    }
}

#[test]
fn the_keys_of_cut_through_reach_the_network() {
    let network = format!("{STAR}, switching = \"cut-through\", cut_through_bytes = \"100B\"");
    let plan = read(&network, "", INCAST, "", &[]);
    let scenario = plan.runs()[0].scenario(&plan).expect("right");
    assert_eq!(scenario.network.forwarding, Forwarding::CutThrough { header_bytes: 100 });
    let found = errors(&read(
        &format!("{STAR}, switching = \"cut-through\", cut_through_bytes = \"5B\""),
        "",
        INCAST,
        "",
        &[],
    ));
    assert!(
        found[0].starts_with("error: 5 network.cut_through_bytes: 5 bytes: it lies between 14"),
        "{found:?}"
    );
    assert!(play(&plan).groups[0].rct() < play(&read(STAR, "", INCAST, "", &[])).groups[0].rct());
}

const LEAF_SPINE: &str = "shape = \"leaf-spine\", leaves = 2, spines = 2, hosts_per_leaf = 4";
const PERMUTATION: &str = "pattern = \"permutation\", bytes = \"2MB\"";

#[test]
fn a_link_that_fails_loses_packets_until_it_is_back_or_the_switches_avoid_it() {
    let failing =
        |until: &str| format!("[[link_failures]]\nfrom = \"leaf0\"\nto = \"spine1\"\nat = \"50us\"\n{until}");
    let calm = play(&read(LEAF_SPINE, "", PERMUTATION, "", &[]));
    assert_eq!(calm.totals.lost_packets, 0);
    let back = play(&read(LEAF_SPINE, "", PERMUTATION, &failing("until = \"300us\""), &[]));
    assert!(back.totals.lost_packets > 0 && back.totals.retransmitted > 0, "{:?}", back.totals);
    assert!(back.totals.end > calm.totals.end);
    for rerouting in ["local", "global"] {
        let network = format!("{LEAF_SPINE}, rerouting = \"{rerouting}\"");
        // Ways towards the leaf are changed at the far leaf by global rerouting only, so local rerouting needs the link again.
        let until = if rerouting == "local" { "until = \"300us\"" } else { "" };
        let around = play(&read(&network, "", PERMUTATION, &failing(until), &[]));
        assert!(around.totals.lost_packets > 0, "what was on the wire: {:?}", around.totals);
    }
}

#[test]
fn failures_of_links_that_are_not_there_are_refused_with_their_line() {
    let found = |network: &str, entry: &str| {
        errors(&read(network, "", PERMUTATION, &format!("[[link_failures]]\n{entry}"), &[]))
    };
    let star = "shape = \"star\", hosts = 4";
    let check = |entry: &str, expected: &str| {
        let found = found(star, entry);
        assert!(found.first().is_some_and(|line| line.starts_with(expected)), "{entry}: {found:?}");
    };
    check(
        "from = \"h9\"\nto = \"s0\"\nat = \"1us\"",
        "error: 11 link_failures: no host or switch is called `h9`; is it `h0`?",
    );
    check("from = \"h1\"\nto = \"h2\"\nat = \"1us\"", "error: 11 link_failures: no link joins `h1` and `h2`");
    check("from = \"h1\"\nto = \"s0\"\nat = \"1us\"", "warning: 11 link_failures: `h1` has no other link");
    check(
        "from = \"h1\"\nto = \"s0\"\nat = \"1us\"\nuntil = \"9us\"\n[[link_failures]]\nfrom = \"s0\"\nto = \"h1\"\nat = \"5us\"",
        "error: 16 link_failures: the link is down already",
    );
    let unused = errors(&read(&format!("{star}, rerouting = \"local\""), "", PERMUTATION, "", &[]));
    assert!(
        unused[0].starts_with("warning: 5 network.rerouting: nothing uses it here: no link fails"),
        "{unused:?}"
    );
    let refused = |entry: &str, expected: &str| {
        let text = format!(
            "figure = \"f\"\ntitle = \"t\"\nclaim = \"c\"\n[[scheme]]\nname = \"s\"\n[[link_failures]]\n{entry}"
        );
        let error = Plan::read("p.toml", &text, Scale::Small, &nothing).expect_err(entry).to_string();
        assert_eq!(error.lines().next(), Some(expected));
    };
    refused("from = \"a\"\nto = \"b\"", "p.toml:6:1: `at`: is missing: add `at = \"1ms\"` here");
    refused("from = \"a\"\nto = \"b\"\nat = 3", "p.toml:9:6: `at`: expected text in quotation marks");
    refused("from = \"a\"\nto = \"b\"\nat = \"3\"", "p.toml:9:6: `at`: expected a time, like \"50us\"");
    refused(
        "from = \"a\"\nto = \"b\"\nat = \"3us\"\nuntil = \"3us\"",
        "p.toml:10:9: `until`: it comes after `at`",
    );
    refused("from = \"a\"\nat = \"3us\"", "p.toml:6:1: `to`: is missing: add `to = \"…\"` here");
    refused(
        "from = \"a\"\nto = \"b\"\nat = \"3us\"\nunitl = \"4us\"",
        "p.toml:10:1: `unitl`: there is no such key; is it `until`?",
    );
}

#[test]
fn a_trace_is_played_flow_by_flow() {
    let csv =
        "start,source,destination,size,after\n0,h0,h1,100000,\n5us,1,2,50000,0\n0,2,3,1000,1\n1ms,3,0,7,\n";
    let keys = "pattern = \"trace\", trace = \"t.csv\"";
    let plan = read("shape = \"star\", hosts = 4", "", keys, "", &[("t.csv", csv)]);
    let scenario = plan.runs()[0].scenario(&plan).expect("right");
    assert_eq!(scenario.flows[2].after, [FlowId(1)]);
    let outcome = play(&plan);
    let at = |flow: usize| &outcome.flows[flow];
    assert_eq!(outcome.flows.iter().map(|f| f.bytes).collect::<Vec<_>>(), [100_000, 50_000, 1_000, 7]);
    assert!(at(1).start >= at(0).received, "flow 1 waits for flow 0");
    assert!(at(2).start >= at(1).received);
    assert_eq!(at(3).start, Some(Time::ZERO + Span::from_ms(1)));
    assert_eq!(outcome.summary(|_| true).received, 4);
    // Wrong lines are an error of the plan, with the file's own line and column.
    let text = |csv: &'static str| {
        let text = format!(
            "figure = \"f\"\ntitle = \"t\"\nclaim = \"c\"\nworkload = {{ {keys} }}\n[[scheme]]\nname = \"s\"\n"
        );
        let load = move |_: &str| Ok(csv.to_owned());
        Plan::read("p.toml", &text, Scale::Small, &load)
    };
    let error = text("start,source,destination,size\n0,0,1,ten\n").expect_err("no number").to_string();
    assert_eq!(
        error.lines().next(),
        Some("p.toml:4:41: `workload.trace`: t.csv:2:7: `ten` is no number of bytes")
    );
    let plan = text("start,source,destination,size\n0,0,1,10\n0,0,900,10\n").expect("it can be read");
    let found = errors(&plan);
    assert!(found[0].starts_with("error: 4 workload.trace: t.csv:3:5: there is no host `900`"), "{found:?}");
    let plan = text("start,source,destination,size\n20s,0,1,10\n").expect("it can be read");
    assert!(errors(&plan)[0].contains("workload.trace: its last flow starts at 20"), "{:?}", errors(&plan));
}

/// The sum is everywhere when the last flow of the tree has come: `rct_s`. It takes what the levels take one after another; cut into
/// parts, the levels work at once.
#[test]
fn a_tree_all_reduce_ends_when_every_host_has_the_sum() {
    let keys = |parts: u32| format!("pattern = \"tree-all-reduce\", bytes = \"1MB\", parts = {parts}");
    let network = "shape = \"star\", hosts = 7";
    let whole = play(&read(network, "", &keys(1), "", &[]));
    let parts = play(&read(network, "", &keys(16), "", &[]));
    let rct = |outcome: &Outcome| outcome.groups[0].rct().expect("the collective ends");
    assert_eq!((whole.flows.len(), whole.groups.len(), whole.groups[0].bytes), (12, 1, 12_000_000));
    let last = whole.flows.iter().filter_map(|flow| flow.received).max();
    assert_eq!(last, Some(Time::ZERO + rct(&whole)));
    // Up over two levels, where two children share their parent's link, and down again: eight times a vector at line rate.
    let vector = Rate::from_gbps(40).span_of(977 * 1086);
    assert!(rct(&whole) >= vector * 8 && rct(&whole) < vector * 9, "{}", rct(&whole));
    assert!(rct(&parts) < rct(&whole), "{} {}", rct(&parts), rct(&whole));
    let scenario = |plan: &Plan| plan.runs()[0].scenario(plan).expect("right");
    let plan = read(network, "", &keys(1), "", &[]);
    let measures = highwire_sim::report::Measures::of(&scenario(&plan), &whole);
    let measured = measures.get(highwire_sim::report::Metric::Rct).expect("it is a measure of the run");
    assert!((measured - rct(&whole).as_secs_f64()).abs() < 1e-12);
    let found =
        errors(&read(network, "", "pattern = \"tree-all-reduce\", bytes = \"5B\", parts = 9", "", &[]));
    assert!(found[0].starts_with("error: 7 workload.bytes: less than one byte for each of 9"), "{found:?}");
}

/// A repetition comes from the host's memory first. Everything lost is still repeated, later.
#[test]
fn slow_repetitions_reach_the_sender_and_cost_time() {
    let network = format!("{STAR}, buffer = \"30KB\"");
    let fast = play(&read(&network, "", INCAST, "", &[]));
    let slow = play(&read(&network, "retransmission_delay = \"50us\"", INCAST, "", &[]));
    assert!(fast.totals.retransmitted > 0 && slow.totals.retransmitted > 0);
    assert!(slow.totals.end > fast.totals.end, "{} {}", slow.totals.end, fast.totals.end);
    let found = errors(&read(&network, "retransmission_delay = \"2s\"", INCAST, "", &[]));
    assert!(found[0].starts_with("error: 6 transport.retransmission_delay: 2"), "{found:?}");
    let found =
        errors(&read(&network, "protocol = \"roce\", retransmission_delay = \"2us\"", INCAST, "", &[]));
    assert!(
        found[0]
            .starts_with("warning: 6 transport.retransmission_delay: nothing uses it here: it is for irn"),
        "{found:?}"
    );
}

/// The hardware's rule differs from that of evidence only after a repetition in vain. In a network that keeps the order of a flow's
/// packets this takes a timeout of a packet that was not lost, so it needs long queues, losses and some luck; this plan has them.
#[test]
fn the_answer_to_partial_acknowledgements_reaches_the_sender() {
    let play = |rule: &str| {
        let network = "k = 4, buffer = \"100KB\", packet_loss = 0.02";
        let workload = "pattern = \"incast-among-poisson\", load = 0.8, duration = \"400us\", senders = 8, bytes = \"1MB\"";
        play(&read(network, &format!("partial_acks = \"{rule}\""), workload, "", &[])).totals
    };
    let (never, evident, hardware) = (play("never"), play("evident"), play("hardware"));
    assert_ne!(evident.fingerprint, hardware.fingerprint);
    assert_ne!(evident.fingerprint, never.fingerprint);
    assert!(hardware.retransmitted >= evident.retransmitted && never.timeouts > evident.timeouts);
}
