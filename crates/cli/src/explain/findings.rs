//! From entries to causes.
//!
//! Only a queue pair's first failure is a cause: what fails behind it follows from it. A refusal that the other end has explained takes
//! that explanation along, if the other end is in one of the records.

use std::collections::{BTreeMap, HashMap, HashSet};

use highwire_host::record::{About, Entry, Event, Packet, PacketFate, Part, Request};
use highwire_host::verbs::{CompletionOp, CompletionStatus, QpState};
use highwire_stdx::words;
use highwire_wire::{Qpn, Syndrome};
use serde::Serialize;

use crate::recorded::events::{Events, Pair, request_words};
use crate::recorded::show_time;

/// So many open requests of a process are remembered.
const OPEN_MAX: usize = 1 << 16;

/// The answer.
#[derive(Debug, Serialize)]
pub(super) struct Explained {
    /// What was read.
    pub(super) seen: String,
    /// What went wrong, the first cause first.
    pub(super) wrong: Vec<Finding>,
    /// What else is worth knowing.
    pub(super) notes: Vec<String>,
}

/// Something that went wrong.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Finding {
    pub(super) time_ns: u64,
    pub(super) process: u32,
    pub(super) name: String,
    pub(super) words: String,
}

/// A failure whose reason the other end may know.
#[derive(Debug)]
struct Refused {
    finding: Finding,
    /// The queue pair at the other end.
    by: u32,
    own_cause: &'static str,
}

/// What the refusing end says.
#[derive(Debug)]
struct Denial {
    finding: Finding,
    qpn: u32,
    is_used: bool,
}

/// What is counted of a queue pair.
#[derive(Debug, Default)]
struct Counted {
    failed: u64,
    flushed: u64,
    again: u64,
    rnr: u64,
    heard_ns: Option<u64>,
    /// Sent again since the peer was heard last.
    again_since: u64,
    has_failed: bool,
    is_destroyed: bool,
}

/// All findings.
#[derive(Debug, Default)]
pub(super) struct Findings {
    processes: u64,
    entries: u64,
    pairs: u64,
    ended: u64,
    wrong: Vec<Finding>,
    refused: Vec<Refused>,
    denials: Vec<Denial>,
    notes: Vec<String>,
}

/// One process while it is read.
struct Reading<'a> {
    part: &'a Part,
    shift: u64,
    events: Events,
    pairs: BTreeMap<(u8, u32), Counted>,
    /// Requests that have not ended, by queue pair and wr_id.
    open: HashMap<(u8, u32, u64), Request>,
    faults: BTreeMap<&'static str, (u64, u64)>,
    drops: BTreeMap<&'static str, u64>,
    /// The failures of queue pairs in the words of the program's own log.
    own_words: HashMap<u32, &'a str>,
    /// The lines about refused accesses.
    denied: HashSet<&'a str>,
}

impl Findings {
    /// Reads one process; its time begins `shift` nanoseconds after the first one's.
    pub(super) fn read(&mut self, part: &Part, shift: u64) {
        let mut reading = Reading {
            part,
            shift,
            events: Events::default(),
            pairs: BTreeMap::new(),
            open: HashMap::new(),
            faults: BTreeMap::new(),
            drops: BTreeMap::new(),
            own_words: HashMap::new(),
            denied: HashSet::new(),
        };
        self.processes += 1;
        self.entries += part.entries.len() as u64;
        // The sentences of the program's log come behind the completions that they are about.
        for entry in &part.entries {
            match &entry.event {
                Event::Text { about: About::Failure, qpn, text } => {
                    reading.own_words.entry(*qpn).or_insert(text);
                }
                Event::Text { about: About::Denial, text, .. } => {
                    reading.denied.insert(text);
                }
                _ => {}
            }
        }
        for entry in &part.entries {
            reading.take(entry, self);
        }
        reading.finish(self);
    }

    /// Puts the causes into their order.
    pub(super) fn finish(mut self, left_out: u64) -> Explained {
        for refused in std::mem::take(&mut self.refused) {
            let Refused { mut finding, by, own_cause } = refused;
            // The refusing end spoke before the answer came; of several denials the latest one before is its.
            let told = self.denials.iter_mut().filter(|denial| denial.qpn == by && !denial.is_used);
            let latest =
                told.filter(|denial| denial.finding.time_ns <= finding.time_ns + CLOCKS_DIFFER_NS).last();
            match latest {
                Some(denial) => {
                    denial.is_used = true;
                    finding.words += &format!(": the peer refused it: {}", denial.finding.words);
                    finding.time_ns = finding.time_ns.min(denial.finding.time_ns);
                }
                None => finding.words += &format!(": {own_cause}"),
            }
            self.wrong.push(finding);
        }
        let unused = self.denials.into_iter().filter(|denial| !denial.is_used);
        self.wrong.extend(unused.map(|denial| denial.finding));
        self.wrong.sort_by_key(|finding| finding.time_ns);
        if self.processes == 0 {
            let why =
                "no process has looked for RDMA devices: another library, or one that is linked statically?";
            self.notes.push(why.to_string());
        }
        if left_out > 0 {
            self.notes
                .push(format!("{} had no room in the record", words::counted(left_out, "more process")));
        }
        let seen = format!(
            "{}, {}, {} ended, {}",
            words::counted(self.processes, "process"),
            words::counted(self.pairs, "queue pair"),
            words::counted(self.ended, "request"),
            words::counted(self.entries, "entry")
        );
        Explained { seen, wrong: self.wrong, notes: self.notes }
    }
}

