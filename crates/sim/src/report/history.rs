//! Whether the network has settled: flows under way, and their completion times by time of arrival.

use highwire_fabric::{Span, Time};
use serde::{Deserialize, Serialize};

use crate::workload::TRAFFIC;
use crate::{FlowRecord, Outcome};

/// A twentieth of the time in which measured flows arrive.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Stretch {
    /// When it ends, in microseconds.
    pub end_us: u64,
    /// Measured flows that have started by then and are not received.
    pub under_way: u64,
    /// Flows that arrived in it.
    pub flows: u64,
    /// Mean FCT of those, in seconds; zero without any.
    pub fct_mean_s: f64,
    /// Mean slowdown of those; zero without any.
    pub slowdown_mean: f64,
}

const STRETCHES: u64 = 20;
/// Fewer flows make no meaningful history.
const FLOWS_MIN: usize = 200;

/// The history of the flows that are measured; empty where they are few, or start together.
pub(super) fn history(outcome: &Outcome) -> Vec<Stretch> {
    let flows: Vec<(Time, &FlowRecord)> = outcome
        .flows
        .iter()
        .filter(|flow| flow.class == TRAFFIC)
        .filter_map(|flow| Some((flow.start?, flow)))
        .collect();
    let (Some(first), Some(last)) = (flows.iter().map(|f| f.0).min(), flows.iter().map(|f| f.0).max()) else {
        return Vec::new();
    };
    let each = Span::from_ps(last.since(first).as_ps().div_ceil(STRETCHES));
    if flows.len() < FLOWS_MIN || each == Span::ZERO {
        return Vec::new();
    }
    let stretch = |number: u64| {
        let from = first + Span::from_ps(each.as_ps() * number);
        let to = from + each;
        let is_open = |f: &&(Time, &FlowRecord)| f.0 <= to && f.1.received.is_none_or(|at| at > to);
        // The last one includes its end.
        let is_of = |at: Time| at >= from && (at < to || number + 1 == STRETCHES);
        let arrived: Vec<(f64, f64)> = flows
            .iter()
            .filter(|f| is_of(f.0))
            .filter_map(|f| Some((f.1.fct()?.as_secs_f64(), f.1.slowdown()?)))
            .collect();
        let count = arrived.len().max(1) as f64;
        Stretch {
            end_us: to.since(Time::ZERO).as_ps() / 1_000_000,
            under_way: flows.iter().filter(is_open).count() as u64,
            flows: arrived.len() as u64,
            fct_mean_s: arrived.iter().map(|f| f.0).sum::<f64>() / count,
            slowdown_mean: arrived.iter().map(|f| f.1).sum::<f64>() / count,
        }
    };
    (0..STRETCHES).map(stretch).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlowId;

    #[test]
    fn a_queue_that_grows_is_seen() {
        // One flow per microsecond, each of which takes twice as long as it has waited to begin.
        let flow = |at: u64| FlowRecord {
            id: FlowId(at as u32),
            bytes: 100,
            class: TRAFFIC,
            start: Some(Time::from_us(at)),
            received: Some(Time::from_us(2 * at + 1)),
            acknowledged: None,
            ideal: Span::from_us(1),
            packets: 1,
            sent: 1,
        };
        let outcome = Outcome { flows: (0..400).map(flow).collect(), ..Outcome::default() };
        let history = history(&outcome);
        assert_eq!(history.len(), 20);
        assert_eq!(history.iter().map(|stretch| stretch.flows).sum::<u64>(), 400);
        assert!(history.windows(2).all(|pair| pair[0].under_way < pair[1].under_way));
        assert!(history.windows(2).all(|pair| pair[0].slowdown_mean < pair[1].slowdown_mean));
        assert_eq!(history[19].end_us, 399);
        assert!(super::history(&Outcome { flows: outcome.flows[..9].to_vec(), ..outcome }).is_empty());
    }
}
