//! Homa: the first packets of a message leave unasked, and the receiver grants the rest to those of its messages that have least
//! left, several at a time, each at a priority of its own (Homa, SIGCOMM'18 §3).
//!
//! As in the prototype's variant, every packet is acknowledged, a grant follows each arrival, and a sender's timer repeats what
//! is lost. Switches need priorities, and no trimming.

use std::collections::VecDeque;

use super::{Answer, Arriving, Departing, PipelineCycles, Transport, bit};
use crate::packet::{AppHeader, Packet, flag};

/// How Homa is set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HomaConfig {
    /// Packets of a round trip, which leave unasked and which a granted message has under way.
    pub rtt_packets: u16,
    /// So many messages are granted at a time, in case some senders do not answer.
    pub overcommitment: u8,
    /// Unasked packets of messages up to so many bytes are one priority above those of longer ones; rising, and perhaps none.
    pub cutoffs: Vec<u16>,
}

impl Default for HomaConfig {
    /// The prototype's: three messages at a time, and one priority for unasked packets.
    fn default() -> HomaConfig {
        HomaConfig { rtt_packets: 2, overcommitment: 3, cutoffs: Vec::new() }
    }
}

impl HomaConfig {
    /// How many priorities switches need: one for control packets, those of unasked data, and one for each granted message.
    pub fn priorities(&self) -> u8 {
        self.control() + 1
    }

    fn control(&self) -> u8 {
        self.unasked(self.cutoffs.len()) + self.cutoffs.len() as u8 + 1
    }

    /// The priority of unasked data longer than so many of the cutoffs.
    fn unasked(&self, cutoffs: usize) -> u8 {
        self.overcommitment + (self.cutoffs.len() - cutoffs) as u8
    }

    fn grant(&self, reply: &Packet, credit: u16, rank: usize) -> Packet {
        let grant_priority = self.overcommitment.saturating_sub(1 + rank as u8);
        Packet { flags: flag::PULL, pull_offset: credit, grant_priority, ..reply.clone() }
    }
}

/// The transport: see the module.
#[derive(Clone, Debug)]
pub struct Homa {
    config: HomaConfig,
    /// Messages that are arriving and want more than they have been granted.
    pending: Vec<Pending>,
    /// Messages that have begun.
    begun: u64,
    grants: VecDeque<Packet>,
}

#[derive(Clone, Debug)]
struct Pending {
    /// Packets that have not arrived.
    remaining: u16,
    /// Its place in the order of beginning: of messages with as much left, the older one is first.
    number: u64,
    granted: u16,
    /// A round trip beyond the packets that have arrived.
    grantable: u16,
    /// A control packet for its sender.
    reply: Packet,
}

impl Homa {
    /// Homa, set so.
    pub fn new(config: HomaConfig) -> Homa {
        Homa { config, pending: Vec::new(), begun: 0, grants: VecDeque::new() }
    }

    /// Grants the message that has least left among those that may be granted now.
    fn grant(&mut self) {
        self.pending.sort_unstable_by_key(|it| (it.remaining, it.number));
        let active = usize::from(self.config.overcommitment);
        let wants = |it: &Pending| it.granted < it.grantable;
        let Some(rank) = self.pending.iter().take(active).position(wants) else { return };
        let message = &mut self.pending[rank];
        message.granted = message.grantable;
        self.grants.push_back(self.config.grant(&message.reply, message.granted, rank));
        if usize::from(message.granted) == message.reply.message_packets() {
            self.pending.remove(rank);
        }
    }
}

impl Transport for Homa {
    fn begin(&mut self, header: AppHeader) -> Departing {
        let longer = self.config.cutoffs.iter().filter(|&&cutoff| header.bytes > cutoff).count();
        let (credit, priority) = (self.config.rtt_packets, self.config.unasked(longer));
        Departing { credit, priority, ..Departing::default() }
    }

    fn on_data(&mut self, state: &mut Arriving, packet: &Packet) -> Answer {
        if packet.flags & flag::CHOP != 0 {
            return Answer { verdict: flag::NACK, pull: None };
        }
        let (rtt, total) = (self.config.rtt_packets, packet.message_packets() as u16);
        let arrived = (state.arrived | bit(packet)).count_ones() as u16;
        let is_this =
            |it: &Pending| (it.reply.destination, it.reply.message) == (packet.source, packet.message);
        self.begun += 1;
        let mut number = self.begun;
        state.credit = match self.pending.iter().position(is_this) {
            Some(place) => {
                let known = self.pending.swap_remove(place);
                number = known.number;
                known.granted
            }
            None if state.arrived == 0 => rtt,
            None => total,
        };
        let reply = Packet { priority: self.control_priority(), ..packet.reply(flag::PULL) };
        // A packet that comes again may mean that a grant has been lost.
        if state.arrived & bit(packet) != 0 && state.credit > rtt {
            self.grants.push_back(self.config.grant(&reply, state.credit, 0));
        }
        if state.credit < total {
            let grantable = rtt.saturating_add(arrived).min(total);
            let remaining = total.saturating_sub(arrived);
            self.pending.push(Pending { remaining, number, granted: state.credit, grantable, reply });
        }
        self.grant();
        Answer { verdict: flag::ACK, pull: None }
    }

