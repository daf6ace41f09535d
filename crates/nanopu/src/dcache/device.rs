//! Accesses to devices pass the cache by: one request is under way at a time, loads that hit go on beside it, and a load's
//! word comes back through a gap in the first stage.

use super::DataCache;
use crate::cache::LINE_WORDS;
use crate::core::{Ask, World};
use crate::port::Port;

/// A request to a device on its way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct DeviceRequest {
    /// The cycle in which the answer is there. The answer to a load waits for a cycle without an access in
    /// the first stage.
    pub(super) answer: u64,
    reads: bool,
}

impl DataCache {
    /// Whether the access at write-back goes to a device and begins now.
    pub(crate) fn asks_device(&self) -> bool {
        matches!(self.s2, Some((access, false)) if access.is_device) && self.device.is_none() && !self.yields
    }

    /// Whether a device's word is taken in this cycle: it will need the register file's port two stages on, so nothing that
    /// writes a register may leave the memory stage.
    #[inline]
    pub(crate) fn takes_word(&self, cycle: u64) -> bool {
        !self.is_quiet && self.is_word_due(cycle) && !self.word_waits()
    }

    /// Whether a device's word is written into the register file in this cycle.
    pub(crate) fn writes_word(&self) -> bool {
        self.has_word
    }

    /// Whether a device's word waits to enter, and so lets no other access in.
    pub(super) fn is_word_waiting(&self, cycle: u64) -> bool {
        self.is_word_due(cycle) && self.word_waits()
    }

    fn is_word_due(&self, cycle: u64) -> bool {
        self.device.is_some_and(|device| device.reads && device.answer <= cycle)
    }

    fn word_waits(&self) -> bool {
        self.s1.is_some() || self.port_taken
    }

    /// Takes a device's answer, or sends the second stage's access to the device. A pending store `drains`
    /// into the array in this cycle, the execute stage `wants_read`, and `code_line` is when a line of
    /// instructions is complete.
    pub(super) fn move_device<B: Port>(
        &mut self,
        drains: bool,
        wants_read: bool,
        code_line: Option<u64>,
        world: &mut World<'_, B>,
    ) {
        let cycle = world.cycle;
        let waits = self.is_word_waiting(cycle);
        self.has_word = self.is_word_due(cycle) && !waits;
        let asks = self.asks_device();
        // A word that waits has asked for the array's port; only a pending store comes before it.
        self.port_taken = drains || (wants_read && !waits);
        if let Some(device) = &mut self.device {
            let is_done = self.has_word || (!device.reads && device.answer <= cycle);
            // A line of instructions comes over the same bus without a pause.
            let next = cycle + 1;
            if device.answer == next
                && let Some(last) = code_line
                && next <= last
                && last < next + LINE_WORDS
            {
                device.answer = last + 1;
            }
            if is_done {
                self.device = None;
            }
        } else if asks && let Some((access, _)) = self.s2 {
            self.asked_last = true;
            let [cycles, _] = world.ask(Ask::DeviceCycles, [self.number(&access), 0, 0], [0; 2]);
            self.device = Some(DeviceRequest { answer: cycle + cycles, reads: access.reads });
        }
    }
}
