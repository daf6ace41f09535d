//! Protection domains, parent domains, thread domains.

use crate::abi::*;
use crate::boundary::{answer, c_api, c_ops, code, input};
use crate::context::Context;
use crate::registry::{self, Object, Use, Used, Users};
use highwire_host::ProtectionDomain;
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A protection domain, or a parent domain around one.
#[repr(C)]
pub(crate) struct Pd {
    c: UnsafeCell<ibv_pd>,
    pub(crate) context: Use<Context>,
    pub(crate) host: ProtectionDomain,
    users: Users,
    /// The domain inside of a parent domain, and its thread domain.
    _inside: Option<(Use<Pd>, Option<Use<Td>>)>,
}

// SAFETY: the pointers in `c` are to objects that never move, and this side only reads them.
unsafe impl Send for Pd {}
// SAFETY: as above.
unsafe impl Sync for Pd {}

impl Object for Pd {
    type C = ibv_pd;
    const LIMIT: usize = crate::limits::MANY as usize;
    fn as_c(&self) -> *mut ibv_pd {
        self.c.get()
    }
    fn handle(&self) -> u32 {
        // SAFETY: C's structure, which lives as long as the object.
        unsafe { (*self.c.get()).handle }
    }
}

impl Used for Pd {
    fn users(&self) -> &Users {
        &self.users
    }
}

impl Pd {
    fn new(
        context: Use<Context>,
        host: ProtectionDomain,
        inside: Option<(Use<Pd>, Option<Use<Td>>)>,
    ) -> Arc<Pd> {
        let c = UnsafeCell::new(ibv_pd { context: context.as_c(), handle: host.id().0 });
        Arc::new(Pd { c, context, host, users: Users::default(), _inside: inside })
    }

    /// # Errors
    /// EINVAL when `pointer` is another context's, or no protection domain at all.
    pub(crate) fn of_context(pointer: *const ibv_pd, context: &Arc<Context>) -> Result<Use<Pd>, c_int> {
        let pd = Use::<Pd>::find(pointer)?;
        if Arc::ptr_eq(&pd.context, context) { Ok(pd) } else { Err(libc::EINVAL) }
    }
}

/// A thread domain: the program's promise that one thread at a time uses its objects. Nothing here needs that.
#[repr(C)]
pub(crate) struct Td {
    c: UnsafeCell<ibv_td>,
    _context: Use<Context>,
    users: Users,
}

// SAFETY: as for `Pd`.
unsafe impl Send for Td {}
// SAFETY: as for `Pd`.
unsafe impl Sync for Td {}

impl Object for Td {
    type C = ibv_td;
    fn as_c(&self) -> *mut ibv_td {
        self.c.get()
    }
}

impl Used for Td {
    fn users(&self) -> &Users {
        &self.users
    }
}

c_api! {
    fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd {
        let run = || {
            let context = Use::<Context>::find(context)?;
            let host = context.device.protection_domain();
            registry::publish(Pd::new(context, host, None))
        };
        answer(run())
    }

    fn ibv_dealloc_pd(pd: *mut ibv_pd) -> c_int {
        let run = || {
            registry::find::<Pd>(pd)?.users.none()?;
            registry::withdraw::<Pd>(pd);
            Ok(())
        };
        code(run())
    }

    /// Imports a domain of this process: the same one, under another pointer.
    fn ibv_import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
        let run = || {
            let context = Use::<Context>::find(context)?;
            let pd = registry::first::<Pd>(|pd| pd.host.id().0 == handle).ok_or(libc::ENOENT)?;
            registry::publish(Pd::new(context, pd.host.clone(), None))
        };
        answer(run())
    }

    fn ibv_unimport_pd(pd: *mut ibv_pd) {
        registry::withdraw::<Pd>(pd);
    }
}

c_ops! {
    fn alloc_td(context: *mut ibv_context, attr: *mut ibv_td_init_attr) -> *mut ibv_td {
        let run = || {
            let context = Use::<Context>::find(context)?;
            if unsafe { input(attr)?.comp_mask } != 0 {
                return Err(libc::EINVAL);
            }
            let c = UnsafeCell::new(ibv_td { context: context.as_c() });
            registry::publish(Arc::new(Td { c, _context: context, users: Users::default() }))
        };
        answer(run())
    }

    fn dealloc_td(td: *mut ibv_td) -> c_int {
        let run = || {
            registry::find::<Td>(td)?.users.none()?;
            registry::withdraw::<Td>(td);
            Ok(())
        };
        code(run())
    }

    fn alloc_parent_domain(context: *mut ibv_context, attr: *mut ibv_parent_domain_init_attr) -> *mut ibv_pd {
        let run = || {
            let context = Use::<Context>::find(context)?;
            if attr.is_null() {
                return Err(libc::EINVAL);
            }
            let attr = unsafe { &*attr };
            // Allocators are a wish that a device need not grant: this library keeps nothing in memory that
            // they could give. Nor does it need memory that a confidential guest shares with its host: every
            // page will do.
            let known = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS
                | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT
                | IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;
            if attr.comp_mask & !known != 0 {
                return Err(libc::EINVAL);
            }
            let pd = Pd::of_context(attr.pd, &context)?;
            let td = if attr.td.is_null() { None } else { Some(Use::<Td>::find(attr.td)?) };
            let host = pd.host.clone();
            registry::publish(Pd::new(context, host, Some((pd, td))))
        };
        answer(run())
    }
}
