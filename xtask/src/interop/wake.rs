//! `cargo xtask wake kernel`: services of the kernel for waiting threads that user space cannot provide.
//!
//! A kernel module (`interop/wake/module`), through which a dispatcher gives its core to the thread that it
//! wakes, is built against the headers of the guest's kernel and measured in the guest beside the strategies
//! of user space. The guest's processor is emulated: figures compare ways to wait, and say nothing about
//! microseconds on real cores. A second guest has the newest kernel that there is, for its additional
//! services: a scheduler of this repository's, and extensions of time slices.

mod guest;
mod image;
mod module;
mod newest;
mod report;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::initramfs;
use super::kernel::{self, Kernel};
use crate::packages;
use crate::shell::{Line, Log, root, target_dir};
use crate::test::Tally;

use report::Report;

/// The tasks about waiting threads that take a machine of their own.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, clap::Subcommand)]
enum Task {
    /// The kernel module beside the strategies of user space, in a guest.
    Kernel(Options),
}

/// A table of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Part {
    /// Every way to wait, in turns.
    Strategies,
    /// Completion channels of the kernel's own RNIC, through stock libibverbs.
    Channels,
    /// Extensions of time slices.
    Slices,
}

/// Options of `cargo xtask wake kernel`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask wake kernel                 the checks, then the tables: some minutes
  cargo xtask wake kernel --check         the module's promises alone: what `cargo xtask test wake-kernel` runs
  cargo xtask wake kernel --write-docs    and put the tables into docs/measurements/wake-kernel.md
  cargo xtask wake kernel --newest        the newest kernel instead, with our scheduler (270 MB to download, once)")]
struct Options {
    /// Only check what the module promises.
    #[arg(long, conflicts_with = "write_docs")]
    check: bool,
    /// The newest kernel, where sched_ext and time slices are; the module is not built for that one.
    #[arg(long, conflicts_with = "check")]
    newest: bool,
    /// Rewrite the tables of docs/measurements/wake-kernel.md.
    #[arg(long)]
    write_docs: bool,
    /// How often every way to wait has its turn.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Milliseconds of a turn.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    turn_ms: u32,
    /// What to measure; all of it if nothing is said.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Part::Strategies, Part::Channels, Part::Slices])]
    only: Vec<Part>,
    /// Waiting threads.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 128], value_parser = clap::value_parser!(u32).range(1..=512))]
    threads: Vec<u32>,
}

/// Debian's packages for the guest and the module.
const PACKAGES: &[&str] = &[
    "qemu-system-x86",
    "busybox-static",
    "iproute2",
    "gcc",
    "make",
    "binutils",
    "libc6-dev",
    "libelf1",
    "ibverbs-providers",
    "ibverbs-utils",
    "perftest",
];

/// Events of the check: all must be answered.
const EVENTS: u64 = 100_000;
/// Messages of a run of the check over the kernel's own RNIC.
const CHANNEL_MESSAGES: u32 = 300;
/// Messages of a run over the kernel's own RNIC, and milliseconds of the two runs about time slices.
const MESSAGES: u32 = 1000;
const SLICES_MS: u32 = 5000;
/// Boot, checks and power-off take a quarter of a minute if no other program wants the cores.
const CHECK_LIMIT: Duration = Duration::from_secs(600);
/// A table of the default size takes some minutes there.
const TABLE_LIMIT: Duration = Duration::from_secs(3600);

