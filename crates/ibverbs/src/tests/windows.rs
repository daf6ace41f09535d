//! Windows of type 2, bound as by programs that were written for cards.

use super::pair::{ALL, Pair, remote, request};
use super::skip;
use crate::abi::*;
use crate::mw;

fn bind(pair: &Pair, window: *mut ibv_mw, rkey: u32, length: u64) -> ibv_send_wr {
    let mut wr = request(IBV_WR_BIND_MW);
    let access = ALL & !IBV_ACCESS_MW_BIND & !IBV_ACCESS_LOCAL_WRITE;
    let info = ibv_mw_bind_info { mr: pair.mr, addr: pair.address(0), length, mw_access_flags: access };
    wr.extra.bind_mw = WrBind { mw: window, rkey, bind_info: info };
    wr
}

#[test]
fn a_bind_takes_the_low_byte_of_its_key_and_the_rest_from_the_window() {
    let Some(pair) = Pair::new(IBV_QPT_RC, 8) else { return skip("no device could be opened here") };
    let [here, there] = pair.ends;
    // SAFETY: objects of the pair.
    unsafe {
        let window = mw::alloc_mw(pair.open.pd, IBV_MW_TYPE_2);
        let first = (*window).rkey;
        // A program may give a whole key that is another's: cards look at no more than its low byte.
        assert_eq!(there.post(&mut bind(&pair, window, 0xBA, 64), &mut []), 0);
        assert_eq!((there.next().status, (*window).rkey), (IBV_WC_SUCCESS, first & !0xFF | 0xBA));
        let mut write = remote(IBV_WR_RDMA_WRITE, pair.address(8), (*window).rkey);
        assert_eq!(here.post(&mut write, &mut [pair.sge(512, 8)]), 0);
        assert_eq!(here.next().status, IBV_WC_SUCCESS);
        let mut take_back = request(IBV_WR_LOCAL_INV);
        take_back.imm_data = (*window).rkey;
        assert_eq!(there.post(&mut take_back, &mut []), 0);
        assert_eq!(there.next().status, IBV_WC_SUCCESS);
        assert_eq!(there.post(&mut bind(&pair, window, (*window).rkey + 1, 64), &mut []), 0);
        assert_eq!((there.next().status, (*window).rkey), (IBV_WC_SUCCESS, first & !0xFF | 0xBB));
        assert_eq!(mw::dealloc_mw(window), 0);
    }
}

#[test]
fn a_window_of_type_two_is_not_bound_to_nothing() {
    let Some(pair) = Pair::new(IBV_QPT_RC, 8) else { return skip("no device could be opened here") };
    // SAFETY: objects of the pair.
    unsafe {
        let window = mw::alloc_mw(pair.open.pd, IBV_MW_TYPE_2);
        assert_eq!(pair.ends[0].post(&mut bind(&pair, window, 1, 0), &mut []), 0);
        assert_eq!(pair.ends[0].next().status, IBV_WC_MW_BIND_ERR);
        assert_eq!(mw::dealloc_mw(window), 0);
    }
}

#[test]
fn a_batch_that_is_given_up_leaves_the_windows_key() {
    let Some(pair) = Pair::new(IBV_QPT_RC, 8) else { return skip("no device could be opened here") };
    // SAFETY: objects of the pair; the functions are called in the order that programs have to keep.
    unsafe {
        let window = mw::alloc_mw(pair.open.pd, IBV_MW_TYPE_2);
        let before = (*window).rkey;
        let extended = pair.ends[0].qp.cast::<ibv_qp_ex>();
        let info = bind(&pair, window, 0, 64).extra.bind_mw.bind_info;
        ((*extended).wr_start.expect("a function"))(extended);
        ((*extended).wr_bind_mw.expect("a function"))(extended, window, before + 1, &info);
        assert_eq!((*window).rkey, before & !0xFF | (before + 1) & 0xFF);
        ((*extended).wr_abort.expect("a function"))(extended);
        assert_eq!((*window).rkey, before);
        assert_eq!(mw::dealloc_mw(window), 0);
    }
}
