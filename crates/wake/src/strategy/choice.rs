//! Strategies and modes by name.

use super::{Adaptive, Affine, BusyPoll, Dispatcher, Event, LeaderFollower, WakeStrategy};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// How long a leader polls in vain unless the program asks for latency at any price: the time of a few
/// wake-ups.
const BUDGET: Duration = Duration::from_micros(50);
/// The same if the program asks for that.
const LATENCY_BUDGET: Duration = Duration::from_millis(10);

/// The program's choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// The shortest wait, whatever it costs.
    Latency,
    /// A short wait where a little polling buys it.
    #[default]
    Balanced,
    /// No polling.
    Power,
    /// A thread of the device polls on the core where threads sleep. For many threads that share few cores with nothing else.
    Dispatcher,
    /// As a card's completion channel: no polling, and the thread that finds the event wakes this one. For
    /// comparisons.
    Event,
}

/// The strategies by name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)] // Each is the type of that name.
pub enum Strategy {
    BusyPoll,
    Event,
    Dispatcher,
    LeaderFollower,
    Affine,
    Adaptive,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 5] = [Mode::Latency, Mode::Balanced, Mode::Power, Mode::Dispatcher, Mode::Event];

    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Latency => "latency",
            Mode::Balanced => "balanced",
            Mode::Power => "power",
            Mode::Dispatcher => "dispatcher",
            Mode::Event => "event",
        }
    }

    /// The name of the strategy that serves this mode.
    pub fn served_by(self) -> Strategy {
        match self {
            Mode::Latency => Strategy::LeaderFollower,
            Mode::Balanced => Strategy::Adaptive,
            Mode::Power => Strategy::Affine,
            Mode::Dispatcher => Strategy::Dispatcher,
            Mode::Event => Strategy::Event,
        }
    }

    /// The strategy that serves this mode.
    pub fn strategy(self) -> Arc<dyn WakeStrategy> {
        self.served_by().make()
    }
}

impl Strategy {
    /// Every strategy.
    pub const ALL: [Strategy; 6] = [
        Strategy::BusyPoll,
        Strategy::Event,
        Strategy::Dispatcher,
        Strategy::LeaderFollower,
        Strategy::Affine,
        Strategy::Adaptive,
    ];

    /// Its name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Strategy::BusyPoll => "busy-poll",
            Strategy::Event => "event",
            Strategy::Dispatcher => "dispatcher",
            Strategy::LeaderFollower => "leader-follower",
            Strategy::Affine => "affine",
            Strategy::Adaptive => "adaptive",
        }
    }

    /// Makes the strategy. A dispatcher needs a thread that serves it.
    pub fn make(self) -> Arc<dyn WakeStrategy> {
        match self {
            Strategy::BusyPoll => Arc::new(BusyPoll),
            Strategy::Event => Arc::new(Event),
            Strategy::Dispatcher => Arc::new(Dispatcher::default()),
            Strategy::LeaderFollower => Arc::new(LeaderFollower { budget: LATENCY_BUDGET }),
            Strategy::Affine => Arc::new(Affine),
            Strategy::Adaptive => Arc::new(Adaptive { budget: BUDGET }),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        let found = Mode::ALL.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| {
            let names: Vec<_> = Mode::ALL.iter().map(|mode| mode.name()).collect();
            format!("no such mode: {text}; there are {}", names.join(", "))
        })
    }
}

impl FromStr for Strategy {
    type Err = String;

    fn from_str(text: &str) -> Result<Strategy, String> {
        let found = Strategy::ALL.into_iter().find(|strategy| strategy.name() == text);
        // The name of a mode means the strategy that serves it.
        found.or_else(|| text.parse().ok().map(Mode::served_by)).ok_or_else(|| {
            let names: Vec<_> = Strategy::ALL.iter().map(|strategy| strategy.name()).collect();
            let modes = Mode::ALL.map(|mode| format!("{mode} ({})", mode.served_by()));
            format!(
                "no such strategy: {text}; there are {}, and the modes {}",
                names.join(", "),
                modes.join(", ")
            )
        })
    }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_back() {
        assert!(Mode::ALL.iter().all(|mode| mode.name().parse() == Ok(*mode)));
        assert!(Strategy::ALL.iter().all(|strategy| strategy.name().parse() == Ok(*strategy)));
        assert!(
            "fast".parse::<Mode>().is_err_and(|error| error.contains("balanced, power, dispatcher, event"))
        );
        assert!(Mode::ALL.iter().all(|mode| mode.name().parse() == Ok(mode.served_by())));
        assert_eq!("balanced".parse(), Ok(Strategy::Adaptive));
        assert!("irq".parse::<Strategy>().is_err_and(|error| error.contains("leader-follower")));
    }
}
