//! Raft: how long until a leader is there, and until most of three servers have a write.

use highwire_stdx::Rng;

use super::service::{LINK_CYCLES, arrivals, broken, expect, play, testbed};
use super::{CYCLES_PER_NANOSECOND, Experiment, ExperimentError, Outcome, Settings, figure};
use crate::testbed::{Request, Testbed, address};

/// See the module.
pub(super) const EXPERIMENT: Experiment =
    Experiment { name: "raft", title: "Raft on three nodes: 16-byte keys, 64-byte values", run };

const SERVERS: usize = 3;
const KEYS: u64 = 1_000;
const ELECTION_CYCLES: u64 = 64_000;
const WRITE: u64 = 1;
const STATE: u64 = 4;
const CONFIGURE: u64 = 5;
const LEADER: u64 = 2;
/// Host to leader, leader to a follower and back, and to the host.
const LINKS: u64 = 6;

fn run(settings: &Settings<'_>) -> Result<Outcome, ExperimentError> {
    let mut outcome = Outcome::default();
    let mut testbed = testbed(settings, &["raft"; SERVERS], 1, LINK_CYCLES)?;
    for number in 0..SERVERS {
        let mut words = vec![CONFIGURE, number as u64, SERVERS as u64];
        words.extend((0..SERVERS).map(|server| u64::from(address(server))));
        words.push(ELECTION_CYCLES);
        expect(&mut testbed, number, &words, &[0])?;
    }
    let configured = testbed.cycle();
    let leader = leader(&mut testbed)?;
    let us = |cycles: f64| cycles / CYCLES_PER_NANOSECOND / 1000.0;
    outcome.report(
        EXPERIMENT.name,
        format!("a leader, after nobody was heard of for {} to {} µs", us(64_000.0), us(128_000.0)),
        format!("within {} µs", figure(us((testbed.cycle() - configured) as f64))),
    );
    let loads = [0.1, 0.64, 1.0, 1.5];
    let mut rng = Rng::new(settings.seed);
    let count = if settings.is_quick { 400 } else { 4_000 };
    for (step, mrps) in loads.into_iter().enumerate() {
        (settings.progress)(step as f64 / loads.len() as f64);
        let sent = arrivals(&mut rng, testbed.cycle() + 10_000, count, mrps, LINK_CYCLES);
        let writes = sent.iter().map(|&at| write(at, leader, rng.below(KEYS)));
        let times = play(&mut testbed, writes.collect(), |_, answer| answer == [0])?;
        let links = us((LINKS * LINK_CYCLES) as f64);
        let mean = times.mean_ns() / 1000.0;
        outcome.report(
            EXPERIMENT.name,
            format!("a write that most of three servers have, {mrps} M/s: mean, p99, and mean without its {LINKS} links"),
            format!(
                "{}, {} and {} µs",
                figure(mean),
                figure(times.percentile_ns(0.99) / 1000.0),
                figure(mean - links)
            ),
        );
    }
    Ok(outcome)
}

fn write(sent: u64, leader: usize, key: u64) -> Request {
    let words: Vec<u64> = [WRITE, key, !key].into_iter().chain((sent..).take(8)).collect();
    Request::of_words(sent, address(leader), 0, &words)
}

/// The server that leads, once one does.
fn leader(testbed: &mut Testbed) -> Result<usize, ExperimentError> {
    for _ in 0..1_000 {
        for server in 0..SERVERS {
            let state = testbed.call(address(server), 0, &[STATE], 100_000).map_err(broken)?.words();
            if state.get(2) == Some(&LEADER) {
                return Ok(server);
            }
        }
        testbed.run(1_000).map_err(broken)?;
    }
    Err(ExperimentError::Broken("no leader".to_string()))
}
