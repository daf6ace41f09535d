//! The receiver against the IRN authors' own trace: 140,361 arrivals of their 50-to-1 incast run and what their receiver
//! answered to each (the data of their public hardware repository; not part of this one).
//!
//! Read from the folder that `HIGHWIRE_IRN_TRACE` names, or from `shared/vectors/irn` beside the checkout; skipped otherwise.
#![allow(
    clippy::disallowed_methods,
    reason = "a test reads its data from a file, and is told where that lies"
)]

#[path = "common/trace.rs"]
mod trace;

use highwire_transport::irn::{Arrival, IrnConfig, ReceiverWindow};
use highwire_wire::Psn;
use std::collections::BTreeMap;

use trace::{Answer, Packet, class, load};

#[test]
fn the_receiver_answers_like_the_authors_hardware() {
    let Some((packets, answers)) = load() else { return };
    assert_eq!(replay(&packets, Psn::new(0)), answers);
}

/// The same arrivals, shifted so that each queue pair's PSNs wrap in the middle of its flow, which the hardware's
/// comparisons could not do.
#[test]
fn the_answers_stay_the_same_where_psns_wrap() {
    let Some((packets, answers)) = load() else { return };
    assert_eq!(replay(&packets, Psn::new(0).sub(1400)), answers);
}

/// Feeds every packet, counted from `initial`, to its queue pair's receiver.
fn replay(packets: &[Packet], initial: Psn) -> Vec<Answer> {
    let mut receivers = BTreeMap::new();
    let answer = |&[qp, opcode, psn]: &Packet| {
        let receiver =
            receivers.entry(qp).or_insert_with(|| ReceiverWindow::new(initial, &IrnConfig::default()));
        let (is_nack, completions) = match receiver.on_arrival(initial.add(psn), class(opcode)) {
            Arrival::InOrder { completions, .. } => (0, completions),
            Arrival::OutOfOrder { .. } => (1, 0),
            Arrival::Duplicate => (0, 0),
            Arrival::BeyondWindow => panic!("packet {psn} of queue pair {qp} lies beyond the window"),
        };
        let expected = receiver.next_expected().distance_from(initial) as u32;
        [is_nack, expected, psn, receiver.msn(), completions]
    };
    packets.iter().map(answer).collect()
}
