//! Control and status registers of the machine and user modes (RISC-V Priv §2, §3).
//!
//! Fields that this machine does not have read as zero and ignore writes. Counters beyond cycles and
//! instructions exist and stay zero. All other registers are left to [`crate::Bus::read_csr`], and are an
//! illegal instruction if the bus has none.

use crate::trap::{Interrupt, Trap};

/// Numbers of the registers that programs and tests name.
pub mod number {
    #![allow(missing_docs, reason = "the specification's own names")]
    pub const FFLAGS: u16 = 0x001;
    pub const FRM: u16 = 0x002;
    pub const FCSR: u16 = 0x003;
    pub const MSTATUS: u16 = 0x300;
    pub const MISA: u16 = 0x301;
    pub const MIE: u16 = 0x304;
    pub const MTVEC: u16 = 0x305;
    pub const MCOUNTEREN: u16 = 0x306;
    pub const MCOUNTINHIBIT: u16 = 0x320;
    pub const MSCRATCH: u16 = 0x340;
    pub const MEPC: u16 = 0x341;
    pub const MCAUSE: u16 = 0x342;
    pub const MTVAL: u16 = 0x343;
    pub const MIP: u16 = 0x344;
    pub const MCYCLE: u16 = 0xb00;
    pub const MINSTRET: u16 = 0xb02;
    pub const CYCLE: u16 = 0xc00;
    pub const TIME: u16 = 0xc01;
    pub const INSTRET: u16 = 0xc02;
    pub const MVENDORID: u16 = 0xf11;
    pub const MARCHID: u16 = 0xf12;
    pub const MIMPID: u16 = 0xf13;
    pub const MHARTID: u16 = 0xf14;
    pub const MCONFIGPTR: u16 = 0xf15;
}

use number::*;

/// The mode in which a hart runs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Privilege {
    /// User mode.
    User = 0,
    /// Machine mode.
    Machine = 3,
}

/// Fields of `mstatus`.
pub mod status {
    /// Interrupts are enabled in machine mode.
    pub const MIE: u64 = 1 << 3;
    /// The value of `MIE` before the trap.
    pub const MPIE: u64 = 1 << 7;
    /// The mode before the trap.
    pub const MPP: u64 = 3 << 11;
    /// State of the floating-point unit: off, initial, clean, dirty.
    pub const FS: u64 = 3 << 13;
    /// Loads and stores act in the mode of `MPP`; without effect here, as all modes see the same memory.
    pub const MPRV: u64 = 1 << 17;
    /// `wfi` traps in user mode.
    pub const TW: u64 = 1 << 21;
}

const STATUS_WRITABLE: u64 =
    status::MIE | status::MPIE | status::MPP | status::FS | status::MPRV | status::TW;
/// User mode runs with 64 bits.
const STATUS_FIXED: u64 = 2 << 32;
/// Software, timer, external, and the platform's own from 16 on.
const INTERRUPTS: u64 = 0xffff_0888;
/// RV64, extensions A, C, D, F, I, M, and user mode.
const MISA_VALUE: u64 = 2 << 62 | 1 << 0 | 1 << 2 | 1 << 3 | 1 << 5 | 1 << 8 | 1 << 12 | 1 << 20;

/// The registers.
#[derive(Clone, Debug)]
pub struct Csrs {
    /// Cycles since reset. A timing model sets it before each step; without one it counts instructions.
    pub mcycle: u64,
    /// Instructions retired since reset.
    pub minstret: u64,
    /// Accrued floating-point exceptions: inexact 1, underflow 2, overflow 4, division by zero 8, invalid 16.
    pub fflags: u8,
    /// The dynamic rounding mode, 0 to 7; 5 and above are reserved.
    pub frm: u8,
    /// Whether the current instruction wrote the counter, and so does not count.
    counter_written: bool,
    /// Whether instructions count as usual: the counter was neither written nor inhibited.
    counts_plainly: bool,
    pub(crate) mstatus: u64,
    pub(crate) mie: u64,
    pub(crate) mip: u64,
    mtvec: u64,
    mcounteren: u64,
    mcountinhibit: u64,
    mscratch: u64,
    mepc: u64,
    mcause: u64,
    mtval: u64,
    hart_id: u64,
}

/// The registers that belong to a thread: those that it computes with, and those that a trap saves and
/// changes. Interrupt enables, the trap vector and the counters are the machine's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadCsrs {
    fflags: u8,
    frm: u8,
    mstatus: u64,
    mscratch: u64,
    mepc: u64,
    mcause: u64,
    mtval: u64,
}

impl Csrs {
    /// The registers of the running thread.
    pub(crate) fn of_thread(&self) -> ThreadCsrs {
        let Csrs { fflags, frm, mstatus, mscratch, mepc, mcause, mtval, .. } = *self;
        ThreadCsrs { fflags, frm, mstatus, mscratch, mepc, mcause, mtval }
    }

