//! Valkey with its RDMA module: server, benchmark and command line as their authors publish them, unchanged.
//! Debian's binary packages lack the module, so that it is built from the source package.

mod build;
mod server;
mod table;

use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::shell::Captured;

use super::Workshop;
use super::case::{Case, Link};
use super::ends::folder_of;
use super::judge::last_line;
use super::verdict::Verdict;
use build::{Programs, Trouble};
use server::Server;
pub(super) use table::run;

const GROUP: &str = "valkey";
/// Around a page, around a RDMA module's buffer of 1 MiB, and far below both.
const VALUES: &[usize] = &[1, 63, 1000, 4096, 65_535, 65_537, 1_000_000, 1_048_576];
/// A benchmark sends whole pipelines: so many times 50 clients' 16.
const INCREMENTS: u64 = 128 * 800;
/// Of a client that ends by itself.
const SECONDS_MAX: u32 = 60;
/// How long a killed process's peers may take to notice.
const NOTICE_MAX: Duration = Duration::from_secs(90);
const LOOK_AGAIN: Duration = Duration::from_millis(100);

pub(super) fn add(cases: &mut Vec<Case>) {
    for link in [Link::Shm, Link::Udp] {
        let case = |title: &str, play| Case::special(GROUP, title, link, play);
        cases.push(case("valkey-cli --rdma: values of 1 byte to 1 MiB", values).quick());
        cases.push(case("valkey-benchmark --rdma -c 50 -P 16: each INCR counts once", pipelines).quick());
        cases.push(case("valkey-server --io-threads 2: each INCR counts once", threads));
        cases.push(case("Valkey's own rdma-test --thread 4", own_test));
        cases.push(
            case("valkey-benchmark --rdma -c 16 is killed, the server serves on", client_killed).quick(),
        );
        cases
            .push(case("valkey-server is killed, its clients end and the next server serves", server_killed));
    }
    for link in [Link::Shm, Link::Udp] {
        let title =
            "valkey-benchmark --rdma over a link that goes down and comes back: each INCR counts once";
        cases.push(Case::special(GROUP, title, link, flaps));
    }
    let lossy = Case::special(GROUP, "valkey-cli --rdma: values of 1 byte to 1 MiB", Link::Udp, values);
    cases.push(lossy.options("--loss 1% --seed 7"));
}

/// Plays with a server of the case's own; a problem of the play is the case's failure.
fn with_server(
    workshop: &Workshop,
    case: &Case,
    options: &str,
    play: impl FnOnce(&mut Server<'_>) -> Result<Verdict>,
) -> Result<Verdict> {
    let run = format!("--link {} {}", case.link, case.options);
    with_server_under(workshop, case, (&run, options), play)
}

/// The same, with options of `highwire run` before those of the server.
fn with_server_under(
    workshop: &Workshop,
    case: &Case,
    options: (&str, &str),
    play: impl FnOnce(&mut Server<'_>) -> Result<Verdict>,
) -> Result<Verdict> {
    let programs = match build::programs(&workshop.folder) {
        Ok(programs) => programs,
        Err(Trouble::NoSource(reason)) => return Ok(Verdict::Skipped(reason.clone())),
        Err(Trouble::NoBuild(reason)) => return Ok(Verdict::Fails(reason.clone())),
    };
    let played = start(workshop, case, programs, options).and_then(|mut server| play(&mut server));
    Ok(played.unwrap_or_else(|error| Verdict::Fails(format!("{error:#}"))))
}

fn start<'a>(
    workshop: &'a Workshop,
    case: &Case,
    programs: &'a Programs,
    (run, options): (&str, &str),
) -> Result<Server<'a>> {
    Server::start(workshop, programs, &folder_of(workshop, case), Some(run), options)
}

/// What RDMA has stored is what RDMA and TCP read.
fn values(workshop: &Workshop, case: &Case) -> Result<Verdict> {
    with_server(workshop, case, "", |server| {
        for size in VALUES {
            let value = bytes(*size);
            let key = format!("value-{size}");
            let answer = server.rdma_cli(&["-x", "set", &key], Some(&value))?;
            if answer != b"OK\n" {
                return Ok(Verdict::Fails(format!(
                    "SET of {size} bytes: {}",
                    String::from_utf8_lossy(&answer)
                )));
            }
            let expected = [value.as_slice(), b"\n"].concat();
            if server.rdma_cli(&["get", &key], None)? != expected {
                return Ok(Verdict::Fails(format!("{size} bytes came back otherwise")));
            }
            if server.tcp_cli(&["get", &key])? != expected {
                return Ok(Verdict::Fails(format!("{size} bytes were stored otherwise")));
            }
        }
        Ok(Verdict::Works(format!("{} values, each read over RDMA and over TCP", VALUES.len())))
    })
}

fn pipelines(workshop: &Workshop, case: &Case) -> Result<Verdict> {
    with_server(workshop, case, "", |server| increments(server, INCREMENTS))
}

fn threads(workshop: &Workshop, case: &Case) -> Result<Verdict> {
    with_server(workshop, case, "--io-threads 2", |server| increments(server, INCREMENTS / 4))
}

