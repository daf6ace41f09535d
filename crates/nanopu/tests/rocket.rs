//! Commit by commit against Rocket: the cycles between consecutive commits, as its RTL showed them.
//!
//! The records in `rocket/` were made by running each program on the verilated core of `pythondata-cpu-rocket` (its
//! configuration `LitexFullConfig`) with a memory of 40 cycles. Where this model is known to differ, the test says how
//! often, so that a change in either direction shows.

use highwire_nanopu::{Asker, Core, CoreConfig, Event, boot};
use highwire_riscv::{AccessFault, Bank, Bus, Class, Hart, Ram};

const BASE: u64 = 0x8000_0000;
/// The test bench of the RTL ends a run when this word is written.
const DONE: u64 = 0x1000_1000;

/// The timer's alarm, a device that keeps what is written to it.
const ALARM: u64 = 0x0200_4000;

struct Bench {
    ram: Ram,
    alarm: Ram,
}

impl Bench {
    fn new(image: &[u8]) -> Bench {
        let mut ram = Ram::new(BASE, 1 << 20);
        ram.slice_mut(BASE, image.len()).unwrap().copy_from_slice(image);
        Bench { ram, alarm: Ram::new(ALARM, 8) }
    }

    fn at(&mut self, address: u64) -> &mut Ram {
        if is_device(address) { &mut self.alarm } else { &mut self.ram }
    }
}

fn is_device(address: u64) -> bool {
    address & !7 == ALARM
}

impl highwire_nanopu::Port for Bench {
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
        self.at(address).load(address, bytes)
    }

    fn store(&mut self, address: u64, bytes: u8, value: u64) -> Result<(), AccessFault> {
        if address & !7 == DONE { Ok(()) } else { self.at(address).store(address, bytes, value) }
    }
}

fn image(hex: impl Iterator<Item = impl AsRef<str>>) -> Vec<u8> {
    let text: String = hex.map(|line| line.as_ref().to_owned()).collect();
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
}

/// A core at reset, which executes the ROM before the program.
fn core() -> Core {
    Core::new(Hart::new(0, boot::RESET), &CoreConfig::default())
}

/// The cycles of the program's first `count` commits.
fn commits(image: &[u8], count: usize) -> Vec<u64> {
    let mut bench = Bench::new(image);
    let mut core = core();
    let mut cycles = Vec::new();
    while cycles.len() < count {
        match core.run_to_event(&mut bench, 10_000) {
            Event::Commit(commit) if commit.retired.pc < BASE => {}
            Event::Commit(commit) => cycles.push(commit.cycle),
            other => panic!("{other:?} after {} commits", cycles.len()),
        }
    }
    cycles
}

/// At most `differing` of the steps from commit to commit take another number of cycles than on Rocket.
fn check(record: &str, differing: usize) {
    let lines = || record.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let memory = lines().skip_while(|line| *line != "memory").skip(1).take_while(|line| *line != "cycles");
    let image = image(memory);
    let words = lines().skip_while(|line| *line != "cycles").skip(1).flat_map(str::split_whitespace);
    let expected: Vec<u64> = words
        .flat_map(|word| {
            let (cycles, times) = word.split_once('x').unwrap_or((word, "1"));
            std::iter::repeat_n(cycles.parse().unwrap(), times.parse().unwrap())
        })
        .collect();
    let cycles = commits(&image, expected.len() + 1);
    let steps = cycles.windows(2).map(|pair| pair[1] - pair[0]);
    let wrong: Vec<(usize, u64, u64)> = steps
        .zip(&expected)
        .enumerate()
        .filter(|(_, (here, there))| here != *there)
        .map(|(at, (here, there))| (at, here, *there))
        .collect();
    assert_eq!(wrong.len(), differing, "commit, cycles here, cycles there: {wrong:?}");
    let total: u64 = expected.iter().sum();
    let here = cycles[cycles.len() - 1] - cycles[0];
    assert!(here.abs_diff(total) * 50 <= total, "{here} cycles here, {total} there");
}

