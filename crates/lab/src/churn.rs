//! `highwire churn`: processes open a shared address and leave it at random, some by SIGKILL, while others
//! work there.
//!
//! Invariants: processes that stay lose nothing and notice nothing; a process whose peer was killed gets an
//! error and no more; and in the end no port, ring, file or broker is left. The choices follow from the seed;
//! their effects depend on the machine, as they should.

mod member;
mod peer;
mod traces;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Result, ensure};
use highwire_host::{LinkChoice, broker};
use highwire_link::shm::Registry;
use highwire_stdx::Rng;
use rustix::process::{Pid, Signal, kill_process};
use serde::Serialize;

use crate::console::Console;
use crate::progress::Progress;
use member::Role;
use peer::Peer;

/// Options of `highwire churn`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  highwire churn --processes 100 --steps 6000 --seed 7
  highwire churn --processes 50 --steps 2000 --broker-kills 20")]
pub(crate) struct Args {
    /// Processes that share the address at most.
    #[arg(long, default_value_t = 100)]
    processes: usize,
    /// How often one starts, works, ends or is killed.
    #[arg(long, default_value_t = 6000)]
    steps: u32,
    /// How often the address's broker is killed meanwhile.
    #[arg(long, default_value_t = 0)]
    broker_kills: u32,
    /// What decides who does what.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The address; without it, one that depends on this process.
    #[arg(long)]
    address: Option<IpAddr>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// To be one of the processes.
    #[arg(long, hide = true)]
    role: Option<Role>,
    /// The links of that process.
    #[arg(long, hide = true, default_value_t = LinkChoice::Auto)]
    link: LinkChoice,
}

/// The result.
#[derive(Debug, Default, Serialize)]
struct Report {
    address: String,
    seed: u64,
    started: u32,
    ended: u32,
    killed: u32,
    /// Brokers that were killed.
    brokers_killed: u32,
    /// Processes whose peer was killed, and that got an error for it.
    orphaned: u32,
    /// Messages that the staying processes sent and got back unharmed.
    echoes: u64,
    /// Packets that they retransmitted.
    retransmitted: u64,
    /// Traces that are left at the end.
    left_behind: Vec<String>,
}

/// Runs the processes, or is one.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let address = args.address.unwrap_or_else(own_address);
    // Without a registry no process would get its part of the address, and each would report that itself.
    Registry::open()?;
    if let Some(role) = args.role {
        member::run(role, address, args.link)?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = Churn::new(args, address).run(args)?;
    let mut console = Console::new();
    if args.json {
        console.json(&report)?;
    } else {
        console.line(text(&report))?;
    }
    console.finish()?;
    ensure!(report.left_behind.is_empty(), "left behind: {}", report.left_behind.join(", "));
    Ok(ExitCode::SUCCESS)
}

/// An address that no other run uses at the same time.
fn own_address() -> IpAddr {
    address_of(std::process::id())
}

/// An address of 127.224.0.0/12. Its last byte is neither 0 nor 255, which look like networks and broadcasts.
fn address_of(pid: u32) -> IpAddr {
    let (d, rest) = (pid % 254 + 1, pid / 254);
    let [_, b, c] = [rest >> 16, rest >> 8, rest].map(|part| part as u8);
    IpAddr::from([127, 224 | b & 15, c, d as u8])
}

fn text(report: &Report) -> String {
    let Report {
        address, seed, started, ended, killed, brokers_killed, orphaned, echoes, retransmitted, ..
    } = report;
    let brokers = if *brokers_killed > 0 { format!(", and {brokers_killed} brokers") } else { String::new() };
    format!(
        "{started} processes at {address} (seed {seed}): {ended} ended, {killed} were killed{brokers}, {orphaned} lost their peer\n\
         those who stayed: {echoes} messages there and back, {retransmitted} packets sent again, nothing lost"
    )
}

/// The processes, by role.
struct Churn {
    address: IpAddr,
    rng: Rng,
    /// Connected pairs that stay from the first to the last.
    stayers: Vec<[Peer; 2]>,
    visitors: Vec<Peer>,
    /// Processes whose peer was killed, the first one first.
    orphans: VecDeque<Peer>,
    report: Report,
}

impl Churn {
    fn new(args: &Args, address: IpAddr) -> Churn {
        let report = Report { address: address.to_string(), seed: args.seed, ..Report::default() };
        Churn {
            address,
            rng: Rng::new(args.seed),
            stayers: Vec::new(),
            visitors: Vec::new(),
            orphans: VecDeque::new(),
            report,
        }
    }

