//! Building a block with Verilator, and running it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The ports of one direction, a word or several each, in a fixed order.
pub(crate) trait Ports: Clone + Default {
    /// Name and words of each.
    const PORTS: &'static [(&'static str, usize)];

    /// Their values, in that order.
    fn words(&self, to: &mut Vec<u64>);
}

/// How many words all ports have together.
pub(crate) fn words_of<P: Ports>() -> usize {
    P::PORTS.iter().map(|&(_, words)| words).sum()
}

/// What a port holds.
pub(crate) trait Value {
    /// Words of 64 bits.
    const WORDS: usize;

    /// The words, the lowest first.
    fn put(&self, to: &mut Vec<u64>);
}

impl Value for u64 {
    const WORDS: usize = 1;

    fn put(&self, to: &mut Vec<u64>) {
        to.push(*self);
    }
}

impl<const N: usize> Value for [u64; N] {
    const WORDS: usize = N;

    fn put(&self, to: &mut Vec<u64>) {
        to.extend(self);
    }
}

/// A struct whose fields are the ports of a block.
macro_rules! ports {
    ($(#[$doc:meta])* $name:ident { $($port:ident: $type:ty),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default)]
        pub(crate) struct $name { $(pub(crate) $port: $type),* }

        impl $crate::bench::Ports for $name {
            const PORTS: &'static [(&'static str, usize)] =
                &[$((stringify!($port), <$type as $crate::bench::Value>::WORDS)),*];

            fn words(&self, to: &mut Vec<u64>) {
                $($crate::bench::Value::put(&self.$port, to);)*
            }
        }
    };
}
pub(crate) use ports;

/// Joins numbers of `bits` bits each to the words of one port, the first lowest.
pub(crate) fn join<const N: usize>(bits: usize, values: impl IntoIterator<Item = u64>) -> [u64; N] {
    let mut words = [0; N];
    for (index, value) in values.into_iter().enumerate() {
        for bit in (0..bits).filter(|bit| value >> bit & 1 != 0) {
            let at = index * bits + bit;
            words[at / 64] |= 1 << (at % 64);
        }
    }
    words
}

/// A block for Verilator to build.
#[derive(Clone, Debug, Default, Hash)]
pub(crate) struct Block {
    /// The module.
    pub(crate) top: &'static str,
    /// Its parameters.
    pub(crate) parameters: Vec<(&'static str, u64)>,
    /// A fault to build in, by the name of its define.
    pub(crate) mutant: Option<&'static str>,
}

/// A block that can run.
pub(crate) struct Bench {
    program: PathBuf,
    /// A fault of a build that has several, switched on by this argument.
    fault: Option<String>,
    input_words: usize,
    output_words: usize,
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../rtl")
}

impl Bench {
    /// Builds `block`, or finds it built; nothing, and the reason printed, where there is no Verilator.
    pub(crate) fn build<I: Ports, O: Ports>(block: &Block) -> Option<Bench> {
        let version = Command::new("verilator").arg("--version").output();
        let Ok(version) = version else {
            println!("skipped: no verilator, from Debian's package of that name");
            return None;
        };
        let ports = format!(
            "constexpr std::size_t kInputWords = {}, kOutputWords = {};\n#define INPUTS(PORT){}\n#define OUTPUTS(PORT){}\n",
            words_of::<I>(),
            words_of::<O>(),
            listed::<I>(),
            listed::<O>()
        );
        let mut hasher = DefaultHasher::new();
        (block, &ports, &version.stdout).hash(&mut hasher);
        hash_sources(&mut hasher);
        let name = format!("{}-{:016x}", block.top, hasher.finish());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rtl").join(name);
        let program = folder.join("block");
        if !program.is_file() {
            verilate(block, &ports, &folder);
        }
        Some(Bench { program, fault: None, input_words: words_of::<I>(), output_words: words_of::<O>() })
    }

    /// The same block with one of its faults, if it was built with the define `MUTANTS`.
    #[allow(dead_code, reason = "the nanoPU's blocks are built once per fault")]
    pub(crate) fn with_fault(self, name: &str) -> Bench {
        Bench { fault: Some(format!("+{name}")), ..self }
    }

