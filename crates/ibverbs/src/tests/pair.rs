//! Two queue pairs of one process, connected to each other, for conversations through C's own calls.

use super::arguments::Open;
use crate::abi::*;
use crate::{cq, mr, ops, qp, qp_attr, query};
use std::ptr::null_mut;

/// Both ends, each with a completion queue of its own, and memory that both may use in every way.
pub(super) struct Pair {
    pub(super) open: Open,
    pub(super) ends: [End; 2],
    pub(super) mr: *mut ibv_mr,
    pub(super) memory: Box<[u8; 16384]>,
}

/// One end.
#[derive(Clone, Copy)]
pub(super) struct End {
    pub(super) qp: *mut ibv_qp,
    pub(super) cq: *mut ibv_cq,
}

/// All rights that a peer may have.
pub(super) const ALL: c_uint = IBV_ACCESS_LOCAL_WRITE
    | IBV_ACCESS_REMOTE_WRITE
    | IBV_ACCESS_REMOTE_READ
    | IBV_ACCESS_REMOTE_ATOMIC
    | IBV_ACCESS_MW_BIND;

pub(super) fn caps(max_send_wr: u32) -> ibv_qp_cap {
    ibv_qp_cap { max_send_wr, max_recv_wr: 8, max_send_sge: 2, max_recv_sge: 2, max_inline_data: 64 }
}

impl Pair {
    /// Connected, with so many send requests each.
    pub(super) fn new(qp_type: ibv_qp_type, max_send_wr: u32) -> Option<Pair> {
        let open = Open::new()?;
        let mut memory = Box::new([0_u8; 16384]);
        // SAFETY: objects of the device that was opened, and memory that the pair keeps.
        unsafe {
            let mr = mr::ibv_reg_mr(open.pd, memory.as_mut_ptr().cast(), memory.len(), ALL as c_int);
            assert!(!mr.is_null());
            let end = || {
                let cq = cq::ibv_create_cq(open.context, 64, null_mut(), null_mut(), 0);
                let mut init = ibv_qp_init_attr {
                    qp_context: null_mut(),
                    send_cq: cq,
                    recv_cq: cq,
                    srq: null_mut(),
                    cap: caps(max_send_wr),
                    qp_type,
                    sq_sig_all: 0,
                };
                let qp = qp::ibv_create_qp(open.pd, &mut init);
                assert!(!qp.is_null());
                End { qp, cq }
            };
            let pair = Pair { ends: [end(), end()], open, mr, memory };
            pair.connect(qp_type);
            Some(pair)
        }
    }

    unsafe fn connect(&self, qp_type: ibv_qp_type) {
        // SAFETY: objects of the pair.
        unsafe {
            for (end, peer) in [(self.ends[0], self.ends[1]), (self.ends[1], self.ends[0])] {
                let mut attr = ibv_qp_attr {
                    qp_access_flags: ALL,
                    qkey: 7,
                    path_mtu: IBV_MTU_1024,
                    dest_qp_num: (*peer.qp).qp_num,
                    ah_attr: self.there(),
                    max_rd_atomic: 4,
                    max_dest_rd_atomic: 4,
                    min_rnr_timer: 1,
                    timeout: 14,
                    retry_cnt: 7,
                    rnr_retry: 7,
                    port_num: 1,
                    ..Default::default()
                };
                let path = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
                let [init, rtr, rts] = match qp_type {
                    IBV_QPT_UD => [IBV_QP_QKEY, 0, IBV_QP_SQ_PSN],
                    IBV_QPT_UC => [IBV_QP_ACCESS_FLAGS, path, IBV_QP_SQ_PSN],
                    _ => [
                        IBV_QP_ACCESS_FLAGS,
                        path | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER,
                        IBV_QP_TIMEOUT
                            | IBV_QP_RETRY_CNT
                            | IBV_QP_RNR_RETRY
                            | IBV_QP_SQ_PSN
                            | IBV_QP_MAX_QP_RD_ATOMIC,
                    ],
                };
                let steps = [
                    (IBV_QPS_INIT, init | IBV_QP_PKEY_INDEX | IBV_QP_PORT),
                    (IBV_QPS_RTR, rtr),
                    (IBV_QPS_RTS, rts),
                ];
                for (state, mask) in steps {
                    attr.qp_state = state;
                    let changed = qp_attr::ibv_modify_qp(end.qp, &mut attr, (mask | IBV_QP_STATE) as c_int);
                    assert_eq!(changed, 0, "to state {state}");
                }
            }
        }
    }

