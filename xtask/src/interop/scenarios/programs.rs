//! Unmodified programs, one end over the drop-in libraries and the other over the kernel, connected by `rdma_cm`.
//!
//! Here no agent takes part: both ends are Debian's programs, and their exit codes tell whether they
//! succeeded. Requests, replies and disconnections on queue pair 1 are in the capture like everything else.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::super::agent::Agent;
use super::super::namespace::{GUEST_ADDRESS, HOST_ADDRESS};
use super::super::peer;
use super::end::Side;
use crate::libs;
use crate::shell::target_dir;

/// A pair of programs.
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) checks: &'static str,
    server: &'static str,
    /// `{}` is the server's address.
    client: &'static str,
}

const fn program(
    name: &'static str,
    checks: &'static str,
    server: &'static str,
    client: &'static str,
) -> Program {
    Program { name, checks, server, client }
}

pub(super) const ALL: &[Program] = &[
    program(
        "program rping",
        "ten READs and WRITEs of announced memory, verified",
        "rping -s -C 10 -V",
        "rping -c -a {} -C 10 -V",
    ),
    program(
        "program ucmatose",
        "four connections at once, ten messages each way, disconnection",
        "ucmatose -c 4 -C 10 -S 2000",
        "ucmatose -s {} -c 4 -C 10 -S 2000",
    ),
    program(
        "program rstream",
        "rsockets: a stream over WRITEs with immediate",
        "rstream -S 4096 -I 10 -C 10",
        "rstream -s {} -S 4096 -I 10 -C 10",
    ),
    program("program ib_send_lat -R", "perftest", "ib_send_lat -R -n 100", "ib_send_lat -R -n 100 {}"),
    program("program ib_write_lat -R", "perftest", "ib_write_lat -R -n 100", "ib_write_lat -R -n 100 {}"),
    program("program ib_read_lat -R", "perftest", "ib_read_lat -R -n 100", "ib_read_lat -R -n 100 {}"),
    program("program ib_send_bw -R", "perftest", "ib_send_bw -R -n 100", "ib_send_bw -R -n 100 {}"),
    program("program ib_write_bw -R", "perftest", "ib_write_bw -R -n 100", "ib_write_bw -R -n 100 {}"),
];

/// How long a program may take. The emulated processor is slow, and on a busy machine its clock, calibrated
/// in its first milliseconds, has been seen to go more than twice as fast as the machine's.
const LIMIT_SECONDS: u32 = 120;
/// The wrapper that ends a server here.
pub(super) const UNTIL_KILLED: &str = "setpriv --pdeathsig KILL --";
/// How long a server may go on without its client.
const SERVER_ENDS_WITHIN: Duration = Duration::from_secs(20);
/// How often a client is started again whose server does not listen yet.
const ATTEMPTS: u32 = 5;

/// Builds the libraries; returns their files. The broker of their address is the program that other scenarios
/// use.
pub(in super::super) fn build() -> Result<Vec<PathBuf>> {
    let folder = libs::build(false)?.context("the drop-in libraries do not build")?;
    Ok(["libibverbs.so.1", "librdmacm.so.1"].iter().map(|name| folder.join(name)).collect())
}

/// The wrapper that ends a client here.
pub(super) fn within_limit() -> String {
    format!("timeout {LIMIT_SECONDS}")
}

/// Runs a pair, `client` on its side and the server on the other.
pub(super) fn play(program: &Program, client: Side) -> Result<()> {
    match client {
        Side::Kernel => to_highwire(
            here(program.server.split(' '), UNTIL_KILLED),
            &program.client.replace("{}", HOST_ADDRESS),
            || Ok(()),
        ),
        Side::Highwire | Side::Java => to_kernel(
            program.server,
            ("/usr/bin/rdma resource show cm_id", "LISTEN"),
            here(program.client.replace("{}", GUEST_ADDRESS).split(' '), &within_limit()),
        ),
    }
}

