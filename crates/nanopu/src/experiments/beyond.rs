//! Beyond the paper: what the prototype does not have, each behind a switch of the configuration, against the same traces.

use super::load::{Contexts, Load, Service};
use super::serve::{Responses, Server};
use super::{Chart, Experiment, ExperimentError, Outcome, Series, Settings, figure, loopback};
use crate::nic::{CutThrough, NicConfig, Selection};
use crate::node::NodeConfig;
use crate::queueing::{self, percentile, response_times};

/// See the module.
pub(super) const EXPERIMENT: Experiment = Experiment { name: "beyond", title: "Beyond the paper", run };

fn run(settings: &Settings<'_>) -> Result<Outcome, ExperimentError> {
    let mut outcome = Outcome::default();
    cut_through(settings, &mut outcome)?;
    (settings.progress)(0.3);
    quotas(settings, &mut outcome)?;
    (settings.progress)(0.8);
    many_cores(settings, &mut outcome);
    Ok(outcome)
}

/// A message is stored three times: in reassembly, by the core's copy, and in packetization. Two of them can go.
fn cut_through(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    let nic = NicConfig { cut_through: Some(CutThrough::default()), ..NicConfig::default() };
    let cutting = NodeConfig { nic, ..NodeConfig::default() };
    let (mut stored, mut cut) = (Vec::new(), Vec::new());
    for bytes in [16, 64, 256, 1024] {
        let (_, before) = loopback::latency(settings, bytes, &NodeConfig::default())?;
        let (_, after) = loopback::latency(settings, bytes, &cutting)?;
        let claim = format!("cut-through: loopback of {bytes} bytes, first word in to last word out");
        let here = format!("{} cycles, stored {}", figure(after), figure(before));
        outcome.report(EXPERIMENT.name, claim, here);
        stored.push((bytes as f64, before));
        cut.push((bytes as f64, after));
    }
    outcome.charts.push(Chart {
        title: "Loopback with cut-through".to_string(),
        across: "bytes".to_string(),
        up: "cycles".to_string(),
        is_log: false,
        series: vec![
            Series { name: "stored".to_string(), is_paper: false, points: stored },
            Series { name: "cut-through".to_string(), is_paper: false, points: cut },
        ],
    });
    Ok(())
}

/// Beyond saturation the less urgent context fills the buffers, and urgent messages find none.
fn quotas(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    let mut load = Load::new(Service::Fixed(1600), Contexts::Random(2));
    let works = load.point(if settings.is_quick { 6_000 } else { 20_000 }, 1200);
    let lost = |responses: &Responses| {
        let urgent = responses.works.iter().zip(&responses.cycles).filter(|(work, _)| work.context == 0);
        urgent.filter(|(_, cycles)| cycles.is_infinite()).count()
    };
    let mut found = Vec::new();
    for buffers_per_context in [None, Some(32)] {
        let nic = NicConfig { buffers_per_context, ..NicConfig::default() };
        let server = Server::new(settings, "service", NodeConfig { nic, ..NodeConfig::default() })?;
        found.push(server.play(works.clone())?);
    }
    let [shared, bounded] = &found[..] else { return Ok(()) };
    let claim = format!("overload, {:.2} M requests/s: urgent messages lost, buffers shared", shared.load());
    outcome.report(EXPERIMENT.name, claim, format!("{}; p99 {} µs", lost(shared), figure(shared.p99_of(0))));
    let claim = "the same, at most 32 of 64 buffers for a context";
    outcome.check(EXPERIMENT.name, claim, "none hoped for", lost(bounded) as f64, "messages", (0.0, 0.0));
    outcome.report(
        EXPERIMENT.name,
        "the same, p99 of the urgent thread",
        format!("{} µs", figure(bounded.p99_of(0))),
    );
    Ok(())
}

/// The bound of JBSQ costs less the more cores there are.
fn many_cores(settings: &Settings<'_>, outcome: &mut Outcome) {
    let mut load = Load::new(Service::Bimodal, Contexts::One);
    let works = load.point(if settings.is_quick { 60_000 } else { 400_000 }, 1000);
    let mean = works.iter().map(|work| work.cycles as f64).sum::<f64>() / works.len() as f64;
    for cores in [32, 64, 256] {
        let p99 = |selection| {
            let mut arrival = 0.0;
            let mut gaps = works.windows(2).map(|pair| (pair[1].sent - pair[0].sent) as f64);
            let span = works.last().map_or(1.0, |work| work.sent as f64) / works.len() as f64;
            let requests: Vec<_> = works
                .iter()
                .enumerate()
                .map(|(hash, work)| {
                    let request =
                        queueing::Request { arrival, service: work.cycles as f64, hash: hash as u64 };
                    arrival += gaps.next().unwrap_or(0.0) / span * mean / (0.8 * cores as f64);
                    request
                })
                .collect();
            percentile(&response_times(selection, cores, &requests), 0.99)
        };
        let (one, two) = (p99(Selection::Jbsq(1)), p99(Selection::Jbsq(2)));
        outcome.report(
            EXPERIMENT.name,
            format!("JBSQ(2) in front of {cores} ideal cores at 0.8 load, p99 over that of one queue"),
            format!("{:+.1} %", 100.0 * (two / one - 1.0)),
        );
    }
}
