//! Buffers that the library allocates (`ibv_alloc_buf(3)`).

use crate::abi::*;
use crate::boundary::{answer, c_api};
use crate::mr::{Mr, Range};
use crate::pd::Pd;
use crate::registry::{self, Object, Use};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A buffer; what C sees of it is opaque.
#[repr(C)]
pub(crate) struct Buf {
    c: UnsafeCell<u64>,
    memory: *mut u8,
    layout: Layout,
    size: usize,
    pd: Use<Pd>,
}

// SAFETY: C and peers write to the memory under verbs' own rules; everything else is only read.
unsafe impl Send for Buf {}
// SAFETY: as above.
unsafe impl Sync for Buf {}

impl Object for Buf {
    type C = u64;
    fn as_c(&self) -> *mut u64 {
        self.c.get()
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.memory, self.layout) };
    }
}

c_api! {
    fn ibv_alloc_buf(pd: *mut ibv_pd, size: usize, buf: *mut *mut u64) -> *mut c_void {
        let run = || {
            let pd = Use::<Pd>::find(pd)?;
            let pages = size.max(1).checked_next_multiple_of(4096).ok_or(libc::EINVAL)?;
            let layout = Layout::from_size_align(pages, 4096).map_err(|_| libc::EINVAL)?;
            if buf.is_null() {
                return Err(libc::EINVAL);
            }
            // SAFETY: the size is not zero.
            let memory = unsafe { alloc_zeroed(layout) };
            if memory.is_null() {
                return Err(libc::ENOMEM);
            }
            let made = registry::publish(Arc::new(Buf { c: UnsafeCell::new(0), memory, layout, size, pd }));
            unsafe { buf.write(made) };
            Ok(memory.cast())
        };
        answer(run())
    }

    fn ibv_free_buf(buf: *mut u64) {
        registry::withdraw::<Buf>(buf);
    }

    fn ibv_reg_buf_mr(
        pd: *mut ibv_pd,
        buf: *mut u64,
        addr: *mut c_void,
        length: usize,
        access: c_int,
    ) -> *mut ibv_mr {
        let run = || {
            let (pd, buf) = (Use::<Pd>::find(pd)?, registry::find::<Buf>(buf)?);
            let offset = (addr as usize).checked_sub(buf.memory as usize).ok_or(libc::EINVAL)?;
            let fits = offset.checked_add(length).is_some_and(|end| end <= buf.size);
            if !fits || !Arc::ptr_eq(&pd, &buf.pd) {
                return Err(libc::EINVAL);
            }
            Mr::register(pd, Range { addr, length, iova: addr as u64 }, access as c_uint)
        };
        answer(run())
    }
}
