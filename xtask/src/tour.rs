//! `cargo xtask tour`: each capability doing its real job, in under two minutes.
//!
//! A stop is something to see: its explanation, the command that a visitor can repeat, and its output. The
//! last part is a table "what · measured here · floor or paper" and a page with the same in pictures.

mod java;
mod nanopu;
mod page;
mod stops;
mod store;
mod wake;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::bench;
use crate::measure::Program;
use crate::shell::{root, target_dir};
use crate::table::Table;

use page::Chart;

/// Options of `cargo xtask tour`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  cargo xtask tour       then open target/tour/index.html")]
pub(crate) struct Args {}

/// One stop of the tour, after it was visited.
pub(crate) struct Stop {
    title: String,
    /// Its meaning, in a sentence or two.
    meaning: String,
    /// The command by which a visitor sees it again.
    command: String,
    /// Output worth showing word for word.
    output: String,
    chart: Option<Chart>,
}

/// The table that the stops fill: what, measured here, floor or paper, and how they compare.
pub(crate) struct Results(Table);

impl Results {
    fn row(&mut self, what: &str, here: &str, against: &str, comparison: &str) {
        self.0.row([what, here, against, comparison].map(String::from));
    }
}

/// Visits every stop.
pub(crate) fn run(_args: &Args) -> Result<ExitCode> {
    let started = Instant::now();
    println!("building the program (release) …");
    let program = Program::build()?;
    let mut results = Results(Table::new(&["what", "measured here", "floor or paper", ""]));
    let mut visited = Vec::new();
    for (index, stop) in stops::ALL.iter().enumerate() {
        println!("\n{}. {}", index + 1, stop.title);
        let seen = (stop.visit)(&program, &mut results).with_context(|| stop.title.to_string())?;
        println!("   $ {}", seen.command);
        for line in seen.output.lines() {
            println!("   {line}");
        }
        println!("   {}", seen.meaning);
        visited.push(seen);
    }
    println!("\n{}", results.0.to_text());
    let page = write_page(&visited, &results.0)?;
    let shown = page.strip_prefix(root()).unwrap_or(&page).display();
    println!("{shown} shows the same in pictures; the tour took {:.0} s", started.elapsed().as_secs_f64());
    Ok(ExitCode::SUCCESS)
}

fn write_page(stops: &[Stop], results: &Table) -> Result<PathBuf> {
    let folder = target_dir().join("tour");
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let path = folder.join("index.html");
    let html = page::render(stops, results, &bench::machine()?);
    std::fs::write(&path, html).with_context(|| path.display().to_string())?;
    Ok(path)
}