/// A server in the guest, which listens when a command there prints a text, and a client here.
pub(super) fn to_kernel(server: &str, listens: (&str, &str), mut client: Command) -> Result<()> {
    let mut guest = Agent::connect()?;
    // A server that an earlier attempt has left behind would hold the port.
    let program = server.split(' ').next().unwrap_or(server);
    guest.shell(&format!("killall {program} 2>/dev/null; rm -f /tmp/server.status"))?;
    let server = format!("timeout {LIMIT_SECONDS} {server} > /tmp/server.log 2>&1");
    guest.shell(&format!("( {server}; echo $? > /tmp/server.status ) < /dev/null > /dev/null 2>&1 &"))?;
    let begin = Instant::now();
    while !guest.shell(listens.0)?.contains(listens.1) {
        ensure!(begin.elapsed() < Duration::from_secs(10), "the server in the guest does not listen");
        sleep(Duration::from_millis(50));
    }
    let output = client.output().context("cannot run the client")?;
    let checked = check("client", &output);
    let wait = "for i in $(seq 100); do test -s /tmp/server.status && break; sleep 0.1; done";
    let status = guest.shell(&format!("{wait}; cat /tmp/server.status || true"))?;
    if checked.is_err() || status.trim() != "0" {
        let log = guest.shell("cat /tmp/server.log; dmesg | tail -n 3")?;
        let client =
            checked.err().map_or_else(|| "the client is content".into(), |error| format!("{error:#}"));
        bail!("the server in the guest ended with {}:\n{}\n{client}", status.trim(), last(&log));
    }
    Ok(())
}

/// A server here, which is waited for, and a client in the guest. As it does not know when the server
/// listens, the client tries a few times.
pub(super) fn to_highwire(
    mut server: Command,
    client: &str,
    until_listening: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let mut server = Server(
        server
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("cannot run the server")?,
    );
    if let Err(error) = until_listening() {
        let ended = check("server", &server.end()?).err();
        return Err(ended.unwrap_or(error));
    }
    let mut guest = Agent::connect()?;
    let mut refusals = String::new();
    let mut attempt = 1;
    let said = loop {
        sleep(Duration::from_millis(300));
        match guest.shell(&format!("timeout {LIMIT_SECONDS} {client} 2>&1")) {
            Ok(said) => break said,
            Err(error) if attempt < ATTEMPTS && server.0.try_wait()?.is_none() => {
                attempt += 1;
                refusals += &format!("attempt {attempt} follows: {}\n", last(&format!("{error:#}")));
            }
            Err(error) => {
                let ended = check("server", &server.end()?).err();
                let ended =
                    ended.map_or_else(|| "the server is content".into(), |error| format!("{error:#}"));
                return Err(error.context(format!("the client in the guest; {ended}\n{refusals}")));
            }
        }
    };
    let begin = Instant::now();
    while server.0.try_wait()?.is_none() {
        if begin.elapsed() > SERVER_ENDS_WITHIN {
            let output = server.end()?;
            let (text, errors) =
                (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
            bail!(
                "the server goes on after its client has ended:\n{}\n{}\nthe client:\n{}\n{refusals}",
                last(&text),
                last(&errors),
                last(&said)
            );
        }
        sleep(Duration::from_millis(20));
    }
    check("server", &server.end()?)
}

/// A server that does not outlive the scenario.
struct Server(Child);

impl Server {
    /// Its output; a server that still runs is killed.
    fn end(mut self) -> Result<Output> {
        let _ = self.0.kill();
        let spent = Command::new("true").spawn().context("cannot run true(1)")?;
        Ok(std::mem::replace(&mut self.0, spent).wait_with_output()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have ended by itself; then neither call has anything to do.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program of this machine over the drop-in libraries, within a wrapper that ends it.
pub(super) fn here<'a>(line: impl Iterator<Item = &'a str>, within: &'a str) -> Command {
    let mut words = within.split(' ').chain(line);
    let mut command = Command::new(words.next().expect("splitting yields at least one word"));
    // One folder per run: a broker that has outlived an earlier run has its sockets in that run's namespace.
    let registry: PathBuf = target_dir().join(format!("interop/registry-{}", std::process::id()));
    command
        .args(words)
        .env("LD_LIBRARY_PATH", target_dir().join("debug/highwire-libs"))
        .env("HIGHWIRE_BROKER", peer::program())
        .env("HIGHWIRE_SHM_DIR", registry)
        .env("HIGHWIRE_LOG", "1")
        .env("HIGHWIRE_ADDR", HOST_ADDRESS);
    command
}

fn check(who: &str, output: &Output) -> Result<()> {
    if output.status.success() {
        return Ok(());
    }
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    bail!("Highwire's {who} ended with {}:\n{}\n{}", output.status, last(&text), last(&errors))
}

/// The last lines of a program's output.
fn last(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join("\n")
}
