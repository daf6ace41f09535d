//! `rdma_resolve_addrinfo` and `rdma_query_addrinfo`: names looked up while the program does something else.
//!
//! A name server may be slow, so a separate thread asks it, keeps the answer with the identifier, and reports
//! it by an event. `RAI_SA`, to ask a subnet manager, is refused: RoCE has none.

use std::ffi::{CStr, CString};

use libc::{c_char, c_int};

use super::abi::{
    RAI_DNS, RAI_SA, RDMA_CM_EVENT_ADDRINFO_ERROR, RDMA_CM_EVENT_ADDRINFO_RESOLVED, rdma_addrinfo, rdma_cm_id,
};
use super::addrinfo::Addresses;
use super::channel::{in_steps, push};
use super::deliver::What;
use super::hub::{Hub, hub};
use super::id::Phase;
use crate::boundary::{c_api, c_waits, minus_one};

/// A question of an identifier, or its answer.
pub(super) enum Asked {
    /// No answer yet. The number tells this question from others at the same address.
    Waiting(u64),
    /// The addresses found.
    Found(Addresses),
}

/// A question, with copies of the program's arguments.
struct Question {
    node: Option<CString>,
    service: Option<CString>,
    hints: Option<Addresses>,
}

/// # Errors EOPNOTSUPP for flags that need a subnet manager.
pub(super) fn check_source(flags: c_int) -> Result<(), c_int> {
    match flags & (RAI_SA | RAI_DNS) {
        0 | RAI_DNS => Ok(()),
        _ => Err(libc::EOPNOTSUPP),
    }
}

impl Question {
    /// # Safety
    /// The names are null or end with a zero, and the hints are null or a live structure.
    unsafe fn read(
        node: *const c_char,
        service: *const c_char,
        hints: *const rdma_addrinfo,
    ) -> Result<Question, c_int> {
        // SAFETY: the caller's promise.
        let owned =
            |name: *const c_char| (!name.is_null()).then(|| unsafe { CStr::from_ptr(name) }.to_owned());
        // SAFETY: the caller's promise.
        let hints = unsafe { hints.as_ref() };
        check_source(hints.map_or(0, |hints| hints.ai_flags))?;
        if node.is_null() && service.is_null() && hints.is_none() {
            return Err(libc::EINVAL);
        }
        Ok(Question { node: owned(node), service: owned(service), hints: hints.map(Addresses::of_hints) })
    }

    fn answer(&self) -> Result<Addresses, c_int> {
        let pointer = |name: &Option<CString>| name.as_ref().map_or(std::ptr::null(), |name| name.as_ptr());
        let hints = self.hints.as_ref().map_or(std::ptr::null(), Addresses::first);
        // SAFETY: names and hints are copies that live through the call.
        let found = unsafe { Addresses::look_up(pointer(&self.node), pointer(&self.service), hints) };
        found.map_err(|error| match error {
            libc::EAI_AGAIN => libc::EAGAIN,
            libc::EAI_MEMORY => libc::ENOMEM,
            libc::EAI_SYSTEM => super::verbs::last_errno(),
            libc::EAI_FAMILY => libc::EAFNOSUPPORT,
            libc::EAI_BADFLAGS => libc::EINVAL,
            _ => libc::ENOENT,
        })
    }
}

fn resolve(hub: &'static Hub, c: *mut rdma_cm_id, question: Question) -> Result<(), c_int> {
    let number = hub.lock().rng.next_u64();
    {
        let mut world = hub.lock();
        let id = world.id(c)?;
        if !matches!(id.phase, Phase::Idle | Phase::Bound) || matches!(id.asked, Some(Asked::Waiting(_))) {
            return Err(libc::EINVAL);
        }
        id.asked = Some(Asked::Waiting(number));
    }
    let address = c as usize;
    let ask = move || {
        let answer = question.answer();
        let mut world = hub.lock();
        let Some(id) = world.ids.get_mut(&address) else { return };
        // The identifier may be gone, and another may lie where it was.
        if !matches!(id.asked, Some(Asked::Waiting(asked)) if asked == number) {
            return;
        }
        let (event, status) = match answer {
            Ok(found) => {
                id.asked = Some(Asked::Found(found));
                (RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0)
            }
            Err(errno) => {
                id.asked = None;
                (RDMA_CM_EVENT_ADDRINFO_ERROR, -errno)
            }
        };
        push(&mut world, address, What::Plain(event), status);
    };
    // Signals are the application's: the thread takes none of them.
    let masked = highwire_host::SignalMask::all();
    let started = std::thread::Builder::new().name("highwire-names".into()).spawn(ask);
    drop(masked);
    if let Err(error) = started {
        hub.lock().id(c)?.asked = None;
        return Err(error.raw_os_error().unwrap_or(libc::EAGAIN));
    }
    Ok(())
}

c_api! {
    fn rdma_query_addrinfo(id: *mut rdma_cm_id, info: *mut *mut rdma_addrinfo) -> c_int {
        minus_one((|| {
            if info.is_null() {
                return Err(libc::EINVAL);
            }
            let mut world = hub()?.lock();
            match &world.id(id)?.asked {
                Some(Asked::Found(found)) => *info = found.copy().into_raw(),
                _ => return Err(libc::ENODATA),
            }
            Ok(())
        })())
    }
}

c_waits! {
    fn rdma_resolve_addrinfo(
        id: *mut rdma_cm_id,
        node: *const c_char,
        service: *const c_char,
        hints: *const rdma_addrinfo,
    ) -> c_int |kept| {
        minus_one((|| {
            let (hub, question) = (hub()?, Question::read(node, service, hints)?);
            in_steps(hub, id, kept, || resolve(hub, id, question).map(|()| true))
        })())
    }
}
