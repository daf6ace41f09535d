//! A packet in a switch: its output, the room in the buffer, and what happens if there is none.

use super::Fabric;
use crate::packet::{ECN_CAPABLE, Record, TRIMMED};
use crate::topology::Ways;
use crate::{
    Balancing, Buffering, DropReason, Host, MarkWhen, Observer, Packet, PortId, Rate, Rerouting, Service,
    Time, ViolationKind,
};

impl<P: Packet, H: Host<P>, O: Observer<P>> Fabric<P, H, O> {
    /// A packet has come in through port `input` of a switch.
    #[inline]
    pub(super) fn forward(&mut self, now: Time, input: u32, index: u32, record: &Record) {
        let switch = self.ports[input as usize].switch;
        let Some(output) = self.route(switch, record) else {
            self.counters[input as usize].unroutable.add(record.bytes);
            return self.discard(now, input, index, DropReason::LinkDown);
        };
        let local = (input - self.switches[switch as usize].base) as u16;
        let port = &self.ports[output as usize];
        let blocked = port.paused & 1 << record.priority;
        if port.waiting | blocked == 0 && !port.is_awaited && port.busy_until <= now {
            // No packet waits for the port: this one goes through the crossbar at once.
            self.queues.pass(output, record.priority, local);
            return self.launch(now, output, index);
        }
        self.store.records[index as usize].input = local;
        self.enqueue(now, input, output, index, Record { input: local, ..*record });
    }

    /// The port by which a packet leaves; `None` if there is none.
    #[inline]
    fn route(&mut self, switch: u32, record: &Record) -> Option<u32> {
        let router = &self.topology.routers[switch as usize];
        let ways = router.ways(&self.topology.tables, switch, record.address, record.destination);
        let count = ways.count();
        let state = &mut self.switches[switch as usize];
        let picked = match count {
            0 => return None,
            1 => 0,
            _ => match self.config.balancing {
                Balancing::Ecmp => {
                    let hash = u64::from(record.hash).wrapping_add(state.salt).wrapping_mul(state.factor);
                    (((hash >> 32) * count as u64) >> 32) as usize
                }
                Balancing::Spray => state.rng.below(count as u64) as usize,
            },
        };
        if state.dead_ports == 0 {
            return Some(state.base + u32::from(ways.nth(picked)));
        }
        let base = state.base;
        first_alive(&ways, picked, self.config.rerouting, |port| self.ports[(base + port) as usize].is_up())
            .map(|port| base + port)
    }

    /// Whether one of the ports by which a packet may leave the switch of port `input` is faster than `rate`.
    pub(super) fn may_leave_faster(&self, input: u32, rate: Rate, record: &Record) -> bool {
        let switch = self.ports[input as usize].switch;
        let router = &self.topology.routers[switch as usize];
        let ways = router.ways(&self.topology.tables, switch, record.address, record.destination);
        let base = self.switches[switch as usize].base;
        let rate_of =
            |port: u16| self.kinds[usize::from(self.ports[(base + u32::from(port)) as usize].kind)].rate;
        (0..ways.count()).any(|n| rate_of(ways.nth(n)) > rate)
    }

    /// Puts a packet into the queue for `output`, if there is room.
    fn enqueue(&mut self, now: Time, input: u32, output: u32, index: u32, mut record: Record) {
        let data_full = self.config.trimming.is_some_and(|t| {
            let waiting = self.queues.lane(output, record.priority).bytes;
            record.flags & TRIMMED == 0 && waiting + u64::from(record.bytes) > t.data_bytes_max
        });
        if data_full || !self.has_room(input, output, &record) {
            let Some(trimmed) = self.trim(now, output, index, record) else {
                return self.drop_full(now, input, output, index, &record);
            };
            record = trimmed;
            if !self.has_room(input, output, &record) {
                return self.drop_full(now, input, output, index, &record);
            }
        }
        if self.config.ecn.is_some_and(|ecn| ecn.when == MarkWhen::Joining) {
            self.judge(now, output, index, &record);
        }
        let bytes = u64::from(record.bytes);
        let at = self.input_at(input);
        self.inputs[at] += bytes;
        self.inputs[at + 1 + usize::from(record.priority)] += bytes;
        let row = match (self.config.buffering, self.config.service) {
            (Buffering::InputQueued { .. }, Service::RoundRobin) => record.input,
            _ => 0,
        };
        self.switches[self.ports[output as usize].switch as usize].used_bytes += bytes;
        self.queues.push(&mut self.store, output, row, index);
        if O::SEES_QUEUES {
            self.observer.on_wait(now, PortId(output), self.queue_bytes(PortId(output)));
        }
        self.ports[output as usize].waiting |= 1 << record.priority;
        if self.config.pfc.is_some() {
            self.pause_if_over(now, input, record.priority);
        }
        if self.ports[output as usize].paused & 1 << record.priority == 0 {
            self.wake(now, output);
        }
    }

    #[inline]
    fn has_room(&self, input: u32, output: u32, record: &Record) -> bool {
        let bytes = u64::from(record.bytes);
        if let Some(t) = self.config.trimming.filter(|_| record.flags & TRIMMED != 0) {
            let headers = self.queues.lane(output, record.priority).bytes;
            if headers + bytes > t.header_bytes_max {
                return false;
            }
        }
        match self.config.buffering {
            Buffering::InputQueued { input_bytes } => {
                // Data leaves room for the headers of what comes after it.
                let trimming = self.config.trimming.filter(|_| record.flags & TRIMMED == 0);
                let kept = trimming.map_or(0, |t| t.header_bytes_max);
                self.inputs[self.input_at(input)] + bytes + kept <= input_bytes
            }
            Buffering::OutputQueued { pool_bytes, alpha_log2 } => {
                let switch = &self.switches[self.ports[output as usize].switch as usize];
                if self.is_lossless(record.priority) {
                    return switch.used_bytes + bytes <= pool_bytes;
                }
                let waiting = self.queues.lane(output, record.priority).bytes;
                let free = switch.shared_bytes.saturating_sub(switch.used_bytes);
                bytes <= free && waiting + bytes <= scaled(free, alpha_log2)
            }
        }
    }