/// The clocks of two processes may differ by so much in a record.
const CLOCKS_DIFFER_NS: u64 = 1_000_000;

impl Reading<'_> {
    fn finding(&self, time_ns: u64, words: String) -> Finding {
        let Part { process, name, .. } = self.part;
        Finding { time_ns: time_ns.saturating_add(self.shift), process: *process, name: name.clone(), words }
    }

    fn who(&self, device: u8, qpn: u32) -> String {
        match self.events.pair(device, qpn) {
            Some(pair) => format!("queue pair {qpn:#x} ({})", pair.service),
            None => format!("queue pair {qpn:#x}"),
        }
    }

    fn take(&mut self, entry: &Entry, all: &mut Findings) {
        self.events.note(entry);
        let device = entry.device;
        match &entry.event {
            Event::Posted(request) => {
                if self.open.len() < OPEN_MAX {
                    self.open.insert((device, request.qpn, request.wr_id), *request);
                }
            }
            &Event::Completed { qpn, wr_id, status, operation, .. } => {
                self.completed(entry, (qpn, wr_id), status, operation, all);
            }
            Event::Packet(packet) => self.packet(entry, packet),
            Event::Destroyed { qpn } => {
                self.pairs.entry((device, *qpn)).or_default().is_destroyed = true;
                self.open.retain(|(at, number, _), _| (*at, *number) != (device, *qpn));
            }
            Event::State { qpn, to, .. } => {
                let counted = self.pairs.entry((device, *qpn)).or_default();
                counted.is_destroyed = false;
                if *to == QpState::Reset || *to == QpState::Init {
                    // A new connection may fail anew.
                    counted.has_failed = false;
                }
            }
            Event::Text { about, qpn, text } => self.line(entry.time_ns, *about, *qpn, text, all),
            Event::Device { .. } | Event::ReceivePosted { .. } => {}
        }
    }

    fn line(&mut self, time_ns: u64, about: About, qpn: u32, text: &str, all: &mut Findings) {
        match about {
            About::Denial => {
                let finding = self.finding(time_ns, text.to_string());
                all.denials.push(Denial { finding, qpn, is_used: false });
            }
            // The log prints a denial as well.
            About::Trouble if self.denied.contains(text) => {}
            About::Refusal | About::Trouble => all.wrong.push(self.finding(time_ns, text.to_string())),
            About::Scenario => {
                let finding = self.finding(time_ns, format!("on purpose: {text}"));
                all.wrong.push(finding);
            }
            // It explains a completion.
            About::Failure => {}
        }
    }

    fn completed(
        &mut self,
        entry: &Entry,
        (qpn, wr_id): (u32, u64),
        status: CompletionStatus,
        operation: CompletionOp,
        all: &mut Findings,
    ) {
        let device = entry.device;
        all.ended += 1;
        // A receive may have the wr_id of a request.
        let request = if operation.is_receive() { None } else { self.open.remove(&(device, qpn, wr_id)) };
        let counted = self.pairs.entry((device, qpn)).or_default();
        if status == CompletionStatus::Success {
            return;
        }
        if status == CompletionStatus::Flushed {
            counted.flushed += 1;
            // Receives come back at the end of every program that is in order.
            if operation.is_receive() {
                return;
            }
        } else {
            counted.failed += 1;
        }
        if std::mem::replace(&mut counted.has_failed, true) {
            return;
        }
        let what = match request {
            Some(request) => request_words(&request),
            None => format!("{}, wr_id {wr_id}", operation.words()),
        };
        let head = format!("{}: {what}, ends with {}", self.who(device, qpn), status.name());
        let cause = status.usual_cause(operation);
        let pair = self.events.pair(device, qpn).copied();
        let counted = &self.pairs[&(device, qpn)];
        let words = match status {
            CompletionStatus::RemoteAccess
            | CompletionStatus::RemoteInvalidRequest
            | CompletionStatus::RemoteOperation => {
                let finding = self.finding(entry.time_ns, head);
                let by = pair.map_or(0, |pair| pair.peer_qpn);
                all.refused.push(Refused { finding, by, own_cause: cause });
                return;
            }
            CompletionStatus::LocalProtection | CompletionStatus::LocalAccess => {
                // Its own reason was told just before.
                let process = self.part.process;
                let own = all.denials.iter_mut().rfind(|denial| {
                    denial.qpn == qpn && denial.finding.process == process && !denial.is_used
                });
                match own {
                    Some(denial) => {
                        denial.is_used = true;
                        format!("{head}: {}", denial.finding.words)
                    }
                    None => format!("{head}: {cause}"),
                }
            }
            CompletionStatus::RetryExceeded => {
                let own_words = self.own_words.get(&qpn).copied();
                format!("{head}: {}", self.silence(counted, pair, own_words.unwrap_or(cause)))
            }
            CompletionStatus::RnrRetryExceeded => {
                format!(
                    "{head}: the peer's receive queue was empty {} (RNR); {cause}",
                    words::counted(counted.rnr, "time")
                )
            }
            _ => format!("{head}: {cause}"),
        };
        all.wrong.push(self.finding(entry.time_ns, words));
    }

    /// Since when a peer has not answered.
    fn silence(&self, counted: &Counted, pair: Option<Pair>, cause: &str) -> String {
        let peer = pair.map_or("the peer".to_string(), |pair| {
            format!("the peer, queue pair {:#x} at {},", pair.peer_qpn, pair.peer.to_ip())
        });
        let again = words::counted(counted.again_since, "time");
        let when = match counted.heard_ns {
            Some(time) => {
                let time = show_time(time.saturating_add(self.shift));
                format!(
                    "{peer} stopped answering: it was heard last at {time}, and packets were sent again {again} since"
                )
            }
            None => format!("{peer} has never answered, and packets were sent again {again}"),
        };
        // The program's own log knows more: whether there is a way to the address. Its head is the same.
        let marker = format!("{}: ", CompletionStatus::RetryExceeded.name());
        format!("{when}; {}", cause.split_once(&marker).map_or(cause, |(_, words)| words))
    }

    fn packet(&mut self, entry: &Entry, packet: &Packet) {
        let is_again = self.events.is_again(entry.device, packet);
        if packet.fate.is_fault() {
            let (count, _) = self.faults.entry(packet.fate.words()).or_insert((0, entry.time_ns));
            *count += 1;
            return;
        }
        if !matches!(packet.fate, PacketFate::Sent | PacketFate::Received) {
            *self.drops.entry(packet.fate.words()).or_default() += 1;
            return;
        }
        let counted = self.pairs.entry((entry.device, packet.qpn)).or_default();
        if packet.fate == PacketFate::Received {
            counted.heard_ns = Some(entry.time_ns);
            counted.again_since = 0;
            counted.rnr += u64::from(matches!(packet.syndrome, Some(Syndrome::Rnr { .. })));
        } else if is_again {
            counted.again += 1;
            counted.again_since += 1;
        }
    }

    fn finish(self, all: &mut Findings) {
        let Part { process, name, dropped, damaged, has_ended, .. } = self.part;
        let of_process = |words: String| format!("process {process} ({name}) {words}");
        for (fate, (count, first)) in &self.faults {
            let words = format!("on purpose: {} {fate}, the first here", words::counted(*count, "packet"));
            all.wrong.push(self.finding(*first, words));
        }
        if self.events.devices.is_empty() {
            all.notes.push(of_process(
                "looked for devices and opened none. UCX: try UCX_TLS=rc_verbs,ud_verbs".to_string(),
            ));
        }
        for (&(device, qpn), counted) in self.pairs.iter().filter(|((_, qpn), _)| *qpn > Qpn::GSI.value()) {
            all.pairs += 1;
            let who = self.who(device, qpn);
            let mut note = |words: String| all.notes.push(format!("{who} of process {process} {words}"));
            if counted.again > 0 {
                note(format!("sent {} again", words::counted(counted.again, "packet")));
            }
            if counted.rnr > 0 {
                note(format!(
                    "found the peer's receive queue empty {} (RNR)",
                    words::counted(counted.rnr, "time")
                ));
            }
            if counted.failed > 1 {
                note(format!(
                    "had {}; only the first one is a cause",
                    words::counted(counted.failed, "failed request")
                ));
            }
            if counted.flushed > 0 {
                note(format!(
                    "flushed {} after it had come to ERR",
                    words::counted(counted.flushed, "request")
                ));
            }
            let open = self.open.iter().filter(|((at, number, _), request)| {
                (*at, *number) == (device, qpn) && request.signaled && !request.direct
            });
            let open = open.count() as u64;
            if open > 0 && !counted.is_destroyed && !counted.has_failed {
                note(format!("had {} that did not end", words::counted(open, "request")));
            }
        }
        for (fate, count) in &self.drops {
            all.notes.push(of_process(format!(
                "has {} that {} {fate}",
                words::counted(*count, "packet"),
                words::verb(*count, "was", "were")
            )));
        }
        if !has_ended {
            all.notes.push(of_process(
                "did not end by itself, or runs still: it was killed, has crashed, or has left by _exit"
                    .to_string(),
            ));
        }
        if *dropped > 0 {
            all.notes.push(of_process(format!(
                "had {} of earlier traffic, for which there was no room (--record-size)",
                words::counted(*dropped, "more entry")
            )));
        }
        if *damaged > 0 {
            all.notes.push(of_process(format!(
                "left {} that {} not whole",
                words::counted(*damaged, "entry"),
                words::verb(*damaged, "is", "are")
            )));
        }
    }
}

#[cfg(test)]
mod tests;
