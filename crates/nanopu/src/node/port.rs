//! One core's port: memory, devices, and its end of the network.

use highwire_riscv::{AccessFault, Bus, Platform};

use crate::interface::{Interface, NOTHING_TO_DO};
use crate::port::{Port, csr};
use crate::shared_cache::{Asked, Asker, SharedCache};

/// The port of one core.
pub(super) struct CorePort<'a> {
    pub(super) platform: &'a mut Platform,
    pub(super) shared_cache: Option<&'a mut SharedCache>,
    pub(super) interface: &'a mut Interface,
    /// What the core has done through the port in this cycle, as bits of [`deed`].
    pub(super) deeds: u8,
    /// Where it has stored last.
    pub(super) stored_at: u64,
    /// Lines that the second-level cache asks back from the first level, in this cycle.
    pub(super) recalled: Vec<u64>,
}

/// A core's deeds in a cycle that other cores can notice, or that depend on them.
pub(super) mod deed {
    /// It looked for messages, and there were none.
    pub(in crate::node) const LOOKED: u8 = 1 << 0;
    /// It did nothing but wait for a word.
    pub(in crate::node) const WAITED: u8 = 1 << 1;
    /// It has stored: other cores lose their reservations there.
    pub(in crate::node) const STORED: u8 = 1 << 2;
    /// It has changed something of the network.
    pub(in crate::node) const SPOKE: u8 = 1 << 3;
    /// It did more than look or wait: it accessed memory, a device or the network.
    pub(in crate::node) const ACTED: u8 = 1 << 4;
    /// It has made the second-level cache ask lines back.
    pub(in crate::node) const RECALLED: u8 = 1 << 5;
}

impl CorePort<'_> {
    /// Whether `number` is a CSR of this core's network.
    fn has_csr(&self, number: u16) -> bool {
        csr::is_network(number) && (number != csr::THREAD_ENTRY || self.interface.has_banks())
    }
}

impl Bus for CorePort<'_> {
    #[inline(always)]
    fn load(&mut self, address: u64, bytes: u8) -> Result<u64, AccessFault> {
        self.deeds |= deed::ACTED;
        self.platform.load(address, bytes)
    }

    #[inline(always)]
    fn store(&mut self, address: u64, bytes: u8, value: u64) -> Result<(), AccessFault> {
        self.stored_at = address;
        self.deeds |= deed::STORED | deed::ACTED;
        self.platform.store(address, bytes, value)
    }

    #[inline(always)]
    fn fetch(&mut self, address: u64) -> Result<u16, AccessFault> {
        self.platform.fetch(address)
    }

    #[inline(always)]
    fn fetch_word(&mut self, address: u64) -> Result<u32, AccessFault> {
        self.platform.fetch_word(address)
    }

    #[inline(always)]
    fn code_changes(&self) -> Option<u64> {
        self.platform.code_changes()
    }

    fn read_csr(&mut self, number: u16) -> Option<u64> {
        // The value comes at write-back.
        if self.has_csr(number) { Some(0) } else { self.platform.read_csr(number) }
    }

    fn write_csr(&mut self, number: u16, _: u64) -> bool {
        self.has_csr(number)
    }
}

impl Port for CorePort<'_> {
    const IS_NETWORK: bool = true;

    fn line_cycles(&mut self, asker: Asker, address: u64, memory_cycles: u64) -> u64 {
        let Some(cache) = &mut self.shared_cache else { return memory_cycles };
        let Asked { cycles, recalled } = cache.ask(asker, address, memory_cycles);
        if let Some(line) = recalled {
            self.deeds |= deed::RECALLED;
            self.recalled.push(line);
        }
        cycles
    }

    fn by(&mut self, pc: u64) {
        self.interface.by(pc);
    }

    fn take_word(&mut self, cycle: u64) -> u64 {
        self.deeds |= deed::ACTED;
        self.interface.take_word(cycle)
    }

    fn lacks_word(&self) -> bool {
        self.interface.lacks_word()
    }

    fn wait_for_word(&mut self, cycle: u64) {
        self.deeds |= deed::WAITED;
        self.interface.wait_for_word(cycle);
    }

    fn put_word(&mut self, cycle: u64, word: u64) {
        self.deeds |= deed::SPOKE | deed::ACTED;
        self.interface.put_word(cycle, word);
    }

    fn promise_word(&mut self) {
        self.deeds |= deed::SPOKE | deed::ACTED;
        self.interface.promise_word();
    }

    fn put_late_word(&mut self, cycle: u64, word: u64) {
        self.deeds |= deed::SPOKE | deed::ACTED;
        self.interface.put_late_word(cycle, word);
    }

    fn read_network(&mut self, _: u64, number: u16) -> u64 {
        let value = self.interface.read(number);
        // A look at `MESSAGES_READY` alone is an idle look. Other CSRs do not change while nothing happens,
        // and values read from them show in the core's registers.
        if number == csr::MESSAGES_READY {
            self.deeds |= if value == 0 { deed::LOOKED } else { deed::ACTED };
        }
        value
    }

    fn write_network(&mut self, cycle: u64, number: u16, value: u64) {
        if (number, value) != (csr::THREAD_COMMAND, NOTHING_TO_DO) {
            self.deeds |= deed::SPOKE | deed::ACTED;
        }
        self.interface.write(cycle, number, value);
    }

    fn wants_switch(&self) -> bool {
        self.interface.wants_switch()
    }

    fn wanted_bank(&self) -> Option<(usize, Option<u64>)> {
        self.interface.wanted_bank()
    }

    fn enter_bank(&mut self, cycle: u64, bank: usize) {
        self.deeds |= deed::SPOKE | deed::ACTED;
        self.interface.enter_bank(cycle, bank);
    }
}
