//! Traps and privilege, one scenario each: the refused instruction, the state that the handler finds, and its
//! return.

mod support;

use highwire_riscv::csr::number::*;
use highwire_riscv::{Cause, Exception, Hart, Interrupt, Op, Privilege, Ram, RunEnd, Step, Trap};
use support::encode;

const BASE: u64 = 0x8000_0000;
const HANDLER: u64 = BASE + 0x100;

/// A hart in front of `words`, with floating point on and a handler at [`HANDLER`].
fn hart_with(words: &[u32]) -> (Hart, Ram) {
    let mut ram = Ram::new(BASE, 0x1000);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    ram.slice_mut(BASE, bytes.len()).unwrap().copy_from_slice(&bytes);
    let nop = encode(Op::Addi, 0, 0, 0, 0).to_le_bytes();
    ram.slice_mut(HANDLER, 4).unwrap().copy_from_slice(&nop);
    let mut hart = Hart::new(3, BASE);
    hart.csrs.write(MTVEC, HANDLER);
    hart.csrs.write(MSTATUS, hart.csrs.read(MSTATUS).unwrap() | 1 << 13 | 1 << 3);
    (hart, ram)
}

/// Asserts that the instruction traps, changes no register, and that the handler finds everything in its
/// place.
fn check_with(prepare: impl Fn(&mut Hart), word: u32, exception: Exception, value: u64) {
    let (mut hart, mut ram) = hart_with(&[word]);
    prepare(&mut hart);
    let (x, f, privilege) = (hart.x, hart.f, hart.privilege);
    let trap = Trap { cause: Cause::Exception(exception), value };
    assert_eq!(hart.step(&mut ram), Step::Trapped { pc: BASE, trap }, "{word:#010x}");
    assert_eq!(hart.pc, HANDLER);
    assert_eq!((hart.x, hart.f), (x, f), "{word:#010x} changed a register");
    assert_eq!(hart.csrs.read(MEPC), Some(BASE));
    assert_eq!(hart.csrs.read(MCAUSE), Some(exception as u64));
    assert_eq!(hart.csrs.read(MTVAL), Some(value));
    assert_eq!(hart.csrs.read(MINSTRET), Some(0), "an instruction that traps does not retire");
    let status = hart.csrs.read(MSTATUS).unwrap();
    assert_eq!(status >> 3 & 1, 0, "interrupts are off in the handler");
    assert_eq!(status >> 7 & 1, 1, "and were on before");
    assert_eq!(status >> 11 & 3, privilege as u64);
    assert_eq!(hart.privilege, Privilege::Machine);
}

fn check(word: u32, exception: Exception, value: u64) {
    check_with(|_| {}, word, exception, value);
}

#[test]
fn bits_that_are_no_instruction_are_illegal() {
    check(0, Exception::IllegalInstruction, 0);
    check(0xffff_ffff, Exception::IllegalInstruction, 0xffff_ffff);
    // The value holds only the half that was decoded: 0x8002 is c.jr to x0.
    check(0x1234_8002, Exception::IllegalInstruction, 0x8002);
    // fadd.s with rounding mode 5.
    check(0x0020_d053, Exception::IllegalInstruction, 0x0020_d053);
    // sret, sfence.vma: supervisor mode does not exist.
    check(0x1020_0073, Exception::IllegalInstruction, 0x1020_0073);
    check(0x1200_0073, Exception::IllegalInstruction, 0x1200_0073);
}

#[test]
fn calls_and_breakpoints_trap() {
    check(0x0000_0073, Exception::MachineEnvironmentCall, 0);
    check(0x0010_0073, Exception::Breakpoint, 0);
    check(0x9002, Exception::Breakpoint, 0);
    check_with(|hart| hart.privilege = Privilege::User, 0x0000_0073, Exception::UserEnvironmentCall, 0);
}

#[test]
fn reservations_on_a_device_are_access_faults() {
    const DEVICE: u64 = 0x200_4000;
    let prepare = |hart: &mut Hart| (hart.x[5], hart.x[7]) = (DEVICE, 1);
    for op in [Op::LrW, Op::LrD] {
        check_with(prepare, encode(op, 6, 5, 0, 0), Exception::LoadAccessFault, DEVICE);
    }
    for op in [Op::ScW, Op::ScD] {
        check_with(prepare, encode(op, 6, 5, 7, 0), Exception::StoreAccessFault, DEVICE);
    }
}

#[test]
fn misaligned_accesses_to_a_device_are_access_faults() {
    const DEVICE: u64 = 0x200_4000;
    let prepare = |hart: &mut Hart| (hart.x[5], hart.x[7]) = (DEVICE + 4, 1);
    check_with(prepare, encode(Op::Lhu, 6, 5, 0, 1), Exception::LoadAccessFault, DEVICE + 5);
    check_with(prepare, encode(Op::Fld, 6, 5, 0, 0), Exception::LoadAccessFault, DEVICE + 4);
    check_with(prepare, encode(Op::Sw, 0, 5, 7, 2), Exception::StoreAccessFault, DEVICE + 6);
    check_with(prepare, encode(Op::AmoaddD, 6, 5, 7, 0), Exception::StoreAccessFault, DEVICE + 4);
}

