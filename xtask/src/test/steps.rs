//! The steps themselves, the quickest to fail first.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::shell::{Line, Log, has_program, root, target_dir};
use crate::{
    commands, compat, debug, dist, documents, fuzz, interop, java, layers, packages, programs, python, rtl,
    store, witnesses,
};

use super::tally::Tally;
use super::{binaries, doctest};

/// One numbered step.
pub(super) struct Step {
    /// As typed on the command line; also the name of its log.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// Also without `--all`.
    pub(super) first: bool,
    pub(super) run: fn(&Log) -> Result<Tally>,
    /// Where these packages are installed, `unit` runs the same tests.
    pub(super) in_unit_with: &'static [&'static str],
    /// It opens no device and no socket: it runs beside steps that do.
    pub(super) computes: bool,
    /// Behind all others.
    pub(super) last: bool,
}

impl Step {
    const fn computes(mut self) -> Self {
        self.computes = true;
        self
    }

    const fn last(mut self) -> Self {
        self.last = true;
        self
    }

    const fn in_unit_with(mut self, packages: &'static [&'static str]) -> Self {
        self.in_unit_with = packages;
        self
    }
}

const fn first(name: &'static str, title: &'static str, run: fn(&Log) -> Result<Tally>) -> Step {
    Step { name, title, first: true, run, in_unit_with: &[], computes: false, last: false }
}

const fn rest(name: &'static str, title: &'static str, run: fn(&Log) -> Result<Tally>) -> Step {
    Step { name, title, first: false, run, in_unit_with: &[], computes: false, last: false }
}

/// Every step of `cargo xtask test`.
pub(super) const ALL: &[Step] = &[
    first("format", "sources are formatted", format),
    first("layers", "crates depend downwards only", layers::step),
    first("documents", "the lists and links of the documents are true", documents::step),
    first("lint", "clippy finds nothing", lint),
    first("unit", "unit, golden, scenario and simulation tests", unit),
    first(
        "commands",
        "every command in the documentation exists, every link leads somewhere",
        commands::step,
    ),
    rest("cli", "the programs: two processes, end to end", cli),
    rest("page", "a browser draws every chart of a report", page).in_unit_with(BROWSER),
    rest("examples", "programs that show the Rust API run and find what they expect", examples),
    rest("doctest", "examples in the documentation run", examples_in_documentation),
    rest("docs", "the documentation builds without a warning", docs).computes(),
    rest("irn-trace", "the receiver reproduces the IRN authors' trace", irn_trace).computes(),
    rest("nanopu-traces", "the nanoPU answers recorded requests as the prototype did", nanopu_traces)
        .computes(),
    rest("dissector", "Wireshark reads the extension's packets as `highwire pcap` does", dissector)
        .in_unit_with(&["tshark"]),
    rest("witnesses", "Porcupine finds each key of simulated histories linearizable", witnesses::step)
        .computes(),
    rest(
        "rtl",
        "the nanoPU's and IRN's blocks in SystemVerilog do what the models do, cycle by cycle",
        rtl_blocks,
    )
    .computes(),
    rest("wake-model", "no wake-up is lost in any modelled interleaving", wake_model).computes(),
    rest("wake-soak", "no wake-up is lost among a million events for threads that sleep", wake_soak),
    rest("engines", "engines of processes that are stopped and killed lose nothing, under seeds", engines),
    rest("models", "loom finds no interleaving that breaks the tables", models).computes(),
    rest("miri", "Miri finds no undefined behaviour", miri).computes(),
    rest("fuzz", "every fuzz target, briefly", fuzz::step).computes(),
    rest("programs", "small programs in C against the drop-in libraries, over both links", programs::step),
    rest("dropin", "programs for RDMA cards, unmodified, a part of `cargo xtask compat`", compat::step),
    rest("java", "the verbs in Java, and conversations with them", java::step),
    rest("python", "the simulator as a Python module, in a virtual environment", python::step),
    rest("comparisons", "what measures other systems counts rightly, and notices a wrong reply", comparisons),
    rest("store", "the store: real faults, and Redis's own clients", store::step)
        .in_unit_with(store::PACKAGES),
    rest("interop", "conversations with the Linux kernel's RNIC", interop::step),
    rest(
        "wake-kernel",
        "the kernel module for waiting threads loads, loses no event and unloads",
        interop::wake::step,
    ),
    rest("dist", "each package, in a fresh minimal system: installed, used, removed", dist::step),
    rest("leftovers", "nothing is left behind", leftovers).last(),
];

