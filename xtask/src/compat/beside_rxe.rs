//! `cargo xtask compat --beside-rxe`: the same command lines and suites on Highwire and on the kernel's software RNIC.
//!
//! The kernel's runs are in the guest of `cargo xtask interop`, with both ends there, under the same judges. Highwire's
//! are the latest results of `cargo xtask compat`; those that are missing are made first.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Result;

use crate::interop::suites::{self as guest, Ran, Task};
use crate::measurements;

use super::case::{Case, Link, Script};
use super::outcome::{End, Outcome};
use super::results::Store;
use super::suite::{self, Ending};
use super::verdict::Verdict;
use super::{Workshop, catalogue, ends, page};

/// Groups of the catalogue that need nothing but verbs and `rdma_cm`.
const GROUPS: [&str; 4] = ["ibverbs-utils", "perftest", "rdmacm-utils", "qperf"];

/// The guest's processor is emulated.
const TIMES_AS_LONG: u64 = 4;
/// What takes minutes on a processor would take an hour in the guest.
const SECONDS_MAX: u64 = 60;
/// Below the time that the agent may take for an answer.
const SUITE_SECONDS: u64 = 140;

/// How many of a group's runs did what they should.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Score {
    works: usize,
    fails: usize,
    skipped: usize,
}

/// One row of the page: a command line or a test, and the two verdicts on it.
struct Row {
    group: String,
    title: String,
    here: Verdict,
    rxe: Verdict,
}

/// Plays the kernel's runs, and prints or writes the table.
pub(super) fn run(workshop: &Workshop, only: Option<&str>, write_docs: bool) -> Result<()> {
    let mut cases = catalogue::all();
    cases.retain(|case| is_compared(case) && only.is_none_or(|text| case.line().contains(text)));
    let modules = suite::modules().into_iter().filter(|name| only.is_none_or(|text| name.contains(text)));
    let modules: Vec<String> = modules.collect();
    let tests = if modules.is_empty() { PathBuf::new() } else { suite::unpacked(workshop)? };
    let mut tasks: Vec<Task> = (25_000..).zip(&cases).map(|(port, case)| task(case, port)).collect();
    tasks.extend(modules.iter().map(|module| module_task(&tests, module)));
    let guest::Played { kernel, ran } = match guest::play(&tasks, &in_the_guest(&tasks, &tests))? {
        Ok(played) => played,
        Err(reason) => {
            println!("nothing was compared: {reason}");
            return Ok(());
        }
    };
    let here = here(workshop, &cases, &modules)?;
    let (of_cases, of_modules) = ran.split_at(cases.len());
    let mut rows: Vec<Row> = cases
        .iter()
        .zip(of_cases)
        .zip(here)
        .map(|((case, ran), here)| Row {
            group: case.group.into(),
            title: case.title.clone(),
            here,
            rxe: judged(case, ran),
        })
        .collect();
    rows.extend(of_tests(&modules, of_modules));
    println!("\n{}", table(&rows));
    if write_docs {
        measurements::SOFT_ROCE.write(&text(&rows, &kernel))?;
    }
    Ok(())
}

/// Highwire's verdicts on the cases.
fn here(workshop: &Workshop, cases: &[Case], modules: &[String]) -> Result<Vec<Verdict>> {
    let path = workshop.results();
    let mut store = Store::load(&path);
    let begun = suite::endings();
    let of_suite = catalogue::all().into_iter().filter(|case| {
        let is_begun = || begun.keys().any(|name| name.starts_with(&format!("{}.", case.title)));
        case.group == suite::GROUP && modules.contains(&case.title) && !is_begun()
    });
    let missing = cases.iter().filter(|case| !store.has(case)).cloned();
    for case in missing.chain(of_suite).collect::<Vec<Case>>() {
        let verdict = ends::run(workshop, &case)?;
        println!("Highwire: {}: {verdict}", case.line());
        store.put(&case, &verdict);
        store.save(&path)?;
    }
    Ok(store.results(cases).rows.into_iter().map(|row| row.verdict).collect())
}

/// Each command line once: over UDP, as the kernel's travels, where it has a choice.
fn is_compared(case: &Case) -> bool {
    let is_plain = case.options.is_empty() && case.link != Link::Shm && case.seconds_max <= SECONDS_MAX;
    is_plain && GROUPS.contains(&case.group) && !matches!(case.script, Script::Special(_))
}

