//! The players of a scene: threads of this machine, or threads of a model of one.

use std::rc::Rc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use highwire_cores::{Costs, Ended, Machine};
use highwire_stdx::Rng;
use highwire_wake::world::{self, Entered, Step, World};
use highwire_wake::{Core, Slept};

use crate::PlayError;

pub(crate) const STACK_BYTES: usize = 64 << 10;
/// How long a thread computes between two looks.
const COMPUTES_NS: u64 = 30_000;

/// Starts threads, and waits for their end.
pub trait Hands {
    /// Starts a thread that moves to this core; it may run at once or only in [`finish`](Self::finish).
    fn start(&mut self, core: Core, body: Box<dyn FnOnce() + Send>) -> Result<(), PlayError>;

    /// Returns when all threads have ended.
    fn finish(&mut self) -> Result<(), PlayError>;
}

/// Threads of this machine.
#[derive(Debug, Default)]
pub struct Real(Vec<JoinHandle<()>>);

impl Hands for Real {
    fn start(&mut self, _core: Core, body: Box<dyn FnOnce() + Send>) -> Result<(), PlayError> {
        self.0.push(Builder::new().stack_size(STACK_BYTES).spawn(body).map_err(PlayError::Start)?);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), PlayError> {
        let ended: Vec<_> = self.0.drain(..).map(JoinHandle::join).collect();
        if ended.iter().any(Result::is_err) {
            return Err(PlayError::Panicked);
        }
        Ok(())
    }
}

/// Threads of a model, in which the calling thread is as long as this lives.
#[derive(Debug)]
pub struct Modelled {
    machine: Machine,
    /// Nanoseconds from the last thread to the next, from that one to each later one, and from the beginning
    /// to the next.
    next_ns: u64,
    apart_ns: u64,
    begins_ns: u64,
    _entered: Entered,
}

impl Modelled {
    /// Threads of this model, which all exist from its beginning; the calling thread enters it.
    pub fn new(machine: Machine) -> Modelled {
        let _entered = world::enter(Rc::new(Asked(machine.clone())));
        Modelled { machine, next_ns: 0, apart_ns: 0, begins_ns: 0, _entered }
    }

    /// Starts them one after the other, as fast as the machine starts threads; but the second some time after
    /// the first, drawn from up to two ticks, because on a machine the first may take the core from the
    /// thread that starts them.
    #[must_use]
    pub fn one_by_one(self, seed: u64) -> Modelled {
        let Costs { spawn_ns, tick_ns, .. } = self.machine.costs();
        let first_ns = spawn_ns + Rng::new(seed).next_u64() % (2 * tick_ns);
        Modelled { next_ns: first_ns, apart_ns: spawn_ns, ..self }
    }
}

impl Hands for Modelled {
    fn start(&mut self, core: Core, body: Box<dyn FnOnce() + Send>) -> Result<(), PlayError> {
        self.machine.spawn_in(self.begins_ns, core as usize, body).map_err(PlayError::Start)?;
        self.begins_ns += std::mem::replace(&mut self.next_ns, self.apart_ns);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), PlayError> {
        Ok(self.machine.run()?)
    }
}

/// The model in the form that the wake crate calls.
struct Asked(Machine);

impl World for Asked {
    fn now(&self) -> Duration {
        self.0.spend(self.0.costs().clock_ns);
        Duration::from_nanos(self.0.now_ns())
    }

    fn step(&self, step: Step) {
        let costs = self.0.costs();
        match step {
            Step::Relax => self.0.spend_soon(costs.relax_ns),
            Step::Turn => self.0.spend_soon(costs.turn_ns),
            Step::Event => self.0.spend(costs.event_ns),
            Step::Fetch => self.0.spend(costs.fetch_ns),
            Step::Compute => self.0.spend(COMPUTES_NS),
        }
    }

    fn sleep(&self, word: usize, is_unchanged: &dyn Fn() -> bool, timeout: Option<Duration>) -> Slept {
        let timeout_ns = timeout.map(|timeout| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX));
        match self.0.sleep(word, is_unchanged, timeout_ns) {
            Ended::Woken => Slept::Posted,
            Ended::TimedOut => Slept::TimedOut,
        }
    }

    fn wake(&self, word: usize, all: bool) -> u32 {
        self.0.wake(word, all)
    }

    fn yield_core(&self) {
        self.0.yield_core();
    }

    fn core(&self) -> Core {
        self.0.here() as Core
    }

    fn pin(&self, cores: &[Core]) -> bool {
        cores.first().is_some_and(|core| self.0.pin(*core as usize))
    }

    fn machine_cores(&self) -> usize {
        self.0.cores()
    }

    fn run_only_when_idle(&self) {
        self.0.run_only_when_idle();
    }

    fn thread_time(&self) -> Duration {
        Duration::from_nanos(self.0.thread_ns())
    }

    fn process_time(&self) -> Duration {
        Duration::from_nanos(self.0.process_ns())
    }

    fn runnable_threads(&self) -> usize {
        self.0.spend(self.0.costs().census_ns);
        self.0.runnable()
    }
}