fn format(log: &Log) -> Result<Tally> {
    Ok(Tally::one(Line::cargo("fmt --all --check").run_logged(log)?))
}

fn lint(log: &Log) -> Result<Tally> {
    Ok(Tally::one(Line::cargo("clippy --workspace --all-targets -- -D warnings").run_logged(log)?))
}

/// Packages with which tests compile, and with which they compare. A test prints a reason if one of them is
/// missing.
const TEST_PACKAGES: &[&str] = &[
    "gcc",
    "libc6-dev",
    "make",
    "libibverbs-dev",
    "librdmacm-dev",
    "gcc-riscv64-unknown-elf",
    "binutils-riscv64-unknown-elf",
    "picolibc-riscv64-unknown-elf",
    "gdb-multiarch",
    "qemu-user",
    "tshark",
];

fn unit(log: &Log) -> Result<Tally> {
    if let Err(missing) = packages::ensure(TEST_PACKAGES, log)? {
        log.note(&missing.0)?;
    }
    // Devices that share an address need the program that owns it.
    if !debug::program().run_logged(log)? {
        return Ok(Tally::one(false));
    }
    let broker = target_dir().join("debug/highwire");
    let line = Line::cargo(
        "test --workspace --exclude highwire --exclude highwire-lab --exclude highwire-python --lib --bins --tests",
    );
    binaries::run(log, line, ("HIGHWIRE_BROKER", &broker))
}

/// Devices of the tests meet in a folder of their own, which must be empty when all have ended.
fn cli(log: &Log) -> Result<Tally> {
    let folder = std::path::PathBuf::from(format!("/dev/shm/highwire-xtask-{}", std::process::id()));
    let line = Line::cargo("test --package highwire --package highwire-lab --bins --tests --no-fail-fast");
    let mut tally = cargo_test(log, line.env("HIGHWIRE_SHM_DIR", &folder))?;
    let deadline = Instant::now() + BROKER_PATIENCE;
    let mut left = left_in(&folder)?;
    while !left.is_empty() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
        left = left_in(&folder)?;
    }
    log.note(&format!("left in {}: {left:?}", folder.display()))?;
    tally.add(Tally::one(left.is_empty()));
    // It exists only if a device did.
    let _ = std::fs::remove_dir_all(&folder);
    Ok(tally)
}

/// How long the last brokers may take to end: each waits two seconds for another process.
const BROKER_PATIENCE: Duration = Duration::from_secs(20);

fn left_in(folder: &Path) -> Result<Vec<OsString>> {
    let mut left = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        left.push(entry?.file_name());
    }
    // These stay for the next process.
    left.retain(|name| ["lock", "roster-1", "net"].iter().all(|stays| name != stays));
    Ok(left)
}

const BROWSER: &[&str] = &["chromium"];

fn page(log: &Log) -> Result<Tally> {
    if !has_program("chromium")
        && let Err(missing) = packages::ensure(BROWSER, log)?
    {
        return Ok(Tally::skipped("page", &missing.0));
    }
    cargo_test(log, debug::test("highwire-sim", &["page"]))
}

/// Programs of `host` that end by themselves: each checks its results, and fails if they are wrong.
const EXAMPLES: &[&str] = &["hello", "one_sided", "datagrams", "events"];

