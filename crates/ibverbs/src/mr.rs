//! Memory regions.

use crate::abi::*;
use crate::boundary::{answer, c_api, c_ops, code, set_errno};
use crate::dm::Dm;
use crate::errno;
use crate::faults::Counted;
use crate::implicit::{self, Implicit};
use crate::pd::Pd;
use crate::refusal::refused;
use crate::registry::{self, Object, Use};
use highwire_host::{MemoryChange, MemoryRegion, RegisterOptions};
use highwire_verbs::{Access, LocalKey};
use std::cell::UnsafeCell;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// A memory region.
#[repr(C)]
pub(crate) struct Mr {
    c: UnsafeCell<ibv_mr>,
    inner: Mutex<Inner>,
}

struct Inner {
    /// None once it is deregistered.
    region: Option<MemoryRegion>,
    pd: Use<Pd>,
    access: c_uint,
    is_imported: bool,
    implicit: Option<Implicit>,
    _memory: Option<Use<Dm>>,
    /// Its part of a scenario's limit.
    counted: Option<Counted>,
}

// SAFETY: the pointers in `c` are to objects that never move; its keys change under `inner`'s lock, and only
// when C asks for it.
unsafe impl Send for Mr {}
// SAFETY: as above.
unsafe impl Sync for Mr {}

impl Object for Mr {
    type C = ibv_mr;
    const LIMIT: usize = crate::limits::MAX_MR as usize;
    fn as_c(&self) -> *mut ibv_mr {
        self.c.get()
    }
    fn handle(&self) -> u32 {
        // SAFETY: C's structure, which lives as long as the object.
        unsafe { (*self.c.get()).handle }
    }
}

/// The memory to be registered.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    pub(crate) iova: u64,
}

/// Bits that change nothing here: memory needs not be pinned, huge pages are pages, order is always strict.
const IGNORED: c_uint = IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | IBV_ACCESS_OPTIONAL_RANGE;
const KNOWN: c_uint = IGNORED | 0b11_1111;

pub(crate) fn access_of(bits: c_uint) -> Result<Access, c_int> {
    if bits & (IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT) != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    if bits & !KNOWN != 0 {
        let unknown = bits & !KNOWN;
        return Err(refused(libc::EINVAL, || format!("access has bits that do not exist: {unknown:#x}")));
    }
    Ok(Access::from_bits_truncate(bits & !IGNORED))
}

impl Mr {
    pub(crate) fn register(pd: Use<Pd>, range: Range, access: c_uint) -> Result<*mut ibv_mr, c_int> {
        if access & IBV_ACCESS_ON_DEMAND != 0 && implicit::is_meant(range.addr, range.length) {
            return Mr::register_implicit(pd, range, access);
        }
        let counted = Counted::new(pd.context.index, range.length as u64)?;
        let region = region(&pd, range, access)?;
        let made = Mr::publish(pd, region, range, access, None)?;
        if counted.is_some() {
            registry::with::<Mr, _>(made, |mr| mr.inner().counted = counted);
        }
        Ok(made)
    }

    /// Registers all memory that there is and will be.
    fn register_implicit(pd: Use<Pd>, range: Range, access: c_uint) -> Result<*mut ibv_mr, c_int> {
        let permitted = access_of(access)?;
        implicit::check(permitted)?;
        let options = RegisterOptions { iova: Some(0), in_place: false };
        // SAFETY: posting a request finds out which of its addresses are no memory, and C promises that
        // memory stays mapped until the request has completed.
        let region =
            unsafe { pd.host.register_with(std::ptr::null_mut(), implicit::BYTES, permitted, &options) };
        let region = region.map_err(|error| errno::of_memory(&error))?;
        let noted = Implicit::note(region.lkey());
        let mr = Mr::publish(pd, region, range, access, None)?;
        registry::with::<Mr, _>(mr, |mr| mr.inner().implicit = Some(noted));
        Ok(mr)
    }

    /// Hands a region to C, with the device memory that it lies in, if it does.
    ///
    /// # Errors
    /// ENOMEM if there are as many as the device announces.
    pub(crate) fn publish(
        pd: Use<Pd>,
        region: MemoryRegion,
        range: Range,
        access: c_uint,
        memory: Option<Use<Dm>>,
    ) -> Result<*mut ibv_mr, c_int> {
        let c = UnsafeCell::new(ibv_mr {
            context: pd.context.as_c(),
            pd: pd.as_c(),
            addr: range.addr,
            length: range.length,
            handle: region.lkey().0,
            lkey: region.lkey().0,
            rkey: region.rkey().0,
        });
        let inner = Mutex::new(Inner {
            region: Some(region),
            pd,
            access,
            is_imported: false,
            implicit: None,
            _memory: memory,
            counted: None,
        });
        registry::publish(Arc::new(Mr { c, inner }))
    }

