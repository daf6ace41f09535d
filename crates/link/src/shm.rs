//! Shared memory between the processes of one user on one host.
//!
//! Every engine owns a directory below [`Registry`], named by its GID, with an `engine` segment that peers map. The segment
//! says which engine this is, which of its queue pairs and memory regions are open to peers, and which peers send to it. A
//! living engine holds a lock on that file, which the kernel drops however the process ends; a directory whose file is not
//! locked may be removed.
//!
//! Packets travel through one ring per pair of lanes and direction ([`ShmSender`], [`Inbox`]); WRITE, READ and atomics
//! can skip them ([`Direct`]). Processes of one user could read each other's memory anyway, so the aim is not
//! secrecy. The aim is that a peer which crashes, stops or writes nonsense can neither crash nor block its
//! neighbours.

mod bell;
mod channel;
mod direct;
mod engine;
mod inbox;
mod layout;
mod life;
mod lock;
mod name;
mod peer;
mod registry;
mod roster;
mod sender;
pub mod stats;
mod table;

pub use channel::{ChannelConfig, PACKET_MAX_BYTES, RawSlice};
pub use direct::{Direct, DirectError};
pub use engine::{EngineConfig, Guests, LocalEngine, PublishError, StillInUse};
pub use inbox::{Inbox, Received, SharedBytes};
pub use life::Life;
pub use name::{BadName, EngineName};
pub use peer::{AttachError, PeerEngine};
pub use registry::{ClaimError, LookupError, Registry, RegistryError};
pub use roster::{BEAT_LASTS_MS, Poller, Roster};
pub use sender::{Receiver, SendError, ShmSender};
pub use table::{Access, PublishedQueuePair, PublishedReceives, PublishedRegion};
