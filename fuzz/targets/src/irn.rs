//! IRN's windows against naive models: sets instead of bitmaps.

use std::collections::BTreeSet;

use highwire_transport::irn::{
    Arrival, IrnConfig, LossRecovery, PacketClass, ReceiverWindow, SackWindow, SenderWindow, TimeoutOutcome,
};
use highwire_wire::Psn;

use crate::ops::Decisions;

/// A PSN at a drawn distance from `origin`: mostly near, sometimes anywhere.
fn psn_near(decisions: &mut Decisions<'_>, origin: Psn) -> Option<Psn> {
    match decisions.byte()? {
        near @ 0..=191 => Some(origin.add(u32::from(near)).sub(64)),
        192..=247 => Some(origin.add(u32::from(decisions.short()?)).sub(1 << 15)),
        _ => Some(Psn::new(decisions.wide()?)),
    }
}

fn config(decisions: &mut Decisions<'_>) -> Option<IrnConfig> {
    let recovery = match decisions.byte()? % 3 {
        0 => LossRecovery::SelectiveRepeat,
        1 => LossRecovery::SelectiveWithoutSack,
        _ => LossRecovery::GoBackN,
    };
    let cap = 1 + u32::from(decisions.short()? % 1200);
    Some(IrnConfig::default().with_cap(cap).with_recovery(recovery))
}

/// A sender under acknowledgements that any network may deliver.
pub(crate) fn sender(input: &[u8]) {
    drive_sender(&mut Decisions::new(input));
}

fn drive_sender(decisions: &mut Decisions<'_>) -> Option<()> {
    let config = config(decisions)?;
    let mut window = SenderWindow::new(Psn::new(decisions.wide()?), config);
    loop {
        let front = window.first_unacknowledged();
        match decisions.byte()? % 8 {
            0 | 1 if window.can_send_new() => {
                let expected = window.next_to_send();
                assert_eq!(window.on_send_new(), expected);
            }
            0 | 1 => assert_eq!(window.in_flight(), config.cap, "only the cap holds packets back"),
            2 => {
                let peeked = window.peek_retransmit();
                assert_eq!(window.poll_retransmit(), peeked);
                if let Some(psn) = peeked {
                    assert!(!psn.is_before(window.first_unacknowledged()), "resends what is acknowledged");
                    assert!(psn.is_before(window.next_to_send()), "resends what was never sent");
                    // A peer that lies can name the front both missing and arrived; it is then resent.
                    let is_front = psn == window.first_unacknowledged();
                    assert!(is_front || !window.sacked().contains(psn), "resends what has arrived");
                }
            }
            3 | 4 => {
                let cumulative = psn_near(decisions, front)?;
                let outcome = window.on_ack(cumulative);
                let moved = window.first_unacknowledged().distance_from(front);
                assert_eq!(outcome.newly_acked as i32, moved, "the front moves by what is acknowledged");
            }
            5 | 6 => {
                let cumulative = psn_near(decisions, front)?;
                let high = psn_near(decisions, cumulative)?;
                let run = u32::from(decisions.byte()?);
                let outcome = window.on_nack(cumulative, high, run);
                let moved = window.first_unacknowledged().distance_from(front);
                assert_eq!(outcome.newly_acked as i32, moved, "the front moves by what is acknowledged");
            }
            _ => {
                let armed = window.arm_timeout();
                assert_eq!(armed.is_none(), window.in_flight() == 0);
                if window.on_timeout() == TimeoutOutcome::Resend {
                    assert_eq!(window.peek_retransmit(), Some(window.first_unacknowledged()));
                }
            }
        }
        assert!(window.in_flight() <= config.cap, "the cap holds");
        assert!(!window.first_unacknowledged().is_before(front), "the front never moves back");
        assert!(!window.next_to_send().is_before(window.first_unacknowledged()));
        if let Some(highest) = window.sacked().highest() {
            assert!(highest.is_before(window.next_to_send()), "nothing unsent is acknowledged");
        }
    }
}

