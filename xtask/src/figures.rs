//! `cargo xtask figures`: every figure of the IRN paper on the simulator, and its verdict.
//!
//! The program plays all plans together, so that runs that figures share are played once: first one seed of
//! everything, then the second, and so on. Every finished run is kept in a folder for the commit, beside a copy of the
//! program that played it, which later builds do not disturb. So a campaign may be stopped at any moment, and the tables
//! are made of what there is.

mod choices;
mod results;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::bench::machine;
use crate::measure::Program;
use crate::measurements::{self, Section};
use crate::shell::{Line, target_dir};
use choices::choices;
use results::Results;

/// Options of `cargo xtask figures`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask figures                           the small scale with ten seeds: hours on two cores
  cargo xtask figures --seeds 2                 a first look; the same command with more seeds adds those
  cargo xtask figures --only fig01 --only fig09
  cargo xtask figures --full                    the paper's scale: days on two cores
  cargo xtask figures --program 1a2b3c4         go on with the program of that commit, whose runs are kept
  cargo xtask figures --full --shard 3/16       a part, on one of several machines or beside other parts
  cargo xtask figures --full --table            play nothing: what has been played, what has not
  cargo xtask figures --table --write-docs      and put the tables into docs/measurements/irn*.md

A campaign that was stopped goes on where it was: finished runs are kept in target/figures/COMMIT and
target/figures-full/COMMIT, with the program. Parts may share such a folder, or copies of it: afterwards, join the
files of their folders `.runs` and ask for the table.")]
pub(crate) struct Args {
    /// Only this plan, by its name in `highwire sim list`; may be given several times, and they are played in this order.
    #[arg(long, value_name = "PLAN")]
    only: Vec<String>,
    /// At the paper's scale.
    #[arg(long)]
    full: bool,
    /// Play each combination so often, instead of what the plan says. An interval of confidence needs several.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    seeds: u32,
    /// Play only the i-th of n parts.
    #[arg(long, value_name = "i/n", conflicts_with = "write_docs")]
    shard: Option<String>,
    /// Runs at once; as many as there are cores if not given.
    #[arg(long)]
    threads: Option<usize>,
    /// Go on with the program of an earlier commit, which was copied when its runs began, instead of building.
    #[arg(long, value_name = "COMMIT")]
    program: Option<String>,
    /// Play nothing, show what has been played.
    #[arg(long)]
    table: bool,
    /// Rewrite the tables of docs/measurements/irn*.md.
    #[arg(long)]
    write_docs: bool,
}

/// The plans, the program, and the folder of results.
struct Studio {
    program: Program,
    /// The commit that it was built from.
    commit: String,
    folder: PathBuf,
}