    /// Where the device itself is.
    pub(super) fn there(&self) -> ibv_ah_attr {
        let mut dgid = ibv_gid::default();
        // SAFETY: the context is open.
        assert_eq!(unsafe { query::ibv_query_gid(self.open.context, 1, 0, &mut dgid) }, 0);
        let grh = ibv_global_route { dgid, hop_limit: 64, ..Default::default() };
        ibv_ah_attr { grh, is_global: 1, port_num: 1, ..Default::default() }
    }

    pub(super) fn rkey(&self) -> u32 {
        // SAFETY: registered, and the pair's.
        unsafe { (*self.mr).rkey }
    }

    pub(super) fn address(&self, at: usize) -> u64 {
        self.memory.as_ptr() as u64 + at as u64
    }

    pub(super) fn sge(&self, at: usize, length: u32) -> ibv_sge {
        // SAFETY: registered, and the pair's.
        ibv_sge { addr: self.address(at), length, lkey: unsafe { (*self.mr).lkey } }
    }
}

/// A signaled request that reads or writes the peer's memory.
pub(super) fn remote(opcode: ibv_wr_opcode, remote_addr: u64, rkey: u32) -> ibv_send_wr {
    let mut request = request(opcode);
    request.wr.rdma = WrRdma { remote_addr, rkey };
    request
}

/// A signaled request without anything.
pub(super) fn request(opcode: ibv_wr_opcode) -> ibv_send_wr {
    // SAFETY: zeros are such a request.
    let mut request: ibv_send_wr = unsafe { std::mem::zeroed() };
    (request.opcode, request.send_flags) = (opcode, IBV_SEND_SIGNALED);
    request
}

impl End {
    pub(super) fn post(&self, request: &mut ibv_send_wr, sges: &mut [ibv_sge]) -> c_int {
        (request.sg_list, request.num_sge) = (sges.as_mut_ptr(), sges.len() as c_int);
        let send = ops::context_ops().post_send.expect("a function");
        // SAFETY: a queue pair of ours, and a request that names elements of this call.
        unsafe { send(self.qp, request, &mut null_mut()) }
    }

    pub(super) fn receive(&self, wr_id: u64, sges: &mut [ibv_sge]) {
        let mut request =
            ibv_recv_wr { wr_id, next: null_mut(), sg_list: sges.as_mut_ptr(), num_sge: sges.len() as c_int };
        let receive = ops::context_ops().post_recv.expect("a function");
        // SAFETY: as above.
        assert_eq!(unsafe { receive(self.qp, &mut request, &mut null_mut()) }, 0);
    }

    /// The next completion, within a minute.
    pub(super) fn next(&self) -> ibv_wc {
        let begin = std::time::Instant::now();
        loop {
            if let Some(done) = self.poll() {
                return done;
            }
            assert!(begin.elapsed().as_secs() < 60, "nothing completes");
        }
    }

    pub(super) fn poll(&self) -> Option<ibv_wc> {
        let mut one = ibv_wc::default();
        // SAFETY: a completion queue of ours.
        (unsafe { cq::poll_cq(self.cq, 1, &mut one) } == 1).then_some(one)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and nothing is left in them.
        unsafe {
            for end in self.ends {
                assert_eq!(qp::ibv_destroy_qp(end.qp), 0);
                assert_eq!(cq::ibv_destroy_cq(end.cq), 0);
            }
            assert_eq!(mr::ibv_dereg_mr(self.mr), 0);
        }
    }
}
