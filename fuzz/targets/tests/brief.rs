//! Every target on its whole corpus and some thousands of mutations: part of every test run.

use std::path::Path;

use highwire_fuzz_targets::{TARGETS, corpus, corpus::Seeds, driver};

const MUTATIONS: u64 = 4_000;
const MUTATIONS_OF_SESSIONS: u64 = 100;

#[test]
fn every_target_holds() {
    let captures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/roce");
    for target in TARGETS {
        let seeds = corpus::seeds(target, &captures).expect("the captures are in the repository");
        assert!(!seeds.is_empty(), "{} has no seeds", target.name);
        let mutations = if target.seeds == Seeds::Sessions { MUTATIONS_OF_SESSIONS } else { MUTATIONS };
        let total = seeds.len() as u64 + mutations;
        let outcome = driver::run(target, &seeds, 1, |tried| tried < total);
        assert!(outcome.is_ok(), "{}: {outcome:?}", target.name);
    }
}

#[test]
fn the_same_seed_tries_the_same_inputs() {
    let seeds = vec![b"one".to_vec(), b"another".to_vec()];
    let (mut a, mut b) = (driver::Mutator::new(&seeds, 7), driver::Mutator::new(&seeds, 7));
    for _ in 0..1_000 {
        assert_eq!(a.next_input(), b.next_input());
    }
}

#[test]
fn each_target_has_a_libfuzzer_binary() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz_targets");
    for target in TARGETS {
        let file = folder.join(format!("{}.rs", target.name));
        assert!(file.is_file(), "{} is missing", file.display());
    }
}
