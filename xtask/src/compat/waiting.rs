//! `cargo xtask compat --waiting`: the gain of unmodified programs from how threads wait: every program under
//! the `event` mode, which is what a completion channel is on a card, and under the others, in turns, on the
//! machine as it is and with a thread that computes on every core.

mod programs;
mod table;

use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::bench::{machine, replace_section};
use crate::shell::{Line, root};

use super::Workshop;
use super::case::Case;
use super::ends::{self, Running};
use programs::Program;

/// The page that keeps the table, and its section there.
const PAGE: &str = "docs/measurements/programs-that-sleep.md";
const SECTION: &str = "waiting";

/// A mode of waiting by name, and the option of `highwire run` for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mode {
    pub(super) name: &'static str,
    option: &'static str,
}

/// The first is the one with which the others are compared.
const MODES: [Mode; 4] = [
    Mode { name: "event", option: "--wake event" },
    Mode { name: "balanced", option: "--wake balanced" },
    Mode { name: "latency", option: "--wake latency" },
    Mode { name: "power", option: "--wake power" },
];
/// Before and after.
const USUAL_MODES: usize = 2;

/// Other threads that want the cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Others {
    /// None of this task's.
    Idle,
    /// A thread on every core that computes.
    Hogs,
}

/// The results of one program under one mode in one company, a value for each round that worked.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) program: usize,
    pub(super) mode: Mode,
    pub(super) others: Others,
    pub(super) values: Vec<f64>,
}

/// What to measure.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    pub(super) rounds: u32,
    /// Every mode, and not only before and after.
    pub(super) all_modes: bool,
    /// Only programs whose line contains this.
    pub(super) only: Option<&'a str>,
    pub(super) write_docs: bool,
}

/// Runs everything in turns, prints the table, and writes it into the page.
///
/// # Errors
/// A program cannot be started. One that fails leaves a hole, and says why.
pub(super) fn run(workshop: &Workshop, plan: &Plan<'_>) -> Result<()> {
    let mut programs = programs::all(workshop)?;
    programs.retain(|program| plan.only.is_none_or(|text| program.case.line().contains(text)));
    if programs.is_empty() {
        bail!("no program contains '{}'", plan.only.unwrap_or_default());
    }
    let modes = if plan.all_modes { &MODES[..] } else { &MODES[..USUAL_MODES] };
    let mut cells = Vec::new();
    for program in 0..programs.len() {
        for others in [Others::Idle, Others::Hogs] {
            cells.extend(modes.iter().map(|mode| Cell { program, mode: *mode, others, values: Vec::new() }));
        }
    }
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let (begin, all) = (Instant::now(), cells.len() * plan.rounds as usize);
    let mut done = 0;
    for _ in 0..plan.rounds {
        for cell in &mut cells {
            let program = &programs[cell.program];
            let value = measure(workshop, program, cell);
            done += 1;
            let left = begin.elapsed().as_secs_f64() / f64::from(done) * (all - done as usize) as f64 / 60.0;
            let company = if cell.others == Others::Idle { "" } else { ", hogs" };
            let shown = match &value {
                Ok(value) => format!("{value:.2} µs"),
                Err(reason) => format!("nothing: {reason}"),
            };
            let what = format!("{}, {}{company}", program.case.line(), cell.mode.name);
            println!("[{done:>3}/{all}, {left:.1} minutes left] {what:<75} {shown}");
            cell.values.extend(value.ok());
        }
    }
    let table = table::of(&programs, modes, &cells);
    println!("\n{}", table.to_text());
    let verdicts = table::verdicts(&programs, &cells);
    println!("{verdicts}");
    if plan.write_docs {
        let path = root().join(PAGE);
        let page = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let text = format!(
            "Medians of {} rounds in µs, on {} with a load of {} from other programs before.\n\n{}\n{verdicts}",
            plan.rounds,
            machine()?.trim(),
            load.split(' ').next().unwrap_or("?"),
            table.to_folded_markdown("All rows"),
        );
        std::fs::write(&path, replace_section(&page, SECTION, &text)?)
            .with_context(|| path.display().to_string())?;
        println!("{PAGE} is up to date");
    }
    Ok(())
}

/// One run; its figure, or in words why there is none.
fn measure(workshop: &Workshop, program: &Program, cell: &Cell) -> Result<f64, String> {
    let case = Case { options: cell.mode.option, ..program.case.clone() };
    let running = Running::new(workshop, &case).map_err(|error| error.to_string())?;
    if let Some(name) = running.missing_program() {
        return Err(format!("no program {name} here"));
    }
    let _hogs = match cell.others {
        Others::Idle => None,
        Others::Hogs => Some(Hogs::start().map_err(|error| error.to_string())?),
    };
    let outcome = ends::play(&running).map_err(|error| error.to_string())?;
    let figure = program.figure.of(&outcome);
    figure.ok_or_else(|| outcome.trouble().unwrap_or_else(|| "it printed no figure".into()))
}

/// A process on every core that computes, until this is dropped.
struct Hogs(Vec<Child>);

impl Hogs {
    fn start() -> Result<Hogs> {
        let mut hogs = Hogs(Vec::new());
        for core in allowed_cores()? {
            // If this program is killed, they end too.
            let line = Line::new("timeout").words("--foreground 120 taskset -c").arg(core.to_string());
            let mut command = line.words("sh -c").arg("while :; do :; done").command();
            command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
            hogs.0.push(command.spawn().context("cannot start taskset")?);
        }
        Ok(hogs)
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            let group = format!("-{}", hog.id());
            let _ = Line::new("kill").words("-KILL --").arg(&group).capture();
            let _ = hog.wait();
        }
    }
}

/// The cores that this process may use.
fn allowed_cores() -> Result<Vec<u32>> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    cores_of(list.context("no list of cores")?.trim())
}

/// `0-3,8`: the cores of a list as the kernel writes it.
fn cores_of(list: &str) -> Result<Vec<u32>> {
    let mut cores = Vec::new();
    for part in list.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cores.extend(first.parse::<u32>()?..=last.parse::<u32>()?);
    }
    Ok(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cores_are_read_as_the_kernel_writes_them() {
        assert_eq!(cores_of("0-2,5,7-8").expect("a list"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(cores_of("3").expect("a list"), [3]);
        assert!(cores_of("").is_err() && cores_of("0-").is_err());
    }

    #[test]
    fn the_page_has_the_section() {
        let page = std::fs::read_to_string(root().join(PAGE)).expect("the page is in the repository");
        replace_section(&page, SECTION, "").expect("the section is marked");
    }
}
