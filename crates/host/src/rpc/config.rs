//! What an endpoint on a queue pair is made with, and why it cannot be.

use crate::error::{ChainError, ConnectError, CreateError, MemoryError};
use highwire_rpc::{AddPeerError, Config, Node};
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

/// What a thread does that has had nothing to do for a while.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Idle {
    /// It goes on polling.
    Spin,
    /// It lets other threads run, and goes on polling.
    Yield,
    /// It sleeps until something comes.
    #[default]
    Sleep,
}

/// What an endpoint on a queue pair is made with.
#[derive(Clone, Debug)]
pub struct RpcConfig {
    /// The endpoint.
    pub endpoint: Config,
    /// The device's lane in which its queue pair lives: one for each thread.
    pub lane: u32,
    /// Receives that are posted: at least twice the number of peers times the slots of each, or datagrams are lost under load and
    /// sent again.
    pub receives: u32,
    /// Sends that may wait.
    pub sends: u32,
    /// What its thread does while nothing happens.
    pub idle: Idle,
}

impl RpcConfig {
    /// The configuration of a node, with defaults that do for seven peers.
    pub fn new(node: Node) -> RpcConfig {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Microseconds: whatever starts again takes longer than that.
        let incarnation = since.as_micros() as u64;
        RpcConfig {
            endpoint: Config::new(node, incarnation),
            lane: 0,
            receives: 512,
            sends: 256,
            idle: Idle::default(),
        }
    }
}

/// Why there is no endpoint.
#[derive(Debug)]
pub enum RpcError {
    /// A queue cannot be made.
    Create(CreateError),
    /// Memory cannot be registered.
    Memory(MemoryError),
    /// The queue pair does not come up.
    Connect(ConnectError),
    /// A receive cannot be posted.
    Post(ChainError),
    /// A peer cannot be added.
    Peer(AddPeerError),
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RpcError::Create(error) => write!(f, "cannot make a queue: {error}"),
            RpcError::Memory(error) => write!(f, "cannot register memory: {error}"),
            RpcError::Connect(error) => write!(f, "the queue pair does not come up: {error}"),
            RpcError::Post(error) => write!(f, "cannot post a receive: {error}"),
            RpcError::Peer(error) => write!(f, "cannot add the peer: {error}"),
        }
    }
}

impl std::error::Error for RpcError {}

impl From<CreateError> for RpcError {
    fn from(error: CreateError) -> RpcError {
        RpcError::Create(error)
    }
}

impl From<MemoryError> for RpcError {
    fn from(error: MemoryError) -> RpcError {
        RpcError::Memory(error)
    }
}

impl From<ChainError> for RpcError {
    fn from(error: ChainError) -> RpcError {
        RpcError::Post(error)
    }
}
