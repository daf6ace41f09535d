//! Which parameters a run looks at, by what the others say.

use crate::plan::lower::listens_to_marks;
use crate::plan::{PARAMETERS, Params};

/// Whether the run with these parameters depends on the parameter `name`.
pub(crate) fn is_used(name: &str, params: &Params) -> bool {
    let is = |key: &str, words: &[&str]| params.word(key).is_some_and(|word| words.contains(&word));
    let shape = |words| is("network.shape", words);
    let protocol = |words| is("transport.protocol", words);
    let pattern = |words| is("workload.pattern", words);
    let is_input_queued = is("network.switches", &["input-queued"]);
    let has_pfc = params.flag("network.pfc");
    let marks = listens_to_marks(params) && !is("network.ecn", &["off"]);
    let is_red = !is("network.ecn", &["step"])
        && (is("network.ecn", &["red"])
            || !params.congestion().algorithm().marking.is_some_and(|marking| marking.is_step()));
    let has_timeouts = is("transport.timeouts", &["on"]) || is("transport.timeouts", &["auto"]) && !has_pfc;
    let is_irn = protocol(&["irn"]);
    match name {
        "network.k" => shape(&["fat-tree"]),
        "network.hosts" => shape(&["star"]),
        "network.leaves" | "network.spines" | "network.hosts_per_leaf" => shape(&["leaf-spine"]),
        "network.left" | "network.right" => shape(&["dumbbell"]),
        "network.trunk_rate" => shape(&["dumbbell", "leaf-spine"]),
        "network.graph" => shape(&["graph"]),
        "network.rate" | "network.delay" => !shape(&["graph"]),
        "network.service" => is_input_queued,
        // Lossless queues share a pool without a limit each.
        "network.alpha_log2" => !is_input_queued && !has_pfc,
        "network.pfc_headroom" | "network.pfc_hysteresis" => has_pfc,
        "network.ecn" => listens_to_marks(params),
        "network.ecn_min" | "network.ecn_when" => marks,
        "network.ecn_max" | "network.ecn_probability" => marks && is_red,
        "network.telemetry" => !protocol(&["iwarp"]) && params.congestion().algorithm().telemetry,
        "network.trimming" => true,
        "network.trim_above" | "network.trim_headers" => params.flag("network.trimming"),
        "network.cut_through_bytes" => is("network.switching", &["cut-through"]),
        "transport.retransmission_delay" => is_irn,
        "transport.congestion" => !protocol(&["iwarp"]),
        "transport.loss_recovery" | "transport.cap" | "transport.rto_low" | "transport.computed_rto" => {
            is_irn
        }
        "transport.sack_restarts_timer" | "transport.reordering" => is_irn,
        "transport.rto_low_n" => is_irn && !params.flag("transport.computed_rto"),
        "transport.partial_acks" => is_irn && is("transport.loss_recovery", &["sack"]),
        "transport.rto_high" | "transport.rto_high_factor" => {
            is_irn
                || protocol(&["roce"]) && has_timeouts
                || protocol(&["iwarp"]) && is("transport.min_rto", &["auto"])
        }
        "transport.timeouts" | "transport.acks" | "transport.window" => protocol(&["roce"]),
        "transport.initial_window" | "transport.min_rto" | "transport.initial_rto" | "transport.sack" => {
            protocol(&["iwarp"])
        }
        "transport.entropy" | "transport.turn" => !protocol(&["iwarp"]),
        "workload.sizes" | "workload.load" | "workload.duration" => {
            pattern(&["poisson", "incast-among-poisson"])
        }
        "workload.warm_up" | "workload.afterwards" => pattern(&["poisson", "incast-among-poisson"]),
        "workload.bytes" => !pattern(&["poisson", "trace"]),
        "workload.parts" => pattern(&["tree-all-reduce"]),
        "workload.trace" => pattern(&["trace"]),
        "workload.senders" | "workload.receiver" | "workload.connections" | "workload.start" => {
            pattern(&["incast", "incast-among-poisson"])
        }
        _ => true,
    }
}

/// What a parameter that is not used is for.
pub(super) fn needs(name: &str) -> String {
    match name {
        "network.rate" | "network.delay" => "a graph's file names the rate and the delay of each link".into(),
        "network.alpha_log2" => "it limits queues of output-queued switches without PFC".into(),
        "network.pfc_headroom" | "network.pfc_hysteresis" => "`network.pfc` is false".into(),
        "network.ecn" | "network.ecn_min" | "network.ecn_when" => {
            "no congestion control listens to marks, or there are none".into()
        }
        "network.ecn_max" | "network.ecn_probability" => "it is for marking by `red`".into(),
        "transport.rto_high" | "transport.rto_high_factor" => {
            "timeouts are off, or named by another key".into()
        }
        "transport.rto_low_n" => "timeouts are computed, or the protocol is another one".into(),
        "transport.partial_acks" => "it is for IRN with SACK".into(),
        "network.telemetry" => "no congestion control listens to it".into(),
        "network.rerouting" => "no link fails: add `[[link_failures]]`".into(),
        "workload.bytes" => "the flows' sizes are random, or the trace's".into(),
        _ => {
            let about = PARAMETERS.iter().find(|parameter| parameter.name == name);
            let whose = about.and_then(|parameter| parameter.about.split_once(':')).map(|(whose, _)| whose);
            format!("it is for {}", whose.unwrap_or("other runs"))
        }
    }
}
