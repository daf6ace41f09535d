//! The stock library in its namespace: functions by name, and the `errno` that they set.

use super::place;
use crate::abi::*;
use std::ffi::{CStr, CString};
use std::path::Path;
use std::ptr::NonNull;

type ListDevices = unsafe extern "C-unwind" fn(*mut c_int) -> *mut *mut ibv_device;
type OpenDevice = unsafe extern "C-unwind" fn(*mut ibv_device) -> *mut ibv_context;
type CloseDevice = unsafe extern "C-unwind" fn(*mut ibv_context) -> c_int;
type ImportDevice = unsafe extern "C-unwind" fn(c_int) -> *mut ibv_context;
type ErrnoLocation = unsafe extern "C-unwind" fn() -> *mut c_int;

/// A loaded library. It is never unloaded: its objects may live as long as the process.
pub(super) struct Library {
    handle: NonNull<c_void>,
    list_devices: ListDevices,
    open_device: OpenDevice,
    close_device: CloseDevice,
    import_device: Option<ImportDevice>,
    errno_location: ErrnoLocation,
}

// SAFETY: the handle and the functions belong to the process, not to a thread.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Loads the object into a namespace of its own.
    ///
    /// # Errors
    /// The linker's message.
    pub(super) fn load(path: &Path) -> Result<Library, String> {
        let path = place::c_path(path).ok_or("the path has a zero in it")?;
        let flags = libc::RTLD_NOW | libc::RTLD_LOCAL;
        // SAFETY: a path; loading runs the object's constructors, as in every program that uses it.
        let handle = unsafe { libc::dlmopen(libc::LM_ID_NEWLM, path.as_ptr(), flags) };
        let handle = NonNull::new(handle).ok_or_else(linker_error)?;
        let symbol = |name: &CStr| {
            // SAFETY: the handle is open, the name a C string.
            NonNull::new(unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) })
        };
        let needed =
            |name: &CStr| symbol(name).ok_or_else(|| format!("it has no {}", name.to_string_lossy()));
        // SAFETY: these are the types of the functions of these names; a pointer to a function is one to void in size.
        unsafe {
            Ok(Library {
                handle,
                list_devices: std::mem::transmute::<NonNull<c_void>, ListDevices>(needed(
                    c"ibv_get_device_list",
                )?),
                open_device: std::mem::transmute::<NonNull<c_void>, OpenDevice>(needed(c"ibv_open_device")?),
                close_device: std::mem::transmute::<NonNull<c_void>, CloseDevice>(needed(
                    c"ibv_close_device",
                )?),
                import_device: symbol(c"ibv_import_device")
                    .map(|found| std::mem::transmute::<NonNull<c_void>, ImportDevice>(found)),
                errno_location: std::mem::transmute::<NonNull<c_void>, ErrnoLocation>(needed(
                    c"__errno_location",
                )?),
            })
        }
    }

    /// The devices, which stay valid: the list that holds them is kept.
    pub(super) fn devices(&self) -> Vec<*mut ibv_device> {
        let mut count = 0;
        // SAFETY: as the interface has it.
        let list = unsafe { (self.list_devices)(&mut count) };
        if list.is_null() {
            return Vec::new();
        }
        // SAFETY: the list has that many devices.
        (0..usize::try_from(count).unwrap_or(0)).map(|n| unsafe { *list.add(n) }).collect()
    }

    pub(super) fn open_device(&self, device: *mut ibv_device) -> *mut ibv_context {
        // SAFETY: the device is of this library's list.
        let context = unsafe { (self.open_device)(device) };
        self.hand_errno_over();
        context
    }

    pub(super) fn import_device(&self, command: c_int) -> *mut ibv_context {
        let Some(import) = self.import_device else {
            return crate::boundary::Failure::failure(libc::EOPNOTSUPP);
        };
        // SAFETY: a number, which the library checks.
        let context = unsafe { import(command) };
        self.hand_errno_over();
        context
    }

    pub(super) fn close_device(&self, context: *mut ibv_context) -> c_int {
        // SAFETY: the context is open, and this library's.
        let result = unsafe { (self.close_device)(context) };
        self.hand_errno_over();
        result
    }

    /// A function by its name, under its default version.
    pub(super) fn function(&self, name: &str) -> Option<*mut c_void> {
        let name = CString::new(name).ok()?;
        // SAFETY: the handle is open, the name a C string.
        let found = unsafe { libc::dlsym(self.handle.as_ptr(), name.as_ptr()) };
        (!found.is_null()).then_some(found)
    }

    pub(super) fn clear_errno(&self) {
        // SAFETY: each thread has one, in each namespace.
        unsafe { *(self.errno_location)() = 0 };
    }

    /// Gives this thread the `errno` of the other namespace, if it has one.
    pub(super) fn hand_errno_over(&self) {
        // SAFETY: as above.
        let errno = unsafe { *(self.errno_location)() };
        if errno != 0 {
            crate::boundary::set_errno(errno);
        }
    }
}

fn linker_error() -> String {
    // SAFETY: the text of this thread's last error, a C string or null.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the linker does not say why".into();
    }
    // SAFETY: as above.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The word at an address, if there is memory: a program may have passed in any address.
pub(super) fn word_at(address: usize) -> Option<usize> {
    let mut word = 0usize;
    let local = libc::iovec { iov_base: (&raw mut word).cast(), iov_len: size_of::<usize>() };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: size_of::<usize>() };
    // SAFETY: it writes a word to `word`, and looks at the address only as far as there is memory.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    (read == size_of::<usize>() as isize).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_memory_has_no_word() {
        let there = 7usize;
        assert_eq!(word_at((&raw const there) as usize), Some(7));
        assert_eq!(word_at(8), None);
        assert_eq!(word_at(usize::MAX - 3), None);
    }

    #[test]
    fn what_is_no_library_says_so() {
        let error = Library::load(Path::new("/proc/self/status")).err().expect("no library");
        assert!(error.contains("status"), "{error}");
        let error =
            Library::load(Path::new("/lib/x86_64-linux-gnu/libc.so.6")).err().expect("another library");
        assert!(error.contains("ibv_get_device_list") || error.contains("cannot open"), "{error}");
    }
}
