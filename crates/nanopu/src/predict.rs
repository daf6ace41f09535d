//! Branch prediction: target buffer, history table, return stack; sizes and rules as on Rocket.
//!
//! The target buffer is asked one cycle after the address is known, so that a predicted jump costs nothing. The history table
//! has one bit per entry, hashed with the outcomes of the last eight branches.

mod targets;
mod tree;

use targets::{ENTRIES, Targets};

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

/// In place of an entry: the one that was not used for longest.
pub(crate) const NEW: u8 = ENTRIES as u8;
const HISTORIES: usize = 512;
const RETURNS: usize = 6;

/// All three structures.
#[derive(Clone, Debug)]
pub(crate) struct Predictor {
    targets: Targets,
    biases: [bool; HISTORIES],
    history: u8,
    /// The newest address, and those below it.
    returns: [u64; RETURNS],
    returns_count: usize,
    /// After reset the history table is cleared entry by entry, and learns nothing until that is done.
    clearing_cycles: u32,
}

impl Predictor {
    pub(crate) fn new() -> Predictor {
        Predictor {
            targets: Targets::new(),
            biases: [false; HISTORIES],
            history: 0,
            returns: [0; RETURNS],
            returns_count: 0,
            clearing_cycles: HISTORIES as u32,
        }
    }

    /// Looks up the fetch packet of `pc`.
    pub(crate) fn lookup(&self, pc: u64) -> Prediction {
        let bias = self.biases[bias_index(pc, self.history)];
        let mut prediction = Prediction { history: self.history, bias, taken: true, ..Prediction::default() };
        self.targets.look_up(pc, bias, self.return_address(), &mut prediction);
        prediction
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

    /// The end of a cycle in which the lookup was for `pc` and answered `seen`; `update` arrives, and all targets are
    /// forgotten if it `flushes`.
    pub(crate) fn tick(&mut self, pc: u64, seen: &Prediction, update: Option<Update>, flushes: bool) {
        self.clearing_cycles = self.clearing_cycles.saturating_sub(1);
        self.targets.tick(pc, seen, update, flushes);
    }
}

fn bias_index(pc: u64, history: u8) -> usize {
    let packet = pc >> 2;
    let address = packet ^ (packet >> 9 & 3);
    let mixed = u16::from(history).wrapping_mul(0xdd) >> 5 & 7;
    ((address & 0x1ff) ^ u64::from(mixed) << 6) as usize
}