    /// # Errors The error and the state of the region, as `ibv_rereg_mr` returns it.
    fn change(
        &self,
        flags: c_uint,
        pd: *mut ibv_pd,
        range: Option<Range>,
        access: c_int,
    ) -> Result<(), (c_int, c_int)> {
        let input = |errno| (IBV_REREG_MR_ERR_INPUT, errno);
        let mut inner = self.inner();
        if inner.implicit.is_some() {
            return Err(input(libc::EOPNOTSUPP));
        }
        let new_pd = match flags & IBV_REREG_MR_CHANGE_PD {
            0 => None,
            _ => Some(Use::<Pd>::find(pd).map_err(input)?),
        };
        let access = match flags & IBV_REREG_MR_CHANGE_ACCESS {
            0 => inner.access,
            _ => access as c_uint,
        };
        let permitted = access_of(access).map_err(input)?;
        if let Some(range) = range.filter(|_| access & IBV_ACCESS_ON_DEMAND == 0) {
            populate(range, permitted.contains(Access::LOCAL_WRITE)).map_err(input)?;
        }
        let change = MemoryChange {
            pd: new_pd.as_ref().map(|pd| &pd.host),
            memory: range.map(|range| (range.addr.cast(), range.length, iova_of(range, permitted))),
            access: (flags & IBV_REREG_MR_CHANGE_ACCESS != 0).then_some(permitted),
        };
        let counted = match (range, &inner.counted) {
            (Some(range), Some(before)) => before.resized(range.length as u64).map_err(input)?,
            _ => None,
        };
        let region = inner.region.as_mut().ok_or((IBV_REREG_MR_ERR_INPUT, libc::EINVAL))?;
        // SAFETY: C promises that the memory stays where it is until it is deregistered.
        let changed = unsafe { region.reregister(&change) };
        changed.map_err(|error| input(errno::of_register(&error)))?;
        if counted.is_some() {
            inner.counted = counted;
        }
        // SAFETY: changed only here, under the lock.
        let c = unsafe { &mut *self.c.get() };
        if let Some(range) = range {
            (c.addr, c.length) = (range.addr, range.length);
        }
        inner.access = access;
        if let Some(pd) = new_pd {
            c.pd = pd.as_c();
            inner.pd = pd;
        }
        Ok(())
    }

    fn deregister(&self) -> Result<(), c_int> {
        let mut inner = self.inner();
        let region = inner.region.take().ok_or(libc::EINVAL)?;
        region.deregister().map_err(|(region, error)| {
            inner.region = Some(region);
            errno::of_register(&error)
        })?;
        inner.counted = None;
        Ok(())
    }

    fn iova_and_access(&self) -> (u64, c_uint) {
        let inner = self.inner();
        (inner.region.as_ref().map_or(0, MemoryRegion::addr), inner.access)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn region(pd: &Pd, range: Range, access: c_uint) -> Result<MemoryRegion, c_int> {
    let permitted = access_of(access)?;
    let is_pinned = access & IBV_ACCESS_ON_DEMAND == 0;
    if is_pinned {
        populate(range, permitted.contains(Access::LOCAL_WRITE))?;
    }
    let in_place = is_pinned && crate::env::settings().is_some_and(|settings| settings.moves_memory);
    let options = RegisterOptions { iova: Some(iova_of(range, permitted)), in_place };
    // SAFETY: C promises that the memory stays where it is until it is deregistered, and that nothing writes to it while
    // it is being registered.
    let registered = unsafe { pd.host.register_with(range.addr.cast(), range.length, permitted, &options) };
    registered.map_err(|error| errno::of_memory(&error))
}

/// By which address keys refer to the first byte: zero for a zero-based region, even if another address was asked for.
fn iova_of(range: Range, permitted: Access) -> u64 {
    if permitted.contains(Access::ZERO_BASED) { 0 } else { range.iova }
}

/// Brings the pages in, as pinning them would, which also tells whether they are there, and may be written to.
///
/// # Errors
/// EFAULT for memory that is not mapped, or not with the rights that the region asks for: the kernel's drivers cannot pin it.
fn populate(range: Range, is_written: bool) -> Result<(), c_int> {
    if range.length == 0 {
        return Ok(());
    }
    let first = range.addr as usize & !0xFFF;
    let end = (range.addr as usize).checked_add(range.length).ok_or(libc::EINVAL)?;
    let advice = if is_written { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
    match advise(first, end - first, advice) {
        // Missing rights are EINVAL, and so is an advice that the kernel does not know: those before 5.14, and some sandboxes.
        Err(libc::EINVAL) if !knows_populate() => {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
            if is_permitted(&maps, first..end, is_written) {
                Ok(())
            } else {
                Err(unmapped(range, is_written))
            }
        }
        Err(libc::EINVAL | libc::ENOMEM) => Err(unmapped(range, is_written)),
        result => result,
    }
}

/// EFAULT, and its reason.
fn unmapped(range: Range, is_written: bool) -> c_int {
    refused(libc::EFAULT, || {
        let needed = if is_written { "readable and writable" } else { "readable" };
        let (addr, length) = (range.addr as usize, range.length);
        format!("not all of {length} bytes at {addr:#x} are mapped and {needed}; access asks for that")
    })
}

fn advise(first: usize, length: usize, advice: c_int) -> Result<(), c_int> {
    // SAFETY: it changes nothing but whether pages are present.
    let done = unsafe { libc::madvise(first as *mut c_void, length, advice) };
    if done == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EFAULT))
    }
}

