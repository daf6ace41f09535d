//! `cargo xtask figures`: every figure of the IRN paper on the simulator, and its verdict.
//!
//! One run of the program plays all of its plans, so that runs that figures share are played once. The table
//! is made from the files that the program leaves.
//!
//! At the paper's scale that takes hours, so an interrupted run can be continued: runs are kept in
//! `target/figures-full/COMMIT`, beside a copy of the program that played them, which later builds do not
//! disturb.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::bench::machine;
use crate::measure::Program;
use crate::measurements;
use crate::shell::{Line, target_dir};
use crate::table::Table;

/// Options of `cargo xtask figures`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask figures                           the small scale: under ten minutes on two cores
  cargo xtask figures --only fig01 --only fig09
  cargo xtask figures --full                    the paper's scale: hours; the same again goes on where it was
  cargo xtask figures --full --program 1a2b3c4  with the program of that commit, whose runs are kept
  cargo xtask figures --full --table            play nothing: what has been played, what has not
  cargo xtask figures --write-docs              and put the table into docs/measurements/irn.md")]
pub(crate) struct Args {
    /// Only this plan, by its name in `highwire sim list`; may be given several times, and they are played in this order.
    #[arg(long, value_name = "PLAN")]
    only: Vec<String>,
    /// At the paper's scale.
    #[arg(long)]
    full: bool,
    /// Play each combination so often, instead of what the plan says. An interval of confidence needs several.
    #[arg(long, value_name = "N", default_value_t = 10)]
    seeds: u32,
    /// Runs at once; as many as there are cores if not given.
    #[arg(long)]
    threads: Option<usize>,
    /// Go on with the program of an earlier commit, which was copied when its runs began, instead of building.
    #[arg(long, value_name = "COMMIT", requires = "full")]
    program: Option<String>,
    /// Play nothing, show what has been played.
    #[arg(long)]
    table: bool,
    /// Rewrite the table of docs/measurements/irn.md.
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
    let result = Results::read(&studio.folder, &shown)?;
    println!("\n{}", result.table.to_text());
    println!("{}; a page per plan: {}", result.summary(), studio.folder.join("*/report.html").display());
    if args.write_docs {
        write_docs(&result, &studio.commit, args.full)?;
    }
    Ok(if has_worked { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Studio {
    fn open(args: &Args) -> Result<Self> {
        if let Some(commit) = &args.program {
            let folder = target_dir().join("figures-full").join(commit);
            let path = folder.join("highwire");
            if !path.is_file() {
                bail!("no runs were begun with the program of {commit}: there is no {}", path.display());
            }
            return Ok(Self { program: Program::at(path), commit: commit.clone(), folder });
        }
        println!("building the program (release) …");
        let built = Program::build()?;
        let commit = commit()?;
        if !args.full {
            return Ok(Self { program: built, commit, folder: target_dir().join("figures") });
        }
        let folder = target_dir().join("figures-full").join(&commit);
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

    fn play(&self, args: &Args, plans: &[String]) -> Result<bool> {
        let mut line = self.program.line("sim run --quiet").arg("--out").arg(&self.folder);
        if args.full {
            line = line.words("--full --resume");
        }
        line = line.arg("--seeds").arg(args.seeds.to_string());
        if let Some(threads) = args.threads {
            line = line.arg("--threads").arg(threads.to_string());
        }
        plans.iter().fold(line, |line, plan| line.arg(plan)).run()
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

/// The verdicts of all plans.
struct Results {
    /// Figure, claim, paper, here with its interval, inside or not.
    table: Table,
    inside: usize,
    outside: usize,
    all: usize,
    not_run: Vec<String>,
    /// Fewest and most of a plan.
    seeds: (u64, u64),
}

impl Results {
    fn read(folder: &Path, plans: &[String]) -> Result<Self> {
        let columns = ["figure · claim", "measure", "paper", "here", "inside the band?"];
        let mut results = Self {
            table: Table::new(&columns),
            inside: 0,
            outside: 0,
            all: 0,
            not_run: Vec::new(),
            seeds: (u64::MAX, 0),
        };
        for plan in plans {
            let path = folder.join(plan).join("result.json");
            let Ok(text) = std::fs::read_to_string(&path) else {
                results.table.row([plan, "", "", "not run", "–"].map(String::from));
                results.not_run.push(plan.clone());
                continue;
            };
            let document: Value = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
            results.add(&document)?;
        }
        if results.all == 0 {
            bail!("there is no result in {}", folder.display());
        }
        Ok(results)
    }

    fn add(&mut self, document: &Value) -> Result<()> {
        let seeds = document["seeds"].as_u64().context("a result says how many seeds")?;
        self.seeds = (self.seeds.0.min(seeds), self.seeds.1.max(seeds));
        for verdict in document["verdicts"].as_array().context("a result has verdicts")? {
            let text = |name: &str| verdict[name].as_str().unwrap_or_default().to_string();
            let figure = document["figure"].as_str().unwrap_or_default().trim_start_matches("IRN ");
            let standing = text("standing");
            self.all += 1;
            self.inside += usize::from(standing == "inside");
            self.outside += usize::from(standing == "outside");
            let claim = format!("{figure} · {}", text("claim"));
            let here = text("shown") + &text("interval");
            self.table.row([claim, text("measure"), text("paper"), here, standing]);
        }
        Ok(())
    }

    fn summary(&self) -> String {
        let seeds = match self.seeds {
            (low, high) if low == high => low.to_string(),
            (low, high) => format!("{low} to {high}"),
        };
        let undecided = self.all - self.inside - self.outside;
        let mut text = format!(
            "{} of {} inside the paper's band, {} outside, {undecided} undecided, {seeds} seeds each",
            self.inside, self.all, self.outside
        );
        if !self.not_run.is_empty() {
            text += &format!("; not run: {}", self.not_run.join(", "));
        }
        text
    }
}

fn write_docs(results: &Results, commit: &str, is_full: bool) -> Result<()> {
    let scale = if is_full { "the paper's scale" } else { "the small scale" };
    let text = format!(
        "{}, at {scale}, by the program of commit {commit}, on {}.\n\n{}",
        results.summary(),
        machine()?.trim(),
        results.table.to_folded_markdown("Every figure")
    );
    if is_full { measurements::FIGURES_AT_FULL_SCALE } else { measurements::FIGURES }.write(&text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_what_is_undecided() {
        let mut results = Results {
            table: Table::new(&["figure · claim", "measure", "paper", "here", "inside the band?"]),
            inside: 0,
            outside: 0,
            all: 0,
            not_run: vec!["fig02".into()],
            seeds: (u64::MAX, 0),
        };
        let verdict = |standing: &str| {
            serde_json::json!({ "claim": "c", "measure": "m", "paper": "1 to 2", "shown": "1.5×",
                "interval": " (1.40× to 1.60×)", "standing": standing })
        };
        let verdicts = ["inside", "undecided", "outside", "inside", "undecided"].map(verdict);
        let document = serde_json::json!({ "figure": "IRN Figure 1", "seeds": 10, "verdicts": verdicts });
        results.add(&document).expect("it is a result");
        let expected =
            "2 of 5 inside the paper's band, 1 outside, 2 undecided, 10 seeds each; not run: fig02";
        assert_eq!(results.summary(), expected);
        let text = results.table.to_markdown();
        assert!(text.contains("1.5× (1.40× to 1.60×)") && text.contains("undecided"), "{text}");
    }
}
