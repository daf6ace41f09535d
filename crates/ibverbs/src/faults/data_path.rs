//! The data path with a scenario: contexts get these functions instead of the usual ones.

use super::{completions, judge, may_refuse};
use crate::abi::*;
use crate::{post, srq, wr};

/// The functions of a context: the usual ones, or with a scenario those that ask it.
pub(crate) fn context_ops(usual: ibv_context_ops) -> ibv_context_ops {
    if !may_refuse() {
        return usual;
    }
    ibv_context_ops {
        poll_cq: Some(completions::poll_cq),
        req_notify_cq: Some(completions::req_notify_cq),
        post_send: Some(post_send),
        post_recv: Some(post_recv),
        post_srq_recv: Some(post_srq_recv),
        ..usual
    }
}

/// The errno with which a post fails, which then has posted nothing.
fn refusal<T>(function: &'static str, object: usize, first: *mut T, bad: *mut *mut T) -> c_int {
    crate::boundary::guard(|| {
        let errno = judge(function, Some(object));
        if errno != 0 && !bad.is_null() {
            // SAFETY: not null, and C's to be written to.
            unsafe { bad.write(first) };
        }
        errno
    })
}

unsafe extern "C-unwind" fn post_send(
    qp: *mut ibv_qp,
    wr: *mut ibv_send_wr,
    bad: *mut *mut ibv_send_wr,
) -> c_int {
    match refusal("ibv_post_send", qp as usize, wr, bad) {
        // SAFETY: the caller's promise.
        0 => unsafe { post::post_send(qp, wr, bad) },
        errno => errno,
    }
}

unsafe extern "C-unwind" fn post_recv(
    qp: *mut ibv_qp,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    match refusal("ibv_post_recv", qp as usize, wr, bad) {
        // SAFETY: the caller's promise.
        0 => unsafe { post::post_recv(qp, wr, bad) },
        errno => errno,
    }
}

unsafe extern "C-unwind" fn post_srq_recv(
    srq: *mut ibv_srq,
    wr: *mut ibv_recv_wr,
    bad: *mut *mut ibv_recv_wr,
) -> c_int {
    match refusal("ibv_post_srq_recv", srq as usize, wr, bad) {
        // SAFETY: the caller's promise.
        0 => unsafe { srq::post_srq_recv(srq, wr, bad) },
        errno => errno,
    }
}

/// `ibv_wr_complete` with a scenario: a batch that is refused is given up.
pub(crate) unsafe extern "C-unwind" fn wr_complete(qp: *mut ibv_qp_ex) -> c_int {
    let errno = crate::boundary::guard(|| judge("ibv_wr_complete", Some(qp as usize)));
    // SAFETY: the caller's promise.
    unsafe {
        if errno == 0 {
            return wr::wr_complete(qp);
        }
        wr::wr_abort(qp);
    }
    errno
}

/// The function that ends a batch.
pub(crate) fn completing() -> unsafe extern "C-unwind" fn(*mut ibv_qp_ex) -> c_int {
    if may_refuse() { wr_complete } else { wr::wr_complete }
}