/// A receiver under arrivals in any order, against the set of packets that have arrived.
pub(crate) fn receiver(input: &[u8]) {
    drive_receiver(&mut Decisions::new(input));
}

fn drive_receiver(decisions: &mut Decisions<'_>) -> Option<()> {
    let config = config(decisions)?;
    let keeps_early = config.recovery != LossRecovery::GoBackN;
    let mut window = ReceiverWindow::new(Psn::new(decisions.wide()?), &config);
    let mut early: Vec<(Psn, PacketClass)> = Vec::new();
    loop {
        let expected = window.next_expected();
        let class = match decisions.byte()? % 3 {
            0 => PacketClass::Middle,
            1 => PacketClass::Last,
            _ => PacketClass::LastWithCompletion,
        };
        let psn = psn_near(decisions, expected)?;
        let distance = psn.distance_from(expected);
        let was_early = early.iter().any(|(known, _)| *known == psn);
        match window.on_arrival(psn, class) {
            Arrival::InOrder { advanced, messages, completions } => {
                assert_eq!(distance, 0, "only the expected packet is in order");
                let mut due = vec![class];
                let mut next = expected.next();
                while let Some(at) = early.iter().position(|(known, _)| *known == next) {
                    due.push(early.swap_remove(at).1);
                    next = next.next();
                }
                let ended = due.iter().filter(|class| **class != PacketClass::Middle).count();
                let completed = due.iter().filter(|class| **class == PacketClass::LastWithCompletion).count();
                assert_eq!((advanced as usize, messages as usize), (due.len(), ended));
                assert_eq!(completions as usize, completed);
                assert_eq!(window.next_expected(), next);
            }
            Arrival::OutOfOrder { place, .. } => {
                assert!(distance > 0 && (distance as u32) < window.capacity());
                assert_eq!(place, keeps_early && !was_early);
                if place {
                    early.push((psn, class));
                }
            }
            Arrival::Duplicate => assert!(distance < 0, "a new packet is taken for a duplicate"),
            Arrival::BeyondWindow => assert!(distance as u32 >= window.capacity()),
        }
        assert_eq!(window.early() as usize, early.len());
    }
}

/// The bitmap against a set.
pub(crate) fn sack_window(input: &[u8]) {
    drive_sack_window(&mut Decisions::new(input));
}

fn drive_sack_window(decisions: &mut Decisions<'_>) -> Option<()> {
    let origin = Psn::new(decisions.wide()?);
    let mut window = SackWindow::new(origin, 1 + u32::from(decisions.short()? % 1200));
    // Distances from the front, so that the order of a set is the order of the window.
    let mut model: BTreeSet<u32> = BTreeSet::new();
    loop {
        let front = window.front();
        match decisions.byte()? % 3 {
            0 | 1 => {
                let high = psn_near(decisions, front)?;
                let run = u32::from(decisions.byte()?);
                let height = high.distance_from(front);
                let mut fresh = 0;
                if height >= 0 && (height as u32) < window.capacity() {
                    let low = (height as u32 + 1).saturating_sub(run);
                    fresh = (low..=height as u32).filter(|offset| model.insert(*offset)).count();
                }
                assert_eq!(window.insert_run(high, run) as usize, fresh);
            }
            _ => {
                let to = psn_near(decisions, front)?;
                let steps = to.distance_from(front);
                let mut forgotten = 0;
                if steps > 0 {
                    let kept: BTreeSet<u32> =
                        model.iter().filter_map(|offset| offset.checked_sub(steps as u32)).collect();
                    forgotten = model.len() - kept.len();
                    model = kept;
                }
                assert_eq!(window.advance(to) as usize, forgotten);
            }
        }
        let front = window.front();
        assert_eq!(window.count() as usize, model.len());
        assert_eq!(window.highest(), model.last().map(|offset| front.add(*offset)));
        let hole = model.last().and_then(|last| (0..*last).find(|offset| !model.contains(offset)));
        assert_eq!(window.next_hole(front), hole.map(|offset| front.add(offset)));
    }
}
