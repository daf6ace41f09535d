//! `highwire pcap`: a capture, one packet per line, each ICRC verified.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use highwire_stdx::words::{counted, show_number, verb};
use highwire_wire::{Line, pcap};
use serde::Serialize;

use crate::console::{Console, Tone};

/// Options of `highwire pcap`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit status: 1 when an ICRC is wrong or the capture is damaged.

Examples:
  highwire pcap lossy.pcap | less
  highwire pcap --summary lossy.pcap
  tcpdump -w - udp port 4791 | highwire pcap -")]
pub(crate) struct Args {
    /// The capture (pcap, not pcapng); - reads the standard input.
    file: PathBuf,
    /// Only the counts.
    #[arg(short, long)]
    summary: bool,
    /// Print JSON: one document per packet on a line of its own, then one with the counts.
    #[arg(long)]
    json: bool,
}

/// Counts over a whole capture.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Summary {
    packets: u64,
    icrc_wrong: u64,
    not_rocev2: u64,
    payload_bytes: u64,
    opcodes: BTreeMap<String, u64>,
}

/// One packet, as programs read it.
#[derive(Debug, Serialize)]
struct PacketJson {
    time_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    opcode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    qpn: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    psn: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_bytes: Option<usize>,
    icrc_ok: bool,
    text: String,
}

/// Decodes the capture.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let bytes = read(&args.file)?;
    let name = args.file.display();
    let mut reader = pcap::Reader::new(&bytes).with_context(|| format!("{name} is no pcap capture"))?;
    let link = reader.link_type();
    let mut console = Console::new();
    let mut summary = Summary::default();
    let mut origin = None;
    let mut damage = None;
    for record in &mut reader {
        let record = match record {
            Ok(record) => record,
            Err(error) => {
                damage = Some(error);
                break;
            }
        };
        let line = Line::new(*origin.get_or_insert(record.time), link, &record);
        summary.count(&line);
        match (args.summary, args.json) {
            (true, _) => {}
            (false, true) => console.json_line(&PacketJson::of(&line))?,
            (false, false) if line.frame.is_ok() && !line.is_sound() => {
                console.line(console.paint(Tone::Bad, &line.to_string()))?;
            }
            (false, false) => console.line(line)?,
        }
    }
    if args.json {
        console.json_line(&summary)?
    } else {
        summary.show(&mut console, args.summary)?
    }
    console.finish()?;
    if let Some(error) = damage {
        return Err(error)
            .with_context(|| format!("{name} is damaged after {}", counted(summary.packets, "packet")));
    }
    Ok(if summary.icrc_wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn read(file: &Path) -> Result<Vec<u8>> {
    if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).context("reading the standard input")?;
        return Ok(bytes);
    }
    std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

impl Summary {
    fn count(&mut self, line: &Line<'_>) {
        self.packets += 1;
        match &line.frame {
            Err(_) => self.not_rocev2 += 1,
            Ok(frame) => {
                self.icrc_wrong += u64::from(!line.is_sound());
                self.payload_bytes += frame.payload.len() as u64;
                *self.opcodes.entry(frame.headers.bth.opcode.to_string()).or_default() += 1;
            }
        }
    }

    fn show(&self, console: &mut Console, with_opcodes: bool) -> Result<()> {
        if with_opcodes {
            for (opcode, count) in &self.opcodes {
                console.line(format!("{count:>10}  {opcode}"))?;
            }
        }
        let icrc = match self.icrc_wrong {
            0 if self.packets == 0 => console.paint(Tone::Bad, "the capture is EMPTY"),
            0 => console.paint(Tone::Good, "every ICRC is right"),
            wrong => console
                .paint(Tone::Bad, &format!("{} {} WRONG", counted(wrong, "ICRC"), verb(wrong, "is", "are"))),
        };
        console.line(format!(
            "{}, {} of payload, {} not RoCEv2; {icrc}",
            counted(self.packets, "packet"),
            counted(self.payload_bytes, "byte"),
            show_number(self.not_rocev2)
        ))
    }
}

impl PacketJson {
    fn of(line: &Line<'_>) -> Self {
        let frame = line.frame.as_ref().ok();
        let bth = frame.map(|frame| &frame.headers.bth);
        Self {
            time_ns: line.time.as_nanos(),
            source: frame.map(|frame| frame.ip.source().to_string()),
            destination: frame.map(|frame| frame.ip.destination().to_string()),
            opcode: bth.map(|bth| bth.opcode.to_string()),
            qpn: bth.map(|bth| bth.dest_qpn.value()),
            psn: bth.map(|bth| bth.psn.value()),
            payload_bytes: frame.map(|frame| frame.payload.len()),
            icrc_ok: line.is_sound(),
            text: line.to_string(),
        }
    }
}