/// The server's link goes down twice under load, for less than its clients' patience: no request is lost or counted twice.
fn flaps(workshop: &Workshop, case: &Case) -> Result<Verdict> {
    let log = workshop.folder.join(format!("valkey-link-flaps-{}.log", case.link));
    let _ = std::fs::remove_file(&log);
    let scenario = crate::programs::scenario_file("valkey-link-flaps");
    let run =
        format!("--link {} --scenario {} --scenario-log {}", case.link, scenario.display(), log.display());
    let counted = with_server_under(workshop, case, (&run, ""), |server| increments(server, INCREMENTS))?;
    let went_wrong = std::fs::read_to_string(&log).unwrap_or_default();
    Ok(match counted {
        Verdict::Works(note) if went_wrong.lines().count() == 4 => {
            Verdict::Works(format!("{note}, the link down and up twice"))
        }
        Verdict::Works(_) => Verdict::Fails(format!("of the scenario happened only: {went_wrong}")),
        other => other,
    })
}

/// A counter is afterwards as high as requests were answered.
fn increments(server: &Server<'_>, count: u64) -> Result<Verdict> {
    let words = format!("-c 50 -P 16 -n {count} --csv -q incr counter");
    let line = server.benchmark(&words, SECONDS_MAX);
    let output = line.capture()?;
    if !output.success {
        return Ok(Verdict::Fails(trouble(&output)));
    }
    let counted = String::from_utf8(server.tcp_cli(&["get", "counter"])?)?;
    Ok(if counted.trim() == count.to_string() {
        Verdict::Works(format!("{count} requests"))
    } else {
        Verdict::Fails(format!("{count} requests were answered, {} counted", counted.trim()))
    })
}

/// The last that a client has said; one that hangs is ended after a minute, and has said nothing.
fn trouble(output: &Captured) -> String {
    let text = format!("{}{}", output.stdout, output.stderr);
    if text.trim().is_empty() { "it did not end within a minute".into() } else { last_line(&text) }
}

/// Valkey's own test of its module: each thread stores values of random sizes and compares them.
fn own_test(workshop: &Workshop, case: &Case) -> Result<Verdict> {
    with_server(workshop, case, "", |server| {
        let output = server.own_test(SECONDS_MAX).capture()?;
        let compared = output.stdout.lines().filter(|line| line.contains("] GET ") && line.contains("[OK]"));
        Ok(match compared.count() {
            4 if output.success => Verdict::Works("4 threads, every value compared".into()),
            _ => Verdict::Fails(trouble(&output)),
        })
    })
}

/// The server drops the connections of a killed client, and others do not notice.
fn client_killed(workshop: &Workshop, case: &Case) -> Result<Verdict> {
    with_server(workshop, case, "", |server| {
        let before = server.requests()?;
        let mut client = Loaded::start(server)?;
        let connected = eventually(|| Ok(server.connected()? >= 17 && server.requests()? > before + 1000))?;
        client.kill()?;
        if !connected {
            return Ok(Verdict::Fails("16 clients did not connect and send".into()));
        }
        // The connection that asks is one.
        if !eventually(|| Ok(server.connected()? == 1))? {
            return Ok(Verdict::Fails(format!("{} connections stay", server.connected()? - 1)));
        }
        let answer = server.rdma_cli(&["set", "after", "kill"], None)?;
        Ok(match answer.as_slice() {
            b"OK\n" => Verdict::Works("16 connections gone".into()),
            other => Verdict::Fails(String::from_utf8_lossy(other).into_owned()),
        })
    })
}

/// Clients of a killed server end with an error, and the address and port are free for the next one.
fn server_killed(workshop: &Workshop, case: &Case) -> Result<Verdict> {
    with_server(workshop, case, "", |server| {
        let before = server.requests()?;
        let mut client = Loaded::start(server)?;
        if !eventually(|| Ok(server.requests()? > before + 1000))? {
            client.kill()?;
            return Ok(Verdict::Fails("the clients did not send".into()));
        }
        server.kill()?;
        if !eventually(|| Ok(client.0.try_wait()?.is_some()))? {
            client.kill()?;
            return Ok(Verdict::Fails("the clients wait for a server that is gone".into()));
        }
        if client.0.wait()?.success() {
            return Ok(Verdict::Fails("the clients ended as if nothing had happened".into()));
        }
        server.restart()?;
        let answer = server.rdma_cli(&["set", "after", "restart"], None)?;
        Ok(match answer.as_slice() {
            b"OK\n" => Verdict::Works("an error at each client".into()),
            other => Verdict::Fails(String::from_utf8_lossy(other).into_owned()),
        })
    })
}

/// A benchmark that never ends by itself.
struct Loaded(std::process::Child);

impl Loaded {
    fn start(server: &Server<'_>) -> Result<Loaded> {
        let words = "-c 16 -n 1000000000 -q -t set";
        let mut command = server.benchmark(words, 300).command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Ok(Loaded(command.spawn()?))
    }

    /// Kills it and `timeout`, which has started it.
    fn kill(&mut self) -> Result<()> {
        server::kill_group(&mut self.0)
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn eventually(mut look: impl FnMut() -> Result<bool>) -> Result<bool> {
    let deadline = Instant::now() + NOTICE_MAX;
    loop {
        if look()? {
            return Ok(true);
        }
        if Instant::now() > deadline {
            return Ok(false);
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Bytes that differ from place to place, so that none may come twice, too late or not at all.
fn bytes(count: usize) -> Vec<u8> {
    let mut state = count as u64 + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..count).map(|_| next()).collect()
}
