//! The paper's experiments: each a function from settings to rows of a table and charts.
//!
//! An experiment reads nothing but its settings: programs and recordings come through [`Files`], so the command line, tests and a
//! browser can run the same code. Figures are responses in simulated time; nothing here depends on the machine.
//!
//! To add one: a file of its own below `experiments/` with a `pub const EXPERIMENT: Experiment`, and a line in [`ALL`].

mod authors_switch;
mod baseline;
mod beyond;
mod bounded;
mod chain;
mod homa;
mod incast;
mod intersection;
mod load;
mod loopback;
mod mica;
mod onesided;
mod raft;
mod replay;
mod scheduling;
mod selection;
mod serve;
mod service;
mod words;

use std::fmt;

use highwire_riscv::Program;

use crate::node::{NodeConfig, NodeEvent};

/// The clock of the prototype.
pub const CYCLES_PER_NANOSECOND: f64 = 3.2;

/// How far our figure may be from one that the authors have printed, in percent. With the same requests,
/// tails still differ by the order of a few of them.
const PRINTED_PERCENT: f64 = 3.0;
/// The same where the figure was read off a curve, which alone is uncertain by one to three percent.
const READ_OFF_PERCENT: f64 = 6.0;
/// The same for a quick run, which plays a part of a point's requests: the tail of a part differs.
const QUICK_PERCENT: f64 = 15.0;

/// A node as the published experiments had it: the prototype, with its second-level cache.
fn prototype() -> NodeConfig {
    NodeConfig::prototype()
}

/// All experiments, in the order of the table.
pub const ALL: &[Experiment] = &[
    loopback::EXPERIMENT,
    words::EXPERIMENT,
    baseline::EXPERIMENT,
    scheduling::EXPERIMENT,
    bounded::EXPERIMENT,
    selection::EXPERIMENT,
    incast::EXPERIMENT,
    homa::EXPERIMENT,
    onesided::EXPERIMENT,
    mica::EXPERIMENT,
    chain::EXPERIMENT,
    intersection::EXPERIMENT,
    raft::EXPERIMENT,
    beyond::EXPERIMENT,
];

/// One experiment.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// The name by which `highwire nanopu figures --only` finds it.
    pub name: &'static str,
    /// What it shows, in a few words.
    pub title: &'static str,
    /// Runs it.
    pub run: fn(&Settings<'_>) -> Result<Outcome, ExperimentError>,
}

/// The settings of an experiment.
#[derive(Clone, Copy)]
pub struct Settings<'a> {
    /// Decides every random choice that the paper does not.
    pub seed: u64,
    /// Fewer points and requests: a minute for all experiments instead of half an hour.
    pub is_quick: bool,
    /// Programs and recordings.
    pub files: &'a dyn Files,
    /// Called with the experiment's progress, from 0 to 1.
    pub progress: &'a dyn Fn(f64),
}

/// Where programs and recordings come from.
pub trait Files {
    /// The program `riscv/programs/<name>.c`, built.
    ///
    /// # Errors
    /// [`ExperimentError::NoProgram`] with the reason, for people.
    fn program(&self, name: &str) -> Result<Program, ExperimentError>;

    /// The text of a recording of the prototype, `firesim/…` or `rtl_runs/…`, unpacked; nothing if there is none.
    ///
    /// Recordings are not part of the repository.
    fn recording(&self, path: &str) -> Option<String>;
}

/// Why an experiment could not be run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExperimentError {
    /// A program could not be built or found: its name, and why.
    NoProgram(String, String),
    /// A program trapped: its name, and where.
    Trapped(String, String),
    /// Something that the experiment relies on does not hold.
    Broken(String),
}

impl ExperimentError {
    /// `program` reported a trap.
    pub fn trapped(program: &str, event: &NodeEvent) -> ExperimentError {
        let text = match event {
            NodeEvent::Trapped { core, pc, trap, .. } => format!("core {core} at {pc:#x}: {trap}"),
            NodeEvent::Sent { .. } => "it sent a packet".to_string(),
        };
        ExperimentError::Trapped(program.to_string(), text)
    }
}

