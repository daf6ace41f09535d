//! The machine: whose turn it is on each core, and what happens next.
//!
//! ```text
//!           wake ─────────────▶ waits for a core ◀───── displaced, yields, time is up
//!            ▲                        │ picked
//!          sleeps ◀── sleep ──── runs (switch, then what it spends)
//! ```
//!
//! Invariants: a thread is in one place: running on one core, in one queue, or asleep. A core without a
//! current thread has an empty queue, or a call event for it is under way. Events of the same time happen in
//! the order in which they were made.

mod schedule;

use crate::costs::Costs;
use crate::fiber::{self, Fiber};
use crate::queue::{Share, ThreadId};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::rc::Rc;
use std::{fmt, io};

/// Bytes of a thread's stack.
const STACK_BYTES: usize = 128 << 10;
/// The steps in which a thread polls, at least.
const GRAIN_NS: u64 = 25;

/// How a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// A thread woke it, or there was no reason to sleep.
    Woken,
    /// The time was up.
    TimedOut,
}

/// Threads are left that no other thread will ever wake.
#[derive(Debug)]
pub struct Stuck {
    /// How many.
    pub threads: usize,
    /// When the last of the others ended.
    pub at_ns: u64,
}

/// A machine. Clones are handles of the same machine: threads spend time and sleep through theirs.
#[derive(Clone)]
pub struct Machine(Rc<RefCell<State>>);

struct State {
    costs: Costs,
    now: u64,
    made: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    cores: Vec<Core>,
    threads: Vec<Thread>,
    /// The threads that sleep on each word, in the order of their coming.
    sleepers: BTreeMap<usize, VecDeque<ThreadId>>,
    /// The thread whose code runs at this moment.
    current: Option<ThreadId>,
    ended_ns: u64,
    /// Threads that have not ended.
    alive: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    /// The core's thread has spent its time, unless the core's count of turns has moved.
    Spent { core: usize, turn: u64 },
    /// The core learns that a thread in its queue is to run next.
    Call { core: usize },
    /// A thread begins.
    Begin { thread: ThreadId },
    /// The scheduler looks at the core by itself.
    Tick { core: usize },
    /// A sleep has timed out, unless the thread has woken from it before.
    Timeout { thread: ThreadId, sleep: u64 },
}

#[derive(Default)]
struct Core {
    current: Option<ThreadId>,
    queue: Vec<ThreadId>,
    /// The thread that ran here last, whose data fill the caches.
    last: Option<ThreadId>,
    /// Until when its thread has been charged; ahead of the present while it switches.
    charged: u64,
    /// A tick is scheduled.
    ticks: bool,
    turn: u64,
    /// Where virtual time stood when a thread last ran here.
    vtime: i64,
}

struct Thread {
    fiber: Option<Fiber>,
    share: Share,
    core: usize,
    is_pinned: bool,
    left: u64,
    /// Short steps that are yet to be spent.
    put_off: u64,
    cpu: u64,
    sleeps_on: Option<usize>,
    sleep: u64,
    ended: Ended,
    wants: Want,
}

/// A thread's wish to the machine when its code suspends itself.
#[derive(Clone, Copy)]
enum Want {
    /// To spend the time that it has left.
    Spend,
    Sleep,
    Yield,
    /// To let the scheduler look whether its time is up, and make way if it is.
    Look,
}

impl Machine {
    /// A machine of so many cores, on which nothing runs.
    pub fn new(cores: usize, costs: Costs) -> Machine {
        Machine(Rc::new(RefCell::new(State {
            costs,
            now: 0,
            made: 0,
            events: BinaryHeap::new(),
            cores: (0..cores).map(|_| Core::default()).collect(),
            threads: Vec::new(),
            sleepers: BTreeMap::new(),
            current: None,
            ended_ns: 0,
            alive: 0,
        })))
    }

    /// Starts a thread; it begins on the first idle core from `core` on.
    ///
    /// # Errors
    /// There is no memory for its stack.
    pub fn spawn(&self, core: usize, body: impl FnOnce() + 'static) -> io::Result<ThreadId> {
        self.spawn_in(0, core, body)
    }

