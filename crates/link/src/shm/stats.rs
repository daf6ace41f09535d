//! The counters of a running device, in a file that other processes of the user can read at any time.
//!
//! ```text
//!   0 ┌──────────────────────┬─────────────┬──────────────┐
//!     │ "HWSTATS2"           │ pid u32     │ entries u32  │
//!  16 ├──────────────────────┼─────────────┴──────────────┤
//!     │ start_time u64       │ sequence u64: odd while it is being written │
//!  64 ├──────────────────────┴────────────────────────────┤
//!     │ entries × { name: 40 bytes, zero-padded · u64 }   │
//!     ├───────────────────────────────────────────────────┤
//!     │ channels u32 · left out u32 · figures u32         │
//!     │ figures × { name: 40 bytes, zero-padded }         │
//!     │ channels × { name: 40 bytes · 16 × u64 }          │
//!     └───────────────────────────────────────────────────┘
//! ```

use super::{EngineName, Registry};
use highwire_shmem::{Segment, Window};
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

const MAGIC: u64 = u64::from_le_bytes(*b"HWSTATS2");
const SEQUENCE: usize = 24;
const ENTRIES: usize = 64;
const NAME_BYTES: usize = 40;
const ENTRY_BYTES: usize = NAME_BYTES + 8;
const ENTRIES_MAX: usize = 160;
const CHANNELS: usize = ENTRIES + ENTRIES_MAX * ENTRY_BYTES;
const CHANNELS_MAX: usize = 64;
const FIGURES_MAX: usize = 16;
const FIGURE_NAMES: usize = CHANNELS + 16;
const CHANNEL_ROWS: usize = FIGURE_NAMES + FIGURES_MAX * NAME_BYTES;
const CHANNEL_BYTES: usize = NAME_BYTES + FIGURES_MAX * 8;
const FILE_BYTES: usize = CHANNEL_ROWS + CHANNELS_MAX * CHANNEL_BYTES;
const PREFIX: &str = "stats-";

/// The file of this device. Dropping it removes it.
#[derive(Debug)]
pub struct StatsFile {
    path: PathBuf,
    window: Window,
    sequence: AtomicU64,
}

/// The figures of a device's channels, to be written.
#[derive(Clone, Copy, Debug)]
pub enum Channels<'a> {
    /// No figure has changed since the last write.
    Unchanged,
    /// The busiest, [`StatsFile::CHANNELS_MAX`] at most, and how many others there are.
    Busiest(&'a [ChannelFigures], usize),
}

/// The counters of a device that runs now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningDevice {
    /// Its address.
    pub address: IpAddr,
    /// Its part of the address, if processes share it.
    pub shard: Option<u8>,
    /// Its process.
    pub pid: u32,
    /// Its counters by name, as they were a moment ago.
    pub counters: Vec<(String, u64)>,
    /// The figures of its busiest channels.
    pub channels: Vec<ChannelFigures>,
    /// Channels that there was no room for.
    pub channels_left_out: u32,
}

/// The figures of one channel of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelFigures {
    /// Its name.
    pub name: String,
    /// Its figures by name, the same names for every channel of a device.
    pub figures: Vec<(String, u64)>,
}

impl StatsFile {
    /// Makes the file of the device that has this name, in the user's own registry.
    ///
    /// # Errors
    /// Those of making a file.
    pub fn create(name: EngineName) -> io::Result<StatsFile> {
        StatsFile::create_in(&Registry::open().map_err(io::Error::other)?, name)
    }

    /// The same in another registry.
    ///
    /// # Errors
    /// Those of making a file.
    pub fn create_in(registry: &Registry, name: EngineName) -> io::Result<StatsFile> {
        let path = path(registry, name);
        let window = make(&path, std::process::id())?;
        Ok(StatsFile { path, window, sequence: AtomicU64::new(0) })
    }

