//! How soon waiting threads have their events: `highwire bench wake` as a table.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::{Args, PAGE, machine, replace_section};
use crate::measure::Program;
use crate::shell::root;

/// Measures, prints, and writes the section if it is asked to.
pub(super) fn run(program: &Program, args: &Args) -> Result<ExitCode> {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let waking = markdown(program, &format!("bench wake --rounds {}", args.runs))?;
    let serving = markdown(program, "bench server")?;
    let idle = program.json("bench idle")?;
    let share = 100.0 * idle["share"].as_f64().context("no share of a core")?;
    let others = load.split(' ').next().unwrap_or("?");
    let text = format!(
        "On {}with a load of {others} from other programs\n\n{waking}\nA server with a thread for each connection:\n\n{serving}\n{} threads that wait for \
         nothing take {share:.3} % of a core.\n",
        machine()?,
        idle["threads"]
    );
    println!("{text}");
    if args.write_docs {
        let path = root().join(PAGE);
        let page = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        std::fs::write(&path, replace_section(&page, "wake", &text)?)
            .with_context(|| path.display().to_string())?;
        println!("{PAGE} is up to date");
    }
    Ok(ExitCode::SUCCESS)
}

fn markdown(program: &Program, words: &str) -> Result<String> {
    let output = program.line(words).arg("--markdown").capture()?;
    if !output.success {
        bail!("highwire {words}: {}", output.stderr.trim());
    }
    Ok(output.stdout)
}
