//! The core-local interruptor: the clock, an alarm for each hart, and the first hart's software interrupt.

use crate::bus::AccessFault;

const BASE: u64 = 0x0200_0000;
const MSIP: u64 = BASE;
const MTIMECMP: u64 = BASE + 0x4000;
const MTIME: u64 = BASE + 0xbff8;
/// Harts with an alarm.
const HARTS: usize = 16;
const MTIMECMP_END: u64 = MTIMECMP + 8 * HARTS as u64;

/// The device.
#[derive(Clone, Debug)]
pub(super) struct Clint {
    ticks: u64,
    /// The ticks that the program, or a skipped wait, has added.
    offset: u64,
    alarms: [u64; HARTS],
    software: bool,
}

impl Default for Clint {
    fn default() -> Clint {
        Clint { ticks: 0, offset: 0, alarms: [u64::MAX; HARTS], software: false }
    }
}

impl Clint {
    /// The clock.
    pub(super) fn now(&self) -> u64 {
        self.ticks.wrapping_add(self.offset)
    }

    /// Sets the number of ticks that have passed.
    pub(super) fn advance(&mut self, ticks: u64) {
        self.ticks = ticks;
    }

    /// Moves the time to the alarm, before which nothing happens; false if the alarm would not wake the hart.
    pub(super) fn skip_to_alarm(&mut self, is_enabled: bool) -> bool {
        let alarm = self.alarms[0];
        let wakes = is_enabled && alarm != u64::MAX;
        if wakes && !self.is_timer_due(0) {
            self.offset = alarm.wrapping_sub(self.ticks);
        }
        wakes
    }

    pub(super) fn is_timer_due(&self, hart: usize) -> bool {
        self.alarms.get(hart).is_some_and(|&alarm| self.now() >= alarm)
    }

    /// The time at which the timer of `hart` is due; nothing if it was never set.
    pub(super) fn alarm(&self, hart: usize) -> Option<u64> {
        self.alarms.get(hart).copied().filter(|&alarm| alarm != u64::MAX)
    }

    pub(super) fn is_software_due(&self) -> bool {
        self.software
    }

    pub(super) fn load(&self, address: u64, bytes: u8) -> Result<u64, AccessFault> {
        let (base, value) = match address {
            MSIP..=0x0200_0003 => (MSIP, u64::from(self.software)),
            MTIMECMP..MTIMECMP_END => (address & !7, self.alarms[(address - MTIMECMP) as usize / 8]),
            MTIME..=0x0200_bfff => (MTIME, self.now()),
            _ => return Err(AccessFault),
        };
        Ok(value >> (8 * (address - base)) & (u64::MAX >> (64 - 8 * u32::from(bytes.clamp(1, 8)))))
    }

    pub(super) fn store(&mut self, address: u64, bytes: u8, value: u64) -> Result<(), AccessFault> {
        let merge = |old: u64, base: u64| {
            let shift = 8 * (address - base);
            let mask = (u64::MAX >> (64 - 8 * u32::from(bytes.clamp(1, 8)))) << shift;
            old & !mask | value << shift & mask
        };
        match address {
            MSIP => self.software = value & 1 != 0,
            MTIMECMP..MTIMECMP_END => {
                let hart = (address - MTIMECMP) as usize / 8;
                self.alarms[hart] = merge(self.alarms[hart], address & !7);
            }
            MTIME..=0x0200_bfff => self.offset = merge(self.now(), MTIME).wrapping_sub(self.ticks),
            _ => return Err(AccessFault),
        }
        Ok(())
    }
}
