//! Between the verbs' types and the slots of the shared rings, which hold the same things as plain numbers.

use highwire_uapi as uapi;
use highwire_verbs::{
    Access, Address, Completion, CompletionFlags, CompletionOp, CompletionStatus, Datagram, Gid, LocalKey,
    Operation, Remote, RemoteKey, SendFlags, SendWr, Sge, TagFlags, WindowBind,
};
use highwire_wire::Qpn;

pub(crate) fn to_cqe(completion: &Completion) -> uapi::Cqe {
    let flags = completion.flags;
    let bit = |set: bool, flag: uapi::WcFlags| if set { flag } else { uapi::WcFlags(0) };
    uapi::Cqe {
        wr_id: completion.wr_id,
        status: uapi::CqeStatus::from_u8(completion.status as u8).unwrap_or(uapi::CqeStatus::General),
        opcode: uapi::CompletionOpcode::from_u8(completion.operation as u8).unwrap_or_default(),
        wc_flags: bit(flags.grh, uapi::WcFlags::GRH)
            | bit(flags.with_immediate, uapi::WcFlags::WITH_IMM)
            | bit(flags.with_invalidate, uapi::WcFlags::WITH_INVALIDATE)
            | uapi::WcFlags(u16::from(flags.tags.0)),
        byte_len: completion.byte_len,
        imm: completion.immediate,
        qpn: completion.qpn.value(),
        src_qpn: completion.source_qpn.value(),
        ..uapi::Cqe::default()
    }
}

/// The ring's contents can be anything once something has scribbled on it, so unknown numbers become an error of the
/// queue pair itself.
pub(crate) fn from_cqe(cqe: &uapi::Cqe) -> Completion {
    use uapi::CompletionOpcode as Op;
    use uapi::CqeStatus as Status;
    let status = match cqe.status {
        Status::Success => CompletionStatus::Success,
        Status::LocalLength => CompletionStatus::LocalLength,
        Status::LocalProtection => CompletionStatus::LocalProtection,
        Status::WorkRequestFlushed => CompletionStatus::Flushed,
        Status::WindowBind => CompletionStatus::WindowBind,
        Status::BadResponse => CompletionStatus::BadResponse,
        Status::LocalAccess => CompletionStatus::LocalAccess,
        Status::RemoteInvalidRequest => CompletionStatus::RemoteInvalidRequest,
        Status::RemoteAccess => CompletionStatus::RemoteAccess,
        Status::RemoteOperation => CompletionStatus::RemoteOperation,
        Status::RetryExceeded => CompletionStatus::RetryExceeded,
        Status::RnrRetryExceeded => CompletionStatus::RnrRetryExceeded,
        Status::Tag => CompletionStatus::Tag,
        _ => CompletionStatus::LocalQpOperation,
    };
    let operation = match cqe.opcode {
        Op::Send => CompletionOp::Send,
        Op::Write => CompletionOp::Write,
        Op::Read => CompletionOp::Read,
        Op::CompareSwap => CompletionOp::CompareSwap,
        Op::FetchAdd => CompletionOp::FetchAdd,
        Op::BindWindow => CompletionOp::BindWindow,
        Op::LocalInvalidate => CompletionOp::LocalInvalidate,
        Op::Receive => CompletionOp::Receive,
        Op::ReceiveWriteWithImm => CompletionOp::ReceiveWriteImm,
        Op::AddTag => CompletionOp::AddTag,
        Op::RemoveTag => CompletionOp::RemoveTag,
        Op::SyncTags => CompletionOp::SyncTags,
        Op::ReceiveTagged => CompletionOp::ReceiveTagged,
        Op::ReceiveNoTag => CompletionOp::ReceiveNoTag,
    };
    Completion {
        wr_id: cqe.wr_id,
        status,
        operation,
        byte_len: cqe.byte_len,
        immediate: cqe.imm,
        qpn: Qpn::new(cqe.qpn),
        source_qpn: Qpn::new(cqe.src_qpn),
        flags: CompletionFlags {
            grh: cqe.wc_flags.contains(uapi::WcFlags::GRH),
            with_immediate: cqe.wc_flags.contains(uapi::WcFlags::WITH_IMM),
            with_invalidate: cqe.wc_flags.contains(uapi::WcFlags::WITH_INVALIDATE),
            solicited: false,
            tags: TagFlags(cqe.wc_flags.0 as u8 & TagFlags::ALL.0),
        },
    }
}

pub(crate) fn to_sge(sge: &Sge) -> uapi::Sge {
    uapi::Sge { addr: sge.addr, length: sge.length, lkey: sge.lkey.0 }
}

