//! Buffers that the library allocates (`ibv_alloc_buf(3)`), and the call that registers them and any other
//! memory.

use crate::abi::*;
use crate::boundary::{answer, c_api, minus_one};
use crate::mr::{Mr, Range};
use crate::pd::Pd;
use crate::registry::{self, Object, Use};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::UnsafeCell;
use std::sync::Arc;

/// A buffer, which is opaque to C.
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

impl Buf {
    /// Registers part of the buffer.
    ///
    /// # Errors
    /// EINVAL beyond its end, or in another protection domain than it was allocated in.
    fn register(&self, pd: Use<Pd>, range: Range, access: c_uint) -> Result<*mut ibv_mr, c_int> {
        let offset = (range.addr as usize).checked_sub(self.memory as usize).ok_or(libc::EINVAL)?;
        let fits = offset.checked_add(range.length).is_some_and(|end| end <= self.size);
        if !fits || !Arc::ptr_eq(&pd, &self.pd) {
            return Err(libc::EINVAL);
        }
        Mr::register(pd, range, access)
    }
}

/// `ibv_reg_mr_ex`.
///
/// # Safety
/// `attr` is null or has the fields that its mask names.
unsafe fn register(pd: *mut ibv_pd, attr: *const ibv_mr_init_attr) -> Result<*mut ibv_mr, c_int> {
    let known = IBV_REG_MR_MASK_IOVA
        | IBV_REG_MR_MASK_ADDR
        | IBV_REG_MR_MASK_FD
        | IBV_REG_MR_MASK_FD_OFFSET
        | IBV_REG_MR_MASK_DMAH
        | IBV_REG_MR_MASK_BUF;
    let pd = Use::<Pd>::find(pd)?;
    if attr.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: every version has these; a newer field is read only if the mask has its bit.
    let (mask, addr, length, access, iova) = unsafe {
        let access = (&raw const (*attr).access).read_unaligned();
        let addr = (&raw const (*attr).addr).read_unaligned();
        let length = (&raw const (*attr).length).read_unaligned();
        let mask = (&raw const (*attr).comp_mask).read_unaligned();
        (mask, addr, length, access as c_uint, (&raw const (*attr).iova).read_unaligned())
    };
    let has = |bit| mask & bit != 0;
    if mask & !known != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    // `ibv_reg_mr(3)`: one of both, and a buffer needs an address in it and brings its own descriptor.
    if has(IBV_REG_MR_MASK_ADDR) == has(IBV_REG_MR_MASK_FD)
        || has(IBV_REG_MR_MASK_BUF) && has(IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET)
    {
        return Err(libc::EINVAL);
    }
    // Neither memory of other devices nor steering tags of a PCI bus: `absent` has given out none.
    if has(IBV_REG_MR_MASK_FD | IBV_REG_MR_MASK_FD_OFFSET | IBV_REG_MR_MASK_DMAH) {
        return Err(libc::EOPNOTSUPP);
    }
    let range = Range { addr, length, iova: if has(IBV_REG_MR_MASK_IOVA) { iova } else { addr as u64 } };
    if !has(IBV_REG_MR_MASK_BUF) {
        return Mr::register(pd, range, access);
    }
    // SAFETY: the mask says that it is there.
    let buf = unsafe { (&raw const (*attr).buf).read_unaligned() };
    registry::find::<Buf>(buf)?.register(pd, range, access)
}

c_api! {
    fn ibv_reg_mr_ex(pd: *mut ibv_pd, attr: *const ibv_mr_init_attr) -> *mut ibv_mr {
        answer(register(pd, attr))
    }

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
            let made = registry::publish(Arc::new(Buf { c: UnsafeCell::new(0), memory, layout, size, pd }))?;
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
            buf.register(pd, Range { addr, length, iova: addr as u64 }, access as c_uint)
        };
        answer(run())
    }

    /// A buffer of ours is ordinary memory, and no descriptor stands for it.
    fn ibv_export_buf_dmabuf_fd(buf: *mut u64) -> c_int {
        minus_one(registry::find::<Buf>(buf).and(Err(libc::ENODATA)))
    }
}