#[test]
fn straight_code_is_fetched_on_time() {
    check(include_str!("rocket/straight.txt"), 0);
    check(include_str!("rocket/compressed.txt"), 0);
}

#[test]
fn multiplication_and_division_take_what_their_operands_need() {
    check(include_str!("rocket/multiply.txt"), 0);
    check(include_str!("rocket/divide.txt"), 0);
}

#[test]
fn jumps_calls_and_branches_cost_what_the_predictor_does_not_know() {
    check(include_str!("rocket/jumps.txt"), 0);
    check(include_str!("rocket/median.txt"), 0);
    check(include_str!("rocket/loops.txt"), 0);
}

#[test]
fn misses_and_stores_hold_up_what_comes_behind() {
    check(include_str!("rocket/misses.txt"), 0);
    check(include_str!("rocket/stores.txt"), 0);
}

#[test]
fn floating_point_results_come_late() {
    check(include_str!("rocket/floats.txt"), 0);
}

/// A program of `rocket/golden.txt`.
struct Golden<'a> {
    name: &'a str,
    commits: usize,
    rocket_cycles: u64,
    cycles: u64,
    differing: u64,
    rocket_hash: u64,
    memory: Vec<u8>,
}

fn golden() -> Vec<Golden<'static>> {
    let text = include_str!("rocket/golden.txt");
    let programs = text.split("\n\n").skip(1).map(str::trim).filter(|program| !program.is_empty());
    let read = |program: &'static str| {
        let (head, memory) = program.split_once('\n').unwrap();
        let [name, commits, rocket_cycles, cycles, differing, hash] =
            *head.split(' ').collect::<Vec<_>>().as_slice()
        else {
            panic!("{head}");
        };
        Golden {
            name,
            commits: commits.parse().unwrap(),
            rocket_cycles: rocket_cycles.parse().unwrap(),
            cycles: cycles.parse().unwrap(),
            differing: differing.parse().unwrap(),
            rocket_hash: u64::from_str_radix(hash, 16).unwrap(),
            memory: image(memory.lines()),
        }
    };
    programs.map(read).collect()
}

/// The cycles from the first to the last of `count` commits, and a hash of what the log of the RTL shows of each: address,
/// cycles since the one before, and the integer register, unless it is written later.
fn run(memory: &[u8], count: usize) -> (u64, u64) {
    let mut bench = Bench::new(memory);
    let mut core = core();
    let (mut hash, mut cycles, mut before, mut left) = (0u64, 0, None, count);
    while left > 0 {
        let commit = match core.run_to_event(&mut bench, 10_000) {
            Event::Commit(commit) if commit.retired.pc < BASE => continue,
            Event::Commit(commit) => commit,
            Event::Trap { .. } => continue,
            Event::Bubble => panic!("stuck with {left} commits to go"),
        };
        let retired = commit.retired;
        if let Some(before) = before {
            let from_device = retired.memory.is_some_and(|access| is_device(access.address));
            let is_late =
                from_device || matches!(retired.instruction.class(), Class::Multiply | Class::Divide);
            let write = retired.write.filter(|write| write.register.bank == Bank::X && !is_late);
            let write = write.map_or(0, |write| write.value ^ u64::from(write.register.number) << 58);
            for word in [retired.pc, commit.cycle - before, write] {
                hash = (hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
            }
            cycles += commit.cycle - before;
        }
        before = Some(commit.cycle);
        left -= 1;
    }
    (cycles, hash)
}

#[test]
fn whole_programs_take_the_same_time() {
    let programs = golden();
    assert!(programs.len() >= 11, "{}", programs.len());
    for Golden { name, commits, rocket_cycles, cycles, differing, rocket_hash, memory } in programs {
        let (here, hash) = run(&memory, commits);
        assert_eq!(here, cycles, "{name} no longer takes what is recorded: cargo xtask rocket record");
        if differing == 0 {
            assert_eq!(hash, rocket_hash, "{name}: every commit is to be Rocket's");
        }
        let off = here.abs_diff(rocket_cycles);
        assert!(off * 1000 <= rocket_cycles, "{name}: {here}, {rocket_cycles} there");
    }
}
