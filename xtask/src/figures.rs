//! `cargo xtask figures`: every figure of the IRN paper on the simulator, and where it lands.
//!
//! One run of the program plays all plans that come with it, so that what figures have in common is played once. The table
//! is made from what the program leaves behind.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::bench::{machine, replace_section};
use crate::measure::Program;
use crate::shell::{root, target_dir};
use crate::table::Table;

/// The page that `--write-docs` keeps up to date.
const PAGE: &str = "docs/irn.md";

/// Options of `cargo xtask figures`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask figures                     the small scale: under ten minutes on two cores
  cargo xtask figures fig01 fig09         some of them
  cargo xtask figures --full              the paper's scale: hours
  cargo xtask figures --write-docs        and put the table into docs/irn.md")]
pub(crate) struct Args {
    /// Names from `highwire sim list`; all of them without any.
    plans: Vec<String>,
    /// At the paper's scale.
    #[arg(long)]
    full: bool,
    /// Runs at once; as many as there are cores if not given.
    #[arg(long)]
    threads: Option<usize>,
    /// Rewrite the table of docs/irn.md.
    #[arg(long, conflicts_with = "plans")]
    write_docs: bool,
}

/// Plays the figures and prints the table.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    println!("building the program (release) …");
    let program = Program::build()?;
    let plans = if args.plans.is_empty() { all_plans(&program)? } else { args.plans.clone() };
    let folder = target_dir().join(if args.full { "figures-full" } else { "figures" });
    let mut line = program.line("sim run --quiet").arg("--out").arg(&folder);
    if args.full {
        line = line.arg("--full");
    }
    if let Some(threads) = args.threads {
        line = line.arg("--threads").arg(threads.to_string());
    }
    let has_worked = plans.iter().fold(line, |line, plan| line.arg(plan)).run()?;
    let (table, inside, all) = table(&folder, &plans)?;
    println!("\n{}", table.to_text());
    println!(
        "{inside} of {all} inside the paper's band; a page per plan: {}",
        folder.join("*/report.html").display()
    );
    if args.write_docs {
        write_docs(&table, inside, all, args.full)?;
    }
    Ok(if has_worked { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn all_plans(program: &Program) -> Result<Vec<String>> {
    let list = program.json("sim list")?;
    let plans = list.as_array().context("a list of plans")?;
    Ok(plans.iter().filter_map(|plan| Some(plan["name"].as_str()?.to_string())).collect())
}

/// Figure, claim, paper, here, inside; how many are inside, and of how many.
fn table(folder: &Path, plans: &[String]) -> Result<(Table, usize, usize)> {
    let mut table = Table::new(&["figure · claim", "measure", "paper", "here", "inside the band?"]);
    let (mut inside, mut all) = (0, 0);
    for plan in plans {
        let path = folder.join(plan).join("result.json");
        let Ok(text) = std::fs::read_to_string(&path) else {
            table.row([plan, "", "", "failed", "no"].map(String::from));
            continue;
        };
        let document: Value = serde_json::from_str(&text).with_context(|| path.display().to_string())?;
        for verdict in document["verdicts"].as_array().context("a result has verdicts")? {
            let text = |name: &str| verdict[name].as_str().unwrap_or_default().to_string();
            let figure = document["figure"].as_str().unwrap_or_default().trim_start_matches("IRN ");
            let is_inside = verdict["is_inside"].as_bool().unwrap_or(false);
            all += 1;
            inside += usize::from(is_inside);
            let claim = format!("{figure} · {}", text("claim"));
            let verdict = if is_inside { "yes" } else { "no" }.to_string();
            table.row([claim, text("measure"), text("paper"), text("shown"), verdict]);
        }
    }
    if all == 0 {
        bail!("there is no result in {}", folder.display());
    }
    Ok((table, inside, all))
}

fn write_docs(table: &Table, inside: usize, all: usize, is_full: bool) -> Result<()> {
    let path = root().join(PAGE);
    let page = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let scale = if is_full { "the paper's scale" } else { "the small scale" };
    let text = format!(
        "{inside} of {all} inside the band, at {scale}, on {}.\n\n{}",
        machine()?.trim(),
        table.to_markdown()
    );
    let page = replace_section(&page, if is_full { "figures at full scale" } else { "figures" }, &text)?;
    std::fs::write(&path, page).with_context(|| path.display().to_string())?;
    println!("{PAGE} is up to date");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_its_sections() {
        let page = std::fs::read_to_string(root().join(PAGE)).expect("the page is in the repository");
        for name in ["figures", "figures at full scale"] {
            replace_section(&page, name, "").expect("the section is marked");
        }
    }
}