    /// Runs the block with a line of inputs per cycle. Returns the outputs and the block's complaints.
    pub(crate) fn run(&self, stimulus: &[u64]) -> (Vec<u64>, String) {
        assert!(stimulus.len().is_multiple_of(self.input_words));
        let mut child = Command::new(&self.program)
            .args(&self.fault)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", self.program.display()));
        let mut stdin = child.stdin.take().expect("it is piped");
        let bytes: Vec<u8> = stimulus.iter().flat_map(|word| word.to_le_bytes()).collect();
        let mut response = Vec::with_capacity(stimulus.len() / self.input_words * self.output_words * 8);
        std::thread::scope(|scope| {
            // A block that stops early closes its input, and says why in its outputs.
            scope.spawn(move || {
                let _ = stdin.write_all(&bytes);
            });
            child.stdout.take().expect("it is piped").read_to_end(&mut response).expect("a pipe can be read");
        });
        let ended = child.wait_with_output().expect("it was started");
        let mut complaint = String::from_utf8_lossy(&ended.stderr).into_owned();
        if !ended.status.success() && complaint.is_empty() {
            complaint = ended.status.to_string();
        }
        // Assertions speak on standard output as well, behind the last line.
        const SPEAKS: &[u8] = b"%Error: ";
        if !ended.status.success()
            && let Some(at) = response.windows(SPEAKS.len()).rposition(|window| window == SPEAKS)
        {
            let at = response[..at].iter().rposition(|&byte| byte == b'[').unwrap_or(at);
            complaint.push('\n');
            complaint.push_str(&String::from_utf8_lossy(&response.split_off(at)));
        }
        let (lines, _) = response.as_chunks::<8>();
        let whole = lines.len() / self.output_words * self.output_words;
        (lines[..whole].iter().map(|word| u64::from_le_bytes(*word)).collect(), complaint)
    }
}

fn listed<P: Ports>() -> String {
    P::PORTS.iter().map(|(name, words)| format!(" PORT({name}, {words})")).collect()
}

fn hash_sources(hasher: &mut DefaultHasher) {
    let mut files = vec![sources().join("bench/bench.cpp")];
    let entries = std::fs::read_dir(sources()).expect("the folder of the sources");
    files.extend(entries.map(|entry| entry.expect("it can be listed").path()).filter(|path| path.is_file()));
    files.sort();
    for file in files {
        std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display())).hash(hasher);
    }
}

/// Builds beside the folder and moves it into its place, so that a build that was cut off is none.
fn verilate(block: &Block, ports: &str, folder: &Path) {
    let building = folder.with_extension(format!("{}.{}", std::process::id(), thread_name()));
    std::fs::create_dir_all(&building).expect("the target folder can be written");
    std::fs::write(building.join("ports.inc"), ports).expect("the target folder can be written");
    let sources = sources();
    let objects = building.join("obj");
    let mut command = Command::new("verilator");
    command
        .args(["--cc", "--exe", "-Wall", "--assert", "-O3"])
        .args(["--x-initial", "unique", "--x-assign", "unique"])
        .args(["--prefix", "Vblock", "--top-module", block.top, "-o", "../block"])
        .arg("-CFLAGS")
        .arg(format!("-O1 -I{}", building.display()))
        .arg("-Mdir")
        .arg(&objects)
        .arg("-y")
        .arg(&sources)
        .args(block.parameters.iter().map(|(name, value)| format!("-G{name}={value}")))
        .args(block.mutant.map(|mutant| format!("+define+{mutant}")))
        .arg(sources.join(format!("{}.sv", block.top)))
        .arg(sources.join("bench/bench.cpp"));
    succeed(&mut command, block);
    for runtime in runtime(&objects, block) {
        let copy = objects.join(runtime.file_name().expect("it is a file"));
        std::fs::copy(runtime, copy).expect("the target folder can be written");
    }
    succeed(&mut make(&objects), block);
    let _ = std::fs::remove_dir_all(objects);
    if std::fs::rename(&building, folder).is_err() {
        // Another process was faster.
        let _ = std::fs::remove_dir_all(&building);
    }
}

/// Verilator's own part of every block, compiled once for all: it takes longer than a block.
fn runtime(objects: &Path, block: &Block) -> &'static [PathBuf] {
    static RUNTIME: OnceLock<[PathBuf; 2]> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let names = ["verilated.o", "verilated_threads.o"];
        let mut hasher = DefaultHasher::new();
        Command::new("verilator").arg("--version").output().expect("verilator runs").stdout.hash(&mut hasher);
        let folder =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rtl/runtime-{:016x}", hasher.finish()));
        let kept = names.map(|name| folder.join(name));
        if !kept.iter().all(|file| file.is_file()) {
            succeed(make(objects).args(names), block);
            std::fs::create_dir_all(&folder).expect("the target folder can be written");
            for (name, kept) in names.iter().zip(&kept) {
                // Another process may be doing the same.
                std::fs::rename(objects.join(name), kept).expect("the target folder can be written");
            }
        }
        kept
    })
}

fn make(objects: &Path) -> Command {
    let mut command = Command::new("make");
    command.args(["-f", "Vblock.mk", "OPT_GLOBAL=-O0"]).current_dir(objects);
    command
}

fn succeed(command: &mut Command, block: &Block) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} for {}: {}{}",
        block.top,
        String::from_utf8_lossy(&output.stderr),
        String::from_utf8_lossy(&output.stdout)
    );
}

fn thread_name() -> String {
    format!("{:?}", std::thread::current().id()).replace(['(', ')'], "")
}
