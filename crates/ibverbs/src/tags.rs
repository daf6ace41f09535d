//! Operations on the matching list of a shared receive queue with tags.

use crate::abi::*;
use crate::boundary::c_ops;
use crate::errno;
use crate::post::Sges;
use crate::registry;
use crate::srq::Srq;
use highwire_host::verbs::TagRequest;
use highwire_verbs::{PostError, SgeList, TagHandle, TaggedBuffer};

/// Carries one operation out; an added buffer's handle goes where C expects it.
///
/// # Safety
/// The operation is one, as far as its opcode says.
unsafe fn carry_out(srq: &Srq, wr: &mut ibv_ops_wr) -> Result<(), PostError> {
    let has = |flag: ibv_ops_flags| wr.flags as c_uint & flag != 0;
    let request = TagRequest {
        wr_id: wr.wr_id,
        signaled: has(IBV_OPS_SIGNALED),
        unexpected: has(IBV_OPS_TM_SYNC).then_some(wr.unexpected_cnt),
    };
    match wr.opcode {
        IBV_WR_TAG_ADD => {
            let OpsAdd { recv_wr_id, sg_list, num_sge, tag, mask } = wr.add;
            // SAFETY: the caller's promise.
            let sges = unsafe { Sges::read(sg_list, num_sge)? };
            let sges = SgeList::from(sges.as_slice());
            let buffer = TaggedBuffer { wr_id: recv_wr_id, tag, mask, sges };
            wr.handle = srq.host.add_tag(buffer, &request)?.0;
            Ok(())
        }
        IBV_WR_TAG_DEL => srq.host.remove_tag(TagHandle(wr.handle), &request),
        IBV_WR_TAG_SYNC => {
            // `ibv_post_srq_ops(3)`: the operation synchronises, whatever its flags.
            srq.host.sync_tags(&TagRequest { unexpected: Some(wr.unexpected_cnt), ..request })
        }
        _ => Err(PostError::Unsupported),
    }
}

c_ops! {
    fn post_srq_ops(srq: *mut ibv_srq, wr: *mut ibv_ops_wr, bad: *mut *mut ibv_ops_wr) -> c_int {
        let Ok(srq) = registry::find::<Srq>(srq) else { return libc::EINVAL };
        let mut next = wr;
        while let Some(request) = next.as_mut() {
            if let Err(error) = carry_out(&srq, request) {
                if !bad.is_null() {
                    bad.write(next);
                }
                return errno::of_post("ibv_post_srq_ops", None, error);
            }
            next = request.next;
        }
        0
    }
}
