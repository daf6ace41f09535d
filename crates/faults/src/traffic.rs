//! The fate of packets that one device sends.
//!
//! Acknowledgements and other packets to each address have random numbers of their own: how many acknowledgements there
//! are depends on timing, and must not move losses from one request to another.

use crate::rules::{End, PathRule, Pattern, Scenario};
use crate::trigger::Fires;
use highwire_stdx::{Duration, Instant, Rng};
use highwire_wire::{Bth, IrnEth, Opcode, Operation, Position, Service};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A queue before a slow path holds packets for so long, and drops what comes then.
const QUEUE_MAX: Duration = Duration::from_millis(100);
/// Addresses that are told apart; all others share one state.
const ADDRESSES_MAX: usize = 1024;

/// A packet that is about to leave.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Where it goes.
    pub to: IpAddr,
    /// Its bytes, from the BTH on.
    pub bytes: &'a [u8],
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketFate {
    /// It leaves.
    Pass,
    /// It is lost.
    Drop,
    /// It leaves so much later.
    Delay(Duration),
}

/// Judges the packets of one device.
#[derive(Clone, Debug)]
pub struct Traffic {
    rules: Vec<Rule>,
    seed: u64,
    is_silent: bool,
    /// Bit n is set while port n is silent.
    silent_ports: u32,
    /// What is known of queue pairs of ports after the first, by their numbers.
    queue_pairs: BTreeMap<u32, Place>,
    /// The same, by the other end of their connection.
    peers: BTreeMap<(IpAddr, u32), u8>,
}

/// Where a queue pair is.
#[derive(Clone, Copy, Debug)]
struct Place {
    port: u8,
    peer: Option<(IpAddr, u32)>,
}

#[derive(Clone, Debug)]
struct Rule {
    rule: PathRule,
    to: Option<IpAddr>,
    streams: BTreeMap<(Option<IpAddr>, bool), Stream>,
    /// When the slow path is free again.
    free_at: Instant,
}

#[derive(Clone, Debug)]
struct Stream {
    fires: Fires,
    rng: Rng,
    is_bad: bool,
}

impl Traffic {
    /// The rules of a scenario for a device; `address_of` knows the addresses of all.
    pub fn new(scenario: &Scenario, device: usize, address_of: impl Fn(usize) -> Option<IpAddr>) -> Traffic {
        let mut traffic = Traffic {
            rules: Vec::new(),
            seed: scenario.seed,
            is_silent: false,
            silent_ports: 0,
            queue_pairs: BTreeMap::new(),
            peers: BTreeMap::new(),
        };
        traffic.add(&scenario.paths, device, address_of);
        traffic
    }

    /// Adds rules.
    pub fn add(&mut self, paths: &[PathRule], device: usize, address_of: impl Fn(usize) -> Option<IpAddr>) {
        let own = address_of(device);
        let address = |end: End| match end {
            End::Device(index) => address_of(index),
            End::Address(address) => Some(address),
        };
        for rule in paths {
            let is_from_here = match rule.from {
                None => true,
                Some(End::Device(index)) => index == device,
                Some(End::Address(address)) => own == Some(address),
            };
            if is_from_here {
                let to = rule.to.and_then(address);
                let rule = rule.clone();
                self.rules.push(Rule { rule, to, streams: BTreeMap::new(), free_at: Instant::ZERO });
            }
        }
    }

    /// Stops all packets, in both directions, or lets them pass again.
    pub fn silence(&mut self, is_silent: bool) {
        self.is_silent = is_silent;
    }

    /// Whether packets that arrive are lost.
    pub fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// Stops the packets of a port's queue pairs, in both directions, or lets them pass again.
    pub fn silence_port(&mut self, port: u8, is_silent: bool) {
        let bit = 1 << (port & 31);
        self.silent_ports = if is_silent { self.silent_ports | bit } else { self.silent_ports & !bit };
    }

    /// Whether packets that arrive for some queue pairs are lost.
    pub fn is_partly_silent(&self) -> bool {
        self.silent_ports != 0
    }

    /// A queue pair has a port; and a peer, once it is connected. All that are not known have the first port.
    pub fn place(&mut self, queue_pair: u32, port: u8, peer: Option<(IpAddr, u32)>) {
        self.forget(queue_pair);
        self.queue_pairs.insert(queue_pair, Place { port, peer });
        if let Some(peer) = peer {
            self.peers.insert(peer, port);
        }
    }

