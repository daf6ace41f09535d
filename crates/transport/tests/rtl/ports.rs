//! The blocks' ports, and how steps of a flow become lines of them.

use highwire_transport::irn::{AckOutcome, Arrival, PacketClass, SenderState, TimeoutOutcome};

use crate::bench::ports;
use crate::flow::{AckStep, DataStep, LinkStep, Sender, TimerStep};

ports!(DataIn {
    in_valid: u64,
    in_psn: u64,
    in_ends: u64,
    in_completes: u64,
    in_expected: u64,
    in_msn: u64,
    in_first: [u64; 8],
    in_second: [u64; 8],
});

ports!(DataOut {
    out_valid: u64,
    out_kind: u64,
    out_place: u64,
    out_run: u64,
    out_advanced: u64,
    out_messages: u64,
    out_completions: u64,
    out_expected: u64,
    out_msn: u64,
    out_first: [u64; 8],
    out_second: [u64; 8],
});

ports!(LinkIn {
    in_valid: u64,
    in_has_new: u64,
    in_timer_runs: u64,
    in_front: u64,
    in_next: u64,
    in_retransmit: u64,
    in_recovery: u64,
    in_evident: u64,
    in_flags: u64,
    in_sacked: [u64; 8],
});

ports!(LinkOut {
    out_valid: u64,
    out_sends: u64,
    out_again: u64,
    out_psn: u64,
    out_timer: u64,
    out_next: u64,
    out_retransmit: u64,
    out_recovery: u64,
    out_evident: u64,
    out_flags: u64,
});

ports!(AckIn {
    in_valid: u64,
    in_nack: u64,
    in_cumulative: u64,
    in_sack: u64,
    in_run: u64,
    in_front: u64,
    in_next: u64,
    in_retransmit: u64,
    in_recovery: u64,
    in_evident: u64,
    in_flags: u64,
    in_sacked: [u64; 8],
});

ports!(AckOut {
    out_valid: u64,
    out_acked: u64,
    out_sacked_count: u64,
    out_arrived: u64,
    out_loss: u64,
    out_recovered: u64,
    out_stale: u64,
    out_invalid: u64,
    out_timer: u64,
    out_front: u64,
    out_retransmit: u64,
    out_flags: u64,
    out_sacked: [u64; 8],
});

ports!(TimerIn { in_valid: u64, in_front: u64, in_next: u64, in_retransmit: u64, in_flags: u64 });

ports!(TimerOut { out_valid: u64, out_kind: u64, out_timer: u64, out_retransmit: u64, out_flags: u64 });

/// Whether a packet ends its message, and completes a receive.
pub(crate) fn class_bits(class: PacketClass) -> (u64, u64) {
    match class {
        PacketClass::Middle => (0, 0),
        PacketClass::Last => (1, 0),
        PacketClass::LastWithCompletion => (1, 1),
    }
}

/// How a packet is answered: kind, place, run, advanced, messages, completions.
pub(crate) fn answer(arrival: Arrival) -> [u64; 6] {
    match arrival {
        Arrival::InOrder { advanced, messages, completions } => {
            [0, 1, 0, advanced.into(), messages.into(), completions.into()]
        }
        Arrival::OutOfOrder { place, run_len } => [1, place.into(), run_len.into(), 0, 0, 0],
        Arrival::Duplicate => [2, 0, 0, 0, 0, 0],
        Arrival::BeyondWindow => [3, 0, 0, 0, 0, 0],
    }
}

pub(crate) fn flags(state: &SenderState) -> u64 {
    u64::from(state.is_timer_quick) << 4
        | u64::from(state.is_presumed) << 3
        | u64::from(state.in_recovery) << 2
        | state.repair as u64
}

pub(crate) fn data(step: &DataStep) -> (DataIn, DataOut) {
    let (before, after) = (&step.before, &step.after);
    let (in_ends, in_completes) = class_bits(step.class);
    let [out_kind, out_place, out_run, out_advanced, out_messages, out_completions] = answer(step.arrival);
    let inputs = DataIn {
        in_valid: 1,
        in_psn: step.psn.value().into(),
        in_ends,
        in_completes,
        in_expected: before.state.next_expected.value().into(),
        in_msn: before.state.msn.into(),
        in_first: before.first,
        in_second: before.second,
    };
    let outputs = DataOut {
        out_valid: 1,
        out_kind,
        out_place,
        out_run,
        out_advanced,
        out_messages,
        out_completions,
        out_expected: after.state.next_expected.value().into(),
        out_msn: after.state.msn.into(),
        out_first: after.first,
        out_second: after.second,
    };
    (inputs, outputs)
}

