//! The vocabulary and objects of the verbs: PD, MR, keys, QP attributes and states, work requests, completions.
//!
//! Every layer above the wire and below a world uses these types. Nothing here performs I/O or owns memory:
//! addresses are numbers, and [`Memory`] is how a driver lets the protocol touch the memory behind them.
#![forbid(unsafe_code)]

mod access;
mod address;
mod attributes;
mod completion;
mod flow;
mod memory;
mod modify_error;
mod qp_state;
mod region;
mod service;
mod spread;
mod tags;
mod words;
mod work_request;

pub use access::Access;
pub use address::{Address, Gid};
pub use attributes::{QpAttr, QpCaps, QpConfig, Recovery};
pub use completion::{AsyncEvent, Completion, CompletionFlags, CompletionOp, CompletionStatus, TagFlags};
pub use flow::{
    FRAME_BYTES_MIN, FRAME_OVERHEAD_BYTES, FlowError, FlowKind, FlowRule, FlowSpec, SEGMENT_GROUP,
    SEGMENT_QKEY,
};
pub use memory::{Gather, Length, LocalMemory, Memory, MemoryLost, Payload, Span, scatter};
pub use modify_error::ModifyError;
pub use qp_state::{AttrMask, QpState, Transition, check_attributes, transition, transition_table};
pub use region::{
    AccessError, Denial, DenialCause, LocalKey, MemoryWindow, NULL_ADDR, Pd, Region, RegionAttr,
    RegionChange, Regions, RegisterError, RemoteKey, WindowBind, WindowKind,
};
pub use service::{Mtu, Service};
pub use spread::{SPREAD_KEY_LEN, Spread, SpreadFields, toeplitz};
pub use tags::{TagHandle, TagList, TagRequest, TaggedBuffer};
pub use work_request::{Datagram, Operation, PostError, RecvWr, Remote, SendFlags, SendWr, Sge, SgeList};

/// A completion queue, by the index its RNIC gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CqId(pub u32);

/// A shared receive queue, by the index its RNIC gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SrqId(pub u32);

/// An XRC domain: the shared receive queues to which an XRC target may be sent (IBTA A14).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct XrcDomain(pub u64);

/// The longest message: 2^31 bytes (IBTA §9.7.4.1.6).
pub const MESSAGE_LENGTH_MAX: u32 = 1 << 31;
