//! Test suites that take too long, or download too much, for the step of `cargo xtask test`: other projects'
//! own, over TCP and over Highwire.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use super::{attribute, first_read, maven, memcached};
use crate::shell::{Log, root};

/// Options of `cargo xtask java`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask java first-read     a new Maven project with one dependency, without Rust in its path
  cargo xtask java hadoop         java/hdfs with stock Hadoop: 108 MB from Maven Central the first time
  cargo xtask java hadoop-suite   classes of HDFS's own test suite, over TCP and with the NameNode's protocol over jvRPC
  cargo xtask java zookeeper      classes of ZooKeeper's own test suite, over TCP and over queue pairs
  cargo xtask java netty-suite    Netty's own tests of socket transports, over its NIO channels and over java/netty's
  cargo xtask java memcached-fuzz --commands 1000000 --seed 7
                                  the same commands to java/memcached and to memcached in C
  cargo xtask java memcached-suite
                                  memcached's own tests that are about protocols and slabs, against java/memcached")]
pub(crate) struct Args {
    /// What to run.
    suite: Suite,
    /// Only these classes, with commas between; for another project's suite.
    #[arg(long)]
    classes: Option<String>,
    /// Commands of memcached-fuzz.
    #[arg(long, default_value_t = 1_000_000)]
    commands: u64,
    /// The seed of memcached-fuzz.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Suite {
    /// A new project with one dependency, on a machine without Rust.
    FirstRead,
    /// The tests of java/hdfs.
    Hadoop,
    /// HDFS's own tests with and without the property of java/hdfs.
    #[value(name = "hadoop-suite")]
    Hdfs,
    /// ZooKeeper's own tests with and without the properties of java/zookeeper.
    Zookeeper,
    /// Netty's own tests with and without the channels of java/netty.
    #[value(name = "netty-suite")]
    Netty,
    /// Random commands, whose answers are compared with those of memcached in C.
    MemcachedFuzz,
    /// Tests of memcached's own suite, against java/memcached.
    #[value(name = "memcached-suite")]
    MemcachedTests,
}

impl Suite {
    /// Maven's arguments, and the module that has the tests.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Suite::Hadoop => ("-q -B -Phadoop,suite -pl hdfs -am verify", "hdfs"),
            Suite::Hdfs => ("-q -B -Phadoop-suite -DskipTests -pl hdfs-suite -am verify", "hdfs-suite"),
            Suite::Zookeeper => ("-q -B -Psuite -pl zookeeper -am verify", "zookeeper"),
            Suite::Netty => ("-q -B -Pnetty-suite -DskipTests -pl netty-suite -am verify", "netty-suite"),
            Suite::FirstRead | Suite::MemcachedFuzz | Suite::MemcachedTests => {
                ("-q -B -pl memcached -am package", "memcached")
            }
        }
    }

    /// The settings for running another project's tests without Highwire.
    fn stock(self) -> &'static [&'static str] {
        match self {
            Suite::FirstRead | Suite::Hadoop | Suite::MemcachedFuzz | Suite::MemcachedTests => &[],
            Suite::Hdfs => &["-Dsuite.engine=org.apache.hadoop.ipc.ProtobufRpcEngine2"],
            Suite::Netty => &["-Dsuite.transport=nio"],
            Suite::Zookeeper => &[
                "-Dsuite.client=org.apache.zookeeper.ClientCnxnSocketNIO",
                "-Dsuite.server=org.apache.zookeeper.server.NIOServerCnxnFactory",
            ],
        }
    }
}

