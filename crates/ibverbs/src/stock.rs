//! The machine's own verbs library: its devices stay on the list, behind ours, and calls about them are passed on to it.
//!
//! It is loaded only where the machine has RDMA devices, and into a linker namespace of its own: its providers ask for the
//! library that loads them by the very name that this one has. Calls of the data path bypass this library:
//! they go through the tables of the stock library's own contexts.
//!
//! A call belongs to the stock library if the first argument is one of its devices or contexts, or an object
//! whose first field, as in nearly every structure of verbs, is such a context. Objects in this library's
//! registry are never looked at.

mod library;
mod place;

use crate::abi::*;
use crate::registry;
use library::Library;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

/// Devices and contexts of the stock library, by their addresses.
#[derive(Debug, Default)]
struct Theirs {
    devices: BTreeSet<usize>,
    contexts: BTreeSet<usize>,
}

static THEIRS: RwLock<Theirs> = RwLock::new(Theirs { devices: BTreeSet::new(), contexts: BTreeSet::new() });

/// Set once a device of the machine was seen, so that calls of other programs cost one load.
static IS_PRESENT: AtomicBool = AtomicBool::new(false);

/// The library, looked for once.
fn library() -> Option<&'static Library> {
    static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();
    LIBRARY
        .get_or_init(|| {
            let path = place::of_environment()?;
            let loaded = Library::load(&path);
            if let Err(reason) = &loaded {
                // The machine has devices, and the user must be told why they are missing.
                crate::env::say(&format!(
                    "the machine's RDMA devices are not listed: {}: {reason}",
                    path.display()
                ));
            }
            loaded.ok()
        })
        .as_ref()
}

/// The machine's own devices. They stay where they are for the rest of the process.
pub(crate) fn devices() -> Vec<*mut ibv_device> {
    let devices = library().map(Library::devices).unwrap_or_default();
    if !devices.is_empty() {
        write().devices.extend(devices.iter().map(|device| *device as usize));
        IS_PRESENT.store(true, Ordering::Release);
    }
    devices
}

/// Whether a device is one of the machine's.
pub(crate) fn is_device(device: *const ibv_device) -> bool {
    is_present() && read().devices.contains(&(device as usize))
}

/// Opens a device of the machine.
pub(crate) fn open(device: *mut ibv_device) -> *mut ibv_context {
    adopt(|library| library.open_device(device))
}

/// Whether the machine has devices; fetches the list if the program has not asked for it yet.
pub(crate) fn has_devices() -> bool {
    is_present() || !devices().is_empty()
}

/// Takes over a context that another process has handed on.
pub(crate) fn import(command: c_int) -> *mut ibv_context {
    adopt(|library| library.import_device(command))
}

fn adopt(open: impl FnOnce(&Library) -> *mut ibv_context) -> *mut ibv_context {
    let Some(library) = library() else {
        return crate::boundary::Failure::failure(libc::ENODEV);
    };
    let context = open(library);
    if !context.is_null() {
        write().contexts.insert(context as usize);
    }
    context
}

/// Closes a context of the stock library; `None` if it is none.
pub(crate) fn close(context: *mut ibv_context) -> Option<c_int> {
    let library = is_present().then(library).flatten()?;
    // Forgotten before it ends: another object may get its address right after.
    let was_there = write().contexts.remove(&(context as usize));
    was_there.then(|| {
        let result = library.close_device(context);
        if result != 0 {
            write().contexts.insert(context as usize);
        }
        result
    })
}

#[inline]
pub(crate) fn is_present() -> bool {
    IS_PRESENT.load(Ordering::Relaxed)
}

/// A call that belongs to the stock library, while it lasts.
pub(crate) struct Passed {
    library: &'static Library,
    function: *mut c_void,
}

impl Passed {
    /// The function of that name, if the call is about an object of the stock library.
    pub(crate) fn of(name: &str, first: Option<usize>) -> Option<Passed> {
        let first = first.filter(|_| is_about_an_object(name))?;
        if !is_theirs(name, first) {
            return None;
        }
        let library = library()?;
        let function = library.function(name)?;
        library.clear_errno();
        Some(Passed { library, function })
    }

    pub(crate) fn function(&self) -> *mut c_void {
        self.function
    }
}

impl Drop for Passed {
    /// The other namespace has an `errno` of its own.
    fn drop(&mut self) {
        self.library.hand_errno_over();
    }
}

/// False for calls whose first argument is no object, or which this library answers for both.
fn is_about_an_object(name: &str) -> bool {
    const OTHERS: [&str; 8] = [
        "ibv_get_device_list",
        "ibv_free_device_list",
        "ibv_open_device",
        "ibv_close_device",
        "ibv_read_sysfs_file",
        "ibv_dontfork_range",
        "ibv_dofork_range",
        "ibv_import_device",
    ];
    let is_verb = name.starts_with("ibv_") || name.starts_with("_ibv_");
    is_verb && !name.starts_with("ibv_copy_") && !OTHERS.contains(&name)
}

fn is_theirs(name: &str, first: usize) -> bool {
    if registry::knows(first) {
        return false;
    }
    let theirs = read();
    if theirs.devices.contains(&first) || theirs.contexts.contains(&first) {
        return true;
    }
    let context_of = |object| library::word_at(object).is_some_and(|word| theirs.contexts.contains(&word));
    // An event's first field is the object that it is about; events of a port or device need no
    // acknowledgement.
    if name == "ibv_ack_async_event" {
        return library::word_at(first).is_some_and(context_of);
    }
    context_of(first)
}

fn read() -> std::sync::RwLockReadGuard<'static, Theirs> {
    THEIRS.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> std::sync::RwLockWriteGuard<'static, Theirs> {
    THEIRS.write().unwrap_or_else(PoisonError::into_inner)
}

/// An argument as a word, if it is as long as one.
#[inline]
pub(crate) fn word<T: Copy>(argument: &T) -> usize {
    if size_of::<T>() == size_of::<usize>() {
        // SAFETY: a value of this size, of a type without padding: arguments of C functions are numbers and pointers.
        unsafe { std::mem::transmute_copy(argument) }
    } else {
        0
    }
}
