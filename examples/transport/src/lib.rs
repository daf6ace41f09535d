//! Transports of the nanoPU's NIC from outside, and an incast on which they are compared with those that come with the crate.

pub mod delay;
pub mod marks;
mod pace;

use anyhow::Result;
use highwire_fabric::Fabric;
use highwire_nanopu::network::{Endpoint, Frame, HostId, Sending, Topology, link, time_of};
use highwire_nanopu::nic::{NicConfig, Taken, Transport, TransportKind};

const SENDERS: u32 = 8;
/// Messages of each sender.
pub const MESSAGES: usize = 60;
const BYTES: u16 = 2048;
/// When the first message is written.
const START: u64 = 1_000;
/// Cycles of the receiver's link for all packets of all senders.
pub const LEAST_CYCLES: u64 = SENDERS as u64 * MESSAGES as u64 * 2 * 136;

/// Makes the names known, for the rest of the program.
///
/// # Errors
/// [`Taken`].
pub fn register() -> Result<(), Taken> {
    TransportKind::register(&delay::DELAY)?;
    TransportKind::register(&marks::MARKS)
}

/// What became of an incast.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Messages that arrived.
    pub arrived: usize,
    /// Cycles until the last one was there.
    pub cycles: u64,
    /// The most bytes that waited for the receiver's link.
    pub queue_bytes: u64,
    /// Packets that left again.
    pub repeated: u64,
    /// Timeouts of the senders.
    pub timeouts: u64,
}

/// Eight hosts send to one, all at once.
///
/// # Errors
/// The network cannot be built, or breaks a rule of its own.
pub fn incast(kind: &TransportKind) -> Result<Outcome> {
    // Longer than what the slowest of them lets wait.
    let nic = NicConfig { timeout_cycles: 200_000, ..NicConfig::default() };
    let endpoints = (0..=SENDERS).map(HostId).map(|host| {
        let sending = Sending { at: START, to: HostId(0), bytes: BYTES, core: 0 };
        let plan = if host.0 == 0 { Vec::new() } else { vec![sending; MESSAGES] };
        Endpoint::<Box<dyn Transport + Send>>::new(host, &nic, 1, (kind.make)(&nic), plan)
    });
    let star = Topology::star(SENDERS + 1, link(140))?;
    let mut fabric = Fabric::<Frame, _>::new(star, (kind.switch)(), endpoints.collect())?;
    fabric.run_until(time_of(START + 10 * LEAST_CYCLES))?;
    let arrived = fabric.host(HostId(0)).arrived();
    let last = arrived.iter().map(|arrived| arrived.at).max().unwrap_or(START);
    let sent = (1..=SENDERS).map(|host| fabric.host(HostId(host)).nic().sent());
    Ok(Outcome {
        arrived: arrived.len(),
        cycles: last - START,
        queue_bytes: fabric.queue_bytes_max(fabric.switch_port(0, 0)),
        repeated: sent.clone().map(|sent| sent.repeated).sum(),
        timeouts: sent.map(|sent| sent.timeouts).sum(),
    })
}
