//! The IRN authors' trace of their receiver, and what their opcodes mean.

use flate2::read::GzDecoder;
use highwire_transport::irn::PacketClass;
use std::io::Read;
use std::path::PathBuf;

pub(crate) const ARRIVALS: usize = 140_361;

/// A row of the input: which queue pair, which RC opcode, which PSN.
pub(crate) type Packet = [u32; 3];
/// A row of the output: 1 for a NACK, the expected PSN, the PSN that arrived, the MSN, the completions.
pub(crate) type Answer = [u32; 5];

/// The reliable connected opcodes that the hardware tells apart (IBTA §9.2.1).
pub(crate) fn class(opcode: u32) -> PacketClass {
    match opcode {
        // SEND last and only, with and without immediate; WRITE last and only with immediate.
        2..=5 | 9 | 11 => PacketClass::LastWithCompletion,
        // WRITE last and only; READ request.
        8 | 10 | 12 => PacketClass::Last,
        _ => PacketClass::Middle,
    }
}

pub(crate) fn load() -> Option<(Vec<Packet>, Vec<Answer>)> {
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

fn folder() -> Option<PathBuf> {
    if let Ok(folder) = std::env::var("HIGHWIRE_IRN_TRACE") {
        return Some(PathBuf::from(folder));
    }
    let beside = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/vectors/irn"));
    beside.join("receiver-input.txt.gz").exists().then_some(beside)
}

fn rows(path: &std::path::Path) -> Vec<Vec<u32>> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut text = String::new();
    GzDecoder::new(bytes.as_slice()).read_to_string(&mut text).expect("a gzip file of text");
    text.lines().map(|line| line.split_whitespace().map(|n| n.parse().expect("a number")).collect()).collect()
}

fn columns<const N: usize>(row: &[u32]) -> [u32; N] {
    row.try_into().unwrap_or_else(|_| panic!("{row:?} has not {N} columns"))
}
