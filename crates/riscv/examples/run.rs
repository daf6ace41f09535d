//! Runs a bare-metal RISC-V program: `cargo run --release -p highwire-riscv --example run -- [--trace] PROGRAM.elf`.
//!
//! The program's console goes to standard output, the commit log (with `--trace`) and the summary to standard error.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a program for people: files and a clock"
)]

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use highwire_riscv::{Exit, Machine, MachineConfig, Program, Step};

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let traces =
        arguments.iter().position(|argument| argument == "--trace").map(|at| arguments.remove(at)).is_some();
    let [path] = arguments.as_slice() else {
        eprintln!("usage: run [--trace] PROGRAM.elf");
        return ExitCode::from(2);
    };
    let loaded = std::fs::read(path).map_err(|error| error.to_string()).and_then(|file| {
        let program = Program::parse(&file).map_err(|error| error.to_string())?;
        let machine = Machine::new(&program, MachineConfig::default()).map_err(|error| error.to_string())?;
        Ok((program, machine))
    });
    match loaded {
        Ok((program, machine)) => run(&program, machine, traces),
        Err(error) => {
            eprintln!("{path}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(program: &Program, mut machine: Machine, traces: bool) -> ExitCode {
    let begin = Instant::now();
    while traces && machine.exit_code().is_none() {
        match machine.step() {
            Step::Retired(retired) => {
                let name = program.symbol_at(retired.pc).map_or("", |symbol| &symbol.name);
                eprintln!("{retired}  <{name}>");
            }
            Step::Trapped { pc, trap } => {
                eprintln!("{:>10} {pc:016x} trap: {trap}", machine.hart.csrs.mcycle)
            }
            Step::Waiting => {}
        }
    }
    let outcome = machine.run(10_000_000_000);
    let seconds = begin.elapsed().as_secs_f64();
    // A closed pipe is not this program's error.
    let _ = std::io::stdout().write_all(machine.console());
    let rate = outcome.instructions as f64 / seconds / 1e6;
    eprintln!("{} instructions in {seconds:.2} s, {rate:.0} M/s", outcome.instructions);
    match outcome.exit {
        Exit::Code(0) => return ExitCode::SUCCESS,
        Exit::Code(code) => eprintln!("the program exited with code {code}"),
        Exit::Limit => eprintln!("still running at {:#x}", machine.hart.pc),
        Exit::Asleep => {
            eprintln!("asleep for ever at {:#x}: wfi, and no interrupt is enabled", machine.hart.pc)
        }
        Exit::Unhandled { pc, trap } => {
            let name = program.symbol_at(pc).map_or("?", |symbol| &symbol.name);
            eprintln!("trap at {pc:#x} in {name}: {trap}; there is no memory at its handler");
        }
    }
    ExitCode::FAILURE
}
