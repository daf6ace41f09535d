//! Instructions as text: `addi a0, a0, -1`, as binutils prints them without aliases.

use std::fmt;

use crate::instruction::Instruction;
use crate::op::Op;
use crate::register::Register;
use crate::shape::Shape;

/// An instruction that knows its address, so that targets of branches and jumps are absolute.
///
/// Displays as `bne a0, a1, 0x80000010`; a bare [`Instruction`] displays the offset, `bne a0, a1, .+16`.
#[derive(Clone, Copy, Debug)]
pub struct Located {
    /// The instruction's address.
    pub pc: u64,
    /// The instruction.
    pub instruction: Instruction,
}

impl fmt::Display for Instruction {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(self, None, out)
    }
}

impl fmt::Display for Located {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(&self.instruction, Some(self.pc), out)
    }
}

fn write(instruction: &Instruction, pc: Option<u64>, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Instruction { op, immediate, .. } = *instruction;
    let operands = op.row().shape.operands();
    let register = |bank: Option<_>, number| bank.map_or("", |bank| Register { bank, number }.name());
    let rd = register(operands.rd, instruction.rd);
    let rs1 = register(operands.rs1, instruction.rs1);
    let rs2 = register(operands.rs2, instruction.rs2);
    let rs3 = register(operands.rs3, instruction.rs3);
    let name = op.name();
    let order = ["", ".rl", ".aq", ".aqrl"][usize::from(instruction.mode & 3)];
    match op.row().shape {
        Shape::Bare | Shape::FenceI => write!(out, "{name}"),
        Shape::Register | Shape::FloatPlain | Shape::Compare => write!(out, "{name} {rd}, {rs1}, {rs2}"),
        Shape::Immediate => write!(out, "{name} {rd}, {rs1}, {immediate}"),
        Shape::Shift => write!(out, "{name} {rd}, {rs1}, {immediate:#x}"),
        Shape::Load | Shape::JumpRegister | Shape::FloatLoad => {
            write!(out, "{name} {rd}, {immediate}({rs1})")
        }
        Shape::Store | Shape::FloatStore => write!(out, "{name} {rs2}, {immediate}({rs1})"),
        Shape::Branch => write!(out, "{name} {rs1}, {rs2}, {}", Target { pc, immediate }),
        Shape::Jump => write!(out, "{name} {rd}, {}", Target { pc, immediate }),
        Shape::Upper => write!(out, "{name} {rd}, {:#x}", (immediate as u32) >> 12),
        Shape::Fence if immediate == 0x833 => write!(out, "fence.tso"),
        Shape::Fence => write!(out, "{name} {}, {}", Set(immediate >> 4), Set(immediate)),
        Shape::Csr => write!(out, "{name} {rd}, {}, {rs1}", csr_name(immediate)),
        Shape::CsrImmediate => write!(out, "{name} {rd}, {}, {}", csr_name(immediate), instruction.rs1),
        Shape::LoadReserved => write!(out, "{name}{order} {rd}, ({rs1})"),
        Shape::Atomic => write!(out, "{name}{order} {rd}, {rs2}, ({rs1})"),
        Shape::FloatFused => write!(out, "{name} {rd}, {rs1}, {rs2}, {rs3}{}", Rounding::of(instruction)),
        Shape::FloatRounded => write!(out, "{name} {rd}, {rs1}, {rs2}{}", Rounding::of(instruction)),
        Shape::FloatUnary | Shape::ToIntegerRounded | Shape::FromIntegerRounded => {
            write!(out, "{name} {rd}, {rs1}{}", Rounding::of(instruction))
        }
        Shape::ToInteger | Shape::FromInteger => write!(out, "{name} {rd}, {rs1}"),
    }
}

struct Target {
    pc: Option<u64>,
    immediate: i32,
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pc {
            Some(pc) => write!(out, "{:#x}", pc.wrapping_add_signed(self.immediate.into())),
            None => write!(out, ".{:+}", self.immediate),
        }
    }
}

/// The accesses that a fence orders: input, output, reads, writes.
struct Set(i32);

impl fmt::Display for Set {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let members: String = "iorw"
            .chars()
            .enumerate()
            .filter(|(bit, _)| self.0 & (8 >> bit) != 0)
            .map(|(_, member)| member)
            .collect();
        out.write_str(if members.is_empty() { "unknown" } else { &members })
    }
}

/// The rounding mode, if it is neither the dynamic one nor without effect.
struct Rounding(Option<&'static str>);

impl Rounding {
    fn of(instruction: &Instruction) -> Rounding {
        // Conversions that are always exact have a rounding field too; assemblers leave it at zero.
        let exact = matches!(instruction.op, Op::FcvtDS | Op::FcvtDW | Op::FcvtDWu);
        Rounding(match instruction.mode {
            0 if exact => None,
            0 => Some("rne"),
            1 => Some("rtz"),
            2 => Some("rdn"),
            3 => Some("rup"),
            4 => Some("rmm"),
            _ => None,
        })
    }
}

impl fmt::Display for Rounding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |mode| write!(out, ", {mode}"))
    }
}

fn csr_name(number: i32) -> String {
    let number = number as u16;
    crate::csr::name(number).map_or_else(|| format!("{number:#x}"), str::to_owned)
}
