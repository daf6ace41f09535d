//! Java programs, ours beside others: round trips, and GETs from a memcached; what java/benchmarks prints, as a section of the page.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::{Args, PAGE, machine, replace_section};
use crate::java;
use crate::measure::Program;
use crate::packages;
use crate::shell::{Line, Log, root, target_dir};

/// Measures, prints, and writes the section if it is asked to.
pub(super) fn run(program: &Program, args: &Args) -> Result<ExitCode> {
    let log = Log::create("bench-java")?;
    let home = match java::tools(&log)? {
        Ok(home) => home,
        Err(missing) => bail!("{}", missing.0),
    };
    let folder = root().join("java");
    let target = folder.join("benchmarks/target");
    // Maven puts libraries beside those of an earlier build, which may be others.
    let libraries = target.join("lib");
    if libraries.exists() {
        std::fs::remove_dir_all(&libraries).with_context(|| libraries.display().to_string())?;
    }
    eprintln!("Maven builds the programs in Java, and cargo the one in Rust");
    let maven = Line::new("mvn")
        .words("-q -B -pl benchmarks -am -DskipTests package")
        .env("JAVA_HOME", &home)
        .dir(&folder);
    let rust = Line::cargo("build --quiet --release --package highwire-host --example round_trip");
    if !maven.run_logged(&log)? || !rust.run_logged(&log)? {
        bail!("the programs do not build: {}", log.path().display());
    }
    if let Err(missing) = packages::ensure(&["memcached"], &log)? {
        bail!("{}", missing.0);
    }
    // Without it JUCX's rows say why they are empty.
    if let Err(missing) = packages::ensure(&[java::UCX], &log)? {
        eprintln!("JUCX {}", missing.0);
    }
    eprintln!("two tables: round trips, then GETs");
    let measure = |class: &str| -> Result<String> {
        let output = Line::new(&home.join("bin/java").display().to_string())
            .arg("-cp")
            .arg(format!("{}:{}/*", target.join("classes").display(), libraries.display()))
            .arg(format!("-Dhighwire.program={}", program.path().display()))
            .arg(format!("-Dhighwire.rust={}", target_dir().join("release/examples/round_trip").display()))
            .arg(format!("-Dhighwire.rounds={}", args.runs))
            .arg(class)
            .capture_stdout()?;
        output.with_context(|| format!("{class} failed"))
    };
    let trips = measure("highwire.benchmarks.echo.Comparison")?;
    let text = format!("On {}\n{trips}\n{}", machine()?, measure("highwire.benchmarks.gets.Gets")?);
    println!("{text}");
    if args.write_docs {
        let path = root().join(PAGE);
        let page = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        std::fs::write(&path, replace_section(&page, "java", &text)?)
            .with_context(|| path.display().to_string())?;
        println!("{PAGE} is up to date");
    }
    Ok(ExitCode::SUCCESS)
}