/// Plays the figures and prints the table.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let studio = Studio::open(args)?;
    let all = all_plans(&studio.program)?;
    if let Some(unknown) = args.only.iter().find(|plan| !all.contains(plan)) {
        bail!("there is no plan {unknown}; there are {}", all.join(", "));
    }
    let wanted = if args.only.is_empty() { all.clone() } else { args.only.clone() };
    let has_worked = args.table || studio.play(args, &wanted)?;
    // The page shows all plans, whichever this call played.
    let shown = if args.write_docs || args.table { all } else { wanted };
    studio.collect(args, &shown)?;
    let result = Results::read(&studio.folder, &shown)?;
    if result.is_empty() {
        bail!("there is no result in {}", studio.folder.display());
    }
    println!("\n{}", result.table.to_text());
    for plan in OPEN.iter().filter(|plan| shown.iter().any(|name| name == *plan)) {
        if let Some(table) = choices(&studio.folder, plan)? {
            println!("{plan}:\n{}", table.to_text());
        }
    }
    println!("{}; a page per plan: {}", result.summary(), studio.folder.join("*/report.html").display());
    if args.write_docs {
        write_docs(&studio, &shown, args.full)?;
    }
    Ok(if has_worked { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The plans whose points are shown one by one.
const OPEN: [&str; 2] = ["partial-acks", "open-choices"];

impl Studio {
    fn open(args: &Args) -> Result<Self> {
        let group = target_dir().join(if args.full { "figures-full" } else { "figures" });
        if let Some(commit) = &args.program {
            let folder = group.join(commit);
            let path = folder.join("highwire");
            if !path.is_file() {
                bail!("no runs were begun with the program of {commit}: there is no {}", path.display());
            }
            return Ok(Self { program: Program::at(path), commit: commit.clone(), folder });
        }
        println!("building the program (release) …");
        let built = Program::build()?;
        let commit = commit()?;
        let folder = group.join(&commit);
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        // The laboratory plays the runs, and is looked for beside the program.
        for name in ["highwire-lab", "highwire"] {
            let (built, copy) = (built.path().with_file_name(name), folder.join(name));
            if !is_same(&built, &copy) {
                // A running program cannot be written over, but it can be replaced.
                let fresh = folder.join(format!("{name}.new"));
                std::fs::copy(&built, &fresh).with_context(|| fresh.display().to_string())?;
                std::fs::rename(&fresh, &copy).with_context(|| copy.display().to_string())?;
            }
        }
        Ok(Self { program: Program::at(folder.join("highwire")), commit, folder })
    }

    fn line(&self, args: &Args, seeds: u32) -> Line {
        let line = self.program.line("sim run --quiet --out").arg(&self.folder);
        let line = line.arg("--seeds").arg(seeds.to_string());
        if args.full { line.arg("--full") } else { line }
    }

    /// Plays seed after seed, so that a campaign that is stopped has about equally many of each plan.
    fn play(&self, args: &Args, plans: &[String]) -> Result<bool> {
        let mut has_worked = true;
        for seeds in 1..=args.seeds {
            println!("seed {seeds} of {} …", args.seeds);
            let mut line = self.line(args, seeds).arg("--resume");
            if let Some(shard) = &args.shard {
                line = line.arg("--shard").arg(shard);
            }
            if let Some(threads) = args.threads {
                line = line.arg("--threads").arg(threads.to_string());
            }
            // A run that fails keeps no other seed from being played.
            has_worked &= plans.iter().fold(line, |line, plan| line.arg(plan)).run()?;
        }
        Ok(has_worked)
    }

    /// Writes each plan's results from the runs that are kept, whichever call has played them.
    fn collect(&self, args: &Args, plans: &[String]) -> Result<()> {
        let line = self.line(args, args.seeds).arg("--kept");
        let output = plans.iter().fold(line, |line, plan| line.arg(plan)).capture()?;
        if !output.success {
            bail!("{}", output.stderr.trim().trim_start_matches("error: "));
        }
        Ok(())
    }
}

/// The commit of the tree, and whether the tree has been changed since.
pub(crate) fn commit() -> Result<String> {
    let head = Line::new("git").words("rev-parse --short HEAD").capture()?;
    let status =
        Line::new("git").words("status --porcelain --untracked-files=no -- crates Cargo.lock").capture()?;
    let changed = if status.stdout.trim().is_empty() { "" } else { "-changed" };
    Ok(if head.success { format!("{}{changed}", head.stdout.trim()) } else { "unversioned".into() })
}

fn is_same(a: &Path, b: &Path) -> bool {
    matches!((std::fs::read(a), std::fs::read(b)), (Ok(a), Ok(b)) if a == b)
}

fn all_plans(program: &Program) -> Result<Vec<String>> {
    let list = program.json("sim list")?;
    let plans = list.as_array().context("a list of plans")?;
    Ok(plans.iter().filter_map(|plan| Some(plan["name"].as_str()?.to_string())).collect())
}

/// The plans of §4.4, whose table has a page of its own.
fn is_sweep(plan: &str) -> bool {
    ["sweep-", "incast-", "window-cc"].iter().any(|start| plan.starts_with(start))
}

fn write_docs(studio: &Studio, plans: &[String], is_full: bool) -> Result<()> {
    let scale = if is_full { "the paper's scale" } else { "the small scale" };
    let by = format!("at {scale}, by the program of commit {}, on {}.", studio.commit, machine()?.trim());
    let write = |section: Section, title: &str, plans: &[String]| {
        let results = Results::read(&studio.folder, plans)?;
        let table = results.table.to_folded_markdown(title);
        section.write(&format!("{}, {by}\n\n{table}", results.summary()))
    };
    if is_full {
        return write(measurements::FIGURES_AT_FULL_SCALE, "Every figure", plans);
    }
    let (sweeps, figures): (Vec<String>, Vec<String>) =
        plans.iter().cloned().partition(|plan| is_sweep(plan));
    write(measurements::FIGURES, "Every figure", &figures)?;
    write(measurements::SWEEPS, "Every sweep", &sweeps)?;
    for (plan, section) in OPEN.iter().zip([measurements::PARTIAL_ACKS, measurements::OPEN_CHOICES]) {
        if let Some(table) = choices(&studio.folder, plan)? {
            let text =
                format!("The plan `{plan}`, {by}\n\n{}", table.to_folded_markdown("Every combination"));
            section.write(&text)?;
        }
    }
    Ok(())
}
