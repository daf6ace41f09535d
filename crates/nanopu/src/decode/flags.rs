//! The kind of an instruction as bits, which the pipeline and its records share.

/// The kind of an instruction, as bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Flags(pub(crate) u32);

pub(super) mod flag {
    pub(in super::super) const FLOAT: u32 = 1 << 0;
    pub(in super::super) const LATE_IN_EXECUTE: u32 = 1 << 1;
    pub(in super::super) const LATE_IN_MEMORY: u32 = 1 << 2;
    pub(in super::super) const LONG: u32 = 1 << 3;
    pub(in super::super) const FLUSHES: u32 = 1 << 4;
    pub(in super::super) const SETS_FLAGS: u32 = 1 << 5;
    pub(in super::super) const FLOAT_CSR: u32 = 1 << 6;
    pub(in super::super) const READS_NETWORK: u32 = 1 << 7;
    pub(in super::super) const RELEASES: u32 = 1 << 8;
    pub(in super::super) const ACQUIRES: u32 = 1 << 9;
    pub(in super::super) const PLAIN: u32 = 1 << 10;
    pub(in super::super) const SIMPLE: u32 = 1 << 16;
    pub(in super::super) const NETWORK_CSR: u32 = 1 << 15;
    pub(in super::super) const TO_NEXT: u32 = 1 << 11;
    pub(in super::super) const LINKS: u32 = 1 << 12;
    pub(in super::super) const RETURNS: u32 = 1 << 13;
    pub(in super::super) const PORT: u32 = 1 << 14;
    pub(in super::super) const READS_COUNTER: u32 = 1 << 17;
    pub(in super::super) const ACCESS: u32 = 1 << 18;
    pub(in super::super) const CSR: u32 = 1 << 19;
    pub(in super::super) const SENDS: u32 = 1 << 20;
    pub(in super::super) const READS_STALE: u32 = 1 << 21;
    pub(in super::super) const PAUSES: u32 = 1 << 22;
    /// The flags of an instruction that is more than a computation.
    pub(in super::super) const BEYOND: u32 = ACCESS | CSR | READS_NETWORK;
}

/// The flags of bits that are no instruction.
pub(crate) const NO_FLAGS: Flags = Flags(0);

impl Flags {
    #[inline(always)]
    pub(super) fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    /// Whether it goes through the data cache.
    #[inline(always)]
    pub(crate) fn is_access(self) -> bool {
        self.has(flag::ACCESS)
    }

    /// Whether it reads or writes a CSR.
    #[inline(always)]
    pub(crate) fn is_csr(self) -> bool {
        self.has(flag::CSR)
    }

    /// Only the flag of an access, which is what remains when an instruction traps.
    pub(crate) fn access_alone(self) -> Flags {
        Flags(self.0 & flag::ACCESS)
    }

    /// Whether it goes to the multiplier and divider.
    #[inline(always)]
    pub(crate) fn is_long(self) -> bool {
        self.has(flag::LONG)
    }

    /// Whether it goes through the floating-point unit, loads and stores included.
    #[inline(always)]
    pub(crate) fn is_float(self) -> bool {
        self.has(flag::FLOAT)
    }

    /// Whether it computes from integer registers, loads or stores one, or reads or writes one of the network's CSRs, if there is
    /// a network.
    #[inline(always)]
    pub(crate) fn is_usual(self, has_network: bool) -> bool {
        self.has(flag::SIMPLE | if has_network { flag::NETWORK_CSR } else { 0 })
    }

    /// Whether a usual instruction touches neither memory nor network.
    #[inline(always)]
    pub(crate) fn only_computes(self) -> bool {
        !self.has(flag::BEYOND)
    }

    /// Whether it reads x30, the network's receive register.
    #[inline(always)]
    pub(crate) fn reads_network(self) -> bool {
        self.has(flag::READS_NETWORK)
    }

    /// Whether it writes x31, the network's send register.
    #[inline(always)]
    pub(crate) fn sends(self) -> bool {
        self.has(flag::SENDS)
    }

    /// Whether it is a branch to the next instruction.
    #[inline(always)]
    pub(crate) fn branches_to_next(self) -> bool {
        self.has(flag::TO_NEXT)
    }

    /// Whether it reads the cycle counter and does nothing else.
    #[inline(always)]
    pub(crate) fn reads_counter(self) -> bool {
        self.has(flag::READS_COUNTER)
    }
}