/// The case as the guest runs it.
fn task(case: &Case, port: u16) -> Task {
    let filled = |text: &str| {
        text.replace("{port}", &port.to_string())
            .replace("{address}", guest::ADDRESS)
            .replace("{device}", guest::ADDRESS)
            .replace("{folder}", "/tmp")
            // The kernel's first GID is of the link's own addresses; the second belongs to the address above.
            .replace("-g 0 ", "-g 1 ")
    };
    let seconds_max = (case.seconds_max * TIMES_AS_LONG).min(SECONDS_MAX);
    match &case.script {
        Script::Two { server, client, server_stays, .. } => Task {
            server: Some(filled(server)),
            client: filled(client),
            seconds_max,
            server_stays: *server_stays,
        },
        Script::One(text) => Task { server: None, client: filled(text), seconds_max, server_stays: false },
        Script::Special(_) => unreachable!("those are left out"),
    }
}

fn module_task(tests: &std::path::Path, module: &str) -> Task {
    let client = format!(
        "env HOME=/tmp PYTHONDONTWRITEBYTECODE=1 /usr/bin/python3 {}/run_tests.py --dev rxe0 --gid 1 -v tests.{module}",
        tests.display()
    );
    Task { server: None, client, seconds_max: SUITE_SECONDS, server_stays: false }
}

/// The programs of the tasks, Python with its own modules and rdma-core's, and the tests.
fn in_the_guest(tasks: &[Task], tests: &std::path::Path) -> Vec<PathBuf> {
    let commands = tasks.iter().flat_map(|task| task.server.iter().chain([&task.client]));
    let names = commands.filter_map(|text| text.split_whitespace().next());
    let mut paths: Vec<PathBuf> = names
        .flat_map(|name| ["/usr/bin", "/usr/sbin"].map(|folder| PathBuf::from(folder).join(name)))
        .filter(|path| path.is_file() && !path.is_symlink())
        .collect();
    if tests.is_dir() {
        paths.extend(["/usr/bin/python3", "/usr/lib/python3/dist-packages/pyverbs"].map(PathBuf::from));
        paths.extend(python_modules());
        paths.push(tests.to_owned());
    }
    paths.sort();
    paths.dedup();
    paths
}

/// The folder with Python's own modules; one of several versions is the newest.
fn python_modules() -> Option<PathBuf> {
    let entries = std::fs::read_dir("/usr/lib").ok()?;
    let folders = entries.filter_map(|entry| Some(entry.ok()?.path()));
    folders.filter(|path| path.join("unittest").is_dir()).max()
}

/// The same judge as Highwire's runs have.
fn judged(case: &Case, ran: &Ran) -> Verdict {
    if ran.client.status.is_none() {
        return Verdict::Skipped("did not end in the emulated guest's time".into());
    }
    let end = |end: &guest::End, was_dismissed: bool| End {
        output: end.output.clone(),
        // As `wait` tells it: a shell adds 128 to the number of a signal.
        status: end
            .status
            .map(|status| ExitStatus::from_raw(if status > 128 { status - 128 } else { status << 8 })),
        was_dismissed,
        elapsed: Duration::ZERO,
    };
    let stays = matches!(case.script, Script::Two { server_stays: true, .. });
    let outcome = Outcome {
        client: end(&ran.client, false),
        server: ran.server.as_ref().map(|server| end(server, stays)),
        folder: PathBuf::new(),
    };
    match outcome.trouble() {
        Some(trouble) => Verdict::Fails(trouble),
        None => match (case.judge)(&outcome) {
            Ok(_) => Verdict::Works(String::new()),
            Err(reason) => Verdict::Fails(reason),
        },
    }
}

