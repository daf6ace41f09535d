//! `core_selector` against [`Selector`].

use highwire_nanopu::nic::{Selection, Selector};
use highwire_stdx::Rng;

use crate::bench::{Bench, Block, join, ports};
use crate::compare::{Run, cycles};

const MESSAGE_BITS: usize = 6;
const MESSAGES: usize = 1 << MESSAGE_BITS;

ports!(Inputs { join_core: u64, finish: u64, arrive_valid: u64, arrive_message: u64, arrive_hash: u64 });

ports!(Outputs {
    next_valid: [u64; 2],
    next_message: [u64; 12],
    given_valid: u64,
    given_core: u64,
    outstanding: [u64; 4],
    waiting: u64,
});

fn block(cores: usize, selection: Selection) -> Block {
    let (bound, hashed) = match selection {
        Selection::Jbsq(bound) => (bound.into(), 0),
        Selection::Rss => (1, 1),
        Selection::Tree(_) => panic!("the block has one level"),
    };
    Block {
        top: "core_selector",
        parameters: vec![
            ("CORES", cores as u64),
            ("BOUND", bound),
            ("HASHED", hashed),
            ("MESSAGE_BITS", MESSAGE_BITS as u64),
        ],
        mutant: None,
    }
}

/// Messages come and are finished at random, in phases of little and of much to do; sometimes cores finish what they never had.
fn random(seed: u64, cores: usize, selection: Selection) -> Run<Inputs, Outputs> {
    let mut rng = Rng::new(seed);
    let (mut selector, mut joined, takes) = match selection {
        Selection::Rss => (Selector::new(selection, cores), vec![true; cores], 1),
        Selection::Jbsq(bound) => {
            (Selector::without_cores(selection, cores), vec![false; cores], bound.max(1) as usize)
        }
        Selection::Tree(_) => panic!("the block has one level"),
    };
    let mut free: Vec<u64> = (0..MESSAGES as u64).rev().collect();
    let mut held: Vec<Vec<u64>> = vec![Vec::new(); cores];
    let mut run = Run::new();
    let (mut arrivals, mut ends) = (0.0, 0.0);
    for cycle in 0..cycles() {
        if cycle % 500 == 0 {
            (arrivals, ends) = (rng.unit(), rng.unit() * 2.0 / cores as f64);
        }
        let mut inputs = Inputs::default();
        let mut outputs = Outputs {
            outstanding: join(MESSAGE_BITS + 1, (0..cores).map(|core| selector.outstanding(core).into())),
            waiting: selector.waiting() as u64,
            ..Outputs::default()
        };
        let (mut next, mut valid) = (vec![0; cores * takes], vec![0; cores * takes]);
        for core in 0..cores {
            // Some cores are there from the beginning, others come later.
            if !joined[core] && ((core % 2 == 0 && cycle == 50) || rng.chance(0.002)) {
                joined[core] = true;
                inputs.join_core |= 1 << core;
                for (place, message) in (core * takes..).zip(selector.join(core)) {
                    (valid[place], next[place]) = (1, message);
                    held[core].push(message);
                }
                continue;
            }
            let is_spurious = held[core].is_empty() && rng.chance(0.01);
            if is_spurious || (!held[core].is_empty() && rng.chance(ends)) {
                inputs.finish |= 1 << core;
                free.extend(held[core].pop());
                if let Some(message) = selector.finish(core) {
                    (valid[core * takes], next[core * takes]) = (1, message);
                    held[core].push(message);
                }
            }
        }
        outputs.next_message = join(MESSAGE_BITS, next);
        outputs.next_valid = join(1, valid);
        if rng.chance(arrivals)
            && let Some(message) = free.pop()
        {
            let hash = rng.below(cores as u64);
            (inputs.arrive_valid, inputs.arrive_message, inputs.arrive_hash) = (1, message, hash);
            if let Some((core, message)) = selector.arrive(message, hash) {
                (outputs.given_valid, outputs.given_core) = (1, core as u64);
                held[core].push(message);
            }
        }
        run.push(inputs, outputs);
    }
    run
}

fn check(cores: usize, selection: Selection) {
    let Some(bench) = Bench::build::<Inputs, Outputs>(&block(cores, selection)) else { return };
    for seed in 0..4 {
        let run = random(seed, cores, selection);
        run.check(&bench, &format!("core_selector: {cores} cores, {selection:?}, seed {seed}"));
    }
}

#[test]
fn jbsq_of_two_selects_as_the_model_does() {
    check(4, Selection::Jbsq(2));
}

#[test]
fn a_single_queue_selects_as_the_model_does() {
    check(5, Selection::Jbsq(1));
}

#[test]
fn jbsq_of_four_over_thirty_two_cores_selects_as_the_model_does() {
    check(32, Selection::Jbsq(4));
}

#[test]
fn rss_selects_as_the_model_does() {
    check(4, Selection::Rss);
}

#[test]
fn ties_that_go_to_the_wrong_core_are_found() {
    let block = Block { mutant: Some("MUTANT_LATE_TIES"), ..block(4, Selection::Jbsq(2)) };
    let Some(bench) = Bench::build::<Inputs, Outputs>(&block) else { return };
    let difference = random(1, 4, Selection::Jbsq(2)).difference(&bench, "a mutant").expect("a difference");
    println!("{difference}");
    assert!(difference.contains("port given_core"), "{difference}");
}
