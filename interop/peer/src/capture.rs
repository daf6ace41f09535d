//! A capture, one line per RoCEv2 packet: `FRAME SOURCE OPCODE ok|bad TEXT`.
//!
//! Other frames are skipped: the same wire carries the agent's TCP.

use std::io::Write;

use anyhow::{Context, Result, anyhow};
use highwire_wire::pcap::Reader;
use highwire_wire::{Line, ParseErrorKind};

/// Prints the packets of the capture in `file`. Frame numbers count from 1, as in other programs.
///
/// # Errors
/// The file is no capture.
pub(crate) fn print(file: &str) -> Result<()> {
    let bytes = std::fs::read(file).with_context(|| format!("cannot read {file}"))?;
    let reader = Reader::new(&bytes).map_err(|error| anyhow!("{file}: {error}"))?;
    let link = reader.link_type();
    let mut out = std::io::stdout().lock();
    let mut origin = None;
    for (number, record) in (1..).zip(reader) {
        let record = record.map_err(|error| anyhow!("{file}: frame {number}: {error}"))?;
        let line = Line::new(*origin.get_or_insert(record.time), link, &record);
        match line.frame {
            Ok(frame) => {
                let verdict = if line.is_sound() { "ok" } else { "bad" };
                let opcode = frame.headers.bth.opcode;
                writeln!(out, "{number} {} {opcode} {verdict} {line}", frame.ip.source())?;
            }
            Err(error) if error.kind == ParseErrorKind::OtherProtocol => {}
            Err(_) => writeln!(out, "{number} ? ? bad {line}")?,
        }
    }
    Ok(())
}
