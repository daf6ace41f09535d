//! Idle cores: a program that polls for messages repeats itself to the cycle, and what repeats itself need not be simulated.
//! A core whose read of x30 waits in decode repeats itself in every cycle.
//!
//! A turn is the time from one read of `MESSAGES_READY` that finds nothing to the next. While turns take the
//! same number of cycles, leave the registers as they were, and touch neither memory nor the network
//! otherwise, the program's state does not change. The pipeline remembers eight outcomes of branches and one
//! bit of history for each, which are the same after two dozen turns as after two million. Instructions and
//! lines that were on their way when the loop began have arrived by then.

use highwire_riscv::Hart;

/// After so many equal turns a core is idle.
const TURNS: u32 = 24;
/// After reset the history table is cleared an entry a cycle; no core is idle before.
const RESET_CYCLES: u64 = 1_000;
/// A core that waits is idle after so many cycles of rest: fetch has filled its queue and stopped long before.
const WAIT_CYCLES: u64 = 64;
/// The longest turn that is taken for one.
const TURN_CYCLES_MAX: u64 = 64;

/// One core's turns so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watch {
    last: u64,
    period: u64,
    turns: u32,
    pc: u64,
    x: [u64; 32],
    instructions: u64,
    instructions_per_turn: u64,
    /// The first and the last cycle in which it waited for a word, and since when nothing else was on its way.
    wait: Option<(u64, u64)>,
    rest_since: u64,
}

impl Watch {
    /// The core did anything but a look at `MESSAGES_READY`.
    #[inline]
    pub(crate) fn on_action(&mut self) {
        self.turns = 0;
        self.wait = None;
    }

    /// The core waits in `cycle` for a word; `rests` if nothing else is on its way in it.
    pub(crate) fn on_wait(&mut self, cycle: u64, rests: bool) {
        self.turns = 0;
        let since = self.wait.filter(|&(_, last)| last + 1 == cycle).map(|(since, _)| since);
        if since.is_none() || !rests || cycle <= RESET_CYCLES {
            self.rest_since = cycle;
        }
        self.wait = Some((since.unwrap_or(cycle), cycle));
    }

    /// Since when the core has waited, if it did in the cycle before `now`.
    pub(crate) fn waiting_since(&self, now: u64) -> Option<u64> {
        self.wait.filter(|&(_, last)| last + 1 == now).map(|(since, _)| since)
    }

    /// The core looked at `MESSAGES_READY` in `cycle` and found nothing.
    pub(crate) fn on_look(&mut self, cycle: u64, hart: &Hart) {
        let period = cycle.wrapping_sub(self.last);
        let instructions = hart.csrs.minstret.wrapping_sub(self.instructions);
        let repeats = self.turns > 0
            && cycle > RESET_CYCLES
            && period == self.period
            && instructions == self.instructions_per_turn
            && hart.pc == self.pc
            && hart.x == self.x;
        self.turns = if repeats { self.turns.saturating_add(1) } else { 1 };
        if !repeats {
            (self.period, self.instructions_per_turn) = (period, instructions);
            (self.pc, self.x) = (hart.pc, hart.x);
        }
        (self.last, self.instructions) = (cycle, hart.csrs.minstret);
    }

    /// The cycles of a turn of an idle core, and the instructions that it commits in them; `None` if the core
    /// is not idle.
    #[inline]
    pub(crate) fn turn(&self) -> Option<(u64, u64)> {
        if let Some((_, last)) = self.wait {
            return (last >= self.rest_since + WAIT_CYCLES).then_some((1, 0));
        }
        let is_idle = self.turns >= TURNS && self.period <= TURN_CYCLES_MAX;
        is_idle.then_some((self.period, self.instructions_per_turn))
    }

    /// So many cycles were skipped, in which so many instructions committed.
    pub(crate) fn pass(&mut self, cycles: u64, instructions: u64) {
        self.last += cycles;
        self.wait = self.wait.map(|(since, last)| (since, last + cycles));
        self.instructions = self.instructions.wrapping_add(instructions);
    }
}

/// The least common multiple of turns and of four cycles, the longest period of any unit; `None` if it is too
/// long to be of use.
pub(crate) fn common(turns: impl Iterator<Item = u64>) -> Option<u64> {
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let common = turns.fold(4, |common, turn| common / gcd(common, turn) * turn);
    (common <= 4 * TURN_CYCLES_MAX).then_some(common)
}
