//! What the background thread knows of the thread that leads.
//!
//! A leader that has not said since the last look that it runs, and does not rest either, may be waiting for a core; packets must not wait
//! for it. Nor must they for a leader that rests and is not given a core when a packet comes.

/// What is known of the leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Leader {
    /// There is none, or it does not run.
    #[default]
    None,
    /// It has run since the look before.
    Runs,
    /// It sleeps on the descriptors.
    Rests,
    /// It sleeps there, and packets have waited for it since the look before.
    Starved,
}

/// What a look at the leader's seat shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sight {
    /// How often leaders have said that they run.
    pub beats: u64,
    /// A thread has the seat.
    pub is_taken: bool,
    /// A thread rests.
    pub rests: bool,
    /// Work was left to the background thread.
    pub is_left: bool,
}

impl Leader {
    /// All of them, in the table's order.
    pub const ALL: [Leader; 4] = [Leader::None, Leader::Runs, Leader::Rests, Leader::Starved];

    /// What is known after a look, if leaders had said `beats` times before that they run. `has_packets` looks at the descriptors.
    pub fn see(self, beats: u64, sight: Sight, has_packets: impl FnOnce() -> bool) -> Leader {
        if sight.is_left {
            Leader::None
        } else if sight.beats != beats {
            Leader::Runs
        } else if !sight.rests {
            Leader::None
        } else if matches!(self, Leader::Rests | Leader::Starved) && has_packets() {
            Leader::Starved
        } else {
            Leader::Rests
        }
    }

    /// Whether packets are its to take.
    pub fn leads(self) -> bool {
        matches!(self, Leader::Runs | Leader::Rests)
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Leader::None => "none",
            Leader::Runs => "runs",
            Leader::Rests => "rests",
            Leader::Starved => "starved",
        }
    }
}
