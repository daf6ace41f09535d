//! Faults as people write them: `loss=1%,delay=10us,seed=7`.

use highwire_stdx::Duration;
use std::fmt;
use std::str::FromStr;

/// The faults of a link, and how often each happens.
///
/// As text, `key=value` pairs with commas between; [`FaultConfig::default`] is no faults at all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FaultConfig {
    /// Fraction of packets lost.
    pub loss: f64,
    /// Fraction of packets sent twice.
    pub duplicate: f64,
    /// Fraction of packets overtaken by later ones.
    pub reorder: f64,
    /// By how many at most.
    pub reorder_depth: u32,
    /// Fraction of packets with one bit flipped.
    pub corrupt: f64,
    /// Added to every packet's way.
    pub delay: Duration,
    /// A random extra delay of at most this, so that packets overtake each other.
    pub jitter: Duration,
    /// The seed of all random choices.
    pub seed: u64,
}

impl Default for FaultConfig {
    fn default() -> FaultConfig {
        FaultConfig {
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_depth: 4,
            corrupt: 0.0,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            seed: 0,
        }
    }
}

/// An error in a description of faults, with the correct form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// Not a rate.
    Rate(String),
    /// Not a span of time.
    Duration(String),
    /// Not a whole number in range.
    Number(String),
    /// No `=` between key and value.
    Pair(String),
    /// A key that means nothing.
    Key(String),
    /// The rates of faults that exclude each other add up to more than all packets.
    Sum,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Rate(text) => {
                write!(
                    f,
                    "`{text}` is not a rate: write a percentage like `1%` or a fraction from 0 to 1 like `0.01`"
                )
            }
            ConfigError::Duration(text) => {
                write!(
                    f,
                    "`{text}` is not a time: write a number with ns, us, ms or s behind it, like `10us`"
                )
            }
            ConfigError::Number(text) => write!(f, "`{text}` is not a number that fits: write one like `7`"),
            ConfigError::Pair(text) => {
                write!(f, "`{text}` names no value: write `key=value`, like `loss=1%`")
            }
            ConfigError::Key(text) => {
                write!(f, "`{text}` is no kind of fault; there are {}", KEYS.join(", "))
            }
            ConfigError::Sum => f.write_str(
                "loss, duplicate, reorder and corrupt exclude each other and may add up to 100% at most",
            ),
        }
    }
}

impl std::error::Error for ConfigError {}

const KEYS: [&str; 8] = ["loss", "duplicate", "reorder", "depth", "corrupt", "delay", "jitter", "seed"];

/// A rate from `1%` or `0.01`.
///
/// # Errors
/// [`ConfigError::Rate`].
pub fn parse_rate(text: &str) -> Result<f64, ConfigError> {
    let wrong = || ConfigError::Rate(text.to_owned());
    let (number, scale) = match text.trim().strip_suffix('%') {
        Some(percent) => (percent.trim_end(), 0.01),
        None => (text.trim(), 1.0),
    };
    let rate = scale * number.parse::<f64>().map_err(|_| wrong())?;
    if (0.0..=1.0).contains(&rate) { Ok(rate) } else { Err(wrong()) }
}

/// A span of time from `250ns`, `10us` (or `10µs`), `1.5ms`, `2s` or `0`.
///
/// # Errors
/// [`ConfigError::Duration`].
pub fn parse_duration(text: &str) -> Result<Duration, ConfigError> {
    let wrong = || ConfigError::Duration(text.to_owned());
    let trimmed = text.trim();
    let digits = trimmed.trim_end_matches(|c: char| !c.is_ascii_digit() && c != '.');
    let nanos_per_unit = match trimmed[digits.len()..].trim_start() {
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "" if digits == "0" => 1.0,
        _ => return Err(wrong()),
    };
    let nanos = nanos_per_unit * digits.parse::<f64>().map_err(|_| wrong())?;
    // An hour is longer than any experiment, and far from where integers overflow.
    if (0.0..=3.6e12).contains(&nanos) {
        Ok(Duration::from_nanos(nanos.round() as u64))
    } else {
        Err(wrong())
    }
}

impl FaultConfig {
    /// Whether every packet passes untouched.
    pub fn is_harmless(&self) -> bool {
        *self == FaultConfig { seed: self.seed, reorder_depth: self.reorder_depth, ..FaultConfig::default() }
    }

