//! Programs on the nanoPU under a debugger: gdb-multiarch itself, and bytes that no debugger sends.

mod common;
#[path = "common/riscv.rs"]
mod riscv;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use common::lab;
use riscv::{debugged, program};

/// The simulator, waiting for a debugger.
struct Simulator {
    process: Child,
    out: BufReader<ChildStdout>,
    address: String,
}

impl Simulator {
    fn start(program: &Path, more: &[&str]) -> Simulator {
        let words = ["nanopu", "run", program.to_str().unwrap(), "--gdb", "127.0.0.1:0"];
        let mut command = lab(words.iter().chain(more));
        let mut process =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the simulator starts");
        let mut out = BufReader::new(process.stdout.take().expect("a pipe"));
        let mut first = String::new();
        out.read_line(&mut first).expect("it says where it waits");
        let address = first.rsplit("remote ").next().unwrap().trim().trim_end_matches('\'').to_owned();
        Simulator { process, out, address }
    }

    /// Its exit status, and its output since.
    fn end(mut self) -> (Option<i32>, String) {
        let mut text = String::new();
        self.out.read_to_string(&mut text).expect("its last words");
        let mut errors = self.process.stderr.take().expect("a pipe");
        errors.read_to_string(&mut text).expect("its complaints");
        (self.process.wait().expect("it ends").code(), text)
    }
}

/// The output of gdb-multiarch for `commands` with a program under the stub, and the simulator's; nothing,
/// with the reason printed, if there is no gdb.
fn debug(program: &Path, more: &[&str], commands: &[&str]) -> Option<(String, String)> {
    if Command::new("gdb-multiarch").arg("--version").output().is_err() {
        println!("skipped: no gdb-multiarch, from Debian's gdb-multiarch");
        return None;
    }
    let mut simulator = Simulator::start(program, more);
    let mut gdb = Command::new("gdb-multiarch");
    gdb.args(["-nx", "-batch", "-ex", "set pagination off", "-ex", "set width 0"]);
    gdb.arg("-ex").arg(format!("target remote {}", simulator.address));
    commands.iter().for_each(|command| {
        gdb.arg("-ex").arg(command);
    });
    let output = gdb.arg(program).output().expect("gdb runs");
    // The simulator ends when the debugger leaves; if the debugger failed, nothing else would end it.
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    if text.contains("could not connect") {
        simulator.process.kill().expect("it runs");
    }
    Some((text, simulator.end().1))
}

/// The values that gdb printed, in order: `$1 = …`.
fn values(text: &str) -> Vec<&str> {
    text.lines()
        .filter(|line| line.starts_with('$'))
        .filter_map(|line| Some(line.split_once(" = ")?.1))
        .collect()
}

#[test]
fn a_debugger_stops_steps_and_looks_without_taking_words() {
    let Some(program) = program("loopback") else { return };
    let commands = [
        "break nanopu_main",
        "continue",
        "print $pc == &nanopu_main",
        "stepi",
        "print $pc > &nanopu_main",
        "delete",
        // The header of a message: reading it in the debugger leaves it where it is.
        "break nanopu_read",
        "continue",
        "print/x $x30",
        "print/x $x30",
        "print $x30 & 0xffff",
        "stepi",
        "print/x $x30",
        "set $a5 = 77",
        "print $a5",
        "monitor reset",
        "maintenance flush register-cache",
        "print $pc == &_start",
        "delete",
        "kill",
    ];
    let Some((text, _)) = debug(&program, &["--bytes", "16"], &commands) else { return };
    let values = values(&text);
    assert_eq!(values.len(), 8, "{text}");
    assert_eq!((values[0], values[1]), ("1", "1"), "{text}");
    let header = u64::from_str_radix(values[2].trim_start_matches("0x"), 16).unwrap();
    assert_eq!((values[3], header & 0xffff, header >> 32), (values[2], 16, 0x0a00_0001), "{text}");
    // The step has taken the header; the first word of the payload is next.
    assert_eq!((values[4], values[5]), ("16", "0x1"), "{text}");
    assert_eq!((values[6], values[7]), ("77", "1"), "{text}");
}

#[test]
fn cores_are_threads_to_a_debugger() {
    let Some(program) = program("service4") else { return };
    let commands = ["break nanopu_main", "continue", "info threads", "monitor cycle", "kill"];
    let Some((text, _)) = debug(&program, &["--cores", "4"], &commands) else { return };
    let threads = text.lines().filter(|line| line.contains("core ") && line.contains(", cycle ")).count();
    assert_eq!(threads, 4, "{text}");
}

