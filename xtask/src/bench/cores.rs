//! The model of cores against this machine, and its results for machines with more cores: `highwire bench
//! cores` and `highwire sim cores` as tables.

use std::process::ExitCode;

use anyhow::{Context, Result};

use super::wake::markdown;
use super::{Args, machine};
use crate::measure::Program;
use crate::measurements;
use crate::shell::target_dir;

/// Measures, prints, and with `--write-docs` writes the section.
pub(super) fn run(program: &Program, args: &Args) -> Result<ExitCode> {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let costs = target_dir().join("cores.toml");
    let costs = costs.to_str().context("the path of the target folder is not text")?;
    let validate = format!("bench cores --validate --rounds {}", args.runs);
    let validated = markdown(program.line(&validate).arg("--out").arg(costs))?;
    let simulated = markdown(program.line("sim cores").arg("--costs").arg(costs))?;
    let constants = std::fs::read_to_string(costs).context(costs.to_string())?;
    let text = format!(
        "On {}with a load of {} from other programs\n\n{validated}\n**Simulated**, with the constants of this machine ({}):\n\n{simulated}",
        machine()?,
        load.split(' ').next().unwrap_or("?"),
        constants.trim().replace(" = ", " ").replace('\n', ", ")
    );
    println!("{text}");
    if args.write_docs {
        measurements::CORES.write(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}