    fn run(mut self, args: &Args) -> Result<Report> {
        for link in [LinkChoice::Auto, LinkChoice::Udp] {
            let pair = self.pair([Role::Ping, Role::Echo], link)?;
            self.stayers.push(pair);
        }
        let kill_interval = args.steps / (args.broker_kills + 1) + 1;
        let mut progress = Progress::new("churn", u64::from(args.steps));
        for step in 0..args.steps {
            progress.at(u64::from(step), Instant::now());
            self.step(args.processes)?;
            if step % kill_interval == kill_interval - 1 {
                self.kill_broker();
            }
        }
        drop(progress);
        self.end()
    }

    /// One event for one process.
    fn step(&mut self, processes_max: usize) -> Result<()> {
        let present = 2 * self.stayers.len() + self.visitors.len() + self.orphans.len();
        let has_room = present + 2 <= processes_max;
        match self.rng.below(10) {
            // More processes come than go, until the address is full.
            0..=3 if has_room => {
                let link = self.any_link();
                let visitor = self.start(Role::Visitor, link)?;
                self.visitors.push(visitor);
            }
            4 if has_room => {
                let link = self.any_link();
                let [orphan, mut victim] = self.pair([Role::Orphan, Role::Echo], link)?;
                victim.kill();
                self.report.killed += 1;
                self.orphans.push_back(orphan);
                if self.orphans.len() > processes_max / 8 {
                    self.let_orphan_go()?;
                }
            }
            5 => {
                if let Some(visitor) = self.any_visitor() {
                    self.visitors[visitor].say("work")?;
                }
            }
            6 | 7 => {
                if let Some(visitor) = self.any_visitor() {
                    self.visitors.swap_remove(visitor).end()?;
                    self.report.ended += 1;
                }
            }
            _ => {
                // The visitor may be doing anything, or have not even begun.
                if let Some(visitor) = self.any_visitor() {
                    self.visitors.swap_remove(visitor).kill();
                    self.report.killed += 1;
                }
            }
        }
        Ok(())
    }

    /// Kills the broker, which no running or starting process may notice.
    fn kill_broker(&mut self) {
        let broker = Registry::open().ok().and_then(|registry| broker::process(&registry, self.address));
        let pid = broker.and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        if pid.is_some_and(|pid| kill_process(pid, Signal::KILL).is_ok()) {
            self.report.brokers_killed += 1;
        }
    }

    /// All processes leave, the stayers last.
    fn end(mut self) -> Result<Report> {
        for mut visitor in std::mem::take(&mut self.visitors) {
            if self.rng.chance(0.5) {
                visitor.kill();
                self.report.killed += 1;
            } else {
                visitor.end()?;
                self.report.ended += 1;
            }
        }
        while !self.orphans.is_empty() {
            self.let_orphan_go()?;
        }
        for [mut ping, echo] in std::mem::take(&mut self.stayers) {
            ping.say("stop")?;
            let numbers = ping.hear("echoes")?;
            self.report.echoes += numbers[0];
            self.report.retransmitted += numbers[1];
            ensure!(numbers[0] > 0, "those who stayed got nothing done");
            ping.end()?;
            echo.end()?;
        }
        self.report.left_behind = traces::of(self.address)?;
        Ok(self.report)
    }

    /// Waits until the first orphan has noticed that its peer was killed.
    fn let_orphan_go(&mut self) -> Result<()> {
        if let Some(mut orphan) = self.orphans.pop_front() {
            orphan.hear("orphaned")?;
            orphan.end()?;
            self.report.orphaned += 1;
        }
        Ok(())
    }

    fn start(&mut self, role: Role, link: LinkChoice) -> Result<Peer> {
        self.report.started += 1;
        Peer::start(role, self.address, link)
    }

    /// Two processes that are connected; the first has begun to send.
    fn pair(&mut self, roles: [Role; 2], link: LinkChoice) -> Result<[Peer; 2]> {
        let [mut a, mut b] = [self.start(roles[0], link)?, self.start(roles[1], link)?];
        let (endpoint_a, endpoint_b) = (a.hear_text("endpoint")?, b.hear_text("endpoint")?);
        b.say(&endpoint_a)?;
        b.hear("connected")?;
        a.say(&endpoint_b)?;
        a.hear("connected")?;
        Ok([a, b])
    }

    fn any_link(&mut self) -> LinkChoice {
        if self.rng.chance(0.5) { LinkChoice::Auto } else { LinkChoice::Udp }
    }

    fn any_visitor(&mut self) -> Option<usize> {
        let count = self.visitors.len() as u64;
        (count > 0).then(|| self.rng.below(count) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_have_two_addresses() {
        let mut addresses: Vec<IpAddr> = (1..300_000).map(address_of).collect();
        assert!(addresses.iter().all(|address| match address {
            IpAddr::V4(v4) => matches!(v4.octets(), [127, 224..=239, _, 1..=254]),
            IpAddr::V6(_) => false,
        }));
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), 299_999);
    }
}
