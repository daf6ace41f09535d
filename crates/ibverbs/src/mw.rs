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
use std::sync::atomic::{AtomicU32, Ordering};

/// A memory window.
#[repr(C)]
pub(crate) struct Mw {
    c: UnsafeCell<ibv_mw>,
    _pd: Use<Pd>,
    window: MemoryWindow,
    /// The key since the last bind.
    current: AtomicU32,
}

// SAFETY: the pointers in `c` are to what never moves; its key changes only in calls that verbs' callers order.
unsafe impl Send for Mw {}
// SAFETY: as above.
unsafe impl Sync for Mw {}

impl Object for Mw {
    type C = ibv_mw;
    fn as_c(&self) -> *mut ibv_mw {
        self.c.get()
    }
}

impl Mw {
    /// The request that binds the window under `new_key`, which is its key from then on.
    ///
    /// # Errors
    /// EINVAL when the region is none, or the flags are not.
    pub(crate) fn bind(&self, new_key: u32, info: &ibv_mw_bind_info) -> Result<Operation, c_int> {
        let access = access_of(info.mw_access_flags)?;
        let region = match info.mr.is_null() {
            // A bind to nothing takes back what was there.
            true if info.length == 0 => highwire_verbs::LocalKey::default(),
            true => return Err(libc::EINVAL),
            false => registry::find::<Mr>(info.mr)?.lkey()?,
        };
        let window = RemoteKey(self.current.swap(new_key, Ordering::SeqCst));
        let new_key = RemoteKey(new_key);
        Ok(Operation::BindWindow(WindowBind {
            window,
            new_key,
            region,
            va: info.addr,
            length: info.length,
            access,
        }))
    }

    /// The bind was not posted after all.
    pub(crate) fn take_back(&self, operation: &Operation) {
        if let Operation::BindWindow(bind) = operation {
            self.current.store(bind.window.0, Ordering::SeqCst);
        }
    }
}

/// The next key of a window: another low byte (IBTA §10.6.7.2).
fn next_key(key: u32) -> u32 {
    key & !0xFF | key.wrapping_add(1) & 0xFF
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
            let current = AtomicU32::new(rkey);
            Ok(registry::publish(Arc::new(Mw { c: UnsafeCell::new(c), _pd: pd, window, current })))
        };
        answer(run())
    }

    /// Of windows of type 1; those of type 2 are bound by work requests.
    fn bind_mw(qp: *mut ibv_qp, mw: *mut ibv_mw, bind: *mut ibv_mw_bind) -> c_int {
        let run = || {
            let (qp, window) = (registry::find::<Qp>(qp)?, registry::find::<Mw>(mw)?);
            let bind = unsafe { input(bind)? };
            if unsafe { (*mw).type_ } != IBV_MW_TYPE_1 {
                return Err(libc::EINVAL);
            }
            let new_key = next_key(window.current.load(Ordering::SeqCst));
            let operation = window.bind(new_key, &bind.bind_info)?;
            let flags = SendFlags { inline: false, ..post::flags(bind.send_flags) };
            let wr = SendWr { flags, ..SendWr::new(bind.wr_id, operation, &[]) };
            let posted = qp.host()?.post_send(&[wr]).map_err(|error| errno::of_post(error.error));
            match posted {
                Ok(()) => unsafe { (*mw).rkey = new_key },
                Err(_) => window.take_back(&operation),
            }
            posted
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
