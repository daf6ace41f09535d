//! What a plan says although it cannot be, or although it changes nothing.
//!
//! Reading checks the form of each value; this looks at what the values mean together, run by run, before anything is
//! built. Every finding names the line and the key that it is about.

mod limits;
mod traffic;
mod usage;

use std::collections::BTreeSet;
use std::ops::Range;

use super::lower::{self, listens_to_marks, ports_max, priorities};
use super::{PARAMETERS, Params, Plan, PlanError, Value};
use crate::ScenarioError;
use crate::scenario::{Network, PfcChoice, Scheme, Transport, hungriest};
use highwire_fabric::{Buffering, LinkSpec, NodeId, Pfc, Span, Topology};

pub(crate) use usage::is_used;

/// Something that is wrong or odd about a plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Whether the plan cannot be played; otherwise it can, and probably is not what was meant.
    pub is_error: bool,
    /// Where, and what.
    pub about: PlanError,
}

impl Plan {
    /// Everything that is wrong or odd about the plan, by line; mistakes before oddities.
    pub fn review(&self) -> Vec<Finding> {
        let mut review = Review { plan: self, found: Vec::new() };
        let mut seen: Vec<Params> = Vec::new();
        for run in self.runs() {
            if seen.last() == Some(&run.params) {
                continue;
            }
            Look { params: &run.params, review: &mut review }.look();
            seen.push(run.params);
        }
        review.unused(&seen);
        let mut found = review.found;
        found.sort_by_key(|finding| (!finding.is_error, finding.about.line, finding.about.key.clone()));
        found.dedup();
        found
    }
}

/// A time as a plan would write it.
fn shown(span: Span) -> String {
    Value::Span(span).to_string()
}

struct Review<'p> {
    plan: &'p Plan,
    found: Vec<Finding>,
}

impl Review<'_> {
    fn add(&mut self, is_error: bool, place: Option<Range<usize>>, key: &str, problem: String) {
        let source = &self.plan.source;
        let about = PlanError::new(&source.file, &source.text, place, key, problem);
        let finding = Finding { is_error, about };
        if !self.found.contains(&finding) {
            self.found.push(finding);
        }
    }

    /// Whether a parameter cannot be as it is; then it does not matter what uses it.
    fn has_error(&self, name: &str) -> bool {
        self.found.iter().any(|finding| finding.is_error && finding.about.key == name)
    }

    /// Settings that no run uses.
    fn unused(&mut self, all: &[Params]) {
        let mut used: BTreeSet<(usize, usize)> = BTreeSet::new();
        let mut reached: BTreeSet<(usize, usize)> = BTreeSet::new();
        for params in all {
            for (parameter, place) in params.places() {
                reached.insert((parameter, place.start));
                if usage::is_used(PARAMETERS[parameter].name, params) {
                    used.insert((parameter, place.start));
                }
            }
        }
        let base = self.plan.base.places().map(|(parameter, place)| (parameter, place.clone()));
        let schemes = self.plan.schemes.iter().flat_map(|scheme| &scheme.settings);
        let points = self.plan.axes.iter().flat_map(|axis| &axis.points).flat_map(|point| &point.settings);
        let set = schemes.chain(points).map(|setting| (setting.parameter, setting.place.clone()));
        let all: Vec<(usize, Range<usize>)> = base.chain(set).collect();
        // The base of an axis is a value for readers, and for runs without the axis.
        let is_varied = |parameter: usize| {
            let points = self.plan.axes.iter().flat_map(|axis| &axis.points);
            points.flat_map(|point| &point.settings).any(|setting| setting.parameter == parameter)
        };
        let varied: Vec<bool> = (0..PARAMETERS.len()).map(is_varied).collect();
        for (parameter, place) in all {
            let at = (parameter, place.start);
            let name = PARAMETERS[parameter].name;
            if !reached.contains(&at) {
                if varied[parameter] {
                    continue;
                }
                let problem = "nothing uses it: every scheme sets it anew";
                self.add(false, Some(place), name, problem.into());
            } else if !used.contains(&at) && !self.has_error(name) {
                let problem = format!("nothing uses it here: {}", usage::needs(name));
                self.add(false, Some(place), name, problem);
            }
        }
    }
}

/// One run's parameters.
struct Look<'r, 'p> {
    params: &'r Params,
    review: &'r mut Review<'p>,
}

impl Look<'_, '_> {
    /// About the first of `keys`, at the first of their places that the plan names.
    fn add(&mut self, is_error: bool, keys: &[&str], problem: impl Into<String>) {
        let named = keys.iter().find_map(|key| Some((*key, self.params.place(key)?)));
        let (key, place) = named.map_or((keys[0], None), |(key, place)| (key, Some(place)));
        self.review.add(is_error, place, key, problem.into());
    }