/// Runs suites that take too long, or download too much, for the step of `cargo xtask test`.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let log = Log::create("java")?;
    match args.suite {
        Suite::FirstRead => return first_read::run(&log),
        Suite::MemcachedFuzz => return memcached::fuzz(args.commands, args.seed, &log),
        Suite::MemcachedTests => return memcached::suite(&log),
        _ => {}
    }
    let maven = || match maven(&log)? {
        Ok(Some(maven)) => Ok(maven),
        Ok(None) => bail!("the programs on the other side do not build: {}", log.path().display()),
        Err(missing) => bail!("{}", missing.0),
    };
    let (words, module) = args.suite.words();
    let target = root().join("java").join(module).join("target");
    let (reports, calls) = (target.join("suite-reports"), target.join("suite-calls"));
    let measure = |more: &[&str]| -> Result<(bool, Outcomes)> {
        for folder in [&reports, &calls] {
            if folder.exists() {
                std::fs::remove_dir_all(folder)?;
            }
        }
        let mut maven = more.iter().fold(maven()?.words(words), |maven, word| maven.arg(word));
        if let Some(classes) = &args.classes {
            maven = maven.arg(format!("-Dtest={classes}")).arg("-Dsurefire.failIfNoSpecifiedTests=false");
        }
        let success = maven.run_logged(&log)?;
        Ok((success, outcomes(&reports)?))
    };
    if args.suite == Suite::Hadoop {
        let (success, found) = measure(&[])?;
        let of = |outcome| found.values().filter(|other| **other == outcome).count();
        let failed = of(Outcome::NotOk);
        println!("{} passed, {failed} failed: {}", of(Outcome::Ok), log.path().display());
        return Ok(if success && failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    // A test that also fails without Highwire is not counted.
    let ignore = "-Dmaven.test.failure.ignore=true";
    eprintln!("the tests over TCP, then over Highwire");
    let (_, tcp) = measure(&[&[ignore], args.suite.stock()].concat())?;
    let (_, ours) = measure(&[ignore])?;
    print!("{}", table(&tcp, &ours));
    let mut is_good = !tcp.is_empty();
    if args.suite == Suite::Hdfs {
        // Passing tests prove nothing if their calls took another way.
        let calls = sum_of_files(&calls)?;
        println!("{calls} calls over jvRPC");
        is_good &= calls > 0;
    }
    if args.suite == Suite::Netty {
        let channels = sum_of_files(&calls)?;
        println!("{channels} client channels over queue pairs");
        is_good &= channels > 0;
    }
    for ((class, test), _) in tcp.iter().filter(|(_, outcome)| **outcome == Outcome::Ok) {
        if ours.get(&(class.clone(), test.clone())) == Some(&Outcome::Ok) {
            continue;
        }
        let Some(known) = EXPLAINED.iter().find(|known| known.is_of(class, test)) else {
            println!("{class}.{test} passes over TCP alone");
            is_good = false;
            continue;
        };
        println!("{class}.{test} passes over TCP alone: {}", known.reason);
        let (_, proof) = measure(&[&[ignore], known.proof].concat())?;
        let is_proved = known.has_failed(&proof);
        let verdict = if is_proved { "it fails too with" } else { "but it does not fail with" };
        println!("{verdict} {}", known.proof.join(" "));
        is_good &= is_proved;
    }
    println!("{}", log.path().display());
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A test that another way than TCP does not pass, for a reason that has nothing to do with that way.
struct Explained {
    /// The end of the class's name.
    class: &'static str,
    /// The begin of the test's name.
    test: &'static str,
    reason: &'static str,
    /// Settings without Highwire with which the test fails for the same reason.
    proof: &'static [&'static str],
}

impl Explained {
    fn is_of(&self, class: &str, test: &str) -> bool {
        class.ends_with(self.class) && test.starts_with(self.test)
    }

    fn has_failed(&self, found: &Outcomes) -> bool {
        found.iter().any(|((class, test), outcome)| self.is_of(class, test) && *outcome == Outcome::NotOk)
    }
}

const EXPLAINED: [Explained; 1] = [Explained {
    class: "SocketHalfClosed",
    test: "testAllDataReadEventTriggeredAfterHalfClosure",
    reason: "java.nio's selectors do not report the peer's end to a channel that does not read. The test returns at once for \
             event loops of NioIoHandler, and does not know that a channel which has fallen back to TCP is as theirs",
    proof: &["-Dsuite.transport=unnamed-nio", "-Dtest=SuiteTest$SocketHalfClosed"],
}];

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Ok,
    NotOk,
    Skipped,
}