    /// A queue pair is gone.
    pub fn forget(&mut self, queue_pair: u32) {
        let peer = self.queue_pairs.remove(&queue_pair).and_then(|place| place.peer);
        // Another queue pair may have the peer by now, and then it stays without one until it is connected anew.
        peer.map(|peer| self.peers.remove(&peer));
    }

    /// Whether a packet that arrives is lost, because the port of its queue pair is silent.
    pub fn is_unheard(&self, bytes: &[u8]) -> bool {
        let port =
            destination(bytes).and_then(|qpn| self.queue_pairs.get(&qpn)).map_or(1, |place| place.port);
        self.is_silent_at(port)
    }

    fn is_silent_at(&self, port: u8) -> bool {
        self.is_silent || self.silent_ports & (1 << (port & 31)) != 0
    }

    /// The port by which a packet leaves: datagrams name their queue pair, other packets only its peer.
    fn leaves_by(&self, packet: &Packet<'_>) -> u8 {
        let of_sender = sender(packet.bytes).and_then(|qpn| self.queue_pairs.get(&qpn));
        let of_peer = || Some(*self.peers.get(&(packet.to, destination(packet.bytes)?))?);
        of_sender.map(|place| place.port).or_else(of_peer).unwrap_or(1)
    }

    /// Judges a packet.
    pub fn judge(&mut self, now: Instant, packet: &Packet<'_>) -> PacketFate {
        if self.is_silent || (self.silent_ports != 0 && self.is_silent_at(self.leaves_by(packet))) {
            return PacketFate::Drop;
        }
        let kind = Kind::of(packet.bytes);
        let mut delay = Duration::ZERO;
        for (index, rule) in self.rules.iter_mut().enumerate() {
            let is_about = rule.to.is_none_or(|to| to == packet.to) && kind.is(rule.rule.pattern);
            if !is_about {
                continue;
            }
            let mut rng = Rng::new(self.seed).fork(index as u64 + 1);
            let Some(fate) = rule.judge(now, packet, kind.is_acknowledgement, &mut rng) else {
                return PacketFate::Drop;
            };
            delay = Duration::from_nanos(delay.as_nanos().saturating_add(fate.as_nanos()));
        }
        if delay == Duration::ZERO { PacketFate::Pass } else { PacketFate::Delay(delay) }
    }
}

impl Rule {
    /// The time that is added to a packet's way; `None` if it is lost.
    fn judge(&mut self, now: Instant, packet: &Packet<'_>, is_ack: bool, rng: &mut Rng) -> Option<Duration> {
        let is_known =
            self.streams.len() < ADDRESSES_MAX || self.streams.contains_key(&(Some(packet.to), is_ack));
        let key = (is_known.then_some(packet.to), is_ack);
        let rule = &self.rule;
        let stream = self.streams.entry(key).or_insert_with(|| {
            let mut rng = rng.fork(u64::from(is_ack) + 1);
            Stream { fires: Fires::new(rule.trigger, rng.fork(1)), rng, is_bad: false }
        });
        if stream.fires.on().is_none() {
            return Some(Duration::ZERO);
        }
        if stream.loses(rule) {
            return None;
        }
        let Some(bandwidth) = rule.bandwidth else { return Some(rule.delay) };
        let begins = self.free_at.max(now);
        let wait = begins.saturating_since(now);
        if wait > QUEUE_MAX {
            return None;
        }
        let bits = packet.bytes.len() as u128 * 8;
        let takes = Duration::from_nanos((bits * 1_000_000_000 / u128::from(bandwidth)) as u64);
        self.free_at = begins + takes;
        Some(Duration::from_nanos(wait.as_nanos() + takes.as_nanos() + rule.delay.as_nanos()))
    }
}

impl Stream {
    /// Draws a packet's loss. Both draws are made for each, so that one does not move the other.
    fn loses(&mut self, rule: &PathRule) -> bool {
        let is_lost = rule.loss > 0.0 && self.rng.chance(rule.loss);
        let Some((begins, ends, loss)) = rule.bursts else { return is_lost };
        let turns = self.rng.chance(if self.is_bad { ends } else { begins });
        self.is_bad ^= turns;
        let is_lost_in_burst = self.rng.chance(loss) && self.is_bad;
        is_lost || is_lost_in_burst
    }
}

/// Three bytes at a place, as a number.
fn number_at(bytes: &[u8], at: usize) -> Option<u32> {
    let [a, b, c] = *bytes.get(at..)?.first_chunk()?;
    Some(u32::from_be_bytes([0, a, b, c]))
}