/// Whether the kernel can be asked to bring pages in: tried on memory for which the call must succeed.
fn knows_populate() -> bool {
    static KNOWS: LazyLock<bool> = LazyLock::new(|| {
        let here = 0u8;
        let page = std::ptr::from_ref(&here).addr() & !0xFFF;
        advise(page, 0x1000, libc::MADV_POPULATE_READ).is_ok()
    });
    *KNOWS
}

/// Whether the kernel's list of mappings (`/proc/self/maps`) has all of a range, readable, and writable if that is needed.
fn is_permitted(maps: &str, range: std::ops::Range<usize>, is_written: bool) -> bool {
    let mut at = range.start;
    for line in maps.lines() {
        let mut words = line.split_ascii_whitespace();
        let (Some((start, end)), Some(rights)) =
            (words.next().and_then(|word| word.split_once('-')), words.next())
        else {
            continue;
        };
        let hex = |text| usize::from_str_radix(text, 16).unwrap_or(0);
        if !(hex(start)..hex(end)).contains(&at) {
            continue;
        }
        if !rights.starts_with('r') || is_written && rights.as_bytes().get(1) != Some(&b'w') {
            return false;
        }
        at = hex(end);
        if at >= range.end {
            return true;
        }
    }
    false
}

/// The common part of all calls that register.
fn register(pd: *mut ibv_pd, range: Range, access: c_uint) -> *mut ibv_mr {
    answer(Use::<Pd>::find(pd).and_then(|pd| Mr::register(pd, range, access)))
}

c_api! {
    fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int) -> *mut ibv_mr {
        register(pd, Range { addr, length, iova: addr as u64 }, access as c_uint)
    }

    fn ibv_reg_mr_iova(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        access: c_int,
    ) -> *mut ibv_mr {
        register(pd, Range { addr, length, iova }, access as c_uint)
    }

    fn ibv_reg_mr_iova2(
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        iova: u64,
        access: c_uint,
    ) -> *mut ibv_mr {
        register(pd, Range { addr, length, iova }, access)
    }

    /// There is no memory but this process's own that a software device could reach.
    fn ibv_reg_dmabuf_mr(
        pd: *mut ibv_pd,
        _offset: u64,
        _length: usize,
        _iova: u64,
        _fd: c_int,
        _access: c_int,
    ) -> *mut ibv_mr {
        answer(registry::find::<Pd>(pd).and(Err(libc::EOPNOTSUPP)))
    }

    fn ibv_rereg_mr(
        mr: *mut ibv_mr,
        flags: c_int,
        pd: *mut ibv_pd,
        addr: *mut c_void,
        length: usize,
        access: c_int,
    ) -> c_int {
        let flags = flags as c_uint;
        let known = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
        let moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION != 0;
        let is_wrong = flags & !known != 0 || flags == 0 || (moves && (length == 0 || addr.is_null()));
        let run = || {
            let mr = registry::find::<Mr>(mr).map_err(|errno| (IBV_REREG_MR_ERR_INPUT, errno))?;
            if is_wrong {
                return Err((IBV_REREG_MR_ERR_INPUT, libc::EINVAL));
            }
            mr.change(flags, pd, moves.then_some(Range { addr, length, iova: addr as u64 }), access)
        };
        match run() {
            Ok(()) => 0,
            Err((what, errno)) => {
                set_errno(errno);
                what
            }
        }
    }

    fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int {
        let run = || {
            // While a window is bound to it, `ibv_dereg_mr(3)` fails.
            registry::find::<Mr>(mr)?.deregister()?;
            registry::withdraw::<Mr>(mr);
            Ok(())
        };
        code(run())
    }

    /// Imports a region of this process, by registering the same memory once more.
    fn ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
        let run = || {
            let pd = Use::<Pd>::find(pd)?;
            // SAFETY: handles do not change.
            let has_handle = |mr: &Mr| unsafe { (*mr.c.get()).handle } == handle && !mr.inner().is_imported;
            let mr = registry::first::<Mr>(has_handle).ok_or(libc::ENOENT)?;
            // SAFETY: the caller promises, as for `ibv_rereg_mr`, not to change a region that another thread uses.
            let (addr, length) = unsafe { ((*mr.c.get()).addr, (*mr.c.get()).length) };
            let (iova, access) = mr.iova_and_access();
            let imported = Mr::register(pd, Range { addr, length, iova }, access)?;
            registry::with::<Mr, _>(imported, |mr| mr.inner().is_imported = true);
            Ok(imported)
        };
        answer(run())
    }

    fn ibv_unimport_mr(mr: *mut ibv_mr) {
        registry::withdraw::<Mr>(mr);
    }
}

