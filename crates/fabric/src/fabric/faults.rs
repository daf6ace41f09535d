//! Links that fail, come back, or damage packets.
//!
//! A link fails in both directions at once: packets on the wire are lost, and so are packets that wait for
//! it. Bit errors do not damage pause frames: real switches repeat a pause frame until it arrives, and losing
//! this fabric's only one would stop the network where a real one goes on.

use highwire_stdx::Rng;

use super::{FAULT, Fabric, key, trace};
use crate::port::Health;
use crate::{DropReason, Host, NodeId, Observer, Packet, PortId, Rerouting, Time};

/// A link that changes its state at a known time.
#[derive(Clone, Copy)]
pub(super) struct Fault {
    link: u32,
    is_up: bool,
}

/// A rule: whether a packet that is about to enter a switch is lost.
pub type Verdict<P> = Box<dyn FnMut(Time, &P) -> bool + Send>;

/// The rules in force.
pub(super) enum Verdicts<P> {
    /// One rule for all.
    Network(Verdict<P>),
    /// One for each port whose wire leads into a switch.
    Wires(Vec<Option<Verdict<P>>>),
}

/// What a wire does to packets.
pub(super) struct FaultKind {
    /// The probability that a bit survives.
    bit_survives: f64,
    /// The probability that a packet is lost, regardless of its length.
    packet_lost: f64,
    rng: Rng,
}

impl<P: Packet, H: Host<P>, O: Observer<P>> Fabric<P, H, O> {
    /// Link `link` (an index of [`crate::Topology::links`]) goes down or comes up at `at`.
    ///
    /// # Panics
    /// If there is no such link, or `at` lies in the past.
    pub fn schedule_link(&mut self, at: Time, link: usize, is_up: bool) {
        assert!(link < self.topology.links().len(), "there is no link {link}");
        self.faults.push(Fault { link: link as u32, is_up });
        self.events.push(at, key(FAULT, (self.faults.len() - 1) as u32));
    }

    /// From now on, every bit on link `link` flips with probability `bit_error_rate`, and a packet with a flipped bit is
    /// lost; beside that, packets are lost with probability `packet_loss`. Both directions alike.
    ///
    /// # Panics
    /// If there is no such link, or a probability is none.
    pub fn set_link_errors(&mut self, link: usize, bit_error_rate: f64, packet_loss: f64) {
        assert!([bit_error_rate, packet_loss].iter().all(|p| (0.0..=1.0).contains(p)), "no probability");
        for port in self.ports_of_link(link) {
            let rng = Rng::new(self.config.seed ^ 0x11E4_E440_0000_0000).fork(u64::from(port));
            let kind = FaultKind { bit_survives: 1.0 - bit_error_rate, packet_lost: packet_loss, rng };
            self.fault_kinds[port as usize] = Some(Box::new(kind));
            if self.ports[port as usize].is_up() {
                self.ports[port as usize].health = Health::Faulty;
            }
        }
    }

    /// From now on, packets are lost on their way into a switch by this rule; `None` ends that. It is asked
    /// in the order of events, so a rule that counts packets loses the same ones when a run is repeated. It
    /// replaces the rules of [`Fabric::lose_if_by_wire`].
    pub fn lose_if(&mut self, rule: Option<Verdict<P>>) {
        self.verdicts = rule.map(Verdicts::Network);
    }

    /// From now on, packets are lost on their way into a switch by the rule of the wire on which they are: `rule_of` makes one for
    /// each port that sends into a switch; `None` ends that. A rule is asked in the order in which packets come in over its wire,
    /// which no number of threads changes. It replaces the rule of [`Fabric::lose_if`].
    pub fn lose_if_by_wire(&mut self, rule_of: Option<&dyn Fn(PortId) -> Verdict<P>>) {
        let leads_to_switch = |port: u32| self.ports[port as usize].peer >= self.host_count;
        self.verdicts = rule_of.map(|rule_of| {
            let ports = 0..self.ports.len() as u32;
            Verdicts::Wires(ports.map(|port| leads_to_switch(port).then(|| rule_of(PortId(port)))).collect())
        });
    }

