//! Behaviour of cards on which programs rely: which mistakes are refused at once, and which end in an error
//! completion.

use super::arguments::{Open, errno};
use super::pair::{ALL, Pair, caps, remote};
use super::skip;
use crate::abi::*;
use crate::limits::MAX_SRQ;
use crate::{ah, cq, events, mr, mw, pd, qp, query, srq};
use std::ptr::null_mut;

#[test]
fn a_send_queue_is_full_until_a_completion_was_polled() {
    let Some(pair) = Pair::new(IBV_QPT_RC, 4) else { return skip("no device could be opened here") };
    let [here, _] = pair.ends;
    let post = |send_flags| {
        let mut write = ibv_send_wr { send_flags, ..remote(IBV_WR_RDMA_WRITE, pair.address(0), pair.rkey()) };
        here.post(&mut write, &mut [pair.sge(512, 8)])
    };
    // A thread that cannot get at the engine for long may post a few more.
    let refused =
        |first: c_uint, count| (0..count).filter(|n| post(if *n == 0 { first } else { 0 }) != 0).count();
    assert!(refused(IBV_SEND_SIGNALED, 1000) > 900, "four are taken");
    // The requests end by themselves, and their places are in use all the same.
    assert!(refused(0, 1000) > 900);
    assert_eq!(post(0), libc::ENOMEM);
    assert_eq!(here.next().status, IBV_WC_SUCCESS);
    // The place of the signaled request, which was the first one.
    assert!((900..1000).contains(&refused(0, 1000)), "one is taken");
    assert!(here.poll().is_none());
    // A queue without any signaled request stays full for ever, and is free again after a reset.
    let mut attr = ibv_qp_attr { qp_state: IBV_QPS_RESET, ..Default::default() };
    // SAFETY: a queue pair of the pair.
    assert_eq!(unsafe { crate::qp_attr::ibv_modify_qp(here.qp, &mut attr, IBV_QP_STATE as c_int) }, 0);
}

#[test]
fn a_completion_queue_that_overflows_is_an_event() {
    let Some(pair) = Pair::new(IBV_QPT_RC, 256) else { return skip("no device could be opened here") };
    let [here, _] = pair.ends;
    for _ in 0..200 {
        let mut write = remote(IBV_WR_RDMA_WRITE, pair.address(0), pair.rkey());
        // Once the queue is found to be full, the queue pair is in error.
        let _ = here.post(&mut write, &mut [pair.sge(512, 8)]);
    }
    // SAFETY: objects of the pair.
    unsafe {
        let mut ready = libc::pollfd { fd: (*pair.open.context).async_fd, events: libc::POLLIN, revents: 0 };
        assert_eq!(libc::poll(&mut ready, 1, 60_000), 1, "an event");
        let mut event: ibv_async_event = std::mem::zeroed();
        assert_eq!(events::ibv_get_async_event(pair.open.context, &mut event), 0);
        assert_eq!((event.event_type, event.element), (IBV_EVENT_CQ_ERR, here.cq as *mut c_void as _));
        events::ibv_ack_async_event(&mut event);
    }
}

#[test]
fn requests_that_cards_take_are_taken_and_end_in_an_error() {
    let cases: [(ibv_qp_type, ibv_wr_opcode, u64, u32, ibv_wc_status); 6] = [
        (IBV_QPT_RC, IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 8, IBV_WC_REM_INV_REQ_ERR),
        (IBV_QPT_RC, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 9, IBV_WC_LOC_LEN_ERR),
        (IBV_QPT_UC, IBV_WR_RDMA_READ, 0, 8, IBV_WC_LOC_QP_OP_ERR),
        (IBV_QPT_UD, IBV_WR_RDMA_WRITE, 0, 8, IBV_WC_LOC_QP_OP_ERR),
        (IBV_QPT_UD, IBV_WR_RDMA_READ, 0, 8, IBV_WC_LOC_QP_OP_ERR),
        (IBV_QPT_UD, IBV_WR_SEND, 0, 8192, IBV_WC_LOC_LEN_ERR),
    ];
    for (kind, opcode, odd, length, expected) in cases {
        let Some(pair) = Pair::new(kind, 4) else { return skip("no device could be opened here") };
        let [here, there] = pair.ends;
        let mut wr = remote(opcode, pair.address(64) + odd, pair.rkey());
        if opcode == IBV_WR_ATOMIC_FETCH_AND_ADD {
            let remote_addr = pair.address(64) + odd;
            wr.wr.atomic = WrAtomic { remote_addr, compare_add: 1, swap: 0, rkey: pair.rkey() };
        }
        let mut ah = null_mut();
        if (kind, opcode) == (IBV_QPT_UD, IBV_WR_SEND) {
            // SAFETY: objects of the pair.
            unsafe {
                ah = ah::ibv_create_ah(pair.open.pd, &mut pair.there());
                wr.wr.ud = WrUd { ah, remote_qpn: (*there.qp).qp_num, remote_qkey: 7 };
            }
        }
        assert_eq!(here.post(&mut wr, &mut [pair.sge(0, length)]), 0, "{kind} {opcode}");
        assert_eq!(here.next().status, expected, "{kind} {opcode}");
        if !ah.is_null() {
            // SAFETY: made above.
            assert_eq!(unsafe { ah::ibv_destroy_ah(ah) }, 0);
        }
    }
}

