//! Drop-in `libibverbs.so.1` and `librdmacm.so.1`: the C ABI of rdma-core over `highwire-host`.
//!
//! Programs call the functions here by their C names and read and write the structures of `abi` directly. All
//! of them are `extern "C-unwind"`, check their arguments, and answer with the errno that rdma-core documents.
//! `symbols/*.txt` says under which versions they are exported; `cargo xtask libs` links them into shared
//! objects.
//!
//! `unsafe` is confined to this boundary: pointers from C are checked and turned into references here, and no
//! lower layer sees them.
#![warn(unsafe_op_in_unsafe_fn)]
#![cfg_attr(not(test), deny(clippy::print_stderr))]

mod abi;
mod absent;
mod ah;
mod boundary;
mod buffer;
mod cancel;
mod context;
mod cq;
mod cq_ex;
mod descriptors;
mod device;
mod dm;
mod ece;
mod env;
mod errno;
mod events;
mod failure;
mod faults;
mod flow;
mod fork;
mod implicit;
mod kernel;
mod limits;
mod mr;
mod multicast;
mod mw;
mod ops;
mod pd;
mod post;
mod qp;
mod qp_attr;
mod query;
mod rates;
mod rdmacm;
mod reach;
mod record;
mod refusal;
mod registry;
mod report;
mod rsockets;
mod srq;
mod stock;
mod sysfs;
mod tags;
mod text;
mod wq;
mod wr;
mod xrc;

#[cfg(test)]
mod tests;
