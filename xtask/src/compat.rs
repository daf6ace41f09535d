//! `cargo xtask compat`: other people's programs and test suites, unmodified, as Debian ships them, over
//! Highwire.
//!
//! Each case is one line of a catalogue: the program at one end or at both, the link, and the output that
//! proves success. `docs/measurements/compatibility.md` is written from the results, never by hand.

mod beside_rxe;
mod case;
mod catalogue;
mod ends;
mod judge;
mod measured;
mod outcome;
mod page;
mod read;
mod results;
mod speed;
mod suite;
mod valkey;
mod verdict;
mod waiting;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::measure::PROGRAMS;
use crate::shell::{Line, Log, root, target_dir};
use crate::test::Tally;
use crate::{debug, libs, packages};

use case::Case;
use results::{Results, Store};
use verdict::Verdict;

/// Options of `cargo xtask compat`.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask compat                     everything: about eight minutes
  cargo xtask compat --only ib_send_lat  the cases whose line contains this text
  cargo xtask compat --list              the cases
  cargo xtask compat --one-more-thread   each program has one more thread before it begins, as large programs have
  cargo xtask compat --speed             latency and bandwidth beside TCP's
  cargo xtask compat --waiting           programs that sleep for their completions, before and after: about ten minutes
  cargo xtask compat --waiting --rounds 3 --all-modes --write-docs    as the page has it: about half an hour
  cargo xtask compat --valkey            Valkey's server over RDMA beside TCP, under every mode of waiting: about ten minutes
  cargo xtask compat --beside-rxe        the same programs on the kernel's software RNIC, in a guest
  cargo xtask compat --write-docs        everything, and write docs/measurements/compatibility.md; with --only, a part of it anew")]
pub(crate) struct Args {
    /// Run only the cases whose line contains this text.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// List the cases and leave.
    #[arg(long)]
    list: bool,
    /// The cases that `cargo xtask test` runs.
    #[arg(long)]
    quick: bool,
    /// Each program has one more thread, which sleeps, before it begins: most large programs have when they register memory, and small
    /// ones have not. The results are not kept for the page.
    #[arg(long, conflicts_with_all = ["list", "waiting", "valkey", "write_docs"])]
    one_more_thread: bool,
    /// Measure instead: perftest, UCX, qperf and rstream over Highwire and over the kernel's TCP.
    #[arg(long, conflicts_with_all = ["only", "list", "quick"])]
    speed: bool,
    /// Measure instead how soon programs that sleep have their completions, as on a card and as here, alone and beside threads that compute.
    #[arg(long, conflicts_with_all = ["list", "quick", "speed"])]
    waiting: bool,
    /// Measure instead Valkey's server over RDMA under every mode of waiting, beside its epoll over TCP.
    #[arg(long, conflicts_with_all = ["only", "list", "quick", "speed", "waiting"])]
    valkey: bool,
    /// Run the same programs and suites in a guest on the kernel's software RNIC, and compare with the latest results here, made now where there is none.
    #[arg(long, conflicts_with_all = ["list", "quick", "speed", "waiting", "valkey"])]
    beside_rxe: bool,
    /// Every mode of waiting, and not only `event` and the default.
    #[arg(long, requires = "waiting")]
    all_modes: bool,
    /// Rounds of a measurement, of which the medians count [default: 3 of --speed and --valkey, 1 of --waiting]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["list", "quick"])]
    rounds: Option<u32>,
    /// Write docs/measurements/compatibility.md from the latest result of every case; with --speed, the tables of docs/measurements/verbs.md; with --waiting or --valkey, the page of each.
    #[arg(long)]
    write_docs: bool,
    /// Use the libraries and the program as they were built last.
    #[arg(long)]
    no_build: bool,
    /// Build without optimising: for trying a change, not for numbers.
    #[arg(long, conflicts_with = "write_docs")]
    debug: bool,
}

