//! The entries of one process with what follows from those before them: a queue pair's peer, and whether a packet is sent again.

use std::collections::{BTreeMap, BTreeSet};

use highwire_host::record::{About, Entry, Event, Packet, PacketFate, Request};
use highwire_host::verbs::{CompletionStatus, Gid, QpState, Service};
use highwire_stdx::words::counted;
use highwire_wire::{Opcode, Operation, Syndrome};

/// What an entry is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Subject {
    /// Requests that were posted, and receives.
    Requests,
    /// Requests that have ended.
    Completions,
    /// Packets sent, received and dropped.
    Packets,
    /// Faults on purpose.
    Faults,
    /// Devices, and the states of queue pairs.
    States,
    /// Refusals, failures and waits in words.
    Lines,
}

/// A queue pair as it is known so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) service: Service,
    pub(crate) peer: Gid,
    pub(crate) peer_qpn: u32,
}

/// An entry in words.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) subject: Subject,
    /// 0 if it belongs to no queue pair.
    pub(crate) qpn: u32,
    pub(crate) words: String,
    pub(crate) is_bad: bool,
    /// The packet's own peer, or the queue pair's.
    pub(crate) peer: Option<(Gid, u32)>,
}

/// Packets that have sequence numbers of their own at a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Flow {
    Requests,
    Answers,
}

/// The state of the reading.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pairs: BTreeMap<(u8, u32), Pair>,
    /// The PSN behind the last one that was sent.
    next: BTreeMap<(u8, u32, Flow), u32>,
    denied: BTreeSet<String>,
    /// Devices by number.
    pub(crate) devices: BTreeMap<u8, (String, Gid)>,
}

/// Whether `psn` lies before `next`, in 24 bits.
fn is_before(psn: u32, next: u32) -> bool {
    let distance = next.wrapping_sub(psn) & 0xFF_FFFF;
    distance != 0 && distance < 0x80_0000
}

fn flow_of(packet: &Packet) -> Option<Flow> {
    match Opcode::from_u8(packet.opcode)?.info().operation {
        Operation::Send
        | Operation::Write
        | Operation::Read
        | Operation::CompareSwap
        | Operation::FetchAdd => Some(Flow::Requests),
        Operation::ReadResponse => Some(Flow::Answers),
        _ => None,
    }
}

impl Events {
    pub(crate) fn pair(&self, device: u8, qpn: u32) -> Option<&Pair> {
        self.pairs.get(&(device, qpn))
    }

    /// Whether a packet that leaves has left before. Datagrams are sent once.
    pub(crate) fn is_again(&mut self, device: u8, packet: &Packet) -> bool {
        let is_datagram = Opcode::from_u8(packet.opcode)
            .is_none_or(|opcode| opcode.info().service == Some(highwire_wire::Service::Ud));
        let Some(flow) = flow_of(packet).filter(|_| packet.fate == PacketFate::Sent && !is_datagram) else {
            return false;
        };
        let next = self.next.entry((device, packet.qpn, flow)).or_insert(packet.psn);
        let is_again = is_before(packet.psn, *next);
        if !is_again {
            *next = packet.psn.wrapping_add(1) & 0xFF_FFFF;
        }
        is_again
    }

    /// Takes note of what later entries need.
    pub(crate) fn note(&mut self, entry: &Entry) {
        match &entry.event {
            Event::Device { gid, name } => {
                self.devices.insert(entry.device, (name.clone(), *gid));
            }
            &Event::State { qpn, service, to, peer, peer_qpn, .. } => {
                self.pairs.insert((entry.device, qpn), Pair { service, peer, peer_qpn });
                if to == QpState::Reset || to == QpState::Rtr {
                    self.next.retain(|(device, number, _), _| (*device, *number) != (entry.device, qpn));
                }
            }
            _ => {}
        }
    }

    /// Whether it is the log's line about an access that the device has told of already.
    pub(crate) fn is_repeated(&mut self, entry: &Entry) -> bool {
        match &entry.event {
            Event::Text { about: About::Denial, text, .. } => {
                self.denied.insert(text.clone());
                false
            }
            Event::Text { about: About::Trouble, text, .. } => self.denied.contains(text),
            _ => false,
        }
    }

    /// The entry in words; entries come in their order.
    pub(crate) fn tell(&mut self, entry: &Entry) -> Told {
        self.note(entry);
        let is_again = match &entry.event {
            Event::Packet(packet) => self.is_again(entry.device, packet),
            _ => false,
        };
        let mut told = in_words(&entry.event, is_again);
        if told.peer.is_none() {
            told.peer = self.pair(entry.device, told.qpn).map(|pair| (pair.peer, pair.peer_qpn));
        }
        told
    }
}

