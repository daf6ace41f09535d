//! How soon waiting threads get their events: `highwire bench wake` as a table, an event's cost at each pace,
//! and threaded servers beside TCP's and tokio's.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};

use super::{Args, machine};
use crate::measure::Program;
use crate::measurements;
use crate::shell::{Line, Log, root, target_dir};

/// Events at these paces, in microseconds from an answer to the next event.
const PACES: &str = "12,100,1000,10000";

/// Measures, prints, and writes the section if it is asked to.
pub(super) fn run(program: &Program, args: &Args) -> Result<ExitCode> {
    // First, so that a failing build is known before anything has been measured.
    let tokio = tokio_server()?;
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let waking = markdown(program.line(&format!("bench wake --rounds {}", args.runs)))?;
    let bells = markdown(program.line("bench bells"))?;
    let pace = format!("bench wake --pause-us {PACES} --threads 1,16 --rounds {}", args.runs);
    let pace = markdown(program.line(&pace))?;
    let beside = match &tokio {
        Ok(path) => {
            ["one", "many"].map(|how| format!("--beside=tokio-{how}={} {how}", path.display())).to_vec()
        }
        Err(_) => Vec::new(),
    };
    let server = program.line(&format!("bench server --rounds {}", args.runs));
    let serving = markdown(beside.iter().fold(server, |line, word| line.arg(word)))?;
    let about_tokio = match tokio {
        Ok(_) => String::from("`tokio-one`: tasks on one thread; `tokio-many`: on a thread for each core."),
        Err(reason) => format!("tokio is not there: {reason}."),
    };
    let idle = program.json("bench idle")?;
    let share = 100.0 * idle["share"].as_f64().context("no share of a core")?;
    let others = load.split(' ').next().unwrap_or("?");
    let text = format!(
        "On {}with a load of {others} from other programs\n\n{waking}\nTwo threads that sleep wake each other in turns, by each way that two processes have; the time from one to the other:\n\n{bells}\nWhat an event costs beside how soon it is there, at each pace, on two idle cores; with 16 threads, each event is for one drawn at random:\n\n{pace}\n\
         A server with a thread for each connection. {about_tokio}\n\n{serving}\n{} threads that wait for nothing take {share:.3} % of a core.\n",
        machine()?,
        idle["threads"]
    );
    println!("{text}");
    if args.write_docs {
        measurements::WAKE.write(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The output of a command for a page; its progress goes to standard error.
pub(super) fn markdown(line: Line) -> Result<String> {
    let line = line.arg("--markdown");
    eprintln!("{line}");
    let text = line.to_string();
    line.capture_stdout()?.with_context(|| format!("{text}: it says why"))
}

/// Builds the server on tokio, or says why there is none.
fn tokio_server() -> Result<Result<PathBuf, String>> {
    let log = Log::create("bench-tokio")?;
    let target = target_dir().join("comparisons");
    let line = Line::cargo("build --release --package comparisons-wake --target-dir").arg(&target);
    if line.dir(root().join("comparisons")).run_logged(&log)? {
        return Ok(Ok(target.join("release/server-tokio")));
    }
    Ok(Err(format!("it does not build here; the log {} says why", log.name())))
}
