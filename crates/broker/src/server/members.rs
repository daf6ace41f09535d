//! Members, the processes that share the address: the shards and ports that the broker gives them and takes
//! back.

use super::super::protocol::{PortSpace, RECORD_BYTES_MAX, Reply, Request, VERSION};
use super::super::{SHARDS, sys};
use super::{Broker, GRACE, Part};
use highwire_link::OpenError;
use highwire_link::shm::EngineName;
use highwire_link::shm::stats;
use highwire_wire::UDP_PORT;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Instant;

/// This many shards stay free before a shard is given to a second process: neighbours take a moment to notice
/// that the first is gone.
const FREE_SHARDS_MIN: usize = 16;
/// The first port for members that ask for any port.
const EPHEMERAL_FIRST: u16 = 32_768;

impl Broker {
    /// Answers one question; an error means that the member is gone.
    pub(super) fn serve(&mut self, index: usize) -> io::Result<()> {
        let mut record = [0; RECORD_BYTES_MAX];
        let (len, fds) = sys::receive(self.members[index].connection.as_fd(), &mut record)?;
        if len == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let reply = match Request::decode(&record[..len]) {
            Some(Request::Join { version: VERSION }) => return self.join(index),
            Some(Request::Rejoin { version: VERSION, shard }) => return self.rejoin(index, shard, fds),
            Some(Request::Socket { shard }) => return self.show(index, shard),
            Some(request) => self.answer(index, request),
            None => Reply::NotUnderstood,
        };
        sys::send(self.members[index].connection.as_fd(), &reply.encode(), &[])
    }

    fn answer(&mut self, index: usize, request: Request) -> Reply {
        if request == Request::Status {
            let joined = self.members.iter().filter_map(|m| m.part.as_ref().map(|part| (part.shard, m.pid)));
            let mut sharers: Vec<_> = joined.collect();
            sharers.sort_unstable();
            return Reply::Sharers(sharers);
        }
        let member = &mut self.members[index];
        let Some(shard) = member.part.as_ref().map(|part| part.shard) else { return Reply::NotUnderstood };
        match request {
            Request::Listen(wanted) => {
                if self.services.iter().any(|(services, _)| services.overlaps(wanted)) {
                    return Reply::InUse;
                }
                self.services.push((wanted, shard));
                self.deliver_parked(wanted, shard);
            }
            Request::Unlisten(unwanted) => {
                self.services.retain(|entry| *entry != (unwanted, shard));
                self.given_up.retain(|(_, when)| when.elapsed() < GRACE);
                self.given_up.push((unwanted, Instant::now()));
            }
            Request::Bind { space, port } => return self.bind(shard, space, port),
            Request::Release { space, port } => {
                if self.ports.get(&(space, port)).is_some_and(|(owner, _)| *owner == shard) {
                    self.ports.remove(&(space, port));
                }
            }
            Request::LeaveLastMessage { id, to, mad } => drop(member.last_messages.insert(id, (to, mad))),
            Request::RevokeLastMessage { id } => drop(member.last_messages.remove(&id)),
            Request::Join { .. } | Request::Rejoin { .. } | Request::Status | Request::Socket { .. } => {
                return Reply::NotUnderstood;
            }
        }
        Reply::Done
    }

    fn bind(&mut self, shard: u8, space: PortSpace, port: u16) -> Reply {
        let port = if port == 0 {
            // The search begins at a random port, so that a port that was just given back is not the next to
            // be given.
            let count = u32::from(u16::MAX - EPHEMERAL_FIRST) + 1;
            let start = self.rng.below(u64::from(count)) as u32;
            let candidates = (0..count).map(|n| EPHEMERAL_FIRST + ((start + n) % count) as u16);
            match candidates.into_iter().find(|&port| !self.ports.contains_key(&(space, port))) {
                Some(port) => port,
                None => return Reply::Full,
            }
        } else {
            port
        };
        if self.ports.contains_key(&(space, port)) {
            return Reply::InUse;
        }
        self.ports.insert((space, port), (shard, Instant::now()));
        Reply::Port(port)
    }

