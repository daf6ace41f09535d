//! The first inputs for fuzzing: the golden captures, cut into the form of a target.

use std::path::Path;

use anyhow::{Context, Result};
use highwire_stdx::Rng;
use highwire_wire::{Ethernet, pcap};

use crate::Target;

/// The shape of a target's inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seeds {
    /// A byte that chooses the link type, then a frame.
    Frames,
    /// UDP payloads: BTH to ICRC.
    Packets,
    /// Whole capture files.
    Files,
    /// Shared memory with a ring in it.
    Rings,
    /// Entries of a record, behind its counts.
    Records,
    /// Requests of the Redis door, behind the length of the pieces in which they come.
    Requests,
    /// All packets of a capture, from BTH to ICRC, each behind its length in two bytes.
    Conversations,
    /// Random bytes, read as decisions.
    Operations,
    /// The same, of programs in other threads: an input takes a thousand times as long.
    Sessions,
}

/// Frames longer than this teach a fuzzer nothing that shorter ones do not.
const FRAME_BYTES_MAX: usize = 2048;
const FILE_BYTES_MAX: usize = 8192;
/// Long enough for several segmented messages.
const CONVERSATION_BYTES_MAX: usize = 12 * 1024;
const OPERATION_SEEDS: usize = 64;
const IPV4_AND_UDP_BYTES: usize = 28;

/// The seeds of `target` from the captures in `folder`, in the order of their names.
///
/// # Errors
/// The folder or a capture cannot be read.
pub fn seeds(target: &Target, folder: &Path) -> Result<Vec<Vec<u8>>> {
    if matches!(target.seeds, Seeds::Operations | Seeds::Sessions) {
        let mut rng = Rng::new(1);
        // A session begins with two queue pairs.
        let start: &[u8] = if target.seeds == Seeds::Sessions { &[0, 0] } else { &[] };
        let seed = |n: usize| [start, &random_bytes(&mut rng, 16 << (n % 6))].concat();
        return Ok((0..OPERATION_SEEDS).map(seed).collect());
    }
    if target.seeds == Seeds::Rings {
        return Ok(crate::rings::seeds());
    }
    if target.seeds == Seeds::Records {
        return Ok(crate::record::seeds());
    }
    if target.seeds == Seeds::Requests {
        return Ok(crate::resp::seeds());
    }
    let mut paths = std::fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>, _>>())
        .with_context(|| format!("cannot read the captures in {}", folder.display()))?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "pcap"));
    paths.sort();
    let mut seeds = Vec::new();
    for path in paths {
        let file = std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        match target.seeds {
            Seeds::Files if file.len() <= FILE_BYTES_MAX => seeds.push(file),
            Seeds::Frames => seeds.extend(frames(&file).map(|frame| [&[0], frame].concat())),
            Seeds::Packets => seeds.extend(frames(&file).filter_map(udp_payload)),
            Seeds::Conversations => seeds.push(conversation(&file)),
            Seeds::Files
            | Seeds::Records
            | Seeds::Rings
            | Seeds::Requests
            | Seeds::Operations
            | Seeds::Sessions => {}
        }
    }
    seeds.dedup();
    Ok(seeds)
}

fn random_bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

fn frames(file: &[u8]) -> impl Iterator<Item = &[u8]> {
    let records = pcap::Reader::new(file).into_iter().flatten().map_while(Result::ok);
    records.map(|record| record.bytes).filter(|bytes| bytes.len() <= FRAME_BYTES_MAX)
}

fn conversation(file: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for packet in frames(file).filter_map(udp_payload) {
        if bytes.len() + packet.len() > CONVERSATION_BYTES_MAX {
            break;
        }
        bytes.extend((packet.len() as u16).to_le_bytes());
        bytes.extend(packet);
    }
    bytes
}

fn udp_payload(frame: &[u8]) -> Option<Vec<u8>> {
    frame.get(Ethernet::LEN + IPV4_AND_UDP_BYTES..).map(<[u8]>::to_vec)
}
