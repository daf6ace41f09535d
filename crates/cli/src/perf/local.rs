//! The settings of one end that the other does not learn.

use std::collections::BTreeMap;
use std::path::PathBuf;

use highwire_host::Engine;

/// Counters of one end, by name.
pub(crate) type Counters = BTreeMap<String, u64>;

/// The settings that only this end needs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Local {
    pub(crate) pcap: Option<PathBuf>,
    /// The capture of the passive end, if this process starts it.
    pub(crate) peer_pcap: Option<PathBuf>,
    pub(crate) engine: Engine,
    pub(crate) core: Option<usize>,
    pub(crate) with_floor: bool,
    pub(crate) json: bool,
}
