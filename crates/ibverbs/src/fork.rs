//! `fork` needs no preparation. The engine reads and writes registered memory through the process's own
//! addresses, so copy-on-write leaves parent and peers looking at the same bytes. The child opens a device of
//! its own; its parent's objects are unknown to it ([`registry`](crate::registry)).

use crate::abi::*;
use crate::boundary::c_api;

/// Of `enum ibv_fork_status`.
const IBV_FORK_UNNEEDED: c_int = 2;

c_api! {
    fn ibv_fork_init() -> c_int {
        0
    }

    fn ibv_is_fork_initialized() -> c_int {
        IBV_FORK_UNNEEDED
    }

    fn ibv_dontfork_range(_base: *mut c_void, _bytes: usize) -> c_int {
        0
    }

    fn ibv_dofork_range(_base: *mut c_void, _bytes: usize) -> c_int {
        0
    }
}
