//! DCQCN's reaction point: the sender's rate follows congestion notification packets.
//!
//! A CNP cuts the rate by half of α, the running estimate of congestion; quiet time brings it back, first halfway to where
//! it was (fast recovery), then by small steps beyond (additive), then by growing ones (hyper increase). α decays while no
//! CNP comes; since nothing reads it in between, its decay is computed when the next CNP arrives and needs no timer.
//!
//! Invariants: `min_rate <= rate <= target <= line_rate`; the increase timer runs exactly while `rate` is below `line_rate`.

use super::fixed::{min_rate, share};
use super::{Algorithm, CongestionControl, Fraction, Marking, Marks, Rate, Start};
use highwire_stdx::{Duration, Instant};

/// The constants of DCQCN, under the names of its paper where it has some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcqcnParameters {
    /// The rate flows start at and never exceed.
    pub line_rate: Rate,
    /// The rate no cut goes below.
    pub min_rate: Rate,
    /// g: the weight of news in α.
    pub gain: Fraction,
    /// α before the first CNP.
    pub alpha_initial: Fraction,
    /// K: α decays once in every such time without a CNP.
    pub alpha_interval: Duration,
    /// T: the rate rises once in every such time.
    pub increase_interval: Duration,
    /// B: the rate also rises once in every so many bytes sent. `None`: by time alone.
    pub increase_bytes: Option<u64>,
    /// F: how many rises by either clock are fast recovery.
    pub fast_recovery_steps: u32,
    /// R_AI: the additive step.
    pub additive_step: Rate,
    /// R_HAI: the hyper step.
    pub hyper_step: Rate,
    /// Whether the i-th hyper increase takes i steps, as in the paper, or always one.
    pub hyper_step_grows: bool,
    /// CNPs within this time of a cut count for α but do not cut again.
    pub cut_interval: Duration,
    /// Whether a cut that follows another with no rise in between leaves the target where it was.
    pub target_survives_repeated_cuts: bool,
}

impl DcqcnParameters {
    /// The paper's values: K = T = 55 µs, B = 10 MB, F = 5, g = 1/256, R_AI = 40 Mb/s, R_HAI = 200 Mb/s. The paper's
    /// notification point spaces CNPs by 50 µs, so every one of them cuts.
    pub const fn paper(line_rate: Rate) -> DcqcnParameters {
        DcqcnParameters {
            line_rate,
            min_rate: min_rate(line_rate),
            gain: Fraction::new(1, 256),
            alpha_initial: Fraction::ONE,
            alpha_interval: Duration::from_micros(55),
            increase_interval: Duration::from_micros(55),
            increase_bytes: Some(10_000_000),
            fast_recovery_steps: 5,
            additive_step: Rate::from_mbps(40),
            hyper_step: Rate::from_mbps(200),
            hyper_step_grows: true,
            cut_interval: Duration::ZERO,
            target_survives_repeated_cuts: false,
        }
    }

    /// The defaults of ConnectX firmware as public simulators model them: K = 1 µs, T = 300 µs, F = 1, cuts at least 4 µs
    /// apart, steps that scale with the link (5 and 50 Mb/s at 25 Gb/s). Their models have no byte clock.
    pub const fn connectx(line_rate: Rate) -> DcqcnParameters {
        DcqcnParameters {
            line_rate,
            min_rate: min_rate(line_rate),
            gain: Fraction::new(1, 256),
            alpha_initial: Fraction::new(1023, 1024),
            alpha_interval: Duration::from_micros(1),
            increase_interval: Duration::from_micros(300),
            increase_bytes: None,
            fast_recovery_steps: 1,
            additive_step: share(line_rate, 5_000),
            hyper_step: share(line_rate, 500),
            hyper_step_grows: false,
            cut_interval: Duration::from_micros(4),
            target_survives_repeated_cuts: true,
        }
    }
}

/// DCQCN with its paper's parameters.
pub(super) static PAPER: Algorithm = Algorithm {
    marks: Marks::Cnps,
    marking: Some(Marking::red(5_000, 200_000, 0.01)),
    ..Algorithm::new("dcqcn", "DCQCN with its paper's parameters", &|start: &Start| {
        Some(Box::new(Dcqcn::paper(start.line_rate)))
    })
};

/// DCQCN with parameters in the style of ConnectX firmware.
pub(super) static CONNECTX: Algorithm = Algorithm {
    marks: Marks::Cnps,
    marking: Some(Marking::red(160_000, 640_000, 0.2)),
    ..Algorithm::new("dcqcn-connectx", "DCQCN with the parameters of ConnectX firmware", &|start: &Start| {
        Some(Box::new(Dcqcn::connectx(start.line_rate)))
    })
};

/// One flow's reaction point.
#[derive(Clone, Debug)]
pub struct Dcqcn {
    parameters: DcqcnParameters,
    rate: Rate,
    target: Rate,
    /// α when it was last changed by a CNP.
    alpha: Fraction,
    alpha_since: Option<Instant>,
    last_cut: Option<Instant>,
    next_increase: Option<Instant>,
    bytes: u64,
    /// Rises by the timer and by the byte counter since the last cut: T and BC in the paper.
    time_steps: u32,
    byte_steps: u32,
}