/// The outcome of each test, by class and name.
type Outcomes = BTreeMap<(String, String), Outcome>;

/// The results in a folder's reports.
fn outcomes(folder: &Path) -> Result<Outcomes> {
    let mut found = Outcomes::new();
    for report in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if report.path().extension().is_some_and(|extension| extension == "xml") {
            add_outcomes(&std::fs::read_to_string(report.path())?, &mut found);
        }
    }
    Ok(found)
}

fn add_outcomes(report: &str, found: &mut Outcomes) {
    for case in report.split("<testcase ").skip(1) {
        let class = attribute(case, "classname").unwrap_or("?").rsplit('.').next().unwrap_or("?");
        let name = attribute(case, "name").unwrap_or("?");
        let outcome = if case.contains("<failure ") || case.contains("<error ") {
            Outcome::NotOk
        } else if case.contains("<skipped") {
            Outcome::Skipped
        } else {
            Outcome::Ok
        };
        found.insert((class.to_owned(), name.to_owned()), outcome);
    }
}

/// How many tests were ok, not ok and skipped, class by class.
fn table(tcp: &Outcomes, ours: &Outcomes) -> String {
    let classes: BTreeSet<&str> = tcp.keys().chain(ours.keys()).map(|(class, _)| class.as_str()).collect();
    let counts = |of: &Outcomes, class: Option<&str>| {
        [Outcome::Ok, Outcome::NotOk, Outcome::Skipped].map(|wanted| {
            let is_wanted = |((in_class, _), outcome): (&(String, String), &Outcome)| {
                class.is_none_or(|class| class == in_class) && *outcome == wanted
            };
            of.iter().filter(|entry| is_wanted(*entry)).count().to_string()
        })
    };
    let row = |name: &str, class: Option<&str>| {
        let (tcp, ours) = (counts(tcp, class).join(" | "), counts(ours, class).join(" | "));
        format!("| {name} | {tcp} | {ours} |\n")
    };
    let mut text = String::from(
        "| class | TCP: ok | not ok | skipped | Highwire: ok | not ok | skipped |\n|---|---:|---:|---:|---:|---:|---:|\n",
    );
    for class in classes {
        text += &row(&format!("`{class}`"), Some(class));
    }
    text + &row("all", None)
}

/// The sum of a number in each file of a folder.
fn sum_of_files(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(file.path())?;
        sum += text.trim().parse::<u64>().with_context(|| file.path().display().to_string())?;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_are_compared_test_by_test() {
        let (mut tcp, mut ours) = (Outcomes::new(), Outcomes::new());
        add_outcomes(
            "<testcase name=\"a\" classname=\"x.C\"/><testcase name=\"b\" classname=\"x.C\"><skipped/></testcase>",
            &mut tcp,
        );
        add_outcomes("<testcase name=\"a\" classname=\"x.C\"><error type=\"E\"/></testcase>", &mut ours);
        assert_eq!(ours.values().collect::<Vec<_>>(), [&Outcome::NotOk]);
        assert!(
            table(&tcp, &ours)
                .ends_with("| `C` | 1 | 0 | 1 | 0 | 1 | 0 |\n| all | 1 | 0 | 1 | 0 | 1 | 0 |\n")
        );
    }

    #[test]
    fn a_reason_holds_only_where_the_test_fails_without_highwire() {
        let known = &EXPLAINED[0];
        let found = |end: &str| {
            let mut found = Outcomes::new();
            let name = format!("name=\"{}(TestInfo)\" classname=\"x.SuiteTest${}\"", known.test, known.class);
            add_outcomes(&format!("<testcase {name}{end}"), &mut found);
            known.has_failed(&found)
        };
        assert!(found("><error type=\"E\"/></testcase>"));
        assert!(!found("/>"));
        assert!(!known.has_failed(&Outcomes::new()), "a test that was not run proves nothing");
    }
}
