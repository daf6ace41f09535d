//! `cargo xtask programs`: small programs in C against the drop-in libraries, each over both links.
//!
//! A program lies in `crates/ibverbs/tests/programs`, checks by itself what it promises, and exits with 0 if all holds. Its first
//! comment may hold lines that say how it is run:
//!
//! ```text
//!  * links: shm            over these links only; `shm udp` without the line
//!  * run: --loss 1%        further options of `highwire run`
//!  * scenario: flap poll   `examples/scenarios/flap.toml`, and arguments; run twice, and both logs are alike
//!  * arguments: poll       arguments of the program; each such line is one more run
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::shell::{Line, Log, root, target_dir};
use crate::test::Tally;
use crate::{debug, libs, packages};

const FOLDER: &str = "crates/ibverbs/tests/programs";
/// What the programs are compiled with.
pub(crate) const PACKAGES: &[&str] = &["gcc", "libc6-dev", "libibverbs-dev", "librdmacm-dev"];
/// A guard against hangs: the programs take moments.
const SECONDS_MAX: u64 = 180;

/// Options of `cargo xtask programs`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask programs             all of them, over shared memory and over UDP
  cargo xtask programs cancel      those whose name contains this text")]
pub(crate) struct Args {
    /// Only the programs whose name contains one of these texts.
    only: Vec<String>,
    /// With optimised libraries.
    #[arg(long)]
    release: bool,
}

/// How one program is run.
#[derive(Debug, PartialEq, Eq)]
struct Manner {
    links: Vec<String>,
    options: String,
    arguments: Vec<String>,
    /// Names of scenarios, each with arguments.
    scenarios: Vec<(String, String)>,
}

/// Runs the chosen programs and prints a line for each.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let log = Log::create("programs")?;
    let tally = play(args, &log)?;
    println!("{} passed, {} failed", tally.passed(), tally.failed());
    Ok(if tally.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Every program, as a step of the tests.
pub(crate) fn step(log: &Log) -> Result<Tally> {
    play(&Args { only: Vec::new(), release: false }, log)
}

fn play(args: &Args, log: &Log) -> Result<Tally> {
    if let Err(missing) = packages::ensure(PACKAGES, log)? {
        return Ok(Tally::skipped("programs", &missing.0));
    }
    let Some(built) = Built::new(args.release, log)? else { return Ok(Tally::failure()) };
    let chosen = chosen(&args.only)?;
    if chosen.is_empty() {
        bail!("no program in {FOLDER} has such a name");
    }
    let mut tally = Tally::default();
    for source in chosen {
        tally.add(play_one(&source, &built, log)?);
    }
    Ok(tally)
}

fn chosen(only: &[String]) -> Result<Vec<PathBuf>> {
    let folder = root().join(FOLDER);
    let mut sources = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let is_program = path.extension().is_some_and(|extension| extension == "c");
        if is_program && (only.is_empty() || only.iter().any(|part| name.contains(part.as_str()))) {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}

/// What programs are run with.
pub(crate) struct Built {
    highwire: PathBuf,
    libraries: PathBuf,
    /// A registry of their own, in which programs can count what they leave. It goes with this.
    registry: PathBuf,
}

impl Drop for Built {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.registry);
    }
}

impl Built {
    /// Builds it; `None` if that fails, and the log says why.
    pub(crate) fn new(release: bool, log: &Log) -> Result<Option<Built>> {
        let cargo = if release {
            Line::cargo("build --release --package highwire --bin highwire")
        } else {
            debug::program()
        };
        if !cargo.run_logged(log)? {
            return Ok(None);
        }
        let highwire = target_dir().join(if release { "release" } else { "debug" }).join("highwire");
        let registry = PathBuf::from(format!("/dev/shm/highwire-programs-{}", std::process::id()));
        Ok(libs::build(release)?.map(|libraries| Built { highwire, libraries, registry }))
    }

    /// What comes before a command that is run, with options of `highwire run` and a guard against hangs.
    pub(crate) fn under(&self, link: &str, options: &str, seconds_max: u64) -> Line {
        Line::new("timeout")
            .words("--kill-after=5")
            .arg(seconds_max.to_string())
            .arg(&self.highwire)
            .words("run --link")
            .arg(link)
            .words(options)
            .arg("--")
            .env("HIGHWIRE_LIBS", &self.libraries)
            .env("HIGHWIRE_BROKER", &self.highwire)
            .env("HIGHWIRE_SHM_DIR", &self.registry)
    }

    /// A run of a program, with options of `highwire run`, its arguments, and a guard against hangs.
    pub(crate) fn line(
        &self,
        program: &Path,
        link: &str,
        options: &str,
        arguments: &str,
        seconds_max: u64,
    ) -> Line {
        self.under(link, options, seconds_max).arg(program).words(arguments).dir(folder())
    }
}

/// The source of the program of that name.
pub(crate) fn source(name: &str) -> PathBuf {
    root().join(FOLDER).join(name).with_extension("c")
}

/// Where compiled programs are.
fn folder() -> PathBuf {
    target_dir().join("programs")
}

/// Compiles a program; `None` if that fails.
pub(crate) fn compile(source: &Path, log: &Log) -> Result<Option<PathBuf>> {
    fs::create_dir_all(folder())?;
    let program = folder().join(source.file_stem().unwrap_or_default());
    let compiled = Line::new("cc")
        .words("-O1 -g -Wall -Wextra -Werror -Wno-unused-function -pthread -o")
        .arg(&program)
        .arg(source)
        .words("-libverbs -lrdmacm -ldl")
        .run_logged(log)?;
    Ok(compiled.then_some(program))
}

