//! Taking over from a broker that was killed.

use super::super::protocol::Reply;
use super::super::socket_store::SocketStore;
use super::super::{SHARDS, sys};
use super::{Broker, BrokerError, GRACE, Part, configs};
use highwire_link::shm::stats;
use highwire_link::shm::{EngineName, Registry};
use highwire_link::{SharedPort, SteerBy};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// The path at which a successor listens before clients can find it.
pub(super) fn draft_of(path: &Path) -> PathBuf {
    let mut draft = path.to_path_buf().into_os_string();
    draft.push("+");
    draft.into()
}

impl Broker {
    /// Takes over the sockets that a former broker has left to its members. The members keep their shards and
    /// come back one by one; shards whose owners are gone become free. The sockets are in `parcel`, a local
    /// socket. The caller holds the registry's lock of the address's broker.
    ///
    /// # Errors
    /// [`BrokerError`]: the socket store is incomplete.
    pub fn succeed(
        registry: &Registry,
        address: IpAddr,
        parcel: BorrowedFd<'_>,
    ) -> Result<Broker, BrokerError> {
        Broker::inherit(registry, address.to_canonical(), SocketStore::unpack(parcel)?)
    }

    pub(super) fn inherit(
        registry: &Registry,
        address: IpAddr,
        socket_store: SocketStore,
    ) -> Result<Broker, BrokerError> {
        let (packets, side_bands) = socket_store.sockets()?;
        let shards = packets.len();
        let [packets_config, side_band_config] = configs(address);
        let packets = SharedPort::inherit(packets, &packets_config, SteerBy::DestinationQpn)?;
        let side_band = SharedPort::inherit(side_bands, &side_band_config, SteerBy::ReceiverQpn)?;
        // In one step: without such a file, neighbours would believe that the address is not shared.
        let path = registry.broker_socket(address);
        let draft = draft_of(&path);
        // There is one successor at a time, so this file is from a successor that was killed.
        let _ = std::fs::remove_file(&draft);
        let listener = sys::listen(&draft)?;
        std::fs::rename(&draft, &path)?;
        let mut broker = Broker::with(registry, address, listener, (packets, side_band), socket_store)?;
        broker.unclaimed = SHARDS.filter(|&shard| usize::from(shard) < shards).collect();
        broker.settled_at = Instant::now() + GRACE;
        Ok(broker)
    }

    /// Takes back a former broker's member with its shard and the far end of its socket for datagrams.
    pub(super) fn rejoin(&mut self, index: usize, shard: u8, fds: Vec<OwnedFd>) -> io::Result<()> {
        let mads = <[OwnedFd; 1]>::try_from(fds).ok().filter(|_| self.take_back(shard));
        let Some([mads]) = mads else { return self.refuse(index, &Reply::NotUnderstood) };
        self.members[index].part = Some(Part { shard, mads });
        let connection = self.members[index].connection.as_fd();
        sys::send(connection, &Reply::Shard(shard).encode(), &[])
    }

    /// Whether the owner of a shard has not come back yet; then the shard counts as claimed.
    fn take_back(&mut self, shard: u8) -> bool {
        // A member without a statistics file was believed gone, and comes back nevertheless.
        let freed = self.free.iter().position(|&free| free == shard);
        self.unclaimed.remove(&shard) || freed.and_then(|at| self.free.remove(at)).is_some()
    }

