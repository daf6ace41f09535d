//! `docs/compatibility.md`, from the results.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context, Result};

use crate::shell::{Line, root};

use super::case::Link;
use super::results::{Results, Row};
use super::suite::{self, Ending};
use super::verdict::Verdict;
use super::{PACKAGES, measured, valkey, waiting};

/// Writes the page.
pub(super) fn write(results: &Results) -> Result<()> {
    let path = root().join("docs/compatibility.md");
    let before = std::fs::read_to_string(&path).unwrap_or_default();
    let kept = |name| section_of(&before, name).unwrap_or("Not measured yet.\n");
    let text = text(results, kept(waiting::SECTION), kept(valkey::SECTION));
    std::fs::write(&path, text).with_context(|| path.display().to_string())?;
    println!("wrote {}", path.display());
    Ok(())
}

/// The text between the marks of a section that another command writes.
fn section_of<'a>(page: &'a str, name: &str) -> Option<&'a str> {
    let after = page.split_once(&format!("<!-- begin: {name} -->\n"))?.1;
    Some(after.split_once(&format!("<!-- end: {name} -->"))?.0)
}

fn text(results: &Results, waiting: &str, valkey: &str) -> String {
    let mut text = String::from(
        "# Compatibility\n\nPrograms and test suites of others, unmodified, as their packages ship them, under `highwire run`. This page is written by a command; \
         every row is one run of that command, over the link that the column names:\n\n```console\n$ cargo xtask compat --write-docs\n```\n\n",
    );
    let _ = writeln!(
        text,
        "{} cases: **{} work, {} fail, {} skipped**, on {}. A case is counted once per link.\n",
        results.rows.len(),
        results.worked(),
        results.failed(),
        results.skipped(),
        machine()
    );
    for group in groups(results) {
        let rows: Vec<&Row> = results.rows.iter().filter(|row| row.group == group).collect();
        text += &section(group, &rows);
    }
    text += &suites();
    let sections = [(ABOUT_WAITING, waiting::SECTION, waiting), (ABOUT_VALKEY, valkey::SECTION, valkey)];
    for (about, name, written) in sections {
        let _ = writeln!(text, "{about}\n<!-- begin: {name} -->\n{written}<!-- end: {name} -->\n");
    }
    text += &versions();
    text += WHAT_IS_NOT_HERE;
    text
}

fn groups(results: &Results) -> Vec<&'static str> {
    let mut groups = Vec::new();
    for row in &results.rows {
        if !groups.contains(&row.group) {
            groups.push(row.group);
        }
    }
    groups
}

fn section(group: &str, rows: &[&Row]) -> String {
    if rows.iter().all(|row| row.link == Link::Auto) || group == measured::GROUP {
        let mut text = format!("## {group}\n\n| case | link | result |\n|---|---|---|\n");
        for row in rows {
            let _ = writeln!(text, "| {} | {} | {} |", title(row), row.link, cell(Some(&row.verdict)));
        }
        return text + "\n";
    }
    let mut text = format!("## {group}\n\n| case | shared memory | UDP |\n|---|---|---|\n");
    let mut done: Vec<String> = Vec::new();
    for row in rows {
        let title = title(row);
        if done.contains(&title) {
            continue;
        }
        let of = |link| rows.iter().find(|other| self::title(other) == title && other.link == link);
        let shm = of(Link::Shm).or_else(|| of(Link::Auto)).map(|row| &row.verdict);
        let _ =
            writeln!(text, "| {title} | {} | {} |", cell(shm), cell(of(Link::Udp).map(|row| &row.verdict)));
        done.push(title);
    }
    text + "\n"
}

fn title(row: &Row) -> String {
    let title = row.title.replace('|', "\\|");
    if row.options.is_empty() { format!("`{title}`") } else { format!("`{title}` with `{}`", row.options) }
}

fn cell(verdict: Option<&Verdict>) -> String {
    match verdict {
        None => "–".into(),
        Some(verdict) => verdict.to_string().replace('|', "\\|").replace("FAILED", "**fails**"),
    }
}

