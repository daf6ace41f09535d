//! Extended reliable connections: domains, and numbers of shared receive queues (IBTA A14).
//!
//! All calls of this process that open a domain with the same file get the same domain. Receive queues live
//! in one process, so another process's domain is a different one.

use crate::abi::*;
use crate::boundary::{answer, c_ops, code, input};
use crate::context::Context;
use crate::registry::{self, Object, Use, Used, Users};
use crate::srq::Srq;
use highwire_verbs::XrcDomain;
use std::cell::UnsafeCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// A domain.
#[repr(C)]
pub(crate) struct Xrcd {
    c: UnsafeCell<ibv_xrcd>,
    pub(crate) context: Use<Context>,
    pub(crate) domain: XrcDomain,
    users: Users,
}

// SAFETY: this side only reads `c`.
unsafe impl Send for Xrcd {}
// SAFETY: as above.
unsafe impl Sync for Xrcd {}

impl Object for Xrcd {
    type C = ibv_xrcd;
    fn as_c(&self) -> *mut ibv_xrcd {
        self.c.get()
    }
}

impl Used for Xrcd {
    fn users(&self) -> &Users {
        &self.users
    }
}

/// A file, by device and inode.
type FileId = (u64, u64);

static NEXT: AtomicU64 = AtomicU64::new(1);
/// The domains of files, and how many have each open.
static OF_FILES: LazyLock<Mutex<HashMap<FileId, XrcDomain>>> = LazyLock::new(Mutex::default);

fn domain_of(fd: c_int, flags: c_int) -> Result<XrcDomain, c_int> {
    let new = || XrcDomain(NEXT.fetch_add(1, Ordering::Relaxed));
    if fd == -1 {
        // A domain without a file is always a new one.
        return if flags & libc::O_CREAT != 0 { Ok(new()) } else { Err(libc::EINVAL) };
    }
    let id = file_id(fd)?;
    let mut domains = OF_FILES.lock().unwrap_or_else(PoisonError::into_inner);
    let is_open = registry::first::<Xrcd>(|open| domains.get(&id) == Some(&open.domain)).is_some();
    match (domains.get(&id).filter(|_| is_open), flags & libc::O_CREAT != 0, flags & libc::O_EXCL != 0) {
        (Some(_), true, true) => Err(libc::EEXIST),
        (Some(domain), _, _) => Ok(*domain),
        (None, false, _) => Err(libc::ENOENT),
        (None, true, _) => {
            let domain = new();
            domains.insert(id, domain);
            Ok(domain)
        }
    }
}

fn file_id(fd: c_int) -> Result<FileId, c_int> {
    // SAFETY: a structure of numbers, written by the call.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    match unsafe { libc::fstat(fd, &mut stat) } {
        0 => Ok((stat.st_dev, stat.st_ino)),
        _ => Err(libc::EBADF),
    }
}

c_ops! {
    fn open_xrcd(context: *mut ibv_context, attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd {
        let run = || {
            let context = Use::<Context>::find(context)?;
            let attr = unsafe { input(attr)? };
            // `ibv_open_xrcd(3)`: both fields are required.
            if attr.comp_mask != IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS {
                return Err(libc::EINVAL);
            }
            let domain = domain_of(attr.fd, attr.oflags)?;
            let c = UnsafeCell::new(ibv_xrcd { context: context.as_c() });
            registry::publish(Arc::new(Xrcd { c, context, domain, users: Users::default() }))
        };
        answer(run())
    }

    fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
        let run = || {
            registry::find::<Xrcd>(xrcd)?.users.none()?;
            registry::withdraw::<Xrcd>(xrcd);
            Ok(())
        };
        code(run())
    }

    fn get_srq_num(srq: *mut ibv_srq, number: *mut u32) -> c_int {
        let run = || {
            let found = registry::find::<Srq>(srq)?.host.number().ok_or(libc::EOPNOTSUPP)?;
            if number.is_null() {
                return Err(libc::EINVAL);
            }
            unsafe { number.write(found.value()) };
            Ok(())
        };
        code(run())
    }
}
