//! Wrong arguments: an errno each, and never a crash.

use crate::abi::*;
use crate::{
    absent, ah, buffer, context, cq, device, dm, ece, events, mr, multicast, mw, ops, pd, post, qp, qp_attr,
    query, srq, tags, xrc,
};
use std::ptr::{NonNull, null, null_mut};

pub(super) fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Pointers that are not objects of ours: null, and two to memory that is something else.
pub(super) fn strangers<T>() -> [*mut T; 3] {
    static SOMETHING: [u64; 512] = [0xAA; 512];
    [null_mut(), SOMETHING.as_ptr().cast_mut().cast(), NonNull::<T>::dangling().as_ptr()]
}

#[test]
fn control_calls_refuse_what_is_no_object_of_theirs() {
    // SAFETY: none of the calls follows a pointer that it does not know.
    unsafe {
        for stranger in strangers::<ibv_context>() {
            let mut attr = std::mem::zeroed();
            assert_eq!(query::ibv_query_device(stranger, &mut attr), libc::EINVAL);
            assert_eq!(query::ibv_query_port(stranger, 1, &mut ibv_port_attr::default()), libc::EINVAL);
            assert_eq!(query::ibv_query_gid(stranger, 1, 0, &mut ibv_gid::default()), -1);
            assert_eq!(query::ibv_query_pkey(stranger, 1, 0, &mut 0), -1);
            assert!(pd::ibv_alloc_pd(stranger).is_null() && errno() == libc::EINVAL);
            assert!(cq::ibv_create_cq(stranger, 1, null_mut(), null_mut(), 0).is_null());
            assert!(events::ibv_create_comp_channel(stranger).is_null());
            assert_eq!(context::ibv_close_device(stranger), -1);
            assert_eq!(events::ibv_get_async_event(stranger, null_mut()), -1);
        }
        for stranger in strangers::<ibv_pd>() {
            assert_eq!(pd::ibv_dealloc_pd(stranger), libc::EINVAL);
            assert!(mr::ibv_reg_mr(stranger, null_mut(), 1, 0).is_null());
            assert!(ah::ibv_create_ah(stranger, &mut ibv_ah_attr::default()).is_null());
            assert!(qp::ibv_create_qp(stranger, null_mut()).is_null() && errno() == libc::EINVAL);
            assert!(srq::ibv_create_srq(stranger, null_mut()).is_null());
            assert!(mw::alloc_mw(stranger, IBV_MW_TYPE_2).is_null());
            assert!(mr::alloc_null_mr(stranger).is_null());
            assert_eq!(mr::advise_mr(stranger, 0, 0, null_mut(), 0), libc::EINVAL);
            assert!(buffer::ibv_alloc_buf(stranger, 1, null_mut()).is_null());
        }
        for stranger in strangers::<ibv_qp>() {
            assert_eq!(qp_attr::ibv_modify_qp(stranger, null_mut(), 0), libc::EINVAL);
            assert_eq!(qp_attr::ibv_query_qp(stranger, null_mut(), 0, null_mut()), libc::EINVAL);
            assert_eq!(qp::ibv_destroy_qp(stranger), libc::EINVAL);
            assert!(qp::ibv_qp_to_qp_ex(stranger).is_null());
            assert_eq!(multicast::ibv_attach_mcast(stranger, null(), 0), libc::EINVAL);
            assert_eq!(ece::ibv_query_ece(stranger, null_mut()), libc::EINVAL);
            assert_eq!(qp_attr::ibv_query_qp_data_in_order(stranger, 0, 0), 0);
            assert_eq!(absent::ibv_qp_attach_comp_cntr(stranger, null_mut(), null_mut()), libc::EINVAL);
        }
        for stranger in strangers::<ibv_mr>() {
            assert_eq!(mr::ibv_dereg_mr(stranger), libc::EINVAL);
            assert_eq!(mr::ibv_rereg_mr(stranger, 1, null_mut(), null_mut(), 0, 0), IBV_REREG_MR_ERR_INPUT);
        }
        for stranger in strangers::<ibv_cq>() {
            assert_eq!(cq::ibv_destroy_cq(stranger), libc::EINVAL);
            assert_eq!(cq::ibv_resize_cq(stranger, 1), libc::EINVAL);
            events::ibv_ack_cq_events(stranger, 1);
        }
        for stranger in strangers::<ibv_srq>() {
            assert_eq!(srq::ibv_destroy_srq(stranger), libc::EINVAL);
            assert_eq!(tags::post_srq_ops(stranger, null_mut(), null_mut()), libc::EINVAL);
            assert_eq!(srq::ibv_modify_srq(stranger, null_mut(), 0), libc::EINVAL);
            assert_eq!(srq::ibv_query_srq(stranger, null_mut()), libc::EINVAL);
        }
        for stranger in strangers::<ibv_comp_channel>() {
            assert_eq!(events::ibv_destroy_comp_channel(stranger), libc::EINVAL);
            assert_eq!(events::ibv_get_cq_event(stranger, null_mut(), null_mut()), -1);
        }
        for stranger in strangers::<ibv_ah>() {
            assert_eq!(ah::ibv_destroy_ah(stranger), libc::EINVAL);
        }
        for stranger in strangers::<ibv_dm>() {
            assert_eq!(dm::free_dm(stranger), libc::EINVAL);
        }
        for stranger in strangers::<ibv_xrcd>() {
            assert_ne!(xrc::close_xrcd(stranger), 0);
        }
        for stranger in strangers::<ibv_device>() {
            assert!(context::ibv_open_device(stranger).is_null());
            assert_eq!(device::ibv_get_device_index(stranger), -1);
        }
        assert!(device::ibv_get_device_name(null_mut()).is_null());
        events::ibv_ack_async_event(null_mut());
        assert!(context::ibv_import_device(-1).is_null());
    }
}

