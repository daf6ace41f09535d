//! Copies and atomics that survive memory which is not there.
//!
//! A program may unmap what it has registered, and another process may truncate a file that both have mapped. The access that
//! finds out gets a signal. So the accesses that such memory is touched with are one piece of machine code, and the
//! handler of SIGSEGV and SIGBUS knows where that lies: a fault inside ends the access and reports it, and every other
//! fault goes on to the handler that was there before. It costs nothing until a fault comes.
//!
//! Segments are touched by other accesses as well: rings, tables, cursors. Where another process has truncated the file of one, the
//! handler puts pages of zeros there, for this process alone, and counts it ([`lost_segments`]): then the other end looks
//! like one that has gone, which is what it is.
//!
//! What it cannot do: a thread that blocks SIGSEGV dies of it, as always. The program may install a handler of its own later,
//! which then takes every fault; [`install`] is called again with each registration and goes on top of it.
//! Other processors than x86-64 have no guard yet: there the accesses are plain.

use std::sync::atomic::Ordering;

/// The memory is not there. Bytes before the first that is missing may have been copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lost;

/// Copies `len` bytes from `source` to `target`, either of which others may be reading, writing or unmapping. A target that is
/// aligned is written by whole 8-byte words if `len` is below 384.
///
/// # Errors
/// [`Lost`], once [`install`] was called.
///
/// # Safety
/// Whatever lies at the target may be overwritten, and nobody holds a reference to it. The ranges do not overlap.
#[inline]
pub unsafe fn copy_guarded(source: *const u8, target: *mut u8, len: usize) -> Result<(), Lost> {
    // SAFETY: the caller's promise.
    unsafe { machine::copy(source, target, len, 0) }
}

/// Like [`copy_guarded`], but the last bytes become visible last: whoever sees the last byte of `target` with Acquire sees all
/// of it. An aligned copy of 1, 2, 4 or 8 bytes is one store.
///
/// # Errors
/// As [`copy_guarded`].
///
/// # Safety
/// As for [`copy_guarded`].
#[inline]
pub unsafe fn copy_guarded_last_release(source: *const u8, target: *mut u8, len: usize) -> Result<(), Lost> {
    if len == 0 {
        return Ok(());
    }
    // The last aligned word of the target, or the part of it that the copy covers.
    let last = ((target.addr() + len - 1) & !7).saturating_sub(target.addr());
    // SAFETY: the caller's promise; the tail has 1 to 8 bytes.
    unsafe { machine::copy(source, target, last, len - last) }
}

/// Replaces the word by `swap` if it equals `compare`; returns what was there.
///
/// # Errors
/// As [`copy_guarded`].
///
/// # Safety
/// As for [`copy_guarded`]; the address is a multiple of eight.
#[inline]
pub unsafe fn compare_swap_guarded(word: *mut u64, compare: u64, swap: u64) -> Result<u64, Lost> {
    // SAFETY: the caller's promise.
    unsafe { machine::compare_swap(word, compare, swap) }
}

/// Adds to the word, wrapping; returns what was there.
///
/// # Errors
/// As [`copy_guarded`].
///
/// # Safety
/// As for [`compare_swap_guarded`].
#[inline]
pub unsafe fn fetch_add_guarded(word: *mut u64, add: u64) -> Result<u64, Lost> {
    // SAFETY: the caller's promise.
    unsafe { machine::fetch_add(word, add) }
}

