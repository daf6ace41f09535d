//! Implicit regions: on-demand regions of the whole address space (`ibv_reg_mr(3)`), for local keys.
//!
//! Not all of the address space is memory, so the library checks requests that name such a key when they are posted: it asks the
//! kernel to bring the pages in, which tells whether they are there. A stretch without memory gets a key that
//! no region has, so that the request completes with a local protection error instead of ending the process.
//! After that the rule of any region holds: memory must stay mapped until the requests that name it have
//! completed.

use highwire_verbs::{Access, LocalKey, Sge};
use libc::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{OnceLock, PoisonError, RwLock};

/// How many bytes such a region has: the half of the addresses that is the application's.
pub(crate) const BYTES: usize = 1 << 63;

/// A key that no region has.
const NOBODY: LocalKey = LocalKey(0);

static COUNT: AtomicUsize = AtomicUsize::new(0);
static KEYS: RwLock<Vec<LocalKey>> = RwLock::new(Vec::new());

/// The key of an implicit region, known as such until it is dropped.
pub(crate) struct Implicit(LocalKey);

impl Implicit {
    pub(crate) fn note(key: LocalKey) -> Implicit {
        KEYS.write().unwrap_or_else(PoisonError::into_inner).push(key);
        COUNT.fetch_add(1, Ordering::SeqCst);
        Implicit(key)
    }
}

impl Drop for Implicit {
    fn drop(&mut self) {
        let mut keys = KEYS.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = keys.iter().position(|&key| key == self.0) {
            keys.swap_remove(at);
            COUNT.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// Whether implicit regions are offered: they need a kernel that can be asked (Linux 5.14).
pub(crate) fn is_offered() -> bool {
    static IS_OFFERED: OnceLock<bool> = OnceLock::new();
    *IS_OFFERED.get_or_init(|| {
        let here = 0u8;
        is_there(std::ptr::from_ref(&here) as u64, 1, false)
    })
}

/// Whether a registration is for the whole address space.
pub(crate) fn is_meant(addr: *const c_void, length: usize) -> bool {
    addr.is_null() && length == usize::MAX
}

/// The rights that such a region may have: none for peers, because their addresses are not checked before
/// they are touched.
///
/// # Errors
/// EOPNOTSUPP for anything that lets peers in, and where the kernel cannot be asked.
pub(crate) fn check(permitted: Access) -> Result<(), c_int> {
    let is_local = permitted == Access::NONE || permitted == Access::LOCAL_WRITE;
    if is_local && is_offered() { Ok(()) } else { Err(libc::EOPNOTSUPP) }
}

/// Replaces the key of stretches of implicit regions that are no memory, or not writable if `writes`.
#[inline]
pub(crate) fn verify(sges: &mut [Sge], writes: bool) {
    if COUNT.load(Ordering::Relaxed) != 0 {
        verify_each(sges, writes);
    }
}

#[cold]
fn verify_each(sges: &mut [Sge], writes: bool) {
    let keys = KEYS.read().unwrap_or_else(PoisonError::into_inner);
    for sge in sges.iter_mut().filter(|sge| keys.contains(&sge.lkey)) {
        if !is_there(sge.addr, u64::from(sge.length), writes) {
            sge.lkey = NOBODY;
        }
    }
}

fn is_there(addr: u64, length: u64, writes: bool) -> bool {
    let Some(end) = addr.checked_add(length).filter(|&end| end <= BYTES as u64) else { return false };
    let first = addr & !0xFFF;
    let advice = if writes { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    // SAFETY: it changes nothing but whether pages are present.
    length == 0 || unsafe { libc::madvise(first as *mut c_void, (end - first) as usize, advice) } == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_memory_keeps_its_key() {
        if !is_offered() {
            println!("skipped: this kernel does not populate on request");
            return;
        }
        let memory = vec![1u8; 3 * 4096];
        // SAFETY: a mapping of our own that no other code knows.
        let sealed = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ, flags, -1, 0)
        } as u64;
        let (ours, other) = (LocalKey(0xABCD_EF01), LocalKey(0x1234_5678));
        let noted = Implicit::note(ours);
        let sge = |addr: u64, length, lkey| Sge { addr, length, lkey };
        let there = memory.as_ptr() as u64 + 7;
        let mut sges = [
            sge(there, 8000, ours),
            sge(0x10, 1, ours),
            sge(0x10, 0, ours),
            sge(u64::MAX - 1, 4, ours),
            sge(1 << 63, 1, ours),
            sge(0x10, 1, other),
            sge(sealed, 8, ours),
        ];
        verify(&mut sges, true);
        let kept = sges.map(|sge| sge.lkey != NOBODY);
        assert_eq!(kept, [true, false, true, false, false, true, false]);
        let mut read_only = [sge(sealed, 8, ours)];
        verify(&mut read_only, false);
        assert_eq!(read_only[0].lkey, ours, "it can be read");
        drop(noted);
        let mut gone = [sge(0x10, 1, ours)];
        verify(&mut gone, true);
        assert_eq!(gone[0].lkey, ours, "no longer ours to look at");
        // SAFETY: mapped above.
        unsafe { libc::munmap(sealed as *mut c_void, 4096) };
    }

    #[test]
    fn peers_are_not_let_in() {
        assert_eq!(check(Access::LOCAL_WRITE | Access::REMOTE_READ), Err(libc::EOPNOTSUPP));
        assert_eq!(check(Access::LOCAL_WRITE | Access::WINDOW_BIND), Err(libc::EOPNOTSUPP));
        assert!(is_meant(std::ptr::null(), usize::MAX) && !is_meant(std::ptr::null(), 4096));
    }
}
