//! Drives RNICs over links on a real machine; the Rust API for applications.
//!
//! ```text
//! application threads                          background thread
//!   post ─┐       ┌─ poll                            │ while no thread polls
//!         ▼       ▼                                  ▼
//!   ┌───────────────────── lane ─────────────────────────┐
//!   │ token → engine: Rnic · rings · UDP · shared memory │   × lanes
//!   └────────────────────────────────────────────────────┘
//! ```
//!
//! A [`Device`] has an address and lanes. The thread that holds a lane's token runs its engine: an application thread that
//! posts or polls, or the device's own thread when none does. `docs/host.md` tells the whole story.
//!
//! Two devices of one process, a message, and a WRITE into the memory of a peer that does nothing:
//!
//! ```
//! use highwire_host::verbs::{Access, CompletionStatus, Operation, RecvWr, SendWr, Service};
//! use highwire_host::{ConnectOptions, Device, DeviceConfig, QueuePairConfig, WaitFor};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! const PATIENCE: Duration = Duration::from_secs(10);
//! let (alice, bob) = (Device::open(&DeviceConfig::default())?, Device::open(&DeviceConfig::default())?);
//! let (alice_cq, bob_cq) = (alice.completion_queue(16)?, bob.completion_queue(16)?);
//! let (alice_pd, bob_pd) = (alice.protection_domain(), bob.protection_domain());
//! let alice_qp = alice_pd.queue_pair(&QueuePairConfig::new(Service::Rc, &alice_cq))?;
//! let bob_qp = bob_pd.queue_pair(&QueuePairConfig::new(Service::Rc, &bob_cq))?;
//! alice_qp.connect(&bob_qp.endpoint(), &ConnectOptions::default())?;
//! bob_qp.connect(&alice_qp.endpoint(), &ConnectOptions::default())?;
//! let ours = alice_pd.allocate(4096, Access::LOCAL_WRITE)?;
//! let theirs = bob_pd.allocate(4096, Access::ALL)?;
//!
//! bob_qp.post_recv(&RecvWr { wr_id: 7, sges: &[theirs.sge(0, 64)] })?;
//! ours.write(0, b"hello, bob");
//! alice_qp.post_send(&[SendWr::new(1, Operation::Send, &[ours.sge(0, 10)])])?;
//! assert!(bob_cq.wait(WaitFor::Any, PATIENCE));
//! let message = bob_cq.poll_one().expect("it waited for one");
//! assert_eq!((message.wr_id, message.byte_len), (7, 10));
//! assert_eq!(theirs.to_vec(0, 10), b"hello, bob");
//!
//! alice_qp.post_send(&[SendWr::new(2, Operation::Write(theirs.remote(1000)), &[ours.sge(0, 5)])])?;
//! for wr_id in [1, 2] {
//!     assert!(alice_cq.wait(WaitFor::Any, PATIENCE));
//!     let done = alice_cq.poll_one().expect("it waited for one");
//!     assert_eq!((done.wr_id, done.status), (wr_id, CompletionStatus::Success));
//! }
//! assert_eq!(theirs.to_vec(1000, 5), b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! Errors are small enums whose texts are complete, and which keep their causes:
//!
//! ```
//! use highwire_host::{Device, DeviceConfig, OpenError};
//! use std::error::Error;
//!
//! let elsewhere = DeviceConfig { address: Some([192, 0, 2, 1].into()), ..DeviceConfig::default() };
//! let error = Device::open(&elsewhere).err().expect("no address of this machine");
//! assert!(matches!(error, OpenError::Udp(_)));
//! assert!(error.to_string().contains("192.0.2.1 is not an address of this machine"));
//! ```
//!
//! `examples/` has more: `hello`, `connecting` (listen, connect, accept), `one_sided`, `datagrams`, `events`, and `echo`, which is RPC.
#![deny(unsafe_code)]

mod background;
mod clock;
pub mod cm;
mod company;
mod completion_channel;
mod completion_queue;
mod config;
mod counters;
mod crowd;
mod device;
mod dispatching;
pub mod door;
mod endpoint;
mod engine;
mod error;
mod events;
mod following;
mod frames;
mod gsi;
mod helper;
mod in_place;
mod lane;
mod limits;
mod memory;
mod negotiate;
mod packet_faults;
mod pollable;
mod process;
mod queue_lock;
mod queue_pair;
mod receive_room;
mod recording;
mod region;
mod rings;
pub mod rpc;
mod shared_receive_queue;
mod side_band;
mod stray;
mod sys;
mod token;
mod waiting;
mod waker;
mod window;

pub use completion_channel::{ChannelTarget, CompletionChannel, Interrupted};
pub use completion_queue::{
    CompletionQueue, CompletionQueueConfig, EMPTY as EMPTY_COMPLETION, Next, WaitFor,
};
pub use config::{ADDRESS_VARIABLE, DOOR_SHARE, DeviceConfig, Engine, LinkChoice, Sharing, WAKE_VARIABLE};
pub use counters::CounterSnapshot;
pub use device::{Device, default_shared_address};
pub use endpoint::{Endpoint, EndpointError};
pub use engine::MulticastError;
pub use error::{ChainError, ConnectError, CreateError, MemoryError, NoChannel, OpenError, SteerError};
pub use events::{EventQueue, EventTarget, Standing, TaggedEvent, log_to, report_to};
pub use frames::{Flow, SpreadConfig};
pub use gsi::{Gsi, GsiError, ReceivedMad};
pub use highwire_record as record;
pub use in_place::{MovingWay, OwnThread, moved_by, permit_moving};
pub use limits::DeviceLimits;
pub use packet_faults::PacketFaults;
pub use process::Process;
pub use queue_pair::{Chain, ConnectOptions, QueuePair, QueuePairConfig, XrcTargetConfig};
pub use recording::Recording;
pub use region::{Buffer, DeviceMemory, MemoryChange, MemoryRegion, ProtectionDomain, RegisterOptions};
pub use shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueConfig, SrqSnapshot};
pub use sys::{
    EndSignals, EventFd, SignalMask, ends_waits as signal_ends_waits,
    may_be_interrupted_in_poll as signals_are_alike,
};
pub use waiting::Descriptors;
pub use window::MemoryWindow;

pub use highwire_broker as broker;
pub use highwire_faults as faults;
pub use highwire_link::FaultConfig;
pub use highwire_link::shm::stats::{ChannelFigures, RunningDevice, running_brokers, running_devices};
pub use highwire_rnic::{CongestionChoice, FlowCounts, QpSnapshot};
pub use highwire_verbs as verbs;
pub use highwire_wake::{Mode as WakeMode, Outcome};
pub use highwire_wire::{NEGOTIATION_PORT, Psn, Qpn};
