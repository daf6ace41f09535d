//! Connections of jvRPC, in both modes, some of which fail. The program is `ConnectSoak` of `java/rpc`, whose test is the
//! short form.

use std::fs::DirBuilder;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::DirBuilderExt;
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::shell::{Line, Log, root, target_dir};
use crate::{debug, java};

/// Options of `cargo xtask soak java-connects`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How many connections, one after the other.
    #[arg(long, default_value_t = 1_000_000)]
    connects: u64,
}

/// The engine, which ends with this.
struct Engine(Child);

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Builds the engine and the program, and runs them.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let log = Log::create("soak-java-connects")?;
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
    // A registry of its own, so that its files can be counted.
    let folder = std::path::PathBuf::from(format!("/dev/shm/highwire-soak-{}", std::process::id()));
    DirBuilder::new().mode(0o700).create(&folder).with_context(|| folder.display().to_string())?;
    let result = soak(args.connects, &home, &folder);
    let _ = std::fs::remove_dir_all(&folder);
    result
}

fn soak(connects: u64, home: &std::path::Path, folder: &std::path::Path) -> Result<ExitCode> {
    let mut engine = Command::new(target_dir().join("debug/highwire"))
        .arg("serve")
        .env("HIGHWIRE_SHM_DIR", folder)
        .env_remove("HIGHWIRE_ADDR")
        .stdout(Stdio::piped())
        .spawn()
        .map(Engine)
        .context("highwire serve")?;
    let said = engine.0.stdout.take().context("its output")?;
    let mut line = String::new();
    BufReader::new(said).read_line(&mut line)?;
    let door = line.trim_end().rsplit(' ').next().filter(|door| door.starts_with('/')).context("no door")?;
    let java = root().join("java");
    let classes = ["verbs/target/classes", "rpc/target/classes", "rpc/target/test-classes"]
        .map(|folder| java.join(folder).display().to_string())
        .join(":");
    let program = Line::new(&home.join("bin/java").display().to_string())
        .arg("-cp")
        .arg(classes)
        .arg("highwire.rpc.ConnectSoak")
        .arg(door)
        .arg(engine.0.id().to_string())
        .arg(connects.to_string());
    Ok(if program.run()? { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
