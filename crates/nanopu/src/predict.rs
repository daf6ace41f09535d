//! Branch prediction: target buffer, history table, return stack; sizes and rules as on Rocket.
//!
//! The target buffer is asked one cycle after the address is known, so that a predicted jump costs nothing. The history table
//! has one bit per entry, hashed with the outcomes of the last eight branches.

mod tree;

use tree::Tree;

/// What an entry of the target buffer stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    Branch,
    Jump,
    Call,
    Return,
}

/// The answer to one lookup.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prediction {
    /// Whether the target buffer knows a jump or branch in this fetch packet.
    pub(crate) hit: bool,
    /// Whether it is expected to be taken.
    pub(crate) taken: bool,
    /// The half-word of the packet that the jump or branch ends in.
    pub(crate) half: u8,
    pub(crate) target: u64,
    /// The entry that answered. Like the hardware's encoder, zero if none did.
    pub(crate) entry: u8,
    /// More than one entry has answered.
    pub(crate) is_ambiguous: bool,
    /// The global history that the prediction used.
    pub(crate) history: u8,
    /// What the history table says, whether or not there is an entry.
    pub(crate) bias: bool,
}

/// A correction or a new entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Update {
    /// The entry to correct, or [`NEW`]. One that comes from a packet without a hit is the first, as on Rocket.
    pub(crate) entry: u8,
    /// The fetch packet that is to find it.
    pub(crate) packet: u64,
    pub(crate) half: u8,
    pub(crate) flow: Flow,
    pub(crate) is_valid: bool,
}

/// What became of an instruction that the predictor has seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolution {
    pub(crate) packet: u64,
    /// The history that its prediction used.
    pub(crate) history: u8,
    pub(crate) is_branch: bool,
    pub(crate) taken: bool,
    /// Fetch had gone elsewhere.
    pub(crate) is_wrong: bool,
}

const ENTRIES: usize = 28;
/// In place of an entry: the one that was not used for longest.
pub(crate) const NEW: u8 = ENTRIES as u8;
const HISTORIES: usize = 512;
const RETURNS: usize = 6;

#[derive(Clone, Copy, Debug)]
struct Entry {
    half: u8,
    flow: Flow,
    target: u64,
}

/// Sets of packets that have their candidates in common.
const CANDIDATES: usize = 128;

/// The packet of an entry that is not valid: no address is odd.
const NO_PACKET: u64 = 1;

/// All three structures.
#[derive(Clone, Debug)]
pub(crate) struct Predictor {
    /// The packets that the entries stand for.
    packets: [u64; ENTRIES],
    /// The entries that a packet may have, by bit, by a few bits of its address: most packets have none.
    candidates: [u32; CANDIDATES],
    entries: [Entry; ENTRIES],
    recency: Tree,
    biases: [bool; HISTORIES],
    history: u8,
    /// The newest address, and those below it.
    returns: [u64; RETURNS],
    returns_count: usize,
    /// An update takes effect a cycle later, when the target stands at the lookup port.
    pending: Option<Update>,
    /// A lookup counts as a use a cycle later.
    used: Option<u8>,
    /// After reset the history table is cleared entry by entry, and learns nothing until that is done.
    clearing_cycles: u32,
}

impl Predictor {
    pub(crate) fn new() -> Predictor {
        let empty = Entry { half: 0, flow: Flow::Branch, target: 0 };
        Predictor {
            packets: [NO_PACKET; ENTRIES],
            candidates: [0; CANDIDATES],
            entries: [empty; ENTRIES],
            recency: Tree::new(ENTRIES),
            biases: [false; HISTORIES],
            history: 0,
            returns: [0; RETURNS],
            returns_count: 0,
            pending: None,
            used: None,
            clearing_cycles: HISTORIES as u32,
        }
    }

    /// Looks up the fetch packet of `pc`.
    pub(crate) fn lookup(&self, pc: u64) -> Prediction {
        let bias = self.biases[bias_index(pc, self.history)];
        let mut prediction = Prediction { history: self.history, bias, taken: true, ..Prediction::default() };
        let mut matching = self.matching(pc);
        if matching == 0 {
            return prediction;
        }
        // Two entries for one packet, as two jumps in it can leave behind, speak at once, and are dropped afterwards.
        prediction.hit = true;
        prediction.is_ambiguous = matching.count_ones() > 1;
        let mut is_branch = false;
        let mut is_return = false;
        while matching != 0 {
            let index = matching.trailing_zeros();
            let entry = &self.entries[index as usize];
            prediction.half |= entry.half;
            prediction.target |= entry.target;
            prediction.entry |= index as u8;
            is_branch |= entry.flow == Flow::Branch;
            is_return |= entry.flow == Flow::Return;
            matching &= matching - 1;
        }
        prediction.taken = !is_branch || bias;
        if is_return && let Some(address) = self.return_address() {
            prediction.target = address;
        }
        prediction
    }

