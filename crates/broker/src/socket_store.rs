//! The socket store of an address: its sockets, kept so that they outlive every broker.
//!
//! The sockets of a group count in the order in which they were bound, and the kernel renumbers them when one
//! is closed: if they were closed with a broker that is killed, packets for the remaining processes would be
//! steered to wrong sockets. So all of them lie in a pair of local sockets, as descriptors in records that no
//! process receives. Every sharer has copies of the pair: two descriptors, however many sockets there are.
//! The sharer that starts the next broker hands it the pair; the broker looks at the records and leaves them
//! where they are.
//!
//! An address has one socket store from its first broker to its last, and a socket lies in it before it is bound.
//! So the first sharer that notices that a broker is gone has the whole socket store, including sockets that later
//! brokers, unknown to this sharer, added for others.

use super::sys;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Room for 255 records.
const BYTES: i32 = 1 << 20;

/// Both ends.
#[derive(Debug)]
pub(super) struct SocketStore {
    writer: OwnedFd,
    reader: OwnedFd,
}

impl SocketStore {
    pub(super) fn new() -> io::Result<SocketStore> {
        let (writer, reader) = sys::pair()?;
        sys::set_send_buffer(writer.as_fd(), BYTES);
        Ok(SocketStore { writer, reader })
    }

    /// Adds the next pair of sockets.
    pub(super) fn add(
        &self,
        number: usize,
        packets: BorrowedFd<'_>,
        side_band: BorrowedFd<'_>,
    ) -> io::Result<()> {
        sys::send(self.writer.as_fd(), &[number as u8], &[packets, side_band])
    }

    /// The ends of which sharers get copies.
    pub(super) fn fds(&self) -> [BorrowedFd<'_>; 2] {
        [self.writer.as_fd(), self.reader.as_fd()]
    }

    /// A socket store from such copies.
    pub(super) fn of([writer, reader]: [OwnedFd; 2]) -> SocketStore {
        SocketStore { writer, reader }
    }

    /// A local socket for the next broker's process, which takes the socket store out of it.
    pub(super) fn parcel(&self) -> io::Result<OwnedFd> {
        let (ours, theirs) = sys::pair()?;
        sys::send(ours.as_fd(), &[0], &self.fds())?;
        Ok(theirs)
    }

    /// The socket store in such a socket.
    pub(super) fn unpack(parcel: BorrowedFd<'_>) -> io::Result<SocketStore> {
        let (_, fds) = sys::receive(parcel, &mut [0])?;
        let ends = <[OwnedFd; 2]>::try_from(fds).map_err(|_| io::ErrorKind::InvalidData)?;
        Ok(SocketStore::of(ends))
    }

    /// All sockets in the socket store: those of packets and those of the side band, in order. The caller holds the
    /// lock of the address's broker.
    pub(super) fn sockets(&self) -> io::Result<(Vec<OwnedFd>, Vec<OwnedFd>)> {
        let (mut packets, mut side_bands) = (Vec::new(), Vec::new());
        for (number, fds) in sys::peek_all(self.reader.as_fd())? {
            let Ok([packet, side_band]) = <[OwnedFd; 2]>::try_from(fds) else { break };
            if usize::from(number) != packets.len() {
                break;
            }
            packets.push(packet);
            side_bands.push(side_band);
        }
        Ok((packets, side_bands))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn what_lies_in_an_estate_can_be_had_again_and_again_after_its_owner_is_gone() {
        let socket_store = SocketStore::new().expect("a pair");
        let sockets: Vec<_> = (0..300).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket")).collect();
        for number in 0..150 {
            let [a, b] = [2 * number, 2 * number + 1].map(|at| sockets[at].as_fd());
            socket_store.add(number, a, b).expect("room");
        }
        let addresses: Vec<_> = sockets.iter().map(|socket| socket.local_addr().expect("bound")).collect();
        let parcel = socket_store.parcel().expect("a pair");
        drop((socket_store, sockets));
        let kept = SocketStore::unpack(parcel.as_fd()).expect("it is in there");
        for _ in 0..2 {
            let (packets, side_bands) = kept.sockets().expect("it is all there");
            let found = packets.into_iter().zip(side_bands).flat_map(|(a, b)| [a, b]);
            let found: Vec<_> =
                found.map(|fd| UdpSocket::from(fd).local_addr().expect("still bound")).collect();
            assert_eq!(found, addresses);
        }
    }

    #[test]
    fn what_is_added_later_is_in_every_copy() {
        let first = SocketStore::new().expect("a pair");
        let copy = SocketStore::unpack(first.parcel().expect("a pair").as_fd()).expect("it is in there");
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        for (number, socket_store) in [&first, &copy, &first].into_iter().enumerate() {
            socket_store.add(number, socket.as_fd(), socket.as_fd()).expect("room");
        }
        for socket_store in [first, copy] {
            assert_eq!(socket_store.sockets().expect("it is all there").0.len(), 3);
        }
    }
}
