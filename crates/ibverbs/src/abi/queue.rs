//! Completion queues, their channels, shared receive queues, events.

use super::*;

#[repr(C)]
pub(crate) struct ibv_comp_channel {
    pub(crate) context: *mut ibv_context,
    pub(crate) fd: c_int,
    pub(crate) refcnt: c_int,
}

#[repr(C)]
pub(crate) struct ibv_cq {
    pub(crate) context: *mut ibv_context,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) cq_context: *mut c_void,
    pub(crate) handle: u32,
    pub(crate) cqe: c_int,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) cond: pthread_cond_t,
    pub(crate) comp_events_completed: u32,
    pub(crate) async_events_completed: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_poll_cq_attr {
    pub(crate) comp_mask: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_wc_tm_info {
    pub(crate) tag: u64,
    pub(crate) priv_: u32,
}

type Read<T> = Option<unsafe extern "C-unwind" fn(*mut ibv_cq_ex) -> T>;

/// A completion queue with the functions of the extended interface. Begins as [`ibv_cq`] does.
#[repr(C)]
pub(crate) struct ibv_cq_ex {
    pub(crate) base: CqBase,
    pub(crate) comp_mask: u32,
    pub(crate) status: ibv_wc_status,
    pub(crate) wr_id: u64,
    pub(crate) start_poll:
        Option<unsafe extern "C-unwind" fn(*mut ibv_cq_ex, *mut ibv_poll_cq_attr) -> c_int>,
    pub(crate) next_poll: Read<c_int>,
    pub(crate) end_poll: Read<()>,
    pub(crate) read_opcode: Read<ibv_wc_opcode>,
    pub(crate) read_vendor_err: Read<u32>,
    pub(crate) read_byte_len: Read<u32>,
    pub(crate) read_imm_data: Read<u32>,
    pub(crate) read_qp_num: Read<u32>,
    pub(crate) read_src_qp: Read<u32>,
    pub(crate) read_wc_flags: Read<c_uint>,
    pub(crate) read_slid: Read<u32>,
    pub(crate) read_sl: Read<u8>,
    pub(crate) read_dlid_path_bits: Read<u8>,
    pub(crate) read_completion_ts: Read<u64>,
    pub(crate) read_cvlan: Read<u16>,
    pub(crate) read_flow_tag: Read<u32>,
    pub(crate) read_tm_info: Option<unsafe extern "C-unwind" fn(*mut ibv_cq_ex, *mut ibv_wc_tm_info)>,
    pub(crate) read_completion_wallclock_ns: Read<u64>,
}

/// The fields of [`ibv_cq`] without the padding at its end, which [`ibv_cq_ex`] makes use of.
pub(crate) type CqBase = ibv_cq;

pub(crate) const IBV_CQ_INIT_ATTR_MASK_FLAGS: u32 = 1;
pub(crate) const IBV_CQ_INIT_ATTR_MASK_PD: u32 = 1 << 1;
pub(crate) const IBV_CREATE_CQ_ATTR_SINGLE_THREADED: u32 = 1;
pub(crate) const IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN: u32 = 1 << 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_cq_init_attr_ex {
    pub(crate) cqe: u32,
    pub(crate) cq_context: *mut c_void,
    pub(crate) channel: *mut ibv_comp_channel,
    pub(crate) comp_vector: u32,
    pub(crate) wc_flags: u64,
    pub(crate) comp_mask: u32,
    pub(crate) flags: u32,
    pub(crate) parent_domain: *mut ibv_pd,
}

pub(crate) const IBV_WC_EX_WITH_BYTE_LEN: u64 = 1;
pub(crate) const IBV_WC_EX_WITH_IMM: u64 = 1 << 1;
pub(crate) const IBV_WC_EX_WITH_QP_NUM: u64 = 1 << 2;
pub(crate) const IBV_WC_EX_WITH_SRC_QP: u64 = 1 << 3;
pub(crate) const IBV_WC_EX_WITH_SLID: u64 = 1 << 4;
pub(crate) const IBV_WC_EX_WITH_SL: u64 = 1 << 5;
pub(crate) const IBV_WC_EX_WITH_DLID_PATH_BITS: u64 = 1 << 6;
pub(crate) const IBV_WC_EX_WITH_COMPLETION_TIMESTAMP: u64 = 1 << 7;
pub(crate) const IBV_WC_EX_WITH_TM_INFO: u64 = 1 << 10;
pub(crate) const IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK: u64 = 1 << 11;

pub(crate) const IBV_CQ_ATTR_MODERATE: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_moderate_cq {
    pub(crate) cq_count: u16,
    pub(crate) cq_period: u16,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_modify_cq_attr {
    pub(crate) attr_mask: u32,
    pub(crate) moderate: ibv_moderate_cq,
}

pub(crate) const IBV_SRQ_MAX_WR: c_int = 1;
pub(crate) const IBV_SRQ_LIMIT: c_int = 1 << 1;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_srq_attr {
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) srq_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_srq_init_attr {
    pub(crate) srq_context: *mut c_void,
    pub(crate) attr: ibv_srq_attr,
}

c_enum!(ibv_srq_type: IBV_SRQT_BASIC = 0, IBV_SRQT_XRC = 1, IBV_SRQT_TM = 2);
pub(crate) const IBV_SRQ_INIT_ATTR_TYPE: u32 = 1;
pub(crate) const IBV_SRQ_INIT_ATTR_PD: u32 = 1 << 1;
pub(crate) const IBV_SRQ_INIT_ATTR_XRCD: u32 = 1 << 2;
pub(crate) const IBV_SRQ_INIT_ATTR_CQ: u32 = 1 << 3;
pub(crate) const IBV_SRQ_INIT_ATTR_TM: u32 = 1 << 4;

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_tm_cap {
    pub(crate) max_num_tags: u32,
    pub(crate) max_ops: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_srq_init_attr_ex {
    pub(crate) srq_context: *mut c_void,
    pub(crate) attr: ibv_srq_attr,
    pub(crate) comp_mask: u32,
    pub(crate) srq_type: ibv_srq_type,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) xrcd: *mut ibv_xrcd,
    pub(crate) cq: *mut ibv_cq,
    pub(crate) tm_cap: ibv_tm_cap,
}

#[repr(C)]
pub(crate) struct ibv_srq {
    pub(crate) context: *mut ibv_context,
    pub(crate) srq_context: *mut c_void,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) handle: u32,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) cond: pthread_cond_t,
    pub(crate) events_completed: u32,
}

