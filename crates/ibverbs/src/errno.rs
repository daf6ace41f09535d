//! Which errno each refusal of the layers below becomes. With `HIGHWIRE_LOG=1` stderr has its reason.

use crate::qp::Qp;
use crate::refusal::{because, of_data_path};
use highwire_host::{CreateError, MemoryError, OpenError};
use highwire_verbs::{ModifyError, PostError, QpState, RegisterError};
use libc::c_int;
use std::error::Error;
use std::io;

pub(crate) fn of_open(error: &OpenError) -> c_int {
    match error {
        OpenError::BadAddress(_) | OpenError::BadLanes(_) | OpenError::Faults(_) => libc::EINVAL,
        OpenError::AddressInUse(_) | OpenError::Udp(_) => libc::EADDRINUSE,
        OpenError::Capture(..) | OpenError::Registry(_) | OpenError::Claim(_) | OpenError::System(..) => {
            of_system(error).unwrap_or(libc::EIO)
        }
        _ => libc::ENODEV,
    }
}

/// The system's errno, if a system error is the cause.
fn of_system(error: &(dyn Error + 'static)) -> Option<c_int> {
    match error.downcast_ref::<io::Error>() {
        Some(error) => error.raw_os_error(),
        None => of_system(error.source()?),
    }
}

pub(crate) fn of_create(error: &CreateError) -> c_int {
    because(|| {
        let sizes = "ibv_query_device(3) and the attributes that the call has changed tell the sizes";
        format!("{error}; {sizes}")
    });
    match error {
        CreateError::TooManyQueues | CreateError::Memory(_) => libc::ENOMEM,
        _ => libc::EINVAL,
    }
}

pub(crate) fn of_register(error: &RegisterError) -> c_int {
    because(|| error.to_string());
    match error {
        RegisterError::InUse => libc::EBUSY,
        _ => libc::EINVAL,
    }
}

pub(crate) fn of_memory(error: &MemoryError) -> c_int {
    match error {
        MemoryError::Register(error) => of_register(error),
        _ => libc::ENOMEM,
    }
}

pub(crate) fn of_modify(error: &ModifyError) -> c_int {
    because(|| explain_modify(error));
    libc::EINVAL
}

/// Why a queue pair or a shared receive queue was not changed, in C's names and with what to change.
fn explain_modify(error: &ModifyError) -> String {
    let in_c = |name: &'static str| match name {
        "access" => "qp_access_flags (IBV_QP_ACCESS_FLAGS)",
        "address" => "ah_attr (IBV_QP_AV)",
        "remote_qpn" => "dest_qp_num (IBV_QP_DEST_QPN)",
        "path_mtu" => "path_mtu (IBV_QP_PATH_MTU)",
        "rq_psn" => "rq_psn (IBV_QP_RQ_PSN)",
        "sq_psn" => "sq_psn (IBV_QP_SQ_PSN)",
        "max_rd_atomic" => "max_rd_atomic (IBV_QP_MAX_QP_RD_ATOMIC)",
        "max_dest_rd_atomic" => "max_dest_rd_atomic (IBV_QP_MAX_DEST_RD_ATOMIC)",
        "min_rnr_timer" => "min_rnr_timer (IBV_QP_MIN_RNR_TIMER)",
        "timeout" => "timeout (IBV_QP_TIMEOUT)",
        "retry_count" => "retry_cnt (IBV_QP_RETRY_CNT)",
        "rnr_retry" => "rnr_retry (IBV_QP_RNR_RETRY)",
        "qkey" => "qkey (IBV_QP_QKEY)",
        "port" => "port_num (IBV_QP_PORT)",
        "pkey_index" => "pkey_index (IBV_QP_PKEY_INDEX)",
        other => other,
    };
    match error {
        ModifyError::Missing(name) => {
            format!("this change of state needs {}: set its bit in attr_mask and the field", in_c(name))
        }
        ModifyError::NotApplicable(name) => format!(
            "{} does not belong to this service or to this change of state: clear its bit in attr_mask",
            in_c(name)
        ),
        ModifyError::OutOfRange(name) => format!("{} is out of its range", in_c(name)),
        ModifyError::WrongState { .. } => {
            format!("{error}: the order is RESET, INIT, RTR, RTS; any state goes to RESET and ERR")
        }
        ModifyError::NoSuchQp => error.to_string(),
    }
}

/// `ibv_post_send(3)`: ENOMEM when the queue is full, EINVAL for a request that is wrong. Beyond that page: EPERM in a child of
/// `fork`, whose parent the queue belongs to; EAGAIN in a signal handler that has interrupted a post.
#[inline]
pub(crate) fn of_post(call: &'static str, qp: Option<&Qp>, error: PostError) -> c_int {
    let errno = match error {
        PostError::QueueFull => libc::ENOMEM,
        PostError::Inherited => libc::EPERM,
        PostError::Reentered => libc::EAGAIN,
        _ => libc::EINVAL,
    };
    of_data_path(call, errno, || explain_post(qp, error))
}

/// Why a request was not taken, with the limits of its queue pair.
fn explain_post(qp: Option<&Qp>, error: PostError) -> String {
    let Some(qp) = qp else { return format!("{error} (shared receive queue)") };
    let caps = qp.caps();
    let state = qp.host().map_or(QpState::Reset, highwire_host::QueuePair::state);
    let why = match error {
        PostError::WrongState => format!(
            "it is in {state}; sends need RTS (ibv_modify_qp to INIT, RTR and RTS comes first), receives need INIT or later"
        ),
        PostError::QueueFull => format!(
            "max_send_wr is {}, max_recv_wr is {}, and so many requests wait: poll the completion queue. A request without \
             IBV_SEND_SIGNALED keeps its place until a later signaled one has completed and was polled",
            caps.max_send_wr, caps.max_recv_wr
        ),
        PostError::TooManySges => {
            format!(
                "num_sge is above max_send_sge ({}) or max_recv_sge ({})",
                caps.max_send_sge, caps.max_recv_sge
            )
        }
        PostError::TooLong => format!(
            "the data is longer than max_inline_data ({}) for IBV_SEND_INLINE, than a packet of the path for UD, or than 2^31 bytes",
            caps.max_inline_data
        ),
        PostError::BadDestination => "wr.ud.ah is null or no address handle of ibv_create_ah".to_string(),
        PostError::BadAtomic => "an atomic has one SGE of 8 bytes, and an aligned remote_addr".to_string(),
        other => other.to_string(),
    };
    format!("queue pair {:#x} ({}): {why}", qp.number(), qp.service)
}
