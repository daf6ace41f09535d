//! The calls that rsockets make: connection management and verbs, by their C names.

use libc::{c_int, c_void, sockaddr};

use crate::abi::{ibv_comp_channel, ibv_context, ibv_cq, ibv_mr, ibv_pd, ibv_qp_init_attr};
use crate::rdmacm::abi::{rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel, rdma_port_space};

unsafe extern "C" {
    pub(super) fn rdma_create_event_channel() -> *mut rdma_event_channel;
    pub(super) fn rdma_destroy_event_channel(channel: *mut rdma_event_channel);
    pub(super) fn rdma_create_id(
        channel: *mut rdma_event_channel,
        id: *mut *mut rdma_cm_id,
        context: *mut c_void,
        ps: rdma_port_space,
    ) -> c_int;
    pub(super) fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int;
    pub(super) fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int;
    pub(super) fn rdma_bind_addr(id: *mut rdma_cm_id, addr: *mut sockaddr) -> c_int;
    pub(super) fn rdma_listen(id: *mut rdma_cm_id, backlog: c_int) -> c_int;
    pub(super) fn rdma_resolve_addr(
        id: *mut rdma_cm_id,
        source: *mut sockaddr,
        destination: *mut sockaddr,
        timeout_ms: c_int,
    ) -> c_int;
    pub(super) fn rdma_resolve_route(id: *mut rdma_cm_id, timeout_ms: c_int) -> c_int;
    pub(super) fn rdma_connect(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    pub(super) fn rdma_accept(id: *mut rdma_cm_id, param: *mut rdma_conn_param) -> c_int;
    pub(super) fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int;
    pub(super) fn rdma_create_qp(id: *mut rdma_cm_id, pd: *mut ibv_pd, attr: *mut ibv_qp_init_attr) -> c_int;
    pub(super) fn rdma_destroy_qp(id: *mut rdma_cm_id);
    pub(super) fn rdma_get_cm_event(
        channel: *mut rdma_event_channel,
        event: *mut *mut rdma_cm_event,
    ) -> c_int;
    pub(super) fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int;
    pub(super) fn rdma_set_option(
        id: *mut rdma_cm_id,
        level: c_int,
        name: c_int,
        value: *mut c_void,
        length: usize,
    ) -> c_int;
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
    pub(super) fn ibv_reg_mr(pd: *mut ibv_pd, addr: *mut c_void, length: usize, access: c_int)
    -> *mut ibv_mr;
    pub(super) fn ibv_dereg_mr(mr: *mut ibv_mr) -> c_int;
}

/// The errno of the call that has just failed, never 0.
pub(super) fn last_errno() -> c_int {
    match std::io::Error::last_os_error().raw_os_error() {
        Some(errno) if errno != 0 => errno,
        _ => libc::EIO,
    }
}

/// The result of a call that returns 0, or -1 and errno.
pub(super) fn done(code: c_int) -> Result<(), c_int> {
    if code == 0 { Ok(()) } else { Err(last_errno()) }
}

/// The result of a call that returns a pointer.
pub(super) fn made<T>(pointer: *mut T) -> Result<*mut T, c_int> {
    if pointer.is_null() { Err(last_errno()) } else { Ok(pointer) }
}

/// Makes a descriptor's reads return at once.
pub(super) fn set_nonblocking(fd: c_int) -> Result<(), c_int> {
    // SAFETY: both commands take no pointers.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    // SAFETY: as above.
    if flags < 0 || unsafe { libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK) } < 0 {
        return Err(last_errno());
    }
    Ok(())
}