    fn on_control(&mut self, state: &mut Departing, packet: &Packet) {
        state.on_verdict(packet);
        if packet.flags & flag::PULL != 0 {
            state.credit = state.credit.max(packet.pull_offset);
            state.priority = packet.grant_priority;
        }
    }

    /// A packet that is sent again is no more urgent than granted packets. If all packets sent have arrived,
    /// a grant may be lost, and the last packet asks for it again.
    fn on_timeout(&mut self, state: &mut Departing, sent: u64) {
        state.priority = state.priority.min(self.config.overcommitment.saturating_sub(1));
        if sent & !state.delivered == 0 {
            state.delivered &= !(1 << sent.checked_ilog2().unwrap_or(0));
        }
        state.resend |= sent & !state.delivered;
    }

    fn poll_control(&mut self) -> Option<Packet> {
        self.grants.pop_front()
    }

    fn control_priority(&self) -> u8 {
        self.config.control()
    }

    /// The prototype's pipelines: four more stages decide which sender gets a grant, and two look up a packet's priority.
    fn pipeline_cycles(&self) -> PipelineCycles {
        PipelineCycles { ingress: 4, egress: 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packet `offset` of a message of so many packets, by which its sender is known.
    fn data(packets: u16, offset: u8) -> Packet {
        let source = u32::from(packets);
        let message_bytes = packets * 1024;
        Packet { source, flags: flag::DATA, message_bytes, packet_offset: offset, ..Packet::default() }
    }

    /// Gives Homa arriving packets, each as the packets of its message and its place in it. Returns the
    /// grants: sender, credit and priority.
    fn grants(config: HomaConfig, arrivals: &[(u16, u8)]) -> Vec<(u32, u16, u8)> {
        let mut homa = Homa::new(config);
        let mut states = std::collections::BTreeMap::new();
        let mut found = Vec::new();
        for &(packets, offset) in arrivals {
            let state: &mut Arriving = states.entry(packets).or_default();
            let packet = data(packets, offset);
            assert_eq!(homa.on_data(state, &packet), Answer { verdict: flag::ACK, pull: None });
            state.arrived |= bit(&packet);
            let own = std::iter::from_fn(|| homa.poll_control());
            found.extend(own.map(|grant| (grant.destination, grant.pull_offset, grant.grant_priority)));
        }
        found
    }

    #[test]
    fn a_message_of_one_round_trip_needs_no_grant() {
        assert_eq!(grants(HomaConfig::default(), &[(1, 0), (2, 0), (2, 1)]), []);
    }

    #[test]
    fn each_arrival_grants_one_packet_more_to_the_end() {
        let arrivals: Vec<_> = (0..5).map(|offset| (5, offset)).collect();
        assert_eq!(grants(HomaConfig::default(), &arrivals), [(5, 3, 2), (5, 4, 2), (5, 5, 2)]);
    }

    #[test]
    fn who_has_least_left_comes_first() {
        // 20 alone has the highest granted priority; then 10 does, and 20 the next one.
        let found = grants(HomaConfig::default(), &[(20, 0), (10, 0), (20, 1), (10, 1)]);
        assert_eq!(found, [(20, 3, 2), (10, 3, 2), (20, 4, 1), (10, 4, 2)]);
    }

    #[test]
    fn of_equals_the_older_one_comes_first() {
        let mut homa = Homa::new(HomaConfig { overcommitment: 2, ..HomaConfig::default() });
        let grants = [9, 3, 7].map(|source| {
            homa.on_data(&mut Arriving::default(), &Packet { source, ..data(8, 0) });
            homa.poll_control().map(|grant| grant.destination)
        });
        assert_eq!(grants, [Some(9), Some(3), None]);
    }

    #[test]
    fn no_more_messages_are_granted_than_overcommitment_says() {
        let config = HomaConfig { overcommitment: 2, ..HomaConfig::default() };
        let found = grants(config.clone(), &[(8, 0), (9, 0), (10, 0), (10, 1)]);
        assert_eq!(found, [(8, 3, 1), (9, 3, 0)]);
        // Once one is granted to its end, the third takes its place.
        let rest: Vec<_> =
            [(8, 0), (9, 0), (10, 0)].into_iter().chain((1..6).map(|offset| (8, offset))).collect();
        let found = grants(config, &rest);
        assert_eq!(found[2..], [(8, 4, 1), (8, 5, 1), (8, 6, 1), (8, 7, 1), (8, 8, 1)]);
    }

    #[test]
    fn a_packet_that_comes_again_repeats_its_grant() {
        let found = grants(HomaConfig::default(), &[(5, 0), (5, 1), (5, 1)]);
        assert_eq!(found, [(5, 3, 2), (5, 4, 2), (5, 4, 2)]);
        let whole: Vec<_> = (0..5).chain([4]).map(|offset| (5, offset)).collect();
        assert_eq!(grants(HomaConfig::default(), &whole).last(), Some(&(5, 5, 2)));
    }
}
