//! A debugger's view of a core beside memory: the registers, and their description.
//!
//! Integer and floating-point registers and the pc can be set. x30 and x31 are the network's, and CSRs are
//! read-only: a program that writes one may change more than the value.

use std::sync::OnceLock;

use gdbstub::arch::{Arch, Registers as GdbRegisters};
use highwire_nanopu::{RX_REGISTER, TX_REGISTER, csr};
use highwire_riscv::csr::number;

/// The integer registers by their names in the calling convention.
const X: [&str; 32] = [
    "zero", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "fp", "s1", "a0", "a1", "a2", "a3", "a4", "a5", "a6",
    "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5", "t6",
];
const F: [&str; 32] = [
    "ft0", "ft1", "ft2", "ft3", "ft4", "ft5", "ft6", "ft7", "fs0", "fs1", "fa0", "fa1", "fa2", "fa3", "fa4",
    "fa5", "fa6", "fa7", "fs2", "fs3", "fs4", "fs5", "fs6", "fs7", "fs8", "fs9", "fs10", "fs11", "ft8",
    "ft9", "ft10", "ft11",
];
/// CSRs of the floating-point unit, of 32 bits.
pub(super) const FLOAT: [(&str, u16); 3] =
    [("fflags", number::FFLAGS), ("frm", number::FRM), ("fcsr", number::FCSR)];
/// CSRs of the core.
pub(super) const CORE: [(&str, u16); 10] = [
    ("mstatus", number::MSTATUS),
    ("mie", number::MIE),
    ("mtvec", number::MTVEC),
    ("mscratch", number::MSCRATCH),
    ("mepc", number::MEPC),
    ("mcause", number::MCAUSE),
    ("mtval", number::MTVAL),
    ("mip", number::MIP),
    ("mcycle", number::MCYCLE),
    ("minstret", number::MINSTRET),
];
/// CSRs of the network. A debugger's tables have room for 14 characters.
pub(super) const NETWORK: [(&str, u16); 8] = [
    ("messages_ready", csr::MESSAGES_READY),
    ("context", csr::CURRENT_CONTEXT),
    ("priority", csr::CURRENT_PRIORITY),
    ("nic_ready", csr::NIC_READY),
    ("next_context", csr::TARGET_CONTEXT),
    ("next_priority", csr::TARGET_PRIORITY),
    ("message_cycles", csr::MESSAGE_CYCLES),
    ("idle_cycles", csr::IDLE_CYCLES),
];

/// The architecture: RV64GC and the network.
#[derive(Debug)]
pub(super) enum Nanopu {}

impl Arch for Nanopu {
    type Usize = u64;
    type Registers = Registers;
    type BreakpointKind = usize;
    type RegId = ();

    fn target_description_xml() -> Option<&'static str> {
        static TEXT: OnceLock<String> = OnceLock::new();
        Some(TEXT.get_or_init(description))
    }
}

/// A core's registers, in the order of the description.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Registers {
    pub(super) x: [u64; 32],
    pub(super) pc: u64,
    pub(super) f: [u64; 32],
    pub(super) float: [u32; FLOAT.len()],
    pub(super) core: [u64; CORE.len()],
    pub(super) network: [u64; NETWORK.len()],
}

impl Registers {
    /// Whether the debugger may replace these by `other`.
    pub(super) fn may_become(&self, other: &Registers) -> bool {
        let is_fixed = [0, RX_REGISTER, TX_REGISTER].map(usize::from);
        is_fixed.iter().all(|&register| self.x[register] == other.x[register])
            && (self.float, self.core, self.network) == (other.float, other.core, other.network)
    }
}

impl GdbRegisters for Registers {
    type ProgramCounter = u64;

    fn pc(&self) -> u64 {
        self.pc
    }