/// A device of this process, closed in the end.
pub(super) struct Open {
    pub(super) context: *mut ibv_context,
    pub(super) pd: *mut ibv_pd,
    pub(super) cq: *mut ibv_cq,
}

impl Open {
    pub(super) fn new() -> Option<Open> {
        // SAFETY: an ordinary program's first calls.
        unsafe {
            let context = context::ibv_open_device(device::at(0)?);
            if context.is_null() {
                return None;
            }
            let pd = pd::ibv_alloc_pd(context);
            let cq = cq::ibv_create_cq(context, 16, null_mut(), null_mut(), 0);
            Some(Open { context, pd, cq })
        }
    }

    pub(super) fn qp(&self, qp_type: ibv_qp_type) -> *mut ibv_qp {
        self.qp_with_inline(qp_type, 64).0
    }

    /// A queue pair for which so many inline bytes were asked, and how many there are.
    fn qp_with_inline(&self, qp_type: ibv_qp_type, max_inline_data: u32) -> (*mut ibv_qp, u32) {
        let cap =
            ibv_qp_cap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data };
        let mut init = ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: self.cq,
            recv_cq: self.cq,
            srq: null_mut(),
            cap,
            qp_type,
            sq_sig_all: 0,
        };
        // SAFETY: the domain is ours, the attributes are a structure.
        let qp = unsafe { qp::ibv_create_qp(self.pd, &mut init) };
        (qp, init.cap.max_inline_data)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and nothing is left in them.
        unsafe {
            assert_eq!(cq::ibv_destroy_cq(self.cq), 0);
            assert_eq!(pd::ibv_dealloc_pd(self.pd), 0);
            assert_eq!(context::ibv_close_device(self.context), 0);
            assert_eq!(context::ibv_close_device(self.context), -1, "closed twice");
        }
    }
}