fn examples(log: &Log) -> Result<Tally> {
    let is_built =
        debug::build("highwire-host", "--examples").run_logged(log)? && debug::program().run_logged(log)?;
    if !is_built {
        return Ok(Tally::one(false));
    }
    let folder = target_dir().join("debug/examples");
    let program = |name: &str| folder.join(name).display().to_string();
    let mut tally = Tally::default();
    for name in EXAMPLES {
        tally.add(Tally::one(Line::new(&program(name)).run_logged(log)?));
    }
    let echoed = ask(&program("echo"), log)?;
    tally.add(Tally::one(echoed.lines().eq("to be or not to be".split(' '))));
    let connected = ask(&program("connecting"), log)?;
    tally.add(Tally::one(connected == "TO BE OR NOT TO BE\n"));
    Ok(tally)
}

/// Runs a server that prints its address, and a client of the same program; returns the client's output.
fn ask(program: &str, log: &Log) -> Result<String> {
    // Devices that share their address start their broker, which is the command itself.
    let broker = target_dir().join("debug/highwire");
    let mut command = Command::new(program);
    command.env("HIGHWIRE_BROKER", &broker);
    let mut server = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut address = String::new();
    let read = BufReader::new(server.stdout.take().expect("it is piped")).read_line(&mut address);
    let client = Line::new(program).env("HIGHWIRE_BROKER", broker.display().to_string());
    let asked = client.arg(address.trim()).words("to be or not to be").capture();
    server.kill()?;
    server.wait()?;
    read?;
    let asked = asked?;
    log.note(&format!("{program} at {}: {}{}", address.trim(), asked.stdout, asked.stderr))?;
    Ok(if asked.success { asked.stdout } else { String::new() })
}

fn examples_in_documentation(log: &Log) -> Result<Tally> {
    match doctest::command()? {
        Some(line) => cargo_test(log, line),
        None => Ok(Tally::failure()),
    }
}

/// Runs tests so that the reasons of those that skip themselves can be read.
fn cargo_test(log: &Log, line: Line) -> Result<Tally> {
    let success = line.words("-- --show-output").run_logged(log)?;
    Ok(Tally::from_cargo_test(&log.text()?, success))
}

fn docs(log: &Log) -> Result<Tally> {
    let line = Line::cargo("doc --workspace --no-deps").env("RUSTDOCFLAGS", "-D warnings");
    Ok(Tally::one(line.run_logged(log)?))
}

/// A feature of its own, because it replaces the crate's atomics.
fn wake_model(log: &Log) -> Result<Tally> {
    cargo_test(log, Line::cargo("test --package highwire-wake --features model --test model"))
}

/// A feature of its own, because it lets a model play the device's threads and sockets.
fn engines(log: &Log) -> Result<Tally> {
    let line = Line::cargo("test --package highwire-host --features world --test simulated");
    Ok(Tally::one(line.run_logged(log)?))
}

/// A command of the page about waiting runs the long one, of a billion.
fn wake_soak(log: &Log) -> Result<Tally> {
    let program = "run --quiet --package highwire-lab --bin highwire-lab --";
    let line = Line::cargo(program).words("bench wake --soak 1000000 --threads 2,16,64 --patience 60");
    Ok(Tally::one(line.run_logged(log)?))
}

/// The trace is the authors' data, which this repository may not publish: it is read from the file that
/// `HIGHWIRE_IRN_TRACE` names.
fn irn_trace(log: &Log) -> Result<Tally> {
    const NAME: &str = "HIGHWIRE_IRN_TRACE";
    let beside = root().join("../shared/vectors/irn");
    let folder = match std::env::var_os(NAME) {
        Some(folder) => folder.into(),
        None if beside.is_dir() => beside,
        None => return Ok(Tally::skipped("irn-trace", &format!("no trace: set {NAME} to its folder"))),
    };
    let line = debug::test("highwire-transport", &["irn_trace"]).env(NAME, folder);
    let tally = cargo_test(log, line)?;
    if tally == Tally::default() {
        return Ok(Tally::skipped("irn-trace", "no test of that name"));
    }
    Ok(tally)
}

