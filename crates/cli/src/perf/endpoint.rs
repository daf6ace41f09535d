//! The measuring loops' view of a connected end, so small that tests need no network.

use std::fmt;

use anyhow::Result;
use serde::{Deserialize, Serialize};

/// The data that the other end needs to connect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndAddress {
    /// The queue pair, in the text form of [`highwire_host::Endpoint`].
    pub(crate) endpoint: String,
    /// The memory that the peer may write and read, and its key.
    pub(crate) buffer_address: u64,
    pub(crate) remote_key: u32,
}

/// The link of a test's packets, or that there were none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LinkUsed {
    Udp,
    SharedMemory,
}

impl fmt::Display for LinkUsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "UDP",
            Self::SharedMemory => "shared memory",
        })
    }
}

/// Work that finished since the last poll.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Polled {
    /// Work requests that this end posted and that are done.
    pub(crate) sent: u32,
    /// Messages that arrived in posted receives.
    pub(crate) received: u32,
}

/// One end of a test: a connected queue pair, its completion queue, and a buffer on either side.
pub(crate) trait Endpoint {
    /// Posts the test's operation `count` times as one chain, of which at most the last is signaled. Its
    /// completion stands for itself and for all before it.
    fn post(&mut self, count: u32, signaled: bool) -> Result<()>;

    /// Posts `count` receives.
    fn post_receives(&mut self, count: u32) -> Result<()>;

    /// Runs the engine once and reports completed work; a completion in error is an error.
    fn poll(&mut self) -> Result<Polled>;

    /// Sets the message that the next `post` sends.
    fn write_message(&mut self, bytes: &[u8]);

    /// Copies out the message that was received last.
    fn read_message(&self, bytes: &mut [u8]);

    /// Sets the last byte of the message that the next `post` sends.
    fn mark(&mut self, mark: u8);

    /// The last byte of the memory into which the other end writes, read anew at each call.
    fn arrived(&self) -> u8;
}
