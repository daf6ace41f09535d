//! The files and tables of `sim run` and `sim merge`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use highwire_sim::campaign::{Part, Shard};
use highwire_sim::plan::{Plan, Run};
use highwire_sim::report::{self, Measures, Standing};
use serde_json::{Value, json};

use crate::console::{Console, Tone};
use crate::failure::usage;

/// Makes the folder for results before any run.
pub(super) fn make_folder(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)
        .map_err(|error| usage(format!("cannot make the folder {}: {error}", folder.display())))
}

fn write(path: PathBuf, bytes: impl AsRef<[u8]>) -> Result<PathBuf> {
    std::fs::write(&path, bytes).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

fn folder_of(out: &Path, plan: &Plan) -> Result<PathBuf> {
    let folder = out.join(&plan.name);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// Writes `part-3-of-16.json`.
pub(super) fn write_part(out: &Path, plan: &Plan, shard: Shard, part: &Part) -> Result<PathBuf> {
    let name = format!("part-{}.json", shard.to_string().replace('/', "-of-"));
    write(folder_of(out, plan)?.join(name), part.to_json())
}

/// Writes CSV, Parquet, verdicts and page; returns their folder.
pub(super) fn write_results(
    out: &Path,
    plan: &Plan,
    runs: &[Run],
    measures: &[Measures],
    failures: &[String],
) -> Result<PathBuf> {
    let folder = folder_of(out, plan)?;
    write(folder.join("runs.csv"), report::csv(plan, runs, measures))?;
    write(folder.join("runs.parquet"), report::parquet(plan, runs, measures)?)?;
    let document = serde_json::to_string_pretty(&document(plan, runs, measures, failures))?;
    write(folder.join("result.json"), document + "\n")?;
    write(folder.join("report.html"), report::page(plan, runs, measures, failures))?;
    Ok(folder)
}

/// Prints the tables, and the places of the other results.
pub(super) fn show(
    plan: &Plan,
    runs: &[Run],
    measures: &[Measures],
    folder: &Path,
    console: &mut Console,
) -> Result<()> {
    console.line(console.paint(Tone::Heading, &format!("{}: {}", plan.figure, plan.title)))?;
    console.line(report::table(plan, runs, measures))?;
    let verdicts = report::judge(plan, runs, measures);
    if !verdicts.is_empty() {
        let text = report::verdicts(&verdicts);
        for (line, verdict) in text.lines().zip(std::iter::once(None).chain(verdicts.iter().map(Some))) {
            let tone = match verdict {
                None => Tone::Faint,
                Some(verdict) => match verdict.standing() {
                    Standing::Inside => Tone::Good,
                    Standing::Undecided => Tone::Faint,
                    Standing::Outside => Tone::Bad,
                },
            };
            console.line(console.paint(tone, line))?;
        }
        console.line("")?;
    }
    console.line(format!("{}", folder.join("report.html").display()))?;
    console.line("")
}

/// The same for programs.
pub(super) fn document(plan: &Plan, runs: &[Run], measures: &[Measures], failures: &[String]) -> Value {
    let verdicts = report::judge(plan, runs, measures);
    let verdicts = verdicts.iter().map(|verdict| {
        let bound = |value: f64| Some(value).filter(|value| value.is_finite());
        let band = verdict.expectation.band;
        let here = verdict.here.iter().map(|here| {
            json!({
                "points": here.points,
                "value": here.value,
                "shown": verdict.expectation.quantity.show(here.value, verdict.metric),
                "seeds_low": here.range.0,
                "seeds_high": here.range.1,
                "interval": here.interval.map(|(low, high)| [low, high]),
                "seeds": here.seeds,
                "standing": here.standing.name(),
            })
        });
        json!({
            "claim": verdict.expectation.claim,
            "scheme": plan.schemes[verdict.expectation.scheme].name,
            "over": verdict.expectation.over.map(|over| &plan.schemes[over].name),
            "metric": verdict.metric.name(),
            "measure": verdict.metric.title(),
            "paper": verdict.expectation.paper,
            "band": [bound(band.0), bound(band.1)],
            "here": here.collect::<Vec<_>>(),
            "shown": verdict.show_here(),
            "interval": verdict.show_interval(),
            "seeds": verdict.seeds(),
            "standing": verdict.standing().name(),
            "is_inside": verdict.is_inside(),
        })
    });
    json!({
        "plan": plan.name,
        "figure": plan.figure,
        "title": plan.title,
        "runs": runs.len(),
        "missing": missing(plan, runs, failures),
        "seeds": plan.seeds,
        "failures": failures,
        "verdicts": verdicts.collect::<Vec<_>>(),
    })
}

/// Points and schemes of which no run is there and none has failed: a campaign has not come to them yet.
fn missing(plan: &Plan, runs: &[Run], failures: &[String]) -> usize {
    let there: BTreeSet<(usize, &[usize])> =
        runs.iter().map(|run| (run.scheme, run.points.as_slice())).collect();
    let all = plan.schemes.len() * plan.combinations().len();
    all.saturating_sub(there.len() + failures.len())
}
