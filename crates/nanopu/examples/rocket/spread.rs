//! How far apart random programs are on the two.

use std::fmt;

use super::sequences::Count;

/// Programs by their steps that differ, each named by its seed.
#[derive(Debug, Default)]
pub(crate) struct Spread {
    programs: Vec<(u64, Count)>,
}

impl Spread {
    pub(crate) fn add(&mut self, seed: u64, count: &Count) {
        self.programs.push((seed, *count));
    }
}

/// Steps that differ in a thousand commits.
fn per_thousand(count: &Count) -> f64 {
    1000.0 * count.differing as f64 / count.commits.max(1) as f64
}

impl fmt::Display for Spread {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.programs.clone();
        sorted.sort_by(|(_, a), (_, b)| per_thousand(a).total_cmp(&per_thousand(b)));
        let Some((worst, count)) = sorted.last() else { return Ok(()) };
        let equal = sorted.iter().filter(|(_, count)| count.differing == 0).count();
        writeln!(out, "every step equal: {equal} of {} programs", sorted.len())?;
        let at = |share: f64| per_thousand(&sorted[(share * (sorted.len() - 1) as f64).round() as usize].1);
        write!(out, "steps that differ in a thousand commits: ")?;
        writeln!(
            out,
            "median {:.1}, nine in ten up to {:.1}, worst {:.1} (seed {worst})",
            at(0.5),
            at(0.9),
            per_thousand(count)
        )?;
        let off = self.programs.iter().max_by(|(_, a), (_, b)| a.off().abs().total_cmp(&b.off().abs()));
        let (seed, count) = off.unwrap_or(&self.programs[0]);
        write!(out, "cycles of one program: at most {:+.2} % (seed {seed})", count.off())
    }
}
