//! A machine that plays the threads of several processes, in a time of its own. A seed decides who runs, and for how long.
//!
//! A thread loses its core only where it asks the machine for something or calls `may_switch`. The threads of a process that
//! is stopped or killed are not resumed.

use crate::network::Wires;
use highwire_cores::{Fiber, is_inside, suspend};
use highwire_stdx::Rng;
use highwire_wake::world::{Kernel, Started, Step, World};
use highwire_wake::{Core, Slept};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const STACK_BYTES: usize = 512 << 10;
/// A run that has not ended by then does not end at all. A thread that polls through a stop of seconds takes most of them.
const STEPS_MAX: u64 = 150_000_000;
const TIME_MAX_NS: u64 = 600_000_000_000;
/// A look at the clock takes time, so a thread that spins until a time gets there.
const CLOCK_NS: u64 = 5;

/// A process, by its number.
pub type Process = usize;

/// How threads are scheduled.
#[derive(Clone, Copy, Debug)]
pub struct Habits {
    /// One in so many possible switches happens.
    pub switches: u64,
    /// One in so many switches keeps the thread from its core for long, up to so many nanoseconds.
    pub stalls: u64,
    pub stall_max_ns: u64,
    pub cores: usize,
}

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Ready,
    /// A post to this word.
    Word(usize),
    Woken,
    /// A condition, which did not hold at this epoch.
    Until(u64),
    Ended,
}

struct Thread {
    name: String,
    process: Process,
    fiber: Option<Fiber>,
    state: State,
    /// A sleep's end.
    deadline_ns: Option<u64>,
    /// Not resumed before.
    not_before_ns: u64,
    ran_ns: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Life {
    Runs,
    StoppedUntil(u64),
    Killed,
}

struct Inner {
    rng: Rng,
    habits: Habits,
    threads: Vec<Thread>,
    processes: Vec<Life>,
    current: usize,
    /// Changes whenever a thread has run or a packet has arrived, so conditions are worth another look.
    epoch: u64,
    steps: u64,
    hash: u64,
}

pub struct Machine {
    inner: RefCell<Inner>,
    now_ns: Cell<u64>,
    /// While it is not zero, the present thread keeps its core.
    undisturbed: Cell<u32>,
    /// The thread that runs has done more than look at its condition.
    went_on: Cell<bool>,
    tells: bool,
    wires: Rc<Wires>,
}

impl Machine {
    pub fn new(mut rng: Rng, habits: Habits, processes: usize, wires: Rc<Wires>) -> Rc<Machine> {
        let inner = Inner {
            rng: rng.fork(1),
            habits,
            threads: Vec::new(),
            processes: vec![Life::Runs; processes],
            current: 0,
            epoch: 1,
            steps: 0,
            hash: 0xcbf2_9ce4_8422_2325,
        };
        let tells = std::env::var_os("HIGHWIRE_TRACE").is_some();
        let (inner, now_ns, undisturbed) = (RefCell::new(inner), Cell::new(1_000_000), Cell::new(0));
        Rc::new(Machine { inner, now_ns, undisturbed, went_on: Cell::new(false), tells, wires })
    }

    pub fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    pub fn steps(&self) -> u64 {
        self.inner.borrow().steps
    }

    /// A sum of all that happened, for comparing two runs.
    pub fn hash(&self) -> u64 {
        self.inner.borrow().hash
    }

    /// The process of the thread that runs.
    pub fn process_of_thread(&self) -> Process {
        let inner = self.inner.borrow();
        inner.threads[inner.current].process
    }

    pub fn is_killed(&self, process: Process) -> bool {
        self.inner.borrow().processes[process] == Life::Killed
    }

    /// Starts a thread of a process.
    pub fn start(&self, process: Process, name: &str, body: impl FnOnce() + 'static) -> Started {
        let has_ended = Arc::new(AtomicBool::new(false));
        let ended = Arc::clone(&has_ended);
        let body = move || {
            body();
            ended.store(true, Ordering::Relaxed);
        };
        let fiber = Fiber::new(STACK_BYTES, body).expect("memory for a stack");
        let thread = Thread {
            name: format!("{process}/{name}"),
            process,
            fiber: Some(fiber),
            state: State::Ready,
            deadline_ns: None,
            not_before_ns: self.now_ns(),
            ran_ns: 0,
        };
        self.inner.borrow_mut().threads.push(thread);
        Started::new(move || has_ended.load(Ordering::Relaxed))
    }

