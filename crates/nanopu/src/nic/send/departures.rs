//! Which data packet leaves next, where a transport paces its messages and where it does not.

use std::collections::VecDeque;

use super::{Outgoing, Sender};
use crate::nic::transport::Transport;
use crate::packet::Packet;

/// When it may leave, its message, and which packet of it.
type Due = (u64, u16, u32);

impl Sender {
    /// The first packet in line that may leave.
    pub(super) fn pop_due(&mut self, cycle: u64, transport: &dyn Transport) -> Option<Due> {
        if self.is_paced {
            return self.pop_paced(cycle, transport);
        }
        let is_due = |queue: &&mut VecDeque<Due>| queue.front().is_some_and(|&(due, ..)| due <= cycle);
        self.queues.iter_mut().find(is_due)?.pop_front()
    }

    /// The first packet in line that may leave, beside those whose messages wait for a cycle of their own.
    fn pop_paced(&mut self, cycle: u64, transport: &dyn Transport) -> Option<Due> {
        let messages = &self.messages;
        let place = |queue: &VecDeque<Due>| {
            let due = queue.iter().take_while(|&&(due, ..)| due <= cycle);
            due.enumerate()
                .find(|(_, (_, number, _))| waits_until(messages, *number, transport) <= cycle)
                .map(|(at, _)| at)
        };
        let (queue, place) = (0..self.queues.len()).find_map(|at| Some((at, place(&self.queues[at])?)))?;
        self.queues[queue].remove(place)
    }

    /// When the next data packet may leave.
    pub(super) fn next_departure(&self, transport: &dyn Transport) -> Option<u64> {
        if self.is_paced {
            let all = self.queues.iter().flatten();
            return all
                .map(|&(due, number, _)| due.max(waits_until(&self.messages, number, transport)))
                .min();
        }
        self.queues.iter().filter_map(|queue| queue.front()).map(|&(due, ..)| due).min()
    }

    /// Tells the transport that a packet goes to the wire.
    pub(super) fn tell_sent(&mut self, cycle: u64, packet: &Packet, transport: &mut dyn Transport) {
        if packet.is_data()
            && let Some(message) = self.messages[usize::from(packet.buffer)].as_mut()
        {
            transport.at(cycle);
            transport.on_sent(&mut message.state, packet);
            let earliest = message.earliest(transport);
            self.is_paced |= earliest > 0;
            // Nothing is overdue while the message waits for its turn.
            message.deadline = message.deadline.max(earliest.saturating_add(self.timeout_cycles));
        }
    }
}

/// The cycle before which no packet of a message leaves. A number without a message waits for nothing.
fn waits_until(messages: &[Option<Outgoing>], number: u16, transport: &dyn Transport) -> u64 {
    messages[usize::from(number)].as_ref().map_or(0, |message| message.earliest(transport))
}
