//! Computes, from nodes' milestones and clients' commits, how long a fault was felt.

use super::load::Commit;
use crate::{Milestone, MilestoneEvent};
use serde::Serialize;

/// Commits are counted in slots of this many nanoseconds.
const SLOT_NS: u64 = 50_000_000;
/// A rate is taken over this many slots.
const SLOTS: usize = 10;
/// The part of the rate before the fault that is full speed.
const FULL: f64 = 0.8;

/// A fault, and the instants around it.
#[derive(Clone, Debug)]
pub struct Moment {
    /// When the load began to run evenly.
    pub calm_ns: u64,
    /// When it ended to.
    pub calm_until_ns: u64,
    /// When the fault was injected: earlier transactions do not count.
    pub fault_ns: u64,
    /// When it was repaired, or observation ended.
    pub until_ns: u64,
    /// The configuration before the fault.
    pub configuration: u32,
    /// The victim, if the fault has a single one.
    pub victim: Option<u16>,
    /// For each account, whether the victim was its primary.
    pub affected: Vec<bool>,
}

/// How long a fault was felt, in milliseconds from its injection. `None`: it did not happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Times {
    /// The first other node suspects the victim.
    pub suspected_ms: Option<f64>,
    /// The first other node has adopted a new configuration.
    pub configured_ms: Option<f64>,
    /// The first commit that began after the fault and changed an account whose primary was the victim.
    pub unlocked_ms: Option<f64>,
    /// From here on, for half a second, the rate is at least four fifths of the rate before.
    pub full_speed_ms: Option<f64>,
    /// All data has all its copies again, on the remaining nodes.
    pub replicated_ms: Option<f64>,
    /// The longest time without any commit.
    pub pause_ms: f64,
    /// Commits per second before.
    pub rate_before: f64,
    /// Commits per second in the last second of the observation.
    pub rate_after: f64,
}

impl Times {
    /// Computes the times from milestones, each with its node, and from commits in any order.
    pub fn of(moment: &Moment, milestones: &[(u16, Milestone)], commits: &[Commit]) -> Times {
        let since = |at_ns: u64| at_ns.saturating_sub(moment.fault_ns) as f64 / 1e6;
        let first = |wanted: &dyn Fn(&Milestone) -> bool| {
            let others = milestones.iter().filter(|(node, _)| moment.victim != Some(*node));
            let seen = others
                .filter(|(_, seen)| (moment.fault_ns..moment.until_ns).contains(&seen.at_ns) && wanted(seen));
            seen.map(|(_, seen)| since(seen.at_ns)).reduce(f64::min)
        };
        let is_new = |seen: &Milestone| seen.configuration > moment.configuration;
        let is_affected = |commit: &&Commit| {
            commit.began_ns >= moment.fault_ns
                && commit.accounts.iter().any(|&account| moment.affected[usize::from(account)])
        };
        let unlocked = commits.iter().filter(is_affected).map(|commit| commit.ended_ns).min();
        let unlocked = unlocked.filter(|&at| at < moment.until_ns);
        let rate = |from_ns: u64, to_ns: u64| {
            let inside = commits.iter().filter(|commit| (from_ns..to_ns).contains(&commit.ended_ns)).count();
            inside as f64 * 1e9 / to_ns.saturating_sub(from_ns).max(1) as f64
        };
        let rate_before = rate(moment.calm_ns, moment.calm_until_ns);
        Times {
            suspected_ms: moment
                .victim
                .and_then(|victim| first(&|seen| seen.event == MilestoneEvent::Suspected(victim))),
            configured_ms: first(&|seen| is_new(seen) && matches!(seen.event, MilestoneEvent::Adopted(_))),
            unlocked_ms: unlocked.map(since),
            full_speed_ms: full_speed(moment, commits, unlocked.unwrap_or(moment.fault_ns), rate_before)
                .map(since),
            replicated_ms: first(&|seen| is_new(seen) && seen.event == MilestoneEvent::Settled),
            pause_ms: pause_ns(moment, commits) as f64 / 1e6,
            rate_before,
            rate_after: rate(moment.until_ns.saturating_sub(1_000_000_000), moment.until_ns),
        }
    }
}

