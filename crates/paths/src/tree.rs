//! The folder of real files to which paths are redirected.
//!
//! It lies in the directory that the processes of one user share, and the first process that looks makes it.
//! Its name depends on its content, so that another address or another set of real devices gets another
//! folder:
//!
//! ```text
//! /dev/shm/highwire-<uid>/files-<key>/       or in $HIGHWIRE_SHM_DIR
//!   sys/class/infiniband/hw0/ports/1/gids/0 …
//!   sys/class/infiniband/mlx5_0              a link to the real device of that name, if there is one
//!   dev/infiniband/uverbs0 …
//! ```
//!
//! With a scenario each process has a folder of its own, because the verbs library in it changes files.
//!
//! Invariant: a folder of that name is complete, because it was renamed from another when it was.

mod content;
mod make;
mod slots;

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use crate::identity::Identity;

/// Where this process found the folder. It is never freed: other threads may be reading it.
static ROOT: AtomicPtr<PathBuf> = AtomicPtr::new(ptr::null_mut());

/// The folder, which is made if it does not exist; `None` if none can be made, and then no path is
/// redirected.
///
/// No lock is taken, so that a fork at any moment leaves the child able to do the same.
pub(crate) fn root() -> Option<&'static Path> {
    // SAFETY: a stored folder is never freed.
    if let Some(root) = unsafe { ROOT.load(Ordering::Acquire).as_ref() }
        && is_there(root)
    {
        return Some(root);
    }
    let root = make::folder(&Identity::all_of_environment())?;
    let root = Box::into_raw(Box::new(root));
    ROOT.store(root, Ordering::Release);
    // SAFETY: just made, and never freed.
    Some(unsafe { &*root })
}

fn is_there(folder: &Path) -> bool {
    let Ok(name) = CString::new(folder.as_os_str().as_bytes()) else { return false };
    // SAFETY: a C string.
    unsafe { libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, name.as_ptr(), libc::F_OK) == 0 }
}