/// The accesses in machine code, and where they lie.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod machine {
    use super::Lost;
    use std::ops::Range;

    // No access but these lies between `begin` and `end`, and none of them touches the stack: so the handler can end any of
    // them by going on at `lost`. Copies from 384 bytes on leave to the processor how: that wins over a loop (Zen 4).
    // Stores of x86 become visible in order, those of one string instruction before any that follows it, so the tail, which
    // goes last, is a Release.
    std::arch::global_asm!(
        ".pushsection .text",
        ".p2align 6",
        ".globl highwire_guarded_begin",
        ".hidden highwire_guarded_begin",
        ".globl highwire_guarded_copy",
        ".hidden highwire_guarded_copy",
        ".type highwire_guarded_copy, @function",
        "highwire_guarded_begin:",
        // rdi target, rsi source, rdx bytes, rcx bytes of the tail
        "highwire_guarded_copy:",
        "mov r8, rcx",
        "cmp rdx, 384",
        "jae 50f",
        "mov rcx, rdx",
        "shr rcx, 5",
        "jz 30f",
        "20:",
        "mov rax, [rsi]",
        "mov r9, [rsi + 8]",
        "mov r10, [rsi + 16]",
        "mov r11, [rsi + 24]",
        "mov [rdi], rax",
        "mov [rdi + 8], r9",
        "mov [rdi + 16], r10",
        "mov [rdi + 24], r11",
        "add rsi, 32",
        "add rdi, 32",
        "dec rcx",
        "jnz 20b",
        "and edx, 31",
        "30:",
        "cmp edx, 8",
        "jb 40f",
        "31:",
        "mov rax, [rsi]",
        "mov [rdi], rax",
        "add rsi, 8",
        "add rdi, 8",
        "sub edx, 8",
        "cmp edx, 8",
        "jae 31b",
        "40:",
        "test edx, edx",
        "jz 60f",
        "test dl, 4",
        "jz 41f",
        "mov eax, [rsi]",
        "mov [rdi], eax",
        "add rsi, 4",
        "add rdi, 4",
        "41:",
        "test dl, 2",
        "jz 42f",
        "movzx eax, word ptr [rsi]",
        "mov [rdi], ax",
        "add rsi, 2",
        "add rdi, 2",
        "42:",
        "test dl, 1",
        "jz 60f",
        "movzx eax, byte ptr [rsi]",
        "mov [rdi], al",
        "inc rsi",
        "inc rdi",
        "jmp 60f",
        "50:",
        "mov rcx, rdx",
        "rep movsb",
        "60:",
        "test r8d, r8d",
        "jz 70f",
        "test r8b, 8",
        "jz 61f",
        "mov rax, [rsi]",
        "mov [rdi], rax",
        "jmp 70f",
        "61:",
        "test r8b, 4",
        "jz 62f",
        "mov eax, [rsi]",
        "mov [rdi], eax",
        "add rsi, 4",
        "add rdi, 4",
        "62:",
        "test r8b, 2",
        "jz 63f",
        "movzx eax, word ptr [rsi]",
        "mov [rdi], ax",
        "add rsi, 2",
        "add rdi, 2",
        "63:",
        "test r8b, 1",
        "jz 70f",
        "movzx eax, byte ptr [rsi]",
        "mov [rdi], al",
        "70:",
        "xor eax, eax",
        "ret",
        ".p2align 4",
        ".globl highwire_guarded_swap",
        ".hidden highwire_guarded_swap",
        ".type highwire_guarded_swap, @function",
        // rdi word, rsi compare, rdx swap
        "highwire_guarded_swap:",
        "mov rax, rsi",
        "lock cmpxchg [rdi], rdx",
        "xor edx, edx",
        "ret",
        ".p2align 4",
        ".globl highwire_guarded_add",
        ".hidden highwire_guarded_add",
        ".type highwire_guarded_add, @function",
        // rdi word, rsi add
        "highwire_guarded_add:",
        "lock xadd [rdi], rsi",
        "mov rax, rsi",
        "xor edx, edx",
        "ret",
        ".globl highwire_guarded_end",
        ".hidden highwire_guarded_end",
        "highwire_guarded_end:",
        ".globl highwire_guarded_lost",
        ".hidden highwire_guarded_lost",
        ".type highwire_guarded_lost, @function",
        "highwire_guarded_lost:",
        "mov eax, 1",
        "mov edx, 1",
        "ret",
        ".popsection",
    );

    /// A word, and whether it could not be had: two registers.
    #[repr(C)]
    struct Was {
        value: u64,
        is_lost: u64,
    }

    unsafe extern "C" {
        fn highwire_guarded_copy(target: *mut u8, source: *const u8, bulk: usize, tail: usize) -> u64;
        fn highwire_guarded_swap(word: *mut u64, compare: u64, swap: u64) -> Was;
        fn highwire_guarded_add(word: *mut u64, add: u64) -> Was;
        fn highwire_guarded_lost();
        static highwire_guarded_begin: u8;
        static highwire_guarded_end: u8;
    }

    #[inline]
    pub(super) unsafe fn copy(
        source: *const u8,
        target: *mut u8,
        bulk: usize,
        tail: usize,
    ) -> Result<(), Lost> {
        // SAFETY: the caller's promise; the code keeps to the calling convention.
        if unsafe { highwire_guarded_copy(target, source, bulk, tail) } == 0 { Ok(()) } else { Err(Lost) }
    }

    pub(super) unsafe fn compare_swap(word: *mut u64, compare: u64, swap: u64) -> Result<u64, Lost> {
        // SAFETY: as above.
        let was = unsafe { highwire_guarded_swap(word, compare, swap) };
        if was.is_lost == 0 { Ok(was.value) } else { Err(Lost) }
    }

    pub(super) unsafe fn fetch_add(word: *mut u64, add: u64) -> Result<u64, Lost> {
        // SAFETY: as above.
        let was = unsafe { highwire_guarded_add(word, add) };
        if was.is_lost == 0 { Ok(was.value) } else { Err(Lost) }
    }

    /// Where the accesses lie.
    fn code() -> Range<usize> {
        (&raw const highwire_guarded_begin).addr()..(&raw const highwire_guarded_end).addr()
    }

    /// Ends the access that a thread was interrupted in, if it was in one.
    ///
    /// # Safety
    /// `context` is that of a signal that is being handled.
    pub(super) unsafe fn give_up(context: *mut libc::c_void) -> bool {
        // SAFETY: the kernel hands handlers a context of this type.
        let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        let at = &mut registers[libc::REG_RIP as usize];
        let is_ours = code().contains(&(*at as usize));
        if is_ours {
            *at = (highwire_guarded_lost as *const ()).addr() as i64;
        }
        is_ours
    }
}

