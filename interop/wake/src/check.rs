//! The device's promises: it wakes the right thread and loses no wake-up, refuses invalid requests, and stays
//! while it is used.

use std::io::{self, BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::device::{self, Group, Switched};
use crate::{stress, sys};

/// How long a thread may take to go to sleep or to wake, on emulated cores that others use too.
const PATIENCE: Duration = Duration::from_secs(60);
/// An unmapped address.
const NOWHERE: u64 = 8;

/// A promise: an error if it does not hold.
pub(crate) type Check<O> = fn(&O) -> Result<()>;

/// The numbers of events and threads, and the cores.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) events: u64,
    pub(crate) threads: u32,
    pub(crate) cores: [u32; 2],
}

/// In this order: the last one unloads the module.
const CHECKS: &[(&str, Check<Options>)] = &[
    ("requests that make no sense are refused", nonsense_is_refused),
    ("one thread waits at a slot, the second is refused", one_thread_waits_at_a_slot),
    ("a post before the wait is not lost", a_post_before_the_wait_is_kept),
    ("a signal ends a wait, and a close every wait", signals_and_closing_end_waits),
    ("a dispatcher has its core back after its patience", patience_ends),
    ("no event is lost, and the dispatcher switches", no_event_is_lost),
    ("a killed process leaves nothing waiting", the_killed_leave_nothing),
    ("the module is not unloaded while a thread waits, and is afterwards", unloading_waits),
];

/// Runs all of them, and prints a line for each. False if one has failed.
pub(crate) fn run(options: &Options) -> bool {
    run_each(CHECKS, options)
}

/// Runs these, and prints a line for each. False if one has failed.
pub(crate) fn run_each<O>(checks: &[(&str, Check<O>)], options: &O) -> bool {
    let mut is_well = true;
    for (name, check) in checks {
        match check(options) {
            Ok(()) => println!("check: ok {name}"),
            Err(error) => {
                is_well = false;
                println!("check: failed {name}: {error:#}");
            }
        }
    }
    is_well
}

/// Waits at a slot for ever, after reporting it: for [`the_killed_leave_nothing`].
pub(crate) fn hold() -> Result<()> {
    let group = Group::with_slots(1)?;
    println!("holding");
    group.wait(0)?;
    Ok(())
}

fn refused(group: &Group, request: u32, argument: u64, expected: i32) -> Result<()> {
    match group.call(request, argument) {
        Ok(result) => bail!("request {request:#x} with {argument:#x} gives {result}, not error {expected}"),
        Err(error) => {
            let number = error.raw_os_error();
            ensure!(
                number == Some(expected),
                "request {request:#x} with {argument:#x}: {error}, not error {expected}"
            );
            Ok(())
        }
    }
}

fn nonsense_is_refused(_: &Options) -> Result<()> {
    let group = Group::open()?;
    for request in [device::WAIT, device::SWITCH, device::POST] {
        refused(&group, request, 0, libc::ENXIO)?;
    }
    refused(&group, device::SLOTS, 0, libc::EINVAL)?;
    refused(&group, device::SLOTS, u64::from(device::SLOTS_MAX) + 1, libc::EINVAL)?;
    refused(&group, device::SLOTS, u64::MAX, libc::EINVAL)?;
    refused(&group, device::SLOTS, 1 << 32 | 4, libc::EINVAL)?;
    group.call(device::SLOTS, 4)?;
    refused(&group, device::SLOTS, 4, libc::EBUSY)?;
    for request in [device::WAIT, device::SWITCH, device::POST] {
        refused(&group, request, 4, libc::EINVAL)?;
        refused(&group, request, u64::from(u32::MAX), libc::EINVAL)?;
    }
    refused(&group, device::WAIT, 1 << 32, libc::EINVAL)?;
    refused(&group, device::POST, 1 << 32, libc::EINVAL)?;
    refused(&group, device::SWITCH, (u64::from(device::PATIENCE_US_MAX) + 1) << 32, libc::EINVAL)?;
    refused(&group, device::COUNTS, NOWHERE, libc::EFAULT)?;
    refused(&group, device::CLOSE, 1, libc::EINVAL)?;
    refused(&group, 0x4887, 0, libc::ENOTTY)?;
    refused(&group, 0, 0, libc::ENOTTY)?;
    ensure!(
        group.counts()? == device::Counts::default(),
        "what was refused has been counted: {:?}",
        group.counts()?
    );
    Ok(())
}

/// Returns when this many waits of the group have slept.
fn until_asleep(group: &Group, sleeps: u64) -> Result<()> {
    let begin = Instant::now();
    while group.counts()?.sleeps < sleeps {
        ensure!(begin.elapsed() < PATIENCE, "no thread sleeps: {:?}", group.counts()?);
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn joined<T>(thread: thread::ScopedJoinHandle<'_, T>) -> Result<T> {
    thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))
}

