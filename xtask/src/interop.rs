//! `cargo xtask interop`: Highwire against a foreign peer, the Linux kernel's `rdma_rxe`.
//!
//! A Debian kernel boots in QEMU without hardware help (TCG) from an initramfs made here: the RDMA modules,
//! the programs of rdma-core and perftest, and a small verbs agent (`interop/guest`) that carries out the
//! scenarios' requests over TCP. Guest and test meet on a tap device in a network namespace of their own, so
//! that no root is needed, nothing of the machine's network is touched, and UDP port 4791 is free.
//!
//! If a part cannot run here, it prints why and counts as a skip; `docs/interop.md` is the page about it.

mod agent;
mod capture;
mod cpio;
mod guest;
mod initramfs;
mod java;
mod kernel;
mod namespace;
mod outcome;
mod pattern;
mod peer;
mod scenarios;
pub(crate) mod suites;
pub(crate) mod wake;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::packages;
use crate::shell::{Line, Log, root, target_dir};
use crate::test::Tally;

use outcome::Outcome;

/// Options of `cargo xtask interop`.
#[derive(Debug, Default, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask interop              every scenario, both roles: about a minute
  cargo xtask interop --only rnr   those whose name contains 'rnr'
  cargo xtask interop --shell      a shell in the guest's network, to try something by hand")]
pub(crate) struct Args {
    /// Run only the scenarios whose name, roles included, contains this text.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// List the scenarios and what each checks.
    #[arg(long)]
    list: bool,
    /// Play them between the kernel and itself: a check of the scenarios, not of Highwire.
    #[arg(long)]
    control: bool,
    /// Boot the guest and open a shell in its network namespace instead.
    #[arg(long, conflicts_with_all = ["only", "list"])]
    shell: bool,
    /// Play the tasks of `cargo xtask compat --beside-rxe` instead.
    #[arg(long, hide = true, conflicts_with_all = ["only", "list", "shell", "control"])]
    suites: bool,
}

/// Debian's packages for the guest.
const PACKAGES: &[&str] = &[
    "qemu-system-x86",
    "busybox-static",
    "iproute2",
    "gcc",
    "binutils",
    "libc6-dev",
    "libibverbs-dev",
    "ibverbs-providers",
    "ibverbs-utils",
    "rdmacm-utils",
    "perftest",
    "tshark",
];

/// Runs the scenarios with their output on the terminal. Everything it makes lies in `target/interop/`.
///
/// # Errors
/// A tool that exists but does not work: apt, dpkg, gcc or QEMU, with its output. A scenario that fails shows
/// in the exit code; a machine that cannot run the guest prints why and is no failure.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    if args.list {
        scenarios::list();
        return Ok(ExitCode::SUCCESS);
    }
    if namespace::is_inside() {
        return inside(args);
    }
    let outcome = match obstacle()? {
        Some(reason) => Outcome::nothing(&reason),
        None => {
            let kernel = kernel::fetch(&work_dir()?)?;
            let mut ours = Vec::new();
            if !args.control && !args.shell {
                peer::build()?;
                ours = scenarios::programs::build()?;
                ours.push(peer::program());
                if scenarios::java::is_wanted(args.only.as_deref()) {
                    java::build()?;
                }
            }
            initramfs::build(&kernel, &ours, &work_dir()?)?;
            namespace::reenter(args)?
        }
    };
    println!("{outcome}");
    outcome.store(&outcome_path()?)?;
    Ok(outcome.exit_code())
}

/// Runs the scenarios as a step of `cargo xtask test`.
pub(crate) fn step(log: &Log) -> Result<Tally> {
    let path = outcome_path()?;
    Outcome::forget(&path)?;
    let this_program = std::env::current_exe().context("no path to this program")?;
    Line::new(&this_program.to_string_lossy()).arg("interop").run_logged(log)?;
    Ok(Outcome::load(&path)?.tally())
}

/// Why this machine cannot run the guest, if so; installs packages where it may.
fn obstacle() -> Result<Option<String>> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
        return Ok(Some("the guest is built for x86-64 Linux".into()));
    }
    if let Err(packages::Missing(reason)) = packages::ensure(PACKAGES, &Log::create("interop-packages")?)? {
        return Ok(Some(reason));
    }
    Ok(namespace::obstacle())
}

/// The part that runs within the namespace: boots the guest, then plays the scenarios.
fn inside(args: &Args) -> Result<ExitCode> {
    namespace::set_up()?;
    let guest = guest::Guest::boot(&work_dir()?)?;
    println!("{guest}");
    if args.shell {
        namespace::shell()?;
    } else if args.suites {
        suites::play_inside()?;
    } else {
        let mut outcome = scenarios::play(args.only.as_deref(), args.control)?;
        if !args.control {
            scenarios::judge_capture(&guest::capture_path(&work_dir()?), args.only.is_none(), &mut outcome)?;
        }
        outcome.store(&outcome_path()?)?;
    }
    guest.stop()?;
    Ok(ExitCode::SUCCESS)
}

/// The folder for everything that is made or downloaded; made on first use.
fn work_dir() -> Result<PathBuf> {
    let dir = target_dir().join("interop");
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
    Ok(dir)
}

/// The file in which a run leaves its outcome for the process that started it.
fn outcome_path() -> Result<PathBuf> {
    Ok(work_dir()?.join("outcome"))
}

/// The C and shell sources of the guest's programs.
fn guest_sources() -> PathBuf {
    root().join("interop/guest")
}
