//! The system calls behind a wait: futexes, and where and how urgently a thread runs.
#![allow(unsafe_code)]

#[cfg(not(feature = "model"))]
use crate::word::Slept;
use crate::world;
use std::io;
use std::time::Duration;

/// A core's number, as the kernel counts them.
pub type Core = u32;

/// The upper half of a word, which is what the kernel compares.
#[cfg(not(feature = "model"))]
fn upper(word: &crate::sync::AtomicU64) -> *const u32 {
    let half = word.as_ptr().cast::<u32>();
    // SAFETY: within the word's eight bytes.
    if cfg!(target_endian = "little") { unsafe { half.add(1) } } else { half }
}

/// Sleeps while the upper half of `word` is `seen`.
#[cfg(not(feature = "model"))]
pub(crate) fn futex_wait(
    word: &crate::sync::AtomicU64,
    seen: u32,
    is_shared: bool,
    timeout: Option<Duration>,
) -> Slept {
    let operation = libc::FUTEX_WAIT | if is_shared { 0 } else { libc::FUTEX_PRIVATE_FLAG };
    let timeout = timeout.map(to_timespec);
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the word and the timeout live as long as the call; the kernel only reads.
    let failed = unsafe { libc::syscall(libc::SYS_futex, upper(word), operation, seen, timeout) } < 0;
    match io::Error::last_os_error().raw_os_error() {
        Some(libc::ETIMEDOUT) if failed => Slept::TimedOut,
        Some(libc::EINTR) if failed => Slept::Interrupted,
        // Woken, or posted to before it slept.
        _ => Slept::Posted,
    }
}

/// Wakes up to `count` threads that sleep on `word`; returns how many there were.
#[cfg(not(feature = "model"))]
pub(crate) fn futex_wake(word: &crate::sync::AtomicU64, is_shared: bool, count: i32) -> u32 {
    let operation = libc::FUTEX_WAKE | if is_shared { 0 } else { libc::FUTEX_PRIVATE_FLAG };
    // SAFETY: the kernel looks at no more than the word's address.
    let woken = unsafe { libc::syscall(libc::SYS_futex, upper(word), operation, count) };
    u32::try_from(woken).unwrap_or(0)
}

#[cfg(not(feature = "model"))]
fn to_timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// The core that this thread runs on; it may be another one by now.
#[inline]
pub fn current_core() -> Core {
    if let Some(model) = world::model() {
        return model.core();
    }
    // SAFETY: reads the thread's own place. If the kernel does not tell, all cores count as one.
    u32::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// Keeps this thread on the given cores.
///
/// # Errors
/// None of the cores exists, or this process may not use them.
pub fn pin(cores: &[Core]) -> io::Result<()> {
    if let Some(model) = world::model() {
        return if model.pin(cores) { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) };
    }
    // SAFETY: zeros are an empty set; CPU_SET stays within it for numbers below its size.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &core in cores.iter().filter(|&&core| core < libc::CPU_SETSIZE as u32) {
            libc::CPU_SET(core as usize, &mut set);
        }
        set
    };
    // SAFETY: the set has the size that is passed; 0 is this thread.
    check(unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) })
}

/// A real-time priority, from 1.
pub type Priority = u8;

/// Lets this thread run only when no other thread wants its core.
///
/// # Errors
/// The system refuses.
pub fn run_only_when_idle() -> io::Result<()> {
    if let Some(model) = world::model() {
        model.run_only_when_idle();
        return Ok(());
    }
    set_policy(libc::SCHED_IDLE, 0)
}

/// Lets this thread run before all ordinary threads.
///
/// # Errors
/// The process needs permission (`RLIMIT_RTPRIO`).
pub fn run_urgently(priority: Priority) -> io::Result<()> {
    set_policy(libc::SCHED_FIFO, priority.into())
}

fn set_policy(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    // SAFETY: zeros are a valid parameter; 0 is this thread.
    let failed = unsafe {
        let mut parameter: libc::sched_param = std::mem::zeroed();
        parameter.sched_priority = priority;
        libc::sched_setscheduler(0, policy, &raw const parameter)
    };
    check(failed)
}

/// Lets the other threads on this core run first.
pub fn yield_core() {
    if let Some(model) = world::model() {
        return model.yield_core();
    }
    // SAFETY: a plain system call.
    unsafe { libc::sched_yield() };
}

/// The time that this thread has spent on a core.
pub fn thread_time() -> Duration {
    world::model().map_or_else(|| time_of(libc::CLOCK_THREAD_CPUTIME_ID), |model| model.thread_time())
}

/// The time that all threads of this process have spent on cores.
pub fn process_time() -> Duration {
    world::model().map_or_else(|| time_of(libc::CLOCK_PROCESS_CPUTIME_ID), |model| model.process_time())
}

fn time_of(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists, and the structure is writable.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// How often threads of this process have left their core to another thread, of their own accord or not.
pub fn process_switches() -> u64 {
    // SAFETY: zeros are a valid value, which the call fills in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    u64::try_from(usage.ru_nvcsw + usage.ru_nivcsw).unwrap_or(0)
}

/// The threads of the whole machine that run or want to, this one included; `None` where the system does not say.
pub fn runnable_threads() -> Option<usize> {
    if let Some(model) = world::model() {
        return Some(model.runnable_threads());
    }
    // "0.20 0.18 0.12 1/80 11206": proc_loadavg(5).
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

/// How many cores the machine has in service, those on which this thread may not run included.
pub fn machine_cores() -> usize {
    if let Some(model) = world::model() {
        return model.machine_cores();
    }
    // SAFETY: a plain question to the system, which answers -1 if it does not know.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(count).unwrap_or(1).max(1)
}

fn check(failed: libc::c_int) -> io::Result<()> {
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(all(test, not(feature = "model")))]
mod tests {
    #[test]
    fn the_system_says_how_many_threads_want_to_run() {
        assert!(super::runnable_threads().is_none_or(|threads| threads >= 1), "this one runs");
    }

    #[test]
    fn a_thread_that_is_kept_on_one_core_counts_the_cores_of_the_machine() {
        let everywhere = super::machine_cores();
        let pinned = std::thread::spawn(|| {
            super::pin(&[super::current_core()]).expect("it runs there");
            super::machine_cores()
        });
        assert_eq!(pinned.join().expect("no panic"), everywhere);
        if everywhere < 2 {
            println!("skipped: one core in all, so one is what any thread counts");
        }
    }
}
