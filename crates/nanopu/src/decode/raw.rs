//! What decode waits for where the bits are no instruction, or only half of one.
//!
//! Rocket's decoder looks only at the bits that tell instructions apart, and checks separately whether they
//! are an instruction at all. So decode waits for what the bits seem to need before it lets them trap, and
//! half an instruction can stall itself.

use highwire_riscv::{Class, Instruction};

use super::flags::flag;
use super::{Flags, NO_NEEDS, Needs};

/// Some of the bits, and what they are.
type Pattern = (u32, u32);

const FLOAT: &[Pattern] = &[(0x5c, 0x04), (0x60, 0x40)];
const READS_X1: &[Pattern] =
    &[(0x44, 0), (0x4024, 0x20), (0x38, 0x20), (0x2050, 0x2000), (0x9000_0034, 0x9000_0010)];
const READS_X2: &[Pattern] = &[(0x64, 0x20), (0x34, 0x20), (0x2048, 0x2008), (0x4200_3024, 0x0200_0020)];
const WRITES_X: &[Pattern] = &[
    (0x64, 0),
    (0x50, 0x10),
    (0x2024, 0x24),
    (0x28, 0x28),
    (0x1030, 0x1030),
    (0x2030, 0x2030),
    (0x9000_0010, 0x8000_0010),
];
const SETS_FLAGS: &[Pattern] =
    &[(0x2000_0004, 0), (0x50, 0x40), (0x0800_2000, 0x0800_0000), (0xc000_0004, 0x8000_0000)];
const READS_F1: &[Pattern] = &[(0x8000_0004, 0), (0x1000_0004, 0), (0x50, 0x40)];
const READS_F2: &[Pattern] = &[(0x4000_0004, 0), (0x20, 0x20), (0x50, 0x40)];
const READS_F3: &[Pattern] = &[(0x50, 0x40)];
const WRITES_F: &[Pattern] = &[(0x8000_0020, 0), (0x30, 0), (0x1000_0020, 0x1000_0000)];
const LONG: &[Pattern] = &[(0x0200_0074, 0x0200_0030)];
const RELEASES: &[Pattern] = &[(0x0200_6048, 0x0200_2008)];
const ACQUIRES: &[Pattern] = &[(0x0400_6048, 0x0400_2008)];
const FENCE: &[Pattern] = &[(0x2058, 0x08)];
const FENCE_I: &[Pattern] = &[(0x3058, 0x1008)];
const JUMP: &[Pattern] = &[(0x68, 0x68)];
const CSR: &[Pattern] = &[(0x1070, 0x1070), (0x2070, 0x2070)];

/// Whether the data cache takes these four bytes for a load or an atomic operation. It looks at the five bits that tell one
/// access from another; other instructions have those bits too, with another meaning.
pub(super) fn reads_cache(bits: u32) -> bool {
    let is = |mask: u32, value: u32| bits & mask == value;
    let command = [
        is(0x68, 0x20) || is(0x1800_0020, 0x1800_0020) || is(0x2000_0020, 0x2000_0020),
        is(0x1000_0008, 0x1000_0008) || is(0x4000_0008, 0x4000_0008),
        is(0x40, 0x40)
            || is(0x0800_0008, 0x0800_0008)
            || is(0x1000_0008, 0x1000_0008)
            || is(0x8000_0008, 0x8000_0008),
        is(0x1800_0008, 0x8),
        is(0x40, 0x40),
    ];
    let command = command.iter().enumerate().fold(0, |all, (at, &is_set)| all | u32::from(is_set) << at);
    matches!(command, 0 | 4 | 6..=15 | 16)
}

/// Whether these four bytes, a fence, have no successors.
pub(super) fn follows_nothing(bits: u32) -> bool {
    bits & 0x00f0_0000 == 0
}

/// What these four bytes seem to need.
pub(super) fn needs(bits: u32) -> Needs {
    if bits & 3 != 3 {
        return NO_NEEDS;
    }
    let is = |patterns: &[Pattern]| patterns.iter().any(|&(mask, value)| bits & mask == value);
    let field = |at: u32| bits >> at & 31;
    let x = |patterns, at| if is(patterns) { 1u64 << field(at) & !1 } else { 0 };
    let f = |patterns, at| if is(FLOAT) && is(patterns) { 1u64 << 32 << field(at) } else { 0 };
    let writes = x(WRITES_X, 7) | f(WRITES_F, 7);
    let flags = [
        (flag::LONG, is(LONG)),
        (flag::RELEASES, is(RELEASES)),
        (flag::ACQUIRES, is(ACQUIRES)),
        (flag::FLUSHES, is(FENCE_I)),
        (flag::LINKS, field(7) & 1 != 0),
        (flag::PORT, is(WRITES_X)),
        (flag::SETS_FLAGS, is(FLOAT) && is(SETS_FLAGS)),
        (flag::READS_STALE, reads_cache(bits)),
        (flag::PAUSES, is(FENCE) && follows_nothing(bits)),
        (flag::FLOAT_CSR, is(CSR) && super::is_float_csr((bits >> 20) as u16)),
        (flag::LATE_IN_EXECUTE, is(LONG) || is(CSR) || is(FLOAT)),
    ];
    Needs {
        uses: writes
            | x(READS_X1, 15)
            | x(READS_X2, 20)
            | f(READS_F1, 15)
            | f(READS_F2, 20)
            | f(READS_F3, 27),
        writes,
        class: match (is(FENCE), is(JUMP)) {
            (true, _) => Class::Fence,
            (_, true) => Class::Jump,
            _ => Class::Alu,
        },
        flags: Flags(flags.iter().fold(0, |all, &(flag, is_set)| all | if is_set { flag } else { 0 })),
        ..NO_NEEDS
    }
}

/// Where these bits would jump to, if they were a jump.
pub(crate) fn jump_target(pc: u64, bits: u32) -> u64 {
    let jump = Instruction::decode(bits & !0x7f | 0x6f);
    jump.map_or(pc, |jump| pc.wrapping_add_signed(jump.immediate.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the bits are an instruction, the raw needs are those of the instruction.
    #[test]
    fn few_bits_tell_what_instructions_need() {
        let mut state = 1u32;
        let mut seen = 0;
        while seen < 100_000 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let bits = state.rotate_left(16) | 3;
            let Ok(instruction) = Instruction::decode(bits) else { continue };
            let (raw, known) = (needs(bits), Needs::of(&instruction));
            // Environment calls and fences wait for less in hardware.
            if matches!(instruction.class(), Class::System | Class::Fence) {
                continue;
            }
            seen += 1;
            assert_eq!(raw.writes, known.writes, "{instruction:?}");
            assert_eq!(raw.uses, known.uses, "{instruction:?}");
            assert_eq!(
                (raw.is_long(), raw.releases()),
                (known.is_long(), known.releases()),
                "{instruction:?}"
            );
        }
    }
}