/// Text without its numbers and their padding, because the compiler chooses addresses.
fn without_numbers(text: &str) -> Vec<String> {
    let is_number = |word: &&str| word.chars().any(|letter| letter.is_ascii_digit());
    let split = |letter: char| letter.is_whitespace() || "=(),:".contains(letter);
    let line = |line: &str| {
        line.split(split).filter(|word| !word.is_empty() && !is_number(word)).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(line).filter(|line| !line.is_empty()).collect()
}

#[test]
fn the_session_of_the_documentation_is_what_gdb_prints() {
    let Some(program) = program("loopback") else { return };
    let page = include_str!("../../../docs/nanopu.md");
    let session = page.split("target remote :3333'\n").nth(1).expect("a session");
    let session = session.split("```").next().expect("its end");
    let commands: Vec<&str> = session.lines().filter_map(|line| line.strip_prefix("(gdb) ")).collect();
    let Some((text, _)) = debug(&program, &["--cores", "2"], &commands) else { return };
    let shown: String =
        session.lines().filter(|line| !line.starts_with("(gdb) ")).map(|line| format!("{line}\n")).collect();
    assert!(commands.len() >= 8);
    assert_eq!(without_numbers(&text), without_numbers(&shown));
}

/// The debugger hears of a core that reaches a breakpoint, also if another core is there in the same cycle
/// and is stepped over it.
#[test]
fn no_core_passes_a_breakpoint_while_another_leaves_it() {
    let Some(program) = program("service4") else { return };
    let next = ["continue", "monitor cycle"];
    let commands =
        [&["break nanopu_main"][..], &next, &next, &next, &next, &["info threads", "kill"]].concat();
    let Some((text, _)) = debug(&program, &["--cores", "4"], &commands) else { return };
    for core in 0..4 {
        let line = format!("Thread {} hit Breakpoint 1, nanopu_main (core={core})", core + 1);
        assert!(text.contains(&line), "{line}: {text}");
    }
    let cycles: Vec<&str> = text.lines().filter(|line| line.parse::<u64>().is_ok()).collect();
    assert_eq!(cycles.len(), 4, "{text}");
    assert!(cycles.iter().all(|cycle| *cycle == cycles[0]), "the clock stands meanwhile: {text}");
}

#[test]
fn memory_is_watched_and_every_register_is_shown() {
    let Some(program) = debugged("halves") else { return };
    let commands = [
        "break nanopu_main",
        "continue",
        "delete",
        "watch counters[0]",
        "continue",
        "continue",
        "delete",
        "rwatch number",
        "continue",
        "delete",
        "awatch counters[0]",
        "continue",
        "delete",
        "tbreak half",
        "continue",
        "finish",
        "print number",
        "set $fa0 = 8.5",
        "print $fa0",
        "print $mcycle > 100",
        "print $message_cycles",
        "print/x $mtvec == &nanopu_unexpected_trap",
        "set $x30 = 1",
        "set $mepc = 1",
        "detach",
    ];
    let Some((text, said)) = debug(&program, &[], &commands) else { return };
    let parts = [
        "Hardware watchpoint 2: counters[0]\n\nOld value = 0\nNew value = 1\n",
        "Hardware watchpoint 2: counters[0]\n\nOld value = 1\nNew value = 3\n",
        "Hardware read watchpoint 3: number\n\nValue = 2.5\n",
        "Hardware access (read/write) watchpoint 4: counters[0]\n\nValue = 3\n",
        "half (x=1.25)",
        "Value returned is $1 = 0.625",
    ];
    parts.iter().fold(0, |from, part| {
        let at = text[from..].find(part).unwrap_or_else(|| panic!("{part}: {text}"));
        from + at
    });
    let values = values(&text);
    assert_eq!(values, ["1.25", "{float = 0, double = 8.5}", "1", "3000", "0x1"], "{text}");
    assert_eq!(text.matches("Could not write registers").count(), 2, "x30 and CSRs are not set: {text}");
    assert!(said.contains("the debugger left, and nothing runs on; cycle "), "{said}");
}

#[test]
fn a_watch_sees_every_core() {
    let Some(program) = debugged("halves") else { return };
    let commands = ["watch counters[2]", "continue", "continue", "info threads", "kill"];
    let Some((text, said)) = debug(&program, &["--cores", "4"], &commands) else { return };
    assert_eq!(text.matches("Thread 3 hit Hardware watchpoint 1: counters[2]").count(), 2, "{text}");
    assert!(said.contains("the debugger ended the run; cycle "), "{said}");
}

#[test]
fn a_trap_is_a_signal_and_the_end_an_exit() {
    let Some(program) = debugged("halves") else { return };
    let commands =
        ["continue", "print $mcause", "print/x $mtval", "info symbol $mepc", "continue", "info threads"];
    let Some((text, said)) = debug(&program, &[], &commands) else { return };
    assert!(text.contains("received signal SIGSEGV"), "{text}");
    assert!(text.contains("nanopu_main + ") && text.contains("exited with code 0207"), "{text}");
    assert_eq!(values(&text), ["7", "0x10"], "{text}");
    assert!(said.contains("core 0 trapped at 0x") && said.contains("store access fault (0x10)"), "{said}");
    assert!(said.contains("the program exited with 135; cycle "), "{said}");
}

fn packet(body: &str) -> Vec<u8> {
    let sum = body.bytes().fold(0u8, u8::wrapping_add);
    format!("+${body}#{sum:02x}").into_bytes()
}

/// Reads until `end` has come.
fn read_to(connection: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    let mut byte = [0];
    while !text.ends_with(end) && connection.read(&mut byte).expect("it answers") == 1 {
        text.push(byte[0] as char);
    }
    text
}

fn connect(simulator: &Simulator) -> TcpStream {
    let connection = TcpStream::connect(&simulator.address).expect("it listens");
    connection.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    connection
}

#[test]
fn an_interrupt_stops_cores_that_run_for_ever() {
    let Some(program) = program("loopback") else { return };
    let simulator = Simulator::start(&program, &["--count", "1"]);
    let mut connection = connect(&simulator);
    connection.write_all(&packet("vCont;c")).expect("it reads");
    connection.write_all(&[3]).expect("it reads");
    // Signal 2.
    assert!(read_to(&mut connection, ";").contains("$T02thread:"), "it stops");
    connection.write_all(&packet("D")).expect("it reads");
    assert!(read_to(&mut connection, "$OK#9a").contains("$OK"));
    let (status, said) = simulator.end();
    assert_eq!(status, Some(0), "{said}");
    assert!(said.contains("the debugger left"), "{said}");
}

#[test]
fn bytes_that_no_debugger_sends_are_an_error_and_no_panic() {
    let Some(program) = program("loopback") else { return };
    let top = "ffffffffffffffff";
    // Bytes for the simulator, and whether it goes on and answers.
    let said: [(Vec<u8>, Option<&str>); 12] = [
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), None),
        ((0..=255).cycle().take(5_000).collect(), None),
        (b"$g#00".to_vec(), None),
        ([b"$".to_vec(), vec![b'A'; 100_000], b"#00".to_vec()].concat(), None),
        (packet("vCont;q:zz"), None),
        (packet("Gff"), None),
        (b"$g".to_vec(), None),
        (packet(&format!("m{top},8")), Some("$E")),
        (packet(&format!("m0,{top}")), Some("$E")),
        (packet(&format!("M{top},2:0000")), Some("$E")),
        (packet("Hg7777"), Some("$")),
        (packet("Z9,0,0"), Some("$#00")),
    ];
    for (bytes, answer) in said {
        let what = String::from_utf8_lossy(&bytes[..bytes.len().min(40)]).into_owned();
        let simulator = Simulator::start(&program, &[]);
        let mut connection = connect(&simulator);
        // The simulator may have left before everything is written.
        let written = connection.write_all(&bytes);
        if let Some(answer) = answer {
            written.expect("it reads");
            assert!(read_to(&mut connection, answer).contains(answer), "{what}");
            connection.write_all(&packet("k")).expect("it reads");
        } else {
            connection.shutdown(std::net::Shutdown::Both).ok();
        }
        let (status, text) = simulator.end();
        assert!(!text.contains("panicked"), "{what}: {text}");
        match answer {
            Some(_) => assert!(status == Some(0) && text.contains("ended the run"), "{what}: {text}"),
            None => assert!(status == Some(1) && text.contains("the debugger"), "{what}: {text}"),
        }
    }
}

#[test]
fn a_program_on_the_core_alone_can_be_debugged() {
    let Some(program) = riscv::bare("timer") else { return };
    let commands = [
        "break nanopu_main",
        "continue",
        "print $pc == &nanopu_main",
        "info threads",
        "delete",
        "monitor reset",
        "maintenance flush register-cache",
        "print/x $pc",
        "continue",
    ];
    let Some((text, out)) = debug(&program, &["--bare"], &commands) else { return };
    // Reset is at the boot ROM, as on Rocket.
    assert_eq!(values(&text), ["1", "0x10040"], "{text}");
    assert!(text.contains("core 0, cycle ") && !text.contains("context"), "{text}");
    assert!(text.contains("exited normally") && out.contains("the program exited with 0"), "{text}{out}");
}
