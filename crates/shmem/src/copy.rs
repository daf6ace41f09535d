//! Copies of bytes that other threads or processes may change meanwhile.
//!
//! Registered memory belongs to the application, and a mapped ring to a peer as well: both may write while
//! this process reads. A plain `memcpy` would be a data race, so every byte here moves by relaxed atomic
//! accesses if the address is aligned, by volatile ones if it is not, and by one string instruction if there
//! are many. Torn values are possible, as with a DMA engine; undefined behaviour is not.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// From this length on, the string instruction wins over a loop of words (measured on Zen 4).
#[cfg(all(target_arch = "x86_64", not(miri)))]
const STRING_COPY_MIN_BYTES: usize = 384;

/// A `u64` at any address: alignment 1 makes the volatile access legal, and it is still one machine access.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct AnyU64(u64);

/// Copies `len` bytes from `source` to `target`; other threads may be reading or writing either.
///
/// Every aligned 8-byte word of `target` that is covered whole is written by one store if `len` is below 384.
///
/// # Safety
/// Both ranges must be mapped for as long as the call lasts, and must not overlap. No `&mut` to the source, and no
/// reference to the target, may be live elsewhere.
#[inline]
pub unsafe fn copy_racy(source: *const u8, target: *mut u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if len >= STRING_COPY_MIN_BYTES {
        // SAFETY: the caller vouches for both ranges; the direction flag is clear by the ABI.
        unsafe {
            std::arch::asm!(
                "rep movsb",
                inout("rcx") len => _,
                inout("rsi") source => _,
                inout("rdi") target => _,
                options(nostack, preserves_flags)
            );
        }
        return;
    }
    // SAFETY: the caller vouches for both ranges; each arm is only taken when its addresses are aligned.
    unsafe {
        match (source.addr() & 7 == 0, target.addr() & 7 == 0) {
            (true, true) => copy_words::<true, true>(source, target, len),
            (false, true) => copy_words::<false, true>(source, target, len),
            (true, false) => copy_words::<true, false>(source, target, len),
            (false, false) => copy_words::<false, false>(source, target, len),
        }
    }
}

/// Like [`copy_racy`], but the last bytes become visible last: a reader that sees the last byte of `target`
/// with Acquire sees all of it. An aligned copy of 1, 2, 4 or 8 bytes is one store.
///
/// # Safety
/// As for [`copy_racy`].
#[inline]
pub unsafe fn copy_racy_last_release(source: *const u8, target: *mut u8, len: usize) {
    if len == 0 {
        return;
    }
    // The last aligned word of the target, or the part of it that the copy covers.
    let end = target.addr() + len;
    let last = ((end - 1) & !7).saturating_sub(target.addr());
    // SAFETY: `last < len`, so both calls stay inside the caller's ranges; the second starts at an aligned word
    // or inside one and does not cross it.
    unsafe {
        copy_racy(source, target, last);
        store_last_word(source.add(last), target.add(last), len - last);
    }
}

/// Stores up to eight bytes that lie inside one aligned word, each store with Release and the last byte last.
///
/// # Safety
/// As for [`copy_racy`]; `len` is 1 to 8 and the target does not cross an 8-byte boundary.
#[inline]
unsafe fn store_last_word(source: *const u8, target: *mut u8, len: usize) {
    let mut word = [0u8; 8];
    // SAFETY: `word` has eight bytes and `len` is at most that.
    unsafe { copy_racy(source, word.as_mut_ptr(), len) };
    let value = u64::from_le_bytes(word);
    if len == 8 {
        // SAFETY: eight bytes that do not cross an 8-byte boundary are aligned.
        unsafe { AtomicU64::from_ptr(target.cast()).store(value, Ordering::Release) };
        return;
    }
    let mut at = 0;
    while at < len {
        let address = target.addr() + at;
        // SAFETY: inside the range; each width is only used where its alignment and the remaining length allow.
        unsafe {
            let to = target.add(at);
            if len - at >= 4 && address & 3 == 0 {
                AtomicU32::from_ptr(to.cast()).store((value >> (8 * at)) as u32, Ordering::Release);
                at += 4;
            } else if len - at >= 2 && address & 1 == 0 {
                AtomicU16::from_ptr(to.cast()).store((value >> (8 * at)) as u16, Ordering::Release);
                at += 2;
            } else {
                AtomicU8::from_ptr(to).store((value >> (8 * at)) as u8, Ordering::Release);
                at += 1;
            }
        }
    }
}

/// # Safety
/// As for [`copy_racy`]; a side whose parameter is true is 8-byte aligned.
#[inline(always)]
unsafe fn copy_words<const SOURCE_ALIGNED: bool, const TARGET_ALIGNED: bool>(
    source: *const u8,
    target: *mut u8,
    len: usize,
) {
    let mut at = 0;
    while at + 8 <= len {
        // SAFETY: `at + 8 <= len`; atomics are only used on an aligned side, and loads never write to `source`.
        unsafe {
            let from = source.add(at).cast_mut();
            let word = if SOURCE_ALIGNED {
                AtomicU64::from_ptr(from.cast()).load(Ordering::Relaxed)
            } else {
                from.cast::<AnyU64>().read_volatile().0
            };
            let to = target.add(at);
            if TARGET_ALIGNED {
                AtomicU64::from_ptr(to.cast()).store(word, Ordering::Relaxed);
            } else {
                to.cast::<AnyU64>().write_volatile(AnyU64(word));
            }
        }
        at += 8;
    }
    while at < len {
        // SAFETY: `at < len`; single bytes are always aligned.
        unsafe {
            let byte = AtomicU8::from_ptr(source.add(at).cast_mut()).load(Ordering::Relaxed);
            AtomicU8::from_ptr(target.add(at)).store(byte, Ordering::Relaxed);
        }
        at += 1;
    }
}

/// Orders all earlier copies from shared memory before later accesses.
#[inline]
pub(crate) fn after_reading() {
    fence(Ordering::Acquire);
}

/// Prefetches a cache line for reading, even if another core has it.
#[inline]
pub(crate) fn prefetch_read(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which never faults.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Prefetches a cache line for writing, as its only owner.
#[inline]
pub(crate) fn prefetch_write(at: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a hint, which never faults; processors that do not know it ignore it. The intrinsic prefetches
    // for reading unless the build is for newer processors only.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = at;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        copy: unsafe fn(*const u8, *mut u8, usize),
        len: usize,
        source_shift: usize,
        target_shift: usize,
    ) {
        let source: Vec<u8> = (0..len + 32).map(|i| (i * 7 + 1) as u8).collect();
        let mut target = vec![0xEEu8; len + 32];
        // SAFETY: both vectors are longer than shift + len and are not aliased.
        unsafe { copy(source.as_ptr().add(source_shift), target.as_mut_ptr().add(target_shift), len) };
        assert_eq!(target[target_shift..target_shift + len], source[source_shift..source_shift + len]);
        assert!(target[..target_shift].iter().all(|&b| b == 0xEE), "wrote before the target");
        assert!(target[target_shift + len..].iter().all(|&b| b == 0xEE), "wrote behind the target");
    }

    #[test]
    fn every_length_and_alignment_is_copied_exactly() {
        let lengths: Vec<usize> = if cfg!(miri) { (0..40).collect() } else { (0..600).collect() };
        for len in lengths {
            for shifts in 0..64 {
                check(copy_racy, len, shifts % 8, shifts / 8);
                check(copy_racy_last_release, len, shifts % 8, shifts / 8);
            }
        }
    }
}
