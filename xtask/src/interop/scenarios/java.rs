//! The conversations of a JVM with the kernel: those of Highwire's other programs, and rdma-core's ping-pong
//! with the one in Java.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::super::agent::Agent;
use super::super::java::{self, Jvm};
use super::super::namespace::{GUEST_ADDRESS, HOST_ADDRESS};
use super::super::outcome::Outcome;
use super::end::{End, Side};
use super::pair::Pair;
use super::programs::{UNTIL_KILLED, here, to_highwire, to_kernel, within_limit};
use super::{ALL, Scenario, Setting, note, play_patiently};

/// Objects that Java's verbs lack: memory windows.
const NOT_IN_JAVA: &[&str] = &["rc send_inv"];

pub(super) const PING_PONG: &str = "java RcPingpong";
pub(super) const PING_PONG_CHECKS: &str =
    "Java over libibverbs, ours, and ibv_rc_pingpong over the kernel's: a hundred messages each way";
const PORT: &str = "18515";
/// How long a JVM may take to listen: far longer than it needs, even on a busy machine.
const LISTENS_WITHIN: Duration = Duration::from_secs(60);

/// Every scenario that a JVM plays, in a network without faults.
pub(super) fn scenarios() -> impl Iterator<Item = &'static Scenario> {
    ALL.iter().filter(|scenario| scenario.setting == Setting::Plain && !NOT_IN_JAVA.contains(&scenario.name))
}

/// The names of both roles of a conversation, and whether one of them contains `only`.
fn roles(name: &str, only: Option<&str>) -> Vec<(String, Side)> {
    let names = [(Side::Java, Side::Kernel), (Side::Kernel, Side::Java)]
        .map(|(requester, responder)| (format!("{name}, {requester} to {responder}"), requester));
    names.into_iter().filter(|(name, _)| only.is_none_or(|text| name.contains(text))).collect()
}

/// Whether one of the JVM's conversations matches `only`.
pub(in super::super) fn is_wanted(only: Option<&str>) -> bool {
    scenarios().map(|scenario| scenario.name).chain([PING_PONG]).any(|name| !roles(name, only).is_empty())
}

/// Plays the conversations whose names contain `only`.
pub(super) fn play(only: Option<&str>, outcome: &mut Outcome) -> Result<()> {
    if !is_wanted(only) {
        return Ok(());
    }
    let home = match java::find()? {
        Ok(home) => home,
        Err(reason) => {
            println!("skipped java: {reason}");
            outcome.skipped.push(("java".into(), reason));
            return Ok(());
        }
    };
    let jvm = Jvm::start(&home, HOST_ADDRESS)?;
    for scenario in scenarios() {
        for (name, requester) in roles(scenario.name, only) {
            let started = Instant::now();
            let result = converse(scenario, requester, &jvm);
            if result.is_err() {
                Agent::connect().context("the guest is gone")?;
            }
            note(outcome, name, scenario.checks, started, result);
        }
    }
    // The port is for the libraries' engine now.
    drop(jvm);
    for (name, client) in roles(PING_PONG, only) {
        play_patiently(outcome, name, PING_PONG_CHECKS, || ping_pong(&home, client))?;
    }
    Ok(())
}

fn converse(scenario: &Scenario, requester: Side, jvm: &Jvm) -> Result<()> {
    let ours = End::open(Side::Java, jvm.agent()?, HOST_ADDRESS)?;
    let kernels = End::open(Side::Kernel, Agent::connect()?, GUEST_ADDRESS)?;
    let mut pair = match requester {
        Side::Java => Pair { requester: ours, responder: kernels },
        Side::Highwire | Side::Kernel => Pair { requester: kernels, responder: ours },
    };
    (scenario.play)(&mut pair)
}

/// Two programs that know of each other only the text of `ibv_rc_pingpong`.
fn ping_pong(home: &Path, client: Side) -> Result<()> {
    let guests = format!("ibv_rc_pingpong -d rxe0 -g 1 -p {PORT} -s 3000 -n 100");
    let program = home.join("bin/java").display().to_string();
    let modules = ["ffm", "verbs", "engine"].map(java::classes).join(":");
    let words = [
        &program,
        "--enable-native-access=highwire.ffm",
        "-p",
        &modules,
        "-m",
        "highwire.ffm/highwire.ffm.RcPingpong",
        "hw0",
        PORT,
        "3000",
        "100",
    ];
    let listens = format!(":{PORT} ");
    match client {
        Side::Java => {
            let within = within_limit();
            let client = here(words.into_iter().chain([GUEST_ADDRESS]), &within);
            to_kernel(&guests, ("netstat -ltn", &listens), client)
        }
        Side::Highwire | Side::Kernel => {
            let server = here(words.into_iter(), UNTIL_KILLED);
            to_highwire(server, &format!("{guests} {HOST_ADDRESS}"), || until_listening(&listens))
        }
    }
}

/// Waits until a program of this network namespace listens.
fn until_listening(what: &str) -> Result<()> {
    let begin = Instant::now();
    loop {
        let output = Command::new("ss").arg("-ltn").stdin(Stdio::null()).output().context("cannot run ss")?;
        if String::from_utf8_lossy(&output.stdout).contains(what) {
            return Ok(());
        }
        ensure!(begin.elapsed() < LISTENS_WITHIN, "nobody listens at {what}");
        sleep(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use super::{ALL, NOT_IN_JAVA, is_wanted, scenarios};

    #[test]
    fn a_jvm_plays_every_scenario_but_those_with_windows_and_those_with_another_network() {
        for name in NOT_IN_JAVA {
            assert!(ALL.iter().any(|scenario| scenario.name == *name), "there is no scenario {name}");
        }
        let played: Vec<&str> = scenarios().map(|scenario| scenario.name).collect();
        for name in ["rc send", "rc write", "rc read", "rc cas", "nak bad rkey", "ud send"] {
            assert!(played.contains(&name), "{name} is not played");
        }
        assert!(!played.contains(&"rc send_inv") && !played.contains(&"loss send"));
    }

    #[test]
    fn only_what_is_asked_for_is_wanted() {
        assert!(is_wanted(None));
        assert!(is_wanted(Some("rc read, java")));
        assert!(is_wanted(Some("RcPingpong, kernel to java")));
        assert!(!is_wanted(Some("loss")));
        assert!(!is_wanted(Some("rc read, highwire")));
    }
}
