//! The report for a person: the end of a failing log, and the table at the end.

use crate::shell::{Log, root};

use super::steps::Step;
use super::tally::Tally;

/// Lines of a failing step's log that are worth a screen.
const TAIL_LINES: usize = 40;
/// Of a binary that ended without a result. One that hung has told where each of its threads stood.
const LAST_WORDS: usize = 160;

/// A step that has run.
pub(super) struct Finished {
    pub(super) step: &'static Step,
    pub(super) log: Log,
    pub(super) tally: Tally,
    pub(super) seconds: f64,
}

/// Shows the end of the log, and how to repeat the failing command.
pub(super) fn show_failure(done: &Finished) {
    let text = done.log.text().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    println!();
    for line in interesting(&lines) {
        println!("    {line}");
    }
    let shown = done.log.path().strip_prefix(root()).unwrap_or(done.log.path());
    println!("\n    log:    {}", shown.display());
    if let Some(line) = lines.iter().rev().find_map(|line| line.strip_prefix("$ ")) {
        println!("    repeat: {line}");
    }
    println!("    or:     cargo xtask test {}\n", done.step.name);
}

/// The messages of failing tests, at any place in the log; otherwise the first error, or the tail.
fn interesting<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let failures = failures(lines);
    if !failures.is_empty() {
        return failures;
    }
    let tail = lines.len().saturating_sub(TAIL_LINES);
    let first_error = lines.iter().position(|line| line.starts_with("error"));
    let from = first_error.filter(|&first| first < tail && lines.len() - first < 3 * TAIL_LINES);
    lines[from.unwrap_or(tail)..].to_vec()
}

/// The binaries with failing tests, and the output of each such test, without the frames of backtraces. Of a binary that ended
/// without a result, as one does that a signal kills, it is the end of what it said.
fn failures<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let mut shown = Vec::new();
    let starts = |line: &str| {
        let line = line.trim_start();
        line.starts_with("Running ") || line.starts_with("Doc-tests ")
    };
    let first = lines.iter().position(|line| starts(line)).unwrap_or(lines.len());
    for part in lines[first..].chunk_by(|_, line| !starts(line)) {
        let result = part.iter().position(|line| line.starts_with("test result: "));
        match result {
            Some(end) if part[end].contains("FAILED") => {
                let first = part[..end].iter().position(|line| *line == "failures:").unwrap_or(0);
                shown.extend(["", part[0]]);
                shown.extend(without_frames(&part[first..=end]));
            }
            Some(_) => {}
            None => {
                // What cargo says of the binary belongs to it; what it says of all comes after.
                let end = part.iter().position(|line| line.starts_with("error: ") && line.contains("target"));
                let said = without_frames(&part[1..end.unwrap_or(part.len())]);
                shown.extend(["", part[0]]);
                shown.extend(&said[said.len().saturating_sub(LAST_WORDS)..]);
            }
        }
    }
    shown
}

/// Of each test's output the beginning and the end.
fn without_frames<'a>(lines: &[&'a str]) -> Vec<&'a str> {
    let mut shown = Vec::new();
    let speaks = |line: &&&'a str| !is_a_frame(line) && !line.is_empty();
    for part in lines.chunk_by(|_, line| !line.starts_with("---- ")) {
        let part: Vec<&str> = part.iter().filter(speaks).copied().collect();
        let (beginning, rest) = part.split_at(part.len().min(TAIL_LINES / 2));
        shown.extend(beginning);
        if rest.len() > TAIL_LINES {
            shown.push("[…]");
        }
        shown.extend(&rest[rest.len().saturating_sub(TAIL_LINES)..]);
    }
    shown
}

fn is_a_frame(line: &str) -> bool {
    let line = line.trim_start();
    let number = line.split_once(": ").is_some_and(|(first, _)| first.parse::<u32>().is_ok());
    number || line.starts_with("at ") || line == "stack backtrace:"
}

/// The table of steps, the skips with their reasons, and the counts on the last line. Of several rounds each step has one row:
/// its tests, summed, in how many rounds all of them passed, and the longest time.
pub(super) fn show_summary(finished: &[Finished], rounds: u32) {
    let of_rounds = if rounds > 1 { format!(" {:>8}", "rounds") } else { String::new() };
    println!(
        "\n{:<12} {:<8} {:>7} {:>7} {:>8} {:>9}{of_rounds}",
        "step", "", "passed", "failed", "skipped", "seconds"
    );
    let mut total = Tally::default();
    for row in rows(finished) {
        let of_rounds = if rounds > 1 { format!(" {:>4}/{rounds:<3}", row.green) } else { String::new() };
        println!(
            "{:<12} {:<8} {:>7} {:>7} {:>8} {:>9.1}{of_rounds}",
            row.name,
            row.tally.verdict(),
            row.tally.passed(),
            row.tally.failed(),
            row.tally.skips().len(),
            row.seconds
        );
        total.add(row.tally);
    }
    if !total.skips().is_empty() {
        println!("\nskipped:");
        for skip in total.skips() {
            println!("  {}: {}", skip.what, skip.reason);
        }
    }
    println!("\n{} passed, {} failed, {} skipped", total.passed(), total.failed(), total.skips().len());
}

