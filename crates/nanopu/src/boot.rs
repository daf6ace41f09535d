//! The code that Rocket executes between reset and a program: its boot ROM, and the jump that the bench puts
//! behind it.
//!
//! Three jumps, which stay in the target buffer and move its replacement on; three lines of instructions, for each of which the
//! instruction cache draws a way. A core that begins at the program itself skips both, and later replaces
//! other targets and other lines than Rocket.

/// Where a hart begins.
pub const RESET: u64 = 0x1_0040;

/// A CSR of Rocket's own, which the ROM writes.
const CHICKEN: u16 = 0x7c1;

/// The ROM and the bench's jump, by address; zeroes elsewhere in their lines.
const INSTRUCTIONS: [(u64, u32); 10] = [
    (0x1_0000, 0x7c10_5073),    // csrwi 0x7c1, 0
    (0x1_0004, 0x1000_0437),    // lui   s0, 0x10000
    (0x1_0008, 0xf140_2573),    // csrr  a0, mhartid
    (0x1_000c, 0x0000_0597),    // auipc a1, 0
    (0x1_0010, 0x0745_8593),    // addi  a1, a1, 116
    (0x1_0014, 0x0000_8402),    // c.jr  s0
    (0x1_0040, 0xfc1f_f06f),    // j     0x10000
    (0x1000_0000, 0x0010_0293), // li    t0, 1
    (0x1000_0004, 0x01f2_9293), // slli  t0, t0, 31
    (0x1000_0008, 0x0002_8067), // jr    t0
];

/// Whether ROM or jump lies at `address`.
pub fn is_rom(address: u64) -> bool {
    matches!(address, 0x1_0000..0x1_0080 | 0x1000_0000..0x1000_0040)
}

/// The two bytes of an instruction at `address`; nothing outside of ROM and jump.
pub fn fetch(address: u64) -> Option<u16> {
    let found = INSTRUCTIONS.iter().find(|(place, _)| *place == address & !3);
    is_rom(address).then(|| found.map_or(0, |(_, word)| (word >> (8 * (address & 2))) as u16))
}

/// Cycles to the first word of a line. The ROM answers at once. On Rocket, the frontend fetches from outside
/// memory only what is certain to be executed, and the ROM's lines come without the probes that memory's
/// lines need; the jump's line makes up for both, so that a program begins in the same cycle.
pub fn line_cycles(address: u64) -> Option<u64> {
    match address {
        0x1_0000..0x1_0080 => Some(0),
        0x1000_0000..0x1000_0040 => Some(JUMP_CYCLES),
        _ => None,
    }
}

const JUMP_CYCLES: u64 = 2;

/// Whether the ROM may write this CSR.
pub fn has_csr(number: u16) -> bool {
    number == CHICKEN
}