/// Debian's packages with the programs.
const PACKAGES: &[&str] = &[
    "ibverbs-utils",
    "rdmacm-utils",
    "perftest",
    "qperf",
    "infiniband-diags",
    "libfabric-bin",
    "ucx-utils",
    "openmpi-bin",
    "libopenmpi-dev",
    "mpich",
    "libmpich-dev",
    "python3-pyverbs",
    "rdma-core",
    "librdmacm1",
    "libibverbs-dev",
    "librdmacm-dev",
    "fio",
    "tgt",
    "libiscsi-bin",
    "iperf3",
    "gcc",
    "libc6-dev",
    "make",
    "xz-utils",
    "qemu-system-x86",
    "python3-venv",
];

/// The groups of quick cases that the tests run with one more thread, too: programs that register memory.
const BESIDE_A_THREAD: [&str; 2] = ["perftest", "ibverbs-utils"];

/// The places of a run's programs, libraries and logs.
#[derive(Debug)]
struct Workshop {
    /// The `highwire` program.
    highwire: PathBuf,
    /// The folder with the libraries.
    libraries: PathBuf,
    /// The folder for outputs.
    folder: PathBuf,
    /// The folder in which the devices of the run meet.
    registry: PathBuf,
    /// The address that they share: another one than that of a user who works here at the same time.
    address: String,
    /// What programs have preloaded beside that of `highwire run`.
    preload: Option<PathBuf>,
}

