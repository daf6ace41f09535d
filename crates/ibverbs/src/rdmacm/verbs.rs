//! The verbs that connection management calls, as any program would: by their C names.
//!
//! Nothing here knows how `libibverbs.so.1` is built; the structures are those of its header.

use libc::{c_int, c_uint, c_void};

use crate::abi::{
    IBV_QP_STATE, IBV_QPS_ERR, ibv_comp_channel, ibv_context, ibv_cq, ibv_device, ibv_device_attr, ibv_ece,
    ibv_gid, ibv_pd, ibv_port_attr, ibv_qp, ibv_qp_attr, ibv_qp_init_attr, ibv_srq,
};

unsafe extern "C" {
    pub(super) fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device;
    pub(super) fn ibv_free_device_list(list: *mut *mut ibv_device);
    pub(super) fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context;
    pub(super) fn ibv_alloc_pd(context: *mut ibv_context) -> *mut ibv_pd;
    pub(super) fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel;
    pub(super) fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int;
    pub(super) fn ibv_create_cq(
        context: *mut ibv_context,
        cqe: c_int,
        cq_context: *mut c_void,
        channel: *mut ibv_comp_channel,
        comp_vector: c_int,
    ) -> *mut ibv_cq;
    pub(super) fn ibv_destroy_cq(cq: *mut ibv_cq) -> c_int;
    pub(super) fn ibv_create_qp(pd: *mut ibv_pd, attributes: *mut ibv_qp_init_attr) -> *mut ibv_qp;
    pub(super) fn ibv_modify_qp(qp: *mut ibv_qp, attributes: *mut ibv_qp_attr, mask: c_int) -> c_int;
    pub(super) fn ibv_destroy_qp(qp: *mut ibv_qp) -> c_int;
    pub(super) fn ibv_destroy_srq(srq: *mut ibv_srq) -> c_int;
    pub(super) fn ibv_attach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    pub(super) fn ibv_detach_mcast(qp: *mut ibv_qp, gid: *const ibv_gid, lid: u16) -> c_int;
    pub(super) fn ibv_query_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int;
    pub(super) fn ibv_set_ece(qp: *mut ibv_qp, ece: *mut ibv_ece) -> c_int;
    pub(super) fn ibv_query_gid(
        context: *mut ibv_context,
        port: u8,
        index: c_int,
        gid: *mut ibv_gid,
    ) -> c_int;
    pub(super) fn ibv_query_device(context: *mut ibv_context, attributes: *mut ibv_device_attr) -> c_int;
    pub(super) fn ibv_query_port(
        context: *mut ibv_context,
        port: u8,
        attributes: *mut ibv_port_attr,
    ) -> c_int;
}

/// The errno of the verb that has just failed, never 0.
pub(super) fn last_errno() -> c_int {
    // SAFETY: the address of this thread's errno is always valid.
    match unsafe { *libc::__errno_location() } {
        0 => libc::EIO,
        errno => errno,
    }
}

/// The result of a verb that returns a pointer.
pub(super) fn made<T>(pointer: *mut T) -> Result<*mut T, c_int> {
    if pointer.is_null() { Err(last_errno()) } else { Ok(pointer) }
}

/// The result of a verb that returns an errno. Some return -1 and set it.
pub(super) fn done(code: c_int) -> Result<(), c_int> {
    match code {
        0 => Ok(()),
        errno if errno > 0 => Err(errno),
        _ => Err(last_errno()),
    }
}

/// Changes a queue pair.
///
/// # Safety
/// `qp` is a queue pair.
pub(super) unsafe fn modify(
    qp: *mut ibv_qp,
    attributes: &mut ibv_qp_attr,
    mask: c_uint,
) -> Result<(), c_int> {
    // SAFETY: the caller's promise; the attributes are a live structure.
    done(unsafe { ibv_modify_qp(qp, attributes, mask as c_int) })
}

/// Puts a queue pair into the error state, which flushes its requests.
///
/// # Safety
/// `qp` is a queue pair.
pub(super) unsafe fn fail(qp: *mut ibv_qp) -> Result<(), c_int> {
    let mut attributes = ibv_qp_attr { qp_state: IBV_QPS_ERR, ..ibv_qp_attr::default() };
    // SAFETY: the caller's promise.
    unsafe { modify(qp, &mut attributes, IBV_QP_STATE) }
}