    /// Runs something without a switch in between.
    pub fn undisturbed<R>(&self, act: impl FnOnce() -> R) -> R {
        self.undisturbed.set(self.undisturbed.get() + 1);
        let result = act();
        self.undisturbed.set(self.undisturbed.get() - 1);
        result
    }

    /// Stops a process, as SIGSTOP does.
    pub fn stop(&self, process: Process, for_ns: u64) {
        let mut inner = self.inner.borrow_mut();
        if inner.processes[process] != Life::Killed {
            inner.processes[process] = Life::StoppedUntil(self.now_ns() + for_ns);
        }
        drop(inner);
        self.tell(|| format!("process {process} stops for {for_ns} ns"));
    }

    /// Ends the threads of a process, as SIGKILL does: nothing that lies on their stacks is dropped.
    pub fn kill(&self, process: Process) {
        let mut inner = self.inner.borrow_mut();
        inner.processes[process] = Life::Killed;
        inner.epoch += 1;
        for thread in inner.threads.iter_mut().filter(|thread| thread.process == process) {
            thread.state = State::Ended;
            std::mem::forget(thread.fiber.take());
        }
        drop(inner);
        self.tell(|| format!("process {process} is killed"));
    }

    /// The next step. False if all threads have ended.
    ///
    /// # Errors
    /// Threads wait, and nothing will end that.
    pub fn step(&self) -> Result<bool, String> {
        loop {
            let has_delivered = self.wires.deliver(self.now_ns());
            let mut inner = self.inner.borrow_mut();
            inner.epoch += u64::from(has_delivered);
            let now = self.now_ns();
            for life in &mut inner.processes {
                if matches!(*life, Life::StoppedUntil(until) if until <= now) {
                    *life = Life::Runs;
                }
            }
            if inner.threads.iter().all(|thread| thread.state == State::Ended) {
                return Ok(false);
            }
            let Some(chosen) = inner.choose(now) else {
                let next = [inner.next_ns(now), self.wires.next_ns()].into_iter().flatten().min();
                let Some(next) = next else { return Err(self.report(&inner, "no thread can go on")) };
                self.now_ns.set(next.max(now + 1));
                continue;
            };
            if inner.steps > STEPS_MAX || now > TIME_MAX_NS {
                return Err(self.report(&inner, "it goes on for ever"));
            }
            drop(inner);
            return self.resume(chosen).map(|()| true);
        }
    }

    /// Forgets the threads that have not ended, where a run is given up.
    pub fn abandon(&self) {
        for thread in &mut self.inner.borrow_mut().threads {
            std::mem::forget(thread.fiber.take());
        }
    }

    fn resume(&self, chosen: usize) -> Result<(), String> {
        let begin = self.now_ns();
        let mut fiber = {
            let mut inner = self.inner.borrow_mut();
            inner.current = chosen;
            inner.steps += 1;
            let thread = &mut inner.threads[chosen];
            self.went_on.set(!matches!(thread.state, State::Until(_)));
            if let State::Word(_) = thread.state {
                // Its time is up.
                thread.state = State::Ready;
            }
            thread.fiber.take().expect("a thread that has not ended has a stack")
        };
        let Ok(goes_on) = catch_unwind(AssertUnwindSafe(|| fiber.resume())) else {
            let name = self.inner.borrow().threads[chosen].name.clone();
            return Err(format!("a check of {name} has failed at {} ns", self.now_ns()));
        };
        let mut inner = self.inner.borrow_mut();
        if inner.threads[chosen].state == State::Ended {
            // It has killed its own process.
            std::mem::forget(fiber);
            return Ok(());
        }
        let thread = &mut inner.threads[chosen];
        match goes_on {
            true => thread.fiber = Some(fiber),
            false => thread.state = State::Ended,
        }
        if !self.went_on.get() {
            return Ok(());
        }
        thread.ran_ns += self.now_ns() - begin;
        inner.epoch += 1;
        let ticks = inner.rng.between(10, 120);
        self.now_ns.set(self.now_ns() + ticks);
        for part in [chosen as u64, self.now_ns()] {
            inner.hash = (inner.hash ^ part).wrapping_mul(0x100_0000_01b3);
        }
        let now = self.now_ns();
        if self.tells {
            let thread = &inner.threads[chosen];
            let (deadline, not_before) = (thread.deadline_ns, thread.not_before_ns);
            eprintln!("{now:>12} {:<16} {:?} {deadline:?} {not_before}", thread.name, thread.state);
        }
        Ok(())
    }

