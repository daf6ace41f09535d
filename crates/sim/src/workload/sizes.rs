//! Flow sizes: cumulative distributions, as the text files that congestion-control studies exchange.
//!
//! A line is `BYTES PERCENT`: so many percent of the flows are not larger. Between two lines sizes are uniform. `#` begins a
//! comment.

use std::fmt;

use highwire_stdx::Rng;

/// The distributions that come with the program.
const NAMED: &[(&str, &str)] = &[
    ("irn-heavy-tail", include_str!("../../sizes/irn-heavy-tail.cdf")),
    ("irn-middle-uniform", include_str!("../../sizes/irn-middle-uniform.cdf")),
    ("uniform-500k-5m", include_str!("../../sizes/uniform-500k-5m.cdf")),
    ("web-search", include_str!("../../sizes/web-search.cdf")),
    ("fb-hadoop", include_str!("../../sizes/fb-hadoop.cdf")),
    ("ali-storage", include_str!("../../sizes/ali-storage.cdf")),
];

/// How large flows are.
#[derive(Clone, PartialEq, Debug)]
pub struct SizeDistribution {
    /// Bytes, and the share of the flows that are not larger; both rise.
    points: Vec<(f64, f64)>,
}

/// Where a distribution's text is wrong, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SizesError {
    /// The line, counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: SizesProblem,
}

/// An error in a distribution's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SizesProblem {
    /// Not two numbers.
    Form,
    /// Bytes or percent are less than on the line before.
    Falls,
    /// The last line is not at 100 %, or the first is beyond 100 %.
    End,
    /// Less than two lines, or all flows would be empty.
    TooShort,
}

impl fmt::Display for SizesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let problem = match self.problem {
            SizesProblem::Form => "expected `BYTES PERCENT`, like `200000 85`",
            SizesProblem::Falls => "bytes and percent must not be less than on the line before",
            SizesProblem::End => "the last line must be at 100 percent",
            SizesProblem::TooShort => "a distribution needs two lines, and sizes above zero",
        };
        write!(f, "line {}: {problem}", self.line)
    }
}

impl std::error::Error for SizesError {}

impl SizeDistribution {
    /// The names that [`SizeDistribution::named`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> + Clone {
        NAMED.iter().map(|(name, _)| *name)
    }

    /// A distribution that comes with the program.
    pub fn named(name: &str) -> Option<SizeDistribution> {
        let (_, text) = NAMED.iter().find(|(known, _)| *known == name)?;
        Some(SizeDistribution::parse(text).expect("a test reads every one of them"))
    }

    /// All flows have `bytes`.
    pub fn fixed(bytes: u32) -> SizeDistribution {
        let bytes = f64::from(bytes.max(1));
        SizeDistribution { points: vec![(bytes, 0.0), (bytes, 1.0)] }
    }

    /// Reads the text of a distribution.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &str) -> Result<SizeDistribution, SizesError> {
        let mut points: Vec<(f64, f64)> = Vec::new();
        let mut last_line = 1;
        for (index, line) in text.lines().enumerate() {
            let error = |problem| SizesError { line: index + 1, problem };
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            last_line = index + 1;
            let (bytes, percent) = two_numbers(line).ok_or(error(SizesProblem::Form))?;
            if points.last().is_some_and(|&(b, p)| bytes < b || percent / 100.0 < p) {
                return Err(error(SizesProblem::Falls));
            }
            points.push((bytes, percent / 100.0));
        }
        let error = |problem| Err(SizesError { line: last_line, problem });
        match points.last() {
            Some(&(bytes, _)) if points.len() < 2 || bytes < 1.0 => error(SizesProblem::TooShort),
            Some(&(_, 1.0)) => Ok(SizeDistribution { points }),
            Some(_) => error(SizesProblem::End),
            None => error(SizesProblem::TooShort),
        }
    }

    /// A flow's size, at least one byte.
    pub fn sample(&self, rng: &mut Rng) -> u64 {
        let share = rng.unit();
        let above = self.points.partition_point(|&(_, p)| p <= share).min(self.points.len() - 1);
        let (low, high) = (self.points[above.saturating_sub(1)], self.points[above]);
        let part = if high.1 > low.1 { (share - low.1) / (high.1 - low.1) } else { 1.0 };
        (low.0 + part.max(0.0) * (high.0 - low.0)).round().max(1.0) as u64
    }

    /// The largest size in bytes.
    pub fn bytes_max(&self) -> f64 {
        self.points.last().map_or(0.0, |&(bytes, _)| bytes)
    }

    /// The mean size in bytes.
    pub fn mean_bytes(&self) -> f64 {
        self.integrate(|low, high| (low + high) / 2.0)
    }

    /// The mean bytes of a flow on a link: payload, and `overhead_bytes` for each of its packets.
    pub fn mean_wire_bytes(&self, mtu_bytes: u32, overhead_bytes: u32) -> f64 {
        let mtu = f64::from(mtu_bytes);
        // The integral of the number of packets, `⌈x / mtu⌉`, from zero.
        let packets = |x: f64| {
            let whole = (x / mtu).floor();
            mtu * whole * (whole + 1.0) / 2.0 + (x - whole * mtu) * (whole + 1.0)
        };
        let mean_packets = self.integrate(|low, high| {
            if high > low { (packets(high) - packets(low)) / (high - low) } else { (high / mtu).ceil() }
        });
        self.mean_bytes() + f64::from(overhead_bytes) * mean_packets
    }

    /// The sum over all pieces of their share times the mean of something over a piece.
    fn integrate(&self, mean_over: impl Fn(f64, f64) -> f64) -> f64 {
        let first = self.points[0];
        let pieces = self.points.windows(2).map(|w| (w[1].1 - w[0].1) * mean_over(w[0].0, w[1].0));
        first.1 * mean_over(first.0, first.0) + pieces.sum::<f64>()
    }
}

