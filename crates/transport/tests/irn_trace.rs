//! The receiver against the IRN authors' own trace: 140,361 arrivals of their 50-to-1 incast run and what their receiver
//! answered to each (the data of their public hardware repository; not part of this one).
//!
//! Read from the folder that `HIGHWIRE_IRN_TRACE` names, or from `shared/vectors/irn` beside the checkout; skipped otherwise.

use flate2::read::GzDecoder;
use highwire_transport::irn::{Arrival, IrnConfig, PacketClass, ReceiverWindow};
use highwire_wire::Psn;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::PathBuf;

const ARRIVALS: usize = 140_361;

/// A row of the input: which queue pair, which RC opcode, which PSN.
type Packet = [u32; 3];
/// A row of the output: 1 for a NACK, the expected PSN, the PSN that arrived, the MSN, the completions.
type Answer = [u32; 5];

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

/// The reliable connected opcodes that the hardware tells apart (IBTA §9.2.1).
fn class(opcode: u32) -> PacketClass {
    match opcode {
        // SEND last and only, with and without immediate; WRITE last and only with immediate.
        2..=5 | 9 | 11 => PacketClass::LastWithCompletion,
        // WRITE last and only; READ request.
        8 | 10 | 12 => PacketClass::Last,
        _ => PacketClass::Middle,
    }
}

fn load() -> Option<(Vec<Packet>, Vec<Answer>)> {
    let Some(folder) = folder() else {
        println!("skipped: no trace (set HIGHWIRE_IRN_TRACE to the folder with receiver-input.txt.gz)");
        return None;
    };
    let input = rows(&folder.join("receiver-input.txt.gz"));
    assert_eq!(input[0], [ARRIVALS as u32], "the first line counts the arrivals");
    let packets: Vec<Packet> = input[1..].iter().map(|row| columns(row)).collect();
    let answers: Vec<Answer> =
        rows(&folder.join("receiver-output.txt.gz")).iter().map(|row| columns(row)).collect();
    assert_eq!((packets.len(), answers.len()), (ARRIVALS, ARRIVALS));
    Some((packets, answers))
}

#[expect(clippy::disallowed_methods, reason = "a test may be told where its data lies")]
fn folder() -> Option<PathBuf> {
    if let Ok(folder) = std::env::var("HIGHWIRE_IRN_TRACE") {
        return Some(PathBuf::from(folder));
    }
    let beside = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/vectors/irn"));
    beside.join("receiver-input.txt.gz").exists().then_some(beside)
}

#[expect(clippy::disallowed_methods, reason = "the trace is too large to embed and not ours to copy")]
fn rows(path: &std::path::Path) -> Vec<Vec<u32>> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut text = String::new();
    GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).expect("a gzip file of text");
    text.lines().map(|line| line.split_whitespace().map(|n| n.parse().expect("a number")).collect()).collect()
}

fn columns<const N: usize>(row: &[u32]) -> [u32; N] {
    row.try_into().unwrap_or_else(|_| panic!("{row:?} has not {N} columns"))
}
