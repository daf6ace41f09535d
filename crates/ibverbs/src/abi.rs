//! The structures and numbers of `<infiniband/verbs.h>`, under their C names.
//!
//! The binary interface only grows, so these suit programs compiled against any header since 2008.
//! `tests/layout.rs` compares every offset with a C compiler's.
#![allow(non_camel_case_types, dead_code, unused_imports)]

mod context;
mod device;
mod memory;
mod newer;
mod path;
mod queue;
mod queue_pair;
mod steering;
mod work;

pub(crate) use context::*;
pub(crate) use device::*;
pub(crate) use memory::*;
pub(crate) use newer::*;
pub(crate) use path::*;
pub(crate) use queue::*;
pub(crate) use queue_pair::*;
pub(crate) use steering::*;
pub(crate) use work::*;

pub(crate) use libc::{c_char, c_int, c_uint, c_void, pthread_cond_t, pthread_mutex_t};

/// A C enumeration: its type, and its values as constants.
macro_rules! c_enum {
    ($(#[$doc:meta])* $name:ident: $($value:ident = $number:expr),+ $(,)?) => {
        $(#[$doc])*
        pub(crate) type $name = libc::c_uint;
        $(pub(crate) const $value: $name = $number;)+
    };
}
pub(crate) use c_enum;
