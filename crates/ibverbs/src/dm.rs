//! Device memory: memory of the process, for a device that has none of its own.

use crate::abi::*;
use crate::boundary::{answer, c_api, c_ops, code, input};
use crate::context::Context;
use crate::errno;
use crate::limits::MAX_DM;
use crate::mr::{Mr, Range, access_of};
use crate::pd::Pd;
use crate::registry::{self, Object, Use, Used, Users};
use highwire_host::{DeviceMemory, MemoryRegion};
use highwire_verbs::Access;
use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

/// A piece of device memory.
#[repr(C)]
pub(crate) struct Dm {
    c: UnsafeCell<ibv_dm>,
    context: Use<Context>,
    memory: Memory,
    length: usize,
    users: Users,
}

// SAFETY: C and peers write to the memory under verbs' own rules; everything else is only read.
unsafe impl Send for Dm {}
// SAFETY: as above.
unsafe impl Sync for Dm {}

impl Object for Dm {
    type C = ibv_dm;
    fn as_c(&self) -> *mut ibv_dm {
        self.c.get()
    }
}

impl Used for Dm {
    fn users(&self) -> &Users {
        &self.users
    }
}

impl Drop for Dm {
    fn drop(&mut self) {
        IN_USE.fetch_sub(self.length as u64, Ordering::SeqCst);
    }
}

static IN_USE: AtomicU64 = AtomicU64::new(0);
static HANDLE: AtomicU32 = AtomicU32::new(1);

impl Dm {
    fn allocate(
        context: Use<Context>,
        attr: &ibv_alloc_dm_attr,
        is_inherited: bool,
    ) -> Result<Arc<Dm>, c_int> {
        if attr.comp_mask != 0 || attr.length == 0 {
            return Err(libc::EINVAL);
        }
        if attr.length as u64 > MAX_DM || attr.log_align_req > 20 {
            return Err(libc::ENOMEM);
        }
        let size = attr.length as u64;
        let fits = |used: u64| (used + size <= MAX_DM).then_some(used + size);
        IN_USE.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).map_err(|_| libc::ENOMEM)?;
        let memory = if is_inherited { Memory::private(attr) } else { Memory::allocate(&context, attr) };
        let c = UnsafeCell::new(ibv_dm {
            context: context.as_c(),
            memcpy_to_dm: Some(memcpy_to_dm),
            memcpy_from_dm: Some(memcpy_from_dm),
            comp_mask: IBV_DM_MASK_HANDLE,
            handle: HANDLE.fetch_add(1, Ordering::Relaxed),
        });
        Ok(Arc::new(Dm { c, context, memory, length: attr.length, users: Users::default() }))
    }
}

/// The place of the memory.
enum Memory {
    /// In memory that neighbours reach.
    Shared(DeviceMemory),
    /// In this process alone, because there was no room or the device is a parent's; peers reach it with packets.
    Private(Box<[AtomicU8]>),
}

impl Memory {
    fn allocate(context: &Context, attr: &ibv_alloc_dm_attr) -> Memory {
        let align = (1 << attr.log_align_req).max(64);
        match context.device.device_memory(attr.length, align) {
            Ok(memory) => Memory::Shared(memory),
            Err(_) => Memory::private(attr),
        }
    }

    fn private(attr: &ibv_alloc_dm_attr) -> Memory {
        Memory::Private((0..attr.length).map(|_| AtomicU8::new(0)).collect())
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), c_int> {
        match self {
            Memory::Shared(memory) => memory.write(offset, bytes).map_err(|error| errno::of_memory(&error)),
            Memory::Private(memory) => {
                let to = piece(memory, offset, bytes.len())?;
                to.iter().zip(bytes).for_each(|(to, byte)| to.store(*byte, Ordering::Relaxed));
                Ok(())
            }
        }
    }

    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), c_int> {
        match self {
            Memory::Shared(memory) => memory.read(offset, bytes).map_err(|error| errno::of_memory(&error)),
            Memory::Private(memory) => {
                let from = piece(memory, offset, bytes.len())?;
                bytes.iter_mut().zip(from).for_each(|(byte, from)| *byte = from.load(Ordering::Relaxed));
                Ok(())
            }
        }
    }

    fn register(&self, pd: &Pd, offset: usize, length: usize, access: Access) -> Result<MemoryRegion, c_int> {
        let registered = match self {
            Memory::Shared(memory) => pd.host.register_device_memory(memory, offset, length, access),
            Memory::Private(memory) => {
                let start = piece(memory, offset, length)?.as_ptr().cast_mut().cast();
                // SAFETY: the region's owner keeps this memory until the region is gone.
                unsafe { pd.host.register_at(start, length, 0, access) }
            }
        };
        registered.map_err(|error| errno::of_memory(&error))
    }
}

