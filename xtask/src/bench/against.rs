//! Today's program beside an earlier commit's: the cases of the speed table, both programs in turns.

use std::process::ExitCode;

use anyhow::{Result, bail};

use super::speed::{CASES, Case};
use super::{Args, machine};
use crate::measure::{Program, Quantity, Spread};
use crate::measurements;
use crate::shell::{Line, target_dir};
use crate::table::Table;

/// Measures, prints, and writes the section if it is asked to.
pub(super) fn run(today: &Program, earlier: &str, args: &Args) -> Result<ExitCode> {
    let commit = resolve(earlier)?;
    let before = build(&commit)?;
    let here = describe("HEAD")?;
    let changed =
        if Line::new("git").words("diff --quiet HEAD").run()? { "" } else { ", with uncommitted changes" };
    let table = measure(&before, today, args.runs)?;
    let text = format!(
        "`cargo xtask bench --against {} --runs {}`, on {}\n- before: {}\n- here: {here}{changed}\n\n{}",
        &commit[..8],
        args.runs,
        machine()?,
        describe(&commit)?,
        table.to_markdown()
    );
    println!("{}", table.to_text());
    if args.write_docs {
        measurements::AGAINST.write(&text)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The whole name of a commit.
fn resolve(name: &str) -> Result<String> {
    let output =
        Line::new("git").words("rev-parse --verify --quiet").arg(format!("{name}^{{commit}}")).capture()?;
    if !output.success {
        bail!("{name} is no commit of this repository");
    }
    Ok(output.stdout.trim().to_string())
}

/// A commit's short name, date and subject.
fn describe(commit: &str) -> Result<String> {
    let line = Line::new("git").words("show --no-patch --date=short --format=%h%x20(%ad)%x20%s").arg(commit);
    Ok(line.capture()?.stdout.trim().to_string())
}

/// The program as that commit had it, built in a checkout below the build folder, which later calls use again.
fn build(commit: &str) -> Result<Program> {
    let checkout = target_dir().join("against").join(commit);
    if !checkout.join("Cargo.toml").is_file() {
        eprintln!("checking {commit} out");
        let line = Line::new("git").words("worktree add --force --detach").arg(&checkout).arg(commit);
        let output = line.capture()?;
        if !output.success {
            bail!("git worktree: {}", output.stderr.trim());
        }
    }
    eprintln!("building it");
    let target = checkout.join("target");
    // The packages of older commits have other names.
    let mut line = Line::cargo("build --quiet --release --bin highwire");
    // Of older commits one program is all.
    if checkout.join("crates/lab").is_dir() {
        line = line.words("--bin highwire-lab");
    }
    let line = line.arg("--target-dir");
    if !line.arg(&target).dir(&checkout).run()? {
        bail!("the program of {commit} does not build");
    }
    Ok(Program::at(target.join("release/highwire")))
}

/// Every case, by both programs in turns; the one that begins changes from round to round.
fn measure(before: &Program, today: &Program, runs: u32) -> Result<Table> {
    let mut table = Table::new(&["what", "before", "here", "speed here / before", "lowest to highest"]);
    for case in CASES {
        eprintln!("measuring: {}", case.what);
        let mut rounds = Vec::new();
        for round in 0..runs {
            rounds.push(if round % 2 == 0 {
                let former = value(*case, before)?;
                (former, value(*case, today)?)
            } else {
                let latter = value(*case, today)?;
                (value(*case, before)?, latter)
            });
        }
        table.row(row(*case, &rounds));
    }
    Ok(table)
}

fn value(case: Case, program: &Program) -> Result<f64> {
    case.quantity.of(&program.json(case.command)?)
}

/// Medians of both, and of the ratios of each round: above 1 is faster here, for times and rates alike.
fn row(case: Case, rounds: &[(f64, f64)]) -> [String; 5] {
    let median = |values: Vec<f64>| Spread::of(values).expect("at least one run");
    let speed = |&(before, here): &(f64, f64)| match case.quantity {
        Quantity::RoundTrip => before / here,
        Quantity::Goodput | Quantity::Messages => here / before,
    };
    let ratio = median(rounds.iter().map(speed).collect());
    [
        case.what.to_string(),
        case.quantity.show(median(rounds.iter().map(|round| round.0).collect()).median),
        case.quantity.show(median(rounds.iter().map(|round| round.1).collect()).median),
        format!("{:.2} ×", ratio.median),
        format!("{:.2} to {:.2}", ratio.low, ratio.high),
    ]
}

/// A name that git cannot take for an option.
pub(super) fn is_commit_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.starts_with('-') {
        return Err("a commit's name, such as v0.1.0 or 78bdcf31".into());
    }
    Ok(text.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(quantity: Quantity) -> Case {
        *CASES.iter().find(|case| case.quantity == quantity).expect("there is one of each")
    }

    #[test]
    fn twice_as_fast_is_two_for_times_and_for_rates() {
        let time = row(case(Quantity::RoundTrip), &[(2000.0, 1000.0)]);
        assert_eq!(time[1..], ["2.00 µs", "1.00 µs", "2.00 ×", "2.00 to 2.00"].map(String::from));
        let rate = row(case(Quantity::Messages), &[(1e6, 2e6)]);
        assert_eq!(rate[1..], ["1.00 M/s", "2.00 M/s", "2.00 ×", "2.00 to 2.00"].map(String::from));
    }

    #[test]
    fn the_ratio_is_the_median_of_rounds_and_not_the_ratio_of_medians() {
        let rounds = [(1000.0, 1000.0), (4000.0, 2000.0), (9000.0, 3000.0)];
        assert_eq!(
            row(case(Quantity::RoundTrip), &rounds)[3..],
            ["2.00 ×", "1.00 to 3.00"].map(String::from)
        );
    }

    #[test]
    fn what_is_no_commit_is_refused_in_words() {
        let error = resolve("no-such-commit").expect_err("there is none");
        assert_eq!(error.to_string(), "no-such-commit is no commit of this repository");
        assert!(is_commit_name("--help").is_err());
    }
}
