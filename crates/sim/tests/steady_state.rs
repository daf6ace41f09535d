//! CongestionChoice controls on a dumbbell, against theory about their steady states.
//!
//! Long flows share a link; once they have settled, the queue in front of it is looked at every two microseconds.

use highwire_fabric::{Buffering, Ecn, Rate, Span, Time};
use highwire_sim::scenario::{Cap, CongestionChoice, Irn, Shape, Stop, Transport};
use highwire_sim::{Flow, Outcome, Scenario, run};
use highwire_stdx::Rng;

/// A full packet on the wire.
const PACKET: f64 = 1086.0;

/// So many flows over one link, with enough buffer for everything, BDP-FC out of the way, and `delay` per link.
fn dumbbell(flows: u32, congestion: CongestionChoice, ecn: Option<Ecn>, gbps: u64, delay: Span) -> Scenario {
    // They start at different times, or all would do the same at the same time for ever.
    let long = |n| Flow::new(n, flows + n, 1 << 30, Time::from_ns(777 * u64::from(n)));
    let mut scenario = Scenario { flows: (0..flows).map(long).collect(), ..Scenario::default() };
    let network = &mut scenario.network;
    network.shape = Shape::Dumbbell { left: flows, right: flows, trunk_rate: None };
    network.rate = Rate::from_gbps(gbps);
    network.delay = delay;
    network.buffering = Buffering::InputQueued { input_bytes: 100_000_000 };
    network.ecn = ecn;
    scenario.scheme.transport = Transport::Irn(Irn { cap: Cap::Packets(1000), ..Irn::default() });
    scenario.scheme.congestion = congestion;
    scenario.record.ports = true;
    scenario.record.sample_every = Some(Span::from_us(2));
    scenario
}

/// Observations from `settled` to `end`.
struct Steady {
    /// Bytes in front of the shared link.
    queue: Vec<f64>,
    /// Each flow's packets, from the beginning.
    sent: Vec<f64>,
}

fn watch(mut scenario: Scenario, settled: Time, end: Time) -> Steady {
    scenario.stop = Stop::At(end);
    let outcome: Outcome = run(&scenario, &mut ()).expect("no invariant breaks");
    // Samples hold the ports of switches.
    let ports: Vec<_> = outcome.ports.iter().filter(|port| !port.is_host).collect();
    let shared = (0..ports.len()).max_by_key(|&p| ports[p].queue_bytes_max).expect("switches have ports");
    let late = outcome.samples.iter().filter(|sample| sample.at >= settled);
    Steady {
        queue: late.map(|sample| f64::from(sample.queue_bytes[shared])).collect(),
        sent: outcome.flows.iter().map(|flow| f64::from(flow.sent)).collect(),
    }
}

impl Steady {
    fn mean(&self) -> f64 {
        self.queue.iter().sum::<f64>() / self.queue.len() as f64
    }

    fn max(&self) -> f64 {
        self.queue.iter().copied().fold(0.0, f64::max)
    }

