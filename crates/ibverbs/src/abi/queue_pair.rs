//! Queue pairs.

use super::*;

c_enum!(ibv_qp_type:
    IBV_QPT_RC = 2,
    IBV_QPT_UC = 3,
    IBV_QPT_UD = 4,
    IBV_QPT_RAW_PACKET = 8,
    IBV_QPT_XRC_SEND = 9,
    IBV_QPT_XRC_RECV = 10,
    IBV_QPT_DRIVER = 0xFF,
);

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_qp_cap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_qp_init_attr {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) qp_type: ibv_qp_type,
    pub(crate) sq_sig_all: c_int,
}

pub(crate) const IBV_QP_INIT_ATTR_PD: u32 = 1;
pub(crate) const IBV_QP_INIT_ATTR_XRCD: u32 = 1 << 1;
pub(crate) const IBV_QP_INIT_ATTR_CREATE_FLAGS: u32 = 1 << 2;
pub(crate) const IBV_QP_INIT_ATTR_IND_TABLE: u32 = 1 << 4;
pub(crate) const IBV_QP_INIT_ATTR_RX_HASH: u32 = 1 << 5;
pub(crate) const IBV_QP_INIT_ATTR_SEND_OPS_FLAGS: u32 = 1 << 6;
pub(crate) const IBV_QP_CREATE_BLOCK_SELF_MCAST_LB: u32 = 1 << 1;

pub(crate) const IBV_QP_EX_WITH_RDMA_WRITE: u64 = 1;
pub(crate) const IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM: u64 = 1 << 1;
pub(crate) const IBV_QP_EX_WITH_SEND: u64 = 1 << 2;
pub(crate) const IBV_QP_EX_WITH_SEND_WITH_IMM: u64 = 1 << 3;
pub(crate) const IBV_QP_EX_WITH_RDMA_READ: u64 = 1 << 4;
pub(crate) const IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP: u64 = 1 << 5;
pub(crate) const IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD: u64 = 1 << 6;
pub(crate) const IBV_QP_EX_WITH_LOCAL_INV: u64 = 1 << 7;
pub(crate) const IBV_QP_EX_WITH_BIND_MW: u64 = 1 << 8;
pub(crate) const IBV_QP_EX_WITH_SEND_WITH_INV: u64 = 1 << 9;
pub(crate) const IBV_QP_EX_WITH_TSO: u64 = 1 << 10;
pub(crate) const IBV_QP_EX_WITH_ATOMIC_WRITE: u64 = 1 << 12;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_rx_hash_conf {
    pub(crate) rx_hash_function: u8,
    pub(crate) rx_hash_key_len: u8,
    pub(crate) rx_hash_key: *mut u8,
    pub(crate) rx_hash_fields_mask: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_qp_init_attr_ex {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) qp_type: ibv_qp_type,
    pub(crate) sq_sig_all: c_int,
    pub(crate) comp_mask: u32,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) xrcd: *mut ibv_xrcd,
    pub(crate) create_flags: u32,
    pub(crate) max_tso_header: u16,
    pub(crate) rwq_ind_tbl: *mut ibv_rwq_ind_table,
    pub(crate) rx_hash_conf: ibv_rx_hash_conf,
    pub(crate) source_qpn: u32,
    pub(crate) send_ops_flags: u64,
}

pub(crate) const IBV_QP_OPEN_ATTR_NUM: u32 = 1;
pub(crate) const IBV_QP_OPEN_ATTR_XRCD: u32 = 1 << 1;
pub(crate) const IBV_QP_OPEN_ATTR_CONTEXT: u32 = 1 << 2;
pub(crate) const IBV_QP_OPEN_ATTR_TYPE: u32 = 1 << 3;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_qp_open_attr {
    pub(crate) comp_mask: u32,
    pub(crate) qp_num: u32,
    pub(crate) xrcd: *mut ibv_xrcd,
    pub(crate) qp_context: *mut c_void,
    pub(crate) qp_type: ibv_qp_type,
}

c_enum!(ibv_qp_attr_mask:
    IBV_QP_STATE = 1,
    IBV_QP_CUR_STATE = 1 << 1,
    IBV_QP_EN_SQD_ASYNC_NOTIFY = 1 << 2,
    IBV_QP_ACCESS_FLAGS = 1 << 3,
    IBV_QP_PKEY_INDEX = 1 << 4,
    IBV_QP_PORT = 1 << 5,
    IBV_QP_QKEY = 1 << 6,
    IBV_QP_AV = 1 << 7,
    IBV_QP_PATH_MTU = 1 << 8,
    IBV_QP_TIMEOUT = 1 << 9,
    IBV_QP_RETRY_CNT = 1 << 10,
    IBV_QP_RNR_RETRY = 1 << 11,
    IBV_QP_RQ_PSN = 1 << 12,
    IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13,
    IBV_QP_ALT_PATH = 1 << 14,
    IBV_QP_MIN_RNR_TIMER = 1 << 15,
    IBV_QP_SQ_PSN = 1 << 16,
    IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17,
    IBV_QP_PATH_MIG_STATE = 1 << 18,
    IBV_QP_CAP = 1 << 19,
    IBV_QP_DEST_QPN = 1 << 20,
    IBV_QP_RATE_LIMIT = 1 << 25,
);

