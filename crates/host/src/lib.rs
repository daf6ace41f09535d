//! Drives RNICs over links on a real machine; the Rust API for applications.
//!
//! ```text
//! application threads                          background thread
//!   post ─┐       ┌─ poll                            │ while nobody polls
//!         ▼       ▼                                  ▼
//!   ┌───────────────────── lane ─────────────────────────┐
//!   │ token → engine: Rnic · rings · UDP · shared memory │   × lanes
//!   └────────────────────────────────────────────────────┘
//! ```
//!
//! A [`Device`] has an address and lanes. Whoever holds a lane's token runs its engine: a thread that posts or polls, or
//! the device's own thread when nobody does. `docs/host.md` tells the whole story.
#![deny(unsafe_code)]

mod background;
mod clock;
mod completion_channel;
mod completion_queue;
mod config;
mod counters;
mod device;
pub mod door;
mod endpoint;
mod engine;
mod error;
mod events;
mod frames;
mod gsi;
mod in_place;
mod lane;
mod limits;
mod memory;
mod negotiate;
mod pollable;
mod process;
mod queue_lock;
mod queue_pair;
mod region;
mod rings;
pub mod rpc;
mod shared_receive_queue;
mod side_band;
mod sys;
mod token;
mod waiting;
mod waker;
mod window;

pub use completion_channel::{ChannelTarget, CompletionChannel, Interrupted};
pub use completion_queue::{CompletionQueue, CompletionQueueConfig, EMPTY as EMPTY_COMPLETION, WaitFor};
pub use config::{ADDRESS_VARIABLE, Congestion, DeviceConfig, Engine, LinkChoice, Sharing, WAKE_VARIABLE};
pub use counters::CounterSnapshot;
pub use device::{Device, default_shared_address};
pub use endpoint::{Endpoint, EndpointError};
pub use engine::{MulticastError, TagRequest};
pub use error::{ChainError, ConnectError, CreateError, MemoryError, NoChannel, OpenError};
pub use events::{EventQueue, EventTarget, TaggedEvent, log_to};
pub use frames::{Flow, SpreadConfig, SteerError};
pub use gsi::{Gsi, GsiError, ReceivedMad};
pub use in_place::OwnThread;
pub use limits::DeviceLimits;
pub use queue_pair::{Chain, ConnectOptions, QueuePair, QueuePairConfig, XrcTargetConfig};
pub use region::{Buffer, DeviceMemory, MemoryChange, MemoryRegion, ProtectionDomain, RegisterOptions};
pub use shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueConfig, SrqSnapshot};
pub use sys::SignalMask;
pub use window::MemoryWindow;

pub use highwire_broker as broker;
pub use highwire_link::FaultConfig;
pub use highwire_link::shm::stats::{RunningDevice, running_devices};
pub use highwire_rnic::{FlowCounts, QpSnapshot};
pub use highwire_verbs as verbs;
pub use highwire_wake::Mode as WakeMode;
pub use highwire_wire::NEGOTIATION_PORT;