/// Runs the cases with their results on the terminal; outputs are in `target/compat/`.
///
/// # Errors
/// The libraries cannot be built. A case that fails shows in the exit code.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let cases = if args.waiting || args.valkey || args.beside_rxe { Vec::new() } else { chosen(args)? };
    if args.list {
        for case in &cases {
            println!("{}", case.line());
        }
        println!("{} cases", cases.len());
        return Ok(ExitCode::SUCCESS);
    }
    let log = Log::create("compat-packages")?;
    let missing = packages::ensure(PACKAGES, &log)?.err();
    if let Some(packages::Missing(reason)) = &missing {
        println!("some programs may be missing: {reason}");
    }
    let mut workshop = Workshop::open(!args.no_build, !args.debug)?;
    if args.one_more_thread {
        workshop.preload = Some(workshop.one_more_thread()?.context("no cc, from Debian's gcc")?);
    }
    if args.speed {
        speed::run(&workshop, args.rounds.unwrap_or(3), args.write_docs)?;
        workshop.close();
        return Ok(ExitCode::SUCCESS);
    }
    if args.waiting {
        let plan = waiting::Plan {
            rounds: args.rounds.unwrap_or(1),
            all_modes: args.all_modes,
            only: args.only.as_deref(),
            write_docs: args.write_docs,
        };
        waiting::run(&workshop, &plan)?;
        workshop.close();
        return Ok(ExitCode::SUCCESS);
    }
    if args.beside_rxe {
        beside_rxe::run(&workshop, args.only.as_deref(), args.write_docs)?;
        workshop.close();
        return Ok(ExitCode::SUCCESS);
    }
    if args.valkey {
        valkey::run(&workshop, args.rounds.unwrap_or(3), args.write_docs)?;
        workshop.close();
        return Ok(ExitCode::SUCCESS);
    }
    let started = Instant::now();
    let results = play(&cases, &workshop)?;
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    println!("\n{}", results.summary());
    println!("{minutes:.1} minutes; outputs in {}", workshop.folder.display());
    if args.write_docs {
        page::write(&Store::load(&workshop.results()).results(&catalogue::all()))?;
    }
    workshop.close();
    Ok(if results.failed() > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The quick cases as a step of `cargo xtask test`.
pub(crate) fn step(log: &Log) -> Result<Tally> {
    if let Err(packages::Missing(reason)) = packages::ensure(PACKAGES, log)? {
        return Ok(Tally::skipped("dropin", &reason));
    }
    // As the other steps have built them: an optimised build would take longer than the cases.
    let mut workshop = Workshop::open(true, false)?;
    let cases = chosen(&Args { quick: true, ..Args::default() })?;
    let mut tally = Tally::default();
    let mut runs: Vec<(&Case, bool)> = cases.iter().map(|case| (case, false)).collect();
    runs.extend(cases.iter().filter(|case| BESIDE_A_THREAD.contains(&case.group)).map(|case| (case, true)));
    let one_more = workshop.one_more_thread()?;
    for (case, has_one_more) in runs {
        workshop.preload = one_more.clone().filter(|_| has_one_more);
        let beside = if workshop.preload.is_some() { ", one more thread" } else { "" };
        let verdict = ends::run(&workshop, case)?;
        log.note(&format!("{}{beside}: {verdict}", case.line()))?;
        tally.add(match verdict {
            Verdict::Works(_) => Tally::one(true),
            Verdict::Fails(_) => Tally::failure(),
            Verdict::Skipped(reason) => Tally::skipped(&case.line(), &reason),
        });
    }
    workshop.close();
    log.note("$ cargo xtask compat --quick --debug")?;
    Ok(tally)
}

fn chosen(args: &Args) -> Result<Vec<Case>> {
    let mut cases = catalogue::all();
    cases.retain(|case| !args.quick || case.quick);
    if let Some(text) = &args.only {
        cases.retain(|case| case.line().contains(text.as_str()));
        if cases.is_empty() {
            bail!("no case contains '{text}': cargo xtask compat --list");
        }
    }
    Ok(cases)
}

fn play(cases: &[Case], workshop: &Workshop) -> Result<Results> {
    let mut results = Results::default();
    let mut store = Store::load(&workshop.results());
    for (number, case) in (1..).zip(cases) {
        let started = Instant::now();
        let verdict = ends::run(workshop, case)?;
        // The page tells of programs as they are.
        let is_kept = workshop.preload.is_none();
        println!(
            "[{number:>3}/{}] {:<70} {verdict}  ({:.1} s)",
            cases.len(),
            case.line(),
            started.elapsed().as_secs_f64()
        );
        if is_kept {
            store.put(case, &verdict);
            store.save(&workshop.results())?;
        }
        results.add(case, verdict);
    }
    Ok(results)
}

impl Workshop {
    fn open(build: bool, release: bool) -> Result<Workshop> {
        if build {
            let line = if release { Line::cargo(PROGRAMS).arg("--release") } else { debug::program() };
            if !line.arg("--quiet").run()? || libs::build(release)?.is_none() {
                bail!("the libraries do not build");
            }
        }
        let folder = target_dir().join("compat");
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let built = target_dir().join(if release { "release" } else { "debug" });
        let pid = std::process::id();
        let workshop = Workshop {
            highwire: built.join("highwire"),
            libraries: built.join("highwire-libs"),
            address: format!("127.84.{}.{}", (pid >> 8) & 0xff, (pid & 0xff).clamp(1, 254)),
            registry: PathBuf::from(format!("/dev/shm/highwire-compat-{pid}")),
            folder,
            preload: None,
        };
        if !workshop.highwire.is_file() || !workshop.libraries.join("libibverbs.so.1").is_file() {
            bail!("nothing was built: leave --no-build out");
        }
        Ok(workshop)
    }

    fn results(&self) -> PathBuf {
        self.folder.join("results.json")
    }

    /// C programs of this repository, built once.
    fn program(&self, name: &str, compiler: &str, options: &str) -> Result<Option<PathBuf>> {
        let source = root().join("interop/programs").join(format!("{name}.c"));
        let binary = self.folder.join(format!("{name}-{compiler}"));
        if !crate::shell::has_program(compiler) {
            return Ok(None);
        }
        let line = Line::new(compiler).words("-O2 -Wall -o").arg(&binary).arg(&source).words(options);
        let output = line.capture()?;
        if !output.success {
            bail!("$ {line}\n{}{}", output.stdout, output.stderr);
        }
        Ok(Some(binary))
    }

    /// The library that gives a program one more thread.
    fn one_more_thread(&self) -> Result<Option<PathBuf>> {
        self.program("one_more_thread", "cc", "-shared -fPIC -pthread")
    }

    fn close(&self) {
        // Only a device that outlives its program leaves files here, and its own test shows that.
        let _ = std::fs::remove_dir_all(&self.registry);
    }
}