#[test]
fn wrong_values_are_refused_and_objects_in_use_are_kept() {
    // A device of its own: no other process takes part.
    let Some(open) = Open::new() else { return super::skip("no device could be opened here") };
    // SAFETY: objects of ours, and structures of this function.
    unsafe {
        assert!(cq::ibv_create_cq(open.context, 0, null_mut(), null_mut(), 0).is_null());
        assert!(cq::ibv_create_cq(open.context, 1, null_mut(), null_mut(), 7).is_null(), "no such vector");
        let mut bytes = [0_u8; 64];
        let remote_write_alone = IBV_ACCESS_REMOTE_WRITE as c_int;
        assert!(mr::ibv_reg_mr(open.pd, bytes.as_mut_ptr().cast(), 64, remote_write_alone).is_null());
        assert_eq!(errno(), libc::EINVAL);
        assert!(mr::ibv_reg_mr(open.pd, 0x1000 as *mut c_void, 64, 1).is_null(), "nothing is mapped there");
        assert_eq!(errno(), libc::EFAULT);
        assert!(open.qp(99).is_null() && errno() == libc::EINVAL);
        assert!(open.qp(IBV_QPT_DRIVER).is_null() && errno() == libc::EOPNOTSUPP);

        let qp = open.qp(IBV_QPT_RC);
        assert!(!qp.is_null());
        assert_eq!(cq::ibv_destroy_cq(open.cq), libc::EBUSY);
        assert_eq!(pd::ibv_dealloc_pd(open.pd), libc::EBUSY);
        let attr = ibv_qp_attr { qp_state: IBV_QPS_RTS, ..ibv_qp_attr::default() };
        assert_eq!(
            qp_attr::ibv_modify_qp(qp, (&raw const attr).cast_mut(), IBV_QP_STATE as c_int),
            libc::EINVAL
        );

        let mut request: ibv_send_wr = std::mem::zeroed();
        request.opcode = 77;
        let mut bad = null_mut();
        let send = ops::context_ops().post_send.expect("a function");
        assert_eq!(send(qp, &mut request, &mut bad), libc::EINVAL);
        assert_eq!(bad, &raw mut request);
        request.num_sge = c_int::MAX;
        assert_eq!(send(qp, &mut request, &mut bad), libc::EINVAL);
        assert_eq!(post::post_recv(qp, null_mut(), &mut null_mut()), 0, "an empty chain");
        assert_eq!(qp::ibv_destroy_qp(qp), 0);
        assert_eq!(qp::ibv_destroy_qp(qp), libc::EINVAL, "destroyed twice");
    }
}