pub(crate) fn from_sge(sge: &uapi::Sge) -> Sge {
    Sge { addr: sge.addr, length: sge.length, lkey: LocalKey(sge.lkey) }
}

/// The slot's control part. A window to bind needs its present key as well, which travels in the first SGE.
pub(crate) fn to_wqe(wr: &SendWr<'_>) -> uapi::SendWqe {
    use uapi::SendOpcode as Op;
    let remote = |r: Remote| uapi::Target::Remote { addr: r.va, rkey: r.rkey.0 };
    let atomic =
        |r: Remote, compare_add, swap| uapi::Target::Atomic { addr: r.va, rkey: r.rkey.0, compare_add, swap };
    let send_target = match wr.datagram {
        Some(to) => uapi::Target::Datagram(to_address_handle(&to)),
        None => uapi::Target::Connected,
    };
    let (opcode, imm, target) = match wr.operation {
        Operation::Send => (Op::Send, 0, send_target),
        Operation::SendImm(imm) => (Op::SendWithImm, imm, send_target),
        Operation::SendInvalidate(key) => (Op::SendWithInvalidate, key.0, send_target),
        Operation::Write(to) => (Op::Write, 0, remote(to)),
        Operation::WriteImm(to, imm) => (Op::WriteWithImm, imm, remote(to)),
        Operation::Read(from) => (Op::Read, 0, remote(from)),
        Operation::CompareSwap { remote, compare, swap } => {
            (Op::CompareSwap, 0, atomic(remote, compare, swap))
        }
        Operation::FetchAdd { remote, add } => (Op::FetchAdd, 0, atomic(remote, add, 0)),
        Operation::LocalInvalidate(key) => (Op::LocalInvalidate, key.0, uapi::Target::Connected),
        Operation::BindWindow(bind) => (
            Op::BindWindow,
            0,
            uapi::Target::Bind(uapi::BindWindow {
                addr: bind.va,
                length: bind.length,
                rkey: bind.new_key.0,
                lkey: bind.region.0,
                access: bind.access.bits(),
            }),
        ),
    };
    let bit = |set: bool, flag: uapi::SendFlags| if set { flag } else { uapi::SendFlags(0) };
    let flags = bit(wr.flags.signaled, uapi::SendFlags::SIGNALED)
        | bit(wr.flags.solicited, uapi::SendFlags::SOLICITED)
        | bit(wr.flags.fence, uapi::SendFlags::FENCE);
    let srqn = wr.datagram.map_or(0, |to| to.qpn.value());
    uapi::SendWqe { wr_id: wr.wr_id, opcode, flags, imm, target, srqn }
}

/// The request that a slot stands for; `sges` are those of the slot, or the one of the copied inline data.
pub(crate) fn from_wqe<'a>(wqe: &uapi::SendWqe, sges: &'a [Sge]) -> Option<SendWr<'a>> {
    use uapi::{SendOpcode as Op, Target};
    let operation = match (wqe.opcode, wqe.target) {
        (Op::Send, _) => Operation::Send,
        (Op::SendWithImm, _) => Operation::SendImm(wqe.imm),
        (Op::SendWithInvalidate, _) => Operation::SendInvalidate(RemoteKey(wqe.imm)),
        (Op::Write, Target::Remote { addr, rkey }) => Operation::Write(remote(addr, rkey)),
        (Op::WriteWithImm, Target::Remote { addr, rkey }) => Operation::WriteImm(remote(addr, rkey), wqe.imm),
        (Op::Read, Target::Remote { addr, rkey }) => Operation::Read(remote(addr, rkey)),
        (Op::CompareSwap, Target::Atomic { addr, rkey, compare_add, swap }) => {
            Operation::CompareSwap { remote: remote(addr, rkey), compare: compare_add, swap }
        }
        (Op::FetchAdd, Target::Atomic { addr, rkey, compare_add, .. }) => {
            Operation::FetchAdd { remote: remote(addr, rkey), add: compare_add }
        }
        (Op::LocalInvalidate, _) => Operation::LocalInvalidate(RemoteKey(wqe.imm)),
        (Op::BindWindow, Target::Bind(bind)) => Operation::BindWindow(WindowBind {
            // The key's upper 24 bits name the window; a bind changes the low eight (IBTA §10.6.7.2).
            window: RemoteKey(sges.first().map_or(bind.rkey, |sge| sge.lkey.0)),
            new_key: RemoteKey(bind.rkey),
            region: LocalKey(bind.lkey),
            va: bind.addr,
            length: bind.length,
            access: Access::from_bits_truncate(bind.access),
        }),
        _ => return None,
    };
    let datagram = match wqe.target {
        Target::Datagram(to) => Some(from_address_handle(&to)),
        Target::Remote { .. } | Target::Atomic { .. } if wqe.srqn != 0 => {
            Some(Datagram::to_shared_queue(Qpn::new(wqe.srqn)))
        }
        _ => None,
    };
    let flags = SendFlags {
        signaled: wqe.flags.contains(uapi::SendFlags::SIGNALED),
        solicited: wqe.flags.contains(uapi::SendFlags::SOLICITED),
        fence: wqe.flags.contains(uapi::SendFlags::FENCE),
        inline: wqe.flags.contains(uapi::SendFlags::INLINE),
    };
    let sges = if matches!(operation, Operation::BindWindow(_)) { &[] } else { sges };
    Some(SendWr { wr_id: wqe.wr_id, operation, flags, sges, datagram })
}