    fn wrong(&mut self, keys: &[&str], problem: impl Into<String>) {
        self.add(true, keys, problem);
    }

    fn odd(&mut self, keys: &[&str], problem: impl Into<String>) {
        self.add(false, keys, problem);
    }

    fn is(&self, key: &str, word: &str) -> bool {
        self.params.word(key) == Some(word)
    }

    fn look(&mut self) {
        let before = self.review.found.len();
        for parameter in PARAMETERS.iter().filter(|parameter| usage::is_used(parameter.name, self.params)) {
            if let Err(problem) = limits::check(parameter.name, self.params.value(parameter.name)) {
                self.wrong(&[parameter.name], problem);
            }
        }
        self.transport();
        if self.review.found[before..].iter().any(|finding| finding.is_error) {
            return;
        }
        let (network, topology) = match lower::network(self.review.plan, self.params) {
            Ok(both) => both,
            Err(ScenarioError::Value { field: "link_failures", .. }) => return self.impossible_failure(),
            Err(error) => return self.impossible(&error),
        };
        let scheme = match lower::scheme(self.params, &network, &topology) {
            Ok(scheme) => scheme,
            Err(error) => return self.impossible(&error),
        };
        self.buffers(&network, &topology, &scheme);
        self.failures(&topology);
        self.trimming(&network);
        self.losses(&network, &scheme);
        self.traffic(&topology);
    }

    /// What lowering refuses.
    fn impossible(&mut self, error: &ScenarioError) {
        let shape: &[&str] = match self.params.word("network.shape").unwrap_or_default() {
            "star" => &["network.hosts", "network.shape"],
            "leaf-spine" => &["network.leaves", "network.spines", "network.hosts_per_leaf", "network.shape"],
            "dumbbell" => &["network.left", "network.right", "network.shape"],
            "graph" => &["network.graph", "network.shape"],
            _ => &["network.k", "network.shape"],
        };
        match error {
            ScenarioError::Shape(error) => self.wrong(shape, error.to_string()),
            ScenarioError::Topology(error) => self.wrong(shape, error.to_string()),
            ScenarioError::Value { field, problem } => {
                let related = [*field, "network.buffer", "network.rate", "network.pfc", "network.shape"];
                self.wrong(&related, problem.clone());
            }
            other => self.wrong(&["network.shape"], other.to_string()),
        }
    }

    /// A failure that names what is not there.
    fn impossible_failure(&mut self) {
        let Ok(topology) = lower::topology(self.review.plan, self.params) else { return };
        let Err((place, problem)) = lower::failures(self.review.plan, &topology) else { return };
        let place = self.review.plan.link_failures[place].place.clone();
        self.review.add(true, Some(place), "link_failures", problem);
    }

    /// What failing links mean for the flows of a run.
    fn failures(&mut self, topology: &Topology) {
        let plan = self.review.plan;
        if plan.link_failures.is_empty() {
            if self.params.place("network.rerouting").is_some() {
                self.odd(
                    &["network.rerouting"],
                    "nothing uses it here: no link fails; add `[[link_failures]]`",
                );
            }
            return;
        }
        let hosts: BTreeSet<&str> =
            (0..topology.host_count()).map(|host| topology.node_name(NodeId::Host(host))).collect();
        let limit = self.params.span("workload.time_limit").unwrap_or_default();
        for failure in &plan.link_failures {
            let place = Some(failure.place.clone());
            let end = [&failure.from, &failure.to].into_iter().find(|name| hosts.contains(name.as_str()));
            if failure.at >= limit {
                let problem =
                    format!("it fails at {}, and the run ends at {}", shown(failure.at), shown(limit));
                self.review.add(false, place, "link_failures", problem);
            } else if let (Some(host), None) = (end, failure.until) {
                let problem = format!(
                    "`{host}` has no other link, so flows from and to it never end after {}: add `until`",
                    shown(failure.at)
                );
                self.review.add(false, place, "link_failures", problem);
            }
        }
    }

    fn trimming(&mut self, network: &Network) {
        let Some(trimming) = network.trimming else { return };
        if network.pfc != PfcChoice::Off {
            let problem = "PFC drops nothing, so there is nothing to trim: use one of the two";
            return self.wrong(&["network.trimming", "network.pfc"], problem);
        }
        if self.is("transport.protocol", "iwarp") {
            let problem = "iWARP's TCP has no use for the headers of a segment";
            return self.wrong(&["network.trimming", "transport.protocol"], problem);
        }
        let room = match network.buffering {
            Buffering::InputQueued { input_bytes } => input_bytes,
            Buffering::OutputQueued { pool_bytes, .. } => pool_bytes,
        };
        let packet = self.params.bytes("transport.mtu").unwrap_or_default() + 128;
        if trimming.header_bytes_max.saturating_add(packet) > room {
            let problem = format!("a buffer of {room} bytes that keeps so much for headers holds no packet");
            return self.wrong(&["network.trim_headers", "network.buffer", "network.trimming"], problem);
        }
        if self.params.bytes("network.trim_above").is_some_and(|bytes| bytes < packet) {
            self.odd(&["network.trim_above"], "every packet that waits is trimmed: not even one fits");
        }
    }

