//! Programs that touch each word once: stream and dot product, straight from the network or through memory.

use super::service::{LINK_CYCLES, play, testbed};
use super::{
    CYCLES_PER_NANOSECOND, Chart, Experiment, ExperimentError, Outcome, Row, Series, Settings, figure,
};
use crate::packet::HEADER_BYTES;
use crate::testbed::{Request, address};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment { name: "words", title: "Stream and dot product", run };

/// Messages of a run.
const COUNT: usize = 20;
/// Bytes of a message, and the published rate of stream in Gb/s of frames.
const STREAM: [(usize, f64); 6] =
    [(32, 79.0), (64, 90.0), (128, 107.0), (256, 124.0), (512, 140.0), (1024, 165.0)];
/// Bytes of a message, and the published gain over a DMA NIC of the program that multiplies words as they come, and of the one
/// that stores them first.
const DOT: [(usize, f64, f64); 5] =
    [(8, 4.94, 3.82), (40, 2.95, 2.24), (80, 2.28, 1.72), (200, 1.98, 1.36), (400, 1.79, 1.23)];

fn run(settings: &Settings<'_>) -> Result<Outcome, ExperimentError> {
    let mut outcome = Outcome::default();
    let mut points = Vec::new();
    for (step, (bytes, published)) in STREAM.into_iter().enumerate() {
        (settings.progress)(step as f64 / 11.0);
        let cycles = cycles_per_message(settings, "stream", bytes)?;
        let gbps = (8 * (HEADER_BYTES + bytes)) as f64 / cycles * CYCLES_PER_NANOSECOND;
        points.push((bytes as f64, gbps));
        outcome.rows.push(Row {
            experiment: EXPERIMENT.name,
            claim: format!("stream, {bytes} bytes, frames one behind the other"),
            paper: format!("{published} Gb/s"),
            here: format!("{} Gb/s, {} cycles a message", figure(gbps), figure(cycles)),
            inside: None,
        });
    }
    let paper = STREAM.map(|(bytes, gbps)| (bytes as f64, gbps)).to_vec();
    outcome.charts.push(Chart {
        title: "Stream on one core".to_string(),
        across: "bytes".to_string(),
        up: "Gb/s of frames".to_string(),
        is_log: false,
        series: vec![
            Series { name: "here".to_string(), is_paper: false, points },
            Series { name: "published".to_string(), is_paper: true, points: paper },
        ],
    });
    for (step, (bytes, optimised, naive)) in DOT.into_iter().enumerate() {
        (settings.progress)((6 + step) as f64 / 11.0);
        let ours = cycles_per_message(settings, "dot", bytes)?;
        let stored = cycles_per_message(settings, "dot_naive", bytes)?;
        outcome.rows.push(Row {
            experiment: EXPERIMENT.name,
            claim: format!("dot product, {bytes} bytes of small numbers: words multiplied as they come, against stored first"),
            paper: format!("{} times as fast", figure(optimised / naive)),
            here: format!(
                "{} times ({} against {} cycles)",
                figure(stored / ours),
                figure(ours),
                figure(stored)
            ),
            inside: None,
        });
    }
    Ok(outcome)
}

/// From the first word of the first message in to the last word of the last answer out, by message, with warm caches.
fn cycles_per_message(settings: &Settings<'_>, program: &str, bytes: usize) -> Result<f64, ExperimentError> {
    let mut testbed = testbed(settings, &[program], 1, LINK_CYCLES)?;
    let mut cycles = 0.0;
    // The first round warms up.
    for _ in 0..2 {
        let start = testbed.cycle() + 20_000;
        // Small numbers: the multiplier stops early, in every program alike.
        let words: Vec<u64> = (0..bytes as u64 / 8).collect();
        let requests = vec![Request::of_words(start, address(0), 0, &words); COUNT];
        let times = play(&mut testbed, requests, |_, answer| !answer.is_empty())?;
        let answer_words = (HEADER_BYTES + if program == "stream" { bytes } else { 16 }).div_ceil(8) as f64;
        let last = times.percentile_ns(1.0) * CYCLES_PER_NANOSECOND;
        cycles = (last - 2.0 * LINK_CYCLES as f64 + answer_words) / COUNT as f64;
    }
    Ok(cycles)
}