fn remote(va: u64, rkey: u32) -> Remote {
    Remote { va, rkey: RemoteKey(rkey) }
}

fn to_address_handle(to: &Datagram) -> uapi::AddressHandle {
    uapi::AddressHandle {
        gid: to.address.gid.0,
        qpn: to.qpn.value(),
        qkey: to.qkey,
        flow_label: to.address.flow_label,
        traffic_class: to.address.traffic_class,
        hop_limit: to.address.hop_limit,
        ..uapi::AddressHandle::default()
    }
}

fn from_address_handle(to: &uapi::AddressHandle) -> Datagram {
    Datagram {
        address: Address {
            gid: Gid(to.gid),
            hop_limit: to.hop_limit,
            traffic_class: to.traffic_class,
            flow_label: to.flow_label,
        },
        qpn: Qpn::new(to.qpn),
        qkey: to.qkey,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_survives_the_slot() {
        let to = remote(0x1234_5678_9ABC, 77);
        let address = Address { gid: Gid([7; 16]), hop_limit: 9, traffic_class: 2, flow_label: 5 };
        let datagram = Some(Datagram { address, qpn: Qpn::new(3), qkey: 4 });
        let bind = WindowBind {
            window: RemoteKey(0x1_01),
            new_key: RemoteKey(0x1_02),
            region: LocalKey(9),
            va: 10,
            length: 11,
            access: Access::REMOTE_READ,
        };
        let check = |operation, datagram| {
            let flags = SendFlags { signaled: true, solicited: false, fence: true, inline: false };
            let wr = SendWr { wr_id: 5, operation, flags, sges: &[], datagram };
            let wqe = to_wqe(&wr);
            let key = [Sge { lkey: LocalKey(bind.window.0), ..Sge::default() }];
            let back = from_wqe(&wqe, &key).expect("a request");
            assert_eq!((back.wr_id, back.operation, back.flags), (5, operation, flags));
            assert_eq!(back.datagram, datagram);
        };
        check(Operation::Send, None);
        check(Operation::Send, datagram);
        check(Operation::SendImm(6), datagram);
        check(Operation::SendInvalidate(RemoteKey(8)), None);
        check(Operation::Write(to), None);
        let queue = Some(Datagram::to_shared_queue(Qpn::new(12)));
        check(Operation::Send, queue);
        check(Operation::WriteImm(to, 6), queue);
        check(Operation::FetchAdd { remote: to, add: 1 }, queue);
        check(Operation::WriteImm(to, 6), None);
        check(Operation::Read(to), None);
        check(Operation::CompareSwap { remote: to, compare: 1, swap: 2 }, None);
        check(Operation::FetchAdd { remote: to, add: u64::MAX }, None);
        check(Operation::LocalInvalidate(RemoteKey(8)), None);
        check(Operation::BindWindow(bind), None);
    }

    #[test]
    fn every_completion_survives_the_slot() {
        use CompletionStatus::*;
        let statuses = [
            Success,
            LocalLength,
            LocalQpOperation,
            LocalProtection,
            Flushed,
            WindowBind,
            BadResponse,
            LocalAccess,
            RemoteInvalidRequest,
            RemoteAccess,
            RemoteOperation,
            RetryExceeded,
            RnrRetryExceeded,
        ];
        for status in statuses {
            let completion = Completion {
                wr_id: 1,
                status,
                operation: CompletionOp::ReceiveWriteImm,
                byte_len: 2,
                immediate: 3,
                qpn: Qpn::new(4),
                source_qpn: Qpn::new(5),
                flags: CompletionFlags { with_immediate: true, ..CompletionFlags::default() },
            };
            assert_eq!(from_cqe(&to_cqe(&completion)), completion);
        }
    }
}