    fn transport(&mut self) {
        let is_tcp = self.is("transport.protocol", "iwarp");
        if is_tcp && !self.is("transport.congestion", "none") {
            let problem = "iWARP's TCP has a congestion control of its own: leave this at \"none\"";
            self.wrong(&["transport.congestion", "transport.protocol"], problem);
        }
        if self.is("network.telemetry", "off") && usage::is_used("network.telemetry", self.params) {
            let problem =
                "the congestion control listens to what switches write into packets, and they write nothing";
            self.odd(&["network.telemetry"], problem);
        }
        if self.is("network.ecn", "off") && listens_to_marks(self.params) {
            self.odd(&["network.ecn"], "the congestion control listens to marks, and there will be none");
        }
        let (min, max) = (self.params.bytes("network.ecn_min"), self.params.bytes("network.ecn_max"));
        let is_red = usage::is_used("network.ecn_max", self.params);
        if let (true, Some(min), Some(max)) = (is_red, min, max)
            && min > max
        {
            self.wrong(&["network.ecn_min", "network.ecn_max"], "it exceeds `network.ecn_max`");
        }
        let (low, high) = (self.params.span("transport.rto_low"), self.params.span("transport.rto_high"));
        if let (true, Some(low), Some(high)) = (self.is("transport.protocol", "irn"), low, high)
            && low > high
        {
            self.odd(&["transport.rto_low", "transport.rto_high"], "it exceeds `transport.rto_high`");
        }
    }

    fn buffers(&mut self, network: &Network, topology: &Topology, scheme: &Scheme) {
        let packet = match &scheme.transport {
            Transport::Tcp(_) => scheme.headers.segment_bytes(scheme.mtu_bytes),
            Transport::Irn(_) => scheme.headers.write_bytes(true, true, scheme.mtu_bytes),
            Transport::GoBackN(_) => scheme.headers.write_bytes(false, true, scheme.mtu_bytes),
        };
        let (room, whose) = match network.buffering {
            Buffering::InputQueued { input_bytes } => (input_bytes, "an input's share"),
            Buffering::OutputQueued { pool_bytes, .. } => {
                (pool_bytes / ports_max(topology), "an input's share of the pool")
            }
        };
        let room = room / priorities(self.params);
        let keys = ["network.buffer", "network.rate", "network.delay", "network.graph", "network.pfc"];
        if room < u64::from(packet) {
            return self.wrong(
                &["network.buffer", "transport.mtu", "network.shape"],
                format!("{whose}, {room} bytes, does not hold a packet of {packet}"),
            );
        }
        if network.pfc == PfcChoice::Off {
            return;
        }
        let LinkSpec { rate, delay } = hungriest(topology, packet);
        let needed = Pfc::headroom_needed(rate, delay, packet, Pfc::FRAME_BYTES);
        if let Some(headroom) = self.params.bytes("network.pfc_headroom") {
            if headroom < needed {
                self.wrong(
                    &["network.pfc_headroom"],
                    format!("{headroom} bytes are too few: {needed} arrive after the decision to pause"),
                );
            }
        } else if room <= needed {
            self.wrong(
                &keys,
                format!("{whose}, {room} bytes, does not hold PFC's headroom of {needed}: that many arrive after the decision to pause"),
            );
        }
        if let PfcChoice::Thresholds(pfc) = network.pfc
            && self.params.bytes("network.pfc_hysteresis").is_some_and(|bytes| bytes > pfc.xoff_bytes)
        {
            let problem = format!("it exceeds the threshold of {} bytes itself", pfc.xoff_bytes);
            self.wrong(&["network.pfc_hysteresis"], problem);
        }
    }

    fn losses(&mut self, network: &Network, scheme: &Scheme) {
        let has_none = matches!(&scheme.transport, Transport::GoBackN(roce) if roce.timeout.is_none());
        if !(network.faults.is_empty() && network.events.is_empty()) && has_none {
            self.odd(
                &["network.packet_loss", "network.bit_error_rate", "transport.timeouts"],
                "RoCE over PFC has no timeouts, so a flow that loses its last packet or an acknowledgement never ends: \
                 `transport.timeouts = \"on\"` switches them on",
            );
        }
    }
}
