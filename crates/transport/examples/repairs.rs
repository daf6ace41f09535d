//! A sender that hears of many losses, without a network: what its window costs, in instructions.
//!
//! ```console
//! $ cargo build --release -p highwire-transport --example repairs
//! $ valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/examples/repairs sack 5 100
//! ```
//!
//! Arguments are the rule, the lost packets per hundred, and how often the same events are given to a sender. They are found once, so
//! the difference between two numbers of times is the sender's alone. It prints the events and a sum of all answers: two versions of a
//! sender that agree print the same.

use highwire_stdx::Rng;
use highwire_transport::irn::{
    Arrival, IrnConfig, LossRecovery, PacketClass, ReceiverWindow, SenderWindow, TimeoutOutcome,
};
use highwire_wire::Psn;
use std::collections::VecDeque;

/// Packets between a transmission and its answer, at most: the cap of a 40 Gb/s network.
const ROUND_TRIP: usize = 110;
const PACKETS: u32 = 20_000;

/// What happens to a sender.
#[derive(Clone, Copy)]
enum Event {
    /// It may send a packet.
    Turn,
    Ack(Psn),
    Nack(Psn, Psn, u32),
    Silence,
}

/// Gives an event to the sender; returns the packet that leaves, and something of every answer.
fn give(sender: &mut SenderWindow, event: Event) -> (Option<Psn>, u32) {
    let (psn, outcome) = match event {
        Event::Turn => {
            let resent = sender.poll_retransmit();
            (resent.or_else(|| sender.can_send_new().then(|| sender.on_send_new())), Default::default())
        }
        Event::Ack(cumulative) => (None, sender.on_ack(cumulative)),
        Event::Nack(cumulative, high, run) => (None, sender.on_nack(cumulative, high, run)),
        Event::Silence => {
            let resends = sender.on_timeout() == TimeoutOutcome::Resend;
            return (None, u32::from(resends));
        }
    };
    let flags = u32::from(outcome.loss_detected) * 2 + u32::from(outcome.recovered);
    (psn, psn.map_or(0, Psn::value) + outcome.newly_acked + outcome.newly_sacked * 3 + flags)
}

/// The events of a flow that loses `percent` of its packets.
fn events(config: IrnConfig, percent: u64) -> Vec<Event> {
    let mut rng = Rng::new(1);
    let mut sender = SenderWindow::new(Psn::new(0), config);
    let mut receiver = ReceiverWindow::new(Psn::new(0), &config);
    let mut events = Vec::new();
    let mut wire: VecDeque<Option<Psn>> = VecDeque::new();
    let mut quiet = 0;
    while sender.first_unacknowledged().value() < PACKETS {
        events.push(Event::Turn);
        let (sent, _) = give(&mut sender, Event::Turn);
        wire.push_back(sent.filter(|_| rng.below(100) >= percent));
        quiet += 1;
        let arrived = if wire.len() > ROUND_TRIP { wire.pop_front().flatten() } else { None };
        let answer = match arrived.map(|psn| (psn, receiver.on_arrival(psn, PacketClass::Middle))) {
            Some((psn, Arrival::OutOfOrder { run_len, .. })) => {
                Some(Event::Nack(receiver.next_expected(), psn, run_len))
            }
            Some(_) => Some(Event::Ack(receiver.next_expected())),
            None if quiet > 4 * ROUND_TRIP => Some(Event::Silence),
            None => None,
        };
        if let Some(event) = answer {
            events.push(event);
            give(&mut sender, event);
            quiet = 0;
        }
    }
    events
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [rule, percent, times] = &arguments[..] else {
        panic!("usage: repairs sack|no-sack|go-back-n PERCENT TIMES");
    };
    let recovery = match rule.as_str() {
        "sack" => LossRecovery::SelectiveRepeat,
        "no-sack" => LossRecovery::SelectiveWithoutSack,
        "go-back-n" => LossRecovery::GoBackN,
        other => panic!("there is no rule {other}"),
    };
    let config = IrnConfig::default().with_recovery(recovery);
    let events = events(config, percent.parse().expect("a number of packets per hundred"));
    let mut sum = 0u64;
    for _ in 0..times.parse().expect("a number of times") {
        let mut sender = SenderWindow::new(Psn::new(0), config);
        for &event in &events {
            sum = sum.wrapping_mul(31).wrapping_add(u64::from(give(&mut sender, event).1));
        }
    }
    let nacks = events.iter().filter(|event| matches!(event, Event::Nack(..))).count();
    println!("{} events, {nacks} of them NACKs; sum {sum:016x}", events.len());
}
