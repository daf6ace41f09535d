//! Cut-through against storing: loopback by size.

use super::super::{Chart, ExperimentError, Outcome, Series, Settings, figure, loopback};
use super::EXPERIMENT;
use crate::nic::{CutThrough, NicConfig};
use crate::node::NodeConfig;

/// Programs that send messages back: the loops that are compared with the paper, and a copy of a word a
/// cycle.
const PROGRAMS: [&str; 2] = ["loopback", "relay"];

/// A message is stored three times: in reassembly, by the core's copy, and in packetization. Two of them can go.
pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    let nic = NicConfig { cut_through: Some(CutThrough::default()), ..NicConfig::default() };
    let cutting = NodeConfig { nic, ..NodeConfig::default() };
    let mut series = Vec::new();
    for program in PROGRAMS {
        let (mut stored, mut cut) = (Vec::new(), Vec::new());
        for bytes in [16, 64, 256, 1024] {
            let (_, before) = loopback::latency(settings, program, bytes, &NodeConfig::default())?;
            let (_, after) = loopback::latency(settings, program, bytes, &cutting)?;
            let claim =
                format!("cut-through: {bytes} bytes through {program}, first word in to last word out");
            let here = format!("{} cycles, stored {}", figure(after), figure(before));
            outcome.report(EXPERIMENT.name, claim, here);
            stored.push((bytes as f64, before));
            cut.push((bytes as f64, after));
        }
        for (name, points) in [("stored", stored), ("cut-through", cut)] {
            series.push(Series { name: format!("{program}, {name}"), is_paper: false, points });
        }
    }
    outcome.charts.push(Chart {
        title: "Loopback with cut-through".to_string(),
        across: "bytes".to_string(),
        up: "cycles".to_string(),
        is_log: false,
        series,
    });
    Ok(())
}
