//! How far a run is, for a caller that waits for it.

use highwire_fabric::Time;

/// How far a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tick {
    /// Virtual time.
    pub now: Time,
    /// Flows received.
    pub received: u64,
    /// Flows in all.
    pub flows: u64,
    /// Packets times links so far.
    pub packet_hops: u64,
}

/// Called now and then with a run's progress; may end the run. Neither it nor the number of calls changes the
/// outcome.
pub trait Progress {
    /// Returns false to end the run.
    fn tick(&mut self, tick: &Tick) -> bool;
}

/// Never looks.
impl Progress for () {
    fn tick(&mut self, _tick: &Tick) -> bool {
        true
    }
}

impl<F: FnMut(&Tick) -> bool> Progress for F {
    fn tick(&mut self, tick: &Tick) -> bool {
        self(tick)
    }
}
