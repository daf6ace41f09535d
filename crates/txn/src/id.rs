//! Names: nodes, regions, tables, transactions.
//!
//! A transaction's name is unique for ever: node, worker and a sequence that no later life of that node can
//! draw again. Locks are owned by this name, so that recovery finds the locks of a dead coordinator and
//! touches no others.

use std::fmt;

/// A machine of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

/// A part of the key space that is replicated as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RegionId(pub u16);

/// One of the tables of the schema, by its place there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub u8);

/// What keys are: eight bytes, as in FaSST §5.
pub type Key = u64;

/// Counts the committed writes of one key: 63 bits. A key that was never written has version 0.
pub type Version = u64;

/// A transaction. The high half of `sequence` is the configuration in which it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Txid {
    /// Its coordinator's machine.
    pub node: NodeId,
    /// The worker that coordinates it there.
    pub worker: u16,
    /// Unique for this node and worker, for ever.
    pub sequence: u64,
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}

impl fmt::Display for Txid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{:x}", self.node, self.worker, self.sequence)
    }
}

/// Mixes all bits of a number into all bits of another (the finaliser of SplitMix64).
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}
