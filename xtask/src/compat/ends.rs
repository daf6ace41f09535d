//! Runs the one or two ends of a case: starts them, waits, ends those that do not end, and keeps their
//! output.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::shell::{Line, has_program};

use super::Workshop;
use super::case::{Case, Link, Ready, Script, fresh_port};
use super::outcome::{End, Outcome};
use super::verdict::Verdict;

const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// How long a server may take to listen.
const READY_MAX: Duration = Duration::from_secs(10);
/// The pause for a server whose readiness does not show.
const SETTLE: Duration = Duration::from_millis(500);
/// How often a client that came too early tries again: on a busy machine a server may take seconds to listen.
const ATTEMPTS: u32 = 10;
/// How long a server may take to end after its client.
const GRACE: Duration = Duration::from_secs(5);

/// A case with all placeholders filled in.
pub(super) struct Running<'a> {
    workshop: &'a Workshop,
    case: &'a Case,
    port: u16,
    /// The folder for the case's outputs and files.
    pub(super) folder: PathBuf,
}

/// Runs a case to its end, or to the end of its time.
pub(super) fn run(workshop: &Workshop, case: &Case) -> Result<Verdict> {
    if let Script::Special(play) = case.script {
        return play(workshop, case);
    }
    let running = Running::new(workshop, case)?;
    if let Some(program) = running.missing_program() {
        return Ok(Verdict::Skipped(format!("no program {program} here")));
    }
    let outcome = play(&running)?;
    Ok(match outcome.trouble() {
        Some(trouble) => Verdict::Fails(trouble),
        None => match (case.judge)(&outcome) {
            Ok(note) => Verdict::Works(note),
            Err(reason) => Verdict::Fails(reason),
        },
    })
}

impl<'a> Running<'a> {
    pub(super) fn new(workshop: &'a Workshop, case: &'a Case) -> Result<Running<'a>> {
        let folder = folder_of(workshop, case);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        Ok(Running { workshop, case, port: fresh_port(), folder })
    }

    /// The first program that is not installed.
    pub(super) fn missing_program(&self) -> Option<String> {
        let texts = match &self.case.script {
            Script::One(text) => vec![text],
            Script::Two { server, client, .. } => vec![server, client],
            Script::Special(_) => vec![],
        };
        let program = |text: &String| {
            let mut words = text.split_whitespace().filter(|word| *word != "env" && !word.contains('='));
            words.next().map(String::from)
        };
        texts
            .into_iter()
            .filter_map(program)
            .find(|name| !has_program(name) && !std::path::Path::new(name).is_file())
    }

    fn filled(&self, text: &str) -> String {
        text.replace("{port}", &self.port.to_string())
            .replace("{address}", "127.0.0.1")
            .replace("{device}", &self.workshop.address)
            .replace("{folder}", &self.folder.to_string_lossy())
    }

    /// Starts one end in a process group of its own.
    fn start(&self, side: &str, text: &str) -> Result<Started> {
        let text = self.filled(text);
        let link = match self.case.link {
            Link::Auto => String::new(),
            link => format!("--link {link}"),
        };
        let line = Line::new(&self.workshop.highwire.to_string_lossy())
            .words("run")
            .words(&link)
            .words(&self.filled(self.case.options))
            .arg("--");
        let (line, shown) = match text.split_once("sh -c ") {
            Some((before, script)) => {
                (line.words(before).words("sh -c").arg(script.trim_matches('\'')), text.clone())
            }
            None => (line.words(&text), text.clone()),
        };
        let path = self.folder.join(format!("{side}.txt"));
        let output = File::create(&path).with_context(|| path.display().to_string())?;
        std::fs::write(self.folder.join(format!("{side}.command")), format!("{line}\n{shown}\n"))?;
        let mut command: Command = line.command();
        if let Some(preload) = &self.workshop.preload {
            // `highwire run` puts its own in front.
            command.env("LD_PRELOAD", preload);
        }
        command
            .env("HIGHWIRE_SHM_DIR", &self.workshop.registry)
            .env("HIGHWIRE_LIBS", &self.workshop.libraries)
            .env("HIGHWIRE_ADDR", &self.workshop.address)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .process_group(0);
        let begun = Instant::now();
        let child = command.spawn().with_context(|| format!("cannot start {line}"))?;
        Ok(Started { child, path, begun })
    }
}