fn in_words(event: &Event, is_again: bool) -> Told {
    let told = |subject, qpn, words, is_bad| Told { subject, qpn, words, is_bad, peer: None };
    match event {
        Event::Device { gid, name } => {
            told(Subject::States, 0, format!("opens {name} at {}", gid.to_ip()), false)
        }
        &Event::State { qpn, from, to, peer, peer_qpn, .. } => {
            let with = match peer_qpn {
                0 => String::new(),
                _ if !to.receives() => String::new(),
                _ => format!(", peer {peer_qpn:#x} at {}", peer.to_ip()),
            };
            let is_bad = matches!(to, QpState::Error | QpState::Sqe);
            told(Subject::States, qpn, format!("goes from {from} to {to}{with}"), is_bad)
        }
        &Event::Destroyed { qpn } => told(Subject::States, qpn, "is destroyed".to_string(), false),
        Event::Posted(request) => {
            told(Subject::Requests, request.qpn, format!("posts {}", request_words(request)), false)
        }
        &Event::ReceivePosted { qpn, wr_id, length } => {
            let words = format!("posts a receive of {}, wr_id {wr_id}", counted(length, "byte"));
            told(Subject::Requests, qpn, words, false)
        }
        &Event::Completed { qpn, wr_id, status, operation, bytes } => {
            let bytes = if operation.is_receive() && status == CompletionStatus::Success {
                format!(" of {}", counted(bytes.into(), "byte"))
            } else {
                String::new()
            };
            let words = format!("ends {}{bytes}, wr_id {wr_id}: {}", operation.words(), status.name());
            told(Subject::Completions, qpn, words, status != CompletionStatus::Success)
        }
        Event::Packet(packet) => packet_words(packet, is_again),
        Event::Text { about, qpn, text } => {
            let subject = if *about == About::Scenario { Subject::Faults } else { Subject::Lines };
            told(subject, *qpn, text.clone(), *about != About::Scenario)
        }
    }
}

/// A request, with what its owner would recognise it by.
pub(crate) fn request_words(request: &Request) -> String {
    let Request { wr_id, operation, length, signaled, direct, va, rkey, to_qpn, .. } = *request;
    let mut words = format!("{} of {}, wr_id {wr_id}", operation.words(), counted(length.into(), "byte"));
    if va != 0 {
        words += &format!(", at {va:#x} with rkey {rkey:#x}");
    }
    if to_qpn != 0 {
        words += &format!(", to {to_qpn:#x}");
    }
    if !signaled {
        words += ", unsignaled";
    }
    if direct {
        words += ", carried out at once";
    }
    words
}

fn packet_words(packet: &Packet, is_again: bool) -> Told {
    let Packet { fate, qpn, to_qpn, psn, length, syndrome, peer, .. } = *packet;
    let ip = peer.to_ip();
    let ends = match fate {
        PacketFate::Sent => format!(" to {to_qpn:#x} at {ip}"),
        _ if fate.is_fault() => format!(" to {to_qpn:#x} at {ip}"),
        _ => format!(" from {ip}"),
    };
    let again = if is_again { ", again" } else { "" };
    let answer = syndrome.map_or(String::new(), |syndrome| format!(", {syndrome}"));
    let words = format!(
        "{} {} psn {psn:#x}{ends}, {}{answer}{again}",
        fate.words(),
        packet.name(),
        counted(length.into(), "byte")
    );
    let is_refusal = matches!(syndrome, Some(Syndrome::Nak(_) | Syndrome::Rnr { .. }));
    let is_drop = !matches!(fate, PacketFate::Sent | PacketFate::Received);
    let subject = if fate.is_fault() { Subject::Faults } else { Subject::Packets };
    Told { subject, qpn, words, is_bad: is_refusal || is_drop || is_again, peer: Some((peer, to_qpn)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_device_and_the_log_say_is_told_once() {
        let mut events = Events::default();
        let mut is_repeated = |about, text: &str| {
            let event = Event::Text { about, qpn: 0, text: text.into() };
            events.is_repeated(&Entry { time_ns: 0, device: 0, event })
        };
        let told = [(About::Denial, "x"), (About::Trouble, "x"), (About::Trouble, "y")];
        assert_eq!(told.map(|(about, text)| is_repeated(about, text)), [false, true, false]);
    }

    #[test]
    fn a_packet_is_sent_again_if_its_number_was_there() {
        let mut events = Events::default();
        let packet = |psn, opcode: Opcode| Packet {
            fate: PacketFate::Sent,
            qpn: 7,
            to_qpn: 8,
            opcode: opcode.to_u8(),
            psn,
            length: 0,
            syndrome: None,
            peer: Gid::from_ip([127, 0, 0, 1].into()),
            management: None,
        };
        let mut again = |psn, opcode| events.is_again(0, &packet(psn, opcode));
        let psns = [0xFF_FFFE, 0xFF_FFFF, 0, 0xFF_FFFF, 1];
        assert_eq!(psns.map(|psn| again(psn, Opcode::RcSendOnly)), [false, false, false, true, false]);
        assert!(!again(0, Opcode::RcAck), "an acknowledgement has the number of what it acknowledges");
        assert!(!again(5, Opcode::UdSendOnly) && !again(5, Opcode::UdSendOnly));
        let elsewhere = Event::State {
            qpn: 7,
            service: Service::Rc,
            from: QpState::Init,
            to: QpState::Rtr,
            peer_qpn: 8,
            peer: Gid::from_ip([127, 0, 0, 1].into()),
            retry_count: 7,
            rnr_retry: 7,
            timeout: 14,
        };
        events.note(&Entry { time_ns: 0, device: 0, event: elsewhere });
        assert!(!events.is_again(0, &packet(0, Opcode::RcSendOnly)), "a new connection has new numbers");
    }
}