    /// Installs the registers of another thread; `thread` gets those of the one that ran.
    pub(crate) fn exchange(&mut self, thread: &mut ThreadCsrs) {
        let before = self.of_thread();
        let ThreadCsrs { fflags, frm, mstatus, mscratch, mepc, mcause, mtval } = *thread;
        (self.fflags, self.frm, self.mstatus, self.mscratch) = (fflags, frm, mstatus, mscratch);
        (self.mepc, self.mcause, self.mtval) = (mepc, mcause, mtval);
        *thread = before;
    }

    /// The state after reset.
    pub(crate) fn new(hart_id: u64) -> Csrs {
        Csrs {
            mcycle: 0,
            minstret: 0,
            fflags: 0,
            frm: 0,
            counter_written: false,
            counts_plainly: true,
            mstatus: status::MPP,
            mie: 0,
            mip: 0,
            mtvec: 0,
            mcounteren: 0,
            mcountinhibit: 0,
            mscratch: 0,
            mepc: 0,
            mcause: 0,
            mtval: 0,
            hart_id,
        }
    }

    /// The value of register `number`, or nothing if a hart does not have it. Privilege is not checked here.
    pub fn read(&self, number: u16) -> Option<u64> {
        Some(match number {
            FFLAGS => self.fflags.into(),
            FRM => self.frm.into(),
            FCSR => u64::from(self.frm) << 5 | u64::from(self.fflags),
            MSTATUS => {
                let dirty = self.mstatus & status::FS == status::FS;
                self.mstatus | STATUS_FIXED | u64::from(dirty) << 63
            }
            MISA => MISA_VALUE,
            MIE => self.mie,
            MTVEC => self.mtvec,
            MCOUNTEREN => self.mcounteren,
            MCOUNTINHIBIT => self.mcountinhibit,
            MSCRATCH => self.mscratch,
            MEPC => self.mepc,
            MCAUSE => self.mcause,
            MTVAL => self.mtval,
            MIP => self.mip,
            MCYCLE | CYCLE => self.mcycle,
            MINSTRET | INSTRET => self.minstret,
            MHARTID => self.hart_id,
            MVENDORID | MARCHID | MIMPID | MCONFIGPTR => 0,
            // mhpmevent3..31, mhpmcounter3..31, hpmcounter3..31; tselect, tdata1..3, which say that there are no triggers.
            0x323..=0x33f | 0xb03..=0xb1f | 0xc03..=0xc1f | 0x7a0..=0x7a3 => 0,
            _ => return None,
        })
    }

    /// Writes register `number` as far as its fields are writable; false if a hart does not have it.
    pub fn write(&mut self, number: u16, value: u64) -> bool {
        match number {
            FFLAGS => self.fflags = value as u8 & 31,
            FRM => self.frm = value as u8 & 7,
            FCSR => {
                self.fflags = value as u8 & 31;
                self.frm = (value >> 5) as u8 & 7;
            }
            MSTATUS => self.write_status(value),
            MIE => self.mie = value & INTERRUPTS,
            MTVEC => self.mtvec = value & !2,
            // Only cycle, time and instret can be passed on to user mode; the others are zero anyhow.
            MCOUNTEREN => self.mcounteren = value & 0xffff_ffff,
            MCOUNTINHIBIT => self.mcountinhibit = value & 5,
            MSCRATCH => self.mscratch = value,
            MEPC => self.mepc = value & !1,
            MCAUSE => self.mcause = value,
            MTVAL => self.mtval = value,
            MCYCLE => self.mcycle = value,
            MINSTRET => self.minstret = value,
            MISA | MIP | 0x323..=0x33f | 0xb03..=0xb1f | 0x7a0..=0x7a3 => {}
            _ => return false,
        }
        self.counter_written |= matches!(number, MCYCLE | MINSTRET);
        self.counts_plainly = self.mcountinhibit == 0 && !self.counter_written;
        self.mstatus |= if matches!(number, FFLAGS | FRM | FCSR) { status::FS } else { 0 };
        true
    }

    /// Whether `privilege` may access register `number` at all.
    pub(crate) fn is_accessible(&self, number: u16, privilege: Privilege, writes: bool) -> bool {
        let level = number >> 8 & 3;
        let read_only = number >> 10 == 3;
        let float_off = matches!(number, FFLAGS | FRM | FCSR) && !self.is_float_on();
        let hidden = privilege == Privilege::User
            && (0xc00..=0xc1f).contains(&number)
            && self.mcounteren >> (number & 31) & 1 == 0;
        let forbidden = level > privilege as u16 || (writes && read_only);
        !forbidden && !float_off && !hidden
    }

    /// Raises or lowers the line of an interrupt.
    #[inline(always)]
    pub fn set_pending(&mut self, interrupt: Interrupt, pending: bool) {
        let bit = 1u64 << (interrupt.0 & 63) & INTERRUPTS;
        self.mip = if pending { self.mip | bit } else { self.mip & !bit };
    }

