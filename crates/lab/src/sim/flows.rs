//! Tables of flows, in the form that a file's name says.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use highwire_sim::campaign::Witness;
use highwire_sim::plan::{Plan, Run};
use highwire_sim::report::{self, Column};
use highwire_sim::{Outcome, Scenario};

use crate::failure::usage;

/// How a table is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Form {
    /// Text with commas, a line of names first.
    Csv,
    /// Apache Parquet, for pandas, DuckDB and their like.
    Parquet,
    /// A JSON object per line.
    Jsonl,
}

impl Form {
    /// As the ending of the name says.
    pub(super) fn of(path: &Path) -> Result<Form> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("csv") => Ok(Form::Csv),
            Some("parquet") => Ok(Form::Parquet),
            Some("jsonl" | "ndjson") => Ok(Form::Jsonl),
            _ => Err(usage(format!(
                "{}: the name's ending says how flows are written: .csv, .parquet or .jsonl",
                path.display()
            ))),
        }
    }

    fn ending(self) -> &'static str {
        match self {
            Form::Csv => "csv",
            Form::Parquet => "parquet",
            Form::Jsonl => "jsonl",
        }
    }

    /// Writes the table into a file.
    pub(super) fn write(self, path: &Path, columns: &[Column]) -> Result<()> {
        let bytes = match self {
            Form::Csv => report::to_csv(columns).into_bytes(),
            Form::Parquet => report::to_parquet(columns)?,
            Form::Jsonl => report::to_json_lines(columns).into_bytes(),
        };
        std::fs::write(path, bytes).with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Writes the flows of each run of a campaign into a file of its own, as soon as the run is over.
#[derive(Debug)]
pub(super) struct FlowFiles {
    out: PathBuf,
    form: Form,
    problems: Mutex<Vec<String>>,
}

impl FlowFiles {
    /// Below the folder of results, in `PLAN/flows`.
    pub(super) fn new(out: &Path, form: Form) -> FlowFiles {
        FlowFiles { out: out.into(), form, problems: Mutex::default() }
    }

    fn write(&self, plan: &Plan, run: &Run, columns: &[Column]) -> Result<()> {
        let folder = self.out.join(&plan.name).join("flows");
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        self.form.write(&folder.join(format!("{:05}.{}", run.index, self.form.ending())), columns)
    }

    /// Whether every file was written.
    pub(super) fn finish(self) -> Result<()> {
        let problems = self.problems.into_inner().unwrap_or_default();
        if problems.is_empty() { Ok(()) } else { bail!(problems.join("\nerror: ")) }
    }
}

impl Witness for FlowFiles {
    fn on_outcome(&self, plan: &Plan, run: &Run, scenario: &Scenario, outcome: &Outcome) {
        let columns = report::flow_columns_of(plan, run, scenario, outcome);
        if let Err(error) = self.write(plan, run, &columns)
            && let Ok(mut problems) = self.problems.lock()
        {
            problems.push(format!("{error:#}"));
        }
    }
}
