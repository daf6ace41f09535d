//! The configuration of an endpoint on a queue pair, and its errors.

use crate::error::{ChainError, ConnectError, CreateError, MemoryError};
use highwire_rpc::{AddPeerError, Config, Node};
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// The behaviour of a thread that has had nothing to do for a while.
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

/// The configuration of an endpoint on a queue pair.
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
    /// The behaviour of its thread while nothing happens.
    pub idle: Idle,
}

impl RpcConfig {
    /// The configuration of a node, with defaults for seven peers.
    pub fn new(node: Node) -> RpcConfig {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // Microseconds: a process takes longer than that to start again.
        let incarnation = since.as_micros() as u64;
        let mut endpoint = Config::new(node, incarnation);
        let random = RandomState::new();
        endpoint.challenge_key = [random.hash_one(0), random.hash_one(1)];
        RpcConfig { endpoint, lane: 0, receives: 512, sends: 256, idle: Idle::default() }
    }
}

/// Why there is no endpoint.
#[derive(Debug, thiserror::Error)]
pub enum RpcError {
    /// A queue cannot be made.
    #[error("cannot make a queue: {0}")]
    Create(#[from] CreateError),
    /// Memory cannot be registered.
    #[error("cannot register memory: {0}")]
    Memory(#[from] MemoryError),
    /// The queue pair does not come up.
    #[error("the queue pair does not come up: {0}")]
    Connect(#[source] ConnectError),
    /// A receive cannot be posted.
    #[error("cannot post a receive: {0}")]
    Post(#[from] ChainError),
    /// A peer cannot be added.
    #[error("cannot add the peer: {0}")]
    Peer(#[source] AddPeerError),
}
