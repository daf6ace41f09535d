//! The JVM's end: a program that speaks the agent's lines (`java/interop`) with mapped queues behind them,
//! beside the process that serves it and speaks RoCEv2. One JVM for all conversations, each of which is a
//! connection to it and has a device of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::agent::Agent;
use super::{peer, work_dir};
use crate::java;
use crate::shell::{Log, root};

/// Builds the Java modules, with a JDK and Maven that are installed if missing. The path of the JDK is kept
/// for [`find`], which runs in another process.
///
/// # Errors
/// They do not compile.
pub(super) fn build() -> Result<()> {
    let log = Log::create("interop-java")?;
    let verdict = match java::tools(&log)? {
        Err(missing) => format!("missing\t{}", missing.0),
        Ok(home) => {
            if java::package("interop,ffm", &home, &log)? {
                format!("home\t{}", home.display())
            } else if java::is_unreachable(&log.text()?) {
                "missing\tMaven cannot reach its repository, and has not kept what it needs".to_owned()
            } else {
                bail!("the JVM's end does not build: {}", log.path().display())
            }
        }
    };
    fs::write(verdict_path()?, verdict).context("cannot keep where the JDK is")
}

fn verdict_path() -> Result<PathBuf> {
    Ok(work_dir()?.join("java"))
}

/// The JDK that [`build`] has found, or why there is none.
pub(super) fn find() -> Result<std::result::Result<PathBuf, String>> {
    let text = fs::read_to_string(verdict_path()?).context("the Java modules were not built")?;
    match text.split_once('\t') {
        Some(("home", home)) => Ok(Ok(home.into())),
        Some((_, reason)) => Ok(Err(reason.to_owned())),
        None => bail!("the file that says where the JDK is has been cut off"),
    }
}

/// A module's compiled classes.
pub(super) fn classes(module: &str) -> String {
    root().join("java").join(module).join("target/classes").display().to_string()
}

/// A JVM and the process that serves it. Both end with this.
pub(super) struct Jvm {
    program: Child,
    engine: Child,
    folder: PathBuf,
}

impl Jvm {
    /// Starts both; the engine uses `address`.
    pub(super) fn start(home: &Path, address: &str) -> Result<Jvm> {
        // Shared memory, and a short name, because Unix-domain sockets need one: one per run.
        let folder = PathBuf::from(format!("/dev/shm/highwire-interop-{}", std::process::id()));
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .with_context(|| format!("cannot make {}", folder.display()))?;
        let mut engine = dies_with_us(&peer::program().display().to_string());
        engine.arg("door").env("HIGHWIRE_ADDR", address).env("HIGHWIRE_SHM_DIR", &folder);
        let (engine, door) = ready(engine, &folder)?;
        let mut program = dies_with_us(&home.join("bin/java").display().to_string());
        // Older releases have nothing to deny yet.
        if java::release_of(home).is_some_and(|release| release >= 24) {
            program.args(["--illegal-native-access=deny", "--sun-misc-unsafe-memory-access=deny"]);
        }
        program
            .arg(format!("-Dhighwire.door={door}"))
            .args(["-cp", &format!("{}:{}", classes("interop"), classes("verbs")), "highwire.interop.Agent"])
            .arg(socket(&folder));
        match ready(program, &folder) {
            Ok((program, _)) => Ok(Jvm { program, engine, folder }),
            Err(error) => {
                let mut engine = engine;
                end(&mut engine);
                Err(error)
            }
        }
    }

    /// A connection to it.
    pub(super) fn agent(&self) -> Result<Agent> {
        Agent::connect_local(&socket(&self.folder))
    }
}

impl Drop for Jvm {
    fn drop(&mut self) {
        end(&mut self.program);
        end(&mut self.engine);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("jvm")
}

fn dies_with_us(program: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--", program]).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// Starts a program and waits for the line that it prints when it is ready.
fn ready(mut command: Command, folder: &Path) -> Result<(Child, String)> {
    let mut child = command.spawn().context("cannot run setpriv")?;
    let mut line = String::new();
    let read = BufReader::new(child.stdout.take().context("its output is piped")?).read_line(&mut line);
    if !matches!(read, Ok(1..)) {
        end(&mut child);
        let _ = fs::remove_dir_all(folder);
        ensure!(read.is_ok(), "cannot read what {command:?} says");
        bail!("{command:?} ended before it was ready");
    }
    Ok((child, line.trim_end().to_owned()))
}

fn end(child: &mut Child) {
    // The process may have ended by itself; then neither call has anything to do.
    let _ = child.kill();
    let _ = child.wait();
}
