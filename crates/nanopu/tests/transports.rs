//! Transports by themselves: NICs without cores on wires that lose packets.

use std::collections::BTreeMap;

use highwire_nanopu::nic::{Homa, HomaConfig, Ndp, Nic, NicConfig, Transport};
use highwire_nanopu::packet::{AppHeader, Packet, flag};
use highwire_nanopu::{Interface, csr};
use highwire_stdx::Rng;

const WIRE_CYCLES: u64 = 150;
const PAYLOAD: usize = 2048;

/// A NIC, and a program that reads every message.
struct End<T> {
    nic: Nic<T>,
    interfaces: [Interface; 1],
    /// Words of the message that is being read, without its header.
    left: u64,
    /// Messages read, by sender.
    read: BTreeMap<u32, u64>,
    /// When the wire towards it is free.
    wire_free: u64,
}

/// Ends that hear each other, each over a wire of its own.
struct Ends<T> {
    ends: Vec<End<T>>,
    /// Packets by when their first word is there.
    flying: BTreeMap<(u64, u64), Packet>,
    serial: u64,
    cycle: u64,
    rng: Rng,
    loss: f64,
    sent: Vec<Packet>,
}

fn address(end: usize) -> u32 {
    0x0a00_0001 + end as u32
}

impl<T: Transport> Ends<T> {
    fn new(count: usize, seed: u64, loss: f64, transport: impl Fn() -> T) -> Ends<T> {
        let ends = (0..count).map(|end| {
            let config = NicConfig { address: address(end), ..NicConfig::default() };
            let mut interface = Interface::default();
            interface.write(0, csr::NIC_COMMAND, 1);
            End {
                nic: Nic::new(&config, 1, transport()),
                interfaces: [interface],
                left: 0,
                read: BTreeMap::new(),
                wire_free: 0,
            }
        });
        let ends = ends.collect();
        let (flying, sent) = (BTreeMap::new(), Vec::new());
        Ends { ends, flying, serial: 0, cycle: 1, rng: Rng::new(seed), loss, sent }
    }

    /// `from` writes a whole message at once.
    fn send(&mut self, from: usize, to: usize, bytes: u16) {
        let header = AppHeader { peer: address(to), context: 0, bytes }.word();
        let words = (0..u64::from(bytes).div_ceil(8)).map(|word| word << 8 | from as u64);
        let interface = &mut self.ends[from].interfaces[0];
        std::iter::once(header).chain(words).for_each(|word| interface.put_word(self.cycle, word));
    }

    fn tick(&mut self) {
        let cycle = self.cycle;
        while let Some(entry) = self.flying.first_entry()
            && entry.key().0 <= cycle
        {
            let packet = entry.remove();
            let end = &mut self.ends[(packet.destination - address(0)) as usize];
            let first = end.wire_free.max(cycle);
            end.wire_free = first + packet.wire_words();
            end.nic.receive(end.wire_free - 1, packet);
        }
        for end in &mut self.ends {
            end.nic.accept(cycle, &mut end.interfaces);
            end.read(cycle);
            let Some((first, packet)) = end.nic.tick(cycle, &mut end.interfaces) else { continue };
            self.sent.push(packet.clone());
            if !self.rng.chance(self.loss) {
                self.serial += 1;
                self.flying.insert((first + WIRE_CYCLES, self.serial), packet);
            }
        }
        self.ends.iter_mut().for_each(|end| end.interfaces[0].tick(cycle));
        self.cycle += 1;
    }

    fn read(&self, end: usize) -> u64 {
        self.ends[end].read.values().sum()
    }
}

impl<T> End<T> {
    fn read(&mut self, cycle: u64) {
        let interface = &mut self.interfaces[0];
        if interface.peek_word().is_none() {
            return;
        }
        let word = interface.take_word(cycle);
        if self.left == 0 {
            let header = AppHeader::from_word(word);
            self.left = u64::from(header.bytes).div_ceil(8);
            *self.read.entry(header.peer).or_default() += 1;
        } else {
            self.left -= 1;
        }
        if self.left == 0 {
            interface.write(cycle, csr::THREAD_COMMAND, 1);
        }
    }
}