fn one_thread_waits_at_a_slot(_: &Options) -> Result<()> {
    let group = Group::with_slots(2)?;
    thread::scope(|threads| {
        let waiting = threads.spawn(|| group.wait(1));
        let outcome = until_asleep(&group, 1).and_then(|()| refused(&group, device::WAIT, 1, libc::EBUSY));
        // With any finding: the thread has to come back.
        let woke = group.post(1)?;
        outcome?;
        ensure!(woke, "the post has found nobody asleep");
        ensure!(joined(waiting)?? == 1, "the thread has another number of events than the one posted");
        Ok(())
    })
}

fn a_post_before_the_wait_is_kept(_: &Options) -> Result<()> {
    let group = Group::with_slots(1)?;
    ensure!(!group.post(0)?, "a post has woken nobody's thread");
    ensure!(group.switch(0, 1000)? == Switched::Nobody, "a dispatcher has given its core to nobody");
    ensure!(group.wait(0)? == 2, "a wait has not returned both posts");
    Ok(())
}

fn signals_and_closing_end_waits(_: &Options) -> Result<()> {
    sys::catch(libc::SIGUSR1)?;
    let group = Group::with_slots(2)?;
    let number = AtomicI32::new(0);
    let error = |result: io::Result<u32>| result.err().and_then(|error| error.raw_os_error());
    thread::scope(|threads| {
        let interrupted = threads.spawn(|| {
            number.store(sys::thread_number(), Ordering::Release);
            group.wait(0)
        });
        let closed = threads.spawn(|| group.wait(1));
        let signalled = until_asleep(&group, 2)
            .and_then(|()| Ok(sys::interrupt(number.load(Ordering::Acquire), libc::SIGUSR1)?));
        let interrupted = if signalled.is_ok() { Some(joined(interrupted)?) } else { None };
        group.close()?;
        signalled?;
        let interrupted = interrupted.and_then(error);
        ensure!(interrupted == Some(libc::EINTR), "the signal has given {interrupted:?}");
        let closed = error(joined(closed)?);
        ensure!(closed == Some(libc::ESHUTDOWN), "closing has given {closed:?}");
        let later = error(group.wait(0));
        ensure!(later == Some(libc::ESHUTDOWN), "a wait after closing has given {later:?}");
        Ok(())
    })
}

/// The woken thread does not come back to wait, and the dispatcher goes on nevertheless.
fn patience_ends(_: &Options) -> Result<()> {
    let group = Group::with_slots(1)?;
    thread::scope(|threads| {
        let waiting = threads.spawn(|| group.wait(0));
        let switched = until_asleep(&group, 1).and_then(|()| Ok(group.switch(0, 2000)?));
        if switched.is_err() {
            group.close()?;
        }
        joined(waiting)?.context("the wait")?;
        ensure!(switched? == Switched::Late, "the dispatcher has not been late");
        ensure!(group.counts()?.late == 1, "its lateness is not counted: {:?}", group.counts()?);
        Ok(())
    })
}

fn no_event_is_lost(options: &Options) -> Result<()> {
    let counts = stress::run(options.events, options.threads, options.cores)?;
    ensure!(counts.posts == options.events && counts.taken == options.events, "{counts:?}");
    // Half of the events are the dispatcher's, and some of its threads are awake already when it switches;
    // but a module that hardly ever switches is wrong.
    ensure!(counts.switches > options.events / 20, "the dispatcher hardly ever switched: {counts:?}");
    println!("check: {} events, {counts:?}", options.events);
    Ok(())
}

fn the_killed_leave_nothing(_: &Options) -> Result<()> {
    let this = std::env::current_exe()?;
    let mut child = Command::new(this).arg("hold").stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("it is piped")?.take(16)).read_line(&mut line)?;
    let refusal = sys::unload();
    child.kill()?;
    let status = child.wait()?;
    ensure!(line == "holding\n" && !status.success(), "the child said {line:?} and ended with {status}");
    ensure!(refusal.is_err(), "the module was unloaded under a process that has it open");
    Ok(())
}

fn unloading_waits(_: &Options) -> Result<()> {
    {
        let group = Group::with_slots(1)?;
        thread::scope(|threads| {
            let waiting = threads.spawn(|| group.wait(0));
            let refusal = until_asleep(&group, 1).map(|()| sys::unload());
            group.post(0)?;
            joined(waiting)?.context("the wait")?;
            let refusal = refusal?.err().and_then(|error| error.raw_os_error());
            ensure!(refusal == Some(libc::EAGAIN), "unloading under a waiting thread has given {refusal:?}");
            Ok(())
        })?;
    }
    // The kernel lets go of a killed process's files a moment after its parent has heard of its end.
    let begin = Instant::now();
    while let Err(error) = sys::unload() {
        ensure!(begin.elapsed() < PATIENCE, "the module is not unloaded: {error}");
        thread::sleep(Duration::from_millis(10));
    }
    ensure!(!std::path::Path::new(device::PATH).exists(), "the device is still there");
    Ok(())
}
