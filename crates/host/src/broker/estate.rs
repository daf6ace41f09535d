//! What an address is, apart from who minds it: its sockets, so that they outlive the broker.
//!
//! The sockets of a group count in the order in which they were bound, and the kernel renumbers them when one is closed:
//! the address of those who go on would fall apart with a broker that is killed. So all of them lie, as descriptors in
//! records that nobody receives, in a local socket of which every sharer has a copy: one descriptor each, whatever their
//! number. Whoever starts the next broker hands it that copy; it looks at the records and leaves them where they are.

use super::sys;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Room for 255 records.
const BYTES: i32 = 1 << 20;

/// The broker's end.
#[derive(Debug)]
pub(super) struct Estate {
    writer: OwnedFd,
    /// What sharers are given copies of.
    reader: OwnedFd,
}

impl Estate {
    pub(super) fn new() -> io::Result<Estate> {
        let (writer, reader) = sys::pair()?;
        sys::set_send_buffer(writer.as_fd(), BYTES);
        Ok(Estate { writer, reader })
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

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }
}

/// All that lies in an estate: the sockets of packets and those of the side band, in order. Under the lock of brokers.
pub(super) fn sockets_of(estate: BorrowedFd<'_>) -> io::Result<(Vec<OwnedFd>, Vec<OwnedFd>)> {
    let (mut packets, mut side_bands) = (Vec::new(), Vec::new());
    for (number, fds) in sys::peek_all(estate)? {
        let Ok([packet, side_band]) = <[OwnedFd; 2]>::try_from(fds) else { break };
        if usize::from(number) != packets.len() {
            break;
        }
        packets.push(packet);
        side_bands.push(side_band);
    }
    Ok((packets, side_bands))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn what_lies_in_an_estate_can_be_had_again_and_again_after_its_owner_is_gone() {
        let estate = Estate::new().expect("a pair");
        let sockets: Vec<_> = (0..300).map(|_| UdpSocket::bind("127.0.0.1:0").expect("a socket")).collect();
        for number in 0..150 {
            let [a, b] = [2 * number, 2 * number + 1].map(|at| sockets[at].as_fd());
            estate.add(number, a, b).expect("room");
        }
        let addresses: Vec<_> = sockets.iter().map(|socket| socket.local_addr().expect("bound")).collect();
        let kept = estate.fd().try_clone_to_owned().expect("a copy");
        drop((estate, sockets));
        for _ in 0..2 {
            let (packets, side_bands) = sockets_of(kept.as_fd()).expect("it is all there");
            let found = packets.into_iter().zip(side_bands).flat_map(|(a, b)| [a, b]);
            let found: Vec<_> =
                found.map(|fd| UdpSocket::from(fd).local_addr().expect("still bound")).collect();
            assert_eq!(found, addresses);
        }
    }
}
