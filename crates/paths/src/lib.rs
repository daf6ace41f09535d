//! The path virtualiser: programs look for RDMA devices below `/sys/class/infiniband` and `/dev/infiniband`
//! before they believe a library, and without a kernel module these folders do not exist. This object,
//! preloaded, shows them Highwire's device there.
//!
//! This object defines the C library's functions that take a path again. Each compares the first bytes of its
//! path; all paths but the device's go on to the C library's function, looked up with `RTLD_NEXT`. The
//! device's paths are redirected to a private folder of real files (`tree`), so that directory streams,
//! descriptors and relative names work as with any folder.
//!
//! It is an object of its own, and not part of `libibverbs.so.1`, because functions are taken over only by
//! symbols without a version, by preloading, and in programs that have nothing to do with verbs: shells,
//! Python, `ls`.
//!
//! Invariant: a path that is not the device's costs a comparison, takes no lock, allocates nothing and leaves
//! `errno` alone.
#![warn(unsafe_op_in_unsafe_fn)]
#![cfg_attr(test, allow(dead_code, reason = "what calls need"))]

// A test that took the C library's functions over would test itself.
#[cfg(not(test))]
mod calls;
mod identity;
mod original;
mod redirect;
mod tree;

/// The C library's functions, looked up before any of them is called: `dlsym` must not run in signal handlers
/// or in the child of a fork.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        original::find_all();
        // The first answer allocates, which a signal handler must not.
        identity::is_played();
    }
    at_load
};
