//! The authors' recorded runs, request by request.

use super::load::Work;
use super::serve::{Responses, Server};
use super::{ExperimentError, Outcome, Settings};
use crate::node::NodeConfig;
use crate::queueing::percentile;

/// A recorded request and the cycles until its answer.
type Recorded = (Work, f64);

/// Adds a line per recorded run of the scheduler, where there are recordings.
pub(super) fn rows(
    settings: &Settings<'_>,
    experiment: &'static str,
    outcome: &mut Outcome,
) -> Result<(), ExperimentError> {
    for load in [50, 80, 100] {
        let path = format!("firesim/lnic-driven_{load}pc-load/resp_time.csv");
        let Some(text) = settings.files.recording(&path) else { continue };
        let mut recorded = parse(&text)
            .ok_or_else(|| ExperimentError::Broken(format!("{path} is not what was recorded")))?;
        if settings.is_quick {
            recorded.truncate(3_000);
        }
        let works: Vec<Work> = recorded.iter().map(|(work, _)| *work).collect();
        // A program as careful as the recorded one.
        let server = Server::new(settings, "service_replay", NodeConfig::default())?;
        let responses = server.play(works)?;
        row(experiment, load, &recorded, &responses, outcome);
    }
    Ok(())
}

fn row(experiment: &'static str, load: u32, recorded: &[Recorded], here: &Responses, outcome: &mut Outcome) {
    let mut off: Vec<f64> = here.cycles.iter().zip(recorded).map(|(here, (_, there))| here - there).collect();
    off.sort_by(f64::total_cmp);
    let median = percentile(&off, 0.5);
    let sizes: Vec<f64> = off.iter().map(|off| off.abs()).collect();
    let claim = format!("recorded requests at {load} % load, ours minus theirs, median");
    let unit = format!(
        "cycles (half within {:.0}, nine in ten within {:.0})",
        percentile(&sizes, 0.5),
        percentile(&sizes, 0.9)
    );
    match load {
        50 => outcome.check(experiment, claim, "0 ± 10 cycles", median, &unit, (-10.0, 10.0)),
        _ => outcome.report(experiment, claim, format!("{} {unit}", super::figure(median))),
    }
    let ours = here.p99_of(0);
    let theirs: Vec<f64> =
        recorded.iter().filter(|(work, _)| work.context == 0).map(|&(_, cycles)| cycles).collect();
    let theirs = percentile(&theirs, 0.99) / super::CYCLES_PER_NANOSECOND / 1000.0;
    outcome.check(
        experiment,
        "the same, p99 of the urgent thread",
        format!("{theirs:.3} µs"),
        ours,
        "µs",
        super::around(theirs, 3.0),
    );
}

fn parse(text: &str) -> Option<Vec<Recorded>> {
    let mut lines = text.lines();
    let names: Vec<&str> = lines.next()?.split(',').collect();
    let column = |name| names.iter().position(|column| *column == name);
    let (context, sent) = (column("context")?, column("sent_time")?);
    let (service, response) = (column("service_time")?, column("resp_time")?);
    let mut recorded: Vec<Recorded> = lines
        .map(|line| {
            let fields: Vec<f64> = line.split(',').map(|field| field.parse().ok()).collect::<Option<_>>()?;
            let field = |place: usize| fields.get(place).copied();
            let work = Work {
                sent: field(sent)? as u64,
                context: field(context)? as u16,
                cycles: field(service)? as u64,
            };
            Some((work, field(response)?))
        })
        .collect::<Option<_>>()?;
    recorded.sort_by_key(|(work, _)| work.sent);
    let first = recorded.first()?.0.sent;
    recorded.iter_mut().for_each(|(work, _)| work.sent -= first);
    Some(recorded)
}
