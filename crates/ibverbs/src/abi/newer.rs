//! Structures of headers newer than Debian 12's, as rdma-core v65 lays them out; before v64 `ibv_mr_init_attr` ended in front of `buf`.

use super::*;

pub(crate) const IBV_REG_MR_MASK_IOVA: u64 = 1;
pub(crate) const IBV_REG_MR_MASK_ADDR: u64 = 1 << 1;
pub(crate) const IBV_REG_MR_MASK_FD: u64 = 1 << 2;
pub(crate) const IBV_REG_MR_MASK_FD_OFFSET: u64 = 1 << 3;
pub(crate) const IBV_REG_MR_MASK_DMAH: u64 = 1 << 4;
pub(crate) const IBV_REG_MR_MASK_BUF: u64 = 1 << 5;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_mr_init_attr {
    pub(crate) length: usize,
    pub(crate) access: c_int,
    pub(crate) comp_mask: u64,
    pub(crate) iova: u64,
    pub(crate) addr: *mut c_void,
    pub(crate) fd: c_int,
    pub(crate) fd_offset: u64,
    pub(crate) dmah: *mut c_void,
    /// A buffer from `ibv_alloc_buf`.
    pub(crate) buf: *mut u64,
}
