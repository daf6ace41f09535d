//! The four blocks, each event by itself: state and event in, state and outcome out.

use highwire_stdx::Rng;
use highwire_transport::irn::{IrnConfig, PartialAcks};

use crate::bench::{Bench, Block, Ports};
use crate::compare::{Run, cycles};
use crate::flow::Flow;
use crate::ports::{self, AckIn, AckOut, DataIn, DataOut, LinkIn, LinkOut, TimerIn, TimerOut};

/// Sizes and rules of one build.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shape {
    pub(crate) window: u32,
    pub(crate) config: IrnConfig,
}

impl Shape {
    /// The usual shape is built with the faults that `mutants` switches on, all of them off; the others without.
    pub(crate) fn block(self, top: &'static str) -> Block {
        let mutant = (self == usual()).then_some("MUTANTS");
        let IrnConfig { cap, rto_low_in_flight_max, reordering_packets, .. } = self.config;
        let partial_acks = match self.config.partial_acks {
            PartialAcks::Never => 0,
            PartialAcks::Evident => 1,
            PartialAcks::Hardware => 2,
        };
        let window = ("WINDOW", self.window.into());
        let few = ("RTO_LOW_IN_FLIGHT", rto_low_in_flight_max.into());
        let reordering = ("REORDERING", reordering_packets.into());
        let parameters = match top {
            "irn_receive_data" => vec![window],
            "irn_tx_free" => vec![window, ("CAP", cap.into()), few, reordering],
            "irn_receive_ack" => vec![
                window,
                few,
                reordering,
                ("PARTIAL_ACKS", partial_acks),
                ("SACK_RESTARTS_TIMER", self.config.sack_restarts_timer.into()),
            ],
            "irn_timeout" => vec![few],
            other => panic!("no block is called {other}"),
        };
        Block { top, parameters, mutant }
    }
}

/// The paper's default scenario: bitmaps of 128 bits, 111 packets in flight.
pub(crate) fn usual() -> Shape {
    Shape { window: 128, config: IrnConfig::default() }
}

/// Other sizes, and every rule that a parameter chooses.
fn shapes() -> [Shape; 4] {
    let config = IrnConfig::default();
    [
        usual(),
        Shape {
            window: 64,
            config: IrnConfig { rto_low_in_flight_max: 10, sack_restarts_timer: true, ..config }
                .with_cap(64)
                .with_partial_acks(PartialAcks::Hardware)
                .with_reordering(3),
        },
        Shape {
            window: 512,
            config: IrnConfig { sack_restarts_timer: true, ..config }.with_cap(512).with_reordering(5),
        },
        Shape {
            window: 64,
            config: IrnConfig { rto_low_in_flight_max: 10, ..config }
                .with_cap(64)
                .with_partial_acks(PartialAcks::Never)
                .with_reordering(3),
        },
    ]
}

/// The steps of many short flows, by kind.
#[derive(Default)]
pub(crate) struct Steps {
    pub(crate) data: Vec<(DataIn, DataOut)>,
    pub(crate) link: Vec<(LinkIn, LinkOut)>,
    pub(crate) ack: Vec<(AckIn, AckOut)>,
    pub(crate) timer: Vec<(TimerIn, TimerOut)>,
}

/// Plays flows until there are about `wanted` steps of each kind but timeouts.
pub(crate) fn play(seed: u64, shape: Shape, wanted: usize) -> Steps {
    let mut steps = Steps::default();
    for flow_seed in 0.. {
        if steps.data.len().min(steps.ack.len()).min(steps.link.len()) >= wanted {
            break;
        }
        let mut flow = Flow::new(seed << 32 | flow_seed, shape.config, shape.window);
        // Who is faster differs from flow to flow: windows fill up, or stay small.
        let (link, data) = (0.2 + flow.rng().unit() * 0.6, flow.rng().unit());
        for _ in 0..3_000 {
            if flow.is_late() {
                steps.timer.extend(flow.timer().iter().map(ports::timer));
            } else if flow.rng().chance(link) {
                steps.link.push(ports::link(&flow.link()));
            } else if flow.rng().chance(data) {
                steps.data.extend(flow.data().iter().map(ports::data));
            } else {
                steps.ack.extend(flow.ack().iter().map(ports::ack));
            }
        }
    }
    steps
}

