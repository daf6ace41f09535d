//! Taking over from a broker that was killed.

use super::super::estate::sockets_of;
use super::super::protocol::Reply;
use super::super::{SHARDS, sys};
use super::{Broker, BrokerError, GRACE, Part, configs};
use crate::stats;
use highwire_link::shm::{EngineName, Registry};
use highwire_link::{SharedPort, SteerBy};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

impl Broker {
    /// Goes on with the sockets that a former broker has left to those who share the address. They keep their shards and
    /// come back one by one; shards whose owners are gone become free. The caller holds the registry's lock of brokers.
    ///
    /// # Errors
    /// [`BrokerError`]: the estate is incomplete.
    pub fn succeed(
        registry: &Registry,
        address: IpAddr,
        estate: BorrowedFd<'_>,
    ) -> Result<Broker, BrokerError> {
        let address = address.to_canonical();
        let (packets, side_bands) = sockets_of(estate)?;
        let shards = packets.len();
        let [packets_config, side_band_config] = configs(address);
        let packets = SharedPort::inherit(packets, &packets_config, SteerBy::DestinationQpn)?;
        let side_band = SharedPort::inherit(side_bands, &side_band_config, SteerBy::ReceiverQpn)?;
        // In one step, since where there is no such file, neighbours take the address for one that is not shared.
        let path = registry.broker_socket(address);
        let draft = path.with_extension(format!("draft-{}", std::process::id()));
        let listener = sys::listen(&draft)?;
        std::fs::rename(&draft, &path)?;
        let mut broker = Broker::with(registry, address, listener, packets, side_band)?;
        broker.unclaimed = SHARDS.filter(|&shard| usize::from(shard) < shards).collect();
        broker.settled_at = Instant::now() + GRACE;
        Ok(broker)
    }

    /// A member of a former broker's comes back with its shard and the far end of where its datagrams arrive.
    pub(super) fn rejoin(&mut self, index: usize, shard: u8, fds: Vec<OwnedFd>) -> io::Result<()> {
        let mads = <[OwnedFd; 1]>::try_from(fds).ok().filter(|_| self.unclaimed.remove(&shard));
        let Some([mads]) = mads else { return self.refuse(index, &Reply::NotUnderstood) };
        self.members[index].part = Some(Part { shard, mads });
        let connection = self.members[index].connection.as_fd();
        sys::send(connection, &Reply::Shard(shard).encode(), &[self.estate.fd()])
    }

    /// Shards whose owners have ended without having come back are free.
    pub(super) fn reclaim(&mut self) {
        // Who was given a shard just before the former broker ended may not have left a trace yet.
        if self.unclaimed.is_empty() || Instant::now() < self.settled_at {
            return;
        }
        let _ = self.registry.reap_stale();
        let (registry, address, free) = (&self.registry, self.address, &mut self.free);
        self.unclaimed.retain(|&shard| {
            let name = EngineName::shared(address, shard);
            let is_there = registry.directory(name).exists() || stats::is_running(registry, name);
            if !is_there {
                free.push_back(shard);
            }
            is_there
        });
    }
}
