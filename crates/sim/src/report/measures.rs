//! The measures of a run: a few numbers, a few curves, perhaps a film.

use highwire_fabric::Span;
use serde::{Deserialize, Serialize};

use super::history::history;
use super::{Film, Metric, Stretch};
use crate::outcome::percentile;
use crate::workload::{REQUEST, TRAFFIC};
use crate::{FlowRecord, Outcome, Scenario};

/// What is kept of a run.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Measures {
    /// In the order of [`Metric::ALL`]; none where nothing of the kind was measured.
    values: Vec<Option<f64>>,
    /// FCT of messages of one packet in seconds, at the shares of [`Measures::TAIL`].
    pub tail: Vec<f64>,
    /// Slowdown by flow size.
    pub by_size: Vec<Curve>,
    /// Flows under way over time; empty where few flows are measured.
    pub history: Vec<Stretch>,
    /// Follows from all events; equal runs have equal ones.
    pub fingerprint: u64,
    /// Queues and pauses over time.
    pub film: Option<Film>,
}

/// The flows up to a size.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Curve {
    /// The largest size.
    pub bytes_max: u64,
    /// How many.
    pub flows: u64,
    /// Median slowdown.
    pub slowdown_p50: f64,
    /// 99 % slowdown.
    pub slowdown_p99: f64,
}

impl Measures {
    /// The shares at which the tail of single packets is kept: Figure 8's range.
    pub const TAIL: [f64; 34] = tail_shares();

    /// The measures of `outcome`.
    pub fn of(scenario: &Scenario, outcome: &Outcome) -> Measures {
        let mut values = vec![None; Metric::ALL.len()];
        let mut put = |metric: Metric, value: f64| {
            values[metric as usize] = Some(value).filter(|value| value.is_finite());
        };
        let is_measured = |flow: &FlowRecord| flow.class == TRAFFIC;
        let summary = outcome.summary(is_measured);
        let singles = outcome.fcts(|flow| is_measured(flow) && flow.is_single_packet());
        put(Metric::SlowdownMean, summary.slowdown_mean);
        put(Metric::FctMean, summary.fct_mean_s);
        put(Metric::FctP99, summary.fct_p99_s);
        let single = |share| quantile(&singles, share);
        put(Metric::SingleP90, single(0.9));
        put(Metric::SingleP99, single(0.99));
        put(Metric::SingleP999, single(0.999));
        let rcts: Vec<f64> =
            outcome.groups.iter().filter_map(|group| Some(group.rct()?.as_secs_f64())).collect();
        put(Metric::Rct, rcts.iter().sum::<f64>() / rcts.len() as f64);
        let totals = &outcome.totals;
        let percent = |part: f64, whole: f64| 100.0 * part / whole;
        put(Metric::Dropped, 100.0 * totals.drop_rate());
        put(Metric::Retransmitted, percent(totals.retransmitted as f64, totals.data_packets as f64));
        put(Metric::Timeouts, totals.timeouts as f64);
        put(Metric::Pauses, totals.xoffs as f64);
        let end = totals.end.as_secs_f64();
        put(Metric::Paused, percent(totals.paused.as_secs_f64(), outcome.ports.len() as f64 * end));
        put(
            Metric::QueueMax,
            outcome.ports.iter().map(|port| port.queue_bytes_max).max().unwrap_or(0) as f64,
        );
        put(Metric::DataPackets, totals.data_packets as f64);
        put(Metric::PacketHops, totals.packet_hops as f64);
        put(Metric::End, end);
        let count =
            outcome.flows.iter().filter(|flow| flow.class == TRAFFIC || flow.class == REQUEST).count();
        put(Metric::Flows, count as f64);
        Measures {
            values,
            tail: if singles.is_empty() { Vec::new() } else { Self::TAIL.map(single).to_vec() },
            by_size: by_size(outcome),
            history: history(outcome),
            fingerprint: totals.fingerprint,
            film: Film::of(scenario, outcome),
        }
    }

    /// A number, if something of the kind was measured.
    pub fn get(&self, metric: Metric) -> Option<f64> {
        self.values.get(metric as usize).copied().flatten()
    }
}

/// The smallest that at least `share` of the sorted `values` do not exceed, in seconds.
fn quantile(values: &[Span], share: f64) -> f64 {
    let rank = ((values.len() as f64 * share).ceil() as usize).clamp(1, values.len().max(1));
    values.get(rank - 1).map_or(f64::NAN, |span| span.as_secs_f64())
}

/// 90 % to 99 % in steps of 0.5, 99 % to 99.9 % in steps of 0.06.
const fn tail_shares() -> [f64; 34] {
    let mut shares = [0.0; 34];
    let mut place = 0;
    while place < 34 {
        shares[place] = if place < 18 {
            (9000 + 50 * place) as f64 / 10_000.0
        } else {
            (9900 + 6 * (place - 18)) as f64 / 10_000.0
        };
        place += 1;
    }
    shares
}

const SIZES: [u64; 9] =
    [1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20, u64::MAX];

fn by_size(outcome: &Outcome) -> Vec<Curve> {
    let mut low = 0;
    let mut curves = Vec::new();
    for bytes_max in SIZES {
        let flows = outcome
            .flows
            .iter()
            .filter(|flow| flow.class == TRAFFIC && flow.bytes > low && flow.bytes <= bytes_max);
        // Slowdowns in millionths, so that one percentile serves for all.
        let scaled = |flow: &FlowRecord| Some(Span::from_ps((flow.slowdown()? * 1e6) as u64));
        let slowdowns: Vec<Span> = flows.filter_map(scaled).collect();
        let at = |share| percentile(slowdowns.clone(), share).map_or(0.0, |s| s.as_ps() as f64 / 1e6);
        if !slowdowns.is_empty() {
            let flows = slowdowns.len() as u64;
            curves.push(Curve { bytes_max, flows, slowdown_p50: at(0.5), slowdown_p99: at(0.99) });
        }
        low = bytes_max;
    }
    curves
}
