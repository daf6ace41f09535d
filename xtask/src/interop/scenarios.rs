//! The conversations, as a table: each is played once with Highwire as the requester and once as the responder, and most of them again with a JVM's
//! mapped queues in Highwire's place.
//!
//! Both ends are driven through the same lines (`interop/guest/agent.h`), so a scenario cannot tell them
//! apart, and the control run plays the whole table between the kernel and itself.

mod beside;
mod datagram;
mod end;
pub(super) mod java;
mod loss;
mod naks;
mod pair;
pub(super) mod programs;
mod rc;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};

use super::agent::{Agent, Refused};
use super::namespace::{GUEST_ADDRESS, GUEST_ADDRESS_V6, HOST_ADDRESS, HOST_ADDRESS_V6};
use super::outcome::Outcome;
use super::{capture, namespace, peer};
use end::{End, Side};
use pair::Pair;

/// One conversation.
struct Scenario {
    name: &'static str,
    checks: &'static str,
    play: fn(&mut Pair) -> Result<()>,
    setting: Setting,
}

/// The setting of a conversation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Setting {
    /// IPv4 without faults.
    Plain,
    V6,
    /// An Ethernet MTU of 4500 bytes, of which RoCE makes 4096.
    Jumbo,
    /// One packet in a hundred is lost in each direction.
    Lossy,
}

const fn plain(name: &'static str, checks: &'static str, play: fn(&mut Pair) -> Result<()>) -> Scenario {
    Scenario { name, checks, play, setting: Setting::Plain }
}

const fn v6(name: &'static str, checks: &'static str, play: fn(&mut Pair) -> Result<()>) -> Scenario {
    Scenario { name, checks, play, setting: Setting::V6 }
}

const fn jumbo(name: &'static str, checks: &'static str, play: fn(&mut Pair) -> Result<()>) -> Scenario {
    Scenario { name, checks, play, setting: Setting::Jumbo }
}

const fn lossy(name: &'static str, checks: &'static str, play: fn(&mut Pair) -> Result<()>) -> Scenario {
    Scenario { name, checks, play, setting: Setting::Lossy }
}

const ALL: &[Scenario] = &[
    plain("rc send", "0 to 5000 bytes, in one packet and segmented, arrive whole", rc::send),
    plain(
        "rc send_imm",
        "immediate data with an empty, a short and a segmented message",
        rc::send_with_immediate,
    ),
    plain(
        "rc send_inv",
        "a bound memory window works until SEND with invalidate closes it",
        rc::send_with_invalidate,
    ),
    plain("rc write", "0 to 65536 bytes at an odd address, and nothing beside them", rc::write),
    plain("rc write_imm", "the data and one receive with the immediate", rc::write_with_immediate),
    plain("rc read", "0 to 65536 bytes come back", rc::read),
    plain(
        "rc reads outstanding",
        "16 READs of 3 packets over a depth of 4 complete in order",
        rc::reads_outstanding,
    ),
    plain("rc cas", "compare-and-swap swaps, refuses and returns what it found", rc::compare_and_swap),
    plain("rc fadd", "fetch-and-add adds modulo 2^64 and returns what it found", rc::fetch_and_add),
    plain("rc sge", "a message gathered from three places, scattered to two", rc::gather_and_scatter),
    plain("rc mixed", "WRITE, READ, atomic and fenced SEND keep their order", rc::mixed_operations_in_order),
    plain("rc both ways", "32 messages in each direction at once", rc::both_ways),
    plain("rc megabytes", "1 MiB written and read back", rc::megabytes),
    plain("rc psn wrap", "PSNs pass 2^24 in requests and in READ responses", rc::psn_wrap),
    plain("rc srq", "two connections share a receive queue", rc::shared_receive_queue),
    plain("nak bad rkey", "remote access error, flush, error state; memory unchanged", naks::bad_rkey),
    plain("nak bad range", "one byte beyond the region, and an address that wraps", naks::bad_range),
    plain(
        "nak region access",
        "WRITE, READ and atomics that the region does not allow",
        naks::no_access_on_region,
    ),
    plain(
        "nak qp access",
        "WRITE, READ and atomics that the QP does not allow",
        naks::no_access_on_queue_pair,
    ),
    plain("nak too long", "a SEND longer than its receive", naks::send_too_long),
    plain("nak neighbours", "a refused request leaves other connections alone", naks::neighbours_survive),
    plain("rnr then success", "no receive at first: the sender waits, then succeeds", naks::rnr_then_success),
    plain("rnr exhausted", "no receive ever: the sender gives up as configured", naks::rnr_exhausted),
    plain("silent peer", "nobody answers: the retries run out", naks::silent_peer),
    plain("uc send", "0 to 5000 bytes with immediate", datagram::uc_send),
    plain("uc write", "one packet and segmented; with immediate", datagram::uc_write),
    plain(
        "uc no receive",
        "a message without a receive is lost, the next one is not",
        datagram::uc_without_receive,
    ),
    plain("ud send", "0 to 1024 bytes with immediate, GRH space and source QPN", datagram::ud_send),
    plain("ud qkey", "a datagram with another Q_Key is dropped", datagram::ud_wrong_qkey),
    v6("ipv6 rc send", "the same over IPv6", rc::send),
    v6("ipv6 rc write", "the same over IPv6", rc::write),
    v6("ipv6 rc read", "the same over IPv6", rc::read),
    v6("ipv6 ud send", "the same over IPv6", datagram::ud_send),
    jumbo("mtu 4096 rc send", "the same with larger packets", rc::send),
    jumbo("mtu 4096 rc write", "the same with larger packets", rc::write),
    jumbo("mtu 4096 rc read", "the same with larger packets", rc::read),
    lossy("loss send", "128 messages of 4 packets, each once and in order", loss::sends),
    lossy("loss write and read", "4 × 64 packets there and back", loss::writes_and_reads),
    lossy("loss fadd", "200 additions, each exactly once", loss::atomics),
];

