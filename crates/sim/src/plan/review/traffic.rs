//! What a run's flows mean: how many there are, how large, and whether they can be over before the run is.

use super::{Look, limits, shown};
use crate::ScenarioError;
use crate::plan::lower;
use crate::ways::busiest_link;
use highwire_fabric::{HostId, Span, Time, Topology};

impl Look<'_, '_> {
    pub(super) fn traffic(&mut self, topology: &Topology) {
        let span = |name| self.params.span(name).unwrap_or_default();
        let pattern = self.params.word("workload.pattern").unwrap_or_default();
        let (is_random, is_incast) =
            (["poisson", "incast-among-poisson"].contains(&pattern), pattern.starts_with("incast"));
        let hosts = topology.host_count();
        let limit = span("workload.time_limit");
        if pattern == "trace" {
            return self.trace(topology, limit);
        }
        let measured = span("workload.warm_up") + span("workload.duration");
        let (afterwards, start) = (span("workload.afterwards"), span("workload.start"));
        if is_random {
            if measured + afterwards >= limit {
                let problem = format!(
                    "flows arrive for {}, and the run ends at {}",
                    shown(measured + afterwards),
                    shown(limit)
                );
                self.wrong(&["workload.time_limit", "workload.duration", "workload.warm_up"], problem);
                return;
            }
            self.load(topology, measured + afterwards);
        }
        if is_incast {
            self.incast(hosts);
            if start >= limit {
                let problem =
                    format!("the incast begins at {}, and the run ends at {}", shown(start), shown(limit));
                self.wrong(&["workload.start", "workload.time_limit"], problem);
            } else if is_random && afterwards > Span::ZERO && start > measured {
                let problem = format!(
                    "the incast begins at {}, and the run may end at {}",
                    shown(start),
                    shown(measured)
                );
                self.wrong(&["workload.start"], problem);
            } else if is_random && start > measured + afterwards {
                self.odd(&["workload.start"], "the incast begins when the other traffic has ended");
            }
        }
        if !is_random {
            self.sizes(pattern, hosts);
        }
        if pattern != "poisson" {
            self.length(topology, pattern, start);
        }
    }

    /// Whether the flows of a pattern can be over before the run is.
    fn length(&mut self, topology: &Topology, pattern: &str, start: Span) {
        let (hosts, bytes) = (topology.host_count(), self.params.bytes("workload.bytes").unwrap_or_default());
        let keys = ["workload.bytes", "workload.start", "workload.time_limit"];
        if pattern.starts_with("incast") {
            let receiver = self.params.count("workload.receiver").unwrap_or_default();
            let receiver = u32::try_from(receiver).ok().filter(|&receiver| receiver < hosts);
            return self.least_time(topology, &keys, start, receiver.map(|host| (host, bytes)).into_iter());
        }
        // Each host sends its data once, and around a ring all but one part of it twice.
        let each = match pattern {
            "all-reduce" => (bytes / u64::from(hosts)).saturating_mul(2 * u64::from(hosts - 1)),
            _ => bytes,
        };
        self.least_time(topology, &keys, Span::ZERO, (0..hosts).map(|host| (host, each)));
    }

    fn trace(&mut self, topology: &Topology, limit: Span) {
        let trace = match lower::trace(self.review.plan, self.params) {
            Ok(trace) => trace,
            Err(ScenarioError::Value { problem, .. }) => {
                return self.wrong(&["workload.trace", "workload.pattern"], problem);
            }
            Err(error) => return self.impossible(&error),
        };
        let flows = match trace.flows(topology) {
            Ok(flows) => flows,
            Err(error) => return self.wrong(&["workload.trace"], error.to_string()),
        };
        let last = trace.last_start();
        if last >= Time::ZERO + limit {
            let (last, limit) = (shown(last.since(Time::ZERO)), shown(limit));
            let problem = format!("its last flow starts at {last}, and the run ends at {limit}");
            self.wrong(&["workload.trace", "workload.time_limit"], problem);
            return;
        }
        let first = flows.iter().map(|flow| flow.start).min().unwrap_or_default().since(Time::ZERO);
        let mut work = vec![[0u64; 2]; topology.host_count() as usize];
        for flow in &flows {
            for (host, side) in [(flow.source, 0), (flow.destination, 1)] {
                let bytes = &mut work[host.0 as usize][side];
                *bytes = bytes.saturating_add(flow.bytes);
            }
        }
        let work = (0..).zip(work).map(|(host, sides)| (host, sides[0].max(sides[1])));
        self.least_time(topology, &["workload.trace", "workload.time_limit"], first, work);
    }

