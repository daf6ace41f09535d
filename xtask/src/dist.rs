//! `cargo xtask dist`: what users install, made in `target/dist`.
//!
//! One tree of files (`stage`) goes into every package, so all of them hold the same program. Times in packages are those
//! of the commit, and lists are sorted: the same tree gives the same bytes.

mod archive;
mod build;
mod crates;
mod floor;
mod glibc;
mod oci;
mod packaged;
mod stage;
mod tools;
mod trial;
mod wheel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::java;
use crate::shell::{Line, Log, root, target_dir};

use build::{Product, Profile};
use packaged::Format;
use stage::{Part, Stage};
pub(crate) use trial::step;

/// Options of `cargo xtask dist`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  cargo xtask dist                 every package, and SHA256SUMS
  cargo xtask dist deb wheel       two of them
  cargo xtask dist crates          pack every crate that is published, as a dry run
  cargo xtask dist java            install the Java modules in the local repository of Maven")]
pub(crate) struct Args {
    /// What to make; every package without any.
    kinds: Vec<Kind>,
    /// Compile without optimisation: quick, to try the packages themselves.
    #[arg(long)]
    debug: bool,
}

/// What can be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Kind {
    /// An archive to unpack anywhere.
    Tar,
    /// A package for Debian, Ubuntu and their like.
    Deb,
    /// A package for Fedora, RHEL, SUSE and their like.
    Rpm,
    /// An image that holds nothing else, for `COPY --from=`.
    Oci,
    /// A package for pip.
    Wheel,
    /// Every crate that is published, packed and not sent.
    Crates,
    /// The Java modules, installed in the local repository of Maven.
    Java,
}

/// The kinds that are files in `target/dist`.
const FILES: [Kind; 5] = [Kind::Tar, Kind::Deb, Kind::Rpm, Kind::Oci, Kind::Wheel];

/// Makes what is asked for and prints where it is.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let mut kinds = if args.kinds.is_empty() { FILES.to_vec() } else { args.kinds.clone() };
    kinds.sort_unstable();
    kinds.dedup();
    let log = Log::create("dist")?;
    let (files, others): (Vec<Kind>, Vec<Kind>) = kinds.into_iter().partition(|kind| FILES.contains(kind));
    let profile = if args.debug { Profile::Debug } else { Profile::Release };
    if !files.is_empty() {
        let made =
            make(&files, profile, &log).with_context(|| format!("the log is {}", log.path().display()))?;
        for path in made {
            println!("{}", path.display());
        }
    }
    let mut success = true;
    for kind in others {
        success &= match kind {
            Kind::Crates => crates::check(&product(profile, &log)?.0, &log)?,
            _ => java::install(&product(profile, &log)?.0.program(), &log)?,
        };
    }
    if !success {
        eprintln!("error: the log {} says why", log.path().display());
    }
    Ok(if success { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the product and packs it as files of these kinds; the sums come last.
fn make(kinds: &[Kind], profile: Profile, log: &Log) -> Result<Vec<PathBuf>> {
    let (product, tools) = product(profile, log)?;
    let stages = Stage::both(&product, log)?;
    let folder = target_dir().join("dist");
    let mut made = pack_all(kinds, &stages, &tools, &folder, log)?;
    made.push(archive::sums(&folder)?);
    Ok(made)
}

/// The product, which starts on the oldest C library, and the tools that made it.
fn product(profile: Profile, log: &Log) -> Result<(Product, tools::Tools)> {
    let tools = match tools::Tools::get(log)? {
        Ok(tools) => tools,
        Err(missing) => bail!("{}", missing.0),
    };
    let product = Product::build(&tools, profile, log)?;
    let problems = product.problems()?;
    if !problems.is_empty() {
        bail!("{}", problems.join("\n"));
    }
    Ok((product, tools))
}

/// Packs both parts as files of these kinds. An image and a wheel hold the product alone.
fn pack_all(
    kinds: &[Kind],
    stages: &[Stage; 2],
    tools: &tools::Tools,
    to: &Path,
    log: &Log,
) -> Result<Vec<PathBuf>> {
    let mut made = Vec::new();
    for kind in kinds {
        let has_part =
            |stage: &&Stage| stage.part == Part::Product || matches!(kind, Kind::Tar | Kind::Deb | Kind::Rpm);
        for stage in stages.iter().filter(has_part) {
            made.push(pack(*kind, stage, tools, to, log)?);
        }
    }
    Ok(made)
}

/// Packs a tree as one kind of file.
fn pack(kind: Kind, stage: &Stage, tools: &tools::Tools, to: &Path, log: &Log) -> Result<PathBuf> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    match kind {
        Kind::Tar => archive::tarball(stage, to, log),
        Kind::Deb => packaged::make(Format::Deb, stage, tools, to, log),
        Kind::Rpm => packaged::make(Format::Rpm, stage, tools, to, log),
        Kind::Oci => oci::make(stage, to, log),
        Kind::Wheel => wheel::make(stage, tools, to, log),
        Kind::Crates | Kind::Java => bail!("{kind:?} is no file"),
    }
}

/// The version of the release: that of the workspace.
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// The time that packages carry: `SOURCE_DATE_EPOCH`, or the time of the commit, in seconds.
fn epoch() -> Result<u64> {
    if let Ok(set) = std::env::var("SOURCE_DATE_EPOCH") {
        return set
            .trim()
            .parse()
            .with_context(|| format!("SOURCE_DATE_EPOCH is `{set}`, no number of seconds"));
    }
    let output = Line::new("git").words("log -1 --format=%ct").capture()?;
    // A source archive without its history: a fixed time is better than none.
    Ok(output.stdout.trim().parse().unwrap_or(0))
}

/// The commit, if there is one.
fn commit() -> Option<String> {
    let output = Line::new("git").words("rev-parse HEAD").capture().ok()?;
    output.success.then(|| output.stdout.trim().to_owned())
}

/// What is kept from one run to the next: tools, stubs, roots. Outside of `target/dist`, which holds results only.
fn cache() -> PathBuf {
    target_dir().join("dist-cache")
}

/// Runs a command, and says what failed.
fn check(line: &Line, log: &Log) -> Result<()> {
    if !line.run_logged(log)? {
        bail!("`{line}` failed; the log {} says why", log.name());
    }
    Ok(())
}

/// The licences, which every package has.
fn licences() -> [PathBuf; 2] {
    [root().join("LICENSE-APACHE"), root().join("LICENSE-MIT")]
}