fn two_numbers(line: &str) -> Option<(f64, f64)> {
    let mut words = line.split_whitespace().map(|word| word.parse::<f64>().ok().filter(|n| n.is_finite()));
    match (words.next()??, words.next()??, words.next()) {
        (bytes, percent, None) if bytes >= 0.0 && (0.0..=100.0).contains(&percent) => Some((bytes, percent)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_named_distribution_reads_and_its_samples_have_its_mean() {
        for name in SizeDistribution::names() {
            let sizes = SizeDistribution::named(name).expect(name);
            let mut rng = Rng::new(7);
            let count = 200_000;
            let sum: u64 = (0..count).map(|_| sizes.sample(&mut rng)).sum();
            let mean = sum as f64 / f64::from(count);
            assert!((mean / sizes.mean_bytes() - 1.0).abs() < 0.03, "{name}: {mean} {}", sizes.mean_bytes());
        }
    }

    #[test]
    fn the_heavy_tail_is_the_papers() {
        let sizes = SizeDistribution::named("irn-heavy-tail").expect("it is there");
        let mut rng = Rng::new(1);
        let samples: Vec<u64> = (0..100_000).map(|_| sizes.sample(&mut rng)).collect();
        let share = |low, high| samples.iter().filter(|s| (low..=high).contains(*s)).count() as f64 / 1e5;
        assert!((share(32, 1024) - 0.5).abs() < 0.01);
        assert!((share(200_001, 3_000_000) - 0.15).abs() < 0.01);
        let large: u64 = samples.iter().filter(|s| **s > 200_000).sum();
        assert!(large as f64 / samples.iter().sum::<u64>() as f64 > 0.9);
    }

    #[test]
    fn packets_are_counted_exactly() {
        let wire = |bytes| SizeDistribution::fixed(bytes).mean_wire_bytes(1000, 60);
        assert_eq!((wire(1), wire(1000), wire(1001)), (61.0, 1060.0, 1121.0));
        let uniform = SizeDistribution::parse("0 0\n2000 100").expect("it is right");
        assert!((uniform.mean_wire_bytes(1000, 60) - (1000.0 + 60.0 * 1.5)).abs() < 1e-9);
    }

    #[test]
    fn wrong_texts_name_their_line() {
        let check = |text: &str, line, problem| {
            assert_eq!(SizeDistribution::parse(text), Err(SizesError { line, problem }), "{text}");
        };
        check("", 1, SizesProblem::TooShort);
        check("# only this\n10 100", 2, SizesProblem::TooShort);
        check("0 0\nten 100", 2, SizesProblem::Form);
        check("0 0\n10 20 30", 2, SizesProblem::Form);
        check("10 0\n5 100", 2, SizesProblem::Falls);
        check("10 0\n50 99", 2, SizesProblem::End);
        check("0 0\n0 100", 2, SizesProblem::TooShort);
    }
}