#[test]
fn misaligned_accesses_trap_with_their_address() {
    for (op, bytes) in
        [(Op::Lh, 2), (Op::Lhu, 2), (Op::Lw, 4), (Op::Lwu, 4), (Op::Ld, 8), (Op::Flw, 4), (Op::Fld, 8)]
    {
        for offset in 1..bytes {
            let address = BASE + 0x200 + offset as u64;
            let prepare = |hart: &mut Hart| hart.x[5] = BASE + 0x200;
            check_with(prepare, encode(op, 6, 5, 0, offset), Exception::LoadMisaligned, address);
        }
    }
    for (op, bytes) in [(Op::Sh, 2), (Op::Sw, 4), (Op::Sd, 8), (Op::Fsw, 4), (Op::Fsd, 8)] {
        for offset in 1..bytes {
            let address = BASE + 0x200 + offset as u64;
            let prepare = |hart: &mut Hart| hart.x[5] = BASE + 0x200;
            check_with(prepare, encode(op, 0, 5, 6, offset), Exception::StoreMisaligned, address);
        }
    }
    let prepare = |hart: &mut Hart| hart.x[5] = BASE + 0x204;
    check_with(prepare, encode(Op::LrD, 6, 5, 0, 0), Exception::LoadMisaligned, BASE + 0x204);
    check_with(prepare, encode(Op::ScD, 6, 5, 7, 0), Exception::StoreMisaligned, BASE + 0x204);
    check_with(prepare, encode(Op::AmoaddD, 6, 5, 7, 0), Exception::StoreMisaligned, BASE + 0x204);
}

#[test]
fn addresses_without_memory_fault() {
    let prepare = |hart: &mut Hart| hart.x[5] = 0x4000;
    for op in [Op::Lb, Op::Lw, Op::Ld, Op::Fld, Op::LrW] {
        check_with(prepare, encode(op, 6, 5, 0, 0), Exception::LoadAccessFault, 0x4000);
    }
    for op in [Op::Sb, Op::Sd, Op::Fsw] {
        check_with(prepare, encode(op, 0, 5, 6, 0), Exception::StoreAccessFault, 0x4000);
    }
    for op in [Op::AmoswapW, Op::ScW] {
        check_with(prepare, encode(op, 6, 5, 7, 0), Exception::StoreAccessFault, 0x4000);
    }
}

#[test]
fn a_jump_to_nowhere_faults_there() {
    let (mut hart, mut ram) = hart_with(&[encode(Op::Jalr, 1, 5, 0, 0)]);
    hart.x[5] = 0x4001;
    assert!(matches!(hart.step(&mut ram), Step::Retired(_)), "the jump itself retires");
    let trap = Trap { cause: Cause::Exception(Exception::InstructionAccessFault), value: 0x4000 };
    assert_eq!(hart.step(&mut ram), Step::Trapped { pc: 0x4000, trap });
    assert_eq!(hart.x[1], BASE + 4);
}

#[test]
fn an_instruction_that_crosses_the_end_of_memory_faults_at_its_second_half() {
    let mut ram = Ram::new(BASE, 6);
    ram.slice_mut(BASE + 4, 2).unwrap().copy_from_slice(&[0x13, 0x00]);
    let mut hart = Hart::new(0, BASE + 4);
    let trap = Trap { cause: Cause::Exception(Exception::InstructionAccessFault), value: BASE + 6 };
    assert_eq!(hart.step(&mut ram), Step::Trapped { pc: BASE + 4, trap });
}

#[test]
fn csr_accesses_are_checked() {
    let swap = |csr: u16| encode(Op::Csrrw, 1, 2, 0, csr.into());
    let read = |csr: u16| encode(Op::Csrrs, 1, 0, 0, csr.into());
    let user = |hart: &mut Hart| hart.privilege = Privilege::User;
    let float_off = |hart: &mut Hart| {
        hart.csrs.write(MSTATUS, hart.csrs.read(MSTATUS).unwrap() & !(3 << 13));
    };
    let refused = |prepare: &dyn Fn(&mut Hart), word: u32| {
        check_with(prepare, word, Exception::IllegalInstruction, word.into());
    };
    refused(&|_| {}, read(0x5c0));
    refused(&|_| {}, swap(MHARTID));
    refused(&|_| {}, swap(CYCLE));
    refused(&|_| {}, encode(Op::Csrrsi, 1, 1, 0, CYCLE.into()));
    refused(&|_| {}, read(TIME));
    refused(&user, read(MSCRATCH));
    refused(&user, read(CYCLE));
    refused(&user, 0x3020_0073);
    refused(&float_off, read(FCSR));
    refused(&float_off, encode(Op::FaddS, 1, 2, 3, 0));
    refused(&float_off, encode(Op::Fld, 1, 2, 0, 0));
    // A reserved dynamic rounding mode is only found when it is used.
    let reserved = |hart: &mut Hart| assert!(hart.csrs.write(FRM, 5));
    let mut dynamic = support::instruction(Op::FaddD, 1, 2, 3, 0);
    dynamic.mode = 7;
    refused(&reserved, dynamic.encode().unwrap());
}