    pub fn tell(&self, what: impl FnOnce() -> String) {
        if self.tells {
            eprintln!("{:>12} {}", self.now_ns(), what());
        }
    }

    fn report(&self, inner: &Inner, what: &str) -> String {
        let mut text = format!("{what} at {} ns, after {} steps:", self.now_ns(), inner.steps);
        for thread in inner.threads.iter().filter(|thread| thread.state != State::Ended) {
            text += &format!("\n  {} {:?} until {:?}", thread.name, thread.state, thread.deadline_ns);
        }
        text
    }

    fn is_free(&self) -> bool {
        is_inside() && self.undisturbed.get() == 0
    }

    fn spend(&self, ns: u64) {
        self.now_ns.set(self.now_ns() + ns);
    }

    /// Lets others run first, and this thread not before some time.
    fn leave(&self, at_least_ns: u64) {
        if !self.is_free() {
            return;
        }
        {
            let mut inner = self.inner.borrow_mut();
            let Habits { stalls, stall_max_ns, .. } = inner.habits;
            let is_stall = inner.rng.below(stalls) == 0;
            let wait = if is_stall { log_uniform(&mut inner.rng, stall_max_ns) } else { at_least_ns };
            let (current, until) = (inner.current, self.now_ns() + wait);
            inner.threads[current].not_before_ns = until;
        }
        suspend();
    }

    fn set(&self, state: State, deadline_ns: Option<u64>) {
        if state == State::Ready {
            self.went_on.set(true);
        }
        let mut inner = self.inner.borrow_mut();
        let current = inner.current;
        let thread = &mut inner.threads[current];
        (thread.state, thread.deadline_ns) = (state, deadline_ns);
    }

    fn deadline(&self, timeout: Option<Duration>) -> Option<u64> {
        timeout.map(|timeout| {
            self.now_ns().saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
        })
    }

    /// Sleeps, for a thread of the test.
    pub fn sleep_ns(&self, ns: u64) {
        self.sleep_until(&|| false, Some(Duration::from_nanos(ns)));
    }
}

/// A time up to the longest, of any order of magnitude.
pub fn log_uniform(rng: &mut Rng, most: u64) -> u64 {
    let bits = u64::from(most.max(2).ilog2());
    let most_bits = rng.between(1, bits);
    rng.between(1, 1 << most_bits)
}

impl Inner {
    fn can_run(&self, thread: &Thread, now: u64) -> bool {
        let is_late = thread.deadline_ns.is_some_and(|at| at <= now);
        let wants = match thread.state {
            State::Ready | State::Woken => true,
            State::Word(_) => is_late,
            State::Until(epoch) => is_late || epoch != self.epoch,
            State::Ended => false,
        };
        wants && thread.not_before_ns <= now && self.processes[thread.process] == Life::Runs
    }

    fn choose(&mut self, now: u64) -> Option<usize> {
        let able = |inner: &Inner| inner.threads.iter().filter(|thread| inner.can_run(thread, now)).count();
        let count = able(self);
        if count == 0 {
            return None;
        }
        let at = self.rng.below(count as u64) as usize;
        let mut can = (0..self.threads.len()).filter(|&index| self.can_run(&self.threads[index], now));
        can.nth(at)
    }