c_enum!(ibv_event_type:
    IBV_EVENT_CQ_ERR = 0,
    IBV_EVENT_QP_FATAL = 1,
    IBV_EVENT_QP_REQ_ERR = 2,
    IBV_EVENT_QP_ACCESS_ERR = 3,
    IBV_EVENT_COMM_EST = 4,
    IBV_EVENT_SQ_DRAINED = 5,
    IBV_EVENT_PATH_MIG = 6,
    IBV_EVENT_PATH_MIG_ERR = 7,
    IBV_EVENT_DEVICE_FATAL = 8,
    IBV_EVENT_PORT_ACTIVE = 9,
    IBV_EVENT_PORT_ERR = 10,
    IBV_EVENT_LID_CHANGE = 11,
    IBV_EVENT_PKEY_CHANGE = 12,
    IBV_EVENT_SM_CHANGE = 13,
    IBV_EVENT_SRQ_ERR = 14,
    IBV_EVENT_SRQ_LIMIT_REACHED = 15,
    IBV_EVENT_QP_LAST_WQE_REACHED = 16,
    IBV_EVENT_CLIENT_REREGISTER = 17,
    IBV_EVENT_GID_CHANGE = 18,
    IBV_EVENT_WQ_FATAL = 19,
);

/// An event; `element` is a pointer to the object, or a port number.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_async_event {
    pub(crate) element: *mut c_void,
    pub(crate) event_type: ibv_event_type,
}