/// Without machine code of our own: the same accesses, unguarded.
#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod machine {
    use super::Lost;
    use crate::copy::{copy_racy, copy_racy_last_release};
    use std::sync::atomic::{AtomicU64, Ordering};

    pub(super) unsafe fn copy(
        source: *const u8,
        target: *mut u8,
        bulk: usize,
        tail: usize,
    ) -> Result<(), Lost> {
        // SAFETY: the caller's promise.
        unsafe {
            if tail == 0 {
                copy_racy(source, target, bulk);
            } else {
                copy_racy_last_release(source, target, bulk + tail);
            }
        }
        Ok(())
    }

    pub(super) unsafe fn compare_swap(word: *mut u64, compare: u64, swap: u64) -> Result<u64, Lost> {
        // SAFETY: the caller's promise.
        let word = unsafe { AtomicU64::from_ptr(word) };
        let (Ok(was) | Err(was)) = word.compare_exchange(compare, swap, Ordering::SeqCst, Ordering::SeqCst);
        Ok(was)
    }

    pub(super) unsafe fn fetch_add(word: *mut u64, add: u64) -> Result<u64, Lost> {
        // SAFETY: the caller's promise.
        Ok(unsafe { AtomicU64::from_ptr(word) }.fetch_add(add, Ordering::SeqCst))
    }

    pub(super) unsafe fn give_up(_: *mut libc::c_void) -> bool {
        false
    }
}

/// Where segments are mapped, for a handler that may take no lock.
mod segments {
    use std::ptr;
    use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

    const BLOCK: usize = 64;

