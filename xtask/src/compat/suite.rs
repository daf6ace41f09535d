//! rdma-core's own test suite, as Debian ships it: one module per process, so that none can take the others with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::shell::Line;

use super::Workshop;
use super::case::{Case, Link};
use super::ends::{self, Running};
use super::judge;
use super::verdict::Verdict;

const SOURCE: &str = "/usr/share/doc/rdma-core/tests";
/// The results of the kernel's software RNIC, `rdma_rxe` of Linux 6.1, for the same tests.
pub(super) const OF_RXE: &str = "86 pass, 186 are skipped, 1 is an error";

/// Tests of one maker's devices have its name; all others are for any device.
const OF_OTHERS: [&str; 3] = ["mlx5", "efa", "cuda"];

/// The result of one test, in unittest's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    Passed,
    Skipped(String),
    Failed(String),
}

/// Every test, from the latest output of each module: the page shows their sums.
pub(super) fn endings() -> BTreeMap<String, Ending> {
    let folder = crate::shell::target_dir().join("compat");
    let outputs = modules().into_iter().map(|module| folder.join(format!("{module}__auto_/output.txt")));
    outputs.filter_map(|path| std::fs::read_to_string(path).ok()).flat_map(|text| parse(&text)).collect()
}

pub(super) const GROUP: &str = "rdma-core's tests";

/// One case per module.
pub(super) fn add(cases: &mut Vec<Case>) {
    for module in modules() {
        cases.push(Case::special(GROUP, &module, Link::Auto, play));
    }
    if cases.iter().all(|case| case.group != GROUP) {
        cases.push(Case::special(GROUP, "tests", Link::Auto, |_, _| {
            Ok(Verdict::Skipped(format!("no {SOURCE}: package rdma-core is not installed")))
        }));
    }
}

pub(super) fn modules() -> Vec<String> {
    let mut modules: Vec<String> = std::fs::read_dir(SOURCE)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().split('.').next()?.to_string()))
        .filter(|name| name.starts_with("test_") && !OF_OTHERS.iter().any(|other| name.contains(other)))
        .collect();
    modules.sort();
    modules
}

fn play(workshop: &Workshop, case: &Case) -> Result<Verdict> {
    let folder = unpacked(workshop)?;
    let module = &case.title;
    let line =
        format!("/usr/bin/python3 {}/run_tests.py --dev hw0 --gid 1 -v tests.{module}", folder.display());
    let one = Case::one(case.group, &line, judge::ended_well).titled(module).at_most(120);
    let running = Running::new(workshop, &one)?;
    let huge_pages = HugePages::lend();
    let outcome = ends::play(&running)?;
    drop(huge_pages);
    let found = parse(&outcome.client.output);
    let count = |wanted: fn(&Ending) -> bool| found.values().filter(|ending| wanted(ending)).count();
    let passed = count(|ending| *ending == Ending::Passed);
    let skipped = count(|ending| matches!(ending, Ending::Skipped(_)));
    let failed: Vec<&String> = found
        .iter()
        .filter(|(_, ending)| matches!(ending, Ending::Failed(_)))
        .map(|(name, _)| name)
        .collect();
    let text = format!("{passed} pass, {skipped} skipped");
    let verdict = match (outcome.trouble(), failed.as_slice()) {
        (_, [first, rest @ ..]) => Verdict::Fails(format!("{text}, {} fail: {first} …", rest.len() + 1)),
        (Some(trouble), []) => Verdict::Fails(format!("{text}; {trouble}")),
        (None, []) if passed + skipped == 0 => Verdict::Fails(judge::last_line(&outcome.client.output)),
        (None, []) if passed == 0 => Verdict::Skipped(reasons(&found)),
        (None, []) => Verdict::Works(text),
    };
    Ok(verdict)
}

/// Huge pages for tests that register some, given back at the end. Without the right to make them those tests skip themselves.
struct HugePages(String);

