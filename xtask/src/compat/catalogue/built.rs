//! Software of others that is built from its published source: a crate with tests of its own, and libfabric's tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::super::Workshop;
use super::super::case::{Case, Judge, Link, Ready};
use super::super::outcome::Outcome;
use super::super::verdict::Verdict;
use super::super::{ends, judge};
use super::LINKS;
use crate::debian::upstream;
use crate::packages;
use crate::shell::{Line, Log};
use crate::wheels::script;

/// Verbs and connection manager for Rust programs; it loads the libraries when it runs.
const CRATE: &str = "sideway";
const VERSION: &str = "0.4.3";
const TESTS: [&str; 5] = ["test_cq", "test_qp", "test_mr_and_cq", "test_post_send", "test_atomic"];
/// Programs with one end.
const TOOLS: [&str; 2] = ["ibv_devinfo", "show_gids"];
/// Programs with two ends.
const PAIRS: [&str; 3] = ["rc_pingpong -g 1", "rc_pingpong -g 1 -t", "rc_pingpong_split -g 1"];

const NEEDS_OF_CRATE: &[&str] = &["cmake", "libclang-dev"];

/// Of Debian's suites, the one whose source of libfabric has its tests.
const SUITE: &str = "trixie";
/// Title, provider, and which of its lists names tests that the provider does not claim to pass.
const PROVIDERS: [(&str, &str, &str); 2] = [
    ("fabtests, provider verbs", "verbs", "verbs/verbs.exclude"),
    ("fabtests, provider verbs;ofi_rxm", "verbs;ofi_rxm", "ofi_rxm/ofi_rxm.exclude"),
];

const NEEDS_OF_LIBFABRIC: &[&str] = &["autoconf", "automake", "libtool", "iproute2"];

pub(super) fn add(cases: &mut Vec<Case>) {
    for name in TESTS.iter().chain(&TOOLS) {
        cases.push(Case::special("sideway", &format!("{CRATE}: {name}"), Link::Auto, play_crate));
    }
    for link in LINKS {
        for line in PAIRS {
            cases.push(Case::special("sideway", &format!("{CRATE}: {line}"), link, play_crate));
        }
        for (title, ..) in PROVIDERS {
            cases.push(Case::special("libfabric", title, link, play_fabtests));
        }
    }
}

/// What a source was built to, or why there is nothing.
type Built<T> = Result<T, String>;

fn play_crate(workshop: &Workshop, case: &Case) -> Result<Verdict> {
    static PROGRAMS: OnceLock<Built<BTreeMap<String, PathBuf>>> = OnceLock::new();
    let work = workshop.folder.join(CRATE);
    let programs = match PROGRAMS.get_or_init(|| build_crate(&work).map_err(|error| format!("{error:#}"))) {
        Ok(programs) => programs,
        Err(reason) => return Ok(Verdict::Skipped(reason.clone())),
    };
    let line =
        case.title.strip_prefix(CRATE).and_then(|line| line.strip_prefix(": ")).expect("as it was made");
    let (name, arguments) = line.split_once(' ').unwrap_or((line, ""));
    let program = programs.get(name).with_context(|| format!("{CRATE} {VERSION} has no {name}"))?.display();
    let one = if PAIRS.contains(&line) {
        let end = format!("{program} {arguments} -p {{port}}");
        let two = Case::two(case.group, &case.title, case.link, judge::pingpong);
        two.ends(&end, &format!("{end} {{address}}"), Ready::Port).at_most(60)
    } else if TOOLS.contains(&name) {
        Case::one(case.group, &program.to_string(), lists_the_device)
    } else {
        Case::one(case.group, &program.to_string(), judge::tests_of_rust).at_most(60)
    };
    ends::run(workshop, &Case { title: case.title.clone(), ..one })
}

fn lists_the_device(outcome: &Outcome) -> Result<String, String> {
    if outcome.client.output.contains("hw0") { Ok(String::new()) } else { Err("it does not list hw0".into()) }
}

/// The crate's tests and examples, by name.
fn build_crate(work: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let log = Log::create("compat-crates")?;
    if let Err(missing) = packages::ensure(NEEDS_OF_CRATE, &log)? {
        bail!("{}", missing.0);
    }
    let tree = work.join("tree");
    if !tree.join("Cargo.toml").is_file() {
        unpack_crate(work, &tree)?;
    }
    println!("{CRATE}: building {VERSION}");
    let line = Line::cargo("build --examples --tests --message-format=json-render-diagnostics");
    let line = line.arg("--target-dir").arg(work.join("target")).dir(&tree);
    log.note(&format!("$ {line}"))?;
    let output = line.capture()?;
    log.note(&output.stderr)?;
    if !output.success {
        bail!("{CRATE} does not build: {}", log.name());
    }
    let messages = output.stdout.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let program = |message: Value| {
        let executable = PathBuf::from(message["executable"].as_str()?);
        Some((message["target"]["name"].as_str()?.to_string(), executable))
    };
    Ok(messages.filter_map(program).collect())
}