    /// Flows that are longer than the run, even if each host's link has nothing else to carry: `work` has hosts with their bytes.
    fn least_time(
        &mut self,
        topology: &Topology,
        keys: &[&str],
        start: Span,
        work: impl Iterator<Item = (u32, u64)>,
    ) {
        let seconds = |(host, bytes): (u32, u64)| {
            8.0 * bytes as f64 / topology.host_link(HostId(host)).rate.as_bps() as f64
        };
        let needed = start.as_secs_f64() + work.map(seconds).fold(0.0, f64::max);
        let limit = self.params.span("workload.time_limit").unwrap_or_default();
        if needed >= limit.as_secs_f64() {
            let problem =
                format!("its flows take at least {needed:.3} s, and the run ends at {}", shown(limit));
            self.wrong(keys, problem);
        }
    }

    fn incast(&mut self, hosts: u32) {
        let count = |name| self.params.count(name).unwrap_or_default();
        let (senders, receiver) = (count("workload.senders"), count("workload.receiver"));
        if receiver >= u64::from(hosts) {
            let problem = format!("there is no host {receiver}; the last of {hosts} is {}", hosts - 1);
            self.wrong(&["workload.receiver", "network.shape"], problem);
        }
        if senders >= u64::from(hosts) {
            let problem = format!("{senders} senders are too many for {hosts} hosts, of which one receives");
            self.wrong(&["workload.senders", "network.shape"], problem);
        }
    }

    /// How large flows become that share a number of bytes.
    fn sizes(&mut self, pattern: &str, hosts: u32) {
        let count = |name| self.params.count(name).unwrap_or_default();
        let bytes = self.params.bytes("workload.bytes").unwrap_or_default();
        let hosts = u64::from(hosts);
        let (flows, parts) = match pattern {
            "incast" => {
                let flows = count("workload.senders").saturating_mul(count("workload.connections"));
                (flows, flows)
            }
            "all-to-all" => (hosts * (hosts - 1), hosts - 1),
            "all-reduce" => (2 * hosts * (hosts - 1), hosts),
            "tree-all-reduce" => {
                let parts = count("workload.parts");
                (parts.saturating_mul(2 * (hosts - 1)), parts)
            }
            "permutation" => (hosts, 1),
            _ => return,
        };
        if flows > limits::FLOWS_MAX {
            self.wrong(
                &["workload.connections", "workload.senders", "network.shape"],
                limits::too_many(flows),
            );
        } else if bytes < parts {
            let problem = format!("less than one byte for each of {parts} flows");
            self.wrong(&["workload.bytes"], problem);
        } else if bytes.div_ceil(parts.max(1)) > limits::FLOW_BYTES_MAX {
            let each = bytes.div_ceil(parts.max(1));
            self.wrong(&["workload.bytes"], format!("a flow of {each} bytes: no message has more than 2^31"));
        }
    }

    fn load(&mut self, topology: &Topology, span: Span) {
        let load = self.params.number("workload.load").unwrap_or(0.7);
        let Ok(sizes) = lower::sizes(self.review.plan, self.params) else { return };
        if sizes.bytes_max() > limits::FLOW_BYTES_MAX as f64 {
            let problem = format!("flows of {:.0} bytes: no message has more than 2^31", sizes.bytes_max());
            return self.wrong(&["workload.sizes"], problem);
        }
        let mtu = self.params.bytes("transport.mtu").map_or(1024, |mtu| mtu as u32);
        let mean_bits = 8.0 * sizes.mean_wire_bytes(mtu, 62);
        let rates = (0..topology.host_count()).map(|h| topology.host_link(HostId(h)).rate.as_bps() as f64);
        let flows = load * rates.sum::<f64>() * span.as_secs_f64() / mean_bits;
        if flows > limits::FLOWS_MAX as f64 {
            let keys = ["workload.duration", "workload.warm_up", "workload.afterwards", "workload.load"];
            return self.wrong(&keys, limits::too_many(flows as u64));
        }
        let measured = self.params.span("workload.duration").unwrap_or_default();
        let expected = flows * measured.as_secs_f64() / span.as_secs_f64();
        if expected < 1.0 {
            let problem =
                format!("about {expected:.3} flows arrive in {}: a run may have none", shown(measured));
            self.odd(&["workload.load", "workload.duration", "workload.sizes"], problem);
        }
        if let Some(link) = busiest_link(topology, load).filter(|link| link.share > 1.0 + 1e-9) {
            let problem = format!(
                "the link from `{}` to `{}` is asked for {:.1} times what it carries, so its queues grow as long as flows arrive",
                link.from, link.to, link.share
            );
            self.odd(&["workload.load", "network.shape"], problem);
        }
    }
}