pub(crate) fn link(step: &LinkStep) -> (LinkIn, LinkOut) {
    let Sender { state, sacked } = &step.before;
    let inputs = LinkIn {
        in_valid: 1,
        in_has_new: step.has_new.into(),
        in_timer_runs: step.timer_runs.into(),
        in_front: state.first_unacknowledged.value().into(),
        in_next: state.next_to_send.value().into(),
        in_retransmit: state.retransmit.value().into(),
        in_recovery: state.recovery.value().into(),
        in_evident: state.evident.value().into(),
        in_flags: flags(state),
        in_sacked: *sacked,
    };
    let after = &step.after.state;
    assert_eq!(after.first_unacknowledged, state.first_unacknowledged, "the block does not give it");
    assert_eq!(&step.after.sacked, sacked, "the block does not give them");
    let outputs = LinkOut {
        out_valid: 1,
        out_sends: step.sent.is_some().into(),
        out_again: step.sent.is_some_and(|(_, again)| again).into(),
        out_psn: step.sent.map_or(0, |(psn, _)| psn.value()).into(),
        out_timer: step.timer as u64,
        out_next: after.next_to_send.value().into(),
        out_retransmit: after.retransmit.value().into(),
        out_recovery: after.recovery.value().into(),
        out_evident: after.evident.value().into(),
        out_flags: flags(after),
    };
    (inputs, outputs)
}

pub(crate) fn ack(step: &AckStep) -> (AckIn, AckOut) {
    let Sender { state, sacked } = &step.before;
    let (sack, run) = step.ack.sack.unwrap_or_default();
    let inputs = AckIn {
        in_valid: 1,
        in_nack: step.ack.sack.is_some().into(),
        in_cumulative: step.ack.cumulative.value().into(),
        in_sack: sack.value().into(),
        in_run: run.into(),
        in_front: state.first_unacknowledged.value().into(),
        in_next: state.next_to_send.value().into(),
        in_retransmit: state.retransmit.value().into(),
        in_recovery: state.recovery.value().into(),
        in_evident: state.evident.value().into(),
        in_flags: flags(state),
        in_sacked: *sacked,
    };
    let after = &step.after.state;
    let kept = |state: &SenderState| (state.next_to_send, state.recovery, state.evident);
    assert_eq!(kept(after), kept(state), "the block does not give them");
    let AckOutcome { newly_acked, newly_sacked, newly_arrived, loss_detected, recovered } = step.outcome;
    let outputs = AckOut {
        out_valid: 1,
        out_acked: newly_acked.into(),
        out_sacked_count: newly_sacked.into(),
        out_arrived: newly_arrived.into(),
        out_loss: loss_detected.into(),
        out_recovered: recovered.into(),
        out_stale: step.stale.into(),
        out_invalid: step.invalid.into(),
        out_timer: step.timer as u64,
        out_front: after.first_unacknowledged.value().into(),
        out_retransmit: after.retransmit.value().into(),
        out_flags: flags(after),
        out_sacked: step.after.sacked,
    };
    (inputs, outputs)
}

pub(crate) fn expired(outcome: TimeoutOutcome) -> u64 {
    match outcome {
        TimeoutOutcome::Idle => 0,
        TimeoutOutcome::Extended(_) => 1,
        TimeoutOutcome::Resend => 2,
    }
}

pub(crate) fn timer(step: &TimerStep) -> (TimerIn, TimerOut) {
    let (before, after) = (&step.before.state, &step.after.state);
    let inputs = TimerIn {
        in_valid: 1,
        in_front: before.first_unacknowledged.value().into(),
        in_next: before.next_to_send.value().into(),
        in_retransmit: before.retransmit.value().into(),
        in_flags: flags(before),
    };
    let kept = |sender: &Sender| {
        let state = &sender.state;
        (state.first_unacknowledged, state.next_to_send, state.recovery, state.evident, sender.sacked)
    };
    assert_eq!(kept(&step.before), kept(&step.after), "the block does not give them");
    let outputs = TimerOut {
        out_valid: 1,
        out_kind: expired(step.outcome),
        out_timer: step.timer as u64,
        out_retransmit: after.retransmit.value().into(),
        out_flags: flags(after),
    };
    (inputs, outputs)
}
