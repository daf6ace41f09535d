//! From packets to instructions: the queue, and the half-word that waits for its other half.

use highwire_riscv::is_compressed;

use super::{Frontend, Packet, Partial, Request, flag};
use crate::decode::{Decoder, NO_NEEDS};

impl Frontend {
    /// Finds the instruction that starts with the waiting half, or with the first packet.
    #[inline(always)]
    pub(super) fn look_at_head(&mut self, decoder: &mut Decoder) {
        let is_empty = self.queue.is_empty();
        let has_packet = !is_empty || self.fires;
        let packet = if is_empty { &self.arriving } else { self.queue.first() };
        let head = &mut self.head;
        if self.partial.is_live() {
            let Partial { pc, half, entry, number, flags } = self.partial;
            (head.pc, head.entry, head.number, head.flags) = (pc, entry, number, flags);
            if self.partial.is_single() {
                head.bits = u32::from(half);
            } else if has_packet {
                head.bits = u32::from(packet.half(0)) << 16 | u32::from(half);
                (head.entry, head.number, head.flags) = (packet.entry, packet.number, packet.flags);
            } else {
                head.bits = twice(half);
                head.flags |= flag::HALF;
            }
        } else if has_packet {
            (head.pc, head.entry, head.number) = (packet.pc, packet.entry, packet.number);
            head.flags = packet.flags;
            let low = packet.half(packet.first());
            head.bits = u32::from(low);
            let is_long = !is_compressed(low) && packet.flags & flag::REPLAYS == 0;
            if is_long && packet.first() < packet.last {
                head.bits = packet.word;
            } else if is_long && packet.flags & flag::PRESENT != 0 {
                head.bits = twice(low);
                head.flags |= flag::HALF;
            }
        } else {
            head.flags = 0;
        }
        head.needs = NO_NEEDS;
        if head.flags & flag::PRESENT != 0 {
            let is_half = head.flags & flag::HALF != 0;
            let known = decoder.look_at(head.pc, head.bits, is_half);
            head.needs = known.needs;
            if known.is_instruction {
                head.flags |= flag::KNOWN;
            }
        }
        // An empty queue means that the next packet may complete the head, so it must be looked at again.
        self.is_head_known = !is_empty;
    }

    /// The address that the buffer's head is known to have, whether or not all of the instruction is there.
    #[inline(always)]
    pub(crate) fn head_pc(&self) -> Option<u64> {
        let waits = self.partial.is_live() && self.head.flags & flag::HALF != 0;
        (self.head.flags & flag::LIVE != 0 && !waits).then_some(self.head.pc)
    }

    /// Moves packets into the queue and instructions out of the buffer.
    #[inline(always)]
    pub(super) fn move_queue(&mut self, request: &Request) {
        if request.redirect.is_some() {
            self.queue.clear();
            self.partial = Partial::NONE;
            self.is_head_known = false;
            return;
        }
        if self.fires {
            self.queue.push(self.arriving);
        }
        if request.takes {
            self.take();
            self.is_head_known = false;
        }
    }

    #[inline(always)]
    fn take(&mut self) {
        if self.partial.is_live() {
            return self.take_partial();
        }
        if self.queue.is_empty() {
            return;
        }
        let packet = *self.queue.first();
        let first = packet.first();
        let is_single = packet.flags & (flag::PRESENT | flag::REPLAYS) != flag::PRESENT
            || is_compressed(packet.half(first));
        // Half an instruction can move out of the queue to wait for the rest.
        let is_half = !is_single && first >= packet.last;
        self.keep_rest(packet, if is_half { first } else { first + if is_single { 1 } else { 2 } });
    }

    /// Takes the instruction that a waiting half-word begins.
    fn take_partial(&mut self) {
        let is_single = self.partial.is_single();
        if self.queue.is_empty() {
            if is_single {
                self.partial = Partial::NONE;
            }
            return;
        }
        let packet = *self.queue.first();
        let is_whole = packet.flags & (flag::PRESENT | flag::REPLAYS) == flag::PRESENT;
        if is_single || !is_whole {
            self.partial = Partial::NONE;
            // A packet with a single half moves into the buffer at once.
            if packet.last == packet.first() {
                self.keep_rest(packet, packet.last);
            }
            return;
        }
        self.partial = Partial::NONE;
        self.keep_rest(packet, packet.first() + 1);
    }

    /// Takes the first packet out of the queue, but for the halves from `first` on, of which at most one is
    /// left.
    #[inline(always)]
    fn keep_rest(&mut self, packet: Packet, first: u8) {
        self.queue.pop();
        if first <= packet.last {
            self.partial = Partial {
                pc: packet.pc & !3 | (2 * u64::from(first)),
                half: packet.half(first),
                entry: packet.entry,
                number: packet.number,
                flags: packet.flags,
            };
        }
    }
}

/// Half an instruction as decode sees it: the wires of the missing second half carry the first half again.
fn twice(half: u16) -> u32 {
    u32::from(half) << 16 | u32::from(half)
}
