//! `highwire nanopu run --bare`: an ordinary program on the core alone, and a breakdown of its cycles.
//!
//! The core comes out of reset as Rocket does, by its boot ROM, so that a program at 0x8000_0000 takes
//! exactly the cycles that it takes on Rocket's RTL. Cycles count from the program's first instruction to its
//! last.

use std::process::ExitCode;

use anyhow::{Context, Result};
use highwire_nanopu::{Asker, Core, CoreConfig, Event, Port, boot};
use highwire_riscv::{AccessFault, Bus, Hart, Machine, MachineConfig, Platform, Program};
use serde::Serialize;

use super::options::Args;
use super::place::place;
use crate::console::{Console, Tone};
use crate::failure::usage;

/// The address to which the boot ROM jumps.
const BASE: u64 = 0x8000_0000;
/// A store to this word ends a program, as on the bench of the RTL.
const DONE: u64 = 0x1000_1000;
/// No instruction takes longer to commit, unless the program waits for an interrupt that does not come.
const PATIENCE_CYCLES: u64 = 100_000;
/// Cycles of one tick of `mtime`.
const CYCLES_PER_TICK: u64 = 100;
/// A handler that traps at once, this many times in a row, counts as none.
const TRAPS_MAX: u32 = 3;

#[derive(Debug, Serialize)]
struct Report {
    cycles: u64,
    instructions: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    cycles_per_instruction: Option<f64>,
    instruction_lines_fetched: u64,
    data_lines_fetched: u64,
    traps: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    console: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Memory, devices and boot ROM, and the counts of a run.
struct Bare {
    platform: Platform,
    is_done: bool,
    instruction_lines: u64,
    data_lines: u64,
}

pub(super) fn run(args: &Args, program: &Program) -> Result<ExitCode> {
    if let Some(flag) = args.beyond.first_set() {
        return Err(usage(format!("{flag} is for a core with its NIC, not for --bare")));
    }
    let machine = Machine::new(program, MachineConfig::default());
    let platform = machine.with_context(|| args.program.display().to_string())?.platform;
    let report = play(platform, program, args.cycles_max);
    print(args, &report)?;
    let is_good = report.problem.is_none() && report.exit_code.unwrap_or(0) == 0;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn play(platform: Platform, program: &Program, cycles_max: u64) -> Report {
    let mut bus = Bare { platform, is_done: false, instruction_lines: 0, data_lines: 0 };
    let entry = if program.entry == BASE { boot::RESET } else { program.entry };
    let mut core = Core::new(Hart::new(0, entry), &CoreConfig::default());
    let (mut first, mut last, mut instructions, mut traps, mut traps_in_row) = (None, 0, 0, 0, 0);
    let problem = loop {
        if bus.is_done || bus.platform.exit_code().is_some() {
            break None;
        }
        let from = first.unwrap_or(0);
        if core.cycle() - from >= cycles_max {
            break Some(format!(
                "not at its end after {cycles_max} cycles, at {}: --cycles-max lets it go on",
                place(program, core.hart.pc)
            ));
        }
        match core.run_to_event(&mut bus, PATIENCE_CYCLES.min(cycles_max)) {
            Event::Commit(commit) => {
                traps_in_row = 0;
                let is_program = !boot::is_rom(commit.retired.pc);
                if is_program && first.is_none() {
                    first = Some(commit.cycle);
                    (bus.instruction_lines, bus.data_lines) = (bus.instruction_lines.min(1), 0);
                }
                last = commit.cycle;
                instructions += u64::from(is_program);
            }
            Event::Trap { pc, trap, .. } => {
                traps += 1;
                traps_in_row += 1;
                if traps_in_row == TRAPS_MAX {
                    break Some(format!(
                        "no handler: trap after trap, at last at {}: {trap}",
                        place(program, pc)
                    ));
                }
            }
            Event::Bubble if core.cycle() - last >= PATIENCE_CYCLES => {
                break Some(format!("asleep at {}: no interrupt comes", place(program, core.hart.pc)));
            }
            Event::Bubble => {}
        }
        bus.platform.serve_program();
        bus.platform.advance_clock(core.cycle() / CYCLES_PER_TICK);
        bus.platform.raise_interrupts(&mut core.hart.csrs);
    };
    let cycles = first.map_or(0, |first| last - first);
    Report {
        cycles,
        instructions,
        cycles_per_instruction: (instructions > 1).then(|| cycles as f64 / (instructions - 1) as f64),
        instruction_lines_fetched: bus.instruction_lines,
        data_lines_fetched: bus.data_lines,
        traps,
        exit_code: bus.platform.exit_code(),
        console: String::from_utf8_lossy(bus.platform.console()).into_owned(),
        problem,
    }
}

fn print(args: &Args, report: &Report) -> Result<()> {
    let mut console = Console::new();
    if args.json {
        console.json(report)?;
        return console.finish();
    }
    let per_instruction = match report.cycles_per_instruction {
        Some(cycles) => format!(", {cycles:.3} cycles per instruction"),
        None => String::new(),
    };
    console
        .line(format!("{} cycles, {} instructions{per_instruction}", report.cycles, report.instructions))?;
    console.line(format!(
        "lines fetched: {} by the instruction cache, {} by the data cache",
        report.instruction_lines_fetched, report.data_lines_fetched
    ))?;
    if report.traps > 0 {
        console.line(format!("{} traps", report.traps))?;
    }
    if !report.console.is_empty() {
        console.line(&report.console)?;
    }
    if let Some(code) = report.exit_code {
        console.line(format!("the program exited with {code}"))?;
    }
    if let Some(problem) = &report.problem {
        console.line(console.paint(Tone::Bad, problem))?;
    }
    console.finish()
}

impl Port for Bare {
    fn line_cycles(&mut self, asker: Asker, address: u64, memory_cycles: u64) -> u64 {
        match asker {
            Asker::Code => self.instruction_lines += 1,
            Asker::Data | Asker::Device => self.data_lines += 1,
        }
        boot::line_cycles(address).unwrap_or(memory_cycles)
    }
}

impl Bus for Bare {
    fn load(&mut self, address: u64, bytes: u8) -> Result<u64, AccessFault> {
        self.platform.load(address, bytes)
    }

    fn store(&mut self, address: u64, bytes: u8, value: u64) -> Result<(), AccessFault> {
        if address & !7 == DONE {
            self.is_done = true;
            return Ok(());
        }
        self.platform.store(address, bytes, value)
    }

    fn fetch(&mut self, address: u64) -> Result<u16, AccessFault> {
        boot::fetch(address).map_or_else(|| self.platform.fetch(address), Ok)
    }

    fn code_changes(&self) -> Option<u64> {
        self.platform.code_changes()
    }

    fn read_csr(&mut self, csr: u16) -> Option<u64> {
        self.platform.read_csr(csr)
    }

    fn write_csr(&mut self, number: u16, _value: u64) -> bool {
        boot::has_csr(number)
    }

    fn wants_attention(&self) -> bool {
        self.platform.wants_attention()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The median filter of the core's own tests, whose cycles Rocket's RTL has given.
    #[test]
    fn a_program_takes_the_cycles_that_it_takes_on_rocket() {
        let golden = include_str!("../../../nanopu/tests/rocket/golden.txt");
        let (head, memory) = golden
            .split("\n\n")
            .find_map(|program| program.strip_prefix("median ")?.split_once('\n'))
            .expect("the record has the median filter");
        let numbers: Vec<u64> = head.split(' ').take(2).map(|word| word.parse().unwrap()).collect();
        let hex: String = memory.lines().collect();
        let bytes = (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap());
        let program = Program {
            entry: BASE,
            segments: vec![highwire_riscv::Segment {
                address: BASE,
                memory_bytes: hex.len() as u64 / 2,
                bytes: bytes.collect(),
            }],
            symbols: Vec::new(),
        };
        let platform = Machine::new(&program, MachineConfig::default()).unwrap().platform;
        let report = play(platform, &program, 1_000_000);
        assert_eq!(report.problem, None);
        assert_eq!((report.instructions, report.cycles), (numbers[0], numbers[1]));
        assert!(report.data_lines_fetched > 0 && report.instruction_lines_fetched > 0, "{report:?}");
    }
}