#[test]
fn memory_is_registered_by_whatever_the_mask_of_its_attributes_names() {
    let Some(open) = Open::new() else { return super::skip("no device could be opened here") };
    // SAFETY: objects of ours, and structures of this function.
    unsafe {
        let mut buf = null_mut();
        let memory = buffer::ibv_alloc_buf(open.pd, 4096, &mut buf);
        let (addr, access) =
            (memory.cast::<u8>().add(1024).cast::<c_void>(), IBV_ACCESS_LOCAL_WRITE as c_int);
        let mut attr: ibv_mr_init_attr = std::mem::zeroed();
        (attr.length, attr.access, attr.addr, attr.buf) = (1024, access, addr, buf);
        let register = |attr: &ibv_mr_init_attr, comp_mask| {
            let mr = buffer::ibv_reg_mr_ex(open.pd, &ibv_mr_init_attr { comp_mask, ..*attr });
            if mr.is_null() { Err(errno()) } else { Ok(mr) }
        };
        for mask in [0, IBV_REG_MR_MASK_IOVA, IBV_REG_MR_MASK_BUF, IBV_REG_MR_MASK_BUF | IBV_REG_MR_MASK_IOVA]
        {
            let mr = register(&attr, mask | IBV_REG_MR_MASK_ADDR).expect("registers");
            assert_eq!(((*mr).addr, (*mr).length), (addr, 1024));
            assert_eq!(mr::ibv_dereg_mr(mr), 0);
        }
        let refused = |attr: &ibv_mr_init_attr, mask| register(attr, mask).expect_err("refused");
        assert_eq!(refused(&attr, 0), libc::EINVAL, "neither address nor descriptor");
        assert_eq!(refused(&attr, IBV_REG_MR_MASK_BUF), libc::EINVAL, "a buffer without an address in it");
        assert_eq!(refused(&attr, IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_FD), libc::EINVAL);
        assert_eq!(refused(&attr, IBV_REG_MR_MASK_FD), libc::EOPNOTSUPP);
        assert_eq!(refused(&attr, IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_DMAH), libc::EOPNOTSUPP);
        assert_eq!(refused(&attr, IBV_REG_MR_MASK_ADDR | 1 << 40), libc::EOPNOTSUPP, "a bit of the future");
        attr.length = 4096;
        let in_buffer = IBV_REG_MR_MASK_ADDR | IBV_REG_MR_MASK_BUF;
        assert_eq!(refused(&attr, in_buffer), libc::EINVAL, "beyond the buffer");
        attr.buf = (&raw mut attr.length).cast();
        assert_eq!(refused(&attr, in_buffer), libc::EINVAL, "no buffer of ours");
        // The structure of a program that was built against v59 to v63 ends in front of `buf`.
        attr.length = 8;
        let page = libc::mmap(
            null_mut(),
            8192,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_eq!(libc::mprotect(page.cast::<u8>().add(4096).cast(), 4096, libc::PROT_NONE), 0);
        let shorter = page.cast::<u8>().add(4096 - 64);
        let bytes = ibv_mr_init_attr { comp_mask: IBV_REG_MR_MASK_ADDR, ..attr };
        std::ptr::copy_nonoverlapping((&raw const bytes).cast::<u8>(), shorter, 64);
        let mr = buffer::ibv_reg_mr_ex(open.pd, shorter.cast());
        assert!(!mr.is_null());
        assert_eq!((mr::ibv_dereg_mr(mr), libc::munmap(page, 8192)), (0, 0));
        assert_eq!((buffer::ibv_export_buf_dmabuf_fd(buf), errno()), (-1, libc::ENODATA));
        buffer::ibv_free_buf(buf);
        assert_eq!((buffer::ibv_export_buf_dmabuf_fd(buf), errno()), (-1, libc::EINVAL));
    }
}

#[test]
fn a_parent_domain_may_ask_for_memory_that_a_confidential_guest_shares() {
    let Some(open) = Open::new() else { return super::skip("no device could be opened here") };
    // SAFETY: objects of ours, and structures of this function.
    unsafe {
        let mut attr: ibv_parent_domain_init_attr = std::mem::zeroed();
        attr.pd = open.pd;
        attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOW_CC_UNPROTECTED_ALLOC;
        let parent = pd::alloc_parent_domain(open.context, &mut attr);
        assert!(!parent.is_null());
        let mut buf = null_mut();
        let memory = buffer::ibv_alloc_buf(parent, 64, &mut buf);
        let access = IBV_ACCESS_LOCAL_WRITE as c_int;
        assert!(
            buffer::ibv_reg_buf_mr(open.pd, buf, memory, 64, access).is_null() && errno() == libc::EINVAL
        );
        let mr = buffer::ibv_reg_buf_mr(parent, buf, memory, 64, access);
        assert_eq!((mr.is_null(), mr::ibv_dereg_mr(mr)), (false, 0));
        buffer::ibv_free_buf(buf);
        assert_eq!(pd::ibv_dealloc_pd(parent), 0);
        attr.comp_mask = 1 << 9;
        assert!(pd::alloc_parent_domain(open.context, &mut attr).is_null() && errno() == libc::EINVAL);
    }
}

#[test]
fn access_bits_that_a_queue_pair_has_no_use_for_are_left_alone() {
    let Some(open) = Open::new() else { return super::skip("no device could be opened here") };
    let flush = IBV_ACCESS_FLUSH_GLOBAL | IBV_ACCESS_FLUSH_PERSISTENT;
    // SAFETY: objects of ours, and structures of this function.
    unsafe {
        let qp = open.qp(IBV_QPT_RC);
        let qp_access_flags = IBV_ACCESS_REMOTE_WRITE | flush;
        let mut attr =
            ibv_qp_attr { qp_state: IBV_QPS_INIT, port_num: 1, qp_access_flags, ..Default::default() };
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        assert_eq!(qp_attr::ibv_modify_qp(qp, &mut attr, mask as c_int), 0);
        let mut init = std::mem::zeroed();
        assert_eq!(qp_attr::ibv_query_qp(qp, &mut attr, mask as c_int, &mut init), 0);
        assert_eq!(attr.qp_access_flags & 0xF, IBV_ACCESS_REMOTE_WRITE);
        assert_eq!(qp::ibv_destroy_qp(qp), 0);
        // For memory the flag would be a promise that no device here could keep (`ib_check_mr_access` of the kernel says the
        // same).
        let mut bytes = [0_u8; 64];
        let access = (IBV_ACCESS_LOCAL_WRITE | flush) as c_int;
        assert!(mr::ibv_reg_mr(open.pd, bytes.as_mut_ptr().cast(), 64, access).is_null());
        assert_eq!(errno(), libc::EOPNOTSUPP);
    }
}

#[test]
fn who_asks_for_no_inline_data_is_given_some_all_the_same() {
    let Some(open) = Open::new() else { return super::skip("no device could be opened here") };
    for (asked, granted) in [(0, 64), (1, 64), (64, 64), (65, 128), (256, 256)] {
        let (qp, max) = open.qp_with_inline(IBV_QPT_RC, asked);
        assert_eq!((qp.is_null(), max), (false, granted), "{asked} asked for");
        // SAFETY: made above, and nothing else uses it.
        assert_eq!(unsafe { qp::ibv_destroy_qp(qp) }, 0);
    }
    assert!(open.qp_with_inline(IBV_QPT_RC, 257).0.is_null() && errno() == libc::EINVAL);
}
