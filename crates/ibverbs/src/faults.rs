//! What goes wrong on purpose: plays a scenario (`HIGHWIRE_SCENARIO`) at the boundary to C.
//!
//! Without a scenario, control calls ask one flag that does not change; the data path asks nothing, because contexts and queues
//! get other functions when they are made ([`context_ops`]).
//!
//! The course is asked under one lock. It is not held while a happening is carried out, for that calls into the device.

pub(crate) mod completions;
mod data_path;
mod devices;
mod diary;
mod files;
mod heed;
mod orders;
mod timeline;

use crate::abi::*;
use crate::boundary::Failure;
use crate::context::Context;
use crate::cq::Cq;
use crate::events::Channel;
use crate::pd::Pd;
use crate::qp::Qp;
use crate::refusal::refused;
use crate::srq::Srq;
use crate::{device, env, registry};
use completions::Held;
use diary::Diary;
use heed::Heed;
use highwire_faults::words::{self, Refusal};
use highwire_faults::{Call, Course, Scenario};
use highwire_stdx::Instant;
use highwire_wire::Qpn;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, LazyLock, Mutex, MutexGuard, PoisonError};

pub(crate) use data_path::{completing, context_ops};
pub(crate) use devices::{
    behind, check_port, configure, first_gid, generation, gid_of_port, gigabits, has_left, is_dead, listed,
    place, port_count, ports, shape_port,
};

/// Whether there is a scenario: not asked yet, none, one.
static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const NONE: u8 = 1;
const SOME: u8 = 2;

/// Whether a scenario is played in this process.
#[inline]
pub(crate) fn may_refuse() -> bool {
    match STATE.load(Ordering::Relaxed) {
        NONE => false,
        SOME => true,
        _ => look(),
    }
}

#[cold]
fn look() -> bool {
    // The other settings are read later: a program may still change its environment.
    let is_there =
        highwire_link::environment::variable("HIGHWIRE_SCENARIO").is_some_and(|file| !file.is_empty());
    STATE.store(if is_there { SOME } else { NONE }, Ordering::Relaxed);
    is_there
}

/// A scenario that is played.
struct Play {
    course: Mutex<Course>,
    /// Wakes the thread of the timeline: something is to happen earlier than it knows.
    changed: Condvar,
    origin: std::time::Instant,
    queue_pairs: Mutex<QueuePairs>,
    held: Held,
    devices: devices::States,
    heed: Heed,
    diary: Diary,
    /// The process in which the timeline's thread runs.
    timeline: AtomicU32,
    /// More rules may come while it is played.
    is_controlled: bool,
    /// The process in which the thread that takes them runs.
    orders: AtomicU32,
}

/// The queue pairs in the order in which the process made them, from 1.
#[derive(Default)]
struct QueuePairs {
    made: u64,
    numbers: HashMap<usize, u64>,
    by_qpn: HashMap<(usize, u32), u64>,
}

static PLAY: LazyLock<Option<Play>> = LazyLock::new(|| {
    let settings = env::settings()?;
    let mut scenario: Scenario = settings.scenario.clone()?;
    if !scenario.programs.is_empty() && !program().is_some_and(|name| scenario.programs.contains(&name)) {
        // Its devices are there for all programs alike.
        scenario = Scenario { devices: scenario.devices, seed: scenario.seed, ..Scenario::default() };
    }
    Some(Play {
        is_controlled: scenario.control,
        orders: AtomicU32::new(0),
        devices: devices::States::new(&scenario),
        heed: Heed::new(&scenario),
        course: Mutex::new(Course::new(scenario)),
        changed: Condvar::new(),
        origin: std::time::Instant::now(),
        queue_pairs: Mutex::default(),
        held: Held::default(),
        diary: Diary::open(settings.scenario_log.as_deref()),
        timeline: AtomicU32::new(0),
    })
});

/// The name of the program.
fn program() -> Option<String> {
    Some(std::env::current_exe().ok()?.file_name()?.to_string_lossy().into_owned())
}

