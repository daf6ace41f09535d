//! The network's faults: rules that see each packet and give a verdict.

use highwire_stdx::{Duration, Instant, Rng};
use highwire_wire::Headers;

/// A packet as the network sees it.
pub struct Seen<'a> {
    pub now: Instant,
    pub from: usize,
    pub to: usize,
    pub headers: &'a Headers,
    /// Bytes on the wire, about.
    pub length: u32,
}

/// A packet's fate. Several rules' verdicts add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Verdict {
    pub drop: bool,
    pub duplicate: bool,
    pub corrupt: bool,
    pub forge: bool,
    pub mark: bool,
    pub delay: Duration,
}

impl Verdict {
    pub const PASS: Verdict = Verdict {
        drop: false,
        duplicate: false,
        corrupt: false,
        forge: false,
        mark: false,
        delay: Duration::ZERO,
    };
    pub const DROP: Verdict = Verdict { drop: true, ..Verdict::PASS };
    pub const DUPLICATE: Verdict = Verdict { duplicate: true, ..Verdict::PASS };
    pub const MARK: Verdict = Verdict { mark: true, ..Verdict::PASS };

    pub fn drop_if(condition: bool) -> Verdict {
        Verdict { drop: condition, ..Verdict::PASS }
    }

    pub fn delay(by: Duration) -> Verdict {
        Verdict { delay: by, ..Verdict::PASS }
    }

    pub(super) fn add(&mut self, other: Verdict) {
        self.drop |= other.drop;
        self.duplicate |= other.duplicate;
        self.corrupt |= other.corrupt;
        self.forge |= other.forge;
        self.mark |= other.mark;
        self.delay = self.delay + other.delay;
    }
}

/// A rule that decides about each packet in turn.
pub type Rule = Box<dyn FnMut(&Seen<'_>, &mut Rng) -> Verdict>;

/// Random faults that end at some time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    pub loss: f64,
    pub duplicate: f64,
    pub corrupt: f64,
    pub forge: f64,
    pub mark: f64,
    /// How many packets are delayed, and by how much at most.
    pub reorder: f64,
    pub jitter: Duration,
    /// A time in which no packet passes.
    pub blackout: Option<(Instant, Instant)>,
    /// The network is honest and whole after that.
    pub until: Instant,
}

impl Faults {
    pub fn rule(self) -> Rule {
        Box::new(move |seen, rng| {
            if seen.now >= self.until {
                return Verdict::PASS;
            }
            let delay = if rng.chance(self.reorder) { rng.below(self.jitter.as_nanos() + 1) } else { 0 };
            Verdict {
                drop: rng.chance(self.loss)
                    || self.blackout.is_some_and(|(from, to)| (from..to).contains(&seen.now)),
                duplicate: rng.chance(self.duplicate),
                corrupt: rng.chance(self.corrupt),
                forge: rng.chance(self.forge),
                mark: rng.chance(self.mark),
                delay: Duration::from_nanos(delay),
            }
        })
    }
}
