//! `poll`, `select`, `epoll_wait` and their relatives, preloaded, for programs that sleep on the descriptor of a completion channel, often together
//! with sockets.
//!
//! Such a program would be woken by the device's thread, through that thread's wake-up and its own. Here the thread that waits lets the
//! verbs library wait for it, which polls or sleeps as for a thread in `ibv_get_cq_event`, and looks at the descriptors meanwhile with the
//! C library's function and no time to wait. The verbs library names its channels' descriptors (`highwire_channel`); `epoll_ctl` tells
//! which sets hold one, or hold such a set.
//!
//! It is an object of its own, and not part of `libibverbs.so.1`, because the C library's functions are taken over only by symbols without a version.
//!
//! Invariant: a wait for other descriptors costs a comparison for each, takes no lock, allocates nothing, and is then the C library's.
//! Threads may be cancelled in it: no frame of this crate has anything to drop while the C library's function sleeps.
#![warn(unsafe_op_in_unsafe_fn)]
#![cfg_attr(test, allow(dead_code, reason = "what calls need"))]

// A test that took the C library's functions over would test itself.
#[cfg(not(test))]
mod calls;
mod channels;
mod deadline;
mod help;
#[cfg(not(test))]
mod original;
mod sets;

/// The C library's functions, looked up before any of them is called: `dlsym` must not run in signal handlers
/// or in the child of a fork.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        original::find_all();
        // SAFETY: the function is one for this, and this object is never unloaded. Without memory for it children ask for help as well.
        unsafe { libc::pthread_atfork(None, None, Some(calls::in_child)) };
    }
    at_load
};
