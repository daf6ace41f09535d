//! Two runs of one program, held against each other commit by commit.

use std::collections::BTreeMap;
use std::fmt;

use highwire_riscv::csr::number::{CYCLE, INSTRET, MCYCLE, MINSTRET, TIME};
use highwire_riscv::{Bank, Class, Located, Op, Register, RegisterWrite};

use super::COMMITS_MAX;
use super::here::{self, Image, Traced};
use super::oracle::{Line, Oracle};
use super::sequences::{Count, Sequences};

/// So many differing steps are shown one by one.
const STEPS_SHOWN: usize = 100;

/// Steps to one instruction.
#[derive(Debug, Default)]
struct Place {
    text: String,
    steps: u64,
    there: u64,
    here: u64,
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) total: Count,
    /// Of the program's sequences.
    pub(crate) sequences: Sequences,
    /// The first step that differs.
    first_differing: Option<String>,
    /// Of each instruction that some differing step leads to: how many, and the cycles on Rocket and here.
    places: BTreeMap<u64, Place>,
    /// Differing steps one by one: the cycle on Rocket, what committed before, what committed then, cycles there and here.
    steps: Vec<String>,
    /// Programs whose comparison ended early, because a conditional store failed on Rocket although no other
    /// store had taken the reservation. It may: Rocket's reservations last for some eighty cycles.
    left_early: u64,
    /// Every commit on Rocket: address, cycles since the one before, register written.
    hash: u64,
    /// The first architectural difference.
    pub(crate) mismatch: Option<String>,
}

impl Comparison {
    pub(crate) fn add(&mut self, other: &Comparison) {
        self.total.add(&other.total);
        self.left_early += other.left_early;
    }

    /// Where the two differ, the most frequent place first.
    pub(crate) fn explain(&self) {
        let mut places: Vec<(&u64, &Place)> = self.places.iter().collect();
        places.sort_by_key(|(_, place)| std::cmp::Reverse(place.steps));
        for (pc, Place { text, steps, there, here }) in places.into_iter().take(30) {
            println!("  {pc:#x}  {text:<32} {steps:>6} steps, {there:>7} cycles on Rocket, {here:>7} here");
        }
        self.steps.iter().take(STEPS_SHOWN).for_each(|step| println!("  {step}"));
    }

    /// The record of a program for tests: a line of numbers, and the bytes.
    pub(crate) fn golden(&self, image: &Image) -> String {
        let Count { commits, rocket_cycles, cycles, differing } = self.total;
        let mut text =
            format!("{} {commits} {rocket_cycles} {cycles} {differing} {:016x}\n", image.name, self.hash);
        for line in image.bytes.chunks(64) {
            text.extend(line.iter().map(|byte| format!("{byte:02x}")));
            text.push('\n');
        }
        text
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(mismatch) = &self.mismatch {
            return out.write_str(mismatch);
        }
        write!(out, "{}", self.total)?;
        if self.left_early > 0 {
            write!(out, "   left early: {}", self.left_early)?;
        }
        match &self.first_differing {
            Some(first) => write!(out, "   first: {first}"),
            None => Ok(()),
        }
    }
}

