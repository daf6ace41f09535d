//! The experiments with applications run, and what they say of loads and links fits together.

use highwire_nanopu::experiments::{ALL, ExperimentError, Files, Outcome, Settings};
use highwire_riscv::Program;

use super::program;

struct Built;

impl Files for Built {
    fn program(&self, name: &str) -> Result<Program, ExperimentError> {
        program(name).ok_or(ExperimentError::NoProgram(name.to_string(), "no compiler".to_string()))
    }

    fn recording(&self, _: &str) -> Option<String> {
        None
    }
}

/// The outcome of a quick run of this experiment; `None` without a compiler.
fn quick(name: &str) -> Option<Outcome> {
    let experiment = ALL.iter().find(|experiment| experiment.name == name).expect("it is listed");
    let settings = Settings { seed: 1, is_quick: true, files: &Built, progress: &|_| {} };
    match (experiment.run)(&settings) {
        Err(ExperimentError::NoProgram(..)) => None,
        outcome => Some(outcome.unwrap_or_else(|error| panic!("{error}"))),
    }
}

#[test]
fn words_that_stay_in_registers_are_faster() {
    let Some(outcome) = quick("words") else { return };
    assert_eq!((outcome.rows.len(), outcome.charts.len()), (11, 1));
    let here = &outcome.charts[0].series[0].points;
    // The shortest messages are served by loops of a few turns, which predict better or worse by where they end.
    let long = here.iter().filter(|point| point.0 >= 64.0).collect::<Vec<_>>();
    assert!(long.windows(2).all(|pair| pair[0].1 < pair[1].1), "longer messages, more of the wire: {here:?}");
}

#[test]
fn a_dma_nic_is_slower_at_everything() {
    let Some(outcome) = quick("baseline") else { return };
    outcome.rows.iter().for_each(|row| println!("{} | {} | {}", row.claim, row.paper, row.here));
    assert_eq!((outcome.rows.len(), outcome.charts.len()), (7 + 14 + 13 + 11, 4));
    let line = |chart: usize, name: &str| {
        let found = outcome.charts[chart].series.iter().find(|series| series.name == name);
        found.map(|series| series.points.clone()).expect("it has this line")
    };
    for (chart, grows) in [(0, 1.0), (1, -1.0), (2, -1.0)] {
        let pairs = line(chart, "nanoPU, here").into_iter().zip(line(chart, "DMA NIC, here"));
        for ((bytes, nanopu), (_, dma)) in pairs {
            assert!(grows * (dma - nanopu) > 0.0, "chart {chart}, {bytes} bytes: {nanopu} and {dma}");
        }
    }
    for name in ["as they come, here", "stored first, here"] {
        let gains = line(3, name);
        // DMA's extra cost lies before a message's first word.
        assert!(gains.windows(2).all(|pair| pair[0].1 > pair[1].1), "{name}: {gains:?}");
        assert!(gains.iter().all(|gain| gain.1 > 1.0), "{name}: {gains:?}");
    }
}

#[test]
fn a_write_on_three_replicas_takes_no_longer_than_claimed() {
    let Some(outcome) = quick("chain") else { return };
    assert!(outcome.rows.iter().any(|row| row.inside == Some(true)));
    assert!(outcome.rows.iter().all(|row| row.inside != Some(false)), "{:?}", outcome.rows);
}

#[test]
fn homa_is_what_was_published_and_its_short_messages_wait_least() {
    let Some(outcome) = quick("homa") else { return };
    assert_eq!(outcome.charts.len(), 3);
    // The time that a core adds is checked by the test of loopback.
    let mut alone = outcome.rows.iter().filter(|row| !row.claim.contains("first word in"));
    assert!(alone.all(|row| row.inside != Some(false)), "{:?}", outcome.rows);
    // The two longest queues with room for all are the published ones to the byte: 82 of 90 packets.
    let exact = outcome.rows.iter().filter(|row| row.here == "89216 bytes");
    assert_eq!(exact.count(), 2, "{:?}", outcome.rows);
    let slowdowns = outcome.charts.last().expect("the third");
    let short: Vec<f64> = slowdowns.series.iter().map(|series| series.points[0].1).collect();
    assert!(short[2] < short[0] / 3.0 && short[2] < short[1] / 3.0, "NDP, drop-tail, Homa: {short:?}");
}