    /// The same after so many nanoseconds.
    ///
    /// # Errors
    /// The same.
    pub fn spawn_in(&self, ns: u64, core: usize, body: impl FnOnce() + 'static) -> io::Result<ThreadId> {
        let fiber = Fiber::new(STACK_BYTES, body)?;
        let mut state = self.0.borrow_mut();
        let core = core % state.cores.len();
        let thread = ThreadId(state.threads.len());
        state.threads.push(Thread {
            fiber: Some(fiber),
            share: Share::default(),
            core,
            is_pinned: false,
            left: 0,
            put_off: 0,
            cpu: 0,
            sleeps_on: None,
            sleep: 0,
            ended: Ended::Woken,
            wants: Want::Spend,
        });
        state.alive += 1;
        let at = state.now + ns;
        state.at(at, Event::Begin { thread });
        Ok(thread)
    }

    /// Runs until every thread has ended.
    ///
    /// # Errors
    /// Threads sleep that no other will wake.
    pub fn run(&self) -> Result<(), Stuck> {
        while let Some(thread) = self.next() {
            self.play(thread);
        }
        let state = self.0.borrow();
        if state.alive == 0 { Ok(()) } else { Err(Stuck { threads: state.alive, at_ns: state.ended_ns }) }
    }

    /// Lets events happen until a thread's code is to go on.
    fn next(&self) -> Option<ThreadId> {
        let mut state = self.0.borrow_mut();
        while state.alive > 0 {
            let Reverse((time, _, event)) = state.events.pop()?;
            state.now = time;
            if let Some(thread) = state.handle(event) {
                return Some(thread);
            }
        }
        None
    }

    /// Lets a thread's code go on until it suspends itself with a wish.
    fn play(&self, thread: ThreadId) {
        let mut fiber = {
            let mut state = self.0.borrow_mut();
            state.current = Some(thread);
            state.threads[thread.0].fiber.take().expect("a thread that runs has a stack")
        };
        let goes_on = fiber.resume();
        let mut state = self.0.borrow_mut();
        state.current = None;
        state.threads[thread.0].fiber = goes_on.then_some(fiber);
        if goes_on { state.serve(thread) } else { state.end(thread) }
    }

    /// Nanoseconds since the machine began.
    pub fn now_ns(&self) -> u64 {
        self.0.borrow().now
    }

    /// The machine's costs.
    pub fn costs(&self) -> Costs {
        self.0.borrow().costs
    }

    /// How many cores there are.
    pub fn cores(&self) -> usize {
        self.0.borrow().cores.len()
    }

    /// The thread computes for so long.
    pub fn spend(&self, ns: u64) {
        self.want(|thread| {
            thread.left = ns + std::mem::take(&mut thread.put_off);
            thread.wants = Want::Spend;
        });
    }

    /// The same for the short steps of a polling thread: they are put off until they add up to `GRAIN_NS`, or
    /// the thread does something else, so that a machine of many cores is played in fewer steps. The thread's
    /// looks come early by less than that.
    pub fn spend_soon(&self, ns: u64) {
        let is_due = {
            let mut state = self.0.borrow_mut();
            let Some(me) = state.current else { return };
            let put_off = &mut state.threads[me.0].put_off;
            *put_off += ns;
            *put_off >= GRAIN_NS
        };
        if is_due {
            self.spend(0);
        }
    }

    /// The thread leaves its core to another, if one waits.
    pub fn yield_core(&self) {
        self.spend(self.costs().call_ns);
        self.want(|thread| thread.wants = Want::Yield);
    }

    /// The thread sleeps until another wakes the sleepers of `word`, unless `is_unchanged` returns false when
    /// it is about to sleep.
    pub fn sleep(&self, word: usize, is_unchanged: &dyn Fn() -> bool, timeout_ns: Option<u64>) -> Ended {
        let costs = self.costs();
        self.spend(costs.call_ns);
        if !is_unchanged() {
            return Ended::Woken;
        }
        {
            let mut state = self.0.borrow_mut();
            let me = state.me();
            state.sleepers.entry(word).or_default().push_back(me);
            let thread = &mut state.threads[me.0];
            thread.sleeps_on = Some(word);
            thread.sleep += 1;
            let sleep = thread.sleep;
            if let Some(timeout) = timeout_ns {
                let at = state.now.saturating_add(timeout);
                state.at(at, Event::Timeout { thread: me, sleep });
            }
        }
        self.want(|thread| {
            thread.left = 0;
            thread.wants = Want::Sleep;
        });
        let state = self.0.borrow();
        state.threads[state.me().0].ended
    }