    /// Segments, in blocks that are never freed. There is no lock, which the child of a fork might find held for ever.
    struct Block {
        entries: [Entry; BLOCK],
        next: AtomicPtr<Block>,
    }

    /// Free where the start is 0, and of no use yet where the length is.
    struct Entry {
        start: AtomicUsize,
        len: AtomicUsize,
    }

    impl Block {
        const fn new() -> Block {
            Block {
                entries: [const { Entry { start: AtomicUsize::new(0), len: AtomicUsize::new(0) } }; BLOCK],
                next: AtomicPtr::new(ptr::null_mut()),
            }
        }
    }

    static FIRST: Block = Block::new();
    pub(super) static LOST: AtomicU64 = AtomicU64::new(0);

    /// The blocks, in order.
    fn blocks() -> impl Iterator<Item = &'static Block> {
        std::iter::successors(Some(&FIRST), |block| {
            // SAFETY: set once to a block that is never freed.
            unsafe { block.next.load(Ordering::Acquire).as_ref() }
        })
    }

    pub(super) fn watch(start: usize, len: usize) {
        let mut block = &FIRST;
        loop {
            let claimed = block.entries.iter().find(|entry| {
                let free = entry.start.compare_exchange(0, start, Ordering::AcqRel, Ordering::Relaxed);
                free.is_ok()
            });
            if let Some(entry) = claimed {
                return entry.len.store(len, Ordering::Release);
            }
            let next = block.next.load(Ordering::Acquire);
            if next.is_null() {
                let fresh = Box::into_raw(Box::new(Block::new()));
                let linked = block.next.compare_exchange(next, fresh, Ordering::AcqRel, Ordering::Acquire);
                if linked.is_err() {
                    // SAFETY: nobody has seen it: another thread's was linked.
                    drop(unsafe { Box::from_raw(fresh) });
                }
            }
            // SAFETY: set by now, once, to a block that is never freed.
            block = unsafe { &*block.next.load(Ordering::Acquire) };
        }
    }

    pub(super) fn forget(start: usize) {
        let is_it = |entry: &&Entry| entry.start.load(Ordering::Acquire) == start;
        if let Some(entry) = blocks().flat_map(|block| &block.entries).find(is_it) {
            entry.len.store(0, Ordering::Release);
            entry.start.store(0, Ordering::Release);
        }
    }

    /// Puts zeros where a segment's file ends too early, from the page of `address` on; false if no segment lies there. Calls
    /// nothing that a signal handler must not.
    pub(super) fn mend(address: usize) -> bool {
        for entry in blocks().flat_map(|block| &block.entries) {
            let len = entry.len.load(Ordering::Acquire);
            let start = entry.start.load(Ordering::Relaxed);
            if address.wrapping_sub(start) >= len {
                continue;
            }
            let page = address & !(crate::segment::PAGE_BYTES - 1);
            let (rights, flags) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            );
            // SAFETY: the range is a mapping of ours of which nothing can be read any more; the thread that brought us here is
            // using it, so it stays. errno is the interrupted code's.
            unsafe {
                let errno = *libc::__errno_location();
                let mended = libc::mmap(page as *mut libc::c_void, start + len - page, rights, flags, -1, 0);
                *libc::__errno_location() = errno;
                if mended != libc::MAP_FAILED {
                    LOST.fetch_add(1, Ordering::Relaxed);
                    return true;
                }
            }
        }
        false
    }
}

/// From now on the segment that is mapped there outlives its file.
pub(crate) fn watch(start: usize, len: usize) {
    segments::watch(start, len);
}

/// The segment is about to be unmapped.
pub(crate) fn forget(start: usize) {
    segments::forget(start);
}

/// How often a segment of this process has lost pages because somebody truncated its file.
pub fn lost_segments() -> u64 {
    segments::LOST.load(Ordering::Relaxed)
}

mod handler {
    use std::ptr;
    use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

    const SIGNALS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

