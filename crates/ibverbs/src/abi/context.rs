//! Contexts, and the tables of functions that inline functions of the header call through.

use super::*;

/// A function that no program calls any more.
type Unused = Option<unsafe extern "C-unwind" fn() -> *mut c_void>;

#[repr(C)]
pub(crate) struct ibv_context_ops {
    pub(crate) _compat_query_device:
        Option<unsafe extern "C-unwind" fn(*mut ibv_context, *mut ibv_device_attr) -> c_int>,
    pub(crate) _compat_query_port:
        Option<unsafe extern "C-unwind" fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int>,
    pub(crate) _compat_memory: [Unused; 5],
    pub(crate) alloc_mw: Option<unsafe extern "C-unwind" fn(*mut ibv_pd, ibv_mw_type) -> *mut ibv_mw>,
    pub(crate) bind_mw:
        Option<unsafe extern "C-unwind" fn(*mut ibv_qp, *mut ibv_mw, *mut ibv_mw_bind) -> c_int>,
    pub(crate) dealloc_mw: Option<unsafe extern "C-unwind" fn(*mut ibv_mw) -> c_int>,
    pub(crate) _compat_create_cq: Unused,
    pub(crate) poll_cq: Option<unsafe extern "C-unwind" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int>,
    pub(crate) req_notify_cq: Option<unsafe extern "C-unwind" fn(*mut ibv_cq, c_int) -> c_int>,
    pub(crate) _compat_queues: [Unused; 7],
    pub(crate) post_srq_recv:
        Option<unsafe extern "C-unwind" fn(*mut ibv_srq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    pub(crate) _compat_queue_pairs: [Unused; 4],
    pub(crate) post_send:
        Option<unsafe extern "C-unwind" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int>,
    pub(crate) post_recv:
        Option<unsafe extern "C-unwind" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    pub(crate) _compat_addresses: [Unused; 5],
}

#[repr(C)]
pub(crate) struct ibv_context {
    pub(crate) device: *mut ibv_device,
    pub(crate) ops: ibv_context_ops,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
    pub(crate) num_comp_vectors: c_int,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) abi_compat: *mut c_void,
}

/// The value of `abi_compat` when a [`verbs_context`] surrounds the context.
pub(crate) const VERBS_ABI_IS_EXTENDED: *mut c_void = usize::MAX as *mut c_void;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_values_ex {
    pub(crate) comp_mask: u32,
    pub(crate) raw_clock: libc::timespec,
}
pub(crate) const IBV_VALUES_MASK_RAW_CLOCK: u32 = 1;

