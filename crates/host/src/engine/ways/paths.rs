//! The beginning of the ICRC, which all packets of a path share.

use highwire_link::{Link, Place, Transmitted, TxBatch};
use highwire_stdx::Instant;
use highwire_wire::{ICRC_LEN, PathIcrc};
use std::net::SocketAddr;

/// Paths that are remembered.
const PATHS_MAX: usize = 64;

/// The beginnings of ICRCs, by the two addresses; the latest one is looked at first.
#[derive(Default)]
pub(super) struct Paths {
    known: Vec<(SocketAddr, SocketAddr, PathIcrc)>,
    recent: usize,
}

impl Paths {
    /// The path between two sockets; `None` for a mixture of IPv4 and IPv6.
    #[inline]
    pub(super) fn between(&mut self, source: SocketAddr, destination: SocketAddr) -> Option<&PathIcrc> {
        let is_it = |(s, d, _): &(SocketAddr, SocketAddr, PathIcrc)| *s == source && *d == destination;
        if !self.known.get(self.recent).is_some_and(is_it) {
            self.recent = match self.known.iter().position(is_it) {
                Some(index) => index,
                None => self.learn(source, destination)?,
            };
        }
        Some(&self.known[self.recent].2)
    }

    #[cold]
    fn learn(&mut self, source: SocketAddr, destination: SocketAddr) -> Option<usize> {
        let path = PathIcrc::between((source.ip(), source.port()), (destination.ip(), destination.port()))?;
        if self.known.len() == PATHS_MAX {
            self.known.clear();
        }
        self.known.push((source, destination, path));
        Some(self.known.len() - 1)
    }

    /// Hands a batch to a link, which seals each packet once its train is known; false if the link could not
    /// take all of it.
    pub(super) fn transmit(
        &mut self,
        link: &mut (dyn Link + Send),
        batch: &mut TxBatch,
        now: Instant,
    ) -> bool {
        let mut seal = |packet: &mut [u8], place: &Place| self.seal(packet, place);
        link.transmit(now, batch, &mut seal) == Transmitted::All
    }

    fn seal(&mut self, packet: &mut [u8], place: &Place) {
        let Some((body, icrc)) = packet.split_last_chunk_mut::<ICRC_LEN>() else { return };
        if let Some(path) = self.between(place.source, place.destination) {
            *icrc = path.icrc(place.train_index, body).to_le_bytes();
        }
    }
}
