//! Registers and their names.

use std::fmt;

/// One of the two register files.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Bank {
    /// The integer registers x0 to x31.
    X,
    /// The floating-point registers f0 to f31.
    F,
}

/// A register of either file. Displays its ABI name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Register {
    /// The file.
    pub bank: Bank,
    /// The number, 0 to 31.
    pub number: u8,
}

const X_NAMES: [&str; 32] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6",
    "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
];

const F_NAMES: [&str; 32] = [
    "ft0", "ft1", "ft2", "ft3", "ft4", "ft5", "ft6", "ft7", "fs0", "fs1", "fa0", "fa1", "fa2", "fa3", "fa4",
    "fa5", "fa6", "fa7", "fs2", "fs3", "fs4", "fs5", "fs6", "fs7", "fs8", "fs9", "fs10", "fs11", "ft8",
    "ft9", "ft10", "ft11",
];

impl Register {
    /// Integer register `number`.
    pub const fn x(number: u8) -> Register {
        Register { bank: Bank::X, number: number & 31 }
    }

    /// Floating-point register `number`.
    pub const fn f(number: u8) -> Register {
        Register { bank: Bank::F, number: number & 31 }
    }

    /// The name of the calling convention: `a0`, `fs1`.
    pub fn name(self) -> &'static str {
        let names = match self.bank {
            Bank::X => &X_NAMES,
            Bank::F => &F_NAMES,
        };
        names[usize::from(self.number & 31)]
    }
}

impl fmt::Display for Register {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}
