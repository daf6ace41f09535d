//! Which errno each refusal of the layers below becomes. With `HIGHWIRE_LOG`, stderr has its reason.

use crate::env;
use highwire_host::{CreateError, MemoryError, OpenError};
use highwire_verbs::{ModifyError, PostError, RegisterError};
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
    env::log(|| format!("not made: {error}"));
    match error {
        CreateError::TooManyQueues | CreateError::Memory(_) => libc::ENOMEM,
        _ => libc::EINVAL,
    }
}

pub(crate) fn of_register(error: &RegisterError) -> c_int {
    env::log(|| format!("not registered: {error}"));
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
    env::log(|| format!("not changed: {error}"));
    libc::EINVAL
}

/// `ibv_post_send(3)`: ENOMEM when the queue is full, EINVAL for a request that is wrong. Beyond that page: EPERM in a child of
/// `fork`, whose parent the queue belongs to; EAGAIN in a signal handler that has interrupted a post.
#[inline]
pub(crate) fn of_post(error: PostError) -> c_int {
    match error {
        PostError::QueueFull => libc::ENOMEM,
        PostError::Inherited => libc::EPERM,
        PostError::Reentered => libc::EAGAIN,
        _ => libc::EINVAL,
    }
}
