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
    /// What that command prints, word for word.
    output: String,
    /// What it and others like it print, in sum.
    sum: Option<Table>,
    chart: Option<Chart>,
    /// Files that it has left beside the page: what each is, and its name.
    links: Vec<(&'static str, &'static str)>,
}

impl Stop {
    /// With nothing measured yet.
    fn new(title: &str, meaning: impl Into<String>, command: impl Into<String>) -> Stop {
        Stop {
            title: title.into(),
            meaning: meaning.into(),
            command: command.into(),
            output: String::new(),
            sum: None,
            chart: None,
            links: Vec::new(),
        }
    }

    /// With the output of its command, in which files of the checkout have their names from there.
    fn showing(mut self, output: &str) -> Stop {
        self.output = output.replace(&format!("{}/", root().display()), "");
        self
    }

    /// As a terminal shows it.
    fn to_text(&self) -> String {
        let mut text = format!("$ {}\n{}", self.command, self.output);
        if let Some(sum) = &self.sum {
            text = format!("{}\n\n{IN_SUM}\n{}", text.trim_end(), sum.to_text());
        }
        let mut text = format!("{}\n\n{}\n", text.trim_end(), self.meaning.replace('`', ""));
        for (what, name) in &self.links {
            text += &format!("{what}: target/tour/{name}\n");
        }
        text
    }
}

/// The heading of a table that no single command has printed.
const IN_SUM: &str = "Such commands in sum:";

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
    let mut results = Results(Table::new(&["what", "measured here", "floor or paper", "ratio"]));
    let mut visited = Vec::new();
    for (index, stop) in stops::ALL.iter().enumerate() {
        println!("\n{}. {}", index + 1, stop.title);
        let seen = (stop.visit)(&program, &mut results).with_context(|| stop.title.to_string())?;
        for line in seen.to_text().lines() {
            println!("{}", format!("   {line}").trim_end());
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_gets_neither_markdown_nor_this_machines_folders() {
        let output = format!("wrote {}/target/tour/x.html\n", root().display());
        let mut stop = Stop::new("t", "see `this`", "highwire x").showing(&output);
        stop.sum = Some(Table::new(&["what"]));
        stop.links.push(("the trace", "x.html"));
        let expected = "$ highwire x\nwrote target/tour/x.html\n\nSuch commands in sum:\nwhat\n\nsee this\nthe trace: target/tour/x.html\n";
        assert_eq!(stop.to_text(), expected);
    }
}