fn piece(memory: &[AtomicU8], offset: usize, length: usize) -> Result<&[AtomicU8], c_int> {
    let end = offset.checked_add(length).ok_or(libc::EINVAL)?;
    memory.get(offset..end).ok_or(libc::EINVAL)
}

/// Device memory is copied to and from in words, as on cards.
fn is_in_words(offset: u64, length: usize) -> Result<usize, c_int> {
    let offset = usize::try_from(offset).map_err(|_| libc::EINVAL)?;
    if (offset | length).is_multiple_of(4) { Ok(offset) } else { Err(libc::EINVAL) }
}

c_ops! {
    fn memcpy_to_dm(dm: *mut ibv_dm, offset: u64, from: *const c_void, length: usize) -> c_int {
        let run = || {
            let dm = registry::find::<Dm>(dm)?;
            let offset = is_in_words(offset, length)?;
            if length > dm.length || from.is_null() {
                return Err(libc::EINVAL);
            }
            let bytes = unsafe { std::slice::from_raw_parts(from.cast(), length) };
            dm.memory.write(offset, bytes)
        };
        code(run())
    }

    fn memcpy_from_dm(to: *mut c_void, dm: *mut ibv_dm, offset: u64, length: usize) -> c_int {
        let run = || {
            let dm = registry::find::<Dm>(dm)?;
            let offset = is_in_words(offset, length)?;
            if length > dm.length || to.is_null() {
                return Err(libc::EINVAL);
            }
            let bytes = unsafe { std::slice::from_raw_parts_mut(to.cast(), length) };
            dm.memory.read(offset, bytes)
        };
        code(run())
    }

    fn alloc_dm(context: *mut ibv_context, attr: *mut ibv_alloc_dm_attr) -> *mut ibv_dm {
        let run = || {
            let (owner, context) = registry::find_inherited::<Context>(context)?;
            let attr = unsafe { input(attr)? };
            let is_inherited = !owner.is_this();
            registry::publish(Dm::allocate(Use::of(&context), &attr, is_inherited)?)
        };
        answer(run())
    }

    fn free_dm(dm: *mut ibv_dm) -> c_int {
        let run = || {
            registry::find::<Dm>(dm)?.users.none()?;
            registry::withdraw::<Dm>(dm);
            Ok(())
        };
        code(run())
    }

    fn reg_dm_mr(pd: *mut ibv_pd, dm: *mut ibv_dm, offset: u64, length: usize, access: c_uint) -> *mut ibv_mr {
        let run = || {
            let dm = Use::<Dm>::find(dm)?;
            let pd = Pd::of_context(pd, &dm.context)?;
            // `ibv_alloc_dm(3)`: such regions are zero-based.
            if access & IBV_ACCESS_ZERO_BASED == 0 {
                return Err(libc::EINVAL);
            }
            let start = usize::try_from(offset).map_err(|_| libc::EINVAL)?;
            let region = dm.memory.register(&pd, start, length, access_of(access)?)?;
            let range = Range { addr: std::ptr::null_mut(), length, iova: 0 };
            Mr::publish(pd, region, range, access, Some(dm))
        };
        answer(run())
    }
}

c_api! {
    fn ibv_import_dm(context: *mut ibv_context, handle: u32) -> *mut ibv_dm {
        let run = || {
            registry::find::<Context>(context)?;
            // SAFETY: handles do not change.
            let dm = registry::first::<Dm>(|dm| unsafe { (*dm.c.get()).handle } == handle);
            // Memory of this process can be imported, as the very same object.
            Ok(dm.ok_or(libc::ENOENT)?.as_c())
        };
        answer(run())
    }

    fn ibv_unimport_dm(_dm: *mut ibv_dm) {}

    fn ibv_dm_export_dmabuf_fd(dm: *mut ibv_dm) -> c_int {
        crate::boundary::minus_one(registry::find::<Dm>(dm).and(Err(libc::EOPNOTSUPP)))
    }
}
