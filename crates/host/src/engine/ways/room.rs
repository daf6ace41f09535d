//! Room in the sockets of the processes that share the device's address; and whether a peer on this machine
//! has read its packets.
//!
//! The kernel drops datagrams that do not fit into a receiving socket, and does not tell the sender. On a
//! lossless network of real RNICs that does not happen: the network holds the sender up, at the pace of the
//! receiver. This module does the same for peers on this machine: every so many bytes it asks the kernel how
//! full the peer's socket is, and while it is more than half full the lane sends nothing further. UC and UD
//! need that, because they repeat nothing; RC is spared repetitions.
//!
//! The broker hands out the peer's socket (`docs/sharing.md`). The lane asks only for sockets of the device's own address: if it
//! kept another address's socket, the next owner could not bind that address. A peer that stops reading altogether holds the
//! lane up once, for as long as a ring that does not move would.

use super::stillness::Stillness;
use crate::sys;
use highwire_broker::Doorman;
use highwire_link::{ReceiveBuffer, receive_buffer};
use highwire_stdx::{Duration, Instant};
use highwire_verbs::Gid;
use highwire_wire::{Qpn, UDP_PORT};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};

/// Bytes to a peer before its socket is asked for: so many fit into any.
const FREE_BYTES: u32 = 96 << 10;
/// When to ask again for a socket that the broker did not have.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// About as much as the kernel charges for a packet beside its bytes.
const PACKET_OVERHEAD: u32 = 256;

/// The account of the peers' sockets.
pub(super) struct Room {
    own: Gid,
    /// Asks the broker for sockets; `None` where the address is not shared.
    doorman: Option<Doorman>,
    peers: Vec<Peer>,
    recent: usize,
    /// A peer whose socket is to be looked at before anything else leaves.
    due: Option<usize>,
}

struct Peer {
    shard: u8,
    /// `Err` until when it is not asked for again.
    socket: Result<OwnedFd, Instant>,
    /// Bytes since the last look, and how many more there may be.
    bytes: u32,
    bytes_per_look: u32,
    /// How full it was, and since when it is just as full.
    seen: u32,
    stillness: Stillness,
}

/// Whether packets may leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Look {
    Go { bytes_per_look: u32 },
    Wait,
}

impl Room {
    pub(super) fn new(own: Gid, doorman: Option<Doorman>) -> Room {
        Room { own, doorman, peers: Vec::new(), recent: 0, due: None }
    }

    /// A packet is about to leave through the socket.
    #[inline]
    pub(super) fn note(&mut self, gid: Gid, qpn: Qpn, bytes: usize) {
        if self.doorman.is_none() || gid != self.own {
            return;
        }
        let shard = qpn.value() as u8;
        if self.peers.get(self.recent).is_none_or(|peer| peer.shard != shard) {
            self.recent = self.meet(shard);
        }
        let peer = &mut self.peers[self.recent];
        peer.bytes = peer.bytes.saturating_add(bytes as u32 + PACKET_OVERHEAD);
        if peer.bytes >= peer.bytes_per_look {
            self.due = Some(self.recent);
        }
    }

    /// Whether it is time to look; before that, every noted packet should have left.
    #[inline]
    pub(super) fn is_due(&self) -> bool {
        self.due.is_some()
    }

    /// Looks, if it is time to: true while nothing should leave.
    #[cold]
    pub(super) fn is_full(&mut self, now: Instant) -> bool {
        let Some(at) = self.due else { return false };
        let peer = &mut self.peers[at];
        if peer.socket.as_ref().is_err_and(|again| *again <= now) {
            let asked = self.doorman.as_ref().map(|doorman| doorman.socket_of(peer.shard));
            peer.socket = asked.and_then(Result::ok).ok_or(now + ASK_AGAIN_AFTER);
        }
        let buffer = peer.socket.as_ref().ok().and_then(|socket| receive_buffer(socket.as_fd()).ok());
        let look = match buffer {
            Some(buffer) => {
                let (doorman, shard) = (&self.doorman, peer.shard);
                let process = || doorman.as_ref().and_then(|doorman| doorman.process_of(shard));
                peer.look(now, buffer, || process().is_some_and(sys::wants_to_run))
            }
            None => Look::Go { bytes_per_look: FREE_BYTES },
        };
        let Look::Go { bytes_per_look } = look else { return true };
        (peer.bytes, peer.bytes_per_look) = (0, bytes_per_look);
        self.due = None;
        false
    }