    /// Whether the line of an interrupt is raised.
    #[inline(always)]
    pub fn is_pending(&self, interrupt: Interrupt) -> bool {
        self.mip >> (interrupt.0 & 63) & 1 != 0
    }

    /// Whether an interrupt is enabled by its bit in `mie`; `mstatus` may still hold it back.
    pub fn is_enabled(&self, interrupt: Interrupt) -> bool {
        self.mie >> (interrupt.0 & 63) & 1 != 0
    }

    pub(crate) fn is_float_on(&self) -> bool {
        self.mstatus & status::FS != 0
    }

    /// Whether interrupts are taken in this mode.
    pub(crate) fn lets_interrupt(&self, privilege: Privilege) -> bool {
        privilege < Privilege::Machine || self.mstatus & status::MIE != 0
    }

    /// The interrupt to take now, if any.
    pub(crate) fn due_interrupt(&self, privilege: Privilege) -> Option<Interrupt> {
        let ready = if self.lets_interrupt(privilege) { self.mip & self.mie } else { 0 };
        // RISC-V Priv §3.1.9: external before software before timer; the platform's own come first here.
        let own = (16..32).rev();
        own.chain([11, 3, 7]).find(|&number| ready >> number & 1 != 0).map(Interrupt)
    }

    /// Enters a trap taken at `pc`, and returns the address of its handler.
    pub(crate) fn enter(&mut self, trap: Trap, pc: u64, privilege: Privilege) -> u64 {
        self.mepc = pc;
        self.mcause = trap.cause.code();
        self.mtval = trap.value;
        let enabled = self.mstatus & status::MIE != 0;
        self.mstatus &= !(status::MIE | status::MPIE | status::MPP);
        self.mstatus |= (privilege as u64) << 11 | if enabled { status::MPIE } else { 0 };
        let vectored = self.mtvec & 1 != 0 && self.mcause >> 63 != 0;
        (self.mtvec & !3).wrapping_add(if vectored { self.mcause << 2 } else { 0 })
    }

    /// Leaves a trap; returns where to go on, and in which mode.
    pub(crate) fn leave(&mut self) -> (u64, Privilege) {
        let machine = self.mstatus & status::MPP == status::MPP;
        let enabled = self.mstatus & status::MPIE != 0;
        self.mstatus &= !(status::MIE | status::MPP);
        self.mstatus |= status::MPIE | if enabled { status::MIE } else { 0 };
        if !machine {
            self.mstatus &= !status::MPRV;
        }
        (self.mepc, if machine { Privilege::Machine } else { Privilege::User })
    }

    /// Counts one retired instruction.
    #[inline(always)]
    pub(crate) fn count(&mut self) {
        if self.counts_plainly {
            self.mcycle = self.mcycle.wrapping_add(1);
            self.minstret = self.minstret.wrapping_add(1);
        } else {
            self.count_carefully();
        }
    }

    #[cold]
    fn count_carefully(&mut self) {
        // RISC-V Priv §3.1.10: a write takes effect after the writing instruction has counted.
        let written = std::mem::take(&mut self.counter_written);
        self.counts_plainly = self.mcountinhibit == 0;
        self.mcycle = self.mcycle.wrapping_add(u64::from(!written && self.mcountinhibit & 1 == 0));
        self.minstret = self.minstret.wrapping_add(u64::from(!written && self.mcountinhibit & 4 == 0));
    }

    fn write_status(&mut self, value: u64) {
        let mut next = value & STATUS_WRITABLE;
        // Supervisor mode does not exist: such a write leaves the field alone.
        if !matches!(next & status::MPP, 0 | status::MPP) {
            next = next & !status::MPP | self.mstatus & status::MPP;
        }
        self.mstatus = next;
    }
}

/// The specification's name of a register.
pub(crate) fn name(number: u16) -> Option<&'static str> {
    Some(match number {
        FFLAGS => "fflags",
        FRM => "frm",
        FCSR => "fcsr",
        MSTATUS => "mstatus",
        MISA => "misa",
        MIE => "mie",
        MTVEC => "mtvec",
        MCOUNTEREN => "mcounteren",
        MCOUNTINHIBIT => "mcountinhibit",
        MSCRATCH => "mscratch",
        MEPC => "mepc",
        MCAUSE => "mcause",
        MTVAL => "mtval",
        MIP => "mip",
        MCYCLE => "mcycle",
        MINSTRET => "minstret",
        CYCLE => "cycle",
        TIME => "time",
        INSTRET => "instret",
        MVENDORID => "mvendorid",
        MARCHID => "marchid",
        MIMPID => "mimpid",
        MHARTID => "mhartid",
        MCONFIGPTR => "mconfigptr",
        _ => return None,
    })
}
