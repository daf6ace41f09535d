//! An engine's own segment: what peers may see and do.
//!
//! Withdrawing an entry needs care, because a peer may be in the middle of a copy. A peer announces its
//! target (`in_use`) before it reads the tables; the owner changes the tables before it looks at `in_use`.
//! With a full fence between the two steps on both sides, either the peer sees that the entry is gone, or the
//! owner sees that the peer uses it and waits. The owner recognises a dead peer by its lock and does not wait
//! for it. For a peer that lives and does not finish, because it was stopped or is malicious, the owner waits
//! once, as long as the caller's patience; after that not at all, until the peer is seen to use nothing.

mod guests;

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use highwire_shmem::{Segment, SharedPool, Window};

pub use guests::Guests;

use super::bell;
use super::layout::{
    Announcement, CLOSED, EngineHeader, FREE, LANE_ANNOUNCED, LANE_SLEEPING, STATE, gid_to_bytes, in_use,
};
use super::lock::{self, Byte};
use super::name::EngineName;
use super::registry::{ClaimError, Registry, effective_uid};
use super::table::{Entry, Place, PublishedQueuePair, PublishedRegion, TableWriter};
use crate::sys::random_u64;

/// How many looks at `in_use` to spend before asking whether the peer still lives.
const LOOKS_PER_INQUIRY: u32 = 256;

/// How an engine's segment is divided. 400 KiB by default.
#[derive(Clone, Copy, Debug)]
pub struct EngineConfig {
    /// Lanes, 1 to 64.
    pub lanes: u32,
    /// Queue pairs that can be published; rounded up to a power of two. More of them work through packets.
    pub qp_slots: u32,
    /// Memory regions that can be published; rounded up likewise.
    pub mr_slots: u32,
    /// Rings that peers can open to this engine, one per pair of lanes.
    pub channel_slots: u32,
}

impl Default for EngineConfig {
    fn default() -> EngineConfig {
        EngineConfig { lanes: 1, qp_slots: 1024, mr_slots: 4096, channel_slots: 256 }
    }
}

/// This process's engine in the registry. Dropping it removes its directory.
#[derive(Debug)]
pub struct LocalEngine {
    registry: Registry,
    directory: PathBuf,
    header: EngineHeader,
    window: Window,
    queue_pairs: Mutex<TableWriter>,
    regions: Mutex<TableWriter>,
    pool: SharedPool,
    next_channel: AtomicU32,
    guests: Guests,
    /// By channel slot: its peer has used up the patience of a caller.
    is_overdue: Box<[AtomicBool]>,
}

/// The table has no room near this key. Peers reach it with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishError;

/// A living peer still uses the withdrawn entry after all the time that was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StillInUse {
    /// The peer's name.
    pub by: EngineName,
}

impl LocalEngine {
    pub(super) fn create(
        registry: &Registry,
        name: EngineName,
        directory: &Path,
        config: &EngineConfig,
    ) -> Result<LocalEngine, ClaimError> {
        let failed = |error| ClaimError::Io(directory.join("engine"), error);
        let header = EngineHeader {
            lanes: config.lanes,
            generation: random_u64().map_err(failed)? | 1,
            pid: std::process::id(),
            uid: effective_uid(),
            start_time: process_start_time(),
            gid: gid_to_bytes(name.gid),
            shard: u32::from(name.shard),
            qp_slots: config.qp_slots.clamp(1, 1 << 20).next_power_of_two(),
            mr_slots: config.mr_slots.clamp(1, 1 << 20).next_power_of_two(),
            channel_slots: config.channel_slots,
        };
        header.check().map_err(ClaimError::Config)?;
        // Before the segment, with which neighbours find the engine. Where there are no pipes, they send datagrams.
        for lane in 0..config.lanes {
            let _ = bell::make(directory, lane);
        }
        let segment =
            Arc::new(Segment::create_file(&directory.join("engine"), header.bytes(), 0o600).map_err(failed)?);
        let file = segment.file().expect("a file segment has a file");
        if !lock::try_lock(file, Byte::Life).map_err(failed)? {
            return Err(ClaimError::Taken { name, pid: None });
        }
        let window = Window::whole(&segment);
        header.write(&window);
        let queue_pairs =
            TableWriter::new(&window, Place { offset: header.qp_table(), slots: header.qp_slots });
        let regions = TableWriter::new(&window, Place { offset: header.mr_table(), slots: header.mr_slots });
        Ok(LocalEngine {
            registry: registry.clone(),
            directory: directory.to_path_buf(),
            header,
            window,
            queue_pairs: Mutex::new(queue_pairs),
            regions: Mutex::new(regions),
            pool: SharedPool::in_directory(directory),
            next_channel: AtomicU32::new(1),
            is_overdue: (0..config.channel_slots).map(|_| AtomicBool::new(false)).collect(),
            guests: Guests::default(),
        })
    }

