//! Echoes by Highwire and by other systems: in every round each row has its turn with each window, and in each turn a server and a client of its
//! own, a core each.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::ends::{self, Load, Place};
use super::figures::{Figures, WINDOWS, markdown};
use super::peers::{self, Built, PEERS, Peer};
use crate::measure::Program;
use crate::shell::Log;
use crate::{libs, packages};

/// The counted time of a turn; a tenth as long goes before.
const TURN_MS: u64 = 500;

/// The programs and cores for the turns.
#[derive(Debug)]
pub(super) struct Workshop {
    highwire: PathBuf,
    built: Built,
    /// Why programs for RDMA cards cannot run.
    no_verbs: Option<String>,
    /// Of the client and of the server.
    cores: [usize; 2],
}

impl Workshop {
    /// Builds the programs and finds the cores.
    pub(super) fn open(program: &Program) -> Result<Workshop> {
        let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
        let cores = first_cores(&status)?;
        let log = Log::create("bench-rpc")?;
        eprintln!("building Highwire's echoes and those of other systems ({})", log.path().display());
        let no_verbs = match packages::ensure(&["gcc", "libc6-dev", "libibverbs-dev", "librdmacm-dev"], &log)?
        {
            Ok(()) => {
                (libs::build(true)?.is_none()).then(|| "Highwire's libibverbs does not build".to_string())
            }
            Err(missing) => Some(missing.0),
        };
        Ok(Workshop { highwire: program.path().into(), built: peers::build(&log)?, no_verbs, cores })
    }

    /// Every row in every round; the section of the page.
    pub(super) fn measure(&self, rounds: u32) -> Result<String> {
        let mut rows: Vec<(&Peer, Figures)> = PEERS.iter().map(|peer| (peer, Figures::default())).collect();
        let mut present = Vec::new();
        for (place, (peer, figures)) in rows.iter_mut().enumerate() {
            eprintln!("does its client notice a wrong reply? {}", title(peer));
            match self.place(peer).and_then(|at| ends::check(peer, at)) {
                Ok(()) => present.push(place),
                Err(why) => figures.fail(format!("{why:#}")),
            }
        }
        let all = present.len() * WINDOWS.len() * rounds as usize;
        let (began, mut done) = (Instant::now(), 0);
        for round in 1..=rounds {
            for place in &present {
                let (peer, figures) = &mut rows[*place];
                eprintln!("round {round} of {rounds}: {}{}", title(peer), left(began.elapsed(), done, all));
                for window in WINDOWS {
                    let at = self.place(peer)?;
                    let turn = ends::play(peer, at, Load { window, turn_ms: TURN_MS });
                    if let Err(why) = turn.and_then(|report| figures.add(window, &report)) {
                        figures.fail(format!("{window} under way: {why:#}"));
                    }
                    done += 1;
                }
            }
        }
        let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let [client, server] = self.cores;
        Ok(format!(
            "with clients on core {client}, servers on core {server}, and a load of {} when it ended\n\n{}",
            load.split(' ').next().unwrap_or("?"),
            markdown(&rows)
        ))
    }

    fn place(&self, peer: &Peer) -> Result<Place<'_>> {
        if let (Some(_), Some(why)) = (peer.link, &self.no_verbs) {
            bail!("{why}");
        }
        match self.built.get(&peer.program) {
            Some(Ok(program)) => Ok(Place { highwire: &self.highwire, program, cores: self.cores }),
            Some(Err(why)) => bail!("{why}"),
            None => bail!("nobody has built it"),
        }
    }
}

fn title(peer: &Peer) -> String {
    format!("{} over {}", peer.name.trim_matches('*'), peer.carrier)
}

/// How long the rest will take, as soon as that is known.
fn left(elapsed: Duration, done: usize, all: usize) -> String {
    if done == 0 {
        return String::new();
    }
    let seconds = elapsed.as_secs_f64() * (all - done.min(all)) as f64 / done as f64;
    if seconds < 90.0 {
        format!(", {seconds:.0} s left")
    } else {
        format!(", {:.0} min left", seconds / 60.0)
    }
}

/// The first two cores on which this process may run.
fn first_cores(status: &str) -> Result<[usize; 2]> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let mut cores = Vec::new();
    for range in list.context("no Cpus_allowed_list")?.trim().split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| text.parse::<usize>().with_context(|| format!("`{range}` is no core"));
        cores.extend((number(first)?..=number(last)?).take(2));
    }
    match cores[..] {
        [client, server, ..] => Ok([client, server]),
        _ => bail!("it takes two cores: one for the client, one for the server"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cores_are_the_first_two_that_we_may_use() {
        let of =
            |list: &str| first_cores(&format!("Name:\txtask\nCpus_allowed_list:\t{list}\nThreads:\t1\n"));
        assert_eq!(of("0-1").expect("two"), [0, 1]);
        assert_eq!(of("3,5-900").expect("many"), [3, 5]);
        assert!(of("7").expect_err("one").to_string().contains("two cores"));
        assert!(of("a-b").is_err() && first_cores("Name:\txtask\n").is_err());
    }

    #[test]
    fn the_time_left_is_told_as_soon_as_a_turn_is_over() {
        let seconds = Duration::from_secs;
        assert_eq!(left(seconds(0), 0, 10), "");
        assert_eq!(left(seconds(30), 3, 9), ", 60 s left");
        assert_eq!(left(seconds(60), 1, 11), ", 10 min left");
        assert_eq!(left(seconds(60), 4, 4), ", 0 s left");
    }
}