/// The queue pair to which a packet goes, as its BTH says.
fn destination(bytes: &[u8]) -> Option<u32> {
    number_at(bytes, 5)
}

/// The queue pair from which a datagram comes, as its DETH says.
fn sender(bytes: &[u8]) -> Option<u32> {
    let opcode = bytes.first().and_then(|byte| Opcode::from_u8(*byte))?;
    (opcode.info().service == Some(Service::Ud)).then(|| number_at(bytes, Bth::LEN + 5))?
}

/// What a packet is, from its first bytes.
#[derive(Clone, Copy)]
struct Kind {
    is_acknowledgement: bool,
    is_response: bool,
    is_last: bool,
}

impl Kind {
    fn of(bytes: &[u8]) -> Kind {
        let opcode = bytes.first().and_then(|byte| Opcode::from_u8(*byte));
        let Some(info) = opcode.map(Opcode::info) else {
            return Kind { is_acknowledgement: false, is_response: false, is_last: false };
        };
        use Operation as Op;
        let is_acknowledgement = matches!(
            info.operation,
            Op::Acknowledge | Op::SelectiveAcknowledge | Op::ReadAcknowledge | Op::ReadSelectiveAcknowledge
        );
        let is_last = match info.position {
            Position::Last | Position::Only => true,
            Position::First | Position::Middle => false,
            Position::Any => is_last_of_irn(bytes),
        };
        Kind {
            is_acknowledgement,
            is_response: matches!(info.operation, Op::ReadResponse | Op::AtomicResponse),
            is_last: is_last && !is_acknowledgement && info.operation != Op::Congestion,
        }
    }

    fn is(self, pattern: Pattern) -> bool {
        match pattern {
            Pattern::All => true,
            Pattern::Acknowledgement => self.is_acknowledgement,
            Pattern::Last => self.is_last,
            Pattern::Request => !self.is_acknowledgement && !self.is_response,
            Pattern::Response => self.is_response,
        }
    }
}