#[test]
fn the_responder_speaks_before_a_wrong_local_key_does() {
    for (opcode, rkey, expected) in [
        (IBV_WR_RDMA_READ, 0, IBV_WC_LOC_PROT_ERR),
        (IBV_WR_RDMA_READ, 1 << 8, IBV_WC_REM_ACCESS_ERR),
        (IBV_WR_RDMA_WRITE, 1 << 8, IBV_WC_LOC_PROT_ERR),
    ] {
        let Some(pair) = Pair::new(IBV_QPT_RC, 4) else { return skip("no device could be opened here") };
        let mut wr = remote(opcode, pair.address(64), pair.rkey() ^ rkey);
        let sge = ibv_sge { lkey: 0x7777_7777, ..pair.sge(0, 8) };
        assert_eq!(pair.ends[0].post(&mut wr, &mut [sge]), 0);
        assert_eq!(pair.ends[0].next().status, expected, "{opcode}");
    }
}

#[test]
fn a_write_with_immediate_whose_key_is_wrong_ends_the_responders_receive_in_an_error() {
    let Some(pair) = Pair::new(IBV_QPT_RC, 4) else { return skip("no device could be opened here") };
    let [here, there] = pair.ends;
    there.receive(7, &mut []);
    let mut wr = remote(IBV_WR_RDMA_WRITE_WITH_IMM, pair.address(64), pair.rkey() ^ 0x100);
    assert_eq!(here.post(&mut wr, &mut [pair.sge(0, 8)]), 0);
    assert_eq!(here.next().status, IBV_WC_REM_ACCESS_ERR);
    let received = there.next();
    assert_eq!((received.wr_id, received.status), (7, IBV_WC_LOC_ACCESS_ERR));
}

#[test]
fn what_is_announced_as_a_limit_is_one() {
    let Some(open) = Open::new() else { return skip("no device could be opened here") };
    // SAFETY: objects of this function, each destroyed once.
    unsafe {
        let mut attr = std::mem::zeroed();
        assert_eq!(query::ibv_query_device(open.context, &mut attr), 0);
        assert_eq!(attr.max_srq, MAX_SRQ as c_int);
        let make = || {
            let limits = ibv_srq_attr { max_wr: 1, max_sge: 1, srq_limit: 0 };
            let made = srq::ibv_create_srq(
                open.pd,
                &mut ibv_srq_init_attr { srq_context: null_mut(), attr: limits },
            );
            if made.is_null() { Err(errno()) } else { Ok(made) }
        };
        // Other tests of the process may have one.
        let mut made: Vec<_> = std::iter::from_fn(|| make().ok()).collect();
        assert!((MAX_SRQ as usize - 8..=MAX_SRQ as usize).contains(&made.len()), "{}", made.len());
        assert_eq!(make(), Err(libc::ENOMEM));
        assert_eq!(srq::ibv_destroy_srq(made.pop().expect("one of them")), 0);
        made.push(make().expect("there is room for one again"));
        made.into_iter().for_each(|srq| assert_eq!(srq::ibv_destroy_srq(srq), 0));
    }
}

#[test]
fn an_object_whose_handle_was_garbled_is_not_found() {
    let Some(pair) = Pair::new(IBV_QPT_RC, 4) else { return skip("no device could be opened here") };
    let (open, end) = (&pair.open, pair.ends[0]);
    // SAFETY: objects of the pair, whose handles come back.
    unsafe {
        let window = mw::alloc_mw(open.pd, IBV_MW_TYPE_1);
        let there = ah::ibv_create_ah(open.pd, &mut pair.there());
        let limits = ibv_srq_attr { max_wr: 1, max_sge: 1, srq_limit: 0 };
        let shared =
            srq::ibv_create_srq(open.pd, &mut ibv_srq_init_attr { srq_context: null_mut(), attr: limits });
        let mut init = ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: end.cq,
            recv_cq: end.cq,
            srq: null_mut(),
            cap: caps(1),
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        };
        let garbled = |handle: &mut u32, is_refused: &mut dyn FnMut() -> bool| {
            *handle ^= 0x00AB_CDEF;
            assert!(is_refused());
            *handle ^= 0x00AB_CDEF;
        };
        garbled(&mut (*open.pd).handle, &mut || {
            pd::ibv_dealloc_pd(open.pd) == libc::ENOENT
                && qp::ibv_create_qp(open.pd, &mut init).is_null()
                && mr::ibv_reg_mr(open.pd, pair.address(0) as *mut c_void, 8, ALL as c_int).is_null()
                && mw::alloc_mw(open.pd, IBV_MW_TYPE_1).is_null()
                && ah::ibv_create_ah(open.pd, &mut pair.there()).is_null()
        });
        garbled(&mut (*end.cq).handle, &mut || {
            cq::ibv_destroy_cq(end.cq) == libc::ENOENT && qp::ibv_create_qp(open.pd, &mut init).is_null()
        });
        garbled(&mut (*end.qp).handle, &mut || qp::ibv_destroy_qp(end.qp) == libc::ENOENT);
        garbled(&mut (*pair.mr).handle, &mut || mr::ibv_dereg_mr(pair.mr) == libc::ENOENT);
        garbled(&mut (*window).handle, &mut || mw::dealloc_mw(window) == libc::ENOENT);
        garbled(&mut (*there).handle, &mut || ah::ibv_destroy_ah(there) == libc::ENOENT);
        garbled(&mut (*shared).handle, &mut || srq::ibv_destroy_srq(shared) == libc::ENOENT);
        (*open.context).cmd_fd += 1000;
        assert!(pd::ibv_alloc_pd(open.context).is_null() && errno() == libc::EBADF);
        (*open.context).cmd_fd -= 1000;
        assert_eq!(
            (mw::dealloc_mw(window), ah::ibv_destroy_ah(there), srq::ibv_destroy_srq(shared)),
            (0, 0, 0)
        );
    }
}
