//! The Java modules: built and tested by Maven, with an engine of this tree on the other side.

mod first_read;
mod memcached;
pub(crate) mod suites;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::packages::{self, Missing};
use crate::shell::{Line, Log, has_program, root, target_dir};
use crate::test::Tally;
use crate::{debug, libs};

/// The oldest release with `java.lang.foreign` in its final form.
const JDK_MIN: u32 = 22;
/// The group of the Java modules, which is a domain of this project.
const GROUP: &str = "io.github.highwire";
/// The platform that this program builds for, as java/engine names it.
const PLATFORM: &str = if cfg!(target_arch = "aarch64") { "linux-aarch64" } else { "linux-x86_64" };
/// A JDK package that apt may have if no such JDK is installed.
const JDK_PACKAGE: &str = "openjdk-25-jdk-headless";
/// Memcached in C, and programs that were written for it; without them their tests are skipped.
const MEMCACHED: [&str; 4] =
    ["memcached", "libmemcached-tools", "python3-pymemcache", "python3-binary-memcached"];
/// Has `ibv_rc_pingpong`, the other end of java/ffm's conversations; without it they are skipped.
const PINGPONG: [&str; 1] = ["ibverbs-utils"];

/// The library that JUCX's native code needs from the system; without it its ways are not measured.
pub(crate) const UCX: &str = "libucx0";

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
    tally.add(first_read::trial(log)?);
    Ok(tally)
}

/// Maven with a JDK, and with the programs of this tree for the other side; `None` if those do not build.
fn maven(log: &Log) -> Result<std::result::Result<Option<Line>, Missing>> {
    let home = match tools(log)? {
        Ok(home) => home,
        Err(missing) => return Ok(Err(missing)),
    };
    // The other side: the program that serves, and one for conversations.
    let is_built = debug::program().run_logged(log)?
        && debug::build("highwire-host", "--example conversation").run_logged(log)?;
    if !is_built {
        return Ok(Ok(None));
    }
    // The library that java/ffm calls, instead of the system's.
    let Some(libraries) = libs::build(false)? else { return Ok(Ok(None)) };
    let debug = target_dir().join("debug");
    stage_program(&debug.join("highwire"), log)?;
    let maven = Line::new("mvn")
        .arg(format!("-Dhighwire.program={}", debug.join("highwire").display()))
        .arg(format!("-Dhighwire.libs={}", libraries.display()))
        .arg(format!("-Dhighwire.peer={}", debug.join("examples/conversation").display()))
        .env("JAVA_HOME", home)
        .dir(root().join("java"));
    Ok(Ok(Some(maven)))
}

/// Puts the engine's program where `java/engine` takes it from, without what only debuggers need.
fn stage_program(program: &Path, log: &Log) -> Result<()> {
    let folder = target_dir().join("java-programs").join(PLATFORM);
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let staged = folder.join("highwire");
    std::fs::copy(program, &staged).with_context(|| program.display().to_string())?;
    // Without the tool the program is larger, and as good.
    if has_program("strip") {
        Line::new("strip").arg(&staged).run_logged(log)?;
    }
    Ok(())
}

/// Installs the modules that programs use, and their bill of materials, in Maven's local repository, with the engine's program in them;
/// returns whether that worked.
pub(crate) fn install(program: &Path, log: &Log) -> Result<bool> {
    let home = match tools(log)? {
        Ok(home) => home,
        Err(missing) => bail!("{}", missing.0),
    };
    stage_program(program, log)?;
    let line = Line::new("mvn").words("-q -B -DskipTests -Prelease install").env("JAVA_HOME", home);
    line.dir(root().join("java")).run_logged(log)
}

/// Maven, and the folder of a JDK that is new enough; installed if missing.
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

/// Compiles modules and their dependencies, without tests; returns whether that worked.
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
    // The first of the newest, which is JAVA_HOME's if that is as new.
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

/// Counts the reports of Surefire below every module.
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

/// One class's report. A skipped test gives its reason in the attribute `message`.
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
    fn a_report_is_counted() {
        let report = "<testsuite tests=\"3\"><testcase name=\"a\" classname=\"C\"/>\
             <testcase name=\"b\"><failure message=\"no\">at b</failure></testcase>\
             <testcase name=\"c\"><skipped message=\"Assumption failed: skipped: no program\"/></testcase></testsuite>";
        let tally = count(report);
        assert_eq!((tally.passed(), tally.failed()), (1, 1));
        assert_eq!(tally.skips()[0].what, "c");
        assert!(tally.skips()[0].reason.ends_with("no program"));
    }

    #[test]
    fn every_module_with_tests_ends_those_that_hang() {
        let mut modules = 0;
        for module in std::fs::read_dir(root().join("java")).unwrap() {
            let tests = module.unwrap().path().join("src/test");
            if tests.join("java").is_dir() {
                modules += 1;
                let properties = tests.join("resources/junit-platform.properties");
                let text = std::fs::read_to_string(&properties).unwrap_or_default();
                for setting in ["timeout.default = ", "timeout.thread.mode.default = SEPARATE_THREAD"] {
                    assert!(
                        text.contains(&format!("junit.jupiter.execution.{setting}")),
                        "{}",
                        properties.display()
                    );
                }
            }
        }
        assert!(modules >= 10, "{modules}");
        assert!(
            std::fs::read_to_string(root().join("java/pom.xml"))
                .unwrap()
                .contains("<forkedProcessTimeoutInSeconds>")
        );
    }

    #[test]
    fn the_bill_of_materials_names_every_module_that_is_installed() {
        let java = root().join("java");
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        let artifact = |pom: &str| {
            let after_parent = pom.split("</parent>").last().unwrap();
            between(after_parent, "<artifactId>", "</artifactId>").unwrap().to_owned()
        };
        // Not those of profiles, which a plain `install` leaves out.
        let pom = read(&java.join("pom.xml"));
        let modules = between(&pom, "<modules>", "</modules>").unwrap();
        let mut installed: Vec<String> = modules
            .split("<module>")
            .skip(1)
            .map(|module| java.join(module.split("</module>").next().unwrap()).join("pom.xml"))
            .map(|pom| read(&pom))
            .filter(|pom| !pom.contains("<maven.install.skip>true") && pom.contains("</parent>"))
            .map(|pom| artifact(&pom))
            .collect();
        let bill = read(&java.join("bom/pom.xml"));
        let management = between(&bill, "<dependencyManagement>", "</dependencyManagement>").unwrap();
        let mut named: Vec<String> = management
            .split("<dependency>")
            .skip(1)
            .map(|entry| between(entry, "<artifactId>", "</artifactId>").unwrap().to_owned())
            .collect();
        installed.sort();
        named.sort();
        assert_eq!(named, installed);
        for text in [&pom, &bill] {
            assert!(text.contains(&format!("<groupId>{GROUP}</groupId>")));
            ["<url>", "<licenses>", "<scm>", "<developers>"]
                .iter()
                .for_each(|part| assert!(text.contains(part)));
        }
        let version = between(&read(&java.join("pom.xml")), "<version>", "</version>").unwrap().to_owned();
        assert_eq!(between(&bill, "<highwire.version>", "</highwire.version>"), Some(version.as_str()));
    }

    fn between<'a>(text: &'a str, begin: &str, end: &str) -> Option<&'a str> {
        text.split(begin).nth(1)?.split(end).next()
    }
}