/// Runs `image` on both.
pub(crate) fn compare(oracle: &str, image: &Image) -> Result<Comparison, String> {
    let run = here::run(image, COMMITS_MAX)?;
    let mut rocket = Oracle::start(oracle, image)?;
    let mut comparison = Comparison { sequences: Sequences::new(&image.sequences), ..Comparison::default() };
    let mut before: Option<(u64, u64)> = None;
    for (number, traced) in run.commits.iter().enumerate() {
        let Some(line) = rocket.next()? else {
            // The run ends as soon as the bench sees the last store, which the log may not have reached.
            if number + 20 < run.commits.len() {
                comparison.mismatch =
                    Some(format!("Rocket ended after {number} of {} commits", run.commits.len()));
            }
            break;
        };
        let is_conditional = matches!(traced.commit.retired.instruction.op, Op::ScW | Op::ScD);
        if is_conditional && line.write.is_some_and(|(_, failed)| failed == 1) && is_success(traced) {
            comparison.left_early += 1;
            break;
        }
        if let Some(what) = difference(traced, &line) {
            comparison.mismatch = Some(format!("commit {number}: {what}"));
            break;
        }
        let retired = &traced.commit.retired;
        if let Some((rocket_cycle, cycle)) = before {
            let (there, here) = (line.cycle - rocket_cycle, traced.commit.cycle - cycle);
            comparison.total.step(there, here);
            comparison.sequences.step(retired, there, here);
            if here != there {
                let text = Located { pc: retired.pc, instruction: retired.instruction };
                if comparison.steps.len() < STEPS_SHOWN {
                    let cycle = line.cycle;
                    comparison.steps.push(format!(
                        "commit {number}, cycle {cycle}: {there} cycles on Rocket, {here} here, to {text}"
                    ));
                }
                let place = comparison.places.entry(retired.pc).or_default();
                place.text = Located { pc: retired.pc, instruction: retired.instruction }.to_string();
                (place.steps, place.there, place.here) =
                    (place.steps + 1, place.there + there, place.here + here);
                comparison.first_differing.get_or_insert_with(|| {
                    format!("commit {number}, {:#x}: {there} cycles on Rocket, {here} here", retired.pc)
                });
            }
            let write = line.write.map_or(0, |(register, value)| value ^ u64::from(register) << 58);
            for word in [line.pc, there, write] {
                comparison.hash =
                    (comparison.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
            }
        }
        before = Some((line.cycle, traced.commit.cycle));
        comparison.total.commits += 1;
    }
    Ok(comparison)
}

/// Whether a conditional store did store.
fn is_success(traced: &Traced) -> bool {
    traced.commit.retired.write.is_some_and(|write| write.value == 0)
}

/// The architectural difference between the two, if there is one.
fn difference(traced: &Traced, line: &Line) -> Option<String> {
    let retired = &traced.commit.retired;
    if retired.pc != line.pc {
        return Some(format!("Rocket is at {:#x}, this core at {:#x}", line.pc, retired.pc));
    }
    let say = |what: &str, there: u64, here: u64| {
        Some(format!("{what}: {there:#x} on Rocket, {here:#x} here; {retired}"))
    };
    let instruction = &retired.instruction;
    // Registers that instructions of the program read are what earlier ones wrote, late results included.
    let fields = [instruction.rs1, instruction.rs2];
    for (index, (number, there)) in line.reads.into_iter().enumerate() {
        let here = traced.operands[index];
        // The log names operands of the other register file too, with values that mean nothing.
        let is_integer = instruction.sources().any(|source| source == Register::x(number));
        let is_meant = is_integer && !(index == 1 && instruction.is_float());
        if number == fields[index] && is_meant && there != here {
            return say(Register::x(number).name(), there, here);
        }
    }
    // Multiplications, divisions and devices write after they have committed.
    let from_device = instruction.class() == Class::Load
        && retired.memory.is_some_and(|access| here::is_device(access.address));
    if from_device || matches!(instruction.class(), Class::Multiply | Class::Divide) {
        return None;
    }
    let reads_counter = instruction.class() == Class::Csr
        && matches!(instruction.immediate as u16, MCYCLE | MINSTRET | CYCLE | TIME | INSTRET);
    let write = retired.write.filter(|write| write.register.bank == Bank::X);
    match (write, line.write) {
        _ if reads_counter => None,
        (None, None) => None,
        (Some(RegisterWrite { register, value }), Some((number, there))) if register.number == number => {
            if value == there {
                None
            } else {
                say(register.name(), there, value)
            }
        }
        (here, there) => Some(format!("writes {there:x?} on Rocket, {here:x?} here; {retired}")),
    }
}
