//! The Java modules: built and tested by Maven, with an engine of this tree on the other side.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::libs;
use crate::packages::{self, Missing};
use crate::shell::{Line, Log, has_program, root, target_dir};
use crate::test::Tally;

/// The oldest release with `java.lang.foreign` in its final form.
const JDK_MIN: u32 = 22;
/// What apt may have where no such JDK is installed.
const JDK_PACKAGE: &str = "openjdk-25-jdk-headless";
/// Memcached in C, and programs that were written for it; without them their tests are skipped.
const MEMCACHED: [&str; 4] =
    ["memcached", "libmemcached-tools", "python3-pymemcache", "python3-binary-memcached"];
/// Has `ibv_rc_pingpong`, the other end of java/ffm's conversations; without it they are skipped.
const PINGPONG: [&str; 1] = ["ibverbs-utils"];

/// What JUCX's native code wants from the system; without it its ways are not measured.
pub(crate) const UCX: &str = "libucx0";

/// Options of `cargo xtask java`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask java hadoop         java/hdfs with stock Hadoop: 108 MB from Maven Central the first time
  cargo xtask java hadoop-suite   classes of HDFS's own test suite, over TCP and with the NameNode's protocol over jvRPC
  cargo xtask java zookeeper      classes of ZooKeeper's own test suite, over TCP and over queue pairs")]
pub(crate) struct Args {
    /// What to run.
    suite: Suite,
    /// Only these classes, with commas between; for another project's suite.
    #[arg(long)]
    classes: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Suite {
    /// The tests of java/hdfs.
    Hadoop,
    /// HDFS's own tests with and without the property of java/hdfs.
    HadoopSuite,
    /// ZooKeeper's own tests with and without the properties of java/zookeeper.
    Zookeeper,
}

impl Suite {
    /// What Maven is told, and the module that has the tests.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Suite::Hadoop => ("-q -B -Phadoop,suite -pl hdfs -am verify", "hdfs"),
            Suite::HadoopSuite => {
                ("-q -B -Phadoop-suite -DskipTests -pl hdfs-suite -am verify", "hdfs-suite")
            }
            Suite::Zookeeper => ("-q -B -Psuite -pl zookeeper -am verify", "zookeeper"),
        }
    }

    /// How another project's tests run as if there were no Highwire.
    fn stock(self) -> &'static [&'static str] {
        match self {
            Suite::Hadoop => &[],
            Suite::HadoopSuite => &["-Dsuite.engine=org.apache.hadoop.ipc.ProtobufRpcEngine2"],
            Suite::Zookeeper => &[
                "-Dsuite.client=org.apache.zookeeper.ClientCnxnSocketNIO",
                "-Dsuite.server=org.apache.zookeeper.server.NIOServerCnxnFactory",
            ],
        }
    }
}

/// What takes too long, or too much from elsewhere, for the step of `cargo xtask test`.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let log = Log::create("java")?;
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
        let failed = found.values().filter(|passed| !**passed).count();
        println!("{} passed, {failed} failed: {}", found.len() - failed, log.path().display());
        return Ok(if success && failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    // What fails as it is, in this place, is no fault of ours.
    let ignore = "-Dmaven.test.failure.ignore=true";
    eprintln!("the tests over TCP, then over Highwire");
    let (_, tcp) = measure(&[&[ignore], args.suite.stock()].concat())?;
    let (_, ours) = measure(&[ignore])?;
    print!("{}", table(&tcp, &ours));
    let mut is_good = !tcp.is_empty();
    for ((class, test), _) in tcp.iter().filter(|(_, passed)| **passed) {
        if ours.get(&(class.clone(), test.clone())) != Some(&true) {
            println!("{class}.{test} passes over TCP alone");
            is_good = false;
        }
    }
    if args.suite == Suite::HadoopSuite {
        // That tests pass means nothing if their calls went another way.
        let calls = sum_of_files(&calls)?;
        println!("{calls} calls over jvRPC");
        is_good &= calls > 0;
    }
    println!("{}", log.path().display());
    Ok(if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Whether each test that was not skipped has passed, by class and name.
type Outcomes = BTreeMap<(String, String), bool>;

/// What the reports in a folder say.
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
        if !case.contains("<skipped") {
            let passed = !case.contains("<failure ") && !case.contains("<error ");
            found.insert((class.to_owned(), name.to_owned()), passed);
        }
    }
}