fn play() -> Option<&'static Play> {
    if may_refuse() { PLAY.as_ref() } else { None }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Play {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.origin.elapsed().as_nanos() as u64)
    }

    /// Asks the course, and carries out what has happened by now.
    fn ask<R>(&self, question: impl FnOnce(&mut Course) -> R) -> R {
        let mut course = lock(&self.course);
        let before = course.deadline();
        let answer = question(&mut course);
        let is_earlier = course.deadline().is_some_and(|at| before.is_none_or(|before| at < before));
        self.write(&mut course);
        drop(course);
        if is_earlier {
            self.changed.notify_all();
            self.catch_up();
        }
        answer
    }

    /// Carries out what has happened by now.
    fn catch_up(&self) {
        loop {
            let mut course = lock(&self.course);
            let next = course.poll_happening(self.now());
            self.write(&mut course);
            // In their order, also by several threads.
            let _turn = self.devices.turn();
            drop(course);
            let Some(happening) = next else { return };
            devices::carry_out(self, happening);
        }
    }

    fn write(&self, course: &mut Course) {
        while let Some(line) = course.poll_line() {
            self.diary.line(&line);
        }
    }
}

/// As [`judge`], for the functions of the data path: their object is at hand.
#[inline]
fn judge_often(name: &'static str, context: &Context, object: usize) -> c_int {
    match play() {
        Some(play) if play.heed.is_about(name) => {
            play.judge(name, Some((context.index, context.generation)), object)
        }
        _ => 0,
    }
}

/// The errno with which a call fails instead of being carried out; 0 if it is carried out.
#[cold]
pub(crate) fn judge(name: &'static str, object: Option<usize>) -> c_int {
    let Some(play) = play() else { return 0 };
    let Some((function, _)) = words::function(name) else { return 0 };
    let object = object.unwrap_or_default();
    play.judge(function, device_of(object), object)
}

impl Play {
    /// A call's errno; `about`: its object's device, and how often that had come back.
    fn judge(&self, function: &'static str, about: Option<(usize, u32)>, object: usize) -> c_int {
        let call = Call {
            function,
            device: about.map(|(index, _)| index),
            queue_pair: self.number_of(object),
            thread: this_thread(),
        };
        if let Some(errno) = self.ask(|course| course.call(|| self.now(), &call)) {
            return refused(errno, || "the scenario refuses this call".to_string());
        }
        match about.filter(|(index, generation)| is_dead(*index, *generation) && !goes_on(function)) {
            Some((index, generation))
                if function == "ibv_open_device" && devices::has_left(index, generation) =>
            {
                refused(libc::ENODEV, || "the scenario has taken the device out".to_string())
            }
            Some(_) => refused(libc::EIO, || "the scenario has let the device fail".to_string()),
            None => 0,
        }
    }
}

/// What a device that has failed does not refuse. What waits for events says so itself, once they are read; memory can be given back; and what
/// a card's library does without the kernel finds out nothing: requests are taken, and never carried out.
fn goes_on(function: &str) -> bool {
    ["ibv_get_async_event", "ibv_get_cq_event", "ibv_dereg_mr"].contains(&function)
        || heed::is_of_data_path(function)
}

/// The failing result of a function.
pub(crate) fn refuse<R: Failure>(name: &str, errno: c_int) -> R {
    match words::function(name) {
        Some((_, Refusal::MinusOne)) => R::minus_one(errno),
        _ => R::failure(errno),
    }
}

/// The device that an object belongs to, and how often it had come back when it was opened.
fn device_of(object: usize) -> Option<(usize, u32)> {
    if let Some(place) = device::place_of(object as *const ibv_device) {
        return Some(place);
    }
    let place = |context: &Context| (context.index, context.generation);
    registry::with::<Context, _>(object as *const ibv_context, place)
        .or_else(|| registry::with::<Pd, _>(object as *const ibv_pd, |pd| place(&pd.context)))
        .or_else(|| registry::with::<Qp, _>(object as *const ibv_qp, |qp| place(&qp.context)))
        .or_else(|| registry::with::<Cq, _>(object as *const ibv_cq, |cq| place(&cq.context)))
        .or_else(|| registry::with::<Srq, _>(object as *const ibv_srq, |srq| place(srq.context())))
        .or_else(|| registry::with::<Channel, _>(object as *const ibv_comp_channel, |it| place(&it.context)))
}