    /// Whether a rule loses the packet that comes in over the wire behind `port`. Rules do not apply to pause
    /// frames.
    #[cold]
    pub(super) fn is_condemned(&mut self, now: Time, port: u32, index: u32) -> bool {
        let rule = match &mut self.verdicts {
            Some(Verdicts::Network(rule)) => Some(rule),
            Some(Verdicts::Wires(rules)) => rules[port as usize].as_mut(),
            None => None,
        };
        rule.zip(self.store.packet(index)).is_some_and(|(rule, packet)| rule(now, packet))
    }

    /// The two ports of a link.
    pub(super) fn ports_of_link(&self, link: usize) -> [u32; 2] {
        let end = |(node, port): (NodeId, u16)| match node {
            NodeId::Host(h) => h,
            NodeId::Switch(s) => self.switches[s as usize].base + u32::from(port),
        };
        self.topology.links()[link].ends.map(end)
    }

    #[cold]
    pub(super) fn is_damaged(&mut self, port: u32, bytes: u32) -> bool {
        let Some(kind) = &mut self.fault_kinds[port as usize] else { return false };
        let survives = power(kind.bit_survives, u64::from(bytes) * 8) * (1.0 - kind.packet_lost);
        kind.rng.chance(1.0 - survives)
    }

    /// Loses a packet on the wire behind `port`.
    #[cold]
    pub(super) fn lose(&mut self, now: Time, port: u32, index: u32, reason: DropReason) {
        let bytes = self.store.records[index as usize].bytes;
        self.counters[port as usize].lost.add(bytes);
        self.discard(now, port, index, reason);
    }

    #[cold]
    pub(super) fn break_or_mend(&mut self, now: Time, fault: u32) {
        if !self.is_first {
            self.processed -= 1;
            self.fingerprint = self.fingerprint.wrapping_sub(trace(now, key(FAULT, fault)));
        }
        let Fault { link, is_up } = self.faults[fault as usize];
        if std::mem::replace(&mut self.link_states[link as usize], is_up) == is_up {
            return;
        }
        let ports = self.ports_of_link(link as usize);
        for port in ports {
            self.ports[port as usize].health = match &self.fault_kinds[port as usize] {
                _ if !is_up => Health::Down,
                Some(_) => Health::Faulty,
                None => Health::Good,
            };
            if let Some(switch) = self.switches.get_mut(self.ports[port as usize].switch as usize) {
                switch.dead_ports = if is_up { switch.dead_ports - 1 } else { switch.dead_ports + 1 };
            }
        }
        if self.config.rerouting == Rerouting::Global {
            let states = &self.link_states;
            self.topology.route_by_tables(|l| states[l]);
        }
        for port in ports {
            if !is_up {
                self.cut(now, port);
            } else if self.is_mine[port as usize] {
                self.wake(now, port);
            }
        }
    }

    fn cut(&mut self, now: Time, port: u32) {
        while let Some(index) = self.store.pop_front(&mut self.ports[port as usize].wire) {
            self.lose(now, port, index, DropReason::LinkDown);
        }
        for priority in 0..self.config.priorities {
            while self.ports[port as usize].waiting & 1 << priority != 0 {
                let (index, is_last) = self.queues.pop(&self.store, port, priority);
                if is_last {
                    self.ports[port as usize].waiting &= !(1 << priority);
                }
                let record = self.store.records[index as usize];
                self.counters[port as usize].unroutable.add(record.bytes);
                self.release(now, port, &record);
                self.discard(now, port, index, DropReason::LinkDown);
            }
        }
        // Both ends forget which priorities they have paused at each other.
        self.ports[port as usize].pause_told = 0;
        self.set_paused(now, port, 0);
    }

    /// Whether link `link` is up.
    pub fn link_is_up(&self, link: usize) -> bool {
        self.link_states[link]
    }

    /// Ports whose link is down.
    pub fn dead_ports(&self) -> impl Iterator<Item = PortId> {
        let dead = self.ports.iter().enumerate().filter(|(_, p)| !p.is_up());
        dead.map(|(i, _)| PortId(i as u32))
    }
}

/// `base` to the power `exponent` by squaring: plain multiplications give the same bits on every machine, `powf` need not.
fn power(mut base: f64, mut exponent: u64) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent % 2 == 1 {
            result *= base;
        }
        base *= base;
        exponent /= 2;
    }
    result
}
