//! Asking for memory before it is needed.
//!
//! A large network does not fit into the caches, and an event's packet lies wherever it was when it entered. The queue knows the
//! next few events, so their memory can be on its way while the present one is handled.

/// Asks for `slice[index]`, if there is such an element. Nothing but time depends on it.
#[inline(always)]
#[allow(unsafe_code, reason = "a hint to the processor has no safe form on stable Rust")]
pub(crate) fn prefetch<T>(slice: &[T], index: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(element) = slice.get(index) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let first = std::ptr::from_ref(element).cast::<i8>();
        // SAFETY: a prefetch reads nothing that the program sees and never faults; the addresses lie within the element.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(first);
            if size_of::<T>() > 64 {
                _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(size_of::<T>() - 1));
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (slice, index);
}
