//! The packets that have arrived: the receiver's two bitmaps (IRN §5.3.3).
//!
//! Packets are placed as they come, but the message sequence number moves and completions are due only once everything
//! before them is there. So each early packet leaves two bits: together they say "arrived", "arrived, ends a message" or
//! "arrived, ends a message that completes a Receive WQE".
//!
//! Invariants: the bits of `next_expected` itself and of packets outside `next_expected..next_expected + capacity` are clear;
//! `early` counts the packets that have arrived beyond `next_expected`. While it is zero the bitmaps are not touched.

use super::config::{IrnConfig, LossRecovery};
use super::ring;
use highwire_wire::Psn;

/// The longest run of packets that one NACK reports; it fits a byte.
pub const SACK_RUN_MAX: u32 = 255;

/// What becomes due once everything up to a packet has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PacketClass {
    /// Nothing: the first or a middle packet of a message.
    Middle,
    /// The MSN moves: the last packet of a WRITE, or a READ or atomic request.
    Last,
    /// The MSN moves and a Receive WQE completes: the last packet of a SEND or of a WRITE with immediate.
    LastWithCompletion,
}

/// Where a packet lies relative to the one that is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// It is the expected one.
    Next,
    /// It is early, and new.
    Early,
    /// It is early, and has arrived before.
    EarlyAgain,
    /// Everything up to it has arrived before.
    Duplicate,
    /// It lies further ahead than a sender that respects its cap can send.
    BeyondWindow,
}

/// What an arrival changed, and so how to answer it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrival {
    /// Answer with an ACK. The window moved by `advanced` packets, this one and those that had been waiting behind it.
    InOrder {
        /// Packets that are now in order.
        advanced: u32,
        /// Messages that ended among them: by how much the MSN moved.
        messages: u32,
        /// Receive WQEs that completed among them, in order.
        completions: u32,
    },
    /// Answer with a NACK that carries `next_expected` and, as selective acknowledgement, this packet (IRN §3.1).
    OutOfOrder {
        /// Whether the payload is to be placed: false if it has been already, or if the scheme discards early packets.
        place: bool,
        /// How many packets in a row, ending with this one, have arrived: `1..=SACK_RUN_MAX`, or 0 if it is discarded.
        run_len: u32,
    },
    /// Answer with an ACK, place nothing: it has been executed (IBTA §9.7.5.1.3).
    Duplicate,
    /// Drop without an answer.
    BeyondWindow,
}

/// The arrivals of one PSN space.
#[derive(Clone, Debug)]
pub struct ReceiverWindow {
    next_expected: Psn,
    msn: u32,
    early: u32,
    keeps_early: bool,
    /// Word `i` of both bitmaps side by side: `[not last, or completes; last]`.
    words: Box<[[u64; 2]]>,
}

impl ReceiverWindow {
    /// A window that expects `initial` first. It tracks as many packets as `config.cap`, and never fewer than
    /// [`IrnConfig::WINDOW_PACKETS_MIN`], so that ends with different caps work together.
    ///
    /// # Panics
    /// If the cap exceeds [`IrnConfig::CAP_MAX`].
    pub fn new(initial: Psn, config: &IrnConfig) -> ReceiverWindow {
        assert!(config.cap <= IrnConfig::CAP_MAX, "a cap of {} packets", config.cap);
        let capacity = ring::capacity_for(config.cap.max(IrnConfig::WINDOW_PACKETS_MIN));
        ReceiverWindow {
            next_expected: initial,
            msn: 0,
            early: 0,
            keeps_early: config.recovery != LossRecovery::GoBackN,
            words: vec![[0; 2]; (capacity / 64) as usize].into_boxed_slice(),
        }
    }

    /// The cumulative acknowledgement: the first packet that has not arrived.
    #[inline]
    pub fn next_expected(&self) -> Psn {
        self.next_expected
    }

    /// Messages completed so far, modulo 2^24 (IBTA §9.7.5.1.4).
    #[inline]
    pub fn msn(&self) -> u32 {
        self.msn
    }

    /// How many packets have arrived ahead of `next_expected`.
    pub fn early(&self) -> u32 {
        self.early
    }

    /// How many packets from `next_expected` on the window can track.
    pub fn capacity(&self) -> u32 {
        self.words.len() as u32 * 64
    }

