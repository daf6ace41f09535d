//! The fate of packets that one device sends.
//!
//! Acknowledgements and other packets to each address have random numbers of their own: how many acknowledgements there
//! are depends on timing, and must not move losses from one request to another.

use crate::rules::{End, PathRule, Pattern, Scenario};
use crate::trigger::Fires;
use highwire_stdx::{Duration, Instant, Rng};
use highwire_wire::{Bth, IrnEth, Opcode, Operation, Position};
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
        let mut traffic = Traffic { rules: Vec::new(), seed: scenario.seed, is_silent: false };
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

    /// Judges a packet.
    pub fn judge(&mut self, now: Instant, packet: &Packet<'_>) -> PacketFate {
        if self.is_silent {
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