/// The folder of a case's outputs and files.
pub(super) fn folder_of(workshop: &Workshop, case: &Case) -> PathBuf {
    let name =
        case.line().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect::<String>();
    workshop.folder.join(name)
}

/// Runs a case.
pub(super) fn play(running: &Running<'_>) -> Result<Outcome> {
    let deadline = Instant::now() + Duration::from_secs(running.case.seconds_max);
    let (client, server) = match &running.case.script {
        Script::One(text) => (running.start("output", text)?.finish(deadline)?, None),
        Script::Two { server, client, ready, server_stays } => {
            let mut server = running.start("server", server)?;
            match ready {
                Ready::Port => server.wait_for_port(running.port)?,
                Ready::Soon => sleep(SETTLE),
            }
            let mut attempt = running.start("client", client)?.finish(deadline)?;
            // A client that came before the server listened was refused, and the server has not noticed it.
            for _ in 0..ATTEMPTS {
                if *ready == Ready::Port
                    || !attempt.was_refused()
                    || !server.is_waiting()?
                    || Instant::now() > deadline
                {
                    break;
                }
                sleep(SETTLE);
                attempt = running.start("client", client)?.finish(deadline)?;
            }
            let client = attempt;
            let patience = if *server_stays || !client.worked() { Duration::ZERO } else { GRACE };
            let mut end = server.finish(deadline.min(Instant::now() + patience))?;
            end.was_dismissed = end.status.is_none() && *server_stays;
            (client, Some(end))
        }
        Script::Special(_) => unreachable!("played by itself"),
    };
    Ok(Outcome { client, server, folder: running.folder.clone() })
}

/// A process group that has been started.
struct Started {
    child: Child,
    path: PathBuf,
    begun: Instant,
}

impl Started {
    /// Waits until a program listens on the port, or this end is gone.
    fn wait_for_port(&mut self, port: u16) -> Result<()> {
        let deadline = Instant::now() + READY_MAX;
        while Instant::now() < deadline && self.child.try_wait()?.is_none() && !is_listening(port)? {
            sleep(LOOK_AGAIN);
        }
        Ok(())
    }

    fn is_waiting(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Waits for the end, or kills the group.
    fn finish(mut self, deadline: Instant) -> Result<End> {
        let mut status = self.child.try_wait()?;
        while status.is_none() && Instant::now() < deadline {
            sleep(LOOK_AGAIN);
            status = self.child.try_wait()?;
        }
        let elapsed = self.begun.elapsed();
        // Child processes go with it.
        let group = format!("-{}", self.child.id());
        let _ = Line::new("kill").words("-KILL --").arg(&group).capture();
        self.child.wait()?;
        let bytes = std::fs::read(&self.path).with_context(|| self.path.display().to_string())?;
        Ok(End {
            output: String::from_utf8_lossy(&bytes).into_owned(),
            status,
            was_dismissed: false,
            elapsed,
        })
    }
}

/// Whether any process listens on a TCP port of this machine.
fn is_listening(port: u16) -> Result<bool> {
    const LISTEN: &str = "0A";
    let wanted = format!(":{port:04X}");
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = std::fs::read_to_string(table).unwrap_or_default();
        let mut rows = text.lines().skip(1).map(|row| row.split_whitespace().collect::<Vec<_>>());
        if rows.any(|row| row.len() > 3 && row[1].ends_with(&wanted) && row[3] == LISTEN) {
            return Ok(true);
        }
    }
    Ok(false)
}
