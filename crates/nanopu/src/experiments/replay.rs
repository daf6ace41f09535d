//! The authors' recorded runs, request by request.

use super::load::Work;
use super::serve::{Responses, Server};
use super::{ExperimentError, Outcome, Settings};
use crate::queueing::percentile;

/// A recorded request and the cycles until its answer.
pub(super) type Recorded = (Work, f64);

/// The recorded run of the scheduler at this share of its highest load, in percent, if there are recordings; fewer requests if it must be
/// quick.
pub(super) fn recorded(settings: &Settings<'_>, load: u32) -> Result<Option<Vec<Recorded>>, ExperimentError> {
    let path = format!("firesim/lnic-driven_{load}pc-load/resp_time.csv");
    let Some(text) = settings.files.recording(&path) else { return Ok(None) };
    let mut recorded =
        parse(&text).ok_or_else(|| ExperimentError::Broken(format!("{path} is not what was recorded")))?;
    if settings.is_quick {
        recorded.truncate(3_000);
    }
    Ok(Some(recorded))
}

/// Adds a line per recorded run of the scheduler, where there are recordings.
pub(super) fn rows(
    settings: &Settings<'_>,
    experiment: &'static str,
    outcome: &mut Outcome,
) -> Result<(), ExperimentError> {
    for load in [50, 80, 100] {
        let Some(recorded) = recorded(settings, load)? else { continue };
        let works: Vec<Work> = recorded.iter().map(|(work, _)| *work).collect();
        // With the steps of the recorded one.
        let server = Server::new(settings, "service_replay", super::prototype())?;
        let responses = server.play(works)?;
        row(experiment, load, &recorded, &responses, outcome);
    }
    Ok(())
}

fn row(experiment: &'static str, load: u32, recorded: &[Recorded], here: &Responses, outcome: &mut Outcome) {
    let mut off: Vec<f64> = here.cycles.iter().zip(recorded).map(|(here, (_, there))| here - there).collect();
    off.sort_by(f64::total_cmp);
    let mut sizes: Vec<f64> = off.iter().map(|off| off.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let [half, most, nearly_all] = [0.5, 0.9, 0.99].map(|share| percentile(&sizes, share));
    outcome.check(
        experiment,
        format!("recorded requests at {load} % load, ours minus theirs, median"),
        "0 ± 10 cycles",
        percentile(&off, 0.5),
        &format!("cycles; half within {half:.0}, 90 % within {most:.0}, 99 % within {nearly_all:.0}"),
        (-10.0, 10.0),
    );
    for (context, thread) in [(0, "urgent"), (1, "other")] {
        let mut theirs: Vec<f64> =
            recorded.iter().filter(|(work, _)| work.context == context).map(|&(_, cycles)| cycles).collect();
        theirs.sort_by(f64::total_cmp);
        let ours = |share| here.tail(share, |work| work.context == context);
        let theirs = |share| percentile(&theirs, share) / super::CYCLES_PER_NANOSECOND / 1000.0;
        let others = |tail: &dyn Fn(f64) -> f64| format!("p50 {:.3}, p90 {:.3}", tail(0.5), tail(0.9));
        outcome.check(
            experiment,
            format!("the same, {thread} thread, p99"),
            format!("{:.3} µs ({})", theirs(0.99), others(&theirs)),
            ours(0.99),
            &format!("µs ({})", others(&ours)),
            super::around(theirs(0.99), super::PRINTED_PERCENT),
        );
    }
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