impl HugePages {
    const COUNT: &str = "/proc/sys/vm/nr_hugepages";
    const WANTED: u64 = 32;

    fn lend() -> Option<HugePages> {
        let before = std::fs::read_to_string(Self::COUNT).ok()?;
        let is_enough = before.trim().parse().is_ok_and(|count: u64| count >= Self::WANTED);
        if is_enough {
            return None;
        }
        std::fs::write(Self::COUNT, Self::WANTED.to_string()).ok()?;
        Some(HugePages(before))
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = std::fs::write(Self::COUNT, &self.0);
    }
}

/// The first reason; a module whose tests are all skipped mostly has one.
fn reasons(found: &BTreeMap<String, Ending>) -> String {
    let mut all: Vec<&str> = found
        .values()
        .filter_map(|ending| match ending {
            Ending::Skipped(reason) => Some(reason.as_str()),
            _ => None,
        })
        .collect();
    all.sort_unstable();
    all.dedup();
    let first = all.first().copied().unwrap_or("no reason given");
    format!("all {}: {first}", found.len())
}

/// Debian compresses files that it takes for documentation.
pub(super) fn unpacked(workshop: &Workshop) -> Result<PathBuf> {
    let folder = workshop.folder.join("rdma-core/tests");
    if folder.join("run_tests.py").is_file() {
        return Ok(folder);
    }
    std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    for entry in std::fs::read_dir(SOURCE).context(SOURCE)? {
        let from = entry?.path();
        let to = folder.join(from.file_name().unwrap_or_default());
        std::fs::copy(&from, &to).with_context(|| from.display().to_string())?;
        if is_compressed(&to) {
            Line::new("gunzip").arg("-f").arg(&to).capture()?;
        }
    }
    Ok(folder)
}

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "gz")
}

/// Reads `test_name (tests.test_module.Class) ... ok`, with the tests' own output in between.
pub(super) fn parse(output: &str) -> BTreeMap<String, Ending> {
    let mut found = BTreeMap::new();
    let mut current: Option<String> = None;
    for line in output.lines() {
        if let Some((name, rest)) = line.split_once(" (").filter(|(name, _)| is_test(name)) {
            let class = rest.split(')').next().unwrap_or_default().trim_start_matches("tests.");
            let class = class.strip_suffix(&format!(".{name}")).unwrap_or(class);
            current = Some(format!("{class}.{name}"));
        }
        let Some(name) = &current else { continue };
        let verdict = line.rsplit(" ... ").next().unwrap_or_default().trim();
        let ending = match verdict {
            "ok" => Ending::Passed,
            "FAIL" | "ERROR" => Ending::Failed(verdict.to_lowercase()),
            _ => match verdict.strip_prefix("skipped ") {
                Some(reason) => Ending::Skipped(reason.trim_matches(['\'', '"']).into()),
                None => continue,
            },
        };
        found.insert(name.clone(), ending);
        current = None;
    }
    // A process that died also ended the test that it had begun.
    if let Some(name) = current
        && !output.contains("\nRan ")
    {
        found.insert(name, Ending::Failed("died".into()));
    }
    found
}

fn is_test(name: &str) -> bool {
    name.starts_with("test") && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_unittest_prints() {
        let output = "\
test_a (tests.test_mr.MRTest)
What it checks ... ok
test_b (tests.test_mr.MRTest) ... skipped 'no such feature'
test_c (tests.test_mr.MRTest) ... FAIL
test_d (tests.test_mr.MRTest) ... ";
        let found = parse(output);
        assert_eq!(found["test_mr.MRTest.test_a"], Ending::Passed);
        assert_eq!(found["test_mr.MRTest.test_b"], Ending::Skipped("no such feature".into()));
        assert_eq!(found["test_mr.MRTest.test_c"], Ending::Failed("fail".into()));
        assert_eq!(found["test_mr.MRTest.test_d"], Ending::Failed("died".into()));
    }
}
