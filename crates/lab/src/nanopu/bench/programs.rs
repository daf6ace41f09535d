//! The programs that `highwire nanopu bench` runs by default: benchmarks on a core with its caches, and
//! programs of the nanoPU with their NIC, under load.

use std::fs;

use anyhow::{Context, Result, anyhow, bail};
use highwire_nanopu::client::{Client, Request};
use highwire_nanopu::{Core, CoreConfig, Node, NodeConfig, Port};
use highwire_riscv::{AccessFault, Bus, Hart, Program, Ram};
use serde::Serialize;

use super::cpu_seconds;
use crate::nanopu::{CLIENT, NODE};

/// The work of one program.
struct Case {
    name: &'static str,
    file: &'static str,
    load: Load,
}

enum Load {
    /// The program runs over and over on a core without a network.
    Alone,
    /// This many cores of a node get a message of these words every few rounds of the link.
    Messages { cores: usize, rounds: u64, words: fn(u64) -> Vec<u64> },
}

const CASES: [Case; 7] = [
    Case { name: "qsort", file: "riscv/benchmarks/build/qsort.elf", load: Load::Alone },
    Case { name: "dhrystone", file: "riscv/benchmarks/build/dhrystone.elf", load: Load::Alone },
    Case { name: "mm", file: "riscv/benchmarks/build/mm.elf", load: Load::Alone },
    Case { name: "memcpy", file: "riscv/benchmarks/build/memcpy.elf", load: Load::Alone },
    Case {
        name: "loopback, 64 B",
        file: "riscv/build/loopback.elf",
        load: Load::Messages { cores: 1, rounds: 2, words: |number| (8 * number..).take(8).collect() },
    },
    Case {
        name: "service4, four cores",
        file: "riscv/build/service4.elf",
        load: Load::Messages { cores: 4, rounds: 3, words: |number| vec![500 + number * 37 % 900, number] },
    },
    Case {
        name: "mica, 512 B values",
        file: "riscv/build/mica.elf",
        load: Load::Messages { cores: 1, rounds: 8, words: mica },
    },
];

/// The link's delay: once in so many cycles the bench reads answers and sends requests.
const ROUND_CYCLES: u64 = 140;
/// By then all threads have registered; then the first request comes.
const WARM_UP_ROUNDS: u64 = 72;
/// A store to this word ends a benchmark.
const DONE: u64 = 0x1000_1000;
/// No benchmark takes longer.
const PATIENCE_CYCLES: u64 = 10_000_000;
const MEMORY_BASE: u64 = 0x8000_0000;
const MEMORY_BYTES: usize = 16 << 20;

/// Sets of a thousand keys, then half of the requests read.
fn mica(number: u64) -> Vec<u64> {
    let key = number * 7919 % 1000;
    let mixed = (key ^ key >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    let hash = (mixed ^ mixed >> 27).wrapping_mul(0x81da_def4_bc2d_d44d) ^ mixed >> 33;
    let is_set = number < 1000 || number.is_multiple_of(2);
    let mut words = vec![if is_set { 2 } else { 1 }, hash, key, !key];
    if is_set {
        words.extend((key << 32..).take(64));
    }
    words
}

/// One line of the table.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) program: &'static str,
    pub(super) core_cycles: u64,
    pub(super) cpu_seconds: f64,
    /// The median, lowest and highest of the runs.
    pub(super) core_cycles_per_second: [f64; 3],
    /// Cycles that the core simulated and did not repeat from memory.
    pub(super) worked_out: u64,
    /// The same for a core that simulates every cycle.
    pub(super) worked_out_per_second: f64,
}

/// The result of one run.
struct Run {
    core_cycles: u64,
    worked_out: u64,
    cpu_seconds: f64,
}

impl Run {
    fn rate(&self) -> f64 {
        self.core_cycles as f64 / self.cpu_seconds
    }
}

/// Runs the programs with `only` in their names, each for at least `cycles` core cycles in each of `runs`
/// runs. All run once before one runs again: machines have slower minutes, and every program should have its
/// share of them.
pub(super) fn measure(
    only: &str,
    cycles: u64,
    runs: u32,
    mut on_start: impl FnMut(u32, &str),
) -> Result<Vec<Row>> {
    let cases: Vec<&Case> = CASES.iter().filter(|case| case.name.contains(only)).collect();
    if cases.is_empty() {
        let names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        bail!("no program of the table has {only:?} in its name: they are {}", names.join("; "));
    }
    let programs: Vec<Program> = cases.iter().map(|case| case.program()).collect::<Result<_>>()?;
    let mut taken: Vec<Vec<Run>> = cases.iter().map(|_| Vec::new()).collect();
    let mut forgetful: Vec<Vec<Run>> = cases.iter().map(|_| Vec::new()).collect();
    for round in 1..=runs.max(1) {
        for (number, (case, program)) in cases.iter().zip(&programs).enumerate() {
            on_start(round, case.name);
            taken[number].push(run(case, program, cycles, true)?);
            // Fewer cycles, because this core is several times slower.
            forgetful[number].push(run(case, program, cycles / 5, false)?);
        }
    }
    let rows = cases.iter().zip(&mut taken).zip(&mut forgetful);
    Ok(rows.map(|((case, taken), forgetful)| case.row(taken, forgetful)).collect())
}