    /// The engine's GID.
    pub fn gid(&self) -> IpAddr {
        self.header.gid()
    }

    /// Its name in the registry.
    pub fn name(&self) -> EngineName {
        self.header.name()
    }

    /// Lanes.
    pub fn lanes(&self) -> u32 {
        self.header.lanes
    }

    /// A number that no earlier engine with this GID had.
    pub fn generation(&self) -> u64 {
        self.header.generation
    }

    /// Whether this process made it. A forked child has it as well, but must leave it alone.
    pub fn is_ours(&self) -> bool {
        self.header.pid == std::process::id()
    }

    /// Where its files lie.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The registry it is in.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// Memory that peers can map.
    pub fn pool(&self) -> &SharedPool {
        &self.pool
    }

    /// Opens a queue pair to its peer, or replaces what was published of it.
    ///
    /// # Errors
    /// [`PublishError`]: it stays reachable with packets.
    pub fn publish_queue_pair(&self, qpn: u32, queue_pair: &PublishedQueuePair) -> Result<(), PublishError> {
        publish(&self.queue_pairs, qpn, queue_pair)
    }

    /// Opens a region to the peers of its protection domain, or replaces what was published of it.
    ///
    /// # Errors
    /// [`PublishError`]: it stays reachable with packets.
    pub fn publish_region(&self, rkey: u32, region: &PublishedRegion) -> Result<(), PublishError> {
        publish(&self.regions, rkey, region)
    }

    /// Closes a queue pair and waits, at most for `patience`, until no neighbour works through it. Closing a queue pair that
    /// was never published is fine. May be called again after an error; the call then does not wait again for a peer that has
    /// used up the patience.
    ///
    /// # Errors
    /// [`StillInUse`]; no new work can begin, but some is under way.
    pub fn withdraw_queue_pair(&self, qpn: u32, patience: Duration) -> Result<(), StillInUse> {
        if !self.is_ours() {
            return Ok(());
        }
        lock_table(&self.queue_pairs).remove(qpn);
        self.wait_until_unused(patience, |word| (word >> 32) as u32 & 0xFF_FFFF == qpn)
    }

    /// Closes a region and waits, at most for `patience`, until no neighbour works on it. After that its memory may be freed.
    ///
    /// # Errors
    /// [`StillInUse`]; the memory that the peer has mapped must not be used for anything else.
    pub fn withdraw_region(&self, rkey: u32, patience: Duration) -> Result<(), StillInUse> {
        if !self.is_ours() {
            return Ok(());
        }
        lock_table(&self.regions).remove(rkey);
        self.wait_until_unused(patience, |word| word as u32 == rkey)
    }

    /// Whether a region is published.
    pub fn has_region(&self, rkey: u32) -> bool {
        lock_table(&self.regions).contains(rkey)
    }

    /// Programs that this engine serves and that copy into its regions by themselves.
    pub fn guests(&self) -> &Guests {
        &self.guests
    }

    pub(super) fn header(&self) -> &EngineHeader {
        &self.header
    }

    pub(super) fn window(&self) -> &Window {
        &self.window
    }