fn play_one(source: &Path, built: &Built, log: &Log) -> Result<Tally> {
    let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let Some(program) = compile(source, log)? else {
        println!("{name}: does not compile; {} says why", log.name());
        return Ok(Tally::failure());
    };
    let manner = manner(&fs::read_to_string(source)?);
    let mut tally = Tally::default();
    for link in &manner.links {
        for arguments in &manner.arguments {
            let line = built.line(&program, link, &manner.options, arguments, SECONDS_MAX);
            let success = line.run_logged(log)?;
            println!("{name} {arguments} over {link}: {}", if success { "ok" } else { "FAILED" });
            tally.add(Tally::one(success));
        }
    }
    for played in of_manner(source, &manner) {
        let Played { link, scenario, arguments, .. } = &played;
        let success = play_twice(&program, built, &played, log)?;
        println!("{name} {arguments} with {scenario} over {link}: {}", if success { "ok" } else { "FAILED" });
        tally.add(Tally::one(success));
    }
    Ok(tally)
}

/// A program's run with a scenario.
pub(crate) struct Played {
    /// The program.
    pub(crate) source: PathBuf,
    pub(crate) scenario: String,
    pub(crate) arguments: String,
    pub(crate) link: String,
    options: String,
}

fn of_manner(source: &Path, manner: &Manner) -> Vec<Played> {
    let mut all = Vec::new();
    for link in &manner.links {
        for (scenario, arguments) in &manner.scenarios {
            all.push(Played {
                source: source.to_path_buf(),
                scenario: scenario.clone(),
                arguments: arguments.clone(),
                link: link.clone(),
                options: manner.options.clone(),
            });
        }
    }
    all
}

/// Every run with a scenario.
pub(crate) fn with_scenarios() -> Result<Vec<Played>> {
    let mut all = Vec::new();
    for source in chosen(&[])? {
        all.extend(of_manner(&source, &manner(&fs::read_to_string(&source)?)));
    }
    Ok(all)
}

/// The file of a scenario that ships.
pub(crate) fn scenario_file(name: &str) -> PathBuf {
    root().join("examples/scenarios").join(name).with_extension("toml")
}

/// Runs a program with its scenario; what went wrong, or `None` if the program fails.
pub(crate) fn diary(program: &Path, built: &Built, played: &Played, log: &Log) -> Result<Option<String>> {
    let Played { scenario, link, options, arguments, .. } = played;
    let file = scenario_file(scenario);
    let diary = folder().join(format!("{scenario}-{link}.log"));
    let options = format!("{options} --scenario {} --scenario-log {}", file.display(), diary.display());
    let success = built.line(program, link, &options, arguments, SECONDS_MAX).run_logged(log)?;
    Ok(if success { Some(fs::read_to_string(&diary)?) } else { None })
}

/// Runs a program twice with a scenario: it succeeds, and what went wrong was the same.
fn play_twice(program: &Path, built: &Built, played: &Played, log: &Log) -> Result<bool> {
    let mut logs = Vec::new();
    for _ in 0..2 {
        let Some(diary) = diary(program, built, played, log)? else { return Ok(false) };
        logs.push(diary);
    }
    let is_same = logs[0] == logs[1];
    if !is_same {
        log.note(&format!("two logs of one seed differ:\n{}\n{}", logs[0], logs[1]))?;
    }
    Ok(is_same)
}

/// Reads the lines of the first comment.
fn manner(source: &str) -> Manner {
    let comment = source.split("*/").next().unwrap_or_default();
    let value = |line: &str, key: &str| {
        let line = line.trim_start_matches(['/', '*', ' ']);
        line.strip_prefix(key).and_then(|rest| rest.strip_prefix(':')).map(|rest| rest.trim().to_string())
    };
    let all = |key: &str| comment.lines().filter_map(|line| value(line, key)).collect::<Vec<_>>();
    let links = all("links").first().map_or("shm udp".into(), Clone::clone);
    let arguments = all("arguments");
    let pair = |line: String| {
        let (name, rest) = line.split_once(' ').unwrap_or((&line, ""));
        (name.to_string(), rest.trim().to_string())
    };
    let scenarios: Vec<_> = all("scenario").into_iter().map(pair).collect();
    let usual = if scenarios.is_empty() { vec![String::new()] } else { Vec::new() };
    Manner {
        links: links.split_whitespace().map(String::from).collect(),
        options: all("run").join(" "),
        arguments: if arguments.is_empty() { usual } else { arguments },
        scenarios,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_says_how_a_program_is_run() {
        let plain = manner("/* What it shows. */\nint main(void) { /* links: udp */ }");
        assert_eq!(plain.links, ["shm", "udp"]);
        assert_eq!((plain.options.as_str(), plain.arguments.len()), ("", 1));
        let told = manner(
            "/* What it shows.\n * links: shm\n * run: --loss 1%\n * arguments: one\n * arguments: two 2\n */",
        );
        assert_eq!(told.links, ["shm"]);
        assert_eq!((told.options.as_str(), told.arguments.join("|").as_str()), ("--loss 1%", "one|two 2"));
    }
}