fn homa(rtt_packets: u16) -> Homa {
    Homa::new(HomaConfig { rtt_packets, cutoffs: vec![1024], ..HomaConfig::default() })
}

/// Every end sends to every other, and wires lose one packet in ten: every message arrives, once.
fn everything_arrives<T: Transport>(seed: u64, transport: impl Fn() -> T) {
    let mut ends = Ends::new(4, seed, 0.1, transport);
    let mut lengths = Rng::new(seed ^ 7);
    let mut expected = [0; 4];
    for _ in 0..12 {
        for from in 0..4 {
            let to = (from + 1 + lengths.below(3) as usize) % 4;
            ends.send(from, to, lengths.below(PAYLOAD as u64 + 1) as u16);
            expected[to] += 1;
        }
    }
    // A message of two packets and its acknowledgements fails now and then, ten times in a row hardly ever.
    while (0..4).any(|end| ends.read(end) < expected[end]) {
        ends.tick();
        assert!(
            ends.cycle < 600_000,
            "seed {seed}: {:?} of {expected:?}",
            [0, 1, 2, 3].map(|end| ends.read(end))
        );
    }
    (0..30_000).for_each(|_| ends.tick());
    assert_eq!([0, 1, 2, 3].map(|end| ends.read(end)), expected, "seed {seed}: once");
    let sent = ends.ends.iter().map(|end| end.nic.sent());
    assert!(sent.clone().all(|sent| sent.delivered == sent.messages), "seed {seed}");
    assert!(sent.map(|sent| sent.timeouts).sum::<u64>() >= 10);
}

#[test]
fn homa_survives_losses() {
    (0..4).for_each(|seed| everything_arrives(seed, || homa(1)));
    (4..6).for_each(|seed| everything_arrives(seed, || homa(2)));
}

#[test]
fn ndp_survives_losses() {
    (0..4).for_each(|seed| everything_arrives(seed, || Ndp { rtt_packets: 2 }));
}

/// The priorities of data packets: sender, packet and priority.
fn priorities(sent: &[Packet]) -> Vec<(u32, u8, u8)> {
    let data = sent.iter().filter(|packet| packet.flags & flag::DATA != 0);
    data.map(|packet| (packet.source - address(0), packet.packet_offset, packet.priority)).collect()
}

#[test]
fn homa_says_how_urgent_a_packet_is() {
    let mut ends = Ends::new(2, 1, 0.0, || homa(1));
    ends.send(1, 0, 2048);
    ends.send(1, 0, 8);
    (0..8_000).for_each(|_| ends.tick());
    // Three granted messages have 0 to 2, unasked data 3 and 4, control packets 5.
    assert_eq!(priorities(&ends.sent), [(1, 0, 3), (1, 0, 4), (1, 1, 2)]);
    let control = ends.sent.iter().filter(|packet| !packet.is_data());
    assert!(control.clone().all(|packet| packet.priority == 5), "{:?}", ends.sent);
    assert_eq!(control.filter(|packet| packet.flags & flag::PULL != 0).count(), 1);
    assert_eq!(ends.read(0), 2);
}

/// One control packet may be lost: the sender asks for it again.
#[test]
fn homa_finds_a_grant_that_was_lost() {
    for lost in 0..4 {
        let mut ends = Ends::new(2, 1, 0.0, || homa(1));
        ends.send(1, 0, 2048);
        let mut controls = 0;
        for _ in 0..20_000 {
            ends.tick();
            let new =
                ends.flying.iter().filter(|(_, packet)| !packet.is_data()).map(|(&key, _)| key).next_back();
            let count = ends.sent.iter().filter(|packet| !packet.is_data()).count();
            if count > controls {
                controls = count;
                if let Some(key) = new.filter(|_| count == lost + 1) {
                    ends.flying.remove(&key);
                }
            }
        }
        assert_eq!(ends.read(0), 1, "control packet {lost} lost");
        assert_eq!(ends.ends[1].nic.sent().delivered, 1, "control packet {lost} lost");
    }
}