    fn gdb_serialize(&self, write_byte: impl FnMut(Option<u8>)) {
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let float: Vec<u8> = self.float.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (before, after) = ([&self.x[..], &[self.pc], &self.f], [&self.core[..], &self.network]);
        let bytes = [words(&before.concat()), float, words(&after.concat())].concat();
        bytes.into_iter().map(Some).for_each(write_byte);
    }

    fn gdb_deserialize(&mut self, mut bytes: &[u8]) -> Result<(), ()> {
        for register in self.x.iter_mut().chain([&mut self.pc]).chain(&mut self.f) {
            *register = u64::from_le_bytes(take(&mut bytes)?);
        }
        for register in &mut self.float {
            *register = u32::from_le_bytes(take(&mut bytes)?);
        }
        for register in self.core.iter_mut().chain(&mut self.network) {
            *register = u64::from_le_bytes(take(&mut bytes)?);
        }
        if bytes.is_empty() { Ok(()) } else { Err(()) }
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], ()> {
    let (first, rest) = bytes.split_first_chunk().ok_or(())?;
    *bytes = rest;
    Ok(*first)
}

/// The description of the registers for the debugger, in the order in which they are sent.
fn description() -> String {
    let x = |name: &&'static str| {
        let kind = match *name {
            "ra" => "code_ptr",
            "sp" | "gp" | "tp" | "fp" => "data_ptr",
            _ => "int",
        };
        (*name, 64, kind)
    };
    let csr = |&(name, _): &(&'static str, u16)| (name, 64, "uint64");
    let float = F.iter().map(|&name| (name, 64, "riscv_double"));
    let float = float.chain(FLOAT.iter().map(|&(name, _)| (name, 32, "int")));
    let double = "<union id=\"riscv_double\"><field name=\"float\" type=\"ieee_single\"/>\
                  <field name=\"double\" type=\"ieee_double\"/></union>";
    [
        "<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"gdb-target.dtd\"><target version=\"1.0\">\
         <architecture>riscv:rv64</architecture>",
        &feature("org.gnu.gdb.riscv.cpu", "", "", X.iter().map(x).chain([("pc", 64, "code_ptr")])),
        &feature("org.gnu.gdb.riscv.fpu", double, "", float),
        &feature("org.gnu.gdb.riscv.csr", "", "", CORE.iter().map(csr)),
        &feature("org.highwire.nanopu", "", " group=\"network\"", NETWORK.iter().map(csr)),
        "</target>",
    ]
    .concat()
}

/// A part of the description: registers with their bits and types.
fn feature(
    name: &str,
    types: &str,
    group: &str,
    registers: impl Iterator<Item = (&'static str, u32, &'static str)>,
) -> String {
    let register =
        |(name, bits, kind)| format!("<reg name=\"{name}\" bitsize=\"{bits}\" type=\"{kind}\"{group}/>");
    let registers: String = registers.map(register).collect();
    format!("<feature name=\"{name}\">{types}{registers}</feature>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_come_back_as_they_were_sent_and_nothing_else_does() {
        let mut registers = Registers { pc: 7, ..Registers::default() };
        registers.x[31] = 1 << 63;
        registers.f[31] = 0x3ff0_0000_0000_0000;
        (registers.float[2], registers.core[9], registers.network[7]) = (3, 4, 5);
        let mut bytes = Vec::new();
        registers.gdb_serialize(|byte| bytes.extend(byte));
        assert_eq!(bytes.len(), 65 * 8 + 3 * 4 + 18 * 8);
        assert_eq!(
            bytes.len(),
            4 * description().matches("bitsize=\"32\"").count()
                + 8 * description().matches("bitsize=\"64\"").count()
        );
        let mut back = Registers::default();
        assert_eq!(back.gdb_deserialize(&bytes), Ok(()));
        assert_eq!(back, registers);
        assert_eq!(back.gdb_deserialize(&bytes[1..]), Err(()));
        bytes.push(0);
        assert_eq!(back.gdb_deserialize(&bytes), Err(()));
    }
}
