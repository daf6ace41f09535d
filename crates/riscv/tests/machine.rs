//! Whole programs on the machine: console, exit, timer; by hand, and from the C compiler.

mod support;

use std::process::Command;

use highwire_riscv::csr::number::{MIE, MSTATUS, MTVEC};
use highwire_riscv::{Exit, Machine, MachineConfig, Op, Program, Segment, Symbol};
use support::{Code, scratch};

const BASE: u64 = 0x8000_0000;
const TOHOST: u64 = BASE + 0x1000;
const FROMHOST: u64 = BASE + 0x1040;

fn machine(code: Code) -> Machine {
    let symbol = |name: &str, address| Symbol { name: name.to_owned(), address, size_bytes: 8 };
    let program = Program {
        entry: BASE,
        segments: vec![Segment { address: BASE, memory_bytes: 0x2000, bytes: code.bytes }],
        symbols: vec![symbol("_start", BASE), symbol("tohost", TOHOST), symbol("fromhost", FROMHOST)],
    };
    let config = MachineConfig { memory_bytes: 0x10_0000, ..MachineConfig::default() };
    Machine::new(&program, config).unwrap()
}

/// `sd` of a constant to `tohost`; t0 holds its address.
fn tell(code: &mut Code, device_and_command: i32, low: i32) {
    code.op(Op::Addi, 6, 0, 0, device_and_command);
    code.op(Op::Slli, 6, 6, 0, 48);
    code.op(Op::Addi, 6, 6, 0, low);
    code.op(Op::Sd, 0, 5, 6, 0);
}

fn start() -> Code {
    let mut code = Code::default();
    // lui sign-extends; the address does not.
    code.op(Op::Addi, 5, 0, 0, 1);
    code.op(Op::Slli, 5, 5, 0, 31);
    code.op(Op::Lui, 7, 0, 0, 0x1000);
    code.op(Op::Add, 5, 5, 7, 0);
    code
}

#[test]
fn a_program_prints_and_exits() {
    let mut code = start();
    for &byte in b"hi\n" {
        tell(&mut code, 0x101, byte.into());
    }
    tell(&mut code, 0, 42 << 1 | 1);
    code.op(Op::Jal, 0, 0, 0, 0);
    let mut machine = machine(code);
    let outcome = machine.run(1000);
    assert_eq!(outcome.exit, Exit::Code(42));
    assert_eq!(outcome.instructions, 4 + 4 * 4, "it stops at the store");
    assert_eq!(machine.console(), b"hi\n");
    assert_eq!(machine.run(1000), outcome, "an ended program stays ended");
}

#[test]
fn a_program_reads_what_is_typed() {
    let mut code = start();
    tell(&mut code, 0x100, 0);
    code.op(Op::Ld, 10, 5, 0, 0x40);
    tell(&mut code, 0, 1);
    let mut machine = machine(code);
    machine.type_in(b"x");
    assert_eq!(machine.run(1000).exit, Exit::Code(0));
    assert_eq!(machine.hart.x[10], 0x100 << 48 | u64::from(b'x'));
}

#[test]
fn requests_in_memory_are_answered() {
    let mut code = start();
    // write(1, _start, 4), at tohost + 0x80.
    for (index, register) in [(0, 64), (1, 1), (3, 4)] {
        code.op(Op::Addi, 6, 0, 0, register);
        code.op(Op::Sd, 0, 5, 6, 0x80 + index * 8);
    }
    code.op(Op::Sub, 6, 5, 7, 0);
    code.op(Op::Sd, 0, 5, 6, 0x80 + 16);
    code.op(Op::Addi, 6, 5, 0, 0x80);
    code.op(Op::Sd, 0, 5, 6, 0);
    code.op(Op::Ld, 10, 5, 0, 0x40);
    code.op(Op::Ld, 11, 5, 0, 0x80);
    code.op(Op::Ld, 12, 5, 0, 0);
    tell(&mut code, 0, 1);
    let first = code.bytes[..4].to_vec();
    let mut machine = machine(code);
    assert_eq!(machine.run(1000).exit, Exit::Code(0));
    assert_eq!(machine.console(), first);
    assert_eq!(machine.hart.x[10..13], [1, 4, 0], "answered, four bytes written, tohost is free again");
}

#[test]
fn the_timer_wakes_a_sleeping_hart() {
    let mut code = start();
    code.op(Op::Lui, 8, 0, 0, 0x0200_4000);
    code.op(Op::Addi, 6, 0, 0, 1000);
    code.op(Op::Sd, 0, 8, 6, 0);
    code.word(0x1050_0073);
    code.op(Op::Csrrs, 10, 0, 0, 0xc01);
    tell(&mut code, 0, 1);
    let mut asleep = machine(code);
    let mut awake = asleep.clone();
    assert_eq!(asleep.run(1_000_000).exit, Exit::Asleep, "without the timer interrupt nothing wakes it");
    awake.hart.csrs.write(MIE, 0x80);
    awake.hart.csrs.write(MSTATUS, 0);
    assert_eq!(awake.run(1_000_000).exit, Exit::Code(0));
    assert_eq!(awake.hart.x[10], 1000);
}

