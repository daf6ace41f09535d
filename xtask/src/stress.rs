//! `cargo xtask stress`: jcstress on the memory that Java shares with the engine, at length.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::java;
use crate::shell::{Line, Log, root};

/// Options of `cargo xtask stress`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask stress                         every test, in all of jcstress's compilations
  cargo xtask stress --mode tough --test Doorbell")]
pub(crate) struct Args {
    /// How long: jcstress's presets.
    #[arg(long, default_value = "default", value_parser = ["sanity", "quick", "default", "tough", "stress"])]
    mode: String,
    /// Tests whose names match this.
    #[arg(long, default_value = "highwire")]
    test: String,
}

/// Builds the module `concurrency-tests` and runs it with its output on the terminal.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let log = Log::create("stress")?;
    let home = match java::tools(&log)? {
        Ok(home) => home,
        Err(missing) => bail!("{}", missing.0),
    };
    let java = root().join("java");
    let maven = Line::new("mvn")
        .words("-q -B -pl concurrency-tests -am -DskipTests package")
        .env("JAVA_HOME", &home)
        .dir(&java);
    if !maven.run_logged(&log)? {
        bail!("the tests could not be built: {}", log.path().display());
    }
    let target = java.join("concurrency-tests/target");
    let path = target.join("classpath");
    let others = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let stress = Line::new(&home.join("bin/java").display().to_string())
        .arg("-cp")
        .arg(format!("{}:{others}", target.join("classes").display()))
        .arg("org.openjdk.jcstress.Main")
        .arg("-m")
        .arg(&args.mode)
        .arg("-t")
        .arg(&args.test)
        // Its report is a folder of pages.
        .dir(&target);
    Ok(if stress.run()? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