impl Case {
    fn program(&self) -> Result<Program> {
        let file = fs::read(self.file)
            .with_context(|| format!("cannot read {}: make -C riscv, make -C riscv/benchmarks", self.file))?;
        Program::parse(&file).with_context(|| format!("{} cannot run here", self.file))
    }

    fn row(&self, taken: &mut [Run], forgetful: &mut [Run]) -> Row {
        for runs in [&mut *taken, &mut *forgetful] {
            runs.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
        }
        let median = &taken[taken.len() / 2];
        Row {
            program: self.name,
            core_cycles: median.core_cycles,
            cpu_seconds: median.cpu_seconds,
            core_cycles_per_second: [median.rate(), taken[0].rate(), taken[taken.len() - 1].rate()],
            worked_out: median.worked_out,
            worked_out_per_second: forgetful[forgetful.len() / 2].rate(),
        }
    }
}

fn run(case: &Case, program: &Program, cycles: u64, remembers_cycles: bool) -> Result<Run> {
    let core = CoreConfig { remembers_cycles, ..CoreConfig::default() };
    match case.load {
        Load::Alone => alone(program, cycles, core).with_context(|| format!("{} does not run", case.name)),
        Load::Messages { cores, rounds, words } => {
            let count = cycles / cores as u64 / (rounds * ROUND_CYCLES);
            let requests: Vec<Request> = (0..count)
                .map(|number| Request {
                    sent: (WARM_UP_ROUNDS + number * rounds) * ROUND_CYCLES,
                    context: 0,
                    payload: words(number).into_iter().flat_map(u64::to_be_bytes).collect(),
                })
                .collect();
            serve(program, cores, core, &requests).with_context(|| format!("{} does not serve", case.name))
        }
    }
}

/// Memory, and the word that ends a benchmark.
struct Bench {
    ram: Ram,
    is_done: bool,
}

impl Port for Bench {}

impl Bus for Bench {
    #[inline(always)]
    fn load(&mut self, address: u64, bytes: u8) -> Result<u64, AccessFault> {
        self.ram.load(address, bytes)
    }

    #[inline(always)]
    fn store(&mut self, address: u64, bytes: u8, value: u64) -> Result<(), AccessFault> {
        if address & !7 == DONE {
            self.is_done = true;
            return Ok(());
        }
        self.ram.store(address, bytes, value)
    }

    #[inline(always)]
    fn fetch_word(&mut self, address: u64) -> Result<u32, AccessFault> {
        self.ram.fetch_word(address)
    }

    #[inline(always)]
    fn code_changes(&self) -> Option<u64> {
        self.ram.code_changes()
    }
}

fn alone(program: &Program, cycles: u64, config: CoreConfig) -> Result<Run> {
    let mut bench = Bench { ram: Ram::new(MEMORY_BASE, MEMORY_BYTES), is_done: false };
    let mut core = Core::new(Hart::new(0, program.entry), &config);
    let mut cpu = 0.0;
    while core.cycle() < cycles {
        for segment in &program.segments {
            let memory = bench.ram.slice_mut(segment.address, segment.bytes.len());
            memory.context("it does not fit into memory")?.copy_from_slice(&segment.bytes);
        }
        bench.is_done = false;
        let before = cpu_seconds();
        core.hart.flush_fetched();
        core.restart_at(program.entry);
        core.run_while(&mut bench, PATIENCE_CYCLES, |bench| !bench.is_done);
        cpu += cpu_seconds() - before;
        if !bench.is_done {
            bail!("it has not ended after {PATIENCE_CYCLES} cycles, and is at {:#x}", core.hart.pc);
        }
    }
    Ok(Run { core_cycles: core.cycle(), worked_out: core.worked_out(), cpu_seconds: cpu })
}

fn serve(program: &Program, cores: usize, core: CoreConfig, requests: &[Request]) -> Result<Run> {
    let config = NodeConfig { cores, core, skips_idle: false, ..NodeConfig::default() };
    let mut node = Node::new(program, &config)?;
    let mut client = Client::in_rounds(CLIENT, NODE, ROUND_CYCLES);
    let before = cpu_seconds();
    let answers = client.play_in_rounds(&mut node, requests, 1_000_000);
    let cpu = cpu_seconds() - before;
    let answers = answers.map_err(|event| anyhow!("{event:?}"))?;
    let unanswered = answers.iter().filter(|answer| answer.is_none()).count();
    if unanswered > 0 {
        bail!("{unanswered} of {} requests have no answer", requests.len());
    }
    Ok(Run {
        core_cycles: node.cycle() * cores as u64,
        worked_out: (0..cores).map(|number| node.core(number).worked_out()).sum(),
        cpu_seconds: cpu,
    })
}