#[test]
fn reads_without_writing_are_allowed_where_writes_are_not() {
    let (mut hart, mut ram) = hart_with(&[
        encode(Op::Csrrs, 1, 0, 0, MHARTID.into()),
        encode(Op::Csrrci, 2, 0, 0, INSTRET.into()),
        encode(Op::Csrrs, 3, 0, 0, MISA.into()),
    ]);
    (0..3).for_each(|_| assert!(matches!(hart.step(&mut ram), Step::Retired(_))));
    assert_eq!(hart.x[1], 3);
    assert_eq!(hart.x[2], 1, "one instruction retired before it");
    assert_eq!(hart.x[3], 0x8000_0000_0010_112d, "RV64ACDFIMU");
}

#[test]
fn counters_can_be_written_and_opened_to_user_mode() {
    let (mut hart, mut ram) = hart_with(&[
        encode(Op::Csrrwi, 0, 5, 0, MINSTRET.into()),
        encode(Op::Csrrs, 1, 0, 0, INSTRET.into()),
        encode(Op::Csrrs, 2, 0, 0, INSTRET.into()),
        encode(Op::Csrrs, 3, 0, 0, CYCLE.into()),
    ]);
    hart.csrs.write(MCOUNTEREN, 4);
    hart.step(&mut ram);
    hart.privilege = Privilege::User;
    (0..2).for_each(|_| assert!(matches!(hart.step(&mut ram), Step::Retired(_))));
    assert_eq!((hart.x[1], hart.x[2]), (5, 6));
    assert!(matches!(hart.step(&mut ram), Step::Trapped { .. }), "cycle stays closed");
}

#[test]
fn a_handler_returns_to_where_and_how_it_was() {
    let (mut hart, mut ram) = hart_with(&[0x0000_0073, encode(Op::Addi, 1, 0, 0, 7)]);
    let handler = [
        encode(Op::Csrrs, 5, 0, 0, MEPC.into()),
        encode(Op::Addi, 5, 5, 0, 4),
        encode(Op::Csrrw, 0, 5, 0, MEPC.into()),
        0x3020_0073,
    ];
    let bytes: Vec<u8> = handler.iter().flat_map(|word| word.to_le_bytes()).collect();
    ram.slice_mut(HANDLER, bytes.len()).unwrap().copy_from_slice(&bytes);
    hart.privilege = Privilege::User;
    assert_eq!(hart.run(&mut ram, 6), RunEnd::Budget);
    assert_eq!(hart.x[1], 7);
    assert_eq!(hart.privilege, Privilege::User);
    let status = hart.csrs.read(MSTATUS).unwrap();
    assert_eq!(status >> 3 & 1, 1, "interrupts are on again");
    assert_eq!(status >> 11 & 3, 0, "mret leaves the least mode behind");
}

#[test]
fn interrupts_wait_until_they_are_enabled() {
    let nops = [encode(Op::Addi, 1, 1, 0, 1); 8];
    let (mut hart, mut ram) = hart_with(&nops);
    hart.csrs.set_pending(Interrupt::TIMER, true);
    assert!(matches!(hart.step(&mut ram), Step::Retired(_)), "mie holds it back");
    hart.csrs.write(MIE, 0x888);
    hart.csrs.write(MSTATUS, 0);
    assert!(matches!(hart.step(&mut ram), Step::Retired(_)), "mstatus.MIE holds it back");
    hart.csrs.write(MSTATUS, 8);
    hart.csrs.set_pending(Interrupt::EXTERNAL, true);
    hart.csrs.set_pending(Interrupt::SOFTWARE, true);
    for expected in [Interrupt::EXTERNAL, Interrupt::SOFTWARE, Interrupt::TIMER] {
        let trap = Trap { cause: Cause::Interrupt(expected), value: 0 };
        assert_eq!(hart.step(&mut ram), Step::Trapped { pc: BASE + 8, trap });
        assert_eq!(hart.csrs.read(MCAUSE), Some(1 << 63 | u64::from(expected.0)));
        hart.csrs.set_pending(expected, false);
        hart.csrs.write(MSTATUS, 8);
        hart.pc = BASE + 8;
    }
    assert!(matches!(hart.step(&mut ram), Step::Retired(_)));
    assert_eq!(hart.x[1], 3);
}