/// A copy of what the registry has, since a dependency's own tests cannot be built where cargo keeps it.
fn unpack_crate(work: &Path, tree: &Path) -> Result<()> {
    let wants = work.join("wants");
    fs::create_dir_all(wants.join("src"))?;
    fs::write(wants.join("src/lib.rs"), "")?;
    let manifest = format!(
        "[package]\nname = \"wants\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[dependencies]\n{CRATE} = \"={VERSION}\"\n\n[workspace]\n"
    );
    fs::write(wants.join("Cargo.toml"), manifest)?;
    let output = Line::cargo("metadata --format-version 1").dir(&wants).capture()?;
    if !output.success {
        let reason = judge::last_line(&output.stderr);
        bail!("the crate {CRATE} cannot be had here: {reason}");
    }
    let metadata: Value = serde_json::from_str(&output.stdout)?;
    let packages = metadata["packages"].as_array().context("cargo names no packages")?;
    let found = packages.iter().find(|package| package["name"] == CRATE).context("cargo has not taken it")?;
    let from =
        Path::new(found["manifest_path"].as_str().unwrap_or_default()).parent().context("no folder")?;
    let _ = fs::remove_dir_all(tree);
    let copied = Line::new("cp").arg("-r").arg(from).arg(tree).capture()?;
    if !copied.success {
        bail!("{}", copied.stderr.trim());
    }
    // It lies below this workspace, and belongs to none.
    let manifest = tree.join("Cargo.toml");
    let text = fs::read_to_string(&manifest)?;
    Ok(fs::write(manifest, format!("{text}\n[workspace]\n"))?)
}

fn play_fabtests(workshop: &Workshop, case: &Case) -> Result<Verdict> {
    static BUILT: OnceLock<Built<PathBuf>> = OnceLock::new();
    let work = workshop.folder.join("libfabric");
    let built = match BUILT
        .get_or_init(|| build_libfabric(&work).map_err(|error| judge::last_line(&format!("{error:#}"))))
    {
        Ok(built) => built.display(),
        Err(reason) => return Ok(Verdict::Skipped(format!("libfabric's tests: {reason}"))),
    };
    let found = PROVIDERS.iter().find(|(title, ..)| *title == case.title);
    let (_, provider, exclude) = found.expect("one of these");
    let line = format!("unshare -rn sh {} {built} {provider} {exclude}", script("fabtests.sh").display());
    let judge: Judge = |outcome| totals(&outcome.client.output);
    let one = Case::one(case.group, &line, judge).titled(&case.title).at_most(900);
    ends::run(workshop, &Case { link: case.link, ..one })
}

/// What the tests' own summary says.
fn totals(output: &str) -> Result<String, String> {
    let count = |name: &str| {
        let line = output.lines().find_map(|line| line.strip_prefix("# ")?.strip_prefix(name))?;
        line.trim().parse::<u32>().ok()
    };
    let (passed, failed) = count("Total Pass").zip(count("Total Fail")).ok_or("it gives no totals")?;
    let text = format!("{passed} pass, {} not run", count("Total Notrun/Excluded").unwrap_or(0));
    if failed == 0 && passed > 0 { Ok(text) } else { Err(format!("{text}, {failed} fail")) }
}

/// libfabric with its provider for verbs, and its tests, installed below `work`.
fn build_libfabric(work: &Path) -> Result<PathBuf> {
    let built = work.join("built");
    if built.join("bin/runfabtests.sh").is_file() {
        return Ok(built);
    }
    let log = Log::create("compat-libfabric")?;
    if let Err(missing) = packages::ensure(NEEDS_OF_LIBFABRIC, &log)? {
        bail!("{}", missing.0);
    }
    let (tree, version) = upstream(SUITE, "libfabric", work)?;
    println!("libfabric: building {version}");
    let fresh = work.join("built.new");
    let _ = fs::remove_dir_all(&fresh);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // Paths are in the built programs: it is installed under its own name, into a folder that takes this name when all is there.
    let prefix = format!("--prefix={}", built.display());
    let libfabric = format!("--with-libfabric={}{}", fresh.display(), built.display());
    let providers = "--enable-only --enable-verbs=yes --enable-rxm=yes";
    for (folder, options) in [
        (tree.clone(), format!("{prefix} {providers}")),
        (tree.join("fabtests"), format!("{prefix} {libfabric}")),
    ] {
        // Cargo's own make flags are for cargo's build scripts.
        let line = |words: &str| {
            Line::new("env").words("-u MAKEFLAGS -u CFLAGS -u LDFLAGS").words(words).dir(&folder)
        };
        let done = line("./autogen.sh").run_logged(&log)?
            && line("./configure --disable-static").words(&options).run_logged(&log)?
            && line(&format!("make -j{cores} install DESTDIR={}", fresh.display())).run_logged(&log)?;
        if !done {
            bail!("it does not build: {}", log.name());
        }
    }
    let _ = fs::remove_dir_all(&built);
    let installed = PathBuf::from(format!("{}{}", fresh.display(), built.display()));
    fs::rename(&installed, &built).with_context(|| built.display().to_string())?;
    let _ = fs::remove_dir_all(&tree);
    let _ = fs::remove_dir_all(&fresh);
    Ok(built)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_libfabrics_tests_is_read() {
        let text = |failed: u32| {
            format!(
                "# --\n# Total Pass      71\n# Total Notrun/Excluded   9\n# Total Fail   {failed}\n# Percentage of Pass 98\n"
            )
        };
        assert_eq!(totals(&text(0)), Ok("71 pass, 9 not run".into()));
        assert_eq!(totals(&text(2)), Err("71 pass, 9 not run, 2 fail".into()));
        assert_eq!(totals("# Total Pass 0\n# Total Fail 0\n"), Err("0 pass, 0 not run, 0 fail".into()));
        assert!(totals("").is_err());
    }
}