    /// What becomes of other faults. The first is from before we ever came, the second from before we last came. They are never
    /// freed: a handler may be looking.
    struct Others {
        first: AtomicPtr<libc::sigaction>,
        last: AtomicPtr<libc::sigaction>,
    }

    static OTHERS: [Others; 2] =
        [const { Others { first: AtomicPtr::new(ptr::null_mut()), last: AtomicPtr::new(ptr::null_mut()) } };
            2];

    /// The context of the fault that was handed on last, while that is under way.
    static HANDED_ON: AtomicUsize = AtomicUsize::new(0);

    /// A thread is at it. No lock: the child of a fork, which inherits the handlers, might find it held for ever.
    static INSTALLING: AtomicBool = AtomicBool::new(false);

    pub(super) fn install() {
        if INSTALLING.swap(true, Ordering::AcqRel) {
            return;
        }
        for (signal, others) in SIGNALS.into_iter().zip(&OTHERS) {
            // SAFETY: plain values that the call fills.
            let mut present: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: asks only.
            if unsafe { libc::sigaction(signal, ptr::null(), &raw mut present) } != 0
                || present.sa_sigaction == on_fault as *const () as usize
            {
                continue;
            }
            // It runs as the other one would: on the same stack, with the same signals blocked.
            let ours = libc::sigaction {
                sa_sigaction: on_fault as *const () as usize,
                sa_flags: libc::SA_SIGINFO | libc::SA_ONSTACK | present.sa_flags & libc::SA_NODEFER,
                ..present
            };
            let present = Box::into_raw(Box::new(present));
            let _ =
                others.first.compare_exchange(ptr::null_mut(), present, Ordering::AcqRel, Ordering::Relaxed);
            others.last.store(present, Ordering::Release);
            // SAFETY: the handler is a function that lives as long as the process, and so is what it looks at.
            unsafe { libc::sigaction(signal, &raw const ours, ptr::null_mut()) };
        }
        INSTALLING.store(false, Ordering::Release);
    }

    extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel's own arguments.
        if unsafe { super::machine::give_up(context) } {
            return;
        }
        // SAFETY: the kernel's own argument, which says of a fault where it was.
        let fault = unsafe { ((*info).si_code > 0).then(|| (*info).si_addr().addr()) };
        if signal == libc::SIGBUS && fault.is_some_and(super::segments::mend) {
            return;
        }
        let Some(at) = SIGNALS.iter().position(|known| *known == signal) else { return };
        // A handler that was installed after ours may hand a fault back that we have handed to it.
        let came_back = HANDED_ON.swap(context.addr(), Ordering::AcqRel) == context.addr();
        let other = if came_back { &OTHERS[at].first } else { &OTHERS[at].last };
        // SAFETY: set before the handler was, and never freed.
        if let Some(other) = unsafe { other.load(Ordering::Acquire).as_ref() } {
            // SAFETY: the kernel's own arguments.
            unsafe { hand_on(other, signal, info, context) };
        }
        HANDED_ON.store(0, Ordering::Release);
    }

    /// Does what would have happened without us.
    ///
    /// # Safety
    /// The arguments are those of a signal that is being handled.
    unsafe fn hand_on(
        other: &libc::sigaction,
        signal: libc::c_int,
        info: *mut libc::siginfo_t,
        context: *mut libc::c_void,
    ) {
        // SAFETY: the kernel's own.
        let is_sent = unsafe { (*info).si_code } <= 0;
        match other.sa_sigaction {
            libc::SIG_IGN if is_sent => {}
            libc::SIG_DFL | libc::SIG_IGN => {
                // SAFETY: the process ends of it as soon as this handler returns: the instruction faults once more, and what
                // was sent is sent again.
                unsafe {
                    let default = libc::sigaction { sa_sigaction: libc::SIG_DFL, ..std::mem::zeroed() };
                    libc::sigaction(signal, &raw const default, ptr::null_mut());
                    if is_sent {
                        libc::raise(signal);
                    }
                }
            }
            function if other.sa_flags & libc::SA_SIGINFO != 0 => {
                type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
                // SAFETY: the flag says that it is such a function.
                let function = unsafe { std::mem::transmute::<usize, Handler>(function) };
                function(signal, info, context);
            }
            function => {
                // SAFETY: without the flag it is such a function.
                let function = unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(function) };
                function(signal);
            }
        }
    }
}