#[test]
fn the_timer_interrupts_a_running_hart() {
    let mut code = start();
    code.op(Op::Lui, 8, 0, 0, 0x0200_4000);
    code.op(Op::Addi, 6, 0, 0, 5);
    code.op(Op::Sd, 0, 8, 6, 0);
    code.op(Op::Addi, 10, 10, 0, 1);
    code.op(Op::Jal, 0, 0, 0, -4);
    let handler = code.bytes.len() as u64;
    tell(&mut code, 0, 1);
    let mut machine = machine(code);
    machine.hart.csrs.write(MTVEC, BASE + handler);
    machine.hart.csrs.write(MIE, 0x80);
    machine.hart.csrs.write(MSTATUS, 8);
    assert_eq!(machine.run(1_000_000).exit, Exit::Code(0));
    assert!(
        (200..260).contains(&machine.hart.x[10]),
        "five ticks of a hundred instructions: {}",
        machine.hart.x[10]
    );
}

#[test]
fn a_run_ends_at_its_limit_and_goes_on() {
    let mut code = start();
    code.op(Op::Addi, 10, 10, 0, 1);
    code.op(Op::Jal, 0, 0, 0, -4);
    let mut machine = machine(code);
    assert_eq!(machine.run(1004).exit, Exit::Limit);
    assert_eq!(machine.hart.x[10], 500);
    assert_eq!(machine.run(1000).instructions, 2004);
}

const START: &str = "
    .section .init, \"ax\"
    .globl _start
    _start: li t0, 0x2000; csrs mstatus, t0; la sp, stack; call main
    slli a0, a0, 1; ori a0, a0, 1; la t0, tohost; sd a0, 0(t0); 1: j 1b
    .section .host, \"aw\"
    .balign 64; .globl tohost; tohost: .dword 0
    .balign 64; .globl fromhost; fromhost: .dword 0
    .bss; .balign 16; .space 65536; stack:
";

const LAYOUT: &str = "
    ENTRY(_start)
    SECTIONS {
        . = 0x80000000;
        .text : { *(.init) *(.text*) *(.rodata*) }
        .tdata : { *(.tdata*) } .tbss : { *(.tbss*) }
        .data : { *(.data*) *(.sdata*) *(.host) }
        .bss : { *(.bss*) *(.sbss*) *(COMMON) }
    }
";

const PROGRAM: &str = r#"
    #include <stdio.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <string.h>
    #include <math.h>
    extern volatile uint64_t tohost, fromhost;
    static int put(char c, FILE *file) { (void)file; tohost = 1ull << 56 | 1ull << 48 | (uint8_t)c; return c; }
    static FILE console = FDEV_SETUP_STREAM(put, NULL, NULL, _FDEV_SETUP_WRITE);
    FILE *const stdout = &console;
    void _exit(int code) { tohost = (uint64_t)code << 1 | 1; for (;;); }
    static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
    int main(void) {
        int v[100];
        uint32_t x = 1;
        for (int i = 0; i < 100; i++) { x = x * 1664525u + 1013904223u; v[i] = x >> 20; }
        qsort(v, 100, sizeof *v, compare);
        for (int i = 1; i < 100; i++) if (v[i - 1] > v[i]) return 1;
        printf("%d %d %s %.6f %.3e\n", v[0], v[99], "sorted", sqrt(2.0), exp(1.0f) * 1e100);
        return 7;
    }
"#;

#[test]
fn a_c_program_runs_from_the_compiler() {
    let assembly = scratch("start.S", START.as_bytes());
    let source = scratch("program.c", PROGRAM.as_bytes());
    let output = source.with_extension("elf");
    let compiled = Command::new("riscv64-unknown-elf-gcc")
        .args(["--specs=picolibc.specs", "-nostartfiles", "-nostdlib", "-O2"])
        .args(["-march=rv64gc", "-mabi=lp64d", "-mcmodel=medany", "-Wl,--no-warn-rwx-segments", "-T"])
        .arg(scratch("program.ld", LAYOUT.as_bytes()))
        .args([&assembly, &source])
        .args(["-lc", "-lm", "-lc", "-lgcc", "-o"])
        .arg(&output)
        .output();
    let compiled = match compiled {
        Ok(compiled) => compiled,
        Err(error) => {
            println!("skipped: no riscv64-unknown-elf-gcc, from Debian's gcc-riscv64-unknown-elf ({error})");
            return;
        }
    };
    let complaint = String::from_utf8_lossy(&compiled.stderr);
    if complaint.contains("picolibc.specs") {
        println!("skipped: no picolibc, from Debian's picolibc-riscv64-unknown-elf");
        return;
    }
    assert!(compiled.status.success(), "{complaint}");
    #[expect(clippy::disallowed_methods, reason = "the test reads what the compiler wrote")]
    let file = std::fs::read(&output).unwrap();
    let program = Program::parse(&file).unwrap();
    let mut machine = Machine::new(&program, MachineConfig::default()).unwrap();
    let outcome = machine.run(10_000_000);
    assert_eq!(String::from_utf8_lossy(machine.console()), "45 4085 sorted 1.414214 2.718e+100\n");
    assert_eq!(outcome.exit, Exit::Code(7));
    let main = program.address_of("main").unwrap();
    assert_eq!(program.symbol_at(main + 4).unwrap().name, "main");
    assert_eq!(program.symbol_at(0), None);
}
