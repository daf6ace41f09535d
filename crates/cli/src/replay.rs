//! `highwire replay`: what a record has, as a timeline of each queue pair.

mod page;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use highwire_host::record::Part;
use highwire_host::verbs::Gid;
use highwire_stdx::words::{counted, verb};
use serde::Serialize;

use crate::console::{Console, Tone};
use crate::recorded::events::{Events, Subject, Told};
use crate::recorded::{each_process, show_time};
use page::Page;

/// Options of `highwire replay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  highwire run --record run.hwr -- ./my_program
  highwire replay run.hwr | less
  highwire replay run.hwr --qp 0x12 --only completions,states
  highwire replay run.hwr --from 1.2s --to 1.3s --merged
  highwire replay client.hwr server.hwr --html timeline.html")]
pub(crate) struct Args {
    /// The records; those of both ends have one time.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    choice: Choice,
    /// In the order of time, whichever queue pair an entry belongs to.
    #[arg(long, conflicts_with = "html")]
    merged: bool,
    /// Print JSON: one document per entry on a line of its own.
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Write a page instead.
    #[arg(long, value_name = "OUT")]
    html: Option<PathBuf>,
}

/// Which entries are shown.
#[derive(Debug, clap::Args)]
struct Choice {
    /// Only this queue pair: 18 or 0x12
    #[arg(long, value_parser = number, value_name = "NUMBER")]
    qp: Option<u32>,
    /// Only this process.
    #[arg(long, value_name = "PID")]
    process: Option<u32>,
    /// Only entries from this time on, since the first process began: 1.2s, 350ms
    #[arg(long, value_parser = time, value_name = "TIME")]
    from: Option<Duration>,
    /// Only entries up to this time.
    #[arg(long, value_parser = time, value_name = "TIME")]
    to: Option<Duration>,
    /// Only these.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "SUBJECTS")]
    only: Vec<Subject>,
    /// Only what has this peer: an address, or the number of its queue pair.
    #[arg(long, value_parser = peer, value_name = "PEER")]
    peer: Option<Peer>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Peer {
    Address(Gid),
    Number(u32),
}

fn number(text: &str) -> Result<u32, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| "a queue pair's number, as 18 or 0x12".to_string())
}

fn time(text: &str) -> Result<Duration, String> {
    highwire_link::parse_duration(text).map(Duration::from).map_err(|error| error.to_string())
}

fn peer(text: &str) -> Result<Peer, String> {
    let address = text.parse().map(|ip| Peer::Address(Gid::from_ip(ip)));
    address
        .or_else(|_| number(text).map(Peer::Number))
        .map_err(|_| "an address or a queue pair's number".to_string())
}

impl Choice {
    fn has(&self, process: u32, time_ns: u64, told: &Told) -> bool {
        let is_peer = |peer| match (peer, told.peer) {
            (Peer::Address(wanted), Some((gid, _))) => wanted == gid,
            (Peer::Number(wanted), Some((_, number))) => wanted == number,
            (_, None) => false,
        };
        let nanos = |time: Duration| time.as_nanos() as u64;
        self.process.is_none_or(|wanted| wanted == process)
            && self.qp.is_none_or(|wanted| wanted == told.qpn)
            && self.from.is_none_or(|from| time_ns >= nanos(from))
            && self.to.is_none_or(|to| time_ns <= nanos(to))
            && (self.only.is_empty() || self.only.contains(&told.subject))
            && self.peer.is_none_or(is_peer)
    }
}

/// An entry, as programs read it.
#[derive(Serialize)]
struct EntryJson<'a> {
    time_ns: u64,
    process: u32,
    device: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    qpn: Option<u32>,
    subject: Subject,
    is_bad: bool,
    words: &'a str,
}

/// One process with the entries that were chosen, by device and queue pair; entries of no queue pair have the number 0.
pub(crate) struct Process {
    pub(crate) heading: String,
    pub(crate) notes: Vec<String>,
    pub(crate) pairs: BTreeMap<(u8, u32), Timeline>,
}

/// One queue pair's entries, in order: time, words.
#[derive(Default)]
pub(crate) struct Timeline {
    pub(crate) heading: String,
    pub(crate) told: Vec<(u64, Told)>,
}