    /// The entries for the packet of `pc`, by bit.
    #[inline]
    fn matching(&self, pc: u64) -> u32 {
        let key = pc & !1;
        let mut candidates = self.candidates[candidate_set(key)];
        let mut found = 0;
        while candidates != 0 {
            let index = candidates.trailing_zeros();
            candidates &= candidates - 1;
            found |= u32::from(self.packets[index as usize] == key) << index;
        }
        found
    }

    /// Lets an entry stand for another packet, or for none.
    fn place(&mut self, index: usize, packet: u64) {
        let before = std::mem::replace(&mut self.packets[index], packet);
        self.candidates[candidate_set(before)] &= !(1 << index);
        if packet != NO_PACKET {
            self.candidates[candidate_set(packet)] |= 1 << index;
        }
    }

    /// The address on top of the return stack.
    #[inline]
    pub(crate) fn return_address(&self) -> Option<u64> {
        (self.returns_count > 0).then(|| self.returns[0])
    }

    /// Speculates that a branch goes as its bias says.
    pub(crate) fn advance_history(&mut self, taken: bool) {
        self.history = self.history >> 1 | u8::from(taken) << 7;
    }

    /// Learns what became of an instruction.
    pub(crate) fn resolve(&mut self, resolution: Resolution) {
        let Resolution { packet, history, is_branch, taken, is_wrong } = resolution;
        if is_branch && self.clearing_cycles == 0 {
            self.biases[bias_index(packet, history)] = taken;
        }
        if is_wrong {
            self.history = if is_branch { history >> 1 | u8::from(taken) << 7 } else { history };
        }
    }

    pub(crate) fn push_return(&mut self, address: u64) {
        self.returns.copy_within(..RETURNS - 1, 1);
        self.returns[0] = address;
        self.returns_count = (self.returns_count + 1).min(RETURNS);
    }

    pub(crate) fn pop_return(&mut self) {
        self.returns.copy_within(1.., 0);
        self.returns_count = self.returns_count.saturating_sub(1);
    }

    /// Forgets all targets.
    pub(crate) fn flush(&mut self) {
        (self.packets, self.candidates) = ([NO_PACKET; ENTRIES], [0; CANDIDATES]);
    }

    /// Forgets every target of the packet of `pc`.
    #[cold]
    fn forget(&mut self, pc: u64) {
        let mut matching = self.matching(pc);
        while matching != 0 {
            self.place(matching.trailing_zeros() as usize, NO_PACKET);
            matching &= matching - 1;
        }
    }

    /// The end of a cycle in which the lookup was for `pc` and answered `seen`; `update` arrives.
    pub(crate) fn tick(&mut self, pc: u64, seen: &Prediction, update: Option<Update>) {
        self.clearing_cycles = self.clearing_cycles.saturating_sub(1);
        if seen.is_ambiguous {
            self.forget(pc);
        }
        let mut touched = self.used.take();
        if let Some(update) = self.pending.take() {
            let known = usize::from(update.entry);
            let index = if known < ENTRIES { known } else { self.recency.oldest() };
            self.place(index, if update.is_valid { update.packet & !1 } else { NO_PACKET });
            self.entries[index] = Entry { half: update.half, flow: update.flow, target: pc & !1 };
            touched = Some(index as u8);
        }
        if let Some(index) = touched {
            self.recency.touch(index.into());
        }
        let counts = seen.hit && seen.taken && usize::from(seen.entry) < ENTRIES;
        self.used = counts.then_some(seen.entry);
        self.pending = update;
    }
}

fn candidate_set(packet: u64) -> usize {
    (packet >> 2) as usize % CANDIDATES
}

fn bias_index(pc: u64, history: u8) -> usize {
    let packet = pc >> 2;
    let address = packet ^ (packet >> 9 & 3);
    let mixed = u16::from(history).wrapping_mul(0xdd) >> 5 & 7;
    ((address & 0x1ff) ^ u64::from(mixed) << 6) as usize
}