    /// Writes the present values. One thread at a time calls this; others that come meanwhile write nothing.
    pub fn write(&self, counters: impl IntoIterator<Item = (&'static str, u64)>) {
        self.write_all(counters, Channels::Unchanged);
    }

    /// The same, with those of the device's channels.
    pub fn write_all(&self, counters: impl IntoIterator<Item = (&'static str, u64)>, channels: Channels<'_>) {
        let sequence = self.sequence.load(Ordering::Relaxed);
        let begun =
            self.sequence.compare_exchange(sequence, sequence + 1, Ordering::AcqRel, Ordering::Relaxed);
        if sequence % 2 == 1 || begun.is_err() {
            return;
        }
        self.window.u64_at(SEQUENCE).store(sequence + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        let mut count = 0u64;
        for (name, value) in counters.into_iter().take(ENTRIES_MAX) {
            let at = ENTRIES + count as usize * ENTRY_BYTES;
            self.write_name(at, name);
            self.window.u64_at(at + NAME_BYTES).store(value, Ordering::Relaxed);
            count += 1;
        }
        if let Channels::Busiest(channels, others) = channels {
            self.write_channels(channels, others);
        }
        self.window.u64_at(8).store(u64::from(std::process::id()) | count << 32, Ordering::Relaxed);
        self.window.u64_at(SEQUENCE).store(sequence + 2, Ordering::Release);
        self.sequence.store(sequence + 2, Ordering::Release);
    }
}

impl StatsFile {
    /// Channels that the file has room for.
    pub const CHANNELS_MAX: usize = CHANNELS_MAX;

    fn write_name(&self, at: usize, name: &str) {
        let mut padded = [0; NAME_BYTES];
        let bytes = &name.as_bytes()[..name.len().min(NAME_BYTES)];
        padded[..bytes.len()].copy_from_slice(bytes);
        self.window.copy_in(at, &padded);
    }

    fn write_channels(&self, channels: &[ChannelFigures], others: usize) {
        let left_out = others + channels.len().saturating_sub(CHANNELS_MAX);
        let names: &[(String, u64)] = channels.first().map_or(&[], |channel| &channel.figures);
        let names = &names[..names.len().min(FIGURES_MAX)];
        for (index, (name, _)) in names.iter().enumerate() {
            self.write_name(FIGURE_NAMES + index * NAME_BYTES, name);
        }
        let shown = &channels[..channels.len().min(CHANNELS_MAX)];
        for (index, channel) in shown.iter().enumerate() {
            let at = CHANNEL_ROWS + index * CHANNEL_BYTES;
            self.write_name(at, &channel.name);
            for (figure, (_, value)) in channel.figures.iter().take(names.len()).enumerate() {
                self.window.u64_at(at + NAME_BYTES + figure * 8).store(*value, Ordering::Relaxed);
            }
        }
        self.window.u64_at(CHANNELS).store(shown.len() as u64 | (left_out as u64) << 32, Ordering::Relaxed);
        self.window.u64_at(CHANNELS + 8).store(names.len() as u64, Ordering::Relaxed);
    }
}

/// A file without counters.
fn make(path: &Path, pid: u32) -> io::Result<Window> {
    // Only this process owns the name, so a file of that name is a dead process's, or the broker's promise.
    let _ = std::fs::remove_file(path);
    let window = Window::whole(&Arc::new(Segment::create_file(path, FILE_BYTES, 0o600)?));
    window.u64_at(8).store(u64::from(pid), Ordering::Relaxed);
    window.u64_at(16).store(start_time(pid), Ordering::Relaxed);
    window.u64_at(0).store(MAGIC, Ordering::Release);
    Ok(window)
}

/// Says that a process has a device of this name, before it says so itself. 0 is a process that cannot be seen from here.
pub fn announce(registry: &Registry, name: EngineName, pid: u32) {
    if pid > 0 {
        // If this fails, only the device's own file tells.
        let _ = make(&path(registry, name), pid);
    }
}

/// Removes the file of a process that is gone.
pub fn remove(registry: &Registry, name: EngineName) {
    let _ = std::fs::remove_file(path(registry, name));
}

fn path(registry: &Registry, name: EngineName) -> PathBuf {
    registry.root().join(format!("{PREFIX}{name}"))
}

impl Drop for StatsFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Whether a device of this name runs.
pub fn is_running(registry: &Registry, name: EngineName) -> bool {
    read(&path(registry, name), name).is_some()
}

/// Every device of this user that runs on this machine now, by address. Files that dead ones left behind are removed.
///
/// # Errors
/// Those of reading the directory.
pub fn running_devices() -> io::Result<Vec<RunningDevice>> {
    running_where(&Registry::open().map_err(io::Error::other)?, |name| !name.is_broker())
}

/// Every broker of this user that runs on this machine now, by address, with its counters of datagrams for
/// queue pair 1.
///
/// # Errors
/// Those of reading the directory.
pub fn running_brokers() -> io::Result<Vec<RunningDevice>> {
    running_where(&Registry::open().map_err(io::Error::other)?, |name| name.is_broker())
}

/// Devices and brokers of one registry.
///
/// # Errors
/// Those of reading the directory.
pub fn running_in(registry: &Registry) -> io::Result<Vec<RunningDevice>> {
    running_where(registry, |_| true)
}

/// The same of those that share an address.
///
/// # Errors
/// Those of reading the directory.
pub fn sharing(registry: &Registry, address: IpAddr) -> io::Result<Vec<RunningDevice>> {
    let address = address.to_canonical();
    running_where(registry, |name| name.gid == address && name.shard > 0 && !name.is_broker())
}

fn running_where(
    registry: &Registry,
    is_meant: impl Fn(&EngineName) -> bool,
) -> io::Result<Vec<RunningDevice>> {
    let mut running = Vec::new();
    for entry in std::fs::read_dir(registry.root())? {
        let entry = entry?;
        let name = entry.file_name();
        let name =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)).and_then(|name| name.parse().ok());
        if let Some(name) = name.filter(&is_meant) {
            running.extend(read(&entry.path(), name));
        }
    }
    running.sort_by_key(|device: &RunningDevice| (device.address, device.shard));
    Ok(running)
}

fn read(path: &Path, name: EngineName) -> Option<RunningDevice> {
    let window = Window::whole(&Arc::new(Segment::open(path).ok()?));
    if window.len() < FILE_BYTES || window.u64_at(0).load(Ordering::Acquire) != MAGIC {
        return None;
    }
    let pid = window.u64_at(8).load(Ordering::Relaxed) as u32;
    if start_time(pid) != window.u64_at(16).load(Ordering::Relaxed) {
        let _ = std::fs::remove_file(path);
        return None;
    }
    // A writer takes microseconds; one that died half-way leaves values that are as good as any.
    let (mut counters, mut channels, mut channels_left_out) = (Vec::new(), Vec::new(), 0);
    for _ in 0..1000 {
        let before = window.u64_at(SEQUENCE).load(Ordering::Acquire);
        counters = read_entries(&window);
        (channels, channels_left_out) = read_channels(&window);
        fence(Ordering::Acquire);
        if before.is_multiple_of(2) && window.u64_at(SEQUENCE).load(Ordering::Relaxed) == before {
            break;
        }
        std::hint::spin_loop();
    }
    let shard = (name.shard > 0).then_some(name.shard);
    Some(RunningDevice { address: name.gid, shard, pid, counters, channels, channels_left_out })
}

fn read_entries(window: &Window) -> Vec<(String, u64)> {
    let count = (window.u64_at(8).load(Ordering::Relaxed) >> 32) as usize;
    let entry = |index: usize| {
        let at = ENTRIES + index * ENTRY_BYTES;
        (read_name(window, at), window.u64_at(at + NAME_BYTES).load(Ordering::Relaxed))
    };
    (0..count.min(ENTRIES_MAX)).map(entry).collect()
}

fn read_channels(window: &Window) -> (Vec<ChannelFigures>, u32) {
    let counts = window.u64_at(CHANNELS).load(Ordering::Relaxed);
    let figures = (window.u64_at(CHANNELS + 8).load(Ordering::Relaxed) as usize).min(FIGURES_MAX);
    let names: Vec<String> =
        (0..figures).map(|index| read_name(window, FIGURE_NAMES + index * NAME_BYTES)).collect();
    let channel = |index: usize| {
        let at = CHANNEL_ROWS + index * CHANNEL_BYTES;
        let value = |figure: usize| window.u64_at(at + NAME_BYTES + figure * 8).load(Ordering::Relaxed);
        let figures = names.iter().enumerate().map(|(figure, name)| (name.clone(), value(figure)));
        ChannelFigures { name: read_name(window, at), figures: figures.collect() }
    };
    let count = (counts as u32 as usize).min(CHANNELS_MAX);
    ((0..count).map(channel).collect(), (counts >> 32) as u32)
}

fn read_name(window: &Window, at: usize) -> String {
    let mut name = [0; NAME_BYTES];
    window.copy_out(at, &mut name);
    let end = name.iter().position(|&byte| byte == 0).unwrap_or(NAME_BYTES);
    String::from_utf8_lossy(&name[..end]).into_owned()
}

/// Ticks after boot at which a process started, which tells it from a later one of the same number; 0 if there is none.
fn start_time(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The second field, the name in parentheses, may contain blanks; the start is the 22nd.
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    behind_name.split_whitespace().nth(19).and_then(|field| field.parse().ok()).unwrap_or(0)
}
