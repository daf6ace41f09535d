//! What `highwire run --report` gets to know of this process: files in a folder, which that program reads when all is over.
//!
//! A process that is killed cannot write any more. So the state is written anew after each control call about a queue pair and ten times a
//! second, and lines about what failed are written at once. Invariants:
//!
//! - The file of a device's state is replaced as a whole; that of the lines is only appended to. Both have a bound, and so has their number.
//! - No lock is waited for without an end: a child of `fork` may have a copy of one that nobody frees.
//! - A state is never replaced by an earlier one.
//! - If a file cannot be written, the program goes on without.

use crate::boundary::at_exit;
use crate::env::{self, Settings};
use crate::qp::Qp;
use highwire_host::verbs::Gid;
use highwire_host::{Device, QpSnapshot, Standing};
use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, TryLockError};

/// So many lines a process has in a report, each with so many characters.
const LINES_MAX: u32 = 200;
const LINE_CHARACTERS_MAX: usize = 600;
/// So many queue pairs of a device that were destroyed are told of.
const ENDED_MAX: usize = 64;
/// So many devices of a process are told of.
const DEVICES_MAX: usize = 64;

/// A device that was opened, under its address.
struct Known {
    gid: Gid,
    name: String,
    /// The rows of the queue pairs that are gone.
    ended: Vec<String>,
    /// The look that was written last.
    written: u64,
}

/// The devices of a process, in the order in which they were opened first.
struct Devices {
    process: u32,
    all: Vec<Known>,
}

static DEVICES: Mutex<Devices> = Mutex::new(Devices { process: 0, all: Vec::new() });
/// The look at a device that was begun last.
static LOOKS: AtomicU64 = AtomicU64::new(1);
/// How often a thread tries to get the lock, with its core given away in between.
const PATIENCE: u32 = 10_000;

fn devices() -> Option<MutexGuard<'static, Devices>> {
    for _ in 0..PATIENCE {
        let mut devices = match DEVICES.try_lock() {
            Ok(devices) => devices,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                std::thread::yield_now();
                continue;
            }
        };
        let process = std::process::id();
        if devices.process != process {
            // Those of the parent are its own.
            *devices = Devices { process, all: Vec::new() };
        }
        return Some(devices);
    }
    None
}

fn folder() -> Option<&'static Path> {
    env::settings()?.report.as_deref()
}

/// The process asks for devices for the first time.
pub(crate) fn begin(settings: Option<&Settings>) {
    if settings.is_some_and(|settings| settings.report.is_some()) {
        let name = fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let text = format!("process\t{}\n", name.trim().replace(char::is_control, " "));
        settings
            .and_then(|settings| settings.report.as_deref())
            .iter()
            .for_each(|to| replace(to, "state", &text));
    }
}

/// The environment is wrong, and the settings are unknown.
pub(crate) fn note_misread(folder: Option<String>, line: &str) {
    if let Some(folder) = folder {
        append(Path::new(&folder), line);
    }
}

/// A line about what was refused or has failed.
pub(crate) fn note(line: &str) {
    if let Some(folder) = folder() {
        append(folder, line);
    }
}

fn append(folder: &Path, line: &str) {
    static LINES: AtomicU32 = AtomicU32::new(0);
    if LINES.fetch_add(1, Ordering::Relaxed) >= LINES_MAX {
        return;
    }
    let line = line.chars().map(|c| if c.is_control() { ' ' } else { c });
    let line: String = line.take(LINE_CHARACTERS_MAX).collect();
    let file = OpenOptions::new().create(true).append(true).open(path(folder, "lines"));
    let _ = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
}

/// A device was opened.
pub(crate) fn opened(device: &Device, name: &str) {
    if folder().is_none() {
        return;
    }
    if let Some(mut devices) = devices() {
        let (gid, name) = (device.gid(), name.to_string());
        if devices.all.len() < DEVICES_MAX && !devices.all.iter().any(|known| known.gid == gid) {
            devices.all.push(Known { gid, name, ended: Vec::new(), written: 0 });
        }
    }
    highwire_host::report_to(write_state);
    extern "C" fn at_end() {
        crate::context::report_at_end();
    }
    static ASKED: Once = Once::new();
    // Otherwise the last state is that of a moment before.
    at_exit(&ASKED, at_end);
    stands(device);
}

/// Something about the device's queue pairs has changed.
pub(crate) fn stands(device: &Device) {
    if folder().is_some() {
        write_state(device.gid(), &|| device.standing());
    }
}

/// A queue pair is destroyed.
pub(crate) fn ends(qp: &Qp) {
    if folder().is_none() {
        return;
    }
    let Ok(host) = qp.host() else { return };
    let (gid, row) = (qp.context.device.gid(), row(qp.number(), &host.query(), true));
    if let Some(mut devices) = devices() {
        let known = devices.all.iter_mut().find(|known| known.gid == gid);
        if let Some(known) = known.filter(|known| known.ended.len() < ENDED_MAX) {
            known.ended.push(row);
        }
    }
    stands(&qp.context.device);
}

fn row(number: u32, now: &QpSnapshot, is_gone: bool) -> String {
    let (peer, at) = (now.remote_qpn.value(), now.address.gid.to_ip());
    let gone = if is_gone { "destroyed" } else { "there" };
    let service = now.config.service;
    format!("qp\t{number}\t{service}\t{}\t{peer}\t{at}\t{}\t{gone}\n", now.state, now.send_queue_len)
}

fn path(folder: &Path, what: &str) -> PathBuf {
    folder.join(format!("{}.{what}", std::process::id()))
}

/// The state of one device, in a file of its own.
fn write_state(gid: Gid, standing: &dyn Fn() -> Standing) {
    let Some(settings) = env::settings() else { return };
    let Some(folder) = settings.report.as_deref() else { return };
    let look = LOOKS.fetch_add(1, Ordering::SeqCst);
    // Without the lock: a thread that holds it waits for no lane.
    let standing = standing();
    let Some(mut devices) = devices() else { return };
    let Some(number) = devices.all.iter().position(|known| known.gid == gid) else { return };
    let known = &mut devices.all[number];
    if known.written > look {
        return;
    }
    known.written = look;
    let Known { name, ended, .. } = known;
    let name = name.replace(char::is_control, " ");
    let mut text = format!("device\t{name}\t{}\t{:?}\n", gid.to_ip(), settings.device.link);
    for (name, value) in standing.counters.iter().filter(|(_, value)| *value > 0) {
        let _ = writeln!(text, "counter\t{name}\t{value}");
    }
    for (qpn, now) in &standing.queue_pairs {
        text.push_str(&row(qpn.value(), now, false));
    }
    ended.iter().for_each(|row| text.push_str(row));
    let _ = writeln!(text, "left_out\t{}", standing.left_out);
    replace(folder, &format!("device-{number:02}"), &text);
}

fn replace(folder: &Path, what: &str, text: &str) {
    let draft = path(folder, "draft");
    if fs::write(&draft, text).and_then(|()| fs::rename(&draft, path(folder, what))).is_err() {
        let _ = fs::remove_file(draft);
    }
}