/// Tests that passed, class by class.
fn table(tcp: &Outcomes, ours: &Outcomes) -> String {
    let count = |of: &Outcomes, class: &str| {
        of.iter().filter(|((in_class, _), passed)| in_class == class && **passed).count()
    };
    let all: BTreeSet<&(String, String)> = tcp.keys().chain(ours.keys()).collect();
    let classes: BTreeSet<&str> = all.iter().map(|(class, _)| class.as_str()).collect();
    let mut text =
        String::from("| class | tests | passed over TCP | over Highwire |\n|---|---:|---:|---:|\n");
    let mut sums = [0; 3];
    for class in classes {
        let row = [all.iter().filter(|(of, _)| of == class).count(), count(tcp, class), count(ours, class)];
        sums.iter_mut().zip(row).for_each(|(sum, part)| *sum += part);
        text += &format!("| `{class}` | {} | {} | {} |\n", row[0], row[1], row[2]);
    }
    text + &format!("| all | {} | {} | {} |\n", sums[0], sums[1], sums[2])
}

/// Of a number in each file of a folder.
fn sum_of_files(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(file.path())?;
        sum += text.trim().parse::<u64>().with_context(|| file.path().display().to_string())?;
    }
    Ok(sum)
}

/// `mvn verify` of everything below `java/`.
pub(crate) fn step(log: &Log) -> Result<Tally> {
    let maven = match maven(log)? {
        Ok(Some(maven)) => maven,
        Ok(None) => return Ok(Tally::failure()),
        Err(missing) => return Ok(Tally::skipped("java", &missing.0)),
    };
    let clients = packages::ensure(&MEMCACHED, log)?;
    let pingpong = packages::ensure(&PINGPONG, log)?;
    let success = maven.words("-q -B verify").run_logged(log)?;
    if !success && is_unreachable(&log.text()?) {
        return Ok(Tally::skipped(
            "java",
            "Maven cannot reach its repository, and has not kept what it needs",
        ));
    }
    let mut tally = reports(&root().join("java"))?;
    if let Err(missing) = clients {
        tally = tally.with_skip("memcached and its clients", &missing.0);
    }
    if let Err(missing) = pingpong {
        tally = tally.with_skip("rdma-core's ping-pong and Java", &missing.0);
    }
    if !success && tally.failed() == 0 {
        tally.add(Tally::failure());
    }
    Ok(tally)
}

/// Maven with a JDK, and with the programs of this tree for the other side; `None` if those do not build.
fn maven(log: &Log) -> Result<std::result::Result<Option<Line>, Missing>> {
    let home = match tools(log)? {
        Ok(home) => home,
        Err(missing) => return Ok(Err(missing)),
    };
    // The other side: the program that serves, and one that converses.
    let is_built = Line::cargo("build --package highwire-cli").run_logged(log)?
        && Line::cargo("build --package highwire-host --example conversation").run_logged(log)?;
    if !is_built {
        return Ok(Ok(None));
    }
    // The library that java/ffm calls, in place of the system's.
    let Some(libraries) = libs::build(false)? else { return Ok(Ok(None)) };
    let debug = target_dir().join("debug");
    let maven = Line::new("mvn")
        .arg(format!("-Dhighwire.program={}", debug.join("highwire").display()))
        .arg(format!("-Dhighwire.libs={}", libraries.display()))
        .arg(format!("-Dhighwire.peer={}", debug.join("examples/conversation").display()))
        .env("JAVA_HOME", home)
        .dir(root().join("java"));
    Ok(Ok(Some(maven)))
}

/// Maven, and the folder of a JDK that is new enough; installed where they are missing.
pub(crate) fn tools(log: &Log) -> Result<std::result::Result<PathBuf, Missing>> {
    let home = match find_jdk() {
        Some(home) => home,
        None => match packages::ensure(&[JDK_PACKAGE], log)? {
            Err(missing) => {
                return Ok(Err(Missing(format!("no JDK of release {JDK_MIN} or newer; {}", missing.0))));
            }
            Ok(()) => match find_jdk() {
                Some(home) => home,
                None => return Ok(Err(Missing(format!("{JDK_PACKAGE} brought no JDK")))),
            },
        },
    };
    if !has_program("mvn")
        && let Err(missing) = packages::ensure(&["maven"], log)?
    {
        return Ok(Err(missing));
    }
    Ok(Ok(home))
}

/// Compiles modules and what they need, without tests; whether that worked.
pub(crate) fn package(modules: &str, home: &Path, log: &Log) -> Result<bool> {
    Line::new("mvn")
        .words("-q -B -am -DskipTests package -pl")
        .arg(modules)
        .env("JAVA_HOME", home)
        .dir(root().join("java"))
        .run_logged(log)
}

