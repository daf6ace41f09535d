//! `highwire sim run`: plays plans and prints their results.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, bail};
use highwire_sim::campaign::{Campaign, Part, Played, Shard};
use highwire_sim::plan::{Plan, Scale};
use highwire_stdx::words::{counted, named};

use super::flows::{FlowFiles, Form};
use super::kept::Kept;
use super::{output, plans};
use crate::console::Console;
use crate::failure::usage;
use crate::progress::Progress;

/// Options of `highwire sim run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  highwire sim run fig01
  highwire sim run experiments/irn/fig01.toml --full --threads 2
  highwire sim run my-plan.toml --seeds 20 --out results/
  highwire sim run my-plan.toml --flows parquet                a row per flow, too: results/my-plan/flows
  highwire sim run my-plan.toml --shard 3/16 --out results/    then: highwire sim merge results/
  highwire sim run fig01 --full --resume                       and the same again after an interruption
  highwire sim run fig01 --full --kept                         what has been played of it so far")]
pub(super) struct Args {
    /// Files, or names from `highwire sim list`. What several have in common is played once.
    #[arg(required = true)]
    plans: Vec<String>,
    /// Where results go, a folder per plan.
    #[arg(long, value_name = "DIR", default_value = "results")]
    out: PathBuf,
    /// Play each combination so often, instead of what the plan says.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    seeds: Option<u32>,
    /// How many runs at once; as many as there are cores if not given. Results do not depend on it.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// Play only the i-th of n parts.
    #[arg(long, value_name = "i/n")]
    shard: Option<Shard>,
    /// Keep every finished run in DIR/.runs, and play only those that are not there yet. Runs of another program, plan or
    /// seed do not count.
    #[arg(long)]
    resume: bool,
    /// Play nothing: report the runs that `--resume` has kept so far, of this program and these plans.
    #[arg(long, conflicts_with_all = ["resume", "shard"])]
    kept: bool,
    /// Write also the flows of each run, a row per flow: DIR/PLAN/flows/RUN.FORM.
    #[arg(long, value_name = "FORM", conflicts_with_all = ["resume", "kept"])]
    flows: Option<Form>,
    /// At the paper's scale instead of the small one.
    #[arg(long)]
    full: bool,
    /// Print the result as JSON, a document per plan.
    #[arg(long)]
    json: bool,
    /// Print no tables: results go to files only, or with --json to the output.
    #[arg(short, long)]
    quiet: bool,
}

/// Plays the plans.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let scale = if args.full { Scale::Full } else { Scale::Small };
    let mut loaded =
        args.plans.iter().map(|word| plans::load_reviewed(word, scale)).collect::<Result<Vec<_>>>()?;
    for plan in &mut loaded {
        plan.seeds = args.seeds.unwrap_or(plan.seeds);
    }
    if let Some(name) = doubled(&loaded) {
        return Err(usage(format!("two plans are called {name}, and results go by that name")));
    }
    let shard = args.shard.unwrap_or(Shard::WHOLE);
    output::make_folder(&args.out)?;
    let kept = (args.resume || args.kept).then(|| Kept::open(&args.out)).transpose()?;
    let mut campaign = Campaign::new(&loaded, shard);
    if let Some(kept) = &kept {
        campaign = campaign.with_archive(kept);
    }
    let flows = args.flows.map(|form| FlowFiles::new(&args.out, form));
    if let Some(flows) = &flows {
        campaign = campaign.with_witness(flows);
    }
    if args.kept {
        campaign = campaign.only_kept();
        if campaign.kept_count() == 0 {
            bail!("no run of these plans by this program is kept in {}", args.out.join(".runs").display());
        }
    }
    campaign.check().map_err(|error| usage(error.to_string()))?;
    let campaign = campaign;
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let threads = args.threads.map_or_else(cores, |threads| threads as usize);
    let started = Instant::now();
    let mut progress = Progress::new("simulating", campaign.work());
    if args.resume || args.kept {
        let (kept, all) = (campaign.kept_count(), campaign.job_count());
        eprintln!("{kept} of {all} runs have been played before");
        progress = progress.with_lines();
    }
    let mut finished = Vec::new();
    // Runs that have ended are reported, whatever has become of the others.
    let write = |place: usize, played: Played| {
        let plan = &loaded[place];
        if args.kept && played.runs.is_empty() {
            return;
        }
        let failures: Vec<String> = played.failures.iter().map(|(_, error)| error.to_string()).collect();
        let written = if shard.is_whole() {
            output::write_results(&args.out, plan, &played.runs, &played.measures, &failures)
        } else {
            output::write_part(&args.out, plan, shard, &Part::new(plan, shard, played.clone()))
        };
        finished.push((place, played, failures, written));
    };
    campaign.play(threads, |status| progress.at(status.done, Instant::now()), write);
    drop(progress);
    finished.sort_by_key(|(place, ..)| *place);
    let mut console = Console::new();
    let mut failures = Vec::new();
    for (place, played, failed, written) in finished {
        let plan = &loaded[place];
        match written {
            Err(error) => failures.push(format!("{error:#}")),
            Ok(path) if !shard.is_whole() => {
                console.line(format!("{}: part {shard} is in {}", plan.name, path.display()))?;
            }
            Ok(folder) => show(plan, &played, &failed, &folder, args, &mut console)?,
        }
        failures.extend(failed);
    }
    if !args.json {
        let seconds = started.elapsed().as_secs_f64();
        let played = if args.kept { 0 } else { campaign.job_count() - campaign.kept_count() };
        let (runs, threads) = (named(played as u64, "run"), counted(threads as u64, "thread"));
        console.line(format!("{played} {runs} in {seconds:.1} s on {threads}"))?;
    }
    console.finish()?;
    if let Some(Err(error)) = flows.map(FlowFiles::finish) {
        failures.push(format!("{error:#}"));
    }
    if failures.is_empty() { Ok(ExitCode::SUCCESS) } else { bail!(failures.join("\nerror: ")) }
}

fn show(
    plan: &Plan,
    played: &Played,
    failures: &[String],
    folder: &Path,
    args: &Args,
    console: &mut Console,
) -> Result<()> {
    if args.json {
        return console.json_line(&output::document(plan, &played.runs, &played.measures, failures));
    }
    if args.quiet {
        return Ok(());
    }
    output::show(plan, &played.runs, &played.measures, folder, console)
}

fn doubled(plans: &[Plan]) -> Option<&str> {
    let is_again = |(place, plan): (usize, &Plan)| plans[..place].iter().any(|other| other.name == plan.name);
    let place = plans.iter().enumerate().position(is_again)?;
    Some(&plans[place].name)
}