/// rdma-core's tests one by one. One that only one side has begun did not run on the other.
fn of_tests(modules: &[String], ran: &[Ran]) -> Vec<Row> {
    let here = suite::endings();
    let mut rxe = BTreeMap::new();
    for ran in ran {
        rxe.extend(suite::parse(&ran.client.output));
    }
    let is_of = |name: &&String| modules.iter().any(|module| name.starts_with(&format!("{module}.")));
    let mut names: Vec<&String> = here.keys().chain(rxe.keys()).filter(is_of).collect();
    names.sort();
    names.dedup();
    let verdict = |ending: Option<&Ending>| match ending {
        Some(Ending::Passed) => Verdict::Works(String::new()),
        Some(Ending::Failed(how)) => Verdict::Fails(how.clone()),
        Some(Ending::Skipped(reason)) => Verdict::Skipped(reason.clone()),
        None => Verdict::Skipped("not run".into()),
    };
    names
        .into_iter()
        .map(|name| Row {
            group: suite::GROUP.into(),
            title: name.clone(),
            here: verdict(here.get(name)),
            rxe: verdict(rxe.get(name)),
        })
        .collect()
}

fn score<'a>(verdicts: impl Iterator<Item = &'a Verdict>) -> Score {
    verdicts.fold(Score::default(), |mut score, verdict| {
        match verdict {
            Verdict::Works(_) => score.works += 1,
            Verdict::Fails(_) => score.fails += 1,
            Verdict::Skipped(_) => score.skipped += 1,
        }
        score
    })
}

impl std::fmt::Display for Score {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Score { works, fails, skipped } = self;
        write!(f, "{works} | {fails} | {skipped}")
    }
}

fn groups(rows: &[Row]) -> Vec<&str> {
    let mut groups: Vec<&str> = Vec::new();
    for row in rows {
        if !groups.contains(&row.group.as_str()) {
            groups.push(&row.group);
        }
    }
    groups
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| suite | runs | Highwire works | fails | skipped | rxe works | fails | skipped |\n|---|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for group in groups(rows) {
        let of = || rows.iter().filter(|row| row.group == group);
        let (here, rxe) = (score(of().map(|row| &row.here)), score(of().map(|row| &row.rxe)));
        let _ = writeln!(text, "| {group} | {} | {here} | {rxe} |", of().count());
    }
    text
}

fn text(rows: &[Row], kernel: &str) -> String {
    let count =
        |side: fn(&Row) -> &Verdict| rows.iter().filter(|row| matches!(side(row), Verdict::Works(_))).count();
    let mut text = format!(
        "{} runs, on {}: {} work on Highwire, {} on rxe of Linux {kernel}.\n\n",
        rows.len(),
        page::machine(),
        count(|row| &row.here),
        count(|row| &row.rxe)
    );
    text += &table(rows);
    text += "\n<details><summary>The runs where they differ</summary>\n\n| suite | run | Highwire | rxe |\n|---|---|---|---|\n";
    let kind = |verdict: &Verdict| std::mem::discriminant(verdict);
    for row in rows.iter().filter(|row| kind(&row.here) != kind(&row.rxe)) {
        let (here, rxe) = (page::cell(Some(&without_note(&row.here))), page::cell(Some(&row.rxe)));
        let _ = writeln!(text, "| {} | `{}` | {here} | {rxe} |", row.group, row.title.replace('|', "\\|"));
    }
    text + "\n</details>"
}

/// Figures of speed do not belong here.
fn without_note(verdict: &Verdict) -> Verdict {
    match verdict {
        Verdict::Works(_) => Verdict::Works(String::new()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_compared_by_the_same_line_and_judge() {
        let cases: Vec<Case> = catalogue::all().into_iter().filter(is_compared).collect();
        for group in GROUPS {
            assert!(cases.iter().any(|case| case.group == group), "{group}");
        }
        for case in &cases {
            let task = task(case, 25_000);
            let whole = format!("{:?} {}", task.server, task.client);
            assert!(!whole.contains('{'), "{whole}");
        }
    }

    #[test]
    fn the_table_counts_each_side_and_the_list_has_what_differs() {
        let row = |title: &str, here, rxe| Row { group: "perftest".into(), title: title.into(), here, rxe };
        let works = || Verdict::Works("9 µs".into());
        let fails = || Verdict::Fails("exit 1".into());
        let rows = [
            row("a", works(), works()),
            row("b", works(), fails()),
            row("c", works(), Verdict::Skipped("x".into())),
        ];
        let text = text(&rows, "6.1");
        assert!(text.contains("| perftest | 3 | 3 | 0 | 0 | 1 | 1 | 1 |"), "{text}");
        assert!(text.contains("| perftest | `b` | ok | **fails**: exit 1 |"), "{text}");
        assert!(!text.contains("`a`") && !text.contains("9 µs"), "{text}");
    }
}
