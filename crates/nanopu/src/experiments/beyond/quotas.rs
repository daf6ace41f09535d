//! Quotas of receive buffers: an overload of one context must not cost another its messages.

use super::super::load::{Contexts, Load, Service};
use super::super::serve::{Responses, Server};
use super::super::{ExperimentError, Outcome, Settings, figure};
use super::EXPERIMENT;
use crate::nic::NicConfig;
use crate::node::NodeConfig;

/// Mean cycles between requests: all that the core can bear, and a third more.
const MEANS: [u64; 2] = [1600, 1200];
/// How many of the 64 buffers a context may hold.
const QUOTAS: [Option<usize>; 3] = [None, Some(32), Some(8)];

/// Beyond saturation the less urgent context fills the buffers, and urgent messages find none. A quota costs
/// the other context the messages that would have waited in the buffers.
pub(super) fn run(settings: &Settings<'_>, outcome: &mut Outcome) -> Result<(), ExperimentError> {
    let mut load = Load::new(Service::Fixed(1600), Contexts::Random(2));
    for mean in MEANS {
        let works = load.point(if settings.is_quick { 6_000 } else { 20_000 }, mean);
        for buffers_per_context in QUOTAS {
            let nic = NicConfig { buffers_per_context, ..NicConfig::default() };
            let server = Server::new(settings, "service", NodeConfig { nic, ..NodeConfig::default() })?;
            let found = server.play(works.clone())?;
            let quota =
                buffers_per_context.map_or("no quota".to_string(), |quota| format!("{quota} of 64 buffers"));
            let load = figure(found.load());
            outcome.report(
                EXPERIMENT.name,
                format!("{load} M requests/s, {quota}: urgent thread lost, p99; other thread lost, p50"),
                format!(
                    "{}, {} µs; {}, {} µs",
                    lost(&found, 0),
                    figure(found.p99_of(0)),
                    lost(&found, 1),
                    figure(found.tail(0.5, |work| work.context == 1)),
                ),
            );
            if buffers_per_context == Some(32) {
                let claim = format!("{load} M requests/s, {quota}: urgent messages lost");
                let lost = lost(&found, 0) as f64;
                outcome.check(EXPERIMENT.name, claim, "none hoped for", lost, "messages", (0.0, 0.0));
            }
        }
    }
    Ok(())
}

/// Requests of a context without an answer.
fn lost(responses: &Responses, context: u16) -> usize {
    let meant = responses.works.iter().zip(&responses.cycles).filter(|(work, _)| work.context == context);
    meant.filter(|(_, cycles)| cycles.is_infinite()).count()
}
