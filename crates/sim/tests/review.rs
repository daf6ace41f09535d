//! What is wrong or odd about a plan is said with its line and key before anything is played; what changes nothing is told
//! from what does by trying it.

mod common;

use common::nothing;
use highwire_sim::Scenario;
use highwire_sim::plan::{PARAMETERS, Plan, Scale, Unit, shipped};

/// The three sections that a case may spoil begin at lines 5, 6 and 7.
fn plan(network: &str, transport: &str, workload: &str) -> Plan {
    let text = format!(
        "figure = \"f\"\ntitle = \"t\"\nclaim = \"c\"\nseeds = 1\nnetwork = {{ {network} }}\ntransport = {{ {transport} }}\n\
         workload = {{ {workload} }}\n[[scheme]]\nname = \"s\"\n"
    );
    let graph =
        "default 100Gbps 1us\nhost a b c d\nswitch s t\nlink a s\nlink b s\nlink c t\nlink d t\nlink s t\n";
    let load = |name: &str| match name {
        "g.txt" => Ok(graph.to_owned()),
        "huge.cdf" => Ok("1 0\n5000000000 100\n".to_owned()),
        "small.cdf" => Ok("1 0\n2000 100\n".to_owned()),
        // Two flows from one host, which none of the receivers has alone.
        "long.csv" => {
            Ok("start,source,destination,size\n0us,0,1,2000000000\n1ms,0,2,2000000000\n".to_owned())
        }
        other => nothing(other),
    };
    Plan::read("p.toml", &text, Scale::Small, &load).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// The findings as `error: LINE KEY: PROBLEM`.
fn found(plan: &Plan) -> Vec<String> {
    let show = |finding: &highwire_sim::plan::Finding| {
        let kind = if finding.is_error { "error" } else { "warning" };
        format!("{kind}: {} {}: {}", finding.about.line, finding.about.key, finding.about.problem)
    };
    plan.review().iter().map(show).collect()
}

#[track_caller]
fn check(network: &str, transport: &str, workload: &str, expected: &str) {
    let found = found(&plan(network, transport, workload));
    assert!(found.iter().any(|line| line.starts_with(expected)), "no `{expected}` in {found:#?}");
    let is_error = expected.starts_with("error");
    assert_eq!(found.iter().any(|line| line.starts_with("error")), is_error, "{found:#?}");
    // A value that cannot be is not also one that nothing uses.
    let key = expected.split(": ").nth(1).unwrap_or_default();
    let also = format!("warning: {key}: nothing uses it");
    assert!(!is_error || !found.iter().any(|line| line.starts_with(&also)), "{found:#?}");
}

#[test]
fn values_that_cannot_be_are_refused_with_line_and_key() {
    let star = "shape = \"star\", hosts = 4";
    let graph = "shape = \"graph\", graph = \"g.txt\"";
    let incast = "pattern = \"incast\", senders = 2";
    for (network, transport, workload, expected) in [
        // Shapes.
        ("k = 5", "", "", "error: 5 network.k: a fat tree's k"),
        ("k = 400", "", "", "error: 5 network.k: a fat tree's k is 400"),
        ("shape = \"star\", hosts = 1", "", "", "error: 5 network.hosts: the number of hosts"),
        ("shape = \"dumbbell\", left = 0", "", "", "error: 5 network.left: 0: it lies between"),
        (
            "shape = \"leaf-spine\", leaves = 5000",
            "",
            "",
            "error: 5 network.leaves: the number of leaves is 5000",
        ),
        ("shape = \"graph\"", "", "", "error: 5 network.shape: a graph needs a file"),
        // Rates, delays, room.
        ("rate = \"1Kbps\"", "", "", "error: 5 network.rate: a link has between"),
        ("delay = \"20s\"", "", "", "error: 5 network.delay: 20"),
        (
            "buffer = \"500B\"",
            "",
            "",
            "error: 5 network.buffer: an input's share, 500 bytes, does not hold a packet",
        ),
        ("buffer = \"0B\"", "", "", "error: 5 network.buffer: 0 bytes: it lies between 1"),
        ("buffer = \"5000GB\"", "", "", "error: 5 network.buffer: 5000000000000 bytes: it lies between"),
        (
            "switches = \"output-queued\", alpha_log2 = 20",
            "",
            "",
            "error: 5 network.alpha_log2: 20: it lies between 0 and 16",
        ),
        // PFC.
        (
            "pfc = true, buffer = \"20KB\"",
            "",
            "",
            "error: 5 network.buffer: an input's share, 20000 bytes, does not hold PFC's headroom",
        ),
        (
            "pfc = true, rate = \"800Gbps\"",
            "",
            "",
            "error: 5 network.rate: an input's share, 240000 bytes, does not hold PFC's headroom",
        ),
        (
            "pfc = true, buffer = \"40KB\"",
            "ack_priority = \"above\"",
            "",
            "error: 5 network.buffer: an input's share, 20000 bytes",
        ),
        (
            "pfc = true, pfc_headroom = \"1KB\"",
            "",
            "",
            "error: 5 network.pfc_headroom: 1000 bytes are too few",
        ),
        ("pfc = true, pfc_headroom = \"1MB\"", "", "", "error: 5 network.pfc_headroom: "),
        (
            "pfc = true, pfc_hysteresis = \"230KB\"",
            "",
            "",
            "error: 5 network.pfc_hysteresis: it exceeds the threshold",
        ),
        // Marking.
        ("ecn_probability = 1.5", "congestion = \"dcqcn\"", "", "error: 5 network.ecn_probability: 1.5"),
        (
            "ecn_min = \"9KB\", ecn_max = \"8KB\"",
            "congestion = \"dcqcn\"",
            "",
            "error: 5 network.ecn_min: it exceeds `network.ecn_max`",
        ),
        // Losses.
        ("packet_loss = 1.5", "", "", "error: 5 network.packet_loss: 1.5"),
        ("packet_loss = 1", "", "", "error: 5 network.packet_loss: 1 "),
        ("bit_error_rate = 2", "", "", "error: 5 network.bit_error_rate: 2"),
        // The transport.
        ("", "mtu = \"9000B\"", "", "error: 6 transport.mtu: 9000 bytes are none of 256"),
        (
            "",
            "protocol = \"iwarp\", congestion = \"dcqcn\"",
            "",
            "error: 6 transport.congestion: iWARP's TCP has",
        ),
        ("", "cap = 0", "", "error: 6 transport.cap: 0: it lies between 1"),
        ("", "rto_low = \"0us\"", "", "error: 6 transport.rto_low: it is longer than nothing"),
        ("", "rto_high = \"0us\"", "", "error: 6 transport.rto_high: it is longer than nothing"),
        ("", "rto_high_factor = 0", "", "error: 6 transport.rto_high_factor: 0"),
        (
            "",
            "protocol = \"roce\", window = 0",
            "",
            "error: 6 transport.window: 0: it lies between 1 and 8388606",
        ),
        ("", "protocol = \"roce\", window = 5000000000", "", "error: 6 transport.window: 5000000000"),
        ("", "protocol = \"iwarp\", initial_window = 0", "", "error: 6 transport.initial_window: 0"),
        ("", "protocol = \"iwarp\", min_rto = \"2s\"", "", "error: 6 transport.min_rto: 2"),
        (
            "",
            "protocol = \"iwarp\", initial_rto = \"0us\"",
            "",
            "error: 6 transport.initial_rto: it is longer",
        ),
        ("", "extra_header = \"10KB\"", "", "error: 6 transport.extra_header: 10000 bytes"),
        ("", "gap = \"10KB\"", "", "error: 6 transport.gap: 10000 bytes"),
        ("", "turn = 0", "", "error: 6 transport.turn: 0"),
        ("", "reordering = 90000000", "", "error: 6 transport.reordering: 90000000"),
        (
            "",
            "protocol = \"iwarp\", congestion = \"aimd\"",
            "",
            "error: 6 transport.congestion: iWARP's TCP has",
        ),
        // The workload.
        (star, "", "load = 1.2", "error: 7 workload.load: 1.2"),
        (star, "", "load = 0", "error: 7 workload.load: 0 "),
        (star, "", "duration = \"0us\"", "error: 7 workload.duration: it is longer than nothing"),
        (star, "", "duration = \"12s\"", "error: 7 workload.duration: flows arrive for 12"),
        (star, "", "warm_up = \"9.995s\"", "error: 7 workload.warm_up: flows arrive for"),
        (
            star,
            "",
            "afterwards = \"11s\", time_limit = \"10s\"",
            "error: 7 workload.time_limit: flows arrive for",
        ),
        (
            star,
            "",
            "duration = \"900s\", time_limit = \"1000s\", sizes = \"small.cdf\"",
            "error: 7 workload.duration: about",
        ),
        (star, "", "sizes = \"huge.cdf\"", "error: 7 workload.sizes: flows of 5000000000 bytes"),
        (
            star,
            "",
            "pattern = \"permutation\", bytes = \"3GB\"",
            "error: 7 workload.bytes: a flow of 3000000000 bytes",
        ),
        (
            star,
            "",
            "pattern = \"incast\", senders = 2, bytes = \"5GB\"",
            "error: 7 workload.bytes: a flow of 2500000000 bytes",
        ),
        (star, "", "pattern = \"all-to-all\", bytes = \"2B\"", "error: 7 workload.bytes: less than one byte"),
        (
            star,
            "",
            "pattern = \"incast\", senders = 4",
            "error: 7 workload.senders: 4 senders are too many for 4",
        ),
        (
            star,
            "",
            "pattern = \"incast\", senders = 2, receiver = 4",
            "error: 7 workload.receiver: there is no host 4",
        ),
        (star, "", "pattern = \"incast\", senders = 2, connections = 0", "error: 7 workload.connections: 0"),
        (
            star,
            "",
            "pattern = \"incast\", senders = 2, connections = 90000000, bytes = \"1GB\"",
            "error: 7 workload.connections: about 180000000",
        ),
        (star, "", &format!("{incast}, start = \"10s\""), "error: 7 workload.start: the incast begins at"),
        (
            star,
            "",
            "pattern = \"incast-among-poisson\", senders = 2, start = \"11ms\", afterwards = \"5ms\"",
            "error: 7 workload.start: the incast begins at",
        ),
        // What no link can carry before the run is over.
        (
            star,
            "",
            "pattern = \"incast\", senders = 2, bytes = \"2GB\", time_limit = \"400ms\"",
            "error: 7 workload.bytes: its flows take at least 0.400 s, and the run ends at 400ms",
        ),
        (
            star,
            "",
            "pattern = \"incast\", senders = 2, bytes = \"5MB\", start = \"9.9995s\"",
            "error: 7 workload.bytes: its flows take at least 10.000 s, and the run ends at 10s",
        ),
        (
            star,
            "",
            "pattern = \"incast-among-poisson\", senders = 2, bytes = \"4GB\", time_limit = \"700ms\"",
            "error: 7 workload.bytes: its flows take at least 0.800 s",
        ),
        (
            star,
            "",
            "pattern = \"permutation\", bytes = \"2GB\", time_limit = \"400ms\"",
            "error: 7 workload.bytes: its flows take at least 0.400 s",
        ),
        (
            star,
            "",
            "pattern = \"all-reduce\", bytes = \"2GB\", time_limit = \"600ms\"",
            "error: 7 workload.bytes: its flows take at least 0.600 s",
        ),
        (
            star,
            "",
            "pattern = \"all-to-all\", bytes = \"2GB\", time_limit = \"400ms\"",
            "error: 7 workload.bytes: its flows take at least 0.400 s",
        ),
        (
            star,
            "",
            "pattern = \"tree-all-reduce\", bytes = \"2GB\", time_limit = \"400ms\"",
            "error: 7 workload.bytes: its flows take at least 0.400 s",
        ),
        (
            star,
            "",
            "pattern = \"trace\", trace = \"long.csv\", time_limit = \"800ms\"",
            "error: 7 workload.trace: its flows take at least 0.800 s, and the run ends at 800ms",
        ),
        (
            star,
            "",
            "pattern = \"trace\", trace = \"long.csv\", time_limit = \"1ms\"",
            "error: 7 workload.trace: its last flow starts at 1ms, and the run ends at 1ms",
        ),
        (star, "", "time_limit = \"0us\"", "error: 7 workload.time_limit: it is longer than nothing"),
        (
            graph,
            "",
            "pattern = \"incast\", senders = 9",
            "error: 7 workload.senders: 9 senders are too many for 4",
        ),
    ] {
        check(network, transport, workload, expected);
    }
}

#[test]
fn what_is_odd_is_a_warning() {
    let star = "shape = \"star\", hosts = 4";
    let graph = "shape = \"graph\", graph = \"g.txt\"";
    for (network, transport, workload, expected) in [
        (
            "pfc = true, packet_loss = 0.001",
            "protocol = \"roce\"",
            "",
            "warning: 5 network.packet_loss: RoCE over PFC has no timeouts",
        ),
        (
            "pfc = true, bit_error_rate = 1e-9",
            "protocol = \"roce\"",
            "",
            "warning: 5 network.bit_error_rate: RoCE over PFC has no timeouts",
        ),
        (
            "ecn = \"off\"",
            "congestion = \"dcqcn\"",
            "",
            "warning: 5 network.ecn: the congestion control listens",
        ),
        ("ecn = \"red\"", "", "", "warning: 5 network.ecn: nothing uses it here"),
        ("", "rto_low = \"1ms\", rto_high = \"500us\"", "", "warning: 6 transport.rto_low: it exceeds"),
        // Two hosts on each side at 0.7 of 100 Gb/s: two thirds of it cross the trunk.
        (graph, "", "load = 0.9", "warning: 7 workload.load: the link from `"),
        ("shape = \"leaf-spine\", spines = 1", "", "load = 0.7", "warning: 7 workload.load: the link from `"),
        ("shape = \"dumbbell\", trunk_rate = \"10Gbps\"", "", "", "warning: 5 network.shape: the link from"),
        (
            star,
            "",
            "load = 0.00001, duration = \"10us\"",
            "warning: 7 workload.load: about 0.000 flows arrive in 10us: a run may have none",
        ),
        // As many arrive before what is measured as the load asks for.
        (
            star,
            "",
            "warm_up = \"10ms\", duration = \"1ns\"",
            "warning: 7 workload.duration: about 0.000 flows arrive in 1ns",
        ),
        (
            star,
            "",
            "pattern = \"incast-among-poisson\", senders = 2, start = \"20ms\"",
            "warning: 7 workload.start: the incast begins when",
        ),
        ("shape = \"star\", k = 8", "", "", "warning: 5 network.k: nothing uses it here: it is for fat-tree"),
        (
            &format!("{graph}, rate = \"100Gbps\""),
            "",
            "",
            "warning: 5 network.rate: nothing uses it here: a graph's file",
        ),
        ("", "window = 5", "", "warning: 6 transport.window: nothing uses it here: it is for roce"),
        ("", "", "senders = 3", "warning: 7 workload.senders: nothing uses it here: it is for incast"),
    ] {
        check(network, transport, workload, expected);
    }
    let asked = found(&plan(graph, "", "load = 0.9"));
    assert!(
        asked[0].contains("`t` is asked for 1.2 times") || asked[0].contains("`s` is asked for 1.2 times"),
        "{asked:?}"
    );
    // A setting that every scheme sets anew.
    let text = "figure = \"f\"\ntitle = \"t\"\nclaim = \"c\"\nnetwork = { pfc = true }\n[[scheme]]\nname = \"s\"\nnetwork = { pfc = false }\n";
    let plan = Plan::read("p.toml", text, Scale::Small, &nothing).expect("it is right");
    assert_eq!(found(&plan), ["warning: 4 network.pfc: nothing uses it: every scheme sets it anew"]);
    // One that some scheme uses is none.
    let text = "figure = \"f\"\ntitle = \"t\"\nclaim = \"c\"\ntransport = { window = 5 }\n[[scheme]]\nname = \"s\"\n[[scheme]]\nname = \"r\"\ntransport = { protocol = \"roce\" }\n";
    let plan = Plan::read("p.toml", text, Scale::Small, &nothing).expect("it is right");
    assert_eq!(found(&plan), Vec::<String>::new());
}

#[test]
fn nothing_is_found_in_the_plans_that_ship() {
    for shipped in shipped() {
        for scale in [Scale::Small, Scale::Full] {
            let plan = Plan::read(shipped.path, shipped.text, scale, &nothing).expect("it is right");
            assert_eq!(found(&plan), Vec::<String>::new(), "{} {scale:?}", shipped.path);
        }
    }
}

/// Another value of a parameter than the one it has.
fn other_value(place: usize, present: &str) -> Option<String> {
    let parameter = &PARAMETERS[place];
    let word = |word: &str| format!("\"{word}\"");
    let name = parameter.name;
    // These decide which others are used, and `graph` needs its file.
    if ["network.shape", "network.graph", "workload.pattern", "workload.trace", "transport.protocol"]
        .contains(&name)
    {
        return None;
    }
    Some(match parameter.unit {
        Unit::Words | Unit::Recovery => word(parameter.words.iter().find(|word| **word != present)?),
        Unit::Flag => (present != "true").to_string(),
        Unit::Count if name == "network.k" => "4".into(),
        Unit::Count => "5".into(),
        Unit::Number => "0.25".into(),
        Unit::Bytes if name == "transport.mtu" => word("512B"),
        Unit::Bytes if name == "network.pfc_headroom" => word("100KB"),
        Unit::Bytes => word("7KB"),
        Unit::Span => word("1.1ms"),
        Unit::Rate => word("25Gbps"),
        Unit::File => word("small.cdf"),
        Unit::Congestion => word(if present == "timely" { "aimd" } else { "timely" }),
    })
}

/// A parameter that is said to be of no use changes nothing about the run, and one of use changes something for some value.
#[test]
fn a_parameter_is_used_exactly_if_it_changes_the_run() {
    let shapes = [
        "shape = \"fat-tree\", k = 4",
        "shape = \"star\", hosts = 4",
        "shape = \"leaf-spine\", leaves = 2, spines = 2, hosts_per_leaf = 2",
        "shape = \"dumbbell\", left = 2, right = 2",
        "shape = \"graph\", graph = \"g.txt\"",
    ];
    let switches = [
        "",
        ", pfc = true, buffer = \"1MB\"",
        ", switches = \"output-queued\", buffer = \"2MB\"",
        ", ecn = \"step\"",
    ];
    let transports = [
        "",
        "computed_rto = true",
        "loss_recovery = \"no-sack\"",
        "congestion = \"dcqcn\"",
        "congestion = \"dctcp\"",
        "protocol = \"roce\"",
        "protocol = \"roce\", timeouts = \"off\"",
        "protocol = \"iwarp\"",
        "protocol = \"iwarp\", min_rto = \"1ms\"",
    ];
    let patterns = [
        "duration = \"100us\"",
        "pattern = \"incast\", senders = 2, bytes = \"90KB\"",
        "pattern = \"incast-among-poisson\", senders = 2, bytes = \"90KB\", duration = \"100us\"",
        "pattern = \"permutation\", bytes = \"90KB\"",
        "pattern = \"all-reduce\", bytes = \"90KB\"",
    ];
    let scenario = |plan: &Plan| -> Scenario { plan.runs()[0].scenario(plan).expect("it is right") };
    let mut tried = 0;
    for (number, shape) in shapes.iter().enumerate() {
        for (other, switch) in switches.iter().enumerate() {
            for (third, transport) in transports.iter().enumerate() {
                // Half of the combinations are enough, each with one of the patterns.
                if (number + other + third) % 2 == 1 {
                    continue;
                }
                let pattern = patterns[(number + other + third) / 2 % patterns.len()];
                let network = format!("{shape}{switch}");
                let base = plan(&network, transport, pattern);
                let before = scenario(&base);
                let runs = base.runs();
                for (place, parameter) in PARAMETERS.iter().enumerate() {
                    let present = runs[0].params.value(parameter.name).to_string();
                    let Some(value) = other_value(place, &present) else { continue };
                    let (section, key) = parameter.name.split_once('.').expect("a section");
                    let set = |own: &str, name: &str| {
                        let is_set = own.split(", ").any(|entry| entry.starts_with(&format!("{key} =")));
                        let addition = format!("{key} = {value}");
                        match (section == name, is_set, own.is_empty()) {
                            (false, ..) => Some(own.to_owned()),
                            (true, true, _) => None,
                            (true, false, true) => Some(addition),
                            (true, false, false) => Some(format!("{own}, {addition}")),
                        }
                    };
                    let (Some(network), Some(transport), Some(workload)) =
                        (set(&network, "network"), set(transport, "transport"), set(pattern, "workload"))
                    else {
                        continue;
                    };
                    let changed = plan(&network, &transport, &workload);
                    let findings = found(&changed);
                    if findings.iter().any(|line| line.starts_with("error")) {
                        continue;
                    }
                    let is_unused = findings
                        .iter()
                        .any(|line| line.contains(&format!(" {}: nothing uses it", parameter.name)));
                    let has_changed = scenario(&changed) != before;
                    // The value asked for may be what `auto` gives anyway.
                    if is_unused {
                        let only_sent = ["transport.entropy", "transport.turn"].contains(&parameter.name);
                        assert!(
                            !has_changed || only_sent,
                            "{} = {value} in {network} | {transport} | {workload}",
                            parameter.name
                        );
                    } else {
                        let is_close = ["transport.timeouts", "transport.acks"].contains(&parameter.name);
                        assert!(
                            has_changed || is_close,
                            "{} = {value} in {network} | {transport} | {workload}",
                            parameter.name
                        );
                    }
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 2_000, "{tried}");
}
