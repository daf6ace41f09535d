//! Memory windows.

use crate::abi::*;
use crate::boundary::{answer, c_ops, code, input};
use crate::mr::{Mr, access_of};
use crate::pd::Pd;
use crate::qp::Qp;
use crate::registry::{self, Object, Use};
use crate::{errno, post};
use highwire_host::MemoryWindow;
use highwire_verbs::{Operation, RemoteKey, SendFlags, SendWr, WindowBind, WindowKind};
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A memory window.
#[repr(C)]
pub(crate) struct Mw {
    c: UnsafeCell<ibv_mw>,
    _pd: Use<Pd>,
    _window: MemoryWindow,
}

// SAFETY: the pointers in `c` are to objects that never move; its key changes only in calls that verbs'
// callers order.
unsafe impl Send for Mw {}
// SAFETY: as above.
unsafe impl Sync for Mw {}

impl Object for Mw {
    type C = ibv_mw;
    const LIMIT: usize = crate::limits::MANY as usize;
    fn as_c(&self) -> *mut ibv_mw {
        self.c.get()
    }
    fn handle(&self) -> u32 {
        // SAFETY: C's structure, which lives as long as the object.
        unsafe { (*self.c.get()).handle }
    }
}

impl Mw {
    /// The request that binds the window. Of `wanted` only the low byte counts, as for the libraries of cards: the rest of the
    /// new key is the window's own, and its owner's to choose is the low byte (IBTA §10.6.7.2).
    ///
    /// # Errors
    /// EINVAL when the region is none, or the flags are not.
    pub(crate) fn bind(&self, wanted: u32, info: &ibv_mw_bind_info) -> Result<Operation, c_int> {
        let access = access_of(info.mw_access_flags)?;
        let region = match info.mr.is_null() {
            // A bind of zero bytes ends the present one.
            true if info.length == 0 => highwire_verbs::LocalKey::default(),
            true => return Err(libc::EINVAL),
            false => registry::find::<Mr>(info.mr)?.lkey()?,
        };
        let key = self.key();
        let (window, new_key) = (RemoteKey(key), RemoteKey(key & !0xFF | wanted & 0xFF));
        Ok(Operation::BindWindow(WindowBind {
            window,
            new_key,
            region,
            va: info.addr,
            length: info.length,
            access,
        }))
    }

    /// The bind was posted: the program finds the key in the window from now on. It is the program that puts the old one back if
    /// the bind fails later, and it may read and write the key whenever no bind is being posted.
    pub(crate) fn posted(&self, operation: &Operation) {
        if let Operation::BindWindow(bind) = operation {
            // SAFETY: verbs' callers order binds of one window.
            unsafe { (*self.c.get()).rkey = bind.new_key.0 };
        }
    }

    /// The bind was not posted after all.
    pub(crate) fn take_back(&self, operation: &Operation) {
        if let Operation::BindWindow(bind) = operation {
            // SAFETY: as above.
            unsafe { (*self.c.get()).rkey = bind.window.0 };
        }
    }

    fn key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { (*self.c.get()).rkey }
    }
}

c_ops! {
    fn alloc_mw(pd: *mut ibv_pd, kind: ibv_mw_type) -> *mut ibv_mw {
        let run = || {
            let pd = Use::<Pd>::find(pd)?;
            let window = match kind {
                IBV_MW_TYPE_1 => pd.host.memory_window_of(WindowKind::One),
                IBV_MW_TYPE_2 => pd.host.memory_window_of(WindowKind::Two),
                _ => return Err(libc::EINVAL),
            };
            let rkey = window.rkey().0;
            let c = ibv_mw { context: pd.context.as_c(), pd: pd.as_c(), rkey, handle: rkey >> 8, type_: kind };
            registry::publish(Arc::new(Mw { c: UnsafeCell::new(c), _pd: pd, _window: window }))
        };
        answer(run())
    }

    /// Binds a window of type 1; windows of type 2 are bound by work requests.
    fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
        let run = || {
            let (qp, window) = (registry::find::<Qp>(qp)?, registry::find::<Mw>(mw)?);
            let bind = unsafe { input(bind)? };
            if unsafe { (*mw).type_ } != IBV_MW_TYPE_1 {
                return Err(libc::EINVAL);
            }
            // Another low byte every time, so that the old key is no longer valid (IBTA §10.6.7.2).
            let operation = window.bind(window.key().wrapping_add(1), &bind.bind_info)?;
            let flags = SendFlags { inline: false, ..post::flags(bind.send_flags) };
            let wr = SendWr { flags, ..SendWr::new(bind.wr_id, operation, &[]) };
            let posted = qp.host()?.post_send(&[wr]).map_err(|error| errno::of_post("ibv_bind_mw", Some(&qp), error.error));
            posted.inspect(|()| window.posted(&operation))
        };
        code(run())
    }

    fn dealloc_mw(mw: *mut ibv_mw) -> c_int {
        let run = || {
            registry::find::<Mw>(mw)?;
            registry::withdraw::<Mw>(mw);
            Ok(())
        };
        code(run())
    }
}
