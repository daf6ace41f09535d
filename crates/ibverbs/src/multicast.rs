//! Multicast groups of UD queue pairs.

use crate::abi::*;
use crate::boundary::{c_api, code, input};
use crate::qp::Qp;
use crate::registry;
use highwire_host::MulticastError;
use highwire_verbs::{Gid, Service};
use std::sync::Arc;

/// The queue pair and the group; only datagrams go to groups.
///
/// # Safety
/// `gid` is null or points to a GID.
unsafe fn arguments(qp: *mut ibv_qp, gid: *const ibv_gid) -> Result<(Arc<Qp>, Gid), c_int> {
    let qp = registry::find::<Qp>(qp)?;
    // SAFETY: the caller's promise.
    let group = Gid(unsafe { input(gid.cast::<[u8; 16]>())? });
    if qp.service == Service::Ud { Ok((qp, group)) } else { Err(libc::EINVAL) }
}

c_api! {
    fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
        let run = || {
            let (qp, group) = unsafe { arguments(qp, gid)? };
            qp.host()?.attach_multicast(group).map_err(|error| match error {
                MulticastError::Join(error) => error.raw_os_error().unwrap_or(libc::EINVAL),
                _ => libc::EINVAL,
            })
        };
        code(run())
    }

    fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
        let run = || {
            let (qp, group) = unsafe { arguments(qp, gid)? };
            if qp.host()?.detach_multicast(group) { Ok(()) } else { Err(libc::EINVAL) }
        };
        code(run())
    }
}