c_enum!(ibv_qp_state:
    IBV_QPS_RESET = 0,
    IBV_QPS_INIT = 1,
    IBV_QPS_RTR = 2,
    IBV_QPS_RTS = 3,
    IBV_QPS_SQD = 4,
    IBV_QPS_SQE = 5,
    IBV_QPS_ERR = 6,
    IBV_QPS_UNKNOWN = 7,
);

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_qp_attr {
    pub(crate) qp_state: ibv_qp_state,
    pub(crate) cur_qp_state: ibv_qp_state,
    pub(crate) path_mtu: ibv_mtu,
    pub(crate) path_mig_state: c_uint,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) qp_access_flags: c_uint,
    pub(crate) cap: ibv_qp_cap,
    pub(crate) ah_attr: ibv_ah_attr,
    pub(crate) alt_ah_attr: ibv_ah_attr,
    pub(crate) pkey_index: u16,
    pub(crate) alt_pkey_index: u16,
    pub(crate) en_sqd_async_notify: u8,
    pub(crate) sq_draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port_num: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alt_port_num: u8,
    pub(crate) alt_timeout: u8,
    pub(crate) rate_limit: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_qp_rate_limit_attr {
    pub(crate) rate_limit: u32,
    pub(crate) max_burst_sz: u32,
    pub(crate) typical_pkt_sz: u16,
    pub(crate) comp_mask: u32,
}

#[repr(C)]
pub(crate) struct ibv_qp {
    pub(crate) context: *mut ibv_context,
    pub(crate) qp_context: *mut c_void,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) handle: u32,
    pub(crate) qp_num: u32,
    pub(crate) state: ibv_qp_state,
    pub(crate) qp_type: ibv_qp_type,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) cond: pthread_cond_t,
    pub(crate) events_completed: u32,
}

type Qpx = *mut ibv_qp_ex;

/// A queue pair with the functions of the extended interface.
#[repr(C)]
pub(crate) struct ibv_qp_ex {
    pub(crate) qp_base: ibv_qp,
    pub(crate) comp_mask: u64,
    pub(crate) wr_id: u64,
    pub(crate) wr_flags: c_uint,
    pub(crate) wr_atomic_cmp_swp: Option<unsafe extern "C-unwind" fn(Qpx, u32, u64, u64, u64)>,
    pub(crate) wr_atomic_fetch_add: Option<unsafe extern "C-unwind" fn(Qpx, u32, u64, u64)>,
    pub(crate) wr_bind_mw:
        Option<unsafe extern "C-unwind" fn(Qpx, *mut ibv_mw, u32, *const ibv_mw_bind_info)>,
    pub(crate) wr_local_inv: Option<unsafe extern "C-unwind" fn(Qpx, u32)>,
    pub(crate) wr_rdma_read: Option<unsafe extern "C-unwind" fn(Qpx, u32, u64)>,
    pub(crate) wr_rdma_write: Option<unsafe extern "C-unwind" fn(Qpx, u32, u64)>,
    pub(crate) wr_rdma_write_imm: Option<unsafe extern "C-unwind" fn(Qpx, u32, u64, u32)>,
    pub(crate) wr_send: Option<unsafe extern "C-unwind" fn(Qpx)>,
    pub(crate) wr_send_imm: Option<unsafe extern "C-unwind" fn(Qpx, u32)>,
    pub(crate) wr_send_inv: Option<unsafe extern "C-unwind" fn(Qpx, u32)>,
    pub(crate) wr_send_tso: Option<unsafe extern "C-unwind" fn(Qpx, *mut c_void, u16, u16)>,
    pub(crate) wr_set_ud_addr: Option<unsafe extern "C-unwind" fn(Qpx, *mut ibv_ah, u32, u32)>,
    pub(crate) wr_set_xrc_srqn: Option<unsafe extern "C-unwind" fn(Qpx, u32)>,
    pub(crate) wr_set_inline_data: Option<unsafe extern "C-unwind" fn(Qpx, *mut c_void, usize)>,
    pub(crate) wr_set_inline_data_list: Option<unsafe extern "C-unwind" fn(Qpx, usize, *const ibv_data_buf)>,
    pub(crate) wr_set_sge: Option<unsafe extern "C-unwind" fn(Qpx, u32, u64, u32)>,
    pub(crate) wr_set_sge_list: Option<unsafe extern "C-unwind" fn(Qpx, usize, *const ibv_sge)>,
    pub(crate) wr_start: Option<unsafe extern "C-unwind" fn(Qpx)>,
    pub(crate) wr_complete: Option<unsafe extern "C-unwind" fn(Qpx) -> c_int>,
    pub(crate) wr_abort: Option<unsafe extern "C-unwind" fn(Qpx)>,
    pub(crate) wr_atomic_write: Option<unsafe extern "C-unwind" fn(Qpx, u32, u64, *const c_void)>,
    /// Newer than headers of 2023.
    pub(crate) wr_flush: Option<unsafe extern "C-unwind" fn(Qpx, u32, u64, usize, u8, u8)>,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_ece {
    pub(crate) vendor_id: u32,
    pub(crate) options: u32,
    pub(crate) comp_mask: u32,
}
