//! `highwire nanopu run --bare`: an ordinary program on the core alone, and a breakdown of its cycles.
//!
//! The core comes out of reset as Rocket does, by its boot ROM, so that a program at 0x8000_0000 takes
//! exactly the cycles that it takes on Rocket's RTL. Cycles count from the program's first instruction to its
//! last.

use std::process::ExitCode;

use anyhow::{Context, Result};
use highwire_nanopu::{Asker, Commit, Core, CoreConfig, Event, Port, boot};
use highwire_riscv::{
    AccessFault, AccessKind, Bus, Cause, Hart, Interrupt, LoadError, Machine, MachineConfig, MemoryAccess,
    Platform, Program, Ram, Trap,
};
use serde::Serialize;

use super::commits::CommitLog;
use super::options::Args;
use super::place::place;
use super::run::name_of;
use super::signature::Place;
use super::stalls;
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
    /// The same without the last instruction, the store that ends the run: as the record of Rocket's RTL counts.
    cycles_before_the_end: u64,
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stalls: Vec<stalls::Account>,
}

/// Memory, devices and boot ROM, and the counts of a run.
#[derive(Clone)]
struct Bare {
    platform: Platform,
    is_done: bool,
    /// The word by which the program speaks to its host.
    tohost: Option<u64>,
    /// Stores that may end the program.
    last_words: u64,
    instruction_lines: u64,
    data_lines: u64,
}

impl Bare {
    /// Whether a store to `address` may end the program.
    fn is_last_word(&self, address: u64) -> bool {
        address & !7 == DONE || Some(address & !7) == self.tohost
    }
}

/// A program on the core alone.
#[derive(Clone)]
pub(super) struct Bench {
    core: Core,
    bus: Bare,
    /// The cycles of the first and the last commit of the program.
    first: Option<u64>,
    last: u64,
    /// The last but one.
    last_but_one: u64,
    instructions: u64,
    traps: u64,
    /// Traps without an instruction in between, and the first of them.
    in_row: u32,
    row: Option<(u64, Trap)>,
    /// Stores that may end the program and have committed.
    said: u64,
    /// The one of them that has.
    ends_at: Option<u64>,
}

impl Bench {
    /// A core at reset, with `program` in its memory.
    pub(super) fn new(program: &Program, memory: MachineConfig) -> Result<Bench, LoadError> {
        Bench::with_core(program, memory, CoreConfig::default())
    }

    fn with_core(program: &Program, memory: MachineConfig, core: CoreConfig) -> Result<Bench, LoadError> {
        let platform = Machine::new(program, memory)?.platform;
        let tohost = program.address_of("tohost").filter(|address| address % 8 == 0);
        let entry = if program.entry == BASE { boot::RESET } else { program.entry };
        Ok(Bench {
            core: Core::new(Hart::new(0, entry), &core),
            bus: Bare {
                platform,
                is_done: false,
                tohost,
                last_words: 0,
                instruction_lines: 0,
                data_lines: 0,
            },
            first: None,
            last: 0,
            last_but_one: 0,
            instructions: 0,
            traps: 0,
            in_row: 0,
            row: None,
            said: 0,
            ends_at: None,
        })
    }

    pub(super) fn core(&self) -> &Core {
        &self.core
    }

    pub(super) fn core_mut(&mut self) -> &mut Core {
        &mut self.core
    }

    pub(super) fn platform(&self) -> &Platform {
        &self.bus.platform
    }

    /// Memory, for a caller that changes it while the core stands still.
    pub(super) fn memory_mut(&mut self) -> &mut Ram {
        self.core.hart.flush_fetched();
        &mut self.bus.platform.ram
    }

