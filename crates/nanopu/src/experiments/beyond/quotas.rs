//! Quotas of receive buffers: an overload of one context must not cost another its messages.

use super::super::load::{Contexts, Load, Service};
use super::super::serve::{Responses, Server};
use super::super::{ExperimentError, Outcome, Settings, figure};
use super::EXPERIMENT;
use crate::nic::NicConfig;
use crate::node::NodeConfig;

/// Beyond saturation the less urgent context fills the buffers, and urgent messages find none.
pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
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
