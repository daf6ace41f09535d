//! Redis's own test suite, from Debian's source of Redis 7, against the Redis endpoints of the store.
//!
//! The suite runs against a server that it has not started, as it can. Some calls are about the inside of a Redis, and so the suite's procedure for
//! calls answers them itself: `FUNCTION FLUSH` before each group of tests, `MEMORY USAGE`, and thresholds between encodings.
//! Tests that do not pass are in `redis_suite.txt`, each with its reason. Any other test that fails, and any test in the list that passes, fails the run.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::debian::upstream;
use crate::packages;
use crate::shell::{Line, Log, target_dir};

/// The suite of Debian whose Redis is of the version that the store follows.
const SUITE: &str = "bookworm";
/// The files about what the store promises.
const FILES: &[&str] = &[
    "unit/type/string",
    "unit/type/incr",
    "unit/type/hash",
    "unit/type/list",
    "unit/type/list-2",
    "unit/type/list-3",
    "unit/type/set",
    "unit/type/zset",
    "unit/keyspace",
    "unit/scan",
    "unit/expire",
    "unit/multi",
    "unit/bitops",
    "unit/auth",
    "unit/acl",
];
/// Tests that Redis marks with these need its debugger, or more than ten minutes or gibibytes of memory.
const TAGS: &str = "-needs:debug -slow -large-memory";
/// A test that gives no sign of life for so long has failed.
const SILENCE_S: u32 = 900;
const EXPLAINED: &str = include_str!("redis_suite.txt");

/// In the suite's `r`: what it answers itself.
const CALL: &str = "proc r {args} {\n";
const CALL_HERE: &str = "proc r {args} {
    if {[lrange $args 0 1] eq {function flush}} { return OK }
    if {[lrange $args 0 1] eq {memory usage}} { return 1 }
    if {[string match -nocase {config [gs]et *-max-*} $args] || [string match -nocase {config [gs]et list-compress-depth*} $args]
        || [string match -nocase {config [gs]et save*} $args]} {
        return [expr {[string equal -nocase [lindex $args 1] set] ? {OK} : [list [lindex $args 2] 0]}]
    }
";

/// A test, or several, and why they do not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Explained<'a> {
    kind: Kind,
    file: &'a str,
    test: &'a str,
    reason: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// It is about the inside of a Redis.
    Inside,
    /// The store answers otherwise than Redis.
    Differs,
    /// The same, and what follows it cannot be run in its file: it is left out.
    Skip,
}

fn explained(text: &str) -> Result<Vec<Explained<'_>>> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|(at, line)| {
            let parts: Vec<&str> = line.split(" | ").map(str::trim).collect();
            let [kind, file, test, reason] = parts[..] else {
                bail!("redis_suite.txt:{}: kind, file, test and reason, with ` | ` between them", at + 1);
            };
            let kind = match kind {
                "inside" => Kind::Inside,
                "differs" => Kind::Differs,
                "skip" => Kind::Skip,
                _ => bail!("redis_suite.txt:{}: `{kind}` is none of inside, differs and skip", at + 1),
            };
            Ok(Explained { kind, file, test, reason })
        })
        .collect()
}

impl Explained<'_> {
    fn is_about(&self, file: &str, test: &str) -> bool {
        self.file == file && matches(self.test, test)
    }
}

/// Whether a text is as a pattern says, whose stars stand for anything.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(start) else { return false };
    (0..=text.len()).filter(|&at| text.is_char_boundary(at)).any(|at| matches(rest, &text[at..]))
}

/// What became of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Passed(String),
    Failed(String),
    Skipped(String),
}

/// The outcomes that the suite's output tells.
fn outcomes(output: &str) -> Vec<Outcome> {
    let mut found = Vec::new();
    for line in output.lines() {
        let line = plain(line);
        let Some((kind, rest)) = line.strip_prefix('[').and_then(|line| line.split_once("]: ")) else {
            continue;
        };
        match kind {
            "ok" => found.push(Outcome::Passed(rest.rsplit_once(" (").map_or(rest, |(name, _)| name).into())),
            "err" => found
                .push(Outcome::Failed(rest.rsplit_once(" in tests/").map_or(rest, |(name, _)| name).into())),
            "exception" | "TIMEOUT" => found.push(Outcome::Failed(format!("({kind}) {rest}"))),
            "skip" | "ignore" => found.push(Outcome::Skipped(rest.into())),
            _ => {}
        }
    }
    found
}

/// A line without its colours.
fn plain(line: &str) -> String {
    let mut parts = line.split("\x1b[");
    let mut text = parts.next().unwrap_or_default().to_string();
    parts.for_each(|part| text.push_str(part.split_once('m').map_or(part, |(_, text)| text)));
    text
}