    /// Runs to the next commit or trap, for at most `cycles`, and not beyond the next tick of the clock.
    pub(super) fn advance(&mut self, cycles: u64) -> Event {
        let to_tick = CYCLES_PER_TICK - self.core.cycle() % CYCLES_PER_TICK;
        let event = self.core.run_to_event(&mut self.bus, cycles.min(to_tick));
        match event {
            Event::Commit(commit) => {
                (self.in_row, self.row) = (0, None);
                let is_program = !boot::is_rom(commit.retired.pc);
                if is_program && self.first.is_none() {
                    self.first = Some(commit.cycle);
                    let bus = &mut self.bus;
                    (bus.instruction_lines, bus.data_lines) = (bus.instruction_lines.min(1), 0);
                }
                (self.last_but_one, self.last) = (self.last, commit.cycle);
                self.instructions += u64::from(is_program);
                let writes = |access: &MemoryAccess| access.kind != AccessKind::Load;
                self.said += u64::from(
                    commit
                        .retired
                        .memory
                        .filter(writes)
                        .is_some_and(|access| self.bus.is_last_word(access.address)),
                );
            }
            Event::Trap { pc, trap, .. } => {
                self.traps += 1;
                self.in_row += 1;
                self.row.get_or_insert((pc, trap));
            }
            Event::Bubble => {}
        }
        let platform = &mut self.bus.platform;
        platform.serve_program();
        platform.advance_clock(self.core.cycle() / CYCLES_PER_TICK);
        platform.raise_interrupts(&mut self.core.hart.csrs);
        // A store executes some cycles before it commits.
        if self.ends_at.is_none() && (self.bus.is_done || platform.exit_code().is_some()) {
            self.ends_at = Some(self.bus.last_words);
        }
        event
    }

    /// Whether the program has ended, and its last instruction has committed.
    pub(super) fn is_over(&self) -> bool {
        self.ends_at.is_some_and(|ends_at| self.said >= ends_at)
    }

    /// The exit code, once it is over; zero if it ended without one.
    pub(super) fn exit_code(&self) -> Option<u64> {
        self.is_over().then(|| self.platform().exit_code().unwrap_or(0))
    }

    /// Why the program will not go on, if it will not.
    fn problem(&self, program: &Program, cycles_max: u64) -> Option<String> {
        let hart = &self.core.hart;
        let told = |(pc, trap): (u64, Trap)| format!("{trap} at {}", place(program, pc));
        if self.in_row >= TRAPS_MAX {
            let is_interrupt = |(_, trap): &(u64, Trap)| matches!(trap.cause, Cause::Interrupt(_));
            let first = self.row.filter(is_interrupt).or(hart.unreturned).or(self.row).map(told);
            return Some(format!(
                "no handler (mtvec) takes the {}: trap after trap",
                first.unwrap_or_default()
            ));
        }
        if self.core.cycle() - self.first.unwrap_or(0) >= cycles_max {
            let open =
                hart.unreturned.map(|trap| format!("; the handler of the {} has not returned", told(trap)));
            return Some(format!(
                "not at its end after {cycles_max} cycles, at {}: --cycles-max lets it go on{}",
                place(program, hart.pc),
                open.unwrap_or_default()
            ));
        }
        let sleeps = self.core.cycle() - self.last >= PATIENCE_CYCLES && !self.wakes();
        sleeps.then(|| format!("asleep at {}: no interrupt comes", place(program, hart.pc)))
    }

    /// Whether the timer will end the hart's sleep.
    fn wakes(&self) -> bool {
        self.core.hart.csrs.is_enabled(Interrupt::TIMER) && self.platform().alarm(0).is_some()
    }
}

