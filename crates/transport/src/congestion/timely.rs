//! Timely: the sender's rate follows the gradient of its round trips (Timely §4.3).
//!
//! Below `t_low` a round trip says nothing and the rate rises; above `t_high` it falls regardless of the trend. In between the
//! trend decides: round trips that shrink or stand still let the rate rise by a step, after several in a row by a larger one;
//! round trips that grow cut it in proportion to how fast they do, measured against the round trip of an empty network.
//!
//! The paper updates when a segment of 16 to 64 KB completes; models of it (Zhu and others, CoNEXT 2016) at most once per round
//! trip. Both are here. Invariant: `min_rate <= rate <= line_rate`.

use super::{AckSample, Algorithm, CongestionControl, Fraction, LossKind, Rate, Start, fixed};
use highwire_stdx::{Duration, Instant};

/// The constants of Timely, under the names of its paper where it has some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimelyParameters {
    /// The rate flows start at and never exceed.
    pub line_rate: Rate,
    /// The rate no cut goes below.
    pub min_rate: Rate,
    /// T_low: round trips below it always let the rate rise.
    pub t_low: Duration,
    /// T_high: round trips above it always cut the rate.
    pub t_high: Duration,
    /// minRTT: what the gradient is measured against. A constant, not the smallest round trip seen.
    pub min_rtt: Duration,
    /// α: the weight of news in the smoothed difference of round trips.
    pub gain: Fraction,
    /// δ: the additive step.
    pub additive_step: Rate,
    /// β: how strongly a growing round trip cuts.
    pub decrease: Fraction,
    /// After so many rises in a row by the gradient, hyperactive increase takes `hyper_steps` at once.
    pub hyper_after: u32,
    /// N: how many steps hyperactive increase takes.
    pub hyper_steps: u32,
    /// An update per so many packets, or, without, per round trip: then it takes a packet that left after the last update.
    pub segment_packets: Option<u32>,
    /// The part of the rate that a detected loss takes away. The paper has none, as PFC knows no loss; IRN tried it
    /// together with go-back-N (IRN §4.3, question 1).
    pub loss_cut: Fraction,
}

impl TimelyParameters {
    /// The paper's values: T_low = 50 µs, T_high = 500 µs, minRTT = 20 µs, δ = 10 Mb/s, β = 0.8, α = 0.875, N = 5 after
    /// five rises.
    pub const fn paper(line_rate: Rate) -> TimelyParameters {
        TimelyParameters {
            line_rate,
            min_rate: fixed::min_rate(line_rate),
            t_low: Duration::from_micros(50),
            t_high: Duration::from_micros(500),
            min_rtt: Duration::from_micros(20),
            gain: Fraction::new(7, 8),
            additive_step: Rate::from_mbps(10),
            decrease: Fraction::new(4, 5),
            hyper_after: 5,
            hyper_steps: 5,
            segment_packets: None,
            loss_cut: Fraction::ZERO,
        }
    }

    /// The paper's values with a step that grows with the link as public simulators have it: 10 Mb/s for every 10 Gb/s.
    pub const fn scaled(line_rate: Rate) -> TimelyParameters {
        TimelyParameters {
            additive_step: fixed::share(line_rate, 1_000),
            ..TimelyParameters::paper(line_rate)
        }
    }

    /// The same with an update per `packets` instead of per round trip.
    #[must_use]
    pub const fn with_segments(self, packets: u32) -> TimelyParameters {
        TimelyParameters { segment_packets: Some(packets), ..self }
    }

    /// The same, halving the rate at each detected loss.
    #[must_use]
    pub const fn with_backoff_on_loss(self) -> TimelyParameters {
        TimelyParameters { loss_cut: Fraction::new(1, 2), ..self }
    }
}

/// Timely with its paper's parameters.
pub(super) static PAPER: Algorithm = named("timely", "Timely with its paper's parameters", &|start| {
    Some(Box::new(Timely::new(TimelyParameters::paper(start.line_rate))))
});

/// Timely with a step that grows with the link.
pub(super) static SCALED: Algorithm =
    named("timely-scaled", "Timely with a step that grows with the link", &|start| {
        Some(Box::new(Timely::new(TimelyParameters::scaled(start.line_rate))))
    });

/// Timely with an update per 16 packets, its paper's smallest segment.
pub(super) static SEGMENTS: Algorithm =
    named("timely-segments", "Timely with an update per 16 packets", &|start| {
        Some(Box::new(Timely::new(TimelyParameters::paper(start.line_rate).with_segments(16))))
    });

/// Timely that also halves its rate at losses.
pub(super) static BACKOFF: Algorithm =
    named("timely-backoff", "Timely that halves its rate at losses", &|start| {
        Some(Box::new(Timely::new(TimelyParameters::paper(start.line_rate).with_backoff_on_loss())))
    });

