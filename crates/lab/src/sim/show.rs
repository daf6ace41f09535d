//! `highwire sim list`, `check` and `explain`.

use std::process::ExitCode;

use anyhow::Result;
use highwire_sim::campaign::{Campaign, Shard};
use highwire_sim::plan::{Plan, Scale, shipped};
use highwire_stdx::words::named;
use serde_json::json;

use super::plans;
use crate::console::{Console, Tone};
use crate::failure::usage;

/// Options of `highwire sim list`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  highwire sim list")]
pub(super) struct ListArgs {
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Options of `highwire sim check` and `highwire sim explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  highwire sim check my-plan.toml
  highwire sim explain experiments/irn/fig01.toml")]
pub(super) struct PlanArgs {
    /// A file, or a name from `highwire sim list`.
    plan: String,
    /// At the paper's scale instead of the small one.
    #[arg(long)]
    full: bool,
}

/// One line per experiment: name, figure, what it shows.
pub(super) fn list(args: &ListArgs) -> Result<ExitCode> {
    let mut console = Console::new();
    let mut documents = Vec::new();
    for plan in shipped() {
        let read = plans::load(plan.path, Scale::Small)?;
        if args.json {
            documents.push(json!({
                "name": plan.name(), "path": plan.path, "figure": read.figure, "title": read.title, "claim": read.claim,
            }));
        } else {
            let name = console.paint(Tone::Heading, &format!("{:<18}", plan.name()));
            let figure = console.paint(Tone::Faint, &format!("{:<18}", read.figure));
            console.line(format!("{name}{figure}{}", read.title))?;
        }
    }
    if args.json {
        console.json(&documents)?;
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Reads the plan and builds every run without playing it.
pub(super) fn check(args: &PlanArgs) -> Result<ExitCode> {
    let scale = if args.full { Scale::Full } else { Scale::Small };
    let plans = [plans::load_reviewed(&args.plan, scale)?];
    let mut campaign = Campaign::new(&plans, Shard::WHOLE);
    campaign.check().map_err(|error| usage(error.to_string()))?;
    let mut console = Console::new();
    let (all, different) = (campaign.runs(0).len(), campaign.job_count());
    let same = if all == different { String::new() } else { format!(", {different} of them different") };
    console.line(format!("{}: right; {all} {}{same}", plans[0].name, named(all as u64, "run")))?;
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

/// Tells the plan in words.
pub(super) fn explain(args: &PlanArgs) -> Result<ExitCode> {
    let mut console = Console::new();
    console.line(read(args)?.explain().trim_end())?;
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn read(args: &PlanArgs) -> Result<Plan> {
    plans::load(&args.plan, if args.full { Scale::Full } else { Scale::Small })
}