#[test]
fn vectored_interrupts_have_entries_of_their_own() {
    let (mut hart, mut ram) = hart_with(&[encode(Op::Addi, 1, 1, 0, 1), 0x0000_0073]);
    hart.csrs.write(MTVEC, HANDLER | 1);
    hart.csrs.write(MIE, 1 << 16);
    hart.step(&mut ram);
    hart.step(&mut ram);
    assert_eq!(hart.pc, HANDLER, "exceptions go to the first");
    hart.pc = BASE;
    hart.csrs.write(MSTATUS, 8);
    hart.csrs.set_pending(Interrupt(16), true);
    hart.step(&mut ram);
    assert_eq!(hart.pc, HANDLER + 4 * 16);
}

#[test]
fn wfi_waits_for_anything_that_is_enabled() {
    let (mut hart, mut ram) = hart_with(&[0x1050_0073, encode(Op::Addi, 1, 0, 0, 1)]);
    hart.csrs.write(MSTATUS, 0);
    hart.csrs.write(MIE, 0x80);
    assert_eq!(hart.run(&mut ram, 10), RunEnd::Waiting);
    assert_eq!(hart.step(&mut ram), Step::Waiting);
    hart.csrs.set_pending(Interrupt::SOFTWARE, true);
    assert_eq!(hart.step(&mut ram), Step::Waiting, "that one is not enabled");
    hart.csrs.set_pending(Interrupt::TIMER, true);
    assert!(matches!(hart.step(&mut ram), Step::Retired(_)), "it goes on without a trap: mstatus.MIE is off");
    assert_eq!(hart.x[1], 1);
}

#[test]
fn a_trap_without_a_handler_ends_the_run() {
    let (mut hart, mut ram) = hart_with(&[encode(Op::Addi, 1, 0, 0, 1), 0]);
    hart.csrs.write(MTVEC, 0);
    let trap = Trap { cause: Cause::Exception(Exception::IllegalInstruction), value: 0 };
    assert_eq!(hart.run(&mut ram, 10), RunEnd::Unhandled { pc: BASE + 4, trap });
}

#[test]
fn reservations_fall_to_other_stores_traps_and_their_own_store() {
    let reserve = encode(Op::LrW, 1, 5, 0, 0);
    let conditional = encode(Op::ScW, 2, 5, 6, 0);
    let outcome = |between: &dyn Fn(&mut Hart)| {
        let (mut hart, mut ram) = hart_with(&[reserve, conditional, conditional]);
        hart.x[5] = BASE + 0x200;
        hart.step(&mut ram);
        between(&mut hart);
        hart.step(&mut ram);
        let first = hart.x[2];
        hart.step(&mut ram);
        assert_eq!(hart.x[2], 1, "a reservation serves once");
        first
    };
    assert_eq!(outcome(&|_| {}), 0);
    assert_eq!(outcome(&|hart| hart.on_foreign_store(BASE + 0x23f)), 1);
    assert_eq!(outcome(&|hart| hart.on_foreign_store(BASE + 0x240)), 0);
    assert_eq!(outcome(&|hart| hart.x[5] += 64), 1);
}

#[test]
fn changed_code_is_seen_after_fence_i() {
    let (mut hart, mut ram) = hart_with(&[
        encode(Op::Addi, 1, 1, 0, 1),
        encode(Op::Sw, 0, 5, 6, 0),
        encode(Op::FenceI, 0, 0, 0, 0),
        encode(Op::Jal, 0, 0, 0, -12),
    ]);
    hart.x[5] = BASE;
    hart.x[6] = encode(Op::Addi, 1, 1, 0, 100).into();
    (0..5).for_each(|_| assert!(matches!(hart.step(&mut ram), Step::Retired(_))));
    assert_eq!(hart.x[1], 101);
}

#[test]
fn status_fields_that_do_not_exist_stay_as_they_are() {
    let (mut hart, _) = hart_with(&[]);
    hart.csrs.write(MSTATUS, u64::MAX);
    assert_eq!(hart.csrs.read(MSTATUS), Some(0x8000_0002_0022_7888));
    hart.csrs.write(MSTATUS, 1 << 11);
    assert_eq!(hart.csrs.read(MSTATUS), Some(0x0000_0002_0000_1800), "supervisor mode is refused");
    hart.csrs.write(MEPC, 0x1235);
    assert_eq!(hart.csrs.read(MEPC), Some(0x1234));
    hart.csrs.write(MTVEC, 0x1003);
    assert_eq!(hart.csrs.read(MTVEC), Some(0x1001));
    hart.csrs.write(FCSR, u64::MAX);
    assert_eq!(hart.csrs.read(FCSR), Some(0xff));
}