c_ops! {
    /// Nothing is pinned, so there is nothing to fetch: only checks the arguments.
    fn advise_mr(
        pd: *mut ibv_pd,
        advice: ibv_advise_mr_advice,
        flags: u32,
        sges: *mut ibv_sge,
        count: u32,
    ) -> c_int {
        let run = || {
            registry::find::<Pd>(pd)?;
            let is_known = advice <= IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
            if !is_known || flags & !IBV_ADVISE_MR_FLAG_FLUSH != 0 {
                return Err(libc::EOPNOTSUPP);
            }
            if sges.is_null() || count == 0 {
                return Err(libc::EINVAL);
            }
            for index in 0..count as usize {
                let sge = unsafe { sges.add(index).read() };
                let range = Range { addr: sge.addr as *mut c_void, length: sge.length as usize, iova: sge.addr };
                if advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT {
                    populate(range, advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE)?;
                }
            }
            Ok(())
        };
        code(run())
    }

    fn alloc_null_mr(pd: *mut ibv_pd) -> *mut ibv_mr {
        let run = || {
            let pd = Use::<Pd>::find(pd)?;
            let region = pd.host.null_region();
            let range = Range { addr: std::ptr::null_mut(), length: usize::MAX, iova: 0 };
            Mr::publish(pd, region, range, IBV_ACCESS_LOCAL_WRITE, None)
        };
        answer(run())
    }
}

impl Mr {
    /// The region's local key.
    ///
    /// # Errors
    /// EINVAL once it is deregistered.
    pub(crate) fn lkey(&self) -> Result<LocalKey, c_int> {
        self.inner().region.as_ref().map(MemoryRegion::lkey).ok_or(libc::EINVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page with rights.
    fn page(rights: c_int) -> *mut c_void {
        // SAFETY: a new page at a place of the kernel's choice.
        let page = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(std::ptr::null_mut(), 0x1000, rights, flags, -1, 0)
        };
        assert_ne!(page, libc::MAP_FAILED);
        page
    }

    fn range(addr: *mut c_void, length: usize) -> Range {
        Range { addr, length, iova: addr as u64 }
    }

    #[test]
    fn memory_that_may_not_be_written_to_is_not_registered_for_writing() {
        let (read, write) = (libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE);
        let text = populate as *const () as *mut c_void;
        for (addr, for_reading, for_writing) in [
            (page(write), Ok(()), Ok(())),
            (page(read), Ok(()), Err(libc::EFAULT)),
            (text, Ok(()), Err(libc::EFAULT)),
            (page(libc::PROT_NONE), Err(libc::EFAULT), Err(libc::EFAULT)),
            (std::ptr::null_mut(), Err(libc::EFAULT), Err(libc::EFAULT)),
        ] {
            let results = (populate(range(addr, 8), false), populate(range(addr, 8), true));
            assert_eq!(results, (for_reading, for_writing), "{addr:?}");
        }
        // Another test's thread may map memory at the address before it is looked at.
        let is_refused = || {
            let gone = page(write);
            // SAFETY: the page is ours.
            unsafe { libc::munmap(gone, 0x1000) };
            populate(range(gone, 8), false) == Err(libc::EFAULT)
        };
        assert!((0..100).any(|_| is_refused()), "memory that is gone");
    }

    #[test]
    fn without_the_kernels_help_its_list_of_mappings_decides() {
        let maps = "\
            00001000-00003000 r--p 00000000 00:00 0\n\
            00003000-00004000 rw-p 00000000 00:00 0    [heap]\n\
            00004000-00005000 rw-s 00000000 00:01 7    /dev/shm/a b\n\
            00006000-00007000 ---p 00000000 00:00 0\n";
        for (range, is_written, expected) in [
            (0x1000..0x5000, false, true),
            (0x3000..0x5000, true, true),
            (0x2000..0x4000, true, false),
            (0x4000..0x6000, false, false),
            (0x6000..0x7000, false, false),
            (0x8000..0x9000, false, false),
        ] {
            assert_eq!(is_permitted(maps, range.clone(), is_written), expected, "{range:x?} {is_written}");
        }
    }
}
