//! Builds the request packets.

use super::common::Common;
use crate::connection::Connection;
use crate::plan::{Order, Plan, Source};
use crate::send_queue::SendWqe;
use highwire_verbs::{Datagram, Operation, Remote, SEGMENT_QKEY, Service};
use highwire_wire::{AtomicEth, Deth, Ext, IrnEth, IrnFlags, Opcode, Position, Psn, Qpn, Reth};

impl Common {
    /// Packet `packet` of the request at `index`, under PSN `psn`, as standard RoCEv2 has it.
    #[inline]
    pub(super) fn standard_packet(
        &self,
        conn: &Connection,
        index: usize,
        packet: u32,
        psn: Psn,
        plan: &mut Plan,
    ) {
        let wqe = &self.queue.wqes[index];
        let position = position(packet, wqe.packets);
        let (opcode, ext) = match conn.config.service {
            Service::Rc | Service::XrcInitiator | Service::XrcTarget => {
                rc_headers(wqe, position, conn.mtu.bytes())
            }
            Service::Uc => uc_headers(wqe, position),
            Service::Ud => ud_headers(conn, &wqe.operation, wqe.datagram.as_ref()),
            Service::Raw => raw_headers(conn),
        };
        let dest_qpn = match wqe.datagram {
            Some(to) if conn.config.service == Service::Ud => to.qpn,
            _ if conn.config.service == Service::Raw => Qpn::MULTICAST,
            _ => conn.remote_qpn,
        };
        plan.bare(opcode, dest_qpn, psn, ext, Order::Strict);
        if conn.config.service == Service::XrcInitiator {
            let srqn = wqe.datagram.map_or_else(Qpn::default, |to| to.qpn);
            plan.headers = plan.headers.to_xrc(srqn);
        }
        self.finish(conn, index, packet, plan);
    }

    /// The same as IRN has it: every packet can be placed without the others (IRN §5.3).
    #[inline]
    pub(super) fn irn_packet(
        &self,
        conn: &Connection,
        index: usize,
        packet: u32,
        psn: Psn,
        again: bool,
        plan: &mut Plan,
    ) {
        let wqe = &self.queue.wqes[index];
        let is_last = packet + 1 == wqe.packets;
        let mut flags = if is_last { IrnFlags::LAST } else { IrnFlags::NONE };
        if again {
            flags = flags.with(IrnFlags::RETRANSMITTED);
        }
        let irn = IrnEth::new(wqe.wqe_sn, packet, flags);
        irn_headers(wqe, irn, is_last, |opcode, ext| {
            plan.bare(opcode, conn.remote_qpn, psn, ext, Order::Strict);
        });
        self.finish(conn, index, packet, plan);
    }

    #[inline]
    fn finish(&self, conn: &Connection, index: usize, packet: u32, plan: &mut Plan) {
        let wqe = &self.queue.wqes[index];
        let is_last = packet + 1 == wqe.packets;
        // Only the end of something that completes a receive can ask for an event (IBTA §9.2.3).
        plan.headers.bth.solicited = wqe.flags.solicited && is_last && wqe.operation.consumes_receive();
        if wqe.operation.is_read_or_atomic() {
            return;
        }
        let whole = if conn.config.service == Service::Raw { wqe.length } else { conn.mtu.bytes() };
        let offset = packet * whole;
        let length = (wqe.length - offset).min(whole);
        plan.carry(Source::Request(index as u32), offset, length);
    }
}

/// Which packet of a message of `packets` packets this one is.
#[inline]
pub(crate) fn position(packet: u32, packets: u32) -> Position {
    match (packet, packet + 1 == packets) {
        (0, true) => Position::Only,
        (0, false) => Position::First,
        (_, true) => Position::Last,
        (_, false) => Position::Middle,
    }
}

fn reth(remote: Remote, length: u32) -> Reth {
    Reth { va: remote.va, rkey: remote.rkey.0, length }
}

fn atomic(remote: Remote, swap_or_add: u64, compare: u64) -> AtomicEth {
    AtomicEth { va: remote.va, rkey: remote.rkey.0, swap_or_add, compare }
}