/// Sums and reasons of rdma-core's suite.
fn suites() -> String {
    let endings = suite::endings();
    if endings.is_empty() {
        return String::new();
    }
    let count = |wanted: fn(&Ending) -> bool| endings.values().filter(|ending| wanted(ending)).count();
    let mut text = format!(
        "### rdma-core's tests in sum\n\n{} generic tests: **{} pass, {} fail, {} skipped**. The kernel's software RNIC (Linux 6.1, the whole suite of 273 with tests of \
         single makers' devices): {}.\n\n",
        endings.len(),
        count(|ending| *ending == Ending::Passed),
        count(|ending| matches!(ending, Ending::Failed(_))),
        count(|ending| matches!(ending, Ending::Skipped(_))),
        suite::OF_RXE
    );
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for ending in endings.values() {
        if let Ending::Skipped(reason) = ending {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    text += "| skipped because | tests |\n|---|---:|\n";
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (reason, count) in reasons {
        let _ = writeln!(text, "| {} | {count} |", reason.replace('|', "\\|"));
    }
    text += "\n";
    let failed: Vec<&String> = endings
        .iter()
        .filter(|(_, ending)| matches!(ending, Ending::Failed(_)))
        .map(|(name, _)| name)
        .collect();
    if !failed.is_empty() {
        text += "These fail:\n\n";
        for name in failed {
            let _ = writeln!(text, "- `{name}`");
        }
        text += "\n";
    }
    text
}

fn versions() -> String {
    let mut text = String::from("## Versions\n\n");
    let wanted = ["-dev", "gcc", "make", "xz-utils"];
    let shown: Vec<String> = PACKAGES
        .iter()
        .filter(|name| !wanted.iter().any(|part| name.contains(part)))
        .filter_map(|name| {
            let output = Line::new("dpkg-query").words("-W -f ${Version}").arg(name).capture().ok()?;
            (output.success && !output.stdout.is_empty()).then(|| format!("{name} {}", output.stdout))
        })
        .collect();
    let _ = writeln!(text, "{}.\n", shown.join(", "));
    text
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, |count| count.get());
    let system = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = system
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="))
        .unwrap_or("Linux")
        .trim_matches('"');
    format!("{name}, {cores} cores")
}

const ABOUT_WAITING: &str = "\
## Programs that sleep, before and after

`cargo xtask compat --waiting --write-docs` writes this section. Every program runs under `highwire run --wake event`, which is what a completion channel
is on a card, and under `balanced`, which is the default ([Waiting](wake.md)), in turns; `--all-modes` adds `latency` and `power`, `--rounds 3` takes medians of three. `hogs`: a process on every core computes meanwhile.
`ib_write_lat -e` does not exist: perftest refuses events for a WRITE. `ib_send_lat` without `-e` polls, and stands there for comparison; so do UCX's other tests beside `ucp_get`.

A GET of UCX takes a millisecond over the kernel's TCP as well: that is UCX's own. With `-E sleep`, too, a thread of UCX's own waits for the channel, and wakes the one that waits for it. Processes that share a core
[make way for each other](wake.md#several-processes-per-core), which is what MPI's hops show.

Beside a process that computes on each core every wait sleeps, and each of two ends on different cores is woken from the other core. `highwire bench bells` says what that takes without
Highwire ([Performance](performance.md#waiting-threads)): no row of two such ends can be below. What stays below 10 µs there has found its event without a sleep.
";

const ABOUT_VALKEY: &str = "\
## Valkey over RDMA, beside TCP

`cargo xtask compat --valkey --write-docs` writes this section. Valkey's server is one thread that sleeps in `epoll`, on a completion channel for each client of its RDMA module
or on a socket for each client of TCP, which is the kernel's loopback without Highwire. `valkey-benchmark -t set -d 64` runs on the same cores, and waits in the same way as the server; rows take turns.
The processor time is that of all threads of the server, Highwire's among them, by `INFO`.

The programs are built from the upstream archive of Debian's source package (`forky`, the first with clients that speak RDMA), with `make BUILD_RDMA=module MALLOC=libc`, against this machine's own
libibverbs and librdmacm. `valkey-cli --rdma` of 9.1 crashes where no server listens, on every device: a refused connection sets no error there.
";

const WHAT_IS_NOT_HERE: &str = "\
## What is not here

- Programs that need a privileged device: kernel initiators of NVMe-oF, iSER and SRP.
- Queries of a subnet manager: RoCE has none, so that `saquery`, `ibnetdiscover` and their relatives have nothing to ask.
- DiSNI 2.1 (Java): its jar has no native half (`libdisni`), and that is no package. `cargo test -p highwire-ibverbs disni` checks that the functions of
  C that the native methods of its `NativeDispatcher` stand for are exported.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_command_has_written_stays() {
        let written = text(&Results::default(), "| a | table |\n", "| another |\n");
        let kept = |name| section_of(&written, name);
        assert_eq!(kept(waiting::SECTION), Some("| a | table |\n"));
        assert_eq!(kept(valkey::SECTION), Some("| another |\n"));
        let again = [waiting::SECTION, valkey::SECTION].map(|name| kept(name).unwrap_or_default());
        assert_eq!(text(&Results::default(), again[0], again[1]), written);
        assert_eq!(section_of("# Compatibility\n", waiting::SECTION), None);
    }
}