/// The functions of the extended interface. It grows at the beginning; programs find members by their distance from
/// the end, and look at `sz` before they use one.
#[repr(C)]
pub(crate) struct verbs_context {
    /// Programs call the exported functions instead of these six members; they are here so that the table has
    /// the members that programs test for.
    pub(crate) free_buf: Unused,
    pub(crate) alloc_buf: Unused,
    pub(crate) dm_export_dmabuf_fd: Unused,
    pub(crate) reg_mr_ex:
        Option<unsafe extern "C-unwind" fn(*mut ibv_pd, *const ibv_mr_init_attr) -> *mut ibv_mr>,
    pub(crate) dealloc_dmah: Unused,
    pub(crate) alloc_dmah: Unused,
    pub(crate) query_port:
        Option<unsafe extern "C-unwind" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int>,
    pub(crate) advise_mr: Option<
        unsafe extern "C-unwind" fn(*mut ibv_pd, ibv_advise_mr_advice, u32, *mut ibv_sge, u32) -> c_int,
    >,
    pub(crate) alloc_null_mr: Option<unsafe extern "C-unwind" fn(*mut ibv_pd) -> *mut ibv_mr>,
    pub(crate) read_counters:
        Option<unsafe extern "C-unwind" fn(*mut ibv_counters, *mut u64, u32, u32) -> c_int>,
    pub(crate) attach_counters_point_flow: Option<
        unsafe extern "C-unwind" fn(*mut ibv_counters, *mut ibv_counter_attach_attr, *mut ibv_flow) -> c_int,
    >,
    pub(crate) create_counters: Option<
        unsafe extern "C-unwind" fn(*mut ibv_context, *mut ibv_counters_init_attr) -> *mut ibv_counters,
    >,
    pub(crate) destroy_counters: Option<unsafe extern "C-unwind" fn(*mut ibv_counters) -> c_int>,
    pub(crate) reg_dm_mr:
        Option<unsafe extern "C-unwind" fn(*mut ibv_pd, *mut ibv_dm, u64, usize, c_uint) -> *mut ibv_mr>,
    pub(crate) alloc_dm:
        Option<unsafe extern "C-unwind" fn(*mut ibv_context, *mut ibv_alloc_dm_attr) -> *mut ibv_dm>,
    pub(crate) free_dm: Option<unsafe extern "C-unwind" fn(*mut ibv_dm) -> c_int>,
    pub(crate) modify_flow_action_esp: Unused,
    pub(crate) destroy_flow_action: Unused,
    pub(crate) create_flow_action_esp: Unused,
    pub(crate) modify_qp_rate_limit:
        Option<unsafe extern "C-unwind" fn(*mut ibv_qp, *mut ibv_qp_rate_limit_attr) -> c_int>,
    pub(crate) alloc_parent_domain: Option<
        unsafe extern "C-unwind" fn(*mut ibv_context, *mut ibv_parent_domain_init_attr) -> *mut ibv_pd,
    >,
    pub(crate) dealloc_td: Option<unsafe extern "C-unwind" fn(*mut ibv_td) -> c_int>,
    pub(crate) alloc_td:
        Option<unsafe extern "C-unwind" fn(*mut ibv_context, *mut ibv_td_init_attr) -> *mut ibv_td>,
    pub(crate) modify_cq: Option<unsafe extern "C-unwind" fn(*mut ibv_cq, *mut ibv_modify_cq_attr) -> c_int>,
    pub(crate) post_srq_ops:
        Option<unsafe extern "C-unwind" fn(*mut ibv_srq, *mut ibv_ops_wr, *mut *mut ibv_ops_wr) -> c_int>,
    pub(crate) destroy_rwq_ind_table: Option<unsafe extern "C-unwind" fn(*mut ibv_rwq_ind_table) -> c_int>,
    pub(crate) create_rwq_ind_table: Option<
        unsafe extern "C-unwind" fn(
            *mut ibv_context,
            *mut ibv_rwq_ind_table_init_attr,
        ) -> *mut ibv_rwq_ind_table,
    >,
    pub(crate) destroy_wq: Option<unsafe extern "C-unwind" fn(*mut ibv_wq) -> c_int>,
    pub(crate) modify_wq: Option<unsafe extern "C-unwind" fn(*mut ibv_wq, *mut ibv_wq_attr) -> c_int>,
    pub(crate) create_wq:
        Option<unsafe extern "C-unwind" fn(*mut ibv_context, *mut ibv_wq_init_attr) -> *mut ibv_wq>,
    pub(crate) query_rt_values:
        Option<unsafe extern "C-unwind" fn(*mut ibv_context, *mut ibv_values_ex) -> c_int>,
    pub(crate) create_cq_ex:
        Option<unsafe extern "C-unwind" fn(*mut ibv_context, *mut ibv_cq_init_attr_ex) -> *mut ibv_cq_ex>,
    pub(crate) private: *mut c_void,
    pub(crate) query_device_ex: Option<
        unsafe extern "C-unwind" fn(
            *mut ibv_context,
            *const ibv_query_device_ex_input,
            *mut ibv_device_attr_ex,
            usize,
        ) -> c_int,
    >,
    pub(crate) destroy_flow: Option<unsafe extern "C-unwind" fn(*mut ibv_flow) -> c_int>,
    pub(crate) _abi_placeholder2: Unused,
    pub(crate) create_flow:
        Option<unsafe extern "C-unwind" fn(*mut ibv_qp, *mut ibv_flow_attr) -> *mut ibv_flow>,
    pub(crate) _abi_placeholder1: Unused,
    pub(crate) open_qp:
        Option<unsafe extern "C-unwind" fn(*mut ibv_context, *mut ibv_qp_open_attr) -> *mut ibv_qp>,
    pub(crate) create_qp_ex:
        Option<unsafe extern "C-unwind" fn(*mut ibv_context, *mut ibv_qp_init_attr_ex) -> *mut ibv_qp>,
    pub(crate) get_srq_num: Option<unsafe extern "C-unwind" fn(*mut ibv_srq, *mut u32) -> c_int>,
    pub(crate) create_srq_ex:
        Option<unsafe extern "C-unwind" fn(*mut ibv_context, *mut ibv_srq_init_attr_ex) -> *mut ibv_srq>,
    pub(crate) open_xrcd:
        Option<unsafe extern "C-unwind" fn(*mut ibv_context, *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd>,
    pub(crate) close_xrcd: Option<unsafe extern "C-unwind" fn(*mut ibv_xrcd) -> c_int>,
    pub(crate) _abi_placeholder3: u64,
    pub(crate) sz: usize,
    pub(crate) context: ibv_context,
}