/// This thread's number, in the order in which threads first called.
fn this_thread() -> u64 {
    static THREADS: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        // A cell of plain data: a thread's end has nothing to drop.
        static NUMBER: Cell<u64> = const { Cell::new(0) };
    }
    if NUMBER.get() == 0 {
        NUMBER.set(THREADS.fetch_add(1, Ordering::Relaxed) + 1);
    }
    NUMBER.get()
}

impl Play {
    /// A queue pair's number, if a rule may ask for it.
    fn number_of(&self, queue_pair: usize) -> Option<u64> {
        let is_asked = self.heed.tells_queue_pairs_apart();
        is_asked.then(|| lock(&self.queue_pairs).numbers.get(&queue_pair).copied()).flatten()
    }

    /// The same, by its place on the wire.
    fn number_by_qpn(&self, device: usize, qpn: Qpn) -> Option<u64> {
        let is_asked = self.heed.tells_queue_pairs_apart();
        is_asked.then(|| lock(&self.queue_pairs).by_qpn.get(&(device, qpn.value())).copied()).flatten()
    }
}

/// A queue pair was made.
pub(crate) fn made_queue_pair(pointer: *const ibv_qp, device: usize, qpn: u32) {
    let Some(play) = play() else { return };
    let mut all = lock(&play.queue_pairs);
    all.made += 1;
    let number = all.made;
    all.numbers.insert(pointer as usize, number);
    all.by_qpn.insert((device, qpn), number);
}

/// A queue pair was destroyed.
pub(crate) fn forget_queue_pair(pointer: *const ibv_qp, device: usize, qpn: u32) {
    let Some(play) = play() else { return };
    devices::displace(device, qpn);
    let mut all = lock(&play.queue_pairs);
    if let Some(number) = all.numbers.remove(&(pointer as usize)) {
        all.by_qpn.retain(|_, of| *of != number);
    }
}

/// The first device of the process is open: the scenario's time begins.
pub(crate) fn begin() {
    let Some(play) = play() else { return };
    play.ask(|course| course.begin(play.now()));
    timeline::begin(play);
    if play.is_controlled {
        orders::begin(play);
    }
}

/// A registration's part of a limit, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted {
    device: usize,
    bytes: u64,
}

impl Counted {
    /// `None` without a scenario.
    ///
    /// # Errors
    /// The scenario's errno beyond a limit.
    pub(crate) fn new(device: usize, bytes: u64) -> Result<Option<Counted>, c_int> {
        let Some(play) = play() else { return Ok(None) };
        play.ask(|course| course.registering(device, bytes)).map_err(|errno| {
            refused(errno, || "the scenario's limit on registered memory is reached".to_string())
        })?;
        Ok(Some(Counted { device, bytes }))
    }

    /// The same region with another length, whose old part is given back when this is dropped.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub(crate) fn resized(&self, bytes: u64) -> Result<Option<Counted>, c_int> {
        let Some(play) = play() else { return Ok(None) };
        // The old part does not count against the new one.
        play.ask(|course| {
            course.deregistered(self.device, self.bytes);
            let registered = course.registering(self.device, bytes);
            // The guard of the old part gives it back once more, or keeps it.
            course.restore(self.device, self.bytes);
            registered
        })
        .map_err(|errno| {
            refused(errno, || "the scenario's limit on registered memory is reached".to_string())
        })?;
        Ok(Some(Counted { device: self.device, bytes }))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(play) = play() {
            play.ask(|course| course.deregistered(self.device, self.bytes));
        }
    }
}