    fn min(&self) -> f64 {
        self.queue.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// How far the flow that is farthest from the mean is from it.
    fn unfairness(&self) -> f64 {
        let mean = self.sent.iter().sum::<f64>() / self.sent.len() as f64;
        self.sent.iter().map(|sent| (sent - mean).abs() / mean).fold(0.0, f64::max)
    }
}

fn close(what: &str, measured: f64, theory: f64, tolerance: f64) {
    let off = (measured - theory).abs() / theory;
    assert!(off <= tolerance, "{what}: {measured:.2}, by theory {theory:.2}, {:.1} % off", 100.0 * off);
}

/// The sawtooth of DCTCP (Alizadeh and others, SIGCOMM 2010, §3.3). When N windows of W packets fill link and queue up to the
/// threshold K, each grows by one more before the marks are echoed, and is then cut by α/2, where α is the share of marked
/// packets of a period: α² (1 - α/4) = (2 W + 1) / (W + 1)².
#[test]
fn dctcp_swings_as_its_sawtooth_model_says() {
    for flows in [2, 4] {
        let (gbps, delay, threshold) = (10, Span::from_us(10), 40.0);
        let ecn = Ecn::step((threshold * PACKET) as u64);
        let scenario = dumbbell(flows, CongestionChoice::DCTCP, Some(ecn), gbps, delay);
        let steady = watch(scenario, Time::from_ms(40), Time::from_ms(120));
        let n = f64::from(flows);
        // Three links there and back; a packet and an acknowledgement take their own time at each.
        let round_trip = 6.0 * 10e-6 + 3.0 * (PACKET + 66.0) * 8.0 / 10e9;
        let in_pipe = round_trip * 10e9 / 8.0 / PACKET;
        let window = (in_pipe + threshold) / n;
        let alpha = (0..100)
            .fold(0.5, |a: f64, _| ((2.0 * window + 1.0) / (window + 1.0).powi(2) / (1.0 - a / 4.0)).sqrt());
        // A packet that finds the threshold reached but not passed is the last without a mark, hence one more.
        let highest = threshold + n + 1.0;
        let swing = n * (window + 1.0) * alpha / 2.0;
        close("the highest queue", steady.max() / PACKET, highest, 0.001);
        close("the mean queue", steady.mean() / PACKET, highest - swing / 2.0, 0.02);
        assert!(steady.min() > 0.0, "the link never idles");
        assert!(steady.unfairness() < 0.002, "{:?}", steady.sent);
    }
}

/// The mean rate of DCQCN's reaction point when each packet is marked with probability `p`, in bits per second: the paper's
/// rules with its constants, written down once more in floating point and played with random marks.
fn dcqcn_rate_under(p: f64, line: f64) -> f64 {
    let (gain, timer, cnp_gap, counter) = (1.0 / 256.0, 55e-6, 50e-6, 10e6);
    let mut rng = Rng::new(7);
    let (mut rate, mut target, mut alpha) = (line / 2.0, line / 2.0, 0.1_f64);
    let (mut now, mut sent_bits) = (0.0, 0.0);
    let (mut by_time, mut by_bytes, mut counted) = (0, 0, 0.0);
    let (mut next_rise, mut deaf_until, mut alpha_since) = (timer, 0.0, 0.0);
    while now < 60.0 {
        // Bytes up to the next mark.
        let mut left = (1.0 - rng.unit()).ln() / (1.0 - p).ln() * PACKET;
        loop {
            let to_mark = left * 8.0 / rate;
            let to_byte_rise = (counter - counted) * 8.0 / rate;
            let step = to_mark.min(to_byte_rise).min(next_rise - now);
            let bytes = rate * step / 8.0;
            (now, sent_bits) = (now + step, sent_bits + rate * step);
            (left, counted) = (left - bytes, counted + bytes);
            if step == to_mark {
                break;
            }
            let (fewer, more) = (by_time.min(by_bytes), by_time.max(by_bytes));
            target += match (fewer, more) {
                (_, 0..5) => 0.0,
                (0..=5, _) => 40e6,
                _ => f64::from(fewer - 5) * 200e6,
            };
            target = target.min(line);
            rate = (rate + target) / 2.0;
            if step == to_byte_rise {
                (by_bytes, counted) = (by_bytes + 1, 0.0);
            } else {
                (by_time, next_rise) = (by_time + 1, now + timer);
            }
        }
        if now < deaf_until {
            continue;
        }
        deaf_until = now + cnp_gap;
        alpha *= (1.0_f64 - gain).powi(((now - alpha_since) / timer) as i32);
        (target, rate) = (rate, rate * (1.0 - alpha / 2.0));
        (alpha, alpha_since) = ((1.0 - gain) * alpha + gain, now);
        (by_time, by_bytes, counted, next_rise) = (0, 0, 0.0, now + timer);
    }
    sent_bits / now
}

/// DCQCN's fixed point: the queue stands where RED marks so many packets that every flow is kept at its share of the link.
/// The fluid model (Zhu and others, CoNEXT 2016) forgets the quiet time between CNPs and is 20 to 30 % off here.
#[test]
fn dcqcn_settles_where_marks_keep_every_flow_at_its_share() {
    let (flows, line) = (2, 40e9);
    let (low, high, most) = (5_000, 4_000_000, 0.01);
    let ecn = Ecn::red(low, high, most);
    let scenario = dumbbell(flows, CongestionChoice::DCQCN, Some(ecn), 40, Span::from_us(1));
    let steady = watch(scenario, Time::from_ms(50), Time::from_ms(400));
    let marked = most * (steady.mean() - low as f64) / (high - low) as f64;
    close("a flow's rate", line / f64::from(flows), dcqcn_rate_under(marked, line), 0.02);
    assert!(steady.unfairness() < 0.05, "{:?}", steady.sent);
}

/// Timely has no fixed point (Zhu and others, CoNEXT 2016): below T_low rates rise regardless of the trend, above it a growing
/// queue cuts them. So round trips swing around T_low and never come near T_high, and the rises, which are
/// the same for all flows, make the flows equal.
#[test]
fn timely_swings_around_its_lower_threshold() {
    for flows in [2, 4] {
        let (delay, line) = (Span::from_us(2), 10e9);
        let steady = watch(
            dumbbell(flows, CongestionChoice::TIMELY, None, 10, delay),
            Time::from_ms(50),
            Time::from_ms(200),
        );
        let round_trip = |queue: f64| 12e-6 + 3.0 * (PACKET + 66.0) * 8.0 / line + queue * 8.0 / line;
        let highest = round_trip(steady.max());
        assert!((45e-6..75e-6).contains(&highest), "{highest}");
        assert!(steady.unfairness() < 0.02, "{:?}", steady.sent);
        let used = steady.sent.iter().sum::<f64>() * PACKET * 8.0 / 0.2 / line;
        assert!(used > 0.85, "{used}");
    }
}

/// A flow that shares its way with no other flow keeps the line's rate under every control.
#[test]
fn a_lone_flow_is_never_slowed_down() {
    let controls = [
        CongestionChoice::NONE,
        CongestionChoice::DCQCN,
        CongestionChoice::TIMELY,
        CongestionChoice::AIMD,
        CongestionChoice::DCTCP,
    ];
    for congestion in controls {
        let mut scenario = dumbbell(1, congestion, Some(Ecn::step(20_000)), 40, Span::from_us(2));
        scenario.flows[0].bytes = 5_000_000;
        let outcome = run(&scenario, &mut ()).expect("no invariant breaks");
        let flow = outcome.flows[0];
        close("FCT", flow.fct().expect("received").as_secs_f64(), flow.ideal.as_secs_f64(), 0.001);
    }
}