const fn named(
    name: &'static str,
    about: &'static str,
    start: &'static (dyn Fn(&Start) -> Option<Box<dyn CongestionControl>> + Send + Sync),
) -> Algorithm {
    Algorithm { hears_acks: true, ..Algorithm::new(name, about, start) }
}

/// The smoothed difference of round trips counts in units of 2^-8 ns, so that small trends survive its averaging.
const DIFF_SHIFT: u32 = 8;

/// One flow's rate computation.
#[derive(Clone, Debug)]
pub struct Timely {
    parameters: TimelyParameters,
    rate: Rate,
    previous_rtt: Option<Duration>,
    /// In 2^-8 ns per update.
    difference: i64,
    rises_in_a_row: u32,
    last_update: Instant,
    /// Packets that have arrived since then.
    arrived: u32,
}

impl Timely {
    /// A flow that starts at line rate.
    ///
    /// # Panics
    /// If the parameters contradict each other: a minimum above the line rate, thresholds out of order, or no `min_rtt`.
    pub fn new(parameters: TimelyParameters) -> Timely {
        let p = &parameters;
        assert!(p.min_rate <= p.line_rate, "the minimum exceeds the line rate");
        assert!(p.t_low <= p.t_high, "T_low exceeds T_high");
        assert!(p.min_rtt > Duration::ZERO, "a gradient over no time");
        Timely {
            rate: parameters.line_rate,
            parameters,
            previous_rtt: None,
            difference: 0,
            rises_in_a_row: 0,
            last_update: Instant::ZERO,
            arrived: 0,
        }
    }

    /// The constants it was made with.
    pub fn parameters(&self) -> &TimelyParameters {
        &self.parameters
    }

    /// The rate it sends at.
    pub fn current_rate(&self) -> Rate {
        self.rate
    }

    /// The smoothed growth of the round trip, in parts of `min_rtt` per update; negative while it shrinks.
    pub fn gradient(&self) -> f64 {
        self.difference as f64 / f64::from(1 << DIFF_SHIFT) / self.parameters.min_rtt.as_nanos() as f64
    }

    fn update(&mut self, rtt: Duration) {
        let Some(previous) = self.previous_rtt.replace(rtt) else { return };
        let p = self.parameters;
        let difference = rtt.as_nanos() as i64 - previous.as_nanos() as i64;
        self.difference = p.gain.blend(self.difference, difference << DIFF_SHIFT);
        if rtt < p.t_low {
            self.rise(1);
        } else if rtt > p.t_high {
            let excess = Fraction::ratio(rtt.as_nanos() - p.t_high.as_nanos(), rtt.as_nanos());
            self.cut(p.decrease.times(excess));
        } else if self.difference <= 0 {
            self.rises_in_a_row = self.rises_in_a_row.saturating_add(1);
            let is_hyper = self.rises_in_a_row >= p.hyper_after;
            let rises = self.rises_in_a_row;
            self.rise(if is_hyper { p.hyper_steps } else { 1 });
            self.rises_in_a_row = rises;
        } else {
            // More than a whole minRTT per update cuts as much as one does: a rate cannot fall below zero.
            let growth = Fraction::ratio(self.difference as u64, p.min_rtt.as_nanos() << DIFF_SHIFT);
            self.cut(p.decrease.times(growth));
        }
    }

    fn rise(&mut self, steps: u32) {
        self.rises_in_a_row = 0;
        self.rate =
            self.rate.raised(self.parameters.additive_step, u64::from(steps), self.parameters.line_rate);
    }

    fn cut(&mut self, part: Fraction) {
        self.rises_in_a_row = 0;
        self.rate = self.rate.reduced_by(part, self.parameters.min_rate);
    }
}

impl CongestionControl for Timely {
    fn on_ack(&mut self, now: Instant, sample: AckSample) {
        self.arrived = self.arrived.saturating_add(sample.packets);
        let Some(rtt) = sample.rtt else { return };
        let is_due = match self.parameters.segment_packets {
            Some(packets) => self.arrived >= packets,
            // A packet that left before the last update does not show that update's effect.
            None => now.saturating_since(self.last_update) >= rtt,
        };
        if !is_due && self.previous_rtt.is_some() {
            return;
        }
        (self.last_update, self.arrived) = (now, 0);
        self.update(rtt);
    }

    fn on_loss(&mut self, _now: Instant, _kind: LossKind) {
        if self.parameters.loss_cut > Fraction::ZERO {
            self.cut(self.parameters.loss_cut);
        }
    }

    #[inline]
    fn rate(&self) -> Option<Rate> {
        Some(self.rate)
    }

