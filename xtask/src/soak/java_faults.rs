//! Clients of jvRPC that come and go, are interrupted and are killed, under an engine that pauses and is killed. The program is
//! `FaultSoak` of `java/rpc`, whose test is the short form.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::shell::{Line, Log, root, target_dir};
use crate::{debug, java};

/// Options of `cargo xtask soak java-faults`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How long, beside the cycles that warm up.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
    /// Decides in which order the faults of a cycle come, and when threads are interrupted.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Builds the engine and the program, and runs them.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let log = Log::create("soak-java-faults")?;
    let home = match java::tools(&log)? {
        Ok(home) => home,
        Err(missing) => bail!("{}", missing.0),
    };
    let maven = Line::new("mvn")
        .words("-q -B -pl rpc -am -DskipTests test-compile")
        .env("JAVA_HOME", &home)
        .dir(root().join("java"));
    if !debug::program().run_logged(&log)? || !maven.run_logged(&log)? {
        bail!("the programs could not be built: {}", log.path().display());
    }
    let java = root().join("java");
    let classes = ["verbs/target/classes", "rpc/target/classes", "rpc/target/test-classes"]
        .map(|folder| java.join(folder).display().to_string())
        .join(":");
    let program = Line::new(&home.join("bin/java").display().to_string())
        .arg(format!("-Dhighwire.program={}", target_dir().join("debug/highwire").display()))
        .arg("-cp")
        .arg(classes)
        .arg("highwire.rpc.FaultSoak")
        .arg(args.minutes.to_string())
        .arg(args.seed.to_string());
    Ok(if program.run()? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