fn full_speed(moment: &Moment, commits: &[Commit], from_ns: u64, rate_before: f64) -> Option<u64> {
    let mut slots = vec![0u32; (moment.until_ns.saturating_sub(moment.fault_ns) / SLOT_NS) as usize];
    for commit in commits.iter().filter(|commit| commit.ended_ns >= moment.fault_ns) {
        if let Some(slot) = slots.get_mut(((commit.ended_ns - moment.fault_ns) / SLOT_NS) as usize) {
            *slot += 1;
        }
    }
    let goal = rate_before * FULL * SLOT_NS as f64 * SLOTS as f64 / 1e9;
    let first = (from_ns.saturating_sub(moment.fault_ns) / SLOT_NS) as usize;
    let enough = |window: &&[u32]| f64::from(window.iter().sum::<u32>()) >= goal;
    let at = slots.get(first..)?.windows(SLOTS).position(|window| enough(&window))? + first;
    Some((moment.fault_ns + at as u64 * SLOT_NS).max(from_ns))
}

fn pause_ns(moment: &Moment, commits: &[Commit]) -> u64 {
    let inside = commits.iter().map(|commit| commit.ended_ns);
    let mut ends: Vec<u64> = inside.filter(|at| (moment.fault_ns..moment.until_ns).contains(at)).collect();
    ends.extend([moment.fault_ns, moment.until_ns]);
    ends.sort_unstable();
    ends.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn moment() -> Moment {
        Moment {
            calm_ns: 1000 * MS,
            calm_until_ns: 3000 * MS,
            fault_ns: 3000 * MS,
            until_ns: 9000 * MS,
            configuration: 4,
            victim: Some(1),
            affected: vec![true, false, false],
        }
    }

    /// One each millisecond, of accounts that are affected only if `is_affected`.
    fn commits(from_ms: u64, to_ms: u64, is_affected: bool) -> Vec<Commit> {
        let accounts = if is_affected { [1, 0] } else { [1, 2] };
        let commit = |at| Commit { began_ns: (at - 1) * MS, ended_ns: at * MS, accounts };
        (from_ms..to_ms).map(commit).collect()
    }

    fn seen(node: u16, at_ms: u64, configuration: u32, event: MilestoneEvent) -> (u16, Milestone) {
        (node, Milestone { at_ns: at_ms * MS, configuration, event })
    }

    #[test]
    fn times_are_counted_from_the_fault_and_by_the_others() {
        let milestones = [
            seen(0, 500, 4, MilestoneEvent::Suspected(1)),
            seen(1, 3100, 5, MilestoneEvent::Settled),
            seen(0, 3600, 4, MilestoneEvent::Suspected(1)),
            seen(2, 3650, 4, MilestoneEvent::Suspected(1)),
            seen(2, 3660, 4, MilestoneEvent::Settled),
            seen(0, 3700, 5, MilestoneEvent::Adopted(vec![0, 2])),
            seen(0, 4200, 5, MilestoneEvent::Settled),
        ];
        let played =
            [commits(1000, 3000, true), commits(3300, 4000, false), commits(4000, 9000, true)].concat();
        let times = Times::of(&moment(), &milestones, &played);
        assert_eq!(times.suspected_ms, Some(600.0));
        assert_eq!(times.configured_ms, Some(700.0));
        assert_eq!(times.unlocked_ms, Some(1000.0));
        assert_eq!(times.full_speed_ms, Some(1000.0));
        assert_eq!(times.replicated_ms, Some(1200.0));
        assert_eq!(times.pause_ms, 300.0);
        assert_eq!((times.rate_before, times.rate_after), (1000.0, 1000.0));
    }

    #[test]
    fn what_began_before_the_fault_unlocks_nothing() {
        let early = Commit { began_ns: 2999 * MS, ended_ns: 3001 * MS, accounts: [0, 1] };
        let late = Commit { began_ns: 3001 * MS, ended_ns: 9001 * MS, accounts: [0, 1] };
        let times = Times::of(&moment(), &[], &[early, late]);
        assert_eq!(times.unlocked_ms, None);
    }

    #[test]
    fn a_rate_that_does_not_come_back_is_not_full_speed() {
        let slow: Vec<Commit> = commits(3000, 9000, true).into_iter().step_by(2).collect();
        let times = Times::of(&moment(), &[], &[commits(1000, 3000, true), slow].concat());
        assert_eq!(times.full_speed_ms, None);
        assert!(times.unlocked_ms.is_some());
        assert_eq!(Times::of(&moment(), &[], &[]).pause_ms, 6000.0);
    }
}