    /// The same faults with other random choices, for another lane or process.
    #[must_use]
    pub fn for_lane(&self, lane: u64) -> FaultConfig {
        FaultConfig { seed: highwire_stdx::Rng::new(self.seed).fork(lane).next_u64(), ..*self }
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ConfigError> {
        let number = || ConfigError::Number(value.to_owned());
        match key {
            "loss" => self.loss = parse_rate(value)?,
            "duplicate" => self.duplicate = parse_rate(value)?,
            "reorder" => self.reorder = parse_rate(value)?,
            "depth" => self.reorder_depth = value.parse().ok().filter(|&n| n > 0).ok_or_else(number)?,
            "corrupt" => self.corrupt = parse_rate(value)?,
            "delay" => self.delay = parse_duration(value)?,
            "jitter" => self.jitter = parse_duration(value)?,
            "seed" => self.seed = value.parse().map_err(|_| number())?,
            _ => return Err(ConfigError::Key(key.to_owned())),
        }
        Ok(())
    }

    /// Checks the sum of the rates, which no single value shows.
    ///
    /// # Errors
    /// [`ConfigError::Sum`].
    pub fn check(&self) -> Result<(), ConfigError> {
        let sum = self.loss + self.duplicate + self.reorder + self.corrupt;
        // A hair of slack: 0.7 + 0.2 + 0.1 is a little more than 1.
        if sum <= 1.0 + 1e-9 { Ok(()) } else { Err(ConfigError::Sum) }
    }
}

impl FromStr for FaultConfig {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<FaultConfig, ConfigError> {
        let mut config = FaultConfig::default();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').ok_or_else(|| ConfigError::Pair(pair.to_owned()))?;
            config.set(key.trim(), value.trim())?;
        }
        config.check()?;
        Ok(config)
    }
}

/// The text that parses to the same faults.
impl fmt::Display for FaultConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rates = [self.loss, self.duplicate, self.reorder, self.corrupt];
        for (key, rate) in ["loss", "duplicate", "reorder", "corrupt"].into_iter().zip(rates) {
            if rate > 0.0 {
                write!(f, "{key}={rate},")?;
            }
        }
        for (key, span) in [("delay", self.delay), ("jitter", self.jitter)] {
            if span > Duration::ZERO {
                write!(f, "{key}={}ns,", span.as_nanos())?;
            }
        }
        write!(f, "depth={},seed={}", self.reorder_depth, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: Result<FaultConfig, &str>) {
        let found = text.parse::<FaultConfig>().map_err(|e| e.to_string());
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
            (Err(found), Err(expected)) => assert!(found.contains(expected), "{text}: {found}"),
            (found, _) => panic!("{text}: {found:?}"),
        }
    }

    #[test]
    fn descriptions_of_faults() {
        let none = FaultConfig::default();
        check("", Ok(none));
        check("loss=1%", Ok(FaultConfig { loss: 0.01, ..none }));
        check(" loss = 0.001 , seed=7,", Ok(FaultConfig { loss: 0.001, seed: 7, ..none }));
        let (delay, jitter) = (Duration::from_micros(10), Duration::from_nanos(1_500));
        check("delay=10us,jitter=1.5µs", Ok(FaultConfig { delay, jitter, ..none }));
        check(
            "reorder=100 %,depth=9,corrupt=0,duplicate=1e-9",
            Ok(FaultConfig { reorder: 1.0, reorder_depth: 9, duplicate: 1e-9, ..none }),
        );
    }

    #[test]
    fn errors_say_what_would_be_right() {
        check("loss=101%", Err("`101%` is not a rate"));
        check("loss=-1%", Err("write a percentage like `1%`"));
        check("loss=NaN", Err("not a rate"));
        check("loss=", Err("`` is not a rate"));
        check("delay=10", Err("`10` is not a time: write a number with ns, us, ms or s"));
        check("delay=10 minutes", Err("not a time"));
        check("delay=1e99s", Err("not a time"));
        check("delay=.", Err("not a time"));
        check("jitter=us", Err("not a time"));
        check("depth=0", Err("`0` is not a number that fits"));
        check("seed=x", Err("`x` is not a number"));
        check("lost=1%", Err("`lost` is no kind of fault; there are loss, duplicate"));
        check("loss", Err("`loss` names no value"));
        check("loss=60%,corrupt=50%", Err("add up to 100%"));
    }

    #[test]
    fn the_text_form_parses_back() {
        for text in
            ["", "loss=1%,delay=10us,seed=7", "reorder=0.3,depth=2,jitter=1ms,corrupt=1e-4,duplicate=5%"]
        {
            let config: FaultConfig = text.parse().unwrap();
            check(&config.to_string(), Ok(config));
        }
        assert!("seed=9,depth=2".parse::<FaultConfig>().unwrap().is_harmless());
        assert!(!"delay=1ns".parse::<FaultConfig>().unwrap().is_harmless());
    }
}
