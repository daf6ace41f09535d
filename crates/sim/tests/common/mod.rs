//! A plan small enough for a test.
#![allow(dead_code, reason = "each test binary uses its part of this")]

use highwire_sim::plan::{Plan, Scale};

/// Six hosts around a switch, three schemes, two seeds, a film.
pub(crate) const SMALL: &str = r#"
figure = "none"
title = "t"
claim = "c"
seeds = 2

[network]
shape = "star"
hosts = 6

[workload]
pattern = "incast-among-poisson"
load = 0.4
duration = "300us"
senders = 4
bytes = "1MB"

[[scheme]]
name = "IRN"

[[scheme]]
name = "RoCE-PFC"
transport = { protocol = "roce" }
network = { pfc = true }

[[scheme]]
name = "iWARP"
transport = { protocol = "iwarp" }

[[expect]]
claim = "RoCE takes longer"
paper = "at least as long"
metric = ["slowdown_mean", "rct_s"]
scheme = "RoCE-PFC"
over = "IRN"
at_least = 1.0

[film]
schemes = ["IRN", "RoCE-PFC"]
every = "20us"
"#;

/// Reads a plan that names no files.
pub(crate) fn read(text: &str) -> Plan {
    let nothing = |name: &str| Err(format!("there is no file {name}"));
    Plan::read("plans/small.toml", text, Scale::Small, &nothing).unwrap_or_else(|error| panic!("{error}"))
}

/// There are no files beside the plan.
pub(crate) fn nothing(name: &str) -> Result<String, String> {
    Err(format!("there is no file {name}"))
}

/// A plan on a graph, with one scheme that sets this.
pub(crate) fn graph_plan(graph: &str, scheme: &str) -> Plan {
    let text = format!(
        "figure = \"f\"\ntitle = \"t\"\nclaim = \"c\"\nseeds = 1\nnetwork = {{ shape = \"graph\", graph = \"g.txt\" }}\n\
         [[scheme]]\nname = \"s\"\n{scheme}"
    );
    let load = |name: &str| if name == "g.txt" { Ok(graph.to_owned()) } else { nothing(name) };
    Plan::read("plans/graph.toml", &text, Scale::Small, &load)
        .unwrap_or_else(|error| panic!("{error}\n{text}"))
}