impl fmt::Display for ExperimentError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExperimentError::NoProgram(name, reason) => write!(out, "no program {name}: {reason}"),
            ExperimentError::Trapped(name, reason) => write!(out, "{name} trapped: {reason}"),
            ExperimentError::Broken(reason) => write!(out, "{reason}"),
        }
    }
}

impl std::error::Error for ExperimentError {}

/// One line of the table: a claim, the paper's figure, and ours.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// The experiment's name.
    pub experiment: &'static str,
    /// What is measured.
    pub claim: String,
    /// The paper's figure, with its unit.
    pub paper: String,
    /// Ours.
    pub here: String,
    /// Whether ours is inside the band; nothing where the paper gives no figure.
    pub inside: Option<bool>,
}

/// A chart of lines.
#[derive(Clone, PartialEq, Debug)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// The horizontal axis, with its unit.
    pub across: String,
    /// The vertical axis, with its unit.
    pub up: String,
    /// Whether the vertical axis is logarithmic.
    pub is_log: bool,
    /// The lines.
    pub series: Vec<Series>,
}

/// One line of a chart.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// What it is.
    pub name: String,
    /// Whether the line is the paper's: it is drawn dashed, in the colour of the line before it.
    pub is_paper: bool,
    /// Across and up, in the order of the first.
    pub points: Vec<(f64, f64)>,
}

/// What an experiment found.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Its lines of the table.
    pub rows: Vec<Row>,
    /// Its charts.
    pub charts: Vec<Chart>,
}

impl Outcome {
    /// A line whose figure should lie within `low..=high`, in `unit`. `paper` is the paper's own words for it; the band is put behind them.
    pub fn check(
        &mut self,
        experiment: &'static str,
        claim: impl Into<String>,
        paper: impl Into<String>,
        here: f64,
        unit: &str,
        (low, high): (f64, f64),
    ) {
        self.rows.push(Row {
            experiment,
            claim: claim.into(),
            paper: format!("{} [{}]", paper.into(), band(low, high)),
            here: format!("{} {unit}", figure(here)).trim_end().to_string(),
            inside: Some((low..=high).contains(&here)),
        });
    }

    /// A line with a figure of the paper's that ours is not held to: another program, or another memory.
    fn compare(
        &mut self,
        experiment: &'static str,
        claim: impl Into<String>,
        paper: impl Into<String>,
        here: impl Into<String>,
    ) {
        let row =
            Row { experiment, claim: claim.into(), paper: paper.into(), here: here.into(), inside: None };
        self.rows.push(row);
    }

    /// A line without a figure of the paper's.
    pub fn report(&mut self, experiment: &'static str, claim: impl Into<String>, here: impl Into<String>) {
        let (paper, inside) = ("–".to_string(), None);
        self.rows.push(Row { experiment, claim: claim.into(), paper, here: here.into(), inside });
    }
}

/// The band of `percent` around `value`.
pub fn around(value: f64, percent: f64) -> (f64, f64) {
    (value * (1.0 - percent / 100.0), value * (1.0 + percent / 100.0))
}

fn band(low: f64, high: f64) -> String {
    let show = |value: f64| if value.fract() == 0.0 { value.to_string() } else { figure(value) };
    match (low > f64::NEG_INFINITY, high < f64::INFINITY) {
        (true, true) if low == high => show(low),
        (true, true) => format!("{} to {}", show(low), show(high)),
        (true, false) => format!("at least {}", show(low)),
        _ => format!("at most {}", show(high)),
    }
}

impl Settings<'_> {
    /// The band around a tail that the authors have printed, for the same requests.
    fn around_printed(&self, value: f64) -> (f64, f64) {
        around(value, if self.is_quick { QUICK_PERCENT } else { PRINTED_PERCENT })
    }

    /// The band around a tail that was read off a curve, for the same requests.
    fn around_read_off(&self, value: f64) -> (f64, f64) {
        around(value, if self.is_quick { QUICK_PERCENT } else { READ_OFF_PERCENT })
    }
}

/// A number, rounded for people.
pub fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}