pub(super) fn run(args: &Args, program: &Program, memory: MachineConfig) -> Result<ExitCode> {
    if let Some(flag) = args.beyond.first_set() {
        return Err(usage(format!("{flag} is for a core with its NIC, not for --bare")));
    }
    let mut bench =
        Bench::with_core(program, memory, super::run::core(args)).with_context(|| name_of(args))?;
    // Before a run that may take long.
    let place = |_| Place::of(program, &bench.platform().ram);
    let signature = args.signature.as_ref().map(place).transpose()?;
    let mut log = CommitLog::new(args.commits.as_deref())?;
    let report = play(&mut bench, program, args.cycles_max, |commit| log.note(0, commit));
    log.finish()?;
    if let (Some(place), Some(path)) = (signature, &args.signature) {
        place.write(&bench.platform().ram, path)?;
    }
    print(args, &report)?;
    let is_good = report.problem.is_none() && report.exit_code.unwrap_or(0) == 0;
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn play(bench: &mut Bench, program: &Program, cycles_max: u64, mut on_commit: impl FnMut(&Commit)) -> Report {
    let problem = loop {
        if bench.is_over() {
            break None;
        }
        let problem = bench.problem(program, cycles_max);
        if problem.is_some() {
            break problem;
        }
        let left = cycles_max.saturating_sub(bench.core.cycle() - bench.first.unwrap_or(0));
        if let Event::Commit(commit) = bench.advance(left.max(1)) {
            on_commit(&commit);
        }
    };
    let Bench { first, last, last_but_one, instructions, traps, ref bus, .. } = *bench;
    let cycles = first.map_or(0, |first| last - first);
    Report {
        cycles,
        cycles_before_the_end: first.map_or(0, |first| last_but_one.saturating_sub(first)),
        instructions,
        cycles_per_instruction: (instructions > 1).then(|| cycles as f64 / (instructions - 1) as f64),
        instruction_lines_fetched: bus.instruction_lines,
        data_lines_fetched: bus.data_lines,
        traps,
        exit_code: bus.platform.exit_code(),
        console: String::from_utf8_lossy(bus.platform.console()).into_owned(),
        problem,
        stalls: stalls::of(std::iter::once(&bench.core)),
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
    for line in stalls::lines(&report.stalls) {
        console.line(line)?;
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
        self.last_words += u64::from(self.is_last_word(address));
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
    use highwire_riscv::Symbol;

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
        let mut bench = Bench::new(&program, MachineConfig::default()).unwrap();
        let report = play(&mut bench, &program, 1_000_000, |_| {});
        assert_eq!(report.problem, None);
        // The record ends before the store that ends the run.
        assert_eq!(report.instructions, numbers[0] + 1);
        assert_eq!(report.cycles_before_the_end, numbers[1]);
        assert!((1..10).contains(&(report.cycles - numbers[1])), "{report:?}");
        assert!(report.data_lines_fetched > 0 && report.instruction_lines_fetched > 0, "{report:?}");
    }
    /// Instructions from `BASE` on, and the place of `tohost`, if there is one.
    fn program(words: &[u32], tohost: Option<u64>) -> Program {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let segment = highwire_riscv::Segment { address: BASE, memory_bytes: bytes.len() as u64, bytes };
        let symbol = |address| Symbol { name: "tohost".to_string(), address, size_bytes: 8 };
        Program { entry: BASE, segments: vec![segment], symbols: tohost.map(symbol).into_iter().collect() }
    }

    #[test]
    fn every_instruction_up_to_the_last_store_is_counted() {
        const NOP: u32 = 0x13;
        const FOREVER: u32 = 0x6f;
        for nops in 0..6 {
            let lead = vec![NOP; nops];
            // lui a0, 0x10001; sd zero, 0(a0)
            let done = [&lead[..], &[0x1000_1537, 0x0005_3023, FOREVER]].concat();
            // auipc a0, 1; addi a1, zero, 7; sd a1, 0(a0): exit code 3
            let exit = [&lead[..], &[0x0000_1517, 0x0070_0593, 0x00b5_3023, FOREVER]].concat();
            let tohost = BASE + 0x1000 + 4 * nops as u64;
            let tohost = tohost & !7;
            let exit_at = if (4 * nops).is_multiple_of(8) { Some(tohost) } else { None };
            let report = |program: &Program| {
                play(&mut Bench::new(program, MachineConfig::default()).unwrap(), program, 100_000, |_| {})
            };
            let ended = report(&program(&done, None));
            assert_eq!((ended.problem, ended.instructions), (None, nops as u64 + 2));
            if exit_at.is_some() {
                let ended = report(&program(&exit, exit_at));
                assert_eq!((ended.problem, ended.exit_code), (None, Some(3)));
                assert_eq!(ended.instructions, nops as u64 + 3);
            }
        }
    }
}
