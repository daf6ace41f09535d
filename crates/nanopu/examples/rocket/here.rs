//! A program on the core of this crate.

use std::collections::BTreeMap;

use highwire_nanopu::{Asker, Commit, Core, CoreConfig, Event, Port, boot};
use highwire_riscv::{AccessFault, Bus, Hart, Next, Program, Ram, Symbol};

/// Where programs lie and begin.
pub(crate) const BASE: u64 = 0x8000_0000;
/// A store here ends the run, on both sides.
pub(crate) const DONE: u64 = 0x1000_1000;
/// The timer's alarm, a device that both sides have. It keeps what is written to it.
pub(crate) const ALARM: u64 = 0x0200_4000;
/// The timer's time, which counts on Rocket alone.
pub(crate) const TIME: u64 = 0x0200_bff8;
/// The label before each sequence of `riscv/benchmarks/measure.inc`, without its name.
const LABEL: &str = "measure.";
/// The memory of both sides.
const MEMORY_BYTES: usize = 16 << 20;
/// Nothing takes longer to commit.
const PATIENCE_CYCLES: u64 = 20_000;

/// A program as the bytes from [`BASE`] on.
pub(crate) struct Image {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
    /// Where sequences that are measured one by one begin, and their names.
    pub(crate) sequences: BTreeMap<u64, String>,
}

impl Image {
    /// Reads an ELF file.
    pub(crate) fn read(path: &str) -> Result<Image, String> {
        let file = std::fs::read(path).map_err(|error| format!("{path}: {error}"))?;
        let program = Program::parse(&file).map_err(|error| format!("{path}: {error}"))?;
        if program.entry != BASE {
            return Err(format!("{path} begins at {:#x}, not at {BASE:#x}", program.entry));
        }
        let mut bytes = Vec::new();
        for segment in &program.segments {
            let start = segment.address.checked_sub(BASE).and_then(|start| usize::try_from(start).ok());
            let start = start.filter(|start| start + segment.bytes.len() <= MEMORY_BYTES);
            let start = start.ok_or_else(|| format!("{path} has bytes at {:#x}", segment.address))?;
            let end = start + segment.bytes.len();
            bytes.resize(bytes.len().max(end), 0);
            bytes[start..end].copy_from_slice(&segment.bytes);
        }
        let stem = std::path::Path::new(path).file_stem().unwrap_or_default();
        let label = |symbol: &Symbol| Some((symbol.address, symbol.name.strip_prefix(LABEL)?.to_owned()));
        let sequences = program.symbols.iter().filter_map(label).collect();
        Ok(Image { name: stem.to_string_lossy().into_owned(), bytes, sequences })
    }
}

struct Bench {
    ram: Ram,
    alarm: Ram,
    is_done: bool,
}

impl Port for Bench {
    fn line_cycles(&mut self, _: Asker, address: u64, memory_cycles: u64) -> u64 {
        boot::line_cycles(address).unwrap_or(memory_cycles)
    }
}

impl Bus for Bench {
    fn fetch(&mut self, address: u64) -> Result<u16, AccessFault> {
        boot::fetch(address).map_or_else(|| self.ram.fetch(address), Ok)
    }

    fn write_csr(&mut self, number: u16, _value: u64) -> bool {
        boot::has_csr(number)
    }

    fn load(&mut self, address: u64, bytes: u8) -> Result<u64, AccessFault> {
        match address & !7 {
            ALARM => self.alarm.load(address, bytes),
            TIME => Ok(0),
            _ => self.ram.load(address, bytes),
        }
    }

    fn store(&mut self, address: u64, bytes: u8, value: u64) -> Result<(), AccessFault> {
        if address & !7 == DONE {
            self.is_done = true;
            return Ok(());
        }
        let place = if address & !7 == ALARM { &mut self.alarm } else { &mut self.ram };
        place.store(address, bytes, value)
    }
}

/// Whether `address` is one of the timer's.
pub(crate) fn is_device(address: u64) -> bool {
    matches!(address & !7, ALARM | TIME)
}

/// A commit, and the operands that it read.
pub(crate) struct Traced {
    pub(crate) commit: Commit,
    /// The integer registers rs1 and rs2 before it, whether or not it reads them.
    pub(crate) operands: [u64; 2],
}

/// A finished run.
pub(crate) struct Run {
    pub(crate) commits: Vec<Traced>,
}

/// Runs `image`, from reset on, up to the store that ends it. A hart without a pipeline runs beside the core; the two must agree.
pub(crate) fn run(image: &Image, commits_max: usize) -> Result<Run, String> {
    let memory = || {
        let mut ram = Ram::new(BASE, MEMORY_BYTES);
        if let Some(start) = ram.slice_mut(BASE, image.bytes.len()) {
            start.copy_from_slice(&image.bytes);
        }
        Bench { ram, alarm: Ram::new(ALARM, 8), is_done: false }
    };
    let (mut bench, mut plain_bench) = (memory(), memory());
    let mut core = Core::new(Hart::new(0, boot::RESET), &CoreConfig::default());
    let mut plain = Hart::new(0, boot::RESET);
    let mut commits = Vec::new();
    // The store that ends the run commits a little later than it executes.
    while !(plain_bench.is_done && bench.is_done) && commits.len() < commits_max {
        match core.run_to_event(&mut bench, PATIENCE_CYCLES) {
            Event::Commit(commit) => {
                let operands = step_plain(&mut plain, &mut plain_bench, &commit)?;
                if commit.retired.pc >= BASE {
                    commits.push(Traced { commit, operands });
                }
            }
            Event::Trap { .. } => {
                plain.step(&mut plain_bench);
            }
            Event::Bubble => return Err(format!("stuck at {:#x} here", core.hart.pc)),
        }
    }
    // The last store goes to a device that the other side does not have where this one has it.
    commits.pop();
    Ok(Run { commits })
}

fn step_plain(plain: &mut Hart, bench: &mut Bench, commit: &Commit) -> Result<[u64; 2], String> {
    let astray = || format!("the pipeline went astray at {:#x}", commit.retired.pc);
    plain.csrs.mcycle = commit.retired.cycle;
    if plain.pc != commit.retired.pc {
        return Err(astray());
    }
    let Next::Instruction(instruction) = plain.next(bench) else { return Err(astray()) };
    let operands = [instruction.rs1, instruction.rs2].map(|number| plain.x[usize::from(number)]);
    plain.perform(&instruction, bench).map_err(|_| astray())?;
    Ok(operands)
}