    /// Where `psn` lies, without recording it: for the checks that may still reject the packet.
    #[inline]
    pub fn locate(&self, psn: Psn) -> Location {
        match psn.distance_from(self.next_expected) {
            0 => Location::Next,
            ..0 => Location::Duplicate,
            ahead if ahead as u32 >= self.capacity() => Location::BeyondWindow,
            _ if self.early > 0 && self.has_arrived_early(psn) => Location::EarlyAgain,
            _ => Location::Early,
        }
    }

    /// Records a packet that passed every check. Early packets that are dropped for another reason, such as a missing
    /// Receive WQE, must not be recorded: they will come again.
    #[inline]
    pub fn on_arrival(&mut self, psn: Psn, class: PacketClass) -> Arrival {
        if psn == self.next_expected { self.on_expected(class) } else { self.on_other(psn, class) }
    }

    #[inline]
    fn on_expected(&mut self, class: PacketClass) -> Arrival {
        self.next_expected = self.next_expected.next();
        let mut messages = u32::from(class != PacketClass::Middle);
        let mut completions = u32::from(class == PacketClass::LastWithCompletion);
        let mut advanced = 1;
        if self.early > 0 {
            let drained = self.drain();
            advanced += drained.packets;
            messages += drained.messages;
            completions += drained.completions;
        }
        self.msn = (self.msn + messages) & 0x00FF_FFFF;
        Arrival::InOrder { advanced, messages, completions }
    }

    fn on_other(&mut self, psn: Psn, class: PacketClass) -> Arrival {
        match self.locate(psn) {
            Location::BeyondWindow => Arrival::BeyondWindow,
            Location::Duplicate | Location::Next => Arrival::Duplicate,
            Location::Early | Location::EarlyAgain if !self.keeps_early => {
                Arrival::OutOfOrder { place: false, run_len: 0 }
            }
            // A repetition keeps the class it first came with: that is the one whose payload was placed.
            Location::EarlyAgain => Arrival::OutOfOrder { place: false, run_len: self.run_ending_at(psn) },
            Location::Early => {
                self.record(psn, class);
                Arrival::OutOfOrder { place: true, run_len: self.run_ending_at(psn) }
            }
        }
    }

    fn record(&mut self, psn: Psn, class: PacketClass) {
        let (word, bit) = self.position(psn);
        let [first, second] = &mut self.words[word];
        *first |= u64::from(class != PacketClass::Last) << bit;
        *second |= u64::from(class != PacketClass::Middle) << bit;
        self.early += 1;
    }

    /// Takes the packets out that are in order now, a word at a time.
    fn drain(&mut self) -> Drained {
        let mut drained = Drained::default();
        loop {
            let (word, bit) = self.position(self.next_expected);
            let [first, second] = self.words[word];
            let run = ((first | second) >> bit).trailing_ones();
            if run > 0 {
                let mask = (u64::MAX >> (64 - run)) << bit;
                drained.packets += run;
                drained.messages += (second & mask).count_ones();
                drained.completions += (first & second & mask).count_ones();
                self.words[word] = [first & !mask, second & !mask];
                self.next_expected = self.next_expected.add(run);
            }
            if bit + run < 64 {
                self.early -= drained.packets;
                return drained;
            }
        }
    }

    fn run_ending_at(&self, psn: Psn) -> u32 {
        let mut run = 0;
        while run < SACK_RUN_MAX {
            let (word, bit) = self.position(psn.sub(run));
            let [first, second] = self.words[word];
            let ones = ((first | second) << (63 - bit)).leading_ones();
            run += ones;
            // The front's own bits are clear, so a run never reaches around the ring.
            if ones <= bit {
                break;
            }
        }
        run.min(SACK_RUN_MAX)
    }

    /// The class with which a packet arrived early, if it did.
    pub(super) fn class_of_early(&self, psn: Psn) -> Option<PacketClass> {
        if self.locate(psn) != Location::EarlyAgain {
            return None;
        }
        let (word, bit) = self.position(psn);
        Some(match self.words[word].map(|bits| bits >> bit & 1 == 1) {
            [_, false] => PacketClass::Middle,
            [false, true] => PacketClass::Last,
            [true, true] => PacketClass::LastWithCompletion,
        })
    }

    fn has_arrived_early(&self, psn: Psn) -> bool {
        let (word, bit) = self.position(psn);
        let [first, second] = self.words[word];
        (first | second) >> bit & 1 == 1
    }

    fn position(&self, psn: Psn) -> (usize, u32) {
        let index = psn.value() & (self.capacity() - 1);
        ((index / 64) as usize, index % 64)
    }
}

#[derive(Default)]
struct Drained {
    packets: u32,
    messages: u32,
    completions: u32,
}