/// The result of all rounds of a step.
#[derive(Debug, PartialEq)]
struct Row {
    name: &'static str,
    tally: Tally,
    green: usize,
    seconds: f64,
}

fn rows(finished: &[Finished]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for done in finished {
        let green = usize::from(done.tally.failed() == 0);
        match rows.iter_mut().find(|row| row.name == done.step.name) {
            Some(row) => {
                row.tally.add(done.tally.clone());
                row.green += green;
                row.seconds = row.seconds.max(done.seconds);
            }
            None => rows.push(Row {
                name: done.step.name,
                tally: done.tally.clone(),
                green,
                seconds: done.seconds,
            }),
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
     Running tests/early.rs (target/debug/deps/early-1)
test fine ... ok
failures:

---- what_fails stdout ----
node 1: standing
thread 'what_fails' panicked at early.rs:1:1:
too long
stack backtrace:
   0: __rustc::rust_begin_unwind
             at /rustc/library/std/src/panicking.rs:689:5

failures:
    what_fails

test result: FAILED. 1 passed; 1 failed; 0 ignored
     Running tests/late.rs (target/debug/deps/late-1)
successes:
    another
test result: ok. 9 passed; 0 failed; 0 ignored
error: 1 target failed:";

    #[test]
    fn what_a_test_said_is_shown_wherever_it_stands_in_the_log() {
        let more = vec!["successes"; 500];
        let lines: Vec<&str> = LOG.lines().chain(more).collect();
        let shown = interesting(&lines).join("\n");
        for part in ["tests/early.rs", "what_fails stdout", "node 1: standing", "too long", "1 failed"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        for part in ["late.rs", "another", "rust_begin", "panicking.rs", "successes"] {
            assert!(!shown.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn a_binary_that_ends_without_a_result_is_shown_with_its_last_words() {
        const ENDS: &str = "\
     Running tests/in_main.rs (target/debug/deps/in_main-1)
running 2 tests
test first ... ok
thread 'main' panicked at in_main.rs:7:5:
nobody else is needed
error: test failed, to rerun pass `-p a --test in_main`
Caused by:
  process didn't exit successfully: `in_main` (signal: 11, SIGSEGV: invalid memory reference)
     Running tests/late.rs (target/debug/deps/late-1)
test other ... ok
test result: ok. 1 passed; 0 failed; 0 ignored
error: 1 target failed:
    `-p a --test in_main`";
        let lines: Vec<&str> = ENDS.lines().collect();
        let shown = interesting(&lines).join("\n");
        for part in ["tests/in_main.rs", "test first", "nobody else", "SIGSEGV"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        assert!(!shown.contains("late") && !shown.contains("other"), "{shown}");
        // The last of all binaries, too.
        let shown = interesting(&lines[..8]).join("\n");
        assert!(shown.contains("nobody else") && shown.contains("SIGSEGV"), "{shown}");
    }

    #[test]
    fn a_test_that_says_much_is_cut_in_its_middle() {
        let much: Vec<String> = (0..500).map(|line| format!("line {line}")).collect();
        let mut lines = vec!["     Running tests/t.rs", "failures:", "---- t stdout ----"];
        lines.extend(much.iter().map(String::as_str));
        lines.push("test result: FAILED. 0 passed; 1 failed");
        let shown = interesting(&lines);
        assert!(shown.len() < 100 && shown.contains(&"line 3") && shown.contains(&"line 499"), "{shown:?}");
        assert!(shown.contains(&"[…]") && !shown.contains(&"line 200"));
    }

    #[test]
    fn a_step_of_many_rounds_is_one_row_that_says_how_many_were_green() {
        let done = |index: usize, tally, seconds| Finished {
            step: &crate::test::steps::ALL[index],
            log: Log::create("rounds-of-the-test").expect("a log"),
            tally,
            seconds,
        };
        let finished = [
            done(0, Tally::counts(5, 0), 2.0),
            done(1, Tally::counts(1, 0), 1.0),
            done(0, Tally::counts(3, 2), 9.0),
            done(1, Tally::counts(1, 0), 1.0),
            done(0, Tally::counts(5, 0), 3.0),
        ];
        let rows = rows(&finished);
        let of = |row: &Row| (row.tally.passed(), row.tally.failed(), row.green, row.seconds);
        assert_eq!(rows.iter().map(of).collect::<Vec<_>>(), [(13, 2, 2, 9.0), (2, 0, 2, 1.0)]);
    }

    #[test]
    fn without_tests_the_first_error_is_shown() {
        let mut lines = vec!["Checking a"; 60];
        lines.push("error: unresolved link");
        lines.extend(vec!["context"; 50]);
        assert_eq!(interesting(&lines)[0], "error: unresolved link");
        assert_eq!(interesting(&vec!["quiet"; 100]).len(), TAIL_LINES);
    }
}
