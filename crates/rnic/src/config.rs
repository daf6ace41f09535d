//! The configuration of an RNIC.

use highwire_transport::TransportConfig;
use highwire_verbs::Gid;

/// Fixed properties of an RNIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RnicConfig {
    /// Its address.
    pub gid: Gid,
    /// The number of this RNIC's lane in its device, from zero.
    pub lane: u32,
    /// The number of the device's lanes; a QPN's remainder says to which lane it belongs.
    pub lanes: u32,
    /// Packets that one queue pair may send before the next one has its turn.
    pub egress_quantum: u32,
    /// The configuration of its transport.
    pub transport: TransportConfig,
}

impl RnicConfig {
    /// One lane with the default transport.
    pub fn new(gid: Gid) -> RnicConfig {
        RnicConfig { gid, lane: 0, lanes: 1, egress_quantum: 1, transport: TransportConfig::default() }
    }
}