/// A JDK that is new enough: the one that `JAVA_HOME` names, or else one of those that are installed.
fn find_jdk() -> Option<PathBuf> {
    let named = std::env::var_os("JAVA_HOME").map(PathBuf::from);
    let installed =
        std::fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<(u32, PathBuf)> = named
        .into_iter()
        .chain(installed)
        .filter(|home| home.join("bin/javac").is_file())
        .filter_map(|home| Some((release_of(&home)?, home)))
        .filter(|(release, _)| *release >= JDK_MIN)
        .collect();
    // The first of the newest, which JAVA_HOME is if it is as new.
    found.sort_by_key(|(release, _)| std::cmp::Reverse(*release));
    found.into_iter().next().map(|(_, home)| home)
}

/// The feature release of a JDK.
pub(crate) fn release_of(home: &Path) -> Option<u32> {
    release(&std::fs::read_to_string(home.join("release")).ok()?)
}

/// The feature release that a JDK's `release` file names.
fn release(text: &str) -> Option<u32> {
    let version = text.lines().find_map(|line| line.strip_prefix("JAVA_VERSION="))?;
    version.trim_matches('"').split('.').next()?.split('-').next()?.parse().ok()
}

/// Whether Maven has failed because it is offline.
pub(crate) fn is_unreachable(log: &str) -> bool {
    ["Could not transfer artifact", "Unknown host", "in offline mode"].iter().any(|sign| log.contains(sign))
}

/// What Surefire has written below every module, counted.
fn reports(java: &Path) -> Result<Tally> {
    let mut tally = Tally::default();
    for module in std::fs::read_dir(java).with_context(|| java.display().to_string())?.flatten() {
        add_reports(&module.path().join("target/surefire-reports"), &mut tally)?;
    }
    Ok(tally)
}

/// The reports in a folder, if there is one.
fn add_reports(folder: &Path, tally: &mut Tally) -> Result<()> {
    for report in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = report.path();
        if path.extension().is_some_and(|extension| extension == "xml") {
            tally.add(count(&std::fs::read_to_string(&path)?));
        }
    }
    Ok(())
}

/// One class's report. A test that was skipped says why in the attribute `message`.
fn count(report: &str) -> Tally {
    let cases = report.matches("<testcase ").count();
    let failed = report.matches("<failure ").count() + report.matches("<error ").count();
    let mut skips = Tally::default();
    let mut skipped = 0;
    for case in report.split("<testcase ").skip(1) {
        if let Some(skip) = case.split("<skipped").nth(1) {
            skipped += 1;
            let reason = attribute(skip, "message").unwrap_or("no reason given");
            skips = skips.with_skip(attribute(case, "name").unwrap_or("a test"), reason);
        }
    }
    let mut tally = Tally::counts(cases.saturating_sub(failed + skipped), failed);
    tally.add(skips);
    tally
}

fn attribute<'a>(element: &'a str, name: &str) -> Option<&'a str> {
    element.split(&format!("{name}=\"")).nth(1)?.split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_file_names_its_release() {
        assert_eq!(release("IMPLEMENTOR=\"x\"\nJAVA_VERSION=\"25.0.3\"\n"), Some(25));
        assert_eq!(release("JAVA_VERSION=\"26-ea\""), Some(26));
        assert_eq!(release("JAVA_VERSION=\"1.8.0\""), Some(1));
        assert_eq!(release(""), None);
    }

    #[test]
    fn two_runs_are_compared_test_by_test() {
        let (mut tcp, mut ours) = (Outcomes::new(), Outcomes::new());
        add_outcomes(
            "<testcase name=\"a\" classname=\"x.C\"/><testcase name=\"b\" classname=\"x.C\"><skipped/></testcase>",
            &mut tcp,
        );
        add_outcomes("<testcase name=\"a\" classname=\"x.C\"><error type=\"E\"/></testcase>", &mut ours);
        assert_eq!(tcp.into_iter().collect::<Vec<_>>(), [(("C".into(), "a".into()), true)]);
        let tcp = Outcomes::from([(("C".into(), "a".into()), true)]);
        assert!(table(&tcp, &ours).ends_with("| `C` | 1 | 1 | 0 |\n| all | 1 | 1 | 0 |\n"));
    }

    #[test]
    fn a_report_is_counted() {
        let report = "<testsuite tests=\"3\"><testcase name=\"a\" classname=\"C\"/>\
             <testcase name=\"b\"><failure message=\"no\">at b</failure></testcase>\
             <testcase name=\"c\"><skipped message=\"Assumption failed: skipped: no program\"/></testcase></testsuite>";
        let tally = count(report);
        assert_eq!((tally.passed(), tally.failed()), (1, 1));
        assert_eq!(tally.skips()[0].what, "c");
        assert!(tally.skips()[0].reason.ends_with("no program"));
    }
}