/// A step in each cycle, but for gaps; what comes out, so many cycles later.
pub(crate) fn pipelined<I: Ports, O: Ports>(seed: u64, latency: usize, steps: &[(I, O)]) -> Run<I, O> {
    let mut rng = Rng::new(seed);
    let (mut inputs, mut outputs) = (Vec::new(), vec![O::default(); latency]);
    let mut left = steps.iter().take(cycles());
    let mut step = left.next();
    while let Some((input, output)) = step {
        let is_gap = rng.chance(0.1);
        inputs.push(if is_gap { I::default() } else { input.clone() });
        outputs.push(if is_gap { O::default() } else { output.clone() });
        if !is_gap {
            step = left.next();
        }
    }
    inputs.resize(outputs.len(), I::default());
    let mut run = Run::new();
    inputs.into_iter().zip(outputs).for_each(|(input, output)| run.push(input, output));
    run
}

/// Compares every shape, with several seeds each; `seen` counts, case by case, what must not be missing from the outputs.
fn check<I: Ports, O: Ports>(
    top: &'static str,
    latency: usize,
    of: impl Fn(Steps) -> Vec<(I, O)>,
    seen: &[(&str, fn(&O) -> bool)],
) {
    for (number, shape) in shapes().into_iter().enumerate() {
        let Some(bench) = Bench::build::<I, O>(&shape.block(top)) else { return };
        let mut counts = vec![0; seen.len()];
        for seed in 0..3 {
            let steps = of(play(seed, shape, cycles()));
            let run = pipelined(seed, latency, &steps);
            run.check(&bench, &format!("{top}: window {}, shape {number}, seed {seed}", shape.window));
            for (count, (_, is_it)) in counts.iter_mut().zip(seen) {
                *count += run.count(is_it);
            }
        }
        for (count, (what, _)) in counts.iter().zip(seen) {
            assert!(*count > 0, "{top}, shape {number}: no run had {what}");
        }
    }
}

#[test]
fn receive_data_answers_as_the_receiver_does() {
    check(
        "irn_receive_data",
        4,
        |steps| steps.data,
        &[
            ("a packet in order", |out: &DataOut| out.out_valid == 1 && out.out_kind == 0),
            ("packets that waited", |out| {
                out.out_advanced > 1 && out.out_messages > 1 && out.out_completions > 1
            }),
            ("an early packet", |out| out.out_kind == 1 && out.out_place == 1),
            ("an early packet again", |out| out.out_kind == 1 && out.out_place == 0),
            ("a run", |out| out.out_run > 1),
            ("a duplicate", |out| out.out_kind == 2),
            ("a packet beyond the window", |out| out.out_kind == 3),
        ],
    );
}

#[test]
fn tx_free_sends_what_the_sender_sends() {
    check(
        "irn_tx_free",
        3,
        |steps| steps.link,
        &[
            ("a new packet", |out: &LinkOut| out.out_sends == 1 && out.out_again == 0),
            ("a packet resent", |out| out.out_again == 1),
            ("nothing to send", |out| out.out_valid == 1 && out.out_sends == 0),
            ("a quick timer", |out| out.out_timer == 2),
        ],
    );
}

#[test]
fn receive_ack_learns_what_the_sender_learns() {
    check(
        "irn_receive_ack",
        4,
        |steps| steps.ack,
        &[
            ("progress", |out: &AckOut| out.out_acked > 0),
            ("a selective acknowledgement", |out| out.out_sacked_count > 0),
            ("packets that were acknowledged before", |out| out.out_acked > out.out_arrived),
            ("a loss", |out| out.out_loss == 1),
            ("a repair that is over", |out| out.out_recovered == 1),
            ("an old acknowledgement", |out| out.out_stale == 1),
            ("a forged acknowledgement", |out| out.out_invalid == 1),
            ("a timer that stops", |out| out.out_timer == 1),
            ("a search for a hole", |out| out.out_flags & 3 == 2),
        ],
    );
}

#[test]
fn timeout_does_what_the_sender_does() {
    check(
        "irn_timeout",
        1,
        |steps| steps.timer,
        &[
            ("a timer that goes on", |out: &TimerOut| out.out_kind == 1),
            ("a packet to resend", |out| out.out_kind == 2),
            ("a quick timer", |out| out.out_timer == 2),
            ("a slow timer", |out| out.out_timer == 3),
        ],
    );
}
