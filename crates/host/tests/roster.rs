//! Processes that poll on one core and know it from the user's roster: real ones, that are stopped and killed.
#![allow(unsafe_code, reason = "the test stops and continues processes of its own")]

mod common;

use common::PATIENCE;
use highwire_host::{CompletionQueue, Device, DeviceConfig, Engine, LinkChoice, WaitFor, WakeMode};
use highwire_wake::{Core, pin};
use std::io::{BufRead, BufReader, Lines, Write, stdin};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Set in the other processes: what to do, and on which core.
const ROLE: &str = "HIGHWIRE_TEST_POLLER";
const CORE: &str = "HIGHWIRE_TEST_CORE";

/// A folder of this test alone: whoever else polls on this machine is not on its roster.
struct House(PathBuf);

impl House {
    fn new(name: &str) -> House {
        House(PathBuf::from(format!("/dev/shm/highwire-roster-{}-{name}", std::process::id())))
    }
}

impl Drop for House {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

struct Other {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

/// What a process tells of itself.
#[derive(Clone, Copy, Debug)]
struct Told {
    gave_way: u64,
    met: u64,
    pollers: u64,
}

impl Other {
    fn start(house: &House, role: &str, core: Core) -> Other {
        let mut child = Command::new(std::env::current_exe().expect("our own path"))
            .args(["--exact", "the_other_process", "--nocapture", "--test-threads=1"])
            .env(ROLE, role)
            .env(CORE, core.to_string())
            .env("HIGHWIRE_SHM_DIR", &house.0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut other = Other { child, input, output };
        other.ask();
        other
    }

    fn ask(&mut self) -> Told {
        writeln!(self.input, "tell").expect("it listens");
        loop {
            let line = self.output.next().expect("it speaks").expect("text");
            let Some(words) = line.split("told: ").nth(1) else { continue };
            let mut numbers = words.split(' ').map(|word| word.parse().expect("a number"));
            let mut next = || numbers.next().expect("three numbers");
            return Told { gave_way: next(), met: next(), pollers: next() };
        }
    }

    fn ask_until(&mut self, what: &str, is_so: impl Fn(Told) -> bool) -> Told {
        let begun = Instant::now();
        loop {
            let told = self.ask();
            if is_so(told) {
                return told;
            }
            assert!(begun.elapsed() < PATIENCE, "{what}: {told:?}");
        }
    }

    /// Waits until it gives way for others.
    fn gives_way(&mut self, to: &str) {
        let before = self.ask();
        self.ask_until(to, |told| told.gave_way > before.gave_way && told.met > before.met);
    }

    /// Waits until it has not given way for a while.
    fn keeps_its_core(&mut self, why: &str) {
        let begun = Instant::now();
        while {
            let before = self.ask();
            std::thread::sleep(Duration::from_millis(50));
            self.ask().gave_way != before.gave_way
        } {
            assert!(begun.elapsed() < PATIENCE, "it still gives way: {why}");
        }
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: the process is ours, and not waited for yet.
        assert_eq!(unsafe { libc::kill(self.child.id() as libc::pid_t, signal) }, 0);
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_other_process() {
    let (Ok(role), Ok(core)) = (std::env::var(ROLE), std::env::var(CORE)) else { return };
    let config = DeviceConfig {
        link: LinkChoice::Udp,
        engine: Engine::Both,
        wake: Some(if role == "dispatch" { WakeMode::Dispatcher } else { WakeMode::Latency }),
        ..DeviceConfig::default()
    };
    let device = Device::open(&config).expect("a device");
    let cq = device.completion_queue(16).expect("a completion queue");
    let is_asked = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&is_asked);
    std::thread::spawn(move || {
        stdin().lines().for_each(|_| asked.store(true, Ordering::Release));
        // The test has ended.
        std::process::exit(0);
    });
    pin(&[core.parse().expect("a number")]).expect("a core of this process");
    let act: fn(&CompletionQueue) = match role.as_str() {
        "poll" => |cq| assert!((0..1000).all(|_| cq.poll_one().is_none())),
        // As the leader it polls for 10 ms in vain.
        "wait" => |cq| assert!(!cq.wait(WaitFor::Any, Duration::from_millis(2))),
        // It sleeps, and its dispatcher polls.
        "dispatch" => |cq| assert!(!cq.wait(WaitFor::Any, Duration::from_millis(2))),
        other => panic!("no such role: {other}"),
    };
    loop {
        act(&cq);
        if is_asked.swap(false, Ordering::AcqRel) {
            let counters = device.counters();
            let [gave_way, met, pollers] =
                ["gave_way", "met_pollers", "pollers"].map(|name| counters.value(name));
            println!("told: {gave_way} {met} {pollers}");
        }
    }
}

fn cores() -> Vec<Core> {
    let cores = highwire_link::floor::allowed_cores().expect("the system tells");
    cores.into_iter().map(|core| core as Core).collect()
}

/// Two processes on one core, of which one is stopped, continued, killed and replaced.
fn share_a_core(role: &str) {
    let house = House::new(role);
    let core = cores()[0];
    let mut first = Other::start(&house, role, core);
    first.ask_until("it has joined the roster", |told| told.pollers == 1);
    first.keeps_its_core("it is alone there");
    let mut second = Other::start(&house, role, core);
    first.gives_way("the second");
    second.gives_way("the first");
    first.ask_until("both are on the roster", |told| told.pollers == 2);
    second.signal(libc::SIGSTOP);
    first.keeps_its_core("the second is stopped");
    first.ask_until("a stopped thread does not poll", |told| told.pollers == 1);
    second.signal(libc::SIGCONT);
    first.gives_way("the second, which goes on");
    second.signal(libc::SIGKILL);
    first.keeps_its_core("the second is dead");
    let mut third = Other::start(&house, role, core);
    first.gives_way("the third");
    third.gives_way("the first");
}

#[test]
fn processes_that_poll_on_one_core_make_way_for_each_other_while_both_run() {
    share_a_core("poll");
}

#[test]
fn leaders_of_different_processes_on_one_core_make_way_for_each_other_while_both_run() {
    share_a_core("wait");
}

#[test]
fn dispatchers_of_different_processes_on_one_core_make_way_for_each_other_while_both_run() {
    share_a_core("dispatch");
}

#[test]
fn processes_that_have_a_core_each_do_not_give_it_away() {
    let cores = cores();
    if cores.len() < 2 {
        println!("skipped: this process has one core");
        return;
    }
    let house = House::new("apart");
    for roles in [["poll", "poll"], ["poll", "wait"]] {
        let mut both: Vec<Other> =
            roles.iter().zip(&cores).map(|(role, core)| Other::start(&house, role, *core)).collect();
        for process in &mut both {
            process.ask_until("both are on the roster", |told| told.pollers == 2);
        }
        // The device's own thread may have shared the core for a moment.
        both.iter_mut().for_each(|process| process.keeps_its_core("it has a core of its own"));
    }
}