    /// Whether datagrams wait unread at the socket of a queue pair's owner on this machine: its process lives, or the socket would be
    /// gone, and has not been running.
    #[cold]
    pub(super) fn is_unread(&self, gid: Gid, qpn: Qpn) -> bool {
        let shard = qpn.value() as u8;
        match self.doorman.as_ref().filter(|_| gid == self.own) {
            // A socket outlives its process here: the broker keeps it, and takes its time to empty it.
            Some(doorman) => {
                let buffer = doorman.socket_of(shard).and_then(|socket| receive_buffer(socket.as_fd()));
                buffer.is_ok_and(|buffer| buffer.used_bytes > 0)
                    && doorman.process_of(shard).is_some_and(sys::is_alive)
            }
            None => highwire_link::has_unread(SocketAddr::new(gid.to_ip(), UDP_PORT)),
        }
    }

    #[cold]
    fn meet(&mut self, shard: u8) -> usize {
        self.peers.iter().position(|peer| peer.shard == shard).unwrap_or_else(|| {
            self.peers.push(Peer::new(shard));
            self.peers.len() - 1
        })
    }
}

impl Peer {
    fn new(shard: u8) -> Peer {
        let (socket, stillness) = (Err(Instant::ZERO), Stillness::new(Instant::ZERO));
        Peer { shard, socket, bytes: 0, bytes_per_look: FREE_BYTES, seen: 0, stillness }
    }

    fn look(&mut self, now: Instant, buffer: ReceiveBuffer, wants_to_run: impl FnOnce() -> bool) -> Look {
        let ReceiveBuffer { used_bytes, size_bytes } = buffer;
        // The kernel counts what was taken out of a socket a little late, but never more than a quarter of it.
        if used_bytes > size_bytes / 2 {
            if used_bytes != self.seen {
                self.seen = used_bytes;
                self.stillness.on_moved(now);
            }
            if self.stillness.is_waited_for(now, wants_to_run) {
                return Look::Wait;
            }
        } else {
            self.seen = 0;
        }
        // Other processes send there, too: the fuller the socket is, the sooner it is looked at again.
        let left = (size_bytes / 2).saturating_sub(used_bytes);
        Look::Go { bytes_per_look: (left / 4).max(size_bytes / 32) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(peer: &mut Peer, now_ms: u64, used_bytes: u32, expected: Look) {
        let now = Instant::ZERO + Duration::from_millis(now_ms);
        let found = peer.look(now, ReceiveBuffer { used_bytes, size_bytes: 1024 }, || false);
        assert_eq!(found, expected, "{used_bytes} bytes after {now_ms} ms");
    }

    #[test]
    fn a_socket_that_fills_up_is_looked_at_more_often_and_then_waited_for() {
        let mut peer = Peer::new(2);
        check(&mut peer, 0, 0, Look::Go { bytes_per_look: 128 });
        check(&mut peer, 1, 256, Look::Go { bytes_per_look: 64 });
        check(&mut peer, 2, 512, Look::Go { bytes_per_look: 32 });
        check(&mut peer, 3, 513, Look::Wait);
        check(&mut peer, 4, 900, Look::Wait);
        check(&mut peer, 5, 400, Look::Go { bytes_per_look: 32 });
    }

    #[test]
    fn one_that_does_not_move_at_all_is_waited_for_once() {
        let mut peer = Peer::new(2);
        check(&mut peer, 10, 600, Look::Wait);
        check(&mut peer, 259, 600, Look::Wait);
        check(&mut peer, 260, 600, Look::Go { bytes_per_look: 32 });
        check(&mut peer, 261, 600, Look::Go { bytes_per_look: 32 });
        // The socket is being read again, so it is worth waiting.
        check(&mut peer, 262, 580, Look::Wait);
    }
}