    fn wants_round_trips(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    /// Plays one update per round trip, each given in microseconds, and compares the rates in Mb/s.
    fn check(mut timely: Timely, rtts: &[u64], expected: &str) {
        let mut now = Instant::ZERO;
        let mut played = String::new();
        for &us in rtts {
            let rtt = Duration::from_micros(us);
            now += rtt;
            timely.on_ack(now, AckSample { rtt: Some(rtt), packets: 1, ..AckSample::default() });
            let mbps = timely.current_rate().bits_per_second() as f64 / 1e6;
            writeln!(played, "{us:4} us: {mbps:9.3}, gradient {:+.4}", timely.gradient())
                .expect("strings take everything");
        }
        let expected: String =
            expected.lines().map(str::trim).filter(|l| !l.is_empty()).flat_map(|l| [l, "\n"]).collect();
        let played: String = played.lines().map(str::trim).flat_map(|l| [l, "\n"]).collect();
        assert_eq!(played, expected, "\n{played}");
    }

    fn at_rate(mbps: u64) -> Timely {
        Timely { rate: Rate::from_mbps(mbps), ..Timely::new(TimelyParameters::paper(Rate::from_gbps(10))) }
    }

    /// The first round trip has no predecessor. A growth of 8 µs counts for 7 µs, 0.35 minRTT, and cuts by 0.8 x 0.35; the
    /// next, of none, still by 0.8 x 0.04375.
    #[test]
    fn growing_round_trips_cut_in_proportion_to_their_growth() {
        check(
            at_rate(1000),
            &[60, 68, 68, 60],
            "
            60 us:  1000.000, gradient +0.0000
            68 us:   720.000, gradient +0.3500
            68 us:   694.800, gradient +0.0437
            60 us:   704.800, gradient -0.3445
            ",
        );
    }

    #[test]
    fn steady_round_trips_raise_by_one_step_and_from_the_fifth_time_by_five() {
        check(
            at_rate(1000),
            &[60, 60, 60, 60, 60, 60, 60],
            "
            60 us:  1000.000, gradient +0.0000
            60 us:  1010.000, gradient +0.0000
            60 us:  1020.000, gradient +0.0000
            60 us:  1030.000, gradient +0.0000
            60 us:  1040.000, gradient +0.0000
            60 us:  1090.000, gradient +0.0000
            60 us:  1140.000, gradient +0.0000
            ",
        );
    }

    /// At 1000 µs, 0.8 x (1 - 500 / 1000) of the rate goes even while round trips shrink; at 40 µs it rises while they grow.
    #[test]
    fn beyond_the_thresholds_the_trend_does_not_matter() {
        check(
            at_rate(1000),
            &[1100, 1000, 30, 40],
            "
            1100 us:  1000.000, gradient +0.0000
            1000 us:   600.000, gradient -4.3750
            30 us:   610.000, gradient -42.9844
            40 us:   620.000, gradient -4.9355
            ",
        );
    }

    #[test]
    fn no_cut_goes_below_the_minimum_and_no_rise_above_the_line() {
        check(
            at_rate(150),
            &[60, 160, 30],
            "
            60 us:   150.000, gradient +0.0000
            160 us:   100.000, gradient +4.3750
            30 us:   110.000, gradient -5.1406
            ",
        );
        let mut fast = at_rate(9_995);
        fast.update(Duration::from_micros(30));
        fast.update(Duration::from_micros(30));
        assert_eq!(fast.rate(), Some(Rate::from_gbps(10)));
    }

    /// Ten packets per round trip of 60 µs, yet one update in each.
    #[test]
    fn one_update_per_round_trip_however_many_acknowledgements() {
        let mut timely = at_rate(1000);
        let sample = AckSample { rtt: Some(Duration::from_micros(60)), packets: 1, ..AckSample::default() };
        for n in 0..=20 {
            timely.on_ack(Instant::from_nanos(60_000 + n * 6_000), sample);
        }
        assert_eq!(timely.current_rate(), Rate::from_mbps(1020), "two updates after the first sample");
    }

    #[test]
    fn or_one_update_per_segment() {
        let mut timely = at_rate(1000);
        timely.parameters = timely.parameters.with_segments(4);
        let sample = AckSample { rtt: Some(Duration::from_micros(60)), packets: 1, ..AckSample::default() };
        (0..=16).for_each(|n| timely.on_ack(Instant::from_nanos(60_000 + n), sample));
        assert_eq!(timely.current_rate(), Rate::from_mbps(1040), "four updates after the first sample");
    }

    #[test]
    fn losses_matter_only_where_asked() {
        let mut timely = at_rate(1000);
        timely.on_loss(Instant::ZERO, LossKind::Nack);
        assert_eq!(timely.current_rate(), Rate::from_mbps(1000));
        timely.parameters = timely.parameters.with_backoff_on_loss();
        timely.on_loss(Instant::ZERO, LossKind::Timeout);
        assert_eq!(timely.current_rate(), Rate::from_mbps(500));
    }

    #[test]
    fn the_scaled_step_is_a_thousandth_of_the_link() {
        let p = TimelyParameters::scaled(Rate::from_gbps(40));
        assert_eq!(p.additive_step, Rate::from_mbps(40));
    }
}
