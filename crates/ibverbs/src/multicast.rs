//! Multicast groups of UD queue pairs.

use crate::abi::*;
use crate::boundary::{c_api, code, input};
use crate::qp::Qp;
use crate::registry;

c_api! {
    fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
        let run = || {
            registry::find::<Qp>(qp)?;
            unsafe { input(gid.cast::<[u8; 16]>())? };
            Err(libc::EOPNOTSUPP)
        };
        code(run())
    }

    fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, _lid: u16) -> c_int {
        let run = || {
            registry::find::<Qp>(qp)?;
            unsafe { input(gid.cast::<[u8; 16]>())? };
            Err(libc::EOPNOTSUPP)
        };
        code(run())
    }
}
