//! Work requests and completions.

use super::{c_enum, c_int, c_uint, c_void, ibv_ah, ibv_mw, ibv_mw_bind_info};

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_sge {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_data_buf {
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
}

c_enum!(ibv_wr_opcode:
    IBV_WR_RDMA_WRITE = 0,
    IBV_WR_RDMA_WRITE_WITH_IMM = 1,
    IBV_WR_SEND = 2,
    IBV_WR_SEND_WITH_IMM = 3,
    IBV_WR_RDMA_READ = 4,
    IBV_WR_ATOMIC_CMP_AND_SWP = 5,
    IBV_WR_ATOMIC_FETCH_AND_ADD = 6,
    IBV_WR_LOCAL_INV = 7,
    IBV_WR_BIND_MW = 8,
    IBV_WR_SEND_WITH_INV = 9,
    IBV_WR_TSO = 10,
    IBV_WR_DRIVER1 = 11,
    IBV_WR_FLUSH = 14,
    IBV_WR_ATOMIC_WRITE = 15,
);

c_enum!(ibv_send_flags:
    IBV_SEND_FENCE = 1,
    IBV_SEND_SIGNALED = 1 << 1,
    IBV_SEND_SOLICITED = 1 << 2,
    IBV_SEND_INLINE = 1 << 3,
    IBV_SEND_IP_CSUM = 1 << 4,
);

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WrRdma {
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WrAtomic {
    pub(crate) remote_addr: u64,
    pub(crate) compare_add: u64,
    pub(crate) swap: u64,
    pub(crate) rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WrUd {
    pub(crate) ah: *mut ibv_ah,
    pub(crate) remote_qpn: u32,
    pub(crate) remote_qkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union WrTarget {
    pub(crate) rdma: WrRdma,
    pub(crate) atomic: WrAtomic,
    pub(crate) ud: WrUd,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WrBind {
    pub(crate) mw: *mut ibv_mw,
    pub(crate) rkey: u32,
    pub(crate) bind_info: ibv_mw_bind_info,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct WrTso {
    pub(crate) hdr: *mut c_void,
    pub(crate) hdr_sz: u16,
    pub(crate) mss: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union WrExtra {
    pub(crate) bind_mw: WrBind,
    pub(crate) tso: WrTso,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_send_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_send_wr,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: ibv_wr_opcode,
    pub(crate) send_flags: c_uint,
    /// Immediate data in network order, or the key to invalidate.
    pub(crate) imm_data: u32,
    pub(crate) wr: WrTarget,
    /// The only member of `qp_type`.
    pub(crate) remote_srqn: u32,
    pub(crate) extra: WrExtra,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_recv_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_recv_wr,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
}

c_enum!(ibv_wc_status:
    IBV_WC_SUCCESS = 0,
    IBV_WC_LOC_LEN_ERR = 1,
    IBV_WC_LOC_QP_OP_ERR = 2,
    IBV_WC_LOC_EEC_OP_ERR = 3,
    IBV_WC_LOC_PROT_ERR = 4,
    IBV_WC_WR_FLUSH_ERR = 5,
    IBV_WC_MW_BIND_ERR = 6,
    IBV_WC_BAD_RESP_ERR = 7,
    IBV_WC_LOC_ACCESS_ERR = 8,
    IBV_WC_REM_INV_REQ_ERR = 9,
    IBV_WC_REM_ACCESS_ERR = 10,
    IBV_WC_REM_OP_ERR = 11,
    IBV_WC_RETRY_EXC_ERR = 12,
    IBV_WC_RNR_RETRY_EXC_ERR = 13,
    IBV_WC_GENERAL_ERR = 21,
    IBV_WC_TM_ERR = 22,
    IBV_WC_TM_RNDV_INCOMPLETE = 23,
);

c_enum!(ibv_wc_opcode:
    IBV_WC_SEND = 0,
    IBV_WC_RDMA_WRITE = 1,
    IBV_WC_RDMA_READ = 2,
    IBV_WC_COMP_SWAP = 3,
    IBV_WC_FETCH_ADD = 4,
    IBV_WC_BIND_MW = 5,
    IBV_WC_LOCAL_INV = 6,
    IBV_WC_RECV = 1 << 7,
    IBV_WC_RECV_RDMA_WITH_IMM = (1 << 7) + 1,
    IBV_WC_TM_ADD = (1 << 7) + 2,
    IBV_WC_TM_DEL = (1 << 7) + 3,
    IBV_WC_TM_SYNC = (1 << 7) + 4,
    IBV_WC_TM_RECV = (1 << 7) + 5,
    IBV_WC_TM_NO_TAG = (1 << 7) + 6,
);

c_enum!(ibv_wc_flags:
    IBV_WC_GRH = 1,
    IBV_WC_WITH_IMM = 1 << 1,
    IBV_WC_WITH_INV = 1 << 3,
    IBV_WC_TM_SYNC_REQ = 1 << 4,
    IBV_WC_TM_MATCH = 1 << 5,
    IBV_WC_TM_DATA_VALID = 1 << 6,
);

c_enum!(ibv_ops_wr_opcode: IBV_WR_TAG_ADD = 0, IBV_WR_TAG_DEL = 1, IBV_WR_TAG_SYNC = 2);
c_enum!(ibv_ops_flags: IBV_OPS_SIGNALED = 1, IBV_OPS_TM_SYNC = 1 << 1);

/// `tm.add` of a list operation.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct OpsAdd {
    pub(crate) recv_wr_id: u64,
    pub(crate) sg_list: *mut ibv_sge,
    pub(crate) num_sge: c_int,
    pub(crate) tag: u64,
    pub(crate) mask: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_ops_wr {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ibv_ops_wr,
    pub(crate) opcode: ibv_ops_wr_opcode,
    pub(crate) flags: c_int,
    pub(crate) unexpected_cnt: u32,
    pub(crate) handle: u32,
    pub(crate) add: OpsAdd,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ibv_wc {
    pub(crate) wr_id: u64,
    pub(crate) status: ibv_wc_status,
    pub(crate) opcode: ibv_wc_opcode,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    /// Immediate data in network order, or the key that was invalidated.
    pub(crate) imm_data: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: c_uint,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}
