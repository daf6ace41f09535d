//! What a lane keeps of its work in a record, if there is one.
//!
//! Each step of the engine asks one option that never changes; without a record nothing else is done.

use highwire_link::{Rule, Subject, Verdict};
use highwire_record::{About, Event, Packet, PacketFate, Recorder, Request, Tap};
use highwire_rnic::{Outgoing, QpSnapshot};
use highwire_stdx::Instant;
use highwire_verbs::{Completion, CompletionOp, Denial, Gid, Operation, QpState, RecvWr, SendWr};
use highwire_wire::cm::{CmAttribute, MAD_LEN};
use highwire_wire::{Bth, Deth, Ext, Headers, Qpn, Syndrome};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A process's record, and the name under which a device is in it.
#[derive(Clone, Debug)]
pub struct Recording {
    /// The record.
    pub recorder: Arc<Recorder>,
    /// The device's name.
    pub name: String,
}

/// The record of one lane.
pub(crate) struct Recorded {
    tap: Tap,
    /// The states of queue pairs at the last look.
    states: BTreeMap<u32, QpState>,
}

impl Recorded {
    /// A datagram of connection management leaves.
    pub(crate) fn management_sent(&self, now: Instant, to: Gid, packet: &[u8]) {
        keep_management(&self.tap, now, PacketFate::Sent, to, packet);
    }

    pub(crate) fn new(tap: Tap) -> Recorded {
        Recorded { tap, states: BTreeMap::new() }
    }

    #[inline]
    pub(crate) fn posted(&self, now: Instant, qpn: Qpn, wr: &SendWr<'_>, direct: bool) {
        let (operation, va, rkey) = parts_of(&wr.operation);
        self.tap.posted(
            now,
            Request {
                qpn: qpn.value(),
                wr_id: wr.wr_id,
                operation,
                length: wr.sges.iter().fold(0, |sum: u32, sge| sum.saturating_add(sge.length)),
                signaled: wr.flags.signaled,
                direct,
                va,
                rkey,
                to_qpn: wr.datagram.as_ref().map_or(0, |to| to.qpn.value()),
            },
        );
    }

    /// `qpn` is 0 for a shared receive queue.
    #[inline]
    pub(crate) fn receive_posted(&self, now: Instant, qpn: Qpn, wr: &RecvWr<'_>) {
        let length = wr.sges.iter().map(|sge| u64::from(sge.length)).sum();
        self.tap.receive_posted(now, qpn.value(), wr.wr_id, length);
    }

    #[inline]
    pub(crate) fn completed(&self, now: Instant, completion: &Completion) {
        self.tap.completed(now, completion);
    }

    #[inline]
    pub(crate) fn sent(&self, now: Instant, outgoing: &Outgoing<'_>) {
        let (own, peer) = (outgoing.qpn, outgoing.address.gid);
        let packet = packet(PacketFate::Sent, own, outgoing.headers, outgoing.payload.len(), peer);
        self.tap.packet(now, packet);
    }

    #[inline]
    pub(crate) fn arrived(&self, now: Instant, is_known: bool, from: Gid, headers: &Headers, length: usize) {
        let fate = if is_known { PacketFate::Received } else { PacketFate::NoQueuePair };
        let own = headers.bth.dest_qpn;
        self.tap.packet(now, packet(fate, own, headers, length as u32, from));
    }

    /// A packet whose headers cannot be trusted.
    #[cold]
    pub(crate) fn dropped(&self, now: Instant, fate: PacketFate, from: Gid, bytes: &[u8]) {
        self.tap.packet(now, raw_packet(fate, from, bytes));
    }

    #[cold]
    pub(crate) fn denied(&self, now: Instant, denial: &Denial, words: &str) {
        self.tap.text(now, About::Denial, denial.qpn.value(), words);
    }

    /// Takes a look at a queue pair, whose state may have changed.
    #[cold]
    pub(crate) fn look(&mut self, now: Instant, qpn: Qpn, qp: &QpSnapshot) {
        let from = self.states.insert(qpn.value(), qp.state).unwrap_or_default();
        if from == qp.state {
            return;
        }
        let event = Event::State {
            qpn: qpn.value(),
            service: qp.config.service,
            from,
            to: qp.state,
            peer_qpn: qp.remote_qpn.value(),
            peer: qp.address.gid,
            retry_count: qp.retry_count,
            rnr_retry: qp.rnr_retry,
            timeout: qp.timeout,
        };
        self.tap.keep(now, &event);
    }