fn rc_headers(wqe: &SendWqe, position: Position, mtu: u32) -> (Opcode, Ext) {
    use Opcode::*;
    use Position::{First, Last, Middle, Only};
    match (wqe.operation, position) {
        (Operation::Send | Operation::SendImm(_) | Operation::SendInvalidate(_), First) => {
            (RcSendFirst, Ext::None)
        }
        (Operation::Send | Operation::SendImm(_) | Operation::SendInvalidate(_), Middle) => {
            (RcSendMiddle, Ext::None)
        }
        (Operation::Send, Last) => (RcSendLast, Ext::None),
        (Operation::Send, _) => (RcSendOnly, Ext::None),
        (Operation::SendImm(imm), Last) => (RcSendLastImm, Ext::Imm(imm)),
        (Operation::SendImm(imm), _) => (RcSendOnlyImm, Ext::Imm(imm)),
        (Operation::SendInvalidate(key), Last) => (RcSendLastInvalidate, Ext::Invalidate(key.0)),
        (Operation::SendInvalidate(key), _) => (RcSendOnlyInvalidate, Ext::Invalidate(key.0)),
        (Operation::Write(remote) | Operation::WriteImm(remote, _), First) => {
            (RcWriteFirst, Ext::Reth(reth(remote, wqe.length)))
        }
        (Operation::Write(_) | Operation::WriteImm(..), Middle) => (RcWriteMiddle, Ext::None),
        (Operation::Write(_), Last) => (RcWriteLast, Ext::None),
        (Operation::Write(remote), Only | Position::Any) => {
            (RcWriteOnly, Ext::Reth(reth(remote, wqe.length)))
        }
        (Operation::WriteImm(_, imm), Last) => (RcWriteLastImm, Ext::Imm(imm)),
        (Operation::WriteImm(remote, imm), Only | Position::Any) => {
            (RcWriteOnlyImm, Ext::RethImm(reth(remote, wqe.length), imm))
        }
        (Operation::Read(remote), _) => {
            // The requester does not ask again for data that has already arrived.
            let done = (wqe.received * mtu).min(wqe.length);
            let rest = Remote { va: remote.va.wrapping_add(u64::from(done)), ..remote };
            (RcRead, Ext::Reth(reth(rest, wqe.length - done)))
        }
        (Operation::CompareSwap { remote, compare, swap }, _) => {
            (RcCompareSwap, Ext::Atomic(atomic(remote, swap, compare)))
        }
        (Operation::FetchAdd { remote, add }, _) => (RcFetchAdd, Ext::Atomic(atomic(remote, add, 0))),
        (Operation::LocalInvalidate(_) | Operation::BindWindow(_), _) => {
            unreachable!("local operations have no packets")
        }
    }
}

fn uc_headers(wqe: &SendWqe, position: Position) -> (Opcode, Ext) {
    use Opcode::*;
    use Position::{First, Last, Middle};
    let (opcode, ext) = rc_headers(wqe, position, 0);
    let opcode = match (opcode, position) {
        (RcSendFirst, _) => UcSendFirst,
        (RcSendMiddle, _) => UcSendMiddle,
        (RcSendLast, _) => UcSendLast,
        (RcSendLastImm, _) => UcSendLastImm,
        (RcSendOnly, _) => UcSendOnly,
        (RcSendOnlyImm, _) => UcSendOnlyImm,
        (RcWriteFirst, _) => UcWriteFirst,
        (RcWriteMiddle, _) => UcWriteMiddle,
        (RcWriteLast, _) => UcWriteLast,
        (RcWriteLastImm, _) => UcWriteLastImm,
        (RcWriteOnly, _) => UcWriteOnly,
        (RcWriteOnlyImm, _) => UcWriteOnlyImm,
        // UC has no opcode that invalidates: the message goes, the key stays.
        (_, First) => UcSendFirst,
        (_, Middle) => UcSendMiddle,
        (_, Last) => UcSendLast,
        (_, _) => UcSendOnly,
    };
    (opcode, if opcode.info().layout == ext.layout() { ext } else { Ext::None })
}

#[inline]
pub(super) fn ud_headers(conn: &Connection, operation: &Operation, to: Option<&Datagram>) -> (Opcode, Ext) {
    // With the high bit set, the QP's own Q_Key is sent: it is privileged (IBTA §10.2.5).
    let qkey = to.map_or(0, |to| if to.qkey >> 31 == 1 { conn.qkey } else { to.qkey });
    let deth = Deth { qkey, source_qpn: conn.qpn };
    match operation {
        Operation::SendImm(imm) => (Opcode::UdSendOnlyImm, Ext::DethImm(deth, *imm)),
        _ => (Opcode::UdSendOnly, Ext::Deth(deth)),
    }
}

/// A frame travels as a datagram to everybody on the segment.
fn raw_headers(conn: &Connection) -> (Opcode, Ext) {
    (Opcode::UdSendOnly, Ext::Deth(Deth { qkey: SEGMENT_QKEY, source_qpn: conn.qpn }))
}

/// Hands `plan` the opcode and the extension headers, from within each case, so that they are made where they stay.
#[inline(always)]
fn irn_headers(wqe: &SendWqe, irn: IrnEth, is_last: bool, mut plan: impl FnMut(Opcode, Ext)) {
    use Opcode::*;
    match wqe.operation {
        Operation::SendImm(imm) if is_last => plan(IrnSendImm, Ext::IrnSendImm(irn, imm)),
        Operation::SendInvalidate(key) if is_last => {
            plan(IrnSendInvalidate, Ext::IrnSendInvalidate(irn, key.0));
        }
        Operation::Send | Operation::SendImm(_) | Operation::SendInvalidate(_) => {
            plan(IrnSend, Ext::IrnSend(irn));
        }
        Operation::WriteImm(remote, imm) if is_last => {
            plan(IrnWriteImm, Ext::IrnWriteImm(irn, reth(remote, wqe.length), imm));
        }
        Operation::Write(remote) | Operation::WriteImm(remote, _) => {
            plan(IrnWrite, Ext::IrnWrite(irn, reth(remote, wqe.length)));
        }
        Operation::Read(remote) => plan(IrnRead, Ext::IrnRead(irn, reth(remote, wqe.length))),
        Operation::CompareSwap { remote, compare, swap } => {
            plan(IrnCompareSwap, Ext::IrnAtomic(irn, atomic(remote, swap, compare)));
        }
        Operation::FetchAdd { remote, add } => {
            plan(IrnFetchAdd, Ext::IrnAtomic(irn, atomic(remote, add, 0)));
        }
        Operation::LocalInvalidate(_) | Operation::BindWindow(_) => {
            unreachable!("local operations have no packets")
        }
    }
}