/// Whether a packet of IRN's is the last of its message, as its IRN header says.
fn is_last_of_irn(bytes: &[u8]) -> bool {
    bytes
        .get(Bth::LEN..)
        .and_then(|rest| IrnEth::parse(rest.first_chunk()?).ok())
        .is_some_and(|irn| irn.is_last())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 9));

    fn traffic(text: &str) -> Traffic {
        let scenario = Scenario::read("f", text).unwrap_or_else(|error| panic!("{error}"));
        Traffic::new(&scenario, 0, |_| Some([127, 0, 0, 1].into()))
    }

    fn packet(opcode: Opcode, bytes: &mut [u8]) -> Packet<'_> {
        bytes[0] = opcode.to_u8();
        Packet { to: TO, bytes }
    }

    fn fates(traffic: &mut Traffic, opcode: Opcode, count: usize) -> String {
        let mut bytes = [0; 1000];
        let mut one = |_| match traffic.judge(Instant::ZERO, &packet(opcode, &mut bytes)) {
            PacketFate::Pass => '.',
            PacketFate::Drop => 'x',
            PacketFate::Delay(_) => '>',
        };
        (0..count).map(&mut one).collect()
    }

    #[test]
    fn patterns_choose_packets() {
        let check = |pattern: &str, opcode, expected: &str| {
            let mut traffic = traffic(&format!("[[path]]\npattern = \"{pattern}\"\nloss = \"100%\""));
            assert_eq!(fates(&mut traffic, opcode, 2), expected, "{pattern} {opcode}");
        };
        check("acknowledgement", Opcode::RcAck, "xx");
        check("acknowledgement", Opcode::IrnNack, "xx");
        check("acknowledgement", Opcode::RcWriteLast, "..");
        check("last", Opcode::RcWriteLast, "xx");
        check("last", Opcode::RcSendOnly, "xx");
        check("last", Opcode::RcWriteMiddle, "..");
        check("last", Opcode::RcAck, "..");
        check("last", Opcode::IrnWrite, "..");
        check("response", Opcode::RcReadResponseMiddle, "xx");
        check("request", Opcode::RcReadResponseMiddle, "..");
        check("request", Opcode::RcRead, "xx");
    }

    #[test]
    fn the_nth_packet_is_lost_and_acknowledgements_do_not_count() {
        let mut traffic = traffic("[[path]]\nloss = \"100%\"\nnth = 3\ntimes = 1");
        assert_eq!(fates(&mut traffic, Opcode::RcSendOnly, 2), "..");
        assert_eq!(fates(&mut traffic, Opcode::RcAck, 2), "..");
        assert_eq!(fates(&mut traffic, Opcode::RcSendOnly, 3), "x..");
    }

    #[test]
    fn bursts_are_longer_than_single_losses() {
        let mut traffic = traffic("seed = 5\n[[path]]\nburst = \"1%\"\nrecovery = \"20%\"");
        let fates = fates(&mut traffic, Opcode::RcSendOnly, 100_000);
        let lost = fates.matches('x').count();
        let bursts = fates.split('.').filter(|burst| !burst.is_empty()).count();
        // Bad for 1 in 21 packets, and five long.
        assert!((3_500..6_000).contains(&lost), "{lost}");
        assert!((4..=6).contains(&(lost / bursts)), "{lost} in {bursts}");
    }

    #[test]
    fn only_the_direction_that_is_named_suffers() {
        let text = "[[device]]\n[[device]]\n[[path]]\nfrom = \"hw1\"\nloss = \"100%\"";
        let scenario = Scenario::read("f", text).expect("right");
        let of = |device| Traffic::new(&scenario, device, |index| Some([127, 0, 0, index as u8 + 1].into()));
        assert_eq!(fates(&mut of(0), Opcode::RcSendOnly, 1), ".");
        assert_eq!(fates(&mut of(1), Opcode::RcSendOnly, 1), "x");
    }

    #[test]
    fn a_slow_path_delays_and_its_queue_ends() {
        let mut traffic = traffic("[[path]]\nbandwidth = \"8Mbps\"");
        let fates = fates(&mut traffic, Opcode::RcSendOnly, 200);
        // A thousand bytes take a millisecond, and the queue holds a hundred of them.
        assert!(fates.starts_with(&">".repeat(100)) && fates.ends_with(&"x".repeat(90)), "{fates}");
    }

    #[test]
    fn silence_is_for_all() {
        let mut traffic = traffic("");
        traffic.silence(true);
        assert_eq!(fates(&mut traffic, Opcode::RcAck, 1), "x");
        traffic.silence(false);
        assert_eq!(fates(&mut traffic, Opcode::RcAck, 1), ".");
    }

    #[test]
    fn a_port_takes_only_its_own_queue_pairs_with_it() {
        let mut traffic = traffic("");
        traffic.place(0x11, 2, Some((TO, 0x22)));
        traffic.place(0x12, 2, None);
        traffic.silence_port(2, true);
        let bytes = |opcode: Opcode, destination: u8, sender: u8| {
            let mut bytes = [0; 64];
            (bytes[0], bytes[7], bytes[Bth::LEN + 7]) = (opcode.to_u8(), destination, sender);
            bytes
        };
        let mut leaves = |opcode, destination, sender| {
            let bytes = bytes(opcode, destination, sender);
            traffic.judge(Instant::ZERO, &Packet { to: TO, bytes: &bytes }) == PacketFate::Pass
        };
        assert!(!leaves(Opcode::RcSendOnly, 0x22, 0), "to the peer of its queue pair");
        assert!(leaves(Opcode::RcSendOnly, 0x23, 0), "to another");
        assert!(!leaves(Opcode::UdSendOnly, 0x23, 0x12), "a datagram of its queue pair");
        assert!(leaves(Opcode::UdSendOnly, 0x23, 0x13), "of another");
        assert!(traffic.is_partly_silent() && !traffic.is_silent());
        assert!(traffic.is_unheard(&bytes(Opcode::RcAck, 0x11, 0)));
        assert!(!traffic.is_unheard(&bytes(Opcode::RcAck, 0x13, 0)));
        traffic.forget(0x11);
        assert!(!traffic.is_unheard(&bytes(Opcode::RcAck, 0x11, 0)), "the number may be another's by now");
        assert!(!traffic.is_unheard(&[]));
        traffic.silence_port(2, false);
        assert!(!traffic.is_unheard(&bytes(Opcode::RcAck, 0x12, 0)));
    }

    #[test]
    fn no_bytes_are_too_strange() {
        let mut traffic = traffic("[[path]]\npattern = \"last\"\nloss = \"50%\"");
        for byte in 0..=255 {
            for len in 0..64 {
                let bytes = vec![byte; len];
                traffic.judge(Instant::ZERO, &Packet { to: TO, bytes: &bytes });
            }
        }
    }
}
