//! What an RNIC is made with.

use highwire_transport::TransportConfig;
use highwire_verbs::Gid;

/// Fixed properties of an RNIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RnicConfig {
    /// Its address.
    pub gid: Gid,
    /// Which of its device's lanes this is, from zero.
    pub lane: u32,
    /// How many lanes the device has; a QPN's remainder says which one it belongs to.
    pub lanes: u32,
    /// Packets that one queue pair may send before the next one has its turn.
    pub egress_quantum: u32,
    /// How its transport behaves.
    pub transport: TransportConfig,
}

impl RnicConfig {
    /// One lane with the default transport.
    pub fn new(gid: Gid) -> RnicConfig {
        RnicConfig { gid, lane: 0, lanes: 1, egress_quantum: 1, transport: TransportConfig::default() }
    }
}
