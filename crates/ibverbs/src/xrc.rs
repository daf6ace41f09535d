//! Extended reliable connections.

use crate::abi::*;
use crate::boundary::{answer, c_ops, code};
use crate::context::Context;
use crate::registry;

c_ops! {
    fn open_xrcd(context: *mut ibv_context, _attr: *mut ibv_xrcd_init_attr) -> *mut ibv_xrcd {
        answer(registry::find::<Context>(context).and(Err(libc::EOPNOTSUPP)))
    }

    fn close_xrcd(_xrcd: *mut ibv_xrcd) -> c_int {
        code(Err(libc::EOPNOTSUPP))
    }

    fn get_srq_num(_srq: *mut ibv_srq, _number: *mut u32) -> c_int {
        code(Err(libc::EOPNOTSUPP))
    }
}