    pub(crate) fn destroyed(&mut self, now: Instant, qpn: Qpn) {
        self.states.remove(&qpn.value());
        self.tap.keep(now, &Event::Destroyed { qpn: qpn.value() });
    }
}

/// A datagram of connection management, BTH and all, between queue pairs 1; `peer` is the other end.
#[cold]
pub(crate) fn keep_management(tap: &Tap, now: Instant, fate: PacketFate, peer: Gid, bytes: &[u8]) {
    let length = MAD_LEN as u32;
    tap.packet(now, Packet { qpn: Qpn::GSI.value(), length, ..raw_packet(fate, peer, bytes) });
}

#[inline]
fn packet(fate: PacketFate, own: Qpn, headers: &Headers, length: u32, peer: Gid) -> Packet {
    Packet {
        fate,
        qpn: own.value(),
        to_qpn: headers.bth.dest_qpn.value(),
        opcode: headers.bth.opcode.to_u8(),
        psn: headers.bth.psn.value(),
        length,
        syndrome: syndrome_of(&headers.ext),
        peer,
        management: None,
    }
}

#[inline]
fn syndrome_of(ext: &Ext) -> Option<Syndrome> {
    match ext {
        Ext::Aeth(aeth) | Ext::IrnAck(aeth) | Ext::AtomicAck(aeth, _) => Some(aeth.syndrome),
        _ => None,
    }
}

/// The number in three bytes of a packet, or 0 where it ends before.
fn number_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 3).map_or(0, |part| part.iter().fold(0, |number, byte| number << 8 | u32::from(*byte)))
}

/// A packet from its bytes, which may begin with no BTH.
fn raw_packet(fate: PacketFate, peer: Gid, bytes: &[u8]) -> Packet {
    let is_management = number_at(bytes, 5) == Qpn::GSI.value();
    Packet {
        fate,
        qpn: 0,
        to_qpn: number_at(bytes, 5),
        opcode: bytes.first().copied().unwrap_or(u8::MAX),
        psn: number_at(bytes, 9),
        length: bytes.len() as u32,
        syndrome: None,
        peer,
        management: bytes.get(Bth::LEN + Deth::LEN..).filter(|_| is_management).and_then(CmAttribute::of),
    }
}

#[inline]
fn parts_of(operation: &Operation) -> (CompletionOp, u64, u32) {
    match operation {
        Operation::Send | Operation::SendImm(_) => (CompletionOp::Send, 0, 0),
        Operation::SendInvalidate(key) => (CompletionOp::Send, 0, key.0),
        Operation::Write(to) | Operation::WriteImm(to, _) => (CompletionOp::Write, to.va, to.rkey.0),
        Operation::Read(from) => (CompletionOp::Read, from.va, from.rkey.0),
        Operation::CompareSwap { remote, .. } => (CompletionOp::CompareSwap, remote.va, remote.rkey.0),
        Operation::FetchAdd { remote, .. } => (CompletionOp::FetchAdd, remote.va, remote.rkey.0),
        Operation::LocalInvalidate(key) => (CompletionOp::LocalInvalidate, 0, key.0),
        Operation::BindWindow(_) => (CompletionOp::BindWindow, 0, 0),
    }
}

/// Keeps the verdicts of a rule.
pub(crate) struct Watched<R> {
    pub(crate) rule: R,
    pub(crate) tap: Option<Tap>,
}

impl<R: Rule> Rule for Watched<R> {
    fn judge(&mut self, packet: &Subject<'_>) -> Verdict {
        let verdict = self.rule.judge(packet);
        if let (Some(tap), Some(fate)) = (&self.tap, fate_of(verdict)) {
            tap.packet(packet.now, raw_packet(fate, Gid::from_ip(packet.path.peer.ip()), packet.bytes));
        }
        verdict
    }

    fn hears_all(&self) -> bool {
        self.rule.hears_all()
    }

    fn hears(&self, bytes: &[u8]) -> bool {
        self.rule.hears(bytes)
    }
}

fn fate_of(verdict: Verdict) -> Option<PacketFate> {
    Some(match verdict {
        Verdict::Pass => return None,
        Verdict::Drop => PacketFate::FaultLost,
        Verdict::Duplicate => PacketFate::FaultDoubled,
        Verdict::Delay(_) => PacketFate::FaultDelayed,
        Verdict::Reorder(_) => PacketFate::FaultOvertaken,
        Verdict::Corrupt { .. } => PacketFate::FaultDamaged,
    })
}
