//! From packets to instructions: the queue, and the half-word that waits for its other half.

use highwire_riscv::is_compressed;

use super::scan::Scan;
use super::{Fetched, Frontend, Packet, Partial, Request};
use crate::predict::NEW;

impl Frontend {
    /// The instruction that starts with the waiting half, or with `packet`.
    pub(super) fn head(&self, packet: Option<&Packet>) -> Option<Fetched> {
        if let Some(partial) = self.partial {
            let single = partial.half.is_none_or(is_compressed) || partial.replays;
            if single {
                let bits = partial.half.map(u32::from);
                let Partial { pc, entry, history, replays, .. } = partial;
                return Some(Fetched { pc, bits, is_half: false, entry, history, replays, needs: None });
            }
            let Some(packet) = packet else {
                let bits = partial.half.map(twice);
                let Partial { pc, entry, history, replays, .. } = partial;
                return Some(Fetched { pc, bits, is_half: true, entry, history, replays, needs: None });
            };
            let bits =
                packet.halves.and_then(|[low, _]| Some(u32::from(low) << 16 | u32::from(partial.half?)));
            let Packet { entry, history, replays, .. } = *packet;
            return Some(Fetched {
                pc: partial.pc,
                bits,
                is_half: false,
                entry,
                history,
                replays,
                needs: None,
            });
        }
        let packet = packet?;
        let first = usize::from(packet.pc & 2 != 0);
        let count = packet.last_half() + 1 - first;
        let Packet { pc, entry, history, replays, .. } = *packet;
        let Some(halves) = packet.halves else {
            return Some(Fetched { pc, bits: None, is_half: false, entry, history, replays, needs: None });
        };
        let low = u32::from(halves[first]);
        if is_compressed(halves[first]) || replays {
            return Some(Fetched {
                pc,
                bits: Some(low),
                is_half: false,
                entry,
                history,
                replays,
                needs: None,
            });
        }
        let is_half = count == 1;
        let bits = if is_half { twice(halves[first]) } else { low | u32::from(halves[1]) << 16 };
        Some(Fetched { pc, bits: Some(bits), is_half, entry, history, replays, needs: None })
    }

    /// The address that the buffer's head is known to have, whether or not all of the instruction is there.
    pub(crate) fn head_pc(&self) -> Option<u64> {
        let packet = self.queue.front().or(self.arriving.as_ref());
        match (&self.partial, packet) {
            (Some(partial), _)
                if packet.is_some() || self.head.as_ref().is_some_and(|head| !head.is_half) =>
            {
                Some(partial.pc)
            }
            (Some(_), _) => None,
            (None, packet) => packet.map(|packet| packet.pc),
        }
    }

    /// Moves packets into the queue and instructions out of the buffer.
    pub(super) fn move_queue(&mut self, scan: &Scan, request: &Request) {
        if request.redirect.is_some() {
            self.queue.clear();
            self.partial = None;
            self.is_head_known = false;
            return;
        }
        if let Some(mut packet) = self.arriving {
            if !packet.taken && scan.taken {
                (packet.taken, packet.half) = (true, scan.half);
                packet.entry = NEW;
            }
            packet.replays = scan.mistaken;
            self.queue.push(packet);
        }
        if request.takes {
            self.take();
            self.is_head_known = false;
        }
    }

    pub(super) fn take(&mut self) {
        let packet = self.queue.front().copied();
        let Some(head) = self.head(packet.as_ref()).filter(|head| !head.is_half) else {
            // Half an instruction can move out of the queue to wait for the rest.
            if self.partial.is_none()
                && let Some(packet) = packet
            {
                self.keep_rest(packet, usize::from(packet.pc & 2 != 0));
            }
            return;
        };
        let halves =
            if head.bits.is_none_or(|bits| is_compressed(bits as u16)) || head.replays { 1 } else { 2 };
        let waiting = usize::from(self.partial.is_some());
        if halves <= waiting {
            self.partial = None;
            // A packet of a single half follows into the buffer at once.
            if let Some(packet) = packet
                && packet.last_half() == usize::from(packet.pc & 2 != 0)
            {
                self.keep_rest(packet, packet.last_half());
            }
            return;
        }
        let Some(packet) = packet else { return };
        let first = usize::from(packet.pc & 2 != 0) + halves - waiting;
        self.partial = None;
        self.keep_rest(packet, first);
    }

    /// The first packet is done but for the halves from `first` on, of which at most one is left.
    pub(super) fn keep_rest(&mut self, packet: Packet, first: usize) {
        self.queue.pop();
        if first <= packet.last_half() {
            self.partial = Some(Partial {
                pc: packet.pc & !3 | (2 * first as u64),
                half: packet.halves.map(|halves| halves[first]),
                entry: packet.entry,
                history: packet.history,
                replays: packet.replays,
            });
        }
    }
}

/// The wires of a second half that is not there carry the first again.
fn twice(half: u16) -> u32 {
    u32::from(half) << 16 | u32::from(half)
}

impl Packet {
    /// Nothing behind a taken jump belongs to the packet.
    fn last_half(&self) -> usize {
        if self.taken { usize::from(self.half) } else { 1 }
    }
}