/// Counts of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    passed: usize,
    inside: usize,
    differs: usize,
    unexplained: usize,
    skipped: usize,
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.inside += other.inside;
        self.differs += other.differs;
        self.unexplained += other.unexplained;
        self.skipped += other.skipped;
    }

    fn row(&self, name: &str) -> String {
        let Counts { passed, inside, differs, unexplained, skipped } = self;
        format!("| `{name}` | {passed} | {inside} | {differs} | {unexplained} | {skipped} |")
    }
}

fn judge(file: &str, outcomes: &[Outcome], explained: &[Explained<'_>]) -> (Counts, Vec<String>) {
    let mut counts = Counts::default();
    let mut said = Vec::new();
    let why = |test: &str| explained.iter().find(|one| one.is_about(file, test));
    for outcome in outcomes {
        match outcome {
            Outcome::Passed(test) => {
                counts.passed += 1;
                if let Some(one) = why(test) {
                    said.push(format!("passes, and is in the list: {file}: {test} ({})", one.reason));
                }
            }
            Outcome::Failed(test) => match why(test).map(|one| one.kind) {
                Some(Kind::Inside) => counts.inside += 1,
                Some(Kind::Differs | Kind::Skip) => counts.differs += 1,
                None => {
                    counts.unexplained += 1;
                    said.push(format!("fails: {file}: {test}"));
                }
            },
            Outcome::Skipped(test) => match why(test).map(|one| one.kind) {
                Some(Kind::Skip | Kind::Differs) => counts.differs += 1,
                _ => counts.skipped += 1,
            },
        }
    }
    if outcomes.is_empty() {
        said.push(format!("{file}: the suite tells of no test"));
        counts.unexplained += 1;
    }
    (counts, said)
}

/// Runs the suite against clusters of one and of three nodes, or against the server at an address.
pub(super) fn run(at: Option<&str>, only: &[String]) -> Result<ExitCode> {
    let log = Log::create("redis-suite")?;
    if let Err(missing) = packages::ensure(&["tcl"], &log)? {
        bail!("{}", missing.0);
    }
    let explained = explained(EXPLAINED)?;
    let tree = fetch()?;
    let files: Vec<&str> = FILES
        .iter()
        .copied()
        .filter(|file| only.is_empty() || only.iter().any(|name| file.ends_with(name.as_str())))
        .collect();
    let mut is_good = !files.is_empty();
    if let Some(at) = at {
        let (host, port) = at.rsplit_once(':').context("--at takes host:port")?;
        return Ok(exit(against(&tree, (host, port), &files, &explained, &log)?));
    }
    if !Line::cargo("build --package highwire").run()? {
        bail!("the program does not build");
    }
    for nodes in [1, 3] {
        println!("\n{nodes} node{}", if nodes == 1 { "" } else { "s" });
        let server = Server::start(nodes)?;
        is_good &= against(&tree, ("127.0.0.1", &server.port.to_string()), &files, &explained, &log)?;
    }
    println!("{}", log.path().display());
    Ok(exit(is_good))
}

fn exit(is_good: bool) -> ExitCode {
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn against(
    tree: &Path,
    (host, port): (&str, &str),
    files: &[&str],
    explained: &[Explained<'_>],
    log: &Log,
) -> Result<bool> {
    println!(
        "| file | passed | about Redis's inside | differs | unexplained | skipped |\n|---|---:|---:|---:|---:|---:|"
    );
    let (mut all, mut said) = (Counts::default(), Vec::new());
    for file in files {
        let mut line = Line::new("timeout")
            .words("3600 tclsh tests/test_helper.tcl --singledb --ignore-encoding --ignore-digest --durable --no-latency")
            .words(&format!("--host {host} --port {port} --timeout {SILENCE_S} --single {file} --tags"))
            .arg(TAGS)
            .dir(tree);
        for one in explained.iter().filter(|one| one.kind == Kind::Skip && one.file == *file) {
            line = line.arg("--skiptest").arg(one.test);
        }
        let output = line.capture()?;
        log.note(&format!("== {file}\n{}\n{}", output.stdout, output.stderr))?;
        let (counts, mut more) = judge(file, &outcomes(&output.stdout), explained);
        println!("{}", counts.row(file));
        all.add(counts);
        said.append(&mut more);
    }
    println!("{}", all.row("all"));
    let beside = all.passed + all.differs + all.unexplained;
    println!(
        "{} of {beside} tests that are not about Redis's inside pass: {} %",
        all.passed,
        100 * all.passed / beside.max(1)
    );
    said.iter().for_each(|line| println!("{line}"));
    Ok(said.is_empty())
}

/// A cluster on this machine, until it is dropped.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(nodes: u16) -> Result<Server> {
        let first = free_ports(2 * nodes)?;
        let port = first + nodes;
        let program = target_dir().join("debug/highwire");
        // The lease outlasts what keeps a node of a busy machine from its core.
        let words = format!("store serve --nodes {nodes} --lease-ms 20000 --port {first} --resp {port}");
        let line = Line::new(&program.display().to_string()).words(&words);
        let mut child =
            line.command().stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let output = child.stdout.take().context("its output")?;
        let mut server = Server { child, port };
        let mut lines = BufReader::new(output).lines();
        if !lines.any(|line| line.is_ok_and(|line| line.contains("the store serves"))) {
            let _ = server.child.wait();
            bail!("the cluster has ended before it served");
        }
        // Its further output is read and discarded, so that it never waits for this process.
        std::thread::spawn(move || lines.for_each(drop));
        Ok(server)
    }
}

fn free_ports(count: u16) -> Result<u16> {
    for _ in 0..100 {
        let first = TcpListener::bind("127.0.0.1:0")?;
        let port = first.local_addr()?.port();
        let others = (1..count).map(|node| TcpListener::bind(("127.0.0.1", port.saturating_add(node))));
        if port < u16::MAX - count && others.collect::<std::io::Result<Vec<_>>>().is_ok() {
            return Ok(port);
        }
    }
    bail!("no {count} ports in a row are free")
}

/// The suite's folder.
fn fetch() -> Result<PathBuf> {
    let work = target_dir().join("redis-suite");
    let done = work.join("done");
    if done.exists() {
        return Ok(work.join("tree"));
    }
    let _ = fs::remove_dir_all(&work);
    let (tree, _) = upstream(SUITE, "redis", &work)?;
    let helper = tree.join("tests/test_helper.tcl");
    let text = fs::read_to_string(&helper).with_context(|| helper.display().to_string())?;
    if text.matches(CALL).count() != 1 {
        bail!("the suite's procedure for calls is not where it was");
    }
    fs::write(&helper, text.replace(CALL, CALL_HERE))?;
    fs::write(&done, "")?;
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_explained_tests_is_well_formed() {
        let all = explained(EXPLAINED).expect("a list");
        for one in &all {
            assert!(FILES.contains(&one.file), "{}", one.file);
            assert!(one.reason.len() > 10, "{}: a reason", one.test);
            // The suite itself is told what to leave out, by its whole name.
            assert!(one.kind != Kind::Skip || !one.test.contains('*'), "{}", one.test);
        }
        assert!(
            explained("inside | unit/scan | a test\n").is_err() && explained("maybe | f | t | r\n").is_err()
        );
    }

    #[test]
    fn outcomes_are_read_from_coloured_lines() {
        let text = "\x1b[0;32;49mok\x1b[0m\n[\x1b[0;32;49mok\x1b[0m]: a (b) (3 ms)\n[err]: c in d in tests/unit/x.tcl\nmore\n[ignore]: e: tag\n\
                    [exception]: Executing test client: x.\n[testing]: f\n";
        assert_eq!(
            outcomes(text),
            [
                Outcome::Passed("a (b)".into()),
                Outcome::Failed("c in d".into()),
                Outcome::Skipped("e: tag".into()),
                Outcome::Failed("(exception) Executing test client: x.".into()),
            ]
        );
    }

    #[test]
    fn what_fails_is_explained_or_fails_the_run_and_so_does_what_passes_though_it_is_explained() {
        let list = "inside | f | in* | about encodings\ndiffers | f | *other | is another\nskip | f | hangs | it waits\n";
        let list = explained(list).expect("a list");
        let (failed, passed) =
            (|name: &str| Outcome::Failed(name.into()), |name: &str| Outcome::Passed(name.into()));
        let all = [
            passed("a"),
            failed("inside"),
            failed("an other"),
            failed("new"),
            Outcome::Skipped("hangs".into()),
        ];
        let (counts, said) = judge("f", &all, &list);
        assert_eq!(counts, Counts { passed: 1, inside: 1, differs: 2, unexplained: 1, skipped: 0 });
        assert_eq!(said, ["fails: f: new"]);
        assert_eq!(judge("f", &[passed("in")], &list).1.len(), 1);
        assert_eq!(judge("g", &[failed("in")], &list).1, ["fails: g: in"]);
        assert_eq!(judge("f", &[], &list).0.unexplained, 1, "a suite that does not run is no success");
    }

    #[test]
    fn stars_stand_for_anything() {
        for (pattern, text, expected) in [
            ("a", "a", true),
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c*", "abcd", true),
            ("a", "ab", false),
            ("*b", "abc", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
