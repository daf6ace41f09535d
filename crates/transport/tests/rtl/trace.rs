//! The receiver's block on the authors' trace of 50 queue pairs, and on one queue pair alone: the answers, and how many cycles a
//! packet takes.

use highwire_transport::irn::{Arrival, IrnConfig, ReceiverWindow};
use highwire_wire::Psn;

#[path = "../common/trace.rs"]
mod authors;

use crate::bench::Bench;
use crate::compare::Run;
use crate::many::{Pipe, RECEIVER_BUSY, ReceiverIn, ReceiverOut, receiver};
use crate::ports::{answer, class_bits};
use authors::{Answer, Packet, class, load};

/// Offers each packet until the block takes it, and expects the model's answers. Returns the run and how many cycles the
/// packets took.
fn replay(
    packets: &[Packet],
    expected: Option<&[Answer]>,
    initial: Psn,
) -> (Run<ReceiverIn, ReceiverOut>, usize) {
    let qps = packets.iter().map(|&[qp, ..]| qp).collect::<std::collections::BTreeSet<_>>();
    let number = |qp: u32| qps.range(..qp).count();
    let mut receivers = vec![ReceiverWindow::new(initial, &IrnConfig::default()); qps.len()];
    let mut pipe: Pipe<ReceiverOut> = Pipe::new(RECEIVER_BUSY);
    let mut run = Run::new();
    for qp in 0..qps.len() as u64 {
        let inputs = ReceiverIn {
            open_valid: 1,
            open_qp: qp,
            open_psn: initial.value().into(),
            ..ReceiverIn::default()
        };
        run.push(inputs, ReceiverOut { open_ready: 1, in_ready: 1, ..ReceiverOut::default() });
    }
    let mut cycles = 0;
    let mut next = 0;
    while next < packets.len() || pipe.due().is_some() || cycles < 8 {
        let mut outputs = pipe.due().unwrap_or_default();
        outputs.open_ready = 1 - outputs.out_valid;
        let mut inputs = ReceiverIn::default();
        let mut event = None;
        if let Some(&[qp, opcode, psn]) = packets.get(next) {
            let (qp, psn) = (number(qp), initial.add(psn));
            let class = class(opcode);
            (inputs.in_valid, inputs.in_qp, inputs.in_psn) = (1, qp as u64, psn.value().into());
            (inputs.in_ends, inputs.in_completes) = class_bits(class);
            if pipe.is_free(qp) {
                let window = &mut receivers[qp];
                let arrival = window.on_arrival(psn, class);
                let [out_kind, out_place, out_run, _, out_messages, out_completions] = answer(arrival);
                let state = window.state();
                if let Some(answers) = expected {
                    let is_nack = u32::from(matches!(arrival, Arrival::OutOfOrder { .. }));
                    let next_expected = state.next_expected.distance_from(initial) as u32;
                    let answer =
                        [is_nack, next_expected, packets[next][2], state.msn, out_completions as u32];
                    assert_eq!(answer, answers[next], "packet {next}: the model and the authors");
                }
                let due = ReceiverOut {
                    out_valid: 1,
                    out_qp: qp as u64,
                    out_kind,
                    out_place,
                    out_run,
                    out_messages,
                    out_completions,
                    out_expected: state.next_expected.value().into(),
                    out_msn: state.msn.into(),
                    ..ReceiverOut::default()
                };
                event = Some((qp, due));
                next += 1;
            }
        }
        outputs.in_ready = pipe.is_free(inputs.in_qp as usize).into();
        pipe.advance(event);
        run.push(inputs, outputs);
        cycles += 1;
    }
    (run, cycles)
}

fn check(what: &str, packets: &[Packet], expected: Option<&[Answer]>, initial: Psn) -> Option<usize> {
    let bench = Bench::build::<ReceiverIn, ReceiverOut>(&receiver())?;
    let (run, cycles) = replay(packets, expected, initial);
    run.check(&bench, &format!("irn_receiver: {what}"));
    println!("rate: irn_receiver: {what}: {} events in {cycles} cycles", packets.len());
    Some(cycles)
}

#[test]
fn the_block_answers_the_authors_trace_as_their_receiver_did() {
    let Some((packets, answers)) = load() else { return };
    assert_eq!(packets.len(), authors::ARRIVALS);
    check("the authors' trace", &packets, Some(&answers), Psn::new(0));
    // PSNs wrap in the middle of each flow.
    check("the authors' trace where PSNs wrap", &packets, Some(&answers), Psn::new(0).sub(1400));
}

#[test]
fn one_receiver_takes_a_packet_every_four_cycles_and_many_take_one_in_each() {
    const SEND_MIDDLE: u32 = 1;
    for (qps, cycles_per_packet) in [(1, 4), (64, 1)] {
        let packets: Vec<Packet> = (0..5_000).map(|n| [n % qps, SEND_MIDDLE, n / qps]).collect();
        let Some(cycles) = check(&format!("{qps} queue pairs in turn"), &packets, None, Psn::new(0)) else {
            return;
        };
        // The last packet's answer comes a few cycles after it was taken.
        let expected = packets.len() * cycles_per_packet;
        assert!(cycles.abs_diff(expected) < 8, "{cycles} cycles for {} packets", packets.len());
    }
}