/// Prints the table.
pub(super) fn list() {
    for scenario in ALL {
        println!("{:<22} {}", scenario.name, scenario.checks);
    }
    println!("{:<30} all of them but those with windows, faults or another network", "…, java to kernel");
    println!("{:<30} {}", java::PING_PONG, java::PING_PONG_CHECKS);
    for program in programs::ALL {
        println!("{:<30} {}", program.name, program.checks);
    }
    for case in beside::ALL {
        println!("{:<30} {}", case.name, case.checks);
    }
}

/// Plays every scenario whose name contains `only`, with Highwire in both roles or, as a `control`, without it.
pub(super) fn play(only: Option<&str>, control: bool) -> Result<Outcome> {
    use Side::{Highwire, Kernel};
    let roles: &[(Side, Side)] =
        if control { &[(Kernel, Kernel)] } else { &[(Highwire, Kernel), (Kernel, Highwire)] };
    let mut outcome = Outcome::default();
    let mut surroundings =
        Surroundings { guest: Agent::connect()?, setting: Setting::Plain, is_whole: only.is_none() };
    for scenario in ALL {
        for &(requester, responder) in roles {
            let name = format!("{}, {requester} to {responder}", scenario.name);
            if only.is_some_and(|text| !name.contains(text)) {
                continue;
            }
            if control && scenario.setting == Setting::Lossy {
                outcome
                    .skipped
                    .push((name, "what a guest sends itself does not pass its network card".into()));
                continue;
            }
            surroundings.change(scenario.setting, &mut outcome)?;
            let started = Instant::now();
            let result = converse(scenario, requester, responder);
            if result.is_err() {
                // Without a guest every other scenario would fail too, one time limit after the other.
                Agent::connect().context("the guest is gone")?;
            }
            note(&mut outcome, name, scenario.checks, started, result);
        }
    }
    surroundings.change(Setting::Plain, &mut outcome)?;
    if !control {
        java::play(only, &mut outcome)?;
        play_programs(only, &mut outcome)?;
        play_beside(only, &mut outcome)?;
    }
    Ok(outcome)
}

/// Runs unmodified programs against each other, each with both ends as the client.
fn play_programs(only: Option<&str>, outcome: &mut Outcome) -> Result<()> {
    for program in programs::ALL {
        for (client, server) in [(Side::Highwire, Side::Kernel), (Side::Kernel, Side::Highwire)] {
            let name = format!("{}, {client} to {server}", program.name);
            if only.is_some_and(|text| !name.contains(text)) {
                continue;
            }
            play_patiently(outcome, name, program.checks, || programs::play(program, client))?;
        }
    }
    Ok(())
}

/// Runs a pair of programs. Stock programs have a patience of their own, which an emulated processor can
/// exceed: they run once more, and the output says so.
fn play_patiently(
    outcome: &mut Outcome,
    name: String,
    checks: &str,
    play: impl Fn() -> Result<()>,
) -> Result<()> {
    let mut started = Instant::now();
    let mut result = play();
    if let Err(error) = &result {
        Agent::connect().context("the guest is gone")?;
        println!("again   {name}, because of this:\n        {error:#}");
        outcome.repeated.push(name.clone());
        started = Instant::now();
        result = play();
    }
    note(outcome, name, checks, started, result);
    Ok(())
}

