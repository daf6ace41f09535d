//! Structures of headers newer than Debian 12's.

use super::*;

pub(crate) const IBV_REG_MR_MASK_IOVA: u32 = 1;
pub(crate) const IBV_REG_MR_MASK_ADDR: u32 = 1 << 1;
pub(crate) const IBV_REG_MR_MASK_FD: u32 = 1 << 2;
pub(crate) const IBV_REG_MR_MASK_FD_OFFSET: u32 = 1 << 3;
pub(crate) const IBV_REG_MR_MASK_DMAH: u32 = 1 << 4;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_mr_init_attr {
    pub(crate) length: usize,
    pub(crate) access: c_int,
    pub(crate) comp_mask: u32,
    pub(crate) iova: u64,
    pub(crate) addr: *mut c_void,
    pub(crate) fd: c_int,
    pub(crate) fd_offset: u64,
    pub(crate) dmah: *mut c_void,
}
