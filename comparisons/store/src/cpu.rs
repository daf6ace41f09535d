//! Processor time of whole trees of processes, from /proc: processes that have ended are in their parents'
//! sums.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};

/// This process and others, each with its descendants.
#[derive(Debug, Clone)]
pub(crate) struct Trees {
    roots: Vec<u32>,
}

/// The fields of a line of /proc/PID/stat that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Process {
    parent: u32,
    /// In user mode and in the kernel, its own and that of children that it has waited for.
    ticks: u64,
}

impl Trees {
    pub(crate) fn of(processes: &[u32]) -> Trees {
        let mut roots = processes.to_vec();
        roots.push(std::process::id());
        Trees { roots }
    }

    /// Hundredths of seconds so far.
    pub(crate) fn ticks(&self) -> Result<u64> {
        let mut all = BTreeMap::new();
        for entry in std::fs::read_dir("/proc").context("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // A process that has ended meanwhile has no line.
            let text = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            if let Some(process) = parse(&text) {
                all.insert(pid, process);
            }
        }
        for root in &self.roots {
            all.get(root).with_context(|| format!("process {root} is not there"))?;
        }
        Ok(sum(&all, &self.roots))
    }

    pub(crate) fn seconds_since(&self, before: u64) -> Result<f64> {
        let ticks_per_second = rustix::param::clock_ticks_per_second();
        Ok(self.ticks()?.saturating_sub(before) as f64 / ticks_per_second as f64)
    }
}

/// The second word is the command in parentheses, and may hold anything.
fn parse(text: &str) -> Option<Process> {
    let words: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let number = |place: usize| words.get(place)?.parse::<u64>().ok();
    let ticks = number(11)? + number(12)? + number(13)? + number(14)?;
    Some(Process { parent: number(1)? as u32, ticks })
}

fn sum(all: &BTreeMap<u32, Process>, roots: &[u32]) -> u64 {
    let mut ours: BTreeSet<u32> = roots.iter().copied().collect();
    loop {
        let before = ours.len();
        ours.extend(
            all.iter()
                .filter(|(_, process)| ours.contains(&process.parent))
                .map(|(pid, _)| *pid)
                .collect::<Vec<_>>(),
        );
        if ours.len() == before {
            return ours.iter().filter_map(|pid| all.get(pid)).map(|process| process.ticks).sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_whatever_the_command_is_called() {
        let line = "12 (a) b (c) S 7 12 12 0 -1 4194560 9 8 0 0 100 20 3 4 20 0 1 0 99";
        assert_eq!(parse(line), Some(Process { parent: 7, ticks: 127 }));
        assert_eq!(parse(""), None);
    }

    #[test]
    fn a_tree_is_the_root_and_all_below_it() {
        let process = |parent, ticks| Process { parent, ticks };
        // A child may have a lower number than its parent.
        let all = BTreeMap::from([
            (1, process(0, 1000)),
            (5, process(9, 1)),
            (9, process(20, 10)),
            (20, process(1, 100)),
            (21, process(1, 7)),
        ]);
        assert_eq!(sum(&all, &[20]), 111);
        assert_eq!(sum(&all, &[20, 9]), 111, "none counts twice");
        assert_eq!(sum(&all, &[21, 20]), 118);
    }
}
