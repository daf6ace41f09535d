//! Forged packets, near enough to real ones to get past the first checks.

use highwire_verbs::Gid;
use highwire_wire::{Bth, DEFAULT_PKEY, Ext, Headers, MAX_HEADERS_LEN, Opcode, Psn, Reth};

use crate::ops::Decisions;

use super::bench::{Bench, FIRST_PSN, REGION_ADDR, REGION_BYTES};
use super::destination;

const PAYLOAD_BYTES_MAX: u16 = 600;

/// A forged packet.
pub(super) struct Forged {
    pub(super) source: Gid,
    pub(super) headers: Headers,
    pub(super) payload: Vec<u8>,
}

/// A forged packet with any opcode; `None` when the input is used up.
pub(super) fn packet(decisions: &mut Decisions<'_>, bench: &Bench) -> Option<Forged> {
    let opcode = loop {
        if let Some(opcode) = Opcode::from_u8(decisions.byte()?) {
            break opcode;
        }
    };
    let choices = decisions.byte()?;
    let psn = Psn::new(FIRST_PSN.wrapping_add(u32::from(decisions.byte()?)) & 0x00FF_FFFF);
    let mut bth = Bth::new(opcode, destination(bench, decisions.byte()?), psn);
    bth.ack_request = choices & 1 > 0;
    bth.solicited = choices & 2 > 0;
    bth.becn = choices & 4 > 0;
    if choices & 0xF8 == 0xF8 {
        bth.pkey = DEFAULT_PKEY ^ 1;
    }
    let ext = extension(decisions, opcode, choices & 8 > 0)?;
    let mut headers = Headers { bth, ext };
    steer(&mut headers.ext, bench, choices);
    let payload_bytes = decisions.short()? % PAYLOAD_BYTES_MAX;
    let payload = vec![0x5A; usize::from(payload_bytes)];
    headers.bth.pad_count = highwire_wire::pad_count(payload.len());
    // Mostly in the peer's name; a stranger's packets get no further than the first check.
    let source = if choices & 0x84 == 0x84 { Gid::default() } else { bench.gid };
    Some(Forged { source, headers, payload })
}

/// Extension headers from drawn bytes, or from zeros with a valid version if those do not parse.
fn extension(decisions: &mut Decisions<'_>, opcode: Opcode, is_wild: bool) -> Option<Ext> {
    let layout = opcode.info().layout;
    let mut bytes = [0; MAX_HEADERS_LEN];
    let len = layout.len();
    for byte in bytes[..len].iter_mut() {
        *byte = if is_wild { decisions.byte()? } else { 0 };
    }
    if let Ok(ext) = Ext::parse(layout, &bytes[..len], 0) {
        return Some(ext);
    }
    bytes = [0; MAX_HEADERS_LEN];
    // IRN's headers carry their version in the first four bits.
    bytes[0] = highwire_wire::IRN_VERSION << 4;
    bytes[3] = decisions.byte()? % 8;
    bytes[7] = decisions.byte()? % 8;
    Ext::parse(layout, &bytes[..len], 0).ok()
}

/// Gives requests the true key and an address near the region, unless the input says otherwise.
pub(super) fn steer(ext: &mut Ext, bench: &Bench, choices: u8) {
    if choices & 16 > 0 {
        return;
    }
    let edge = if choices & 32 > 0 { REGION_BYTES - 256 } else { 0 };
    let place = |reth: &mut Reth| {
        reth.rkey = bench.key.0;
        reth.va = REGION_ADDR + edge + u64::from(choices & 64);
        reth.length %= 1024;
    };
    match ext {
        Ext::Reth(reth) | Ext::RethImm(reth, _) => place(reth),
        Ext::IrnWrite(_, reth) | Ext::IrnWriteImm(_, reth, _) | Ext::IrnRead(_, reth) => place(reth),
        Ext::Atomic(atomic) | Ext::IrnAtomic(_, atomic) => {
            atomic.rkey = bench.key.0;
            atomic.va = REGION_ADDR + edge + u64::from(choices & 64) / 16;
        }
        _ => {}
    }
}