/// The traces are the authors' data, too.
fn nanopu_traces(log: &Log) -> Result<Tally> {
    const NAME: &str = "HIGHWIRE_NANOPU_TRACES";
    let beside = root().join("../shared/vectors/nanopu");
    let folder = match std::env::var_os(NAME) {
        Some(folder) => folder.into(),
        None if beside.is_dir() => beside,
        None => {
            return Ok(Tally::skipped("nanopu-traces", &format!("no traces: set {NAME} to their folder")));
        }
    };
    let line = debug::test("highwire-nanopu", &["threads", "selection"]);
    cargo_test(log, line.env(NAME, folder))
}

fn dissector(log: &Log) -> Result<Tally> {
    if let Err(missing) = packages::ensure(&["tshark"], log)? {
        return Ok(Tally::skipped("dissector", &missing.0));
    }
    cargo_test(log, debug::test("highwire-wire", &["dissector"]))
}

fn rtl_blocks(log: &Log) -> Result<Tally> {
    if let Err(missing) = packages::ensure(rtl::PACKAGES, log)? {
        return Ok(Tally::skipped("rtl", &missing.0));
    }
    let line = debug::test("highwire-nanopu", &["rtl"]).words("--package highwire-transport");
    cargo_test(log, line)
}

/// The part that all echoes share, and those over bare sockets, which take seconds to build. The benchmarks
/// build the others.
fn comparisons(log: &Log) -> Result<Tally> {
    let folder = root().join("comparisons");
    // The registry knows which versions there are.
    if !folder.join("Cargo.lock").is_file()
        && !Line::cargo("generate-lockfile").dir(&folder).run_logged(log)?
    {
        let reason = "cargo cannot tell which versions to take; the log says why";
        return Ok(Tally::skipped("comparisons", reason));
    }
    let mut tally = Tally::one(Line::cargo("fmt --check").dir(&folder).run_logged(log)?);
    let line = Line::cargo(
        "test --package comparisons-echo --package comparisons-wake --all-features --no-fail-fast --target-dir",
    );
    tally.add(cargo_test(log, line.arg(target_dir().join("comparisons")).dir(folder))?);
    Ok(tally)
}

fn models(log: &Log) -> Result<Tally> {
    let line = Line::cargo("test --package highwire-txn --lib models::").env("RUSTFLAGS", "--cfg loom");
    cargo_test(log, line)
}

/// Miri executes a few hundred times slower than the machine: only crates with short tests that matter.
fn miri(log: &Log) -> Result<Tally> {
    let probe = Line::cargo("+nightly miri --version").capture()?;
    if !probe.success {
        log.note(&probe.stderr)?;
        let reason = "no Miri here: rustup toolchain install nightly --component miri,rust-src";
        return Ok(Tally::skipped("miri", reason));
    }
    let mut tally = cargo_test(
        log,
        Line::cargo("+nightly miri test --package highwire-stdx --package highwire-shmem --lib"),
    )?;
    // Of the transactions only the parts that threads share; whole clusters would take days.
    tally.add(cargo_test(log, Line::cargo("+nightly miri test --package highwire-txn --lib table::"))?);
    Ok(tally)
}

fn leftovers(log: &Log) -> Result<Tally> {
    let strays = stray_files()?;
    for stray in &strays {
        log.note(&format!("left behind: {stray}"))?;
    }
    Ok(Tally::one(strays.is_empty()))
}

/// Build folders and captures outside `target`, and shared memory that no living process owns any more.
fn stray_files() -> Result<Vec<String>> {
    let untracked = Line::new("git").words("status --porcelain --untracked-files=normal").capture()?;
    let is_product = |path: &str| {
        path.split('/').any(|part| part == "target") || path.ends_with(".pcap") || path.ends_with(".log")
    };
    let strays = untracked.stdout.lines().filter_map(|line| line.strip_prefix("?? "));
    Ok(strays.filter(|path| is_product(path)).map(String::from).collect())
}