/// Runs what was asked for with its output on the terminal.
///
/// # Errors
/// A tool that is there but does not work, or a guest that does not finish.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let Task::Kernel(options) = &args.task;
    if let Some(reason) = obstacle(&Log::create("wake-packages")?)? {
        println!("skipped: {reason}");
        return Ok(ExitCode::SUCCESS);
    }
    if options.newest {
        return newest_table(options);
    }
    let checked = Report::of(&check()?);
    print!("{checked}");
    if options.check || !checked.failed.is_empty() {
        return Ok(if checked.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let work = work_dir()?;
    let kernel = kernel::fetch(&interop_dir()?)?;
    let module = module::build(&kernel, &work)?;
    prepare(&kernel, "release", &[module], &work)?;
    measure(options, &work, report::KERNEL)
}

/// The newest kernel's guest.
fn newest_table(options: &Options) -> Result<ExitCode> {
    if let Err(packages::Missing(reason)) =
        packages::ensure(newest::PACKAGES, &Log::create("wake-packages")?)?
    {
        println!("skipped: {reason}");
        return Ok(ExitCode::SUCCESS);
    }
    // Beside the other guest: both may run at once.
    let work = work_dir()?.join("newest");
    std::fs::create_dir_all(&work)?;
    let kernel = newest::fetch(&work)?;
    let scheduler = newest::scheduler(&work)?;
    prepare(&kernel, "release", &scheduler, &work)?;
    measure(options, &work, report::NEWEST)
}

/// Lets the guest of `work` measure everything, and writes it into a section of the page if that is wanted.
fn measure(options: &Options, work: &Path, section: &str) -> Result<ExitCode> {
    let threads = options.threads.iter().map(u32::to_string).collect::<Vec<_>>().join("+");
    let rounds = options.rounds;
    let task = |part: &Part| match part {
        Part::Strategies => format!("table:{rounds}:{}:{threads}", options.turn_ms),
        Part::Channels => format!("rxe:{rounds}:{MESSAGES}"),
        Part::Slices => format!("slices:{SLICES_MS}"),
    };
    let tasks = options.only.iter().map(task).collect::<Vec<_>>().join(",");
    let report = Report::of(&guest::run(work, &tasks, TABLE_LIMIT)?);
    print!("{report}");
    if !report.failed.is_empty() {
        return Ok(ExitCode::FAILURE);
    }
    if options.write_docs {
        report.write_docs(section)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The module's promises as a step of `cargo xtask test`.
pub(crate) fn step(log: &Log) -> Result<Tally> {
    if let Some(reason) = obstacle(log)? {
        return Ok(Tally::skipped("wake-kernel", &reason));
    }
    let lines = check()?;
    log.note(&lines.join("\n"))?;
    let report = Report::of(&lines);
    Ok(Tally::counts(report.passed.len(), report.failed.len()))
}

/// Builds everything, and lets the guest check the module's promises.
fn check() -> Result<Vec<String>> {
    let work = work_dir()?;
    let kernel = kernel::fetch(&interop_dir()?)?;
    let module = module::build(&kernel, &work)?;
    prepare(&kernel, "debug", &[module], &work)?;
    guest::run(&work, &format!("check:{EVENTS},channels:{CHANNEL_MESSAGES}"), CHECK_LIMIT)
}

/// Program and initramfs for this kernel, with these files. The check uses the build of the other tests, the
/// table the build of other measurements.
fn prepare(kernel: &Kernel, profile: &str, ours: &[PathBuf], work: &Path) -> Result<()> {
    let line = Line::cargo("build --quiet --package interop-wake");
    let output = if profile == "release" { line.arg("--release") } else { line }.capture()?;
    if !output.success {
        bail!("the guest's program does not build:\n{}", output.stderr.trim());
    }
    let program = initramfs::stripped(&target_dir().join(profile).join("interop-wake"), work)?;
    image::build(kernel, &[ours, &[program]].concat(), work)
}

/// Why this machine cannot run the guest, if so; installs packages where it may.
fn obstacle(log: &Log) -> Result<Option<String>> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Ok(Some("the guest is built for x86-64 Linux".into()));
    }
    if let Err(packages::Missing(reason)) = packages::ensure(PACKAGES, log)? {
        return Ok(Some(reason));
    }
    let kernel = match kernel::fetch(&interop_dir()?) {
        Ok(kernel) => kernel,
        Err(error) => return Ok(Some(format!("no kernel for the guest: {error:#}"))),
    };
    Ok(module::headers(&kernel.release(), &work_dir()?)
        .err()
        .map(|error| format!("no headers of the guest's kernel: {error:#}")))
}

/// The folder of the other guest's kernel, which this guest uses too.
fn interop_dir() -> Result<PathBuf> {
    super::work_dir()
}

fn work_dir() -> Result<PathBuf> {
    let dir = target_dir().join("wake");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}

/// A file or folder of the guest's sources.
fn source(name: &str) -> PathBuf {
    root().join("interop/wake").join(name)
}