/// Which kind of rise comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    FastRecovery,
    Additive,
    /// With the number of steps to take at once.
    Hyper(u64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Clock {
    Time,
    Bytes,
}

impl Dcqcn {
    /// A flow that starts at line rate.
    ///
    /// # Panics
    /// If the parameters contradict each other: a minimum above the line rate, or an interval or byte count of zero.
    pub fn new(parameters: DcqcnParameters) -> Dcqcn {
        let p = &parameters;
        assert!(
            p.min_rate <= p.line_rate,
            "the minimum of {:?} exceeds the line rate of {:?}",
            p.min_rate,
            p.line_rate
        );
        assert!(
            p.alpha_interval > Duration::ZERO && p.increase_interval > Duration::ZERO,
            "an interval of zero"
        );
        assert!(p.increase_bytes != Some(0), "a byte counter of zero");
        Dcqcn {
            rate: parameters.line_rate,
            target: parameters.line_rate,
            alpha: parameters.alpha_initial,
            parameters,
            alpha_since: None,
            last_cut: None,
            next_increase: None,
            bytes: 0,
            time_steps: 0,
            byte_steps: 0,
        }
    }

    /// A flow with the paper's constants.
    pub fn paper(line_rate: Rate) -> Dcqcn {
        Dcqcn::new(DcqcnParameters::paper(line_rate))
    }

    /// A flow with ConnectX's constants.
    pub fn connectx(line_rate: Rate) -> Dcqcn {
        Dcqcn::new(DcqcnParameters::connectx(line_rate))
    }

    /// The constants it was made with.
    pub fn parameters(&self) -> &DcqcnParameters {
        &self.parameters
    }

    /// R_C: the rate it sends at.
    pub fn current_rate(&self) -> Rate {
        self.rate
    }

    /// R_T: the rate it returns to.
    pub fn target_rate(&self) -> Rate {
        self.target
    }

    /// α: the estimate of congestion at `now`.
    pub fn alpha_at(&self, now: Instant) -> Fraction {
        let Some(since) = self.alpha_since else { return self.alpha };
        let quiet = now.saturating_since(since).as_nanos() / self.parameters.alpha_interval.as_nanos();
        self.parameters.gain.complement().power(quiet).times(self.alpha)
    }

    fn cut(&mut self, now: Instant, alpha: Fraction) {
        let has_risen = self.time_steps > 0 || self.byte_steps > 0;
        if has_risen || !self.parameters.target_survives_repeated_cuts {
            self.target = self.rate;
        }
        self.rate = self.rate.reduced_by(alpha.halved(), self.parameters.min_rate);
        (self.time_steps, self.byte_steps, self.bytes) = (0, 0, 0);
        self.next_increase =
            (self.rate < self.parameters.line_rate).then(|| now + self.parameters.increase_interval);
        self.last_cut = Some(now);
    }

    fn rise(&mut self, clock: Clock) {
        let p = &self.parameters;
        self.target = match self.phase() {
            Phase::FastRecovery => self.target,
            Phase::Additive => self.target.raised(p.additive_step, 1, p.line_rate),
            Phase::Hyper(steps) => self.target.raised(p.hyper_step, steps, p.line_rate),
        };
        self.rate = self.rate.midpoint_with_higher(self.target);
        if self.rate >= p.line_rate {
            self.next_increase = None;
        }
        match clock {
            Clock::Time => self.time_steps = self.time_steps.saturating_add(1),
            Clock::Bytes => self.byte_steps = self.byte_steps.saturating_add(1),
        }
    }

    /// The kind of the next rise follows from the rises made since the last cut, so that there are F fast recoveries.
    fn phase(&self) -> Phase {
        let p = &self.parameters;
        let byte_steps = if p.increase_bytes.is_some() { self.byte_steps } else { self.time_steps };
        let (fewer, more) = (self.time_steps.min(byte_steps), self.time_steps.max(byte_steps));
        if more < p.fast_recovery_steps {
            Phase::FastRecovery
        } else if fewer <= p.fast_recovery_steps {
            Phase::Additive
        } else if p.hyper_step_grows {
            Phase::Hyper(u64::from(fewer - p.fast_recovery_steps))
        } else {
            Phase::Hyper(1)
        }
    }
}

impl CongestionControl for Dcqcn {
    #[inline]
    fn on_sent(&mut self, _now: Instant, bytes: u32) {
        let Some(limit) = self.parameters.increase_bytes else { return };
        if self.next_increase.is_none() {
            return;
        }
        self.bytes += u64::from(bytes);
        while self.bytes >= limit {
            self.bytes -= limit;
            self.rise(Clock::Bytes);
        }
    }

    fn on_cnp(&mut self, now: Instant) {
        let alpha = self.alpha_at(now);
        let is_too_soon =
            self.last_cut.is_some_and(|cut| now.saturating_since(cut) < self.parameters.cut_interval);
        if !is_too_soon {
            self.cut(now, alpha);
        }
        let gain = self.parameters.gain;
        self.alpha = gain.complement().times(alpha).plus(gain);
        self.alpha_since = Some(now);
    }

    #[inline]
    fn next_timer(&self) -> Option<Instant> {
        self.next_increase
    }

    fn on_timer(&mut self, now: Instant) {
        while let Some(due) = self.next_increase.filter(|&due| due <= now) {
            self.next_increase = Some(due + self.parameters.increase_interval);
            self.rise(Clock::Time);
        }
    }

    #[inline]
    fn rate(&self) -> Option<Rate> {
        Some(self.rate)
    }
}
