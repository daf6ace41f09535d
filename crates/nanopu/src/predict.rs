//! Branch prediction: target buffer, history table, return stack; sizes and rules as on Rocket.
//!
//! The target buffer is asked one cycle after the address is known, so that a predicted jump costs nothing. The history table
//! has one bit per entry, hashed with the outcomes of the last eight branches.

mod targets;
mod tree;

use targets::{ENTRIES, Targets};

pub(crate) use targets::change_set;

/// What an entry of the target buffer stands for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Flow {
    Branch,
    Jump,
    Call,
    Return,
}

/// The answer to one lookup.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Prediction {
    pub(crate) target: u64,
    pub(crate) bits: u32,
}

mod bit {
    pub(super) const HIT: u32 = 1 << 0;
    pub(super) const TAKEN: u32 = 1 << 1;
    pub(super) const HALF: u32 = 1 << 2;
    pub(super) const AMBIGUOUS: u32 = 1 << 3;
    pub(super) const BIAS: u32 = 1 << 4;
    pub(super) const ENTRY: u32 = 8;
}

impl Prediction {
    /// Whether the target buffer knows a jump or branch in this fetch packet.
    #[inline(always)]
    pub(crate) fn is_hit(&self) -> bool {
        self.bits & bit::HIT != 0
    }

    /// Whether the target buffer knows a jump or branch in this packet, and expects it to be taken.
    #[inline(always)]
    pub(crate) fn turns(&self) -> bool {
        self.bits & (bit::HIT | bit::TAKEN) == bit::HIT | bit::TAKEN
    }

    /// The half-word of the packet that the jump or branch ends in.
    #[inline(always)]
    pub(crate) fn half(&self) -> u8 {
        u8::from(self.bits & bit::HALF != 0)
    }

    /// The entry that answered. Like the hardware's encoder, zero if none did.
    #[inline(always)]
    pub(crate) fn entry(&self) -> u8 {
        (self.bits >> bit::ENTRY) as u8
    }

    /// More than one entry has answered.
    #[inline(always)]
    pub(crate) fn is_ambiguous(&self) -> bool {
        self.bits & bit::AMBIGUOUS != 0
    }

    /// What the history table says, whether or not there is an entry.
    #[inline(always)]
    pub(crate) fn bias(&self) -> bool {
        self.bits & bit::BIAS != 0
    }
}

/// A correction or a new entry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Update {
    /// The entry to correct, or [`NEW`]. An update from a packet without a hit corrects the first entry, as
    /// on Rocket.
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
    pub(crate) is_branch: bool,
    pub(crate) taken: bool,
    /// Fetch had followed another path.
    pub(crate) is_wrong: bool,
    /// The history table takes note.
    pub(crate) learns: bool,
}

impl Flow {
    const ALL: [Flow; 4] = [Flow::Branch, Flow::Jump, Flow::Call, Flow::Return];

    /// The flow of this number, the inverse of `self as u8`.
    pub(crate) fn of(number: u8) -> Flow {
        Flow::ALL[usize::from(number) % Flow::ALL.len()]
    }
}

/// Stands for no entry.
pub(crate) const UNUSED: u8 = u8::MAX;
/// Stands for the least recently used entry.
pub(crate) const NEW: u8 = ENTRIES as u8;
pub(crate) const HISTORIES: usize = 512;
const RETURNS: usize = 6;

/// All three structures.
#[derive(Clone, Debug)]
pub(crate) struct Predictor {
    targets: Targets,
    biases: [bool; HISTORIES],
    history: u8,
    /// The history's part of an index.
    mixed: u16,
    /// The newest address, and those below it.
    returns: [u64; RETURNS],
    returns_count: usize,
}

impl Predictor {
    pub(crate) fn new() -> Predictor {
        Predictor {
            targets: Targets::new(),
            biases: [false; HISTORIES],
            history: 0,
            mixed: mixed(0),
            returns: [0; RETURNS],
            returns_count: 0,
        }
    }

    /// The outcomes of the last branches, the newest first.
    #[inline(always)]
    pub(crate) fn history(&self) -> u8 {
        self.history
    }

    /// What the history table says of the fetch packet of `pc`.
    #[inline(always)]
    pub(crate) fn bias(&self, pc: u64) -> bool {
        self.bias_of(bias_packet(pc))
    }

    /// The same, for a packet as [`bias_packet`] gives it.
    #[inline(always)]
    pub(crate) fn bias_of(&self, packet: u16) -> bool {
        self.biases[usize::from(packet ^ self.mixed) % HISTORIES]
    }

    /// Whether an answer stays the same as long as the target buffer and the bias do: an answer from the return stack does not.
    #[inline(always)]
    pub(crate) fn is_lasting(&self, said: &Prediction) -> bool {
        !said.is_hit() || (!said.is_ambiguous() && !self.targets.is_return(said.entry()))
    }

    /// Looks up the fetch packet of `pc`.
    #[inline(always)]
    pub(crate) fn lookup(&self, pc: u64) -> Prediction {
        let bias = self.bias(pc);
        let bits = bit::TAKEN | if bias { bit::BIAS } else { 0 };
        self.targets.look_up(pc, bits, bias, self.return_address())
    }

    /// The address on top of the return stack.
    #[inline(always)]
    pub(crate) fn return_address(&self) -> Option<u64> {
        (self.returns_count > 0).then(|| self.returns[0])
    }

    /// Speculates that a branch goes as its bias says.
    pub(crate) fn advance_history(&mut self, taken: bool) {
        self.set_history(self.history >> 1 | u8::from(taken) << 7);
    }

    #[inline(always)]
    fn set_history(&mut self, history: u8) {
        (self.history, self.mixed) = (history, mixed(history));
    }

    /// Learns what became of an instruction.
    /// `history` is what its prediction used.
    #[inline(always)]
    pub(crate) fn resolve(&mut self, resolution: &Resolution, history: u8) {
        let Resolution { packet, is_branch, taken, is_wrong, learns } = *resolution;
        if is_branch && learns {
            self.biases[usize::from(bias_packet(packet) ^ mixed(history)) % HISTORIES] = taken;
        }
        if is_wrong {
            self.set_history(if is_branch { history >> 1 | u8::from(taken) << 7 } else { history });
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
        self.targets.flush();
    }

    /// Forgets every target of the packet of `pc`.
    #[cold]
    pub(crate) fn forget(&mut self, pc: u64) {
        self.targets.forget(pc);
    }

    /// Counts a use of `entry`, which may be [`UNUSED`].
    #[inline(always)]
    pub(crate) fn touch(&mut self, entry: u8) {
        self.targets.touch(entry);
    }

    /// Takes an update over; the target is at the lookup port. If the lookup there is ambiguous, the entries
    /// that answer it lose their valid bits.
    pub(crate) fn learn(&mut self, update: &Update, target: u64, is_ambiguous: bool) {
        self.targets.learn(update, target, is_ambiguous);
    }

    /// How often the target buffer's answers for a set of packets may have changed; see [`change_set`].
    #[inline(always)]
    pub(crate) fn changes(&self, set: u8) -> u64 {
        self.targets.changes(set)
    }
}

/// What a history contributes to an index.
#[inline(always)]
fn mixed(history: u8) -> u16 {
    (u16::from(history).wrapping_mul(0xdd) >> 5 & 7) << 6
}

/// What the fetch packet of `pc` contributes.
#[inline(always)]
pub(crate) fn bias_packet(pc: u64) -> u16 {
    let packet = pc >> 2;
    (packet ^ (packet >> 9 & 3)) as u16 % HISTORIES as u16
}