    pub(super) fn announced(&self, lane: u32) -> &std::sync::atomic::AtomicU64 {
        self.window.u64_at(self.header.lane(lane) + LANE_ANNOUNCED)
    }

    pub(super) fn sleeping(&self, lane: u32) -> &std::sync::atomic::AtomicU64 {
        self.window.u64_at(self.header.lane(lane) + LANE_SLEEPING)
    }

    /// A file name that this engine has not used for a channel before.
    pub(super) fn next_channel_file(&self) -> u32 {
        self.next_channel.fetch_add(1, Ordering::Relaxed)
    }

    /// Gives a channel's slot to the next peer.
    pub(super) fn free_channel(&self, slot: u32) {
        let at = self.header.channel(slot);
        let state = self.window.u64_at(at);
        let generation = state.load(Ordering::Relaxed) >> 8;
        in_use(&self.window, at).store(0, Ordering::Relaxed);
        state.store(generation.wrapping_add(1) << 8 | FREE, Ordering::Release);
    }

    fn wait_until_unused(
        &self,
        patience: Duration,
        concerns: impl Fn(u64) -> bool,
    ) -> Result<(), StillInUse> {
        // Change of the table, then look at `in_use`: pairs with the fence in `Direct`.
        fence(Ordering::SeqCst);
        let mut since = None;
        let mut is_over = |is_overdue: &AtomicBool| {
            let waited = since.get_or_insert_with(Instant::now).elapsed();
            let is_over = waited >= patience || is_overdue.load(Ordering::Relaxed);
            is_overdue.fetch_or(is_over, Ordering::Relaxed);
            is_over
        };
        let mut result = Ok(());
        for guest in self.guests.all() {
            while guest.is_at_work(&concerns) {
                if is_over(&guest.is_overdue) {
                    result = Err(StillInUse { by: self.name() });
                    break;
                }
                std::thread::yield_now();
            }
        }
        for (slot, is_overdue) in (0..).zip(&self.is_overdue) {
            let at = self.header.channel(slot);
            let mut looks = 0;
            loop {
                // Acquire: the peer's copy is over before the memory is reused.
                let word = in_use(&self.window, at).load(Ordering::Acquire);
                if word >> 63 == 0 || !concerns(word) {
                    if word >> 63 == 0 {
                        is_overdue.store(false, Ordering::Relaxed);
                    }
                    break;
                }
                looks += 1;
                if looks % LOOKS_PER_INQUIRY == 0 {
                    let sender = Announcement::read(&self.window, at);
                    if !self.lives(&sender) {
                        break;
                    }
                    if is_over(is_overdue) {
                        result = Err(StillInUse { by: sender.name() });
                        break;
                    }
                    std::thread::yield_now();
                }
                std::hint::spin_loop();
            }
        }
        result
    }

    fn lives(&self, sender: &Announcement) -> bool {
        let peer = self.registry.lookup(sender.name());
        peer.is_ok_and(|peer| peer.generation() == sender.generation)
    }
}

impl Drop for LocalEngine {
    fn drop(&mut self) {
        if !self.is_ours() {
            return;
        }
        self.window.u64_at(STATE).store(CLOSED, Ordering::Release);
        self.registry.release(&self.directory);
    }
}

fn lock_table(table: &Mutex<TableWriter>) -> MutexGuard<'_, TableWriter> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

fn publish(table: &Mutex<TableWriter>, key: u32, entry: &impl Entry) -> Result<(), PublishError> {
    if lock_table(table).insert(key, entry) { Ok(()) } else { Err(PublishError) }
}

/// Field 22 of `/proc/self/stat`: ticks after boot at which this process started; zero where there is no `/proc`.
fn process_start_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field, the name in parentheses, may contain blanks.
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    behind_name.split_whitespace().nth(19).and_then(|field| field.parse().ok()).unwrap_or(0)
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the shared table is full; peers use packets instead")
    }
}

impl fmt::Display for StillInUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is still working on it", self.by)
    }
}

impl std::error::Error for PublishError {}
impl std::error::Error for StillInUse {}
