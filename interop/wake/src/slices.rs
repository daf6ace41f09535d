//! Extensions of a thread's time slice (rseq): a thread that holds a lock that others wait for asks not to
//! lose its core just then.
//!
//! A leader holds the lane's token, for microseconds at a time; a leader that loses its core meanwhile makes
//! all others wait until it has it back (`docs/wake-kernel.md`). Here a thread takes and leaves such a token over
//! and over while another computes on the same core, and counts how often the token was away for so long that
//! only a lost core explains it.
#![allow(unsafe_code)]

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use highwire_wake::{Core, pin, yield_core};
use serde::Serialize;

/// How long the token is held: a turn of a lane.
const HOLD: Duration = Duration::from_micros(5);
/// How long the thread does something else.
const BETWEEN: Duration = Duration::from_micros(15);
/// A token that was away for this long was held by a thread without a core; an extension is shorter.
const AWAY: Duration = Duration::from_micros(500);

const PR_RSEQ_SLICE_EXTENSION: libc::c_int = 79;
const PR_RSEQ_SLICE_EXTENSION_SET: libc::c_ulong = 2;
const PR_RSEQ_SLICE_EXT_ENABLE: libc::c_ulong = 1;
const SYS_RSEQ: libc::c_long = 334;
const SYS_RSEQ_SLICE_YIELD: libc::c_long = 471;
const RSEQ_FLAG_UNREGISTER: libc::c_int = 1;
const RSEQ_SIGNATURE: u32 = 0x5305_3053;
/// The area that glibc registers for every thread.
const GLIBC_BYTES: u32 = 32;
const AT_RSEQ_FEATURE_SIZE: libc::c_ulong = 27;

/// The area that thread and kernel share; the kernel knows how much of it is used.
#[repr(C, align(256))]
struct Area {
    words: [AtomicU32; 64],
}

/// In the control word: the thread asks, and the kernel has granted.
const REQUEST: u32 = 1;
const GRANTED: u32 = 1 << 8;
const CONTROL: usize = 7;

#[derive(Debug, Default, Serialize)]
struct Row {
    extension: bool,
    holds: u64,
    /// Holds that took so long that the core was lost meanwhile.
    lost: u64,
    /// How often the kernel has granted more time.
    granted: u64,
    longest_us: f64,
}

/// Plays it without and with extensions, in turns, and prints a line of JSON for each.
pub(crate) fn run(time: Duration, core: Core) -> Result<()> {
    for extension in [false, true] {
        let is_over = AtomicBool::new(false);
        let row = thread::scope(|threads| {
            threads.spawn(|| {
                drop(pin(&[core]));
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let holder = threads.spawn(|| {
                drop(pin(&[core]));
                hold(time, extension)
            });
            let row = holder.join();
            is_over.store(true, Ordering::Relaxed);
            row.unwrap_or_else(|_| anyhow::bail!("the thread panicked"))
        });
        match row {
            Ok(row) => println!("slices: {}", serde_json::to_string(&row)?),
            // Kernels before it, and those built without it.
            Err(error) if extension => println!("slices: none here: {error:#}"),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn hold(time: Duration, extension: bool) -> Result<Row> {
    let area = if extension { Some(enable().context("this kernel extends no time slices")?) } else { None };
    let mut row = Row { extension, ..Row::default() };
    let begin = Instant::now();
    let mut longest = Duration::ZERO;
    while begin.elapsed() < time {
        let control = area.map(|area| &area.words[CONTROL]);
        if let Some(control) = control {
            control.store(REQUEST, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
        }
        let took = spin(HOLD);
        if let Some(control) = control {
            compiler_fence(Ordering::SeqCst);
            if control.swap(0, Ordering::Relaxed) & GRANTED != 0 {
                row.granted += 1;
                // SAFETY: it has no arguments. The core is due now.
                unsafe { libc::syscall(SYS_RSEQ_SLICE_YIELD) };
            }
        }
        row.holds += 1;
        row.lost += u64::from(took > AWAY);
        longest = longest.max(took);
        spin(BETWEEN);
        // Another thread's turn, so that this thread's own ends at any time and not when it has used up its
        // share.
        if row.holds.is_multiple_of(64) {
            yield_core();
        }
    }
    row.longest_us = longest.as_secs_f64() * 1e6;
    Ok(row)
}

fn spin(time: Duration) -> Duration {
    let begin = Instant::now();
    loop {
        let spent = begin.elapsed();
        if spent >= time {
            return spent;
        }
        std::hint::spin_loop();
    }
}

/// Registers an area in the place of glibc's, which is too old to know of extensions, and asks for them. The
/// area is never freed: the kernel writes to it until the thread ends.
fn enable() -> io::Result<&'static Area> {
    // SAFETY: a name that ends with a zero; the symbol is an offset that glibc never changes.
    let offset = unsafe {
        let symbol = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        if symbol.is_null() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this libc registers no rseq"));
        }
        *symbol
    };
    let thread: usize;
    // SAFETY: reads the thread pointer, which the ABI keeps at the start of what it points to.
    unsafe { std::arch::asm!("mov {}, fs:0", out(reg) thread, options(nostack, preserves_flags, readonly)) };
    let theirs = thread.wrapping_add_signed(offset);
    // SAFETY: the address and the length that glibc has registered for this thread.
    check(unsafe { libc::syscall(SYS_RSEQ, theirs, GLIBC_BYTES, RSEQ_FLAG_UNREGISTER, RSEQ_SIGNATURE) })?;
    // SAFETY: a number that the kernel gives every process.
    let used = unsafe { libc::getauxval(AT_RSEQ_FEATURE_SIZE) };
    let length = (used as usize).max(GLIBC_BYTES as usize + 1).next_multiple_of(GLIBC_BYTES as usize);
    let area: &'static Area = Box::leak(Box::new(Area { words: [const { AtomicU32::new(0) }; 64] }));
    assert!(length <= size_of::<Area>(), "the kernel uses {length} bytes");
    let address = std::ptr::from_ref(area);
    // SAFETY: the area is large enough, aligned, and lives as long as the process.
    check(unsafe { libc::syscall(SYS_RSEQ, address, length, 0, RSEQ_SIGNATURE) })?;
    let enable = PR_RSEQ_SLICE_EXT_ENABLE;
    // SAFETY: numbers only.
    check(unsafe { libc::prctl(PR_RSEQ_SLICE_EXTENSION, PR_RSEQ_SLICE_EXTENSION_SET, enable, 0, 0) }.into())?;
    Ok(area)
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
