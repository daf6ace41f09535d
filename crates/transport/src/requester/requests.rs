//! A request's two ends: the checks when it is posted, and the report when it is over.

use crate::connection::Connection;
use crate::context::Context;
use crate::send_queue::SendWqe;
use highwire_verbs::{
    Completion, CompletionFlags, CompletionOp, CompletionStatus, FRAME_BYTES_MIN, FRAME_OVERHEAD_BYTES,
    MESSAGE_LENGTH_MAX, Operation, PostError, QpState, SendWr, Service, Sge,
};
use highwire_wire::Qpn;

/// Refuses a request that a queue pair cannot carry out; nothing is queued then.
pub(crate) fn check_post(conn: &Connection, wr: &SendWr<'_>, queued: usize) -> Result<(), PostError> {
    let caps = &conn.config.caps;
    if matches!(conn.state, QpState::Reset | QpState::Init | QpState::Rtr) {
        return Err(PostError::WrongState);
    }
    if queued >= caps.max_send_wr as usize {
        return Err(PostError::QueueFull);
    }
    if !wr.flags.inline && wr.sges.len() > caps.max_send_sge as usize {
        return Err(PostError::TooManySges);
    }
    let length: u64 = wr.sges.iter().map(|s| u64::from(s.length)).sum();
    let can_be_queued = match conn.config.service {
        Service::Rc | Service::XrcInitiator | Service::Uc => true,
        Service::XrcTarget => false,
        Service::Ud => !wr.operation.is_local(),
        Service::Raw => wr.operation == Operation::Send,
    };
    if !can_be_queued {
        return Err(PostError::Unsupported);
    }
    if conn.config.service == Service::Raw {
        if length < u64::from(FRAME_BYTES_MIN) {
            return Err(PostError::TooShort);
        }
        if length > u64::from(conn.mtu.bytes() + FRAME_OVERHEAD_BYTES) {
            return Err(PostError::TooLong);
        }
    }
    if wr.flags.inline && length > u64::from(caps.max_inline) {
        return Err(PostError::TooLong);
    }
    // Inline data is the driver's own copy: something to send, never a place to write to.
    if wr.flags.inline && wr.operation.is_read_or_atomic() {
        return Err(PostError::Unsupported);
    }
    let has_right_destination = match conn.config.service {
        Service::Ud => wr.datagram.is_some() || !is_datagram(&wr.operation),
        Service::XrcInitiator => wr.datagram.is_some() != wr.operation.is_local(),
        _ => wr.datagram.is_none(),
    };
    if !has_right_destination {
        return Err(PostError::BadDestination);
    }
    Ok(())
}

/// Whether UD has packets for an operation.
const fn is_datagram(operation: &Operation) -> bool {
    matches!(operation, Operation::Send | Operation::SendImm(_))
}

/// The error of a request that the queue took: the request ends with it in its turn, as on hardware.
pub(crate) fn check_start(
    conn: &Connection,
    operation: &Operation,
    sges: &[Sge],
    length: u32,
) -> Result<(), CompletionStatus> {
    let (has_packets, longest) = match conn.config.service {
        Service::Uc => {
            let is_none_of_its_own =
                operation.is_read_or_atomic() || matches!(operation, Operation::SendInvalidate(_));
            (!is_none_of_its_own, MESSAGE_LENGTH_MAX)
        }
        Service::Ud => (is_datagram(operation), conn.mtu.bytes()),
        _ => (true, MESSAGE_LENGTH_MAX),
    };
    if !has_packets {
        return Err(CompletionStatus::LocalQpOperation);
    }
    // The result of an atomic is one word in one piece (IBTA §9.4.5); a remote address that is not aligned is for the
    // responder to refuse.
    if length > longest || operation.is_atomic() && (length != 8 || sges.len() != 1) {
        return Err(CompletionStatus::LocalLength);
    }
    Ok(())
}

/// Reports the end of a request, unless it is a success for which the application asked no completion.
#[inline]
pub(crate) fn complete(conn: &Connection, ctx: &mut Context<'_>, wqe: &SendWqe, status: CompletionStatus) {
    if status == CompletionStatus::Success && !wqe.flags.signaled && !conn.config.signal_all {
        return;
    }
    let mut completion = ended(conn, wqe.wr_id, &wqe.operation, status);
    completion.byte_len = wqe.length;
    ctx.completions.push_back((conn.config.send_cq, completion));
}

/// A completion of a send.
#[inline]
pub(crate) fn ended(
    conn: &Connection,
    wr_id: u64,
    operation: &Operation,
    status: CompletionStatus,
) -> Completion {
    Completion {
        wr_id,
        status,
        operation: completion_op(operation),
        byte_len: 0,
        immediate: 0,
        qpn: conn.qpn,
        source_qpn: Qpn::default(),
        flags: CompletionFlags::default(),
    }
}

/// The opcode in the completion of an operation.
fn completion_op(operation: &Operation) -> CompletionOp {
    match operation {
        Operation::Send | Operation::SendImm(_) | Operation::SendInvalidate(_) => CompletionOp::Send,
        Operation::Write(_) | Operation::WriteImm(..) => CompletionOp::Write,
        Operation::Read(_) => CompletionOp::Read,
        Operation::CompareSwap { .. } => CompletionOp::CompareSwap,
        Operation::FetchAdd { .. } => CompletionOp::FetchAdd,
        Operation::LocalInvalidate(_) => CompletionOp::LocalInvalidate,
        Operation::BindWindow(_) => CompletionOp::BindWindow,
    }
}