/// Has the guarded accesses report what would otherwise be SIGSEGV and SIGBUS. Cheap to repeat, which is of use where the
/// program installs handlers of its own.
pub fn install() {
    if !cfg!(miri) {
        handler::install();
    }
    // What was installed is seen by whoever copies afterwards.
    std::sync::atomic::fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        copy: unsafe fn(*const u8, *mut u8, usize) -> Result<(), Lost>,
        len: usize,
        source_shift: usize,
        target_shift: usize,
    ) {
        let source: Vec<u8> = (0..len + 32).map(|i| (i * 7 + 1) as u8).collect();
        let mut target = vec![0xEEu8; len + 32];
        // SAFETY: both vectors are longer than shift + len and are not aliased.
        let copied =
            unsafe { copy(source.as_ptr().add(source_shift), target.as_mut_ptr().add(target_shift), len) };
        assert_eq!(copied, Ok(()));
        assert_eq!(target[target_shift..target_shift + len], source[source_shift..source_shift + len]);
        assert!(target[..target_shift].iter().all(|&b| b == 0xEE), "wrote before the target");
        assert!(target[target_shift + len..].iter().all(|&b| b == 0xEE), "wrote behind the target");
    }

    #[test]
    fn every_length_and_alignment_is_copied_exactly() {
        let lengths: Vec<usize> = if cfg!(miri) { (0..40).collect() } else { (0..600).collect() };
        for len in lengths {
            for shifts in 0..64 {
                check(copy_guarded, len, shifts % 8, shifts / 8);
                check(copy_guarded_last_release, len, shifts % 8, shifts / 8);
            }
        }
    }

    #[test]
    fn atomics_return_what_was_there() {
        let mut word = 5u64;
        let at = &raw mut word;
        // SAFETY: the word is ours.
        unsafe {
            assert_eq!(fetch_add_guarded(at, u64::MAX), Ok(5));
            assert_eq!(compare_swap_guarded(at, 5, 9), Ok(4));
            assert_eq!(compare_swap_guarded(at, 4, 9), Ok(4));
        }
        assert_eq!(word, 9);
    }

    #[test]
    fn a_segment_whose_file_was_truncated_is_zeros_and_counted() {
        use crate::{Segment, Window};
        if cfg!(miri) {
            println!("skipped: no mappings of files");
            return;
        }
        let folder = std::env::temp_dir();
        // More than one block's worth, so that the last is not in the first.
        let segments: Vec<_> = (0..70)
            .map(|number| {
                let path = folder.join(format!("highwire-guard-{}-{number}", std::process::id()));
                let segment = Segment::create_file(&path, 3 * 4096, 0o600).expect("a file");
                let _ = std::fs::remove_file(path);
                Window::whole(&std::sync::Arc::new(segment))
            })
            .collect();
        let last = segments.last().expect("one");
        for page in 0..3 {
            last.u64_at(page * 4096).store(7, Ordering::Relaxed);
        }
        let file = last.segment().file().expect("a file").try_clone_to_owned().expect("a descriptor");
        std::fs::File::from(file).set_len(4096).expect("truncates");
        let before = lost_segments();
        let words: [u64; 3] = std::array::from_fn(|page| last.u64_at(page * 4096).load(Ordering::Relaxed));
        assert_eq!(words, [7, 0, 0], "what is left of the file stays");
        assert!(lost_segments() > before);
        // From now on they are this process's own.
        last.u64_at(2 * 4096).store(9, Ordering::Relaxed);
        assert_eq!(last.u64_at(2 * 4096).load(Ordering::Relaxed), 9);
    }
}
