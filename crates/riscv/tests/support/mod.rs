//! Helpers of the tests against other tools: a tiny assembler, ELF files made by hand, and a user-mode run.
#![allow(dead_code, reason = "each test uses its part")]

use std::process::Command;

use highwire_riscv::csr::number::MSTATUS;
use highwire_riscv::{Bus, Cause, Exception, Hart, Instruction, Op, Program, Ram, Step};

/// The address of generated programs.
pub(crate) const BASE: u64 = 0x1_0000;

/// An instruction from its operands; those that the operation does not have are ignored.
pub(crate) fn instruction(op: Op, rd: u8, rs1: u8, rs2: u8, immediate: i32) -> Instruction {
    Instruction { op, rd, rs1, rs2, rs3: 0, mode: 0, length: 4, immediate, bits: 0 }
}

/// The encoding of [`instruction`].
pub(crate) fn encode(op: Op, rd: u8, rs1: u8, rs2: u8, immediate: i32) -> u32 {
    instruction(op, rd, rs1, rs2, immediate).encode().unwrap_or_else(|| panic!("{} {immediate}", op.name()))
}

/// Code in the making.
#[derive(Default)]
pub(crate) struct Code {
    pub(crate) bytes: Vec<u8>,
}

impl Code {
    pub(crate) fn word(&mut self, word: u32) {
        self.bytes.extend(word.to_le_bytes());
    }

    pub(crate) fn half(&mut self, half: u16) {
        self.bytes.extend(half.to_le_bytes());
    }

    pub(crate) fn op(&mut self, op: Op, rd: u8, rs1: u8, rs2: u8, immediate: i32) {
        self.word(encode(op, rd, rs1, rs2, immediate));
    }

    /// Loads an address anywhere near the code.
    pub(crate) fn address(&mut self, rd: u8, address: u64) {
        let upper = (address as i32).wrapping_add(0x800) & !0xfff;
        self.op(Op::Lui, rd, 0, 0, upper);
        self.op(Op::Addi, rd, rd, 0, (address as i32).wrapping_sub(upper));
    }

    /// Linux system calls: write `length` bytes at `address` to the standard output, and exit.
    pub(crate) fn write_and_exit(&mut self, address: u64, length: u64) {
        self.op(Op::Addi, 10, 0, 0, 1);
        self.address(11, address);
        self.address(12, length);
        self.op(Op::Addi, 17, 0, 0, 64);
        self.op(Op::Ecall, 0, 0, 0, 0);
        self.op(Op::Addi, 10, 0, 0, 0);
        self.op(Op::Addi, 17, 0, 0, 93);
        self.op(Op::Ecall, 0, 0, 0, 0);
    }
}

/// An ELF file with one segment at [`BASE`], readable, writable and executable, that starts at its first byte.
pub(crate) fn elf(image: &[u8]) -> Vec<u8> {
    const OFFSET: usize = 0x1000;
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend([2u16, 243].iter().flat_map(|half| half.to_le_bytes()));
    file.extend(1u32.to_le_bytes());
    file.extend([BASE, 64, 0].iter().flat_map(|word| word.to_le_bytes()));
    // EF_RISCV_RVC, double-precision float ABI.
    file.extend(5u32.to_le_bytes());
    file.extend([64u16, 56, 1, 64, 0, 0].iter().flat_map(|half| half.to_le_bytes()));
    file.extend([1u32, 7].iter().flat_map(|word| word.to_le_bytes()));
    let size = image.len() as u64;
    file.extend([OFFSET as u64, BASE, BASE, size, size, 0x1000].iter().flat_map(|word| word.to_le_bytes()));
    file.resize(OFFSET, 0);
    file.extend(image);
    file
}

/// The output of the program on this crate's hart, with the system calls of [`Code::write_and_exit`].
pub(crate) fn run_here(elf: &[u8]) -> Vec<u8> {
    let program = Program::parse(elf).expect("it was made well");
    let segment = &program.segments[0];
    let mut ram = Ram::new(segment.address, segment.bytes.len());
    ram.slice_mut(segment.address, segment.bytes.len()).unwrap().copy_from_slice(&segment.bytes);
    let mut hart = Hart::new(0, program.entry);
    hart.csrs.write(MSTATUS, 1 << 13);
    let mut output = Vec::new();
    loop {
        match hart.step(&mut ram) {
            Step::Retired(_) => {}
            Step::Trapped { pc, trap } => {
                let is_call = trap.cause == Cause::Exception(Exception::MachineEnvironmentCall);
                assert!(is_call, "{trap} at {pc:#x}: {:#x?}", ram.load(pc, 4));
                match hart.x[17] {
                    64 => output.extend(ram.slice(hart.x[11], hart.x[12] as usize).unwrap()),
                    93 => return output,
                    other => panic!("system call {other}"),
                }
                hart.pc = pc + 4;
            }
            Step::Waiting => panic!("nothing here waits"),
        }
    }
}

/// The output of the same program under QEMU, or nothing, with the reason printed, if there is no QEMU.
pub(crate) fn run_under_qemu(elf: &[u8], name: &str) -> Option<Vec<u8>> {
    let path = scratch(name, elf);
    match Command::new("qemu-riscv64").arg(&path).output() {
        Ok(output) => {
            assert!(
                output.status.success(),
                "QEMU: {:?} {}",
                output.status,
                String::from_utf8_lossy(&output.stderr)
            );
            Some(output.stdout)
        }
        Err(error) => {
            println!("skipped: no qemu-riscv64, from Debian's qemu-user ({error})");
            None
        }
    }
}

/// Writes a file beside the build's other products.
pub(crate) fn scratch(name: &str, bytes: &[u8]) -> std::path::PathBuf {
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).expect("the build folder is writable");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("the file is ours");
    }
    path
}