    /// The thread wakes one sleeper of `word`, or all. Returns how many it woke.
    pub fn wake(&self, word: usize, all: bool) -> u32 {
        let mut woken = 0;
        loop {
            let costs = self.costs();
            let Some((thread, core, cost)) = self.0.borrow_mut().choose_sleeper(word) else { break };
            self.spend(cost);
            let delay = {
                let state = self.0.borrow();
                let is_idle = state.cores[core].current.is_none();
                if is_idle { costs.idle_exit_ns } else { costs.interrupt_ns }
            };
            self.0.borrow_mut().wake_on(thread, core, delay);
            woken += 1;
            if !all {
                break;
            }
        }
        if woken == 0 {
            self.spend(self.costs().call_ns);
        } else {
            // The caller makes way here, if one of the woken threads is to have this core.
            self.spend(0);
        }
        woken
    }

    /// Where the thread runs.
    pub fn here(&self) -> usize {
        let state = self.0.borrow();
        state.threads[state.me().0].core
    }

    /// Keeps the thread on a core; false if there is none of that number.
    pub fn pin(&self, core: usize) -> bool {
        let mut state = self.0.borrow_mut();
        if core >= state.cores.len() {
            return false;
        }
        let me = state.me();
        state.threads[me.0].is_pinned = true;
        let from = state.threads[me.0].core;
        if from != core {
            state.leave_core(from);
            state.charge(core);
            state.move_share(me, from, core);
            state.threads[me.0].left = state.costs.move_ns;
            state.enqueue(me, core, 0);
            state.dispatch(from);
            state.threads[me.0].wants = Want::Look;
            drop(state);
            fiber::suspend();
        }
        true
    }

    /// The thread runs only when nothing else wants its core.
    pub fn run_only_when_idle(&self) {
        let mut state = self.0.borrow_mut();
        let me = state.me();
        let (core, slice) = (state.threads[me.0].core, state.costs.slice_ns);
        state.charge(core);
        state.threads[me.0].share.on_humble(slice);
        drop(state);
        self.want(|thread| thread.wants = Want::Look);
    }

    /// The processor time of the thread. As on a real system, this call makes the scheduler add up the
    /// running thread's time, and look whether that is up.
    pub fn thread_ns(&self) -> u64 {
        let cpu = {
            let mut state = self.0.borrow_mut();
            let me = state.me();
            let core = state.threads[me.0].core;
            state.charge(core);
            state.threads[me.0].cpu
        };
        self.want(|thread| thread.wants = Want::Look);
        cpu
    }

    /// The processor time of all threads.
    pub fn process_ns(&self) -> u64 {
        let mut state = self.0.borrow_mut();
        (0..state.cores.len()).for_each(|core| state.charge(core));
        state.threads.iter().map(|thread| thread.cpu).sum()
    }

    /// Threads that run or want to.
    pub fn runnable(&self) -> usize {
        let state = self.0.borrow();
        state.cores.iter().map(|core| core.queue.len() + usize::from(core.current.is_some())).sum()
    }

    fn want(&self, want: impl FnOnce(&mut Thread)) {
        // Code outside of the machine's threads, such as the code that builds it, asks without taking time.
        if !fiber::is_inside() {
            return;
        }
        {
            let mut state = self.0.borrow_mut();
            let me = state.me();
            want(&mut state.threads[me.0]);
        }
        fiber::suspend();
    }
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.borrow();
        f.debug_struct("Machine")
            .field("cores", &state.cores.len())
            .field("threads", &state.threads.len())
            .field("now_ns", &state.now)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} threads sleep that nobody wakes, from {} ns on", self.threads, self.at_ns)
    }
}

impl std::error::Error for Stuck {}