    /// Gives a member a shard.
    fn join(&mut self, index: usize) -> io::Result<()> {
        let part = match self.take_shard() {
            Ok(Some(shard)) => sys::pair().and_then(|(ours, theirs)| {
                // The owner keeps both ends, and gives this one to the next broker.
                let copy = ours.try_clone()?;
                Ok((Part { shard, mads: ours }, theirs, copy))
            }),
            Ok(None) => return self.refuse(index, &Reply::Full),
            Err(error) => Err(error),
        };
        let (part, mads, far_mads) = match part {
            Ok(part) => part,
            Err(error) => {
                return self.refuse(index, &Reply::Failed(error.raw_os_error().unwrap_or(libc::EIO)));
            }
        };
        let number = usize::from(part.shard);
        self.packets.drain(number, &mut self.rx);
        self.side_band.drain(number, &mut self.rx);
        // Stands in until the member makes its own statistics file: from now on no process may believe that
        // the member is gone, or the address unused.
        stats::announce(
            &self.registry,
            EngineName::shared(self.address, part.shard),
            self.members[index].pid,
        );
        let reply = Reply::Shard(part.shard).encode();
        // From here on the member's end is the shard's.
        let old = self.members[index].part.replace(part);
        self.free.extend(old.map(|part| part.shard));
        let sockets = [self.packets.fd(number), self.side_band.fd(number)];
        let socket_store = self.socket_store.fds();
        let fds = [sockets[0], sockets[1], mads.as_fd(), far_mads.as_fd(), socket_store[0], socket_store[1]];
        sys::send(self.members[index].connection.as_fd(), &reply, &fds)
    }

    /// Gives away a copy of a member's socket.
    fn show(&mut self, index: usize, shard: u8) -> io::Result<()> {
        let number = usize::from(shard);
        if !SHARDS.contains(&shard) || number >= self.packets.len() {
            return self.refuse(index, &Reply::NotUnderstood);
        }
        sys::send(self.members[index].connection.as_fd(), &Reply::Done.encode(), &[self.packets.fd(number)])
    }

    pub(super) fn refuse(&mut self, index: usize, reply: &Reply) -> io::Result<()> {
        sys::send(self.members[index].connection.as_fd(), &reply.encode(), &[])
    }

    /// A free shard, with a new pair of sockets if need be; `None` if every shard is taken.
    fn take_shard(&mut self) -> io::Result<Option<u8>> {
        self.reclaim();
        // Both ports must have as many sockets, even if one of them failed to grow before.
        let next = self.side_band.len();
        let new = u8::try_from(next).ok().filter(|shard| SHARDS.contains(shard));
        let may_reuse = self.free.len() >= FREE_SHARDS_MIN || new.is_none();
        if let Some(shard) = may_reuse.then(|| self.reuse_shard()).flatten() {
            return Ok(Some(shard));
        }
        let Some(shard) = new else { return Ok(None) };
        let failed = |error: OpenError| match error {
            OpenError::Io { source, .. } => source,
            other => io::Error::other(other.to_string()),
        };
        // Put into the socket store first, and then bound: were the broker killed in between the other way round, a
        // bound socket would be closed with it, and the kernel would renumber those behind it.
        if self.in_estate == next {
            let packets = self.packets.prepare().map_err(failed)?;
            self.socket_store.add(next, packets, self.side_band.prepare().map_err(failed)?)?;
            self.in_estate += 1;
        }
        if self.packets.len() == next {
            self.packets.add().map_err(failed)?;
        }
        self.side_band.add().map_err(failed)?;
        Ok(Some(shard))
    }

    /// The shard that has been free for longest. Not one whose former owner is still in the registry: a
    /// process that is killed may lose its connection before its locks, and a forked child may keep them.
    fn reuse_shard(&mut self) -> Option<u8> {
        let has_place = |broker: &Broker, shard: u8| {
            broker.registry.directory(EngineName::shared(broker.address, shard)).exists()
        };
        if self.free.iter().any(|&shard| has_place(self, shard)) {
            let _ = self.registry.reap_stale();
        }
        let at = self.free.iter().position(|&shard| !has_place(self, shard))?;
        self.free.remove(at)
    }

    /// Takes back everything of a member that is gone, however it ended.
    pub(super) fn leave(&mut self, index: usize) {
        let member = self.members.swap_remove(index);
        for (to, mad) in member.last_messages.into_values() {
            self.send(SocketAddr::new(to, UDP_PORT), &mad);
        }
        let Some(Part { shard, .. }) = member.part else { return };
        self.services.retain(|(_, owner)| *owner != shard);
        self.ports.retain(|_, (owner, _)| *owner != shard);
        let name = EngineName::shared(self.address, shard);
        if self.registry.directory(name).exists() {
            // The member was killed.
            let _ = self.registry.reap_stale();
        }
        stats::remove(&self.registry, name);
        self.packets.drain(usize::from(shard), &mut self.rx);
        self.side_band.drain(usize::from(shard), &mut self.rx);
        self.free.push_back(shard);
    }
}
