//! Calls newer than Debian 12 for features that a software device has not: they check their arguments and
//! refuse.

use crate::abi::*;
use crate::boundary::{Failure, answer, c_api, code};
use crate::context::Context;
use crate::qp::Qp;
use crate::registry;

c_api! {
    /// Steering tags for caches of a PCI bus.
    fn ibv_alloc_dmah(context: *mut ibv_context, _attr: *mut c_void) -> *mut c_void {
        answer(registry::find::<Context>(context).and(Err(libc::EOPNOTSUPP)))
    }

    fn ibv_dealloc_dmah(_dmah: *mut c_void) -> c_int {
        Failure::failure(libc::EOPNOTSUPP)
    }

    /// Completion counters.
    fn ibv_create_comp_cntr(context: *mut ibv_context, _attr: *mut c_void) -> *mut c_void {
        answer(registry::find::<Context>(context).and(Err(libc::ENOTSUP)))
    }

    fn _ibv_query_comp_cntr_caps(context: *mut ibv_context, _caps: *mut c_void, _bytes: usize) -> c_int {
        code(registry::find::<Context>(context).and(Err(libc::ENOTSUP)))
    }

    fn ibv_destroy_comp_cntr(_counter: *mut c_void) -> c_int {
        Failure::failure(libc::ENOTSUP)
    }

    fn ibv_set_comp_cntr(_counter: *mut c_void, _value: u64) -> c_int {
        Failure::failure(libc::ENOTSUP)
    }

    fn ibv_set_err_comp_cntr(_counter: *mut c_void, _value: u64) -> c_int {
        Failure::failure(libc::ENOTSUP)
    }

    fn ibv_inc_comp_cntr(_counter: *mut c_void, _amount: u64) -> c_int {
        Failure::failure(libc::ENOTSUP)
    }

    fn ibv_inc_err_comp_cntr(_counter: *mut c_void, _amount: u64) -> c_int {
        Failure::failure(libc::ENOTSUP)
    }

    fn ibv_read_comp_cntr(_counter: *mut c_void, _value: *mut u64) -> c_int {
        Failure::failure(libc::ENOTSUP)
    }

    fn ibv_read_err_comp_cntr(_counter: *mut c_void, _value: *mut u64) -> c_int {
        Failure::failure(libc::ENOTSUP)
    }

    fn ibv_qp_attach_comp_cntr(qp: *mut ibv_qp, _counter: *mut c_void, _attr: *mut c_void) -> c_int {
        code(registry::find::<Qp>(qp).and(Err(libc::ENOTSUP)))
    }
}