/// Runs programs in the guest over Highwire's library, with the kernel's device beside Highwire's.
fn play_beside(only: Option<&str>, outcome: &mut Outcome) -> Result<()> {
    for case in beside::ALL.iter().filter(|case| only.is_none_or(|text| case.name.contains(text))) {
        let started = Instant::now();
        let result = beside::play(case);
        if result.is_err() {
            Agent::connect().context("the guest is gone")?;
        }
        note(outcome, case.name.into(), case.checks, started, result);
    }
    Ok(())
}

/// The present setting, and the guest in which it is changed.
struct Surroundings {
    guest: Agent,
    setting: Setting,
    /// Every scenario is played.
    is_whole: bool,
}

impl Surroundings {
    fn change(&mut self, wanted: Setting, outcome: &mut Outcome) -> Result<()> {
        if self.setting == wanted {
            return Ok(());
        }
        match self.setting {
            Setting::Lossy => {
                let (sent, received) = loss::stop(&mut self.guest)?;
                let lost = format!("{sent} packets of the kernel's and {received} of ours were lost");
                // With only some of the scenarios, some refusals may not occur.
                let result = if !self.is_whole || (sent > 0 && received > 0) {
                    Ok(())
                } else {
                    Err(anyhow!("not both ways"))
                };
                note(outcome, "loss itself".into(), &lost, Instant::now(), result);
            }
            Setting::Jumbo => self.set_mtu(1500)?,
            Setting::Plain | Setting::V6 => {}
        }
        match wanted {
            Setting::Lossy => loss::start(&mut self.guest)?,
            Setting::Jumbo => self.set_mtu(4500)?,
            Setting::Plain | Setting::V6 => {}
        }
        self.setting = wanted;
        Ok(())
    }

    fn set_mtu(&mut self, bytes: u32) -> Result<()> {
        namespace::set_mtu(bytes)?;
        self.guest.shell(&format!("/usr/sbin/ip link set eth0 mtu {bytes}")).map(drop)
    }
}

/// Prints one line and counts.
fn note(outcome: &mut Outcome, name: String, checks: &str, started: Instant, result: Result<()>) {
    let seconds = started.elapsed().as_secs_f32();
    match result {
        Ok(()) => {
            println!("ok      {name}: {checks} ({seconds:.2} s)");
            outcome.passed += 1;
        }
        Err(error) if error.downcast_ref::<Refused>().is_some_and(Refused::is_unsupported) => {
            println!("skipped {name}: {error:#}");
            outcome.skipped.push((name, error.to_string()));
        }
        Err(error) => {
            println!("FAILED  {name}: {checks} ({seconds:.2} s)\n        {error:#}");
            outcome.failed.push(name);
        }
    }
}

/// Checks all packets on the wire: Highwire's reader finds every ICRC right, tshark reads Highwire's packets
/// as they were meant.
pub(super) fn judge_capture(file: &Path, is_whole: bool, outcome: &mut Outcome) -> Result<()> {
    let started = Instant::now();
    let judgement = capture::judge(file)?;
    judgement.print();
    let sound = format!("{} packets decode, each ICRC is right", judgement.all());
    note(outcome, "capture icrc".into(), &sound, started, first_of(&judgement.unsound));
    let started = Instant::now();
    let read = format!("{} packets of ours are to tshark what they are to us", judgement.ours());
    note(outcome, "capture tshark".into(), &read, started, first_of(&judgement.misread));
    if is_whole {
        let naks = "each kind of RNR and NAK was seen from each side";
        note(outcome, "capture naks".into(), naks, Instant::now(), first_of(&judgement.unseen_naks()));
    }
    Ok(())
}

/// An error with the first few faults, if there are any.
fn first_of(problems: &[String]) -> Result<()> {
    ensure!(
        problems.is_empty(),
        "{} in all, of which the first: {}",
        problems.len(),
        problems.iter().take(3).map(String::as_str).collect::<Vec<_>>().join("; ")
    );
    Ok(())
}

fn converse(scenario: &Scenario, requester: Side, responder: Side) -> Result<()> {
    let mut pair =
        Pair { requester: open(requester, scenario.setting)?, responder: open(responder, scenario.setting)? };
    (scenario.play)(&mut pair)
}

fn open(side: Side, setting: Setting) -> Result<End> {
    let v6 = setting == Setting::V6;
    match side {
        Side::Kernel => End::open(side, Agent::connect()?, if v6 { GUEST_ADDRESS_V6 } else { GUEST_ADDRESS }),
        Side::Highwire | Side::Java => {
            let address = if v6 { HOST_ADDRESS_V6 } else { HOST_ADDRESS };
            End::open(side, Agent::start(&peer::program(), address)?, address)
        }
    }
}
