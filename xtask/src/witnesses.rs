//! Other people's checkers on the histories of the store: their verdicts do not rest on Highwire's own.

use anyhow::Result;

use crate::measure::PROGRAMS;
use crate::shell::{Line, Log, has_program, root, target_dir};
use crate::test::Tally;

/// Seeds whose histories are checked.
const SEEDS: u64 = 8;

/// Porcupine on every single key of simulated clusters, after its own tests, which feed it wrong histories.
pub(crate) fn step(log: &Log) -> Result<Tally> {
    if !has_program("go") {
        return Ok(Tally::skipped("witnesses", "no go here, which builds Porcupine"));
    }
    let porcupine = root().join("checkers/porcupine");
    let go = |words: &str| Line::new("go").words(words).dir(&porcupine);
    if !go("mod download").run_logged(log)? {
        return Ok(Tally::skipped(
            "witnesses",
            "the Go proxy is out of reach, and Porcupine not kept from before",
        ));
    }
    let mut tally = Tally::one(go("test ./...").run_logged(log)?);
    if !Line::cargo(PROGRAMS).run_logged(log)? {
        return Ok(Tally::failure());
    }
    let program = target_dir().join("debug/highwire");
    let folder = target_dir().join("xtask/histories");
    std::fs::create_dir_all(&folder)?;
    for seed in 0..SEEDS {
        let history = folder.join(format!("seed-{seed}.jsonl"));
        let recorded = Line::new(&program.display().to_string())
            .words("store check --form single-keys --seed")
            .arg(seed.to_string())
            .arg("--history")
            .arg(&history)
            .run_logged(log)?;
        tally.add(Tally::one(recorded && go("run .").arg(&history).run_logged(log)?));
    }
    Ok(tally)
}