/// Shows the records.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut console = Console::new();
    let mut page = Page::default();
    let mut shown = 0;
    let left_out = each_process(&args.files, |part, shift| {
        if args.json || args.merged {
            shown += in_order(&mut console, args, part, shift)?;
            return Ok(());
        }
        let process = by_pair(&args.choice, &part, shift);
        shown += process.pairs.values().map(|pair| pair.told.len() as u64).sum::<u64>();
        match args.html {
            Some(_) => page.add(&process),
            None => show(&mut console, &process)?,
        }
        Ok(())
    })?;
    if let Some(file) = &args.html {
        std::fs::write(file, page.finish(&args.files, left_out))
            .with_context(|| format!("cannot write {}", file.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !args.json {
        if left_out > 0 {
            console
                .line(format!("and {}, for which there was no room", counted(left_out, "more process")))?;
        }
        if shown == 0 {
            console.line("the record has no such entries")?;
        }
    }
    console.finish()?;
    Ok(ExitCode::SUCCESS)
}

fn heading(part: &Part) -> (String, Vec<String>) {
    let mut notes = Vec::new();
    if part.dropped > 0 {
        notes.push(format!(
            "{} of traffic {} gone: the ring was full (--record-size)",
            counted(part.dropped, "earlier entry"),
            verb(part.dropped, "is", "are")
        ));
    }
    if part.damaged > 0 {
        notes.push(format!(
            "{} {} not whole and left out",
            counted(part.damaged, "entry"),
            verb(part.damaged, "is", "are")
        ));
    }
    if !part.has_ended {
        notes.push("it did not end by itself, or runs still: no exit was noted".to_string());
    }
    (format!("process {} ({})", part.process, part.name), notes)
}

fn in_order(console: &mut Console, args: &Args, part: Part, shift: u64) -> Result<u64> {
    let mut events = Events::default();
    let mut shown = 0;
    let (title, notes) = heading(&part);
    if !args.json {
        console.line(console.paint(Tone::Heading, &title))?;
        for note in notes {
            console.line(format!("  {}", console.paint(Tone::Faint, &note)))?;
        }
    }
    for entry in &part.entries {
        let told = events.tell(entry);
        let time_ns = entry.time_ns.saturating_add(shift);
        if events.is_repeated(entry) || !args.choice.has(part.process, time_ns, &told) {
            continue;
        }
        shown += 1;
        if args.json {
            let device = events.devices.get(&entry.device).map_or("", |(name, _)| name);
            let Told { subject, qpn, ref words, is_bad, .. } = told;
            let qpn = (qpn != 0).then_some(qpn);
            console.json_line(&EntryJson {
                time_ns,
                process: part.process,
                device,
                qpn,
                subject,
                is_bad,
                words,
            })?;
            continue;
        }
        let who = if told.qpn == 0 { String::new() } else { format!("{:#x} ", told.qpn) };
        line(console, time_ns, &format!("{who}{}", told.words), told.is_bad)?;
    }
    Ok(shown)
}

fn line(console: &mut Console, time_ns: u64, words: &str, is_bad: bool) -> Result<()> {
    let words = if is_bad { console.paint(Tone::Bad, words) } else { words.to_string() };
    console.line(format!("  {:>18}  {words}", show_time(time_ns)))
}

/// The entries that were chosen, by queue pair.
fn by_pair(choice: &Choice, part: &Part, shift: u64) -> Process {
    let mut events = Events::default();
    let mut pairs: BTreeMap<(u8, u32), Timeline> = BTreeMap::new();
    for entry in &part.entries {
        let told = events.tell(entry);
        let time_ns = entry.time_ns.saturating_add(shift);
        if !events.is_repeated(entry) && choice.has(part.process, time_ns, &told) {
            pairs.entry((entry.device, told.qpn)).or_default().told.push((time_ns, told));
        }
    }
    for (&(device, qpn), pair) in &mut pairs {
        let name = events.devices.get(&device).map_or("", |(name, _)| name);
        pair.heading = match events.pair(device, qpn) {
            _ if qpn == 0 => format!("the process, and {name}"),
            None => format!("queue pair {qpn:#x} on {name}"),
            Some(known) if known.peer_qpn == 0 => {
                format!("queue pair {qpn:#x} ({}) on {name}", known.service)
            }
            Some(known) => format!(
                "queue pair {qpn:#x} ({}) on {name}, peer {:#x} at {}",
                known.service,
                known.peer_qpn,
                known.peer.to_ip()
            ),
        };
    }
    let (heading, notes) = heading(part);
    Process { heading, notes, pairs }
}

fn show(console: &mut Console, process: &Process) -> Result<()> {
    if process.pairs.is_empty() {
        return Ok(());
    }
    console.line(console.paint(Tone::Heading, &process.heading))?;
    for note in &process.notes {
        console.line(format!("  {}", console.paint(Tone::Faint, note)))?;
    }
    for pair in process.pairs.values() {
        console.line(format!("  {}", console.paint(Tone::Heading, &pair.heading)))?;
        for (time_ns, told) in &pair.told {
            line(console, *time_ns, &told.words, told.is_bad)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_peers_are_as_they_are_printed() {
        assert_eq!((number("18"), number("0x12")), (Ok(18), Ok(18)));
        assert!(number("0xx").is_err() && peer("here").is_err());
        assert_eq!(peer("127.0.0.1"), Ok(Peer::Address(Gid::from_ip([127, 0, 0, 1].into()))));
        assert_eq!(peer("0x12"), Ok(Peer::Number(18)));
    }
}