    /// When a thread may go on that cannot now.
    fn next_ns(&self, now: u64) -> Option<u64> {
        let of = |thread: &Thread| {
            let wakes = match thread.state {
                State::Ready | State::Woken => Some(thread.not_before_ns),
                State::Until(epoch) if epoch != self.epoch => Some(thread.not_before_ns),
                State::Word(_) | State::Until(_) => thread.deadline_ns.map(|at| at.max(thread.not_before_ns)),
                State::Ended => None,
            };
            match self.processes[thread.process] {
                Life::Runs => wakes,
                Life::StoppedUntil(until) => wakes.map(|at| at.max(until)).or(Some(until)),
                Life::Killed => None,
            }
        };
        self.threads.iter().filter_map(of).filter(|at| *at > now).min()
    }
}

impl Kernel for Machine {
    fn may_switch(&self) {
        if !self.is_free() {
            return;
        }
        let (switches, ticks) = {
            let mut inner = self.inner.borrow_mut();
            let most = inner.habits.switches;
            (inner.rng.below(most) == 0, inner.rng.between(5, 60))
        };
        self.spend(ticks);
        if switches {
            self.leave(0);
        }
    }

    fn sleep_until(&self, is_over: &dyn Fn() -> bool, timeout: Option<Duration>) -> bool {
        let deadline = self.deadline(timeout);
        loop {
            if is_over() {
                self.set(State::Ready, None);
                return true;
            }
            if deadline.is_some_and(|at| at <= self.now_ns()) {
                self.set(State::Ready, None);
                return false;
            }
            assert!(is_inside(), "only threads of the machine sleep");
            assert_eq!(self.undisturbed.get(), 0, "a thread that keeps its core cannot sleep");
            let epoch = self.inner.borrow().epoch;
            self.set(State::Until(epoch), deadline);
            suspend();
        }
    }

    fn spawn(&self, name: &str, body: Box<dyn FnOnce()>) -> Started {
        let process = {
            let inner = self.inner.borrow();
            inner.threads[inner.current].process
        };
        self.start(process, name, body)
    }

    fn thread(&self) -> usize {
        self.inner.borrow().current + 1
    }
}

impl World for Machine {
    fn now(&self) -> Duration {
        self.spend(CLOCK_NS);
        Duration::from_nanos(self.now_ns())
    }

    fn step(&self, _step: Step) {
        self.may_switch();
    }

    fn sleep(&self, word: usize, is_unchanged: &dyn Fn() -> bool, timeout: Option<Duration>) -> Slept {
        self.may_switch();
        if !is_unchanged() {
            return Slept::Posted;
        }
        self.set(State::Word(word), self.deadline(timeout));
        suspend();
        let was_woken = {
            let inner = self.inner.borrow();
            inner.threads[inner.current].state == State::Woken
        };
        self.set(State::Ready, None);
        if was_woken { Slept::Posted } else { Slept::TimedOut }
    }

    fn wake(&self, word: usize, all: bool) -> u32 {
        let mut inner = self.inner.borrow_mut();
        let mut woken = 0;
        for thread in &mut inner.threads {
            if thread.state == State::Word(word) && (all || woken == 0) {
                thread.state = State::Woken;
                woken += 1;
            }
        }
        drop(inner);
        self.may_switch();
        woken
    }

    fn yield_core(&self) {
        let wait = self.inner.borrow_mut().rng.between(50, 1000);
        self.leave(wait);
    }

    fn core(&self) -> Core {
        let inner = self.inner.borrow();
        (inner.current % inner.habits.cores) as Core
    }

    fn pin(&self, _cores: &[Core]) -> bool {
        true
    }

    fn machine_cores(&self) -> usize {
        self.inner.borrow().habits.cores
    }

    fn run_only_when_idle(&self) {}

    fn thread_time(&self) -> Duration {
        let inner = self.inner.borrow();
        Duration::from_nanos(inner.threads[inner.current].ran_ns)
    }

    fn process_time(&self) -> Duration {
        let inner = self.inner.borrow();
        let process = inner.threads[inner.current].process;
        let of_process = inner.threads.iter().filter(|thread| thread.process == process);
        Duration::from_nanos(of_process.map(|thread| thread.ran_ns).sum())
    }

    fn runnable_threads(&self) -> usize {
        let inner = self.inner.borrow();
        inner.threads.iter().filter(|thread| matches!(thread.state, State::Ready | State::Woken)).count()
    }

    fn kernel(&self) -> Option<&dyn Kernel> {
        Some(self)
    }
}
