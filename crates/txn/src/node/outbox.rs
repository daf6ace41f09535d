//! Requests for other nodes that the driver has not taken yet. Their bytes lie one behind the other in one buffer, which is used again when it
//! is empty.

use std::collections::VecDeque;
use std::ops::Range;

use crate::codec::Encode;
use crate::message::Packet;

use super::{Addressed, Outgoing};

/// A buffer that was once longer is not kept: a recovery's records must not hold their memory for ever.
const KEPT_BYTES_MAX: usize = 256 << 10;

#[derive(Default)]
pub(super) struct Outbox {
    entries: VecDeque<(Addressed, Range<usize>)>,
    bytes: Vec<u8>,
}

impl Outbox {
    pub(super) fn push(&mut self, addressed: Addressed, packet: &Packet) {
        let start = self.bytes.len();
        packet.put(&mut self.bytes);
        self.entries.push_back((addressed, start..self.bytes.len()));
    }

    /// Adds the last packet once more, for another node.
    pub(super) fn push_again(&mut self, addressed: Addressed) {
        let last = self.entries.back().map_or(0..0, |(_, range)| range.clone());
        self.entries.push_back((addressed, last));
    }

    /// Takes the next one, and adds its bytes to `to`.
    pub(super) fn pop_into(&mut self, to: &mut Vec<u8>) -> Option<Addressed> {
        let (addressed, range) = self.entries.pop_front()?;
        to.extend_from_slice(&self.bytes[range]);
        if self.entries.is_empty() {
            self.clear();
        }
        Some(addressed)
    }

    pub(super) fn pop(&mut self) -> Option<Outgoing> {
        let mut bytes = Vec::new();
        let Addressed { ticket, to, is_reliable } = self.pop_into(&mut bytes)?;
        Some(Outgoing { ticket, to, bytes, is_reliable })
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.bytes.clear();
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::id::NodeId;
    use crate::message::Request;

    #[test]
    fn requests_leave_in_order_and_whole_however_they_are_taken() {
        let packet = |boot| Packet { configuration: 1, from: NodeId(0), request: Request::Join { boot } };
        let addressed = |ticket| Addressed { ticket, to: NodeId(2), is_reliable: false };
        let mut outbox = Outbox::default();
        let mut bytes = b"before".to_vec();
        for round in 0..3 {
            (0..3).for_each(|boot| outbox.push(addressed(boot), &packet(boot + round)));
            assert_eq!(
                outbox.pop().map(|first| (first.ticket, first.bytes)),
                Some((0, packet(round).encode()))
            );
            bytes.truncate(6);
            assert_eq!(outbox.pop_into(&mut bytes), Some(addressed(1)));
            assert_eq!(bytes, [b"before".as_slice(), &packet(1 + round).encode()].concat());
            // A packet that is pushed meanwhile does not overwrite those that wait.
            outbox.push(addressed(7), &packet(7));
            assert_eq!(outbox.pop().map(|third| third.bytes), Some(packet(2 + round).encode()));
            // A packet for two nodes is there twice.
            outbox.push_again(addressed(8));
            assert_eq!(outbox.pop().map(|last| last.bytes), Some(packet(7).encode()));
            assert_eq!(outbox.pop().map(|copy| (copy.ticket, copy.bytes)), Some((8, packet(7).encode())));
            assert!(outbox.pop().is_none() && outbox.bytes.is_empty());
        }
    }
}
