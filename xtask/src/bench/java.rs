//! Java programs, Highwire's beside others: round trips, and GETs from a memcached; the output of
//! java/benchmarks, as a section of the page.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::{Args, machine};
use crate::java;
use crate::measure::Program;
use crate::measurements;
use crate::packages::{self, Missing};
use crate::shell::{Line, Log, root, target_dir};

const COMPARISON: &str = "highwire.benchmarks.echo.Comparison";

/// The files that `class` of java/benchmarks needs.
struct Programs<'a> {
    program: &'a Program,
    home: PathBuf,
    /// Its libraries, and its classes.
    target: PathBuf,
}

/// Builds java/benchmarks, and installs missing packages for that.
fn build<'a>(program: &'a Program, log: &Log) -> Result<std::result::Result<Programs<'a>, Missing>> {
    let home = match java::tools(log)? {
        Ok(home) => home,
        Err(missing) => return Ok(Err(missing)),
    };
    let target = root().join("java/benchmarks/target");
    // Maven puts libraries beside those of an earlier build, which may be other ones.
    let libraries = target.join("lib");
    if libraries.exists() {
        std::fs::remove_dir_all(&libraries).with_context(|| libraries.display().to_string())?;
    }
    if !java::package("benchmarks", &home, log)? {
        if java::is_unreachable(&log.text()?) {
            let what = "Maven cannot reach its repository, and has not kept what it needs";
            return Ok(Err(Missing(what.into())));
        }
        bail!("the programs in Java do not build: {}", log.path().display());
    }
    Ok(Ok(Programs { program, home, target }))
}

impl Programs<'_> {
    fn line(&self, properties: &[(&str, &str)], class: &str) -> Line {
        let path = format!("{}:{}/lib/*", self.target.join("classes").display(), self.target.display());
        let mut line = Line::new(&self.home.join("bin/java").display().to_string())
            .arg("-cp")
            .arg(path)
            .arg(format!("-Dhighwire.program={}", self.program.path().display()));
        for (name, value) in properties {
            line = line.arg(format!("-Dhighwire.{name}={value}"));
        }
        line.arg(class)
    }
}

/// The table of round trips between JVMs, with the properties of `Comparison` in java/benchmarks, or the
/// missing package.
pub(crate) fn comparison(
    program: &Program,
    properties: &[(&str, &str)],
    log: &Log,
) -> Result<std::result::Result<String, Missing>> {
    let programs = match build(program, log)? {
        Ok(programs) => programs,
        Err(missing) => return Ok(Err(missing)),
    };
    let output = programs.line(properties, COMPARISON).capture()?;
    if !output.success {
        bail!("{COMPARISON}: {}", output.stderr.trim());
    }
    Ok(Ok(output.stdout))
}

/// Measures, prints, and writes the section if it is asked to.
pub(super) fn run(program: &Program, args: &Args) -> Result<ExitCode> {
    let log = Log::create("bench-java")?;
    eprintln!("Maven builds the programs in Java, and cargo the one in Rust");
    let programs = match build(program, &log)? {
        Ok(programs) => programs,
        Err(missing) => bail!("{}", missing.0),
    };
    let rust = Line::cargo("build --quiet --release --package highwire-host --example round_trip");
    if !rust.run_logged(&log)? {
        bail!("the program in Rust does not build: {}", log.path().display());
    }
    if let Err(missing) = packages::ensure(&["memcached"], &log)? {
        bail!("{}", missing.0);
    }
    // Without it JUCX's rows say why they are empty.
    if let Err(missing) = packages::ensure(&[java::UCX], &log)? {
        eprintln!("JUCX {}", missing.0);
    }
    eprintln!("two tables: round trips, then GETs");
    let rust = target_dir().join("release/examples/round_trip").display().to_string();
    let rounds = args.runs.to_string();
    let measure = |class: &str| -> Result<String> {
        let output = programs.line(&[("rust", &rust), ("rounds", &rounds)], class).capture_stdout()?;
        output.with_context(|| format!("{class} failed"))
    };
    let trips = measure(COMPARISON)?;
    let text = format!("On {}\n{trips}\n{}", machine()?, measure("highwire.benchmarks.gets.Gets")?);
    println!("{text}");
    if args.write_docs {
        measurements::JAVA.write(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}
