//! The speed of RPCs: `highwire bench rpc` as a section of the page.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::{Args, PAGE, machine, replace_section};
use crate::measure::Program;
use crate::shell::root;

/// What is run; the section says so.
const WORDS: &str = "bench rpc --ladder --budget --markdown";

/// Measures, prints, and writes the section if it is asked to.
pub(super) fn run(program: &Program, args: &Args) -> Result<ExitCode> {
    let words = format!("{WORDS} --rounds {}", args.runs);
    let output = program.line(&words).capture()?;
    if !output.success {
        bail!("highwire {words}: {}", output.stderr.trim());
    }
    println!("{}", output.stdout);
    if args.write_docs {
        let path = root().join(PAGE);
        let page = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let text = format!("`highwire {words}`, on {}\n{}", machine()?, output.stdout);
        std::fs::write(&path, replace_section(&page, "rpc", &text)?)
            .with_context(|| path.display().to_string())?;
        println!("{PAGE} is up to date");
    }
    Ok(ExitCode::SUCCESS)
}
