//! The two processes of a turn: a server on one core, a client on another.

use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::peers::Peer;
use crate::shell::Line;

/// How long a server may take to print its address.
const START_PATIENCE: Duration = Duration::from_secs(30);
/// How much longer than its turn a client may take; one without replies gives up before.
const CALL_PATIENCE: Duration = Duration::from_secs(60);
const STOP_PATIENCE: Duration = Duration::from_secs(10);
/// How long a client may take to notice a wrong reply; one that does has ended long before.
const CHECK_MS: u64 = 10_000;
/// A client prints this when the returned bytes are wrong.
const WRONG: &str = "a wrong reply";

/// The parameters of a turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) window: u32,
    pub(super) turn_ms: u64,
}

/// The place of a peer's program, and its cores.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) highwire: &'a Path,
    pub(super) program: &'a Path,
    /// Of the client and of the server.
    pub(super) cores: [usize; 2],
}

/// Plays a turn; returns the client's report.
pub(super) fn play(peer: &Peer, place: Place<'_>, load: Load) -> Result<Value> {
    let server = Server::start(peer, place, load.window, "")?;
    let (is_well, out, errors) = server.call(peer, place, load)?;
    if !is_well {
        bail!("{}", first_line(&errors));
    }
    serde_json::from_str(&out).with_context(|| format!("its client printed no JSON: {out}"))
}

/// Lets the server send one wrong reply, which the client must notice.
pub(super) fn check(peer: &Peer, place: Place<'_>) -> Result<()> {
    let server = Server::start(peer, place, 1, "--wrong-reply 3")?;
    let (is_well, _, errors) = server.call(peer, place, Load { window: 1, turn_ms: CHECK_MS })?;
    judge(is_well, &errors)
}

fn judge(is_well: bool, errors: &str) -> Result<()> {
    if is_well {
        bail!("its client took a wrong reply for a right one");
    }
    if !errors.contains(WRONG) {
        bail!("{}", first_line(errors));
    }
    Ok(())
}

/// The error, among other lines that a library may have printed.
fn first_line(errors: &str) -> String {
    let lines = || errors.lines().filter(|line| !line.trim().is_empty());
    let line = lines().find(|line| line.starts_with("error: ")).or_else(|| lines().next());
    line.unwrap_or("it ended without a word").trim_start_matches("error: ").chars().take(200).collect()
}

fn command(peer: &Peer, place: Place<'_>, words: &str) -> Command {
    let program = place.program.display().to_string();
    let line = match peer.link {
        // The command becomes the program: the process stays the same.
        Some(link) => {
            let run = Line::new(&place.highwire.to_string_lossy()).words(&format!("run --link {link} --"));
            run.arg(&program)
        }
        None => Line::new(&program),
    };
    peer.env.iter().fold(line.words(words), |line, (name, value)| line.env(name, value)).command()
}

struct Server {
    child: Child,
    at: String,
}

impl Server {
    fn start(peer: &Peer, place: Place<'_>, window: u32, more: &str) -> Result<Server> {
        let words = format!("serve --over {} --core {} --window {window} {more}", peer.over, place.cores[1]);
        let mut command = command(peer, place, &words);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut server = Server { child: child.context("it cannot be started")?, at: String::new() };
        let output = server.child.stdout.take().context("its output")?;
        match first_place(output).recv_timeout(START_PATIENCE) {
            Ok(at) => server.at = at,
            Err(mpsc::RecvTimeoutError::Timeout) => bail!("its server says nothing for {START_PATIENCE:?}"),
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                let mut errors = String::new();
                server.child.stderr.take().context("its errors")?.read_to_string(&mut errors)?;
                bail!("its server: {}", first_line(&errors));
            }
        }
        // Its further output is read and discarded, so that it never waits for this process.
        if let Some(mut errors) = server.child.stderr.take() {
            std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
        }
        Ok(server)
    }

    /// Whether the client ended well, what it printed, and its errors.
    fn call(&self, peer: &Peer, place: Place<'_>, load: Load) -> Result<(bool, String, String)> {
        let words = format!(
            "call --over {} --core {} --window {} --turn-ms {} --server-process {} --at",
            peer.over,
            place.cores[0],
            load.window,
            load.turn_ms,
            self.child.id()
        );
        let mut command = command(peer, place, &words);
        command.arg(&self.at).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut client = command.spawn().context("its client cannot be started")?;
        // Both pipes are emptied while the client runs, or it would wait for this process.
        let out = client.stdout.take().map(everything);
        let errors = client.stderr.take().map(everything);
        let ended = wait(&mut client, CALL_PATIENCE + Duration::from_millis(load.turn_ms));
        if ended.is_none() {
            let _ = client.kill();
            let _ = client.wait();
        }
        let text = |thread: Option<std::thread::JoinHandle<String>>| {
            thread.and_then(|thread| thread.join().ok()).unwrap_or_default()
        };
        let (out, errors) = (text(out), text(errors));
        match ended {
            Some(is_well) => Ok((is_well, out, errors)),
            None => bail!("its client does not end: {}", first_line(&errors)),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server ends when its input does.
        drop(self.child.stdin.take());
        if wait(&mut self.child, STOP_PATIENCE).is_none() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Whether the process ended well, if it has ended by then.
fn wait(child: &mut Child, patience: Duration) -> Option<bool> {
    let deadline = Instant::now() + patience;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status.success()),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(10)),
            _ => return None,
        }
    }
}

fn everything(mut from: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = from.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The first `at PLACE`; other output is discarded.
fn first_place(output: ChildStdout) -> mpsc::Receiver<String> {
    let (places, first) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(std::result::Result::ok) {
            if let Some(place) = line.strip_prefix("at ") {
                let _ = places.send(place.to_string());
            }
        }
    });
    first
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::rpc::peers::PEERS;

    #[test]
    fn a_client_passes_only_if_it_names_the_wrong_reply() {
        judge(false, "note: warming up\nerror: a wrong reply to request 3: [5a]\n").expect("it noticed");
        let blind = judge(true, "").expect_err("it did not").to_string();
        assert!(blind.contains("took a wrong reply for a right one"), "{blind}");
        let other = judge(false, "hint: x\nerror: no route to host\nmore").expect_err("another error");
        assert_eq!(other.to_string(), "no route to host");
        assert_eq!(first_line("\n"), "it ended without a word");
    }

    #[test]
    fn a_program_that_does_not_serve_is_an_error_that_says_so() {
        let start = |program: &str| {
            let place = Place { highwire: Path::new("none"), program: Path::new(program), cores: [0, 0] };
            let peer = Peer { link: None, ..PEERS[0] };
            let error = play(&peer, place, Load { window: 1, turn_ms: 1 }).expect_err("it is no server");
            format!("{error:#}")
        };
        assert_eq!(start("/bin/true"), "its server: it ended without a word");
        let absent = start("/nowhere/echo");
        assert!(absent.contains("it cannot be started"), "{absent}");
    }
}