    /// Where the bytes of an input port begin in `inputs`.
    #[inline]
    pub(super) fn input_at(&self, input: u32) -> usize {
        input as usize * (1 + usize::from(self.config.priorities))
    }

    pub(super) fn is_lossless(&self, priority: u8) -> bool {
        self.config.pfc.is_some_and(|pfc| pfc.priorities.contains(priority))
    }

    /// Cuts a packet down to its headers, and moves it to their priority.
    #[cold]
    fn trim(&mut self, now: Time, output: u32, index: u32, mut record: Record) -> Option<Record> {
        let trimming = self.config.trimming.filter(|_| record.flags & TRIMMED == 0)?;
        let packet = self.store.packet_mut(index)?;
        if !packet.trim() {
            return None;
        }
        let cut = record.bytes.saturating_sub(packet.wire_bytes());
        record.bytes -= cut;
        record.priority = trimming.header_priority;
        record.flags |= TRIMMED;
        self.observer.on_trim(now, PortId(output), packet);
        let place = &mut self.store.records[index as usize];
        (place.bytes, place.priority, place.flags) = (record.bytes, record.priority, record.flags);
        self.counters[output as usize].trimmed.add(cut);
        Some(record)
    }

    #[cold]
    fn drop_full(&mut self, now: Time, input: u32, output: u32, index: u32, record: &Record) {
        self.counters[output as usize].dropped.add(record.bytes);
        if self.is_lossless(record.priority) {
            let (used_bytes, room_bytes) = match self.config.buffering {
                Buffering::InputQueued { input_bytes } => (self.inputs[self.input_at(input)], input_bytes),
                Buffering::OutputQueued { pool_bytes, .. } => {
                    (self.switches[self.ports[output as usize].switch as usize].used_bytes, pool_bytes)
                }
            };
            let (priority, bytes) = (record.priority, record.bytes);
            let kind = ViolationKind::LosslessDrop { priority, bytes, used_bytes, room_bytes };
            self.violate(self.port_name(PortId(input)), kind);
        }
        self.discard(now, output, index, DropReason::BufferFull);
    }

    #[cold]
    pub(super) fn discard(&mut self, now: Time, port: u32, index: u32, reason: DropReason) {
        if let Some(packet) = self.store.remove(index) {
            self.observer.on_drop(now, PortId(port), reason, &packet);
        }
    }

    /// A packet that was waiting leaves the buffer: its bytes are free as soon as its first bit is sent.
    #[inline]
    pub(super) fn release(&mut self, now: Time, output: u32, record: &Record) {
        let (bytes, priority) = (u64::from(record.bytes), record.priority);
        let switch = &mut self.switches[self.ports[output as usize].switch as usize];
        let input = switch.base + u32::from(record.input);
        switch.used_bytes -= bytes;
        let at = self.input_at(input);
        self.inputs[at] -= bytes;
        self.inputs[at + 1 + usize::from(priority)] -= bytes;
        if self.config.pfc.is_some() {
            self.resume_if_under(now, input, priority);
        }
    }

    #[inline]
    pub(super) fn mark_leaving(&mut self, now: Time, output: u32, index: u32) {
        if self.config.ecn.is_some_and(|ecn| ecn.when == MarkWhen::Leaving) {
            let record = self.store.records[index as usize];
            self.judge(now, output, index, &record);
        }
    }

    /// Marks a packet if the queue is long enough.
    #[inline]
    fn judge(&mut self, now: Time, output: u32, index: u32, record: &Record) {
        let ecn = self.ecn_of[usize::from(self.ports[output as usize].kind)];
        let waiting = self.queues.lane(output, record.priority).bytes;
        if waiting <= ecn.min_bytes || record.flags & ECN_CAPABLE == 0 {
            return;
        }
        if waiting <= ecn.max_bytes {
            let share = (waiting - ecn.min_bytes) as f64 / (ecn.max_bytes - ecn.min_bytes) as f64;
            let switch = self.ports[output as usize].switch as usize;
            if !self.switches[switch].rng.chance(share * ecn.max_probability) {
                return;
            }
        }
        self.counters[output as usize].marked += 1;
        if let Some(packet) = self.store.packet_mut(index) {
            packet.mark_congestion();
            self.observer.on_mark(now, PortId(output), packet);
        }
    }
}

/// The way picked, or with local rerouting the next one that is alive.
#[cold]
fn first_alive(
    ways: &Ways<'_>,
    picked: usize,
    rerouting: Rerouting,
    is_up: impl Fn(u32) -> bool,
) -> Option<u32> {
    let count = ways.count();
    let tries = if rerouting == Rerouting::None { 1 } else { count };
    (0..tries).map(|i| u32::from(ways.nth((picked + i) % count))).find(|&port| is_up(port))
}

/// `2^log2` times `bytes`.
#[inline]
pub(super) fn scaled(bytes: u64, log2: i8) -> u64 {
    if log2 >= 0 { bytes.saturating_mul(1 << log2) } else { bytes >> -log2 }
}
