//! Asking for memory before it is needed.
//!
//! A large network does not fit into the caches, and an event's packet lies wherever it was when it entered. The queue knows the
//! next few events, so their memory can be on its way while the present one is handled.

/// Prefetches `slice[index]`, if there is such an element. Affects nothing but time.
#[inline(always)]
pub(crate) fn prefetch_at<T>(slice: &[T], index: usize) {
    if let Some(element) = slice.get(index) {
        prefetch(element);
    }
}

/// Prefetches all of `value`.
#[inline(always)]
#[allow(unsafe_code, reason = "a hint to the processor has no safe form on stable Rust")]
pub fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let first = std::ptr::from_ref(value).cast::<i8>();
        let mut at = 0;
        while at < size_of::<T>() {
            // SAFETY: a prefetch reads nothing that the program sees and never faults; the addresses lie within the value.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(at)) };
            at += 64;
        }
        if size_of::<T>() > 64 {
            // SAFETY: as above.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(size_of::<T>() - 1)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