    /// Frees the shards whose owners have ended without coming back.
    pub(super) fn reclaim(&mut self) {
        // A member that replaces the broker's file by its own has none for a moment.
        if self.unclaimed.is_empty() || Instant::now() < self.settled_at {
            return;
        }
        let _ = self.registry.reap_stale();
        let (registry, address, free) = (&self.registry, self.address, &mut self.free);
        self.unclaimed.retain(|&shard| {
            let name = EngineName::shared(address, shard);
            let is_there = registry.directory(name).exists() || stats::is_running(registry, name);
            if !is_there {
                stats::remove(registry, name);
                free.push_back(shard);
            }
            is_there
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::ask::hear;
    use super::super::super::protocol::{Request, VERSION};
    use super::*;
    use highwire_link::shm::stats;
    use std::net::UdpSocket;
    use std::time::Duration;

    /// An address and a registry for one test.
    struct House {
        registry: Registry,
        address: IpAddr,
    }

    /// The shard and sockets of a process that has joined.
    struct Sharer {
        connection: OwnedFd,
        shard: u8,
        packets: UdpSocket,
        side_band: UdpSocket,
        socket_store: SocketStore,
        far_mads: OwnedFd,
    }

    impl House {
        fn new(name: &str, last: u8) -> House {
            let root = std::env::temp_dir().join(format!("highwire-{name}-{}", std::process::id()));
            let registry = Registry::open_at(&root).expect("a registry");
            let [.., c, d] = std::process::id().to_be_bytes();
            House { registry, address: IpAddr::from([127, 128 | last, c, d.clamp(1, 254)]) }
        }

        fn first(&self) -> Broker {
            Broker::open(&self.registry, self.address).expect("the address")
        }

        /// The broker that a sharer starts after one that was killed, with the sharer's copy of the socket store.
        fn next(&self, sharer: &Sharer) -> Broker {
            let parcel = sharer.socket_store.parcel().expect("a pair");
            Broker::succeed(&self.registry, self.address, parcel.as_fd()).expect("the socket store")
        }

        /// Asks a broker that runs in this thread.
        fn ask(&self, broker: &mut Broker, connection: &OwnedFd, request: &Request, fds: &[BorrowedFd<'_>]) {
            sys::send(connection.as_fd(), &request.encode(), fds).expect("it is there");
            for _ in 0..2 {
                broker.turn(0).expect("polls");
            }
        }

        fn join(&self, broker: &mut Broker) -> Sharer {
            let connection = sys::connect(&self.registry.broker_socket(self.address)).expect("a broker");
            self.ask(broker, &connection, &Request::Join { version: VERSION }, &[]);
            let (Reply::Shard(shard), fds) = hear(connection.as_fd()).expect("an answer") else {
                panic!("a shard")
            };
            let Ok([packets, side_band, _, far_mads, writer, reader]) = <[OwnedFd; 6]>::try_from(fds) else {
                panic!("six descriptors")
            };
            let socket_store = SocketStore::of([writer, reader]);
            Sharer {
                connection,
                shard,
                packets: packets.into(),
                side_band: side_band.into(),
                socket_store,
                far_mads,
            }
        }

        fn rejoin(&self, broker: &mut Broker, sharer: &mut Sharer) -> Reply {
            sharer.connection = sys::connect(&self.registry.broker_socket(self.address)).expect("a broker");
            let request = Request::Rejoin { version: VERSION, shard: sharer.shard };
            self.ask(broker, &sharer.connection, &request, &[sharer.far_mads.as_fd()]);
            hear(sharer.connection.as_fd()).expect("an answer").0
        }

        /// Asserts that every sharer gets the packets for its shard, and no others.
        #[track_caller]
        fn check_steering(&self, sharers: &[&Sharer]) {
            let sender = UdpSocket::bind((self.address, 0)).expect("a port");
            for sharer in sharers {
                // The last byte of the destination QPN, and of the receiver's QPN.
                let mut datagram = [0; 64];
                (datagram[7], datagram[39]) = (sharer.shard, sharer.shard);
                for (socket, port) in [(&sharer.packets, 4791), (&sharer.side_band, 4794)] {
                    sender.send_to(&datagram, (self.address, port)).expect("sends");
                    let others = sharers.iter().flat_map(|other| [&other.packets, &other.side_band]);
                    let got: Vec<bool> = others.map(|other| other.recv(&mut [0; 99]).is_ok()).collect();
                    let expected = sharers.iter().flat_map(|other| [&other.packets, &other.side_band]);
                    let expected: Vec<bool> = expected.map(|other| std::ptr::eq(other, socket)).collect();
                    assert_eq!(got, expected, "shard {} at {port}", sharer.shard);
                }
            }
        }
    }

    impl Drop for House {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(self.registry.root());
        }
    }

    #[test]
    fn whoever_starts_the_next_broker_has_what_every_former_one_has_added() {
        let house = House::new("generations", 1);
        let mut first = house.first();
        let a = house.join(&mut first);
        drop(first);
        let mut second = house.next(&a);
        let b = house.join(&mut second);
        // It is killed before the first sharer has come back to it, which is then the first to notice.
        drop(second);
        let mut third = house.next(&a);
        let c = house.join(&mut third);
        assert_eq!([a.shard, b.shard, c.shard], [2, 3, 4]);
        house.check_steering(&[&a, &b, &c]);
        // If only its owner had the socket, it would be closed now, and the kernel would renumber the others.
        drop(b);
        let d = house.join(&mut third);
        house.check_steering(&[&a, &c, &d]);
    }

    #[test]
    fn a_broker_that_is_killed_over_a_new_shard_leaves_no_hole() {
        for bound in 0..=2 {
            let house = House::new(&format!("hole-{bound}"), 2 + bound);
            let mut first = house.first();
            let mut a = house.join(&mut first);
            // The broker got this far in `take_shard`.
            let packets = first.packets.prepare().expect("a socket");
            first.socket_store.add(3, packets, first.side_band.prepare().expect("a socket")).expect("room");
            if bound > 0 {
                first.packets.add().expect("binds");
            }
            if bound > 1 {
                first.side_band.add().expect("binds");
            }
            drop(first);
            let mut second = house.next(&a);
            assert_eq!((second.packets.len(), second.side_band.len()), (4, 4), "{bound} bound");
            assert_eq!(house.rejoin(&mut second, &mut a), Reply::Shard(2));
            let b = house.join(&mut second);
            assert_eq!(b.shard, 4, "somebody may have been given the other one");
            house.check_steering(&[&a, &b]);
        }
    }

    #[test]
    fn a_process_counts_from_the_moment_it_is_given_a_shard() {
        let house = House::new("trace", 6);
        let mut first = house.first();
        let mut a = house.join(&mut first);
        let name = EngineName::shared(house.address, a.shard);
        assert!(stats::is_running(&house.registry, name), "before it has said so itself");
        let sharing = stats::sharing(&house.registry, house.address).expect("a directory");
        assert_eq!(sharing.iter().map(|device| device.pid).collect::<Vec<_>>(), [std::process::id()]);
        drop(first);
        let mut second = house.next(&a);
        second.settled_at = Instant::now() - Duration::from_secs(1);
        second.reclaim();
        assert!(second.free.is_empty(), "it may yet come back");
        // Even a member that was believed gone may come back, as long as no other member has its shard.
        stats::remove(&house.registry, name);
        second.reclaim();
        assert_eq!(second.free, [a.shard]);
        assert_eq!(house.rejoin(&mut second, &mut a), Reply::Shard(a.shard));
        assert!(second.free.is_empty());
        drop(a);
        (0..2).for_each(|_| second.turn(0).expect("polls"));
        assert_eq!(second.free, [2]);
        assert!(!stats::is_running(&house.registry, name));
    }

    #[test]
    fn a_shard_is_given_again_once_sixteen_are_free_and_the_oldest_first() {
        let house = House::new("again", 9);
        let mut broker = house.first();
        let mut sharers: Vec<Sharer> = (0..17).map(|_| house.join(&mut broker)).collect();
        let shards = |sharers: &[Sharer]| sharers.iter().map(|sharer| sharer.shard).collect::<Vec<_>>();
        assert_eq!(shards(&sharers), (2..19).collect::<Vec<u8>>());
        let last = sharers.pop().expect("seventeen");
        for sharer in sharers.drain(..15) {
            drop(sharer);
            (0..2).for_each(|_| broker.turn(0).expect("polls"));
        }
        let new = house.join(&mut broker);
        assert_eq!(
            (new.shard, broker.free.len()),
            (19, 15),
            "neighbours may not have noticed that those are gone"
        );
        drop(sharers);
        (0..2).for_each(|_| broker.turn(0).expect("polls"));
        let again = house.join(&mut broker);
        assert_eq!((again.shard, broker.free.len()), (2, 15), "sixteen are enough");
        house.check_steering(&[&last, &new, &again]);
    }

    #[test]
    fn a_socket_is_shown_of_shards_that_are_there_and_of_no_other() {
        let house = House::new("shown", 10);
        let mut broker = house.first();
        let a = house.join(&mut broker);
        let mut show = |shard| {
            house.ask(&mut broker, &a.connection, &Request::Socket { shard }, &[]);
            let (reply, fds) = hear(a.connection.as_fd()).expect("an answer");
            (reply, fds.len())
        };
        assert_eq!(show(a.shard), (Reply::Done, 1));
        // The first that is not there, the broker's own, and the last number.
        for shard in [a.shard + 1, 1, 0, 255] {
            assert_eq!(show(shard), (Reply::NotUnderstood, 0), "shard {shard}");
        }
    }

    #[test]
    fn a_will_is_carried_out_unless_it_was_revoked() {
        let house = House::new("last-messages", 11);
        let mut broker = house.first();
        let (a, b) = (house.join(&mut broker), house.join(&mut broker));
        for id in 1..=3 {
            let request = Request::LeaveLastMessage { id, to: house.address, mad: Box::new([id as u8; 256]) };
            house.ask(&mut broker, &a.connection, &request, &[]);
            assert_eq!(hear(a.connection.as_fd()).expect("an answer").0, Reply::Done);
        }
        house.ask(&mut broker, &a.connection, &Request::RevokeLastMessage { id: 2 }, &[]);
        assert_eq!(hear(a.connection.as_fd()).expect("an answer").0, Reply::Done);
        let of = |broker: &Broker, shard| {
            let member = broker
                .members
                .iter()
                .find(|member| member.part.as_ref().is_some_and(|part| part.shard == shard));
            member.map(|member| {
                let mut ids: Vec<_> = member.last_messages.keys().copied().collect();
                ids.sort_unstable();
                ids
            })
        };
        assert_eq!(of(&broker, a.shard), Some(vec![1, 3]));
        assert_eq!(of(&broker, b.shard), Some(vec![]), "a last message is its member's own");
        drop(a);
        (0..2).for_each(|_| broker.turn(0).expect("polls"));
        assert_eq!(broker.members.len(), 1);
    }

    #[test]
    fn a_broker_outlives_those_who_have_not_come_back_to_it() {
        let house = House::new("stopped", 8);
        let mut first = house.first();
        let a = house.join(&mut first);
        drop(first);
        let mut second = house.next(&a);
        second.settled_at = Instant::now() - Duration::from_secs(1);
        let second = second.end().expect("somebody may yet come back");
        assert!(house.registry.is_shared(house.address));
        stats::remove(&house.registry, EngineName::shared(house.address, a.shard));
        assert!(second.end().is_none());
        assert!(!house.registry.is_shared(house.address));
    }
}
