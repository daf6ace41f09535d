//! Another process's engine, mapped.
//!
//! Everything in its segment was written by the other process: it is copied out, then checked, then used.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use highwire_shmem::{LayoutError, Segment, SharedPool, Window};

use super::channel::ChannelConfig;
use super::engine::LocalEngine;
use super::layout::{ANNOUNCED, Announcement, EngineHeader, FREE, LANE_ANNOUNCED, RUNNING, STATE, in_use};
use super::life;
use super::lock::{self, Byte};
use super::name::EngineName;
use super::registry::{LookupError, Registry};
use super::sender::ShmSender;

/// How long an attachment waits for another one to the same engine, before the peer is reached over the network instead: the thread
/// that attaches runs a lane.
const ATTACH_PATIENCE: Duration = Duration::from_millis(250);

/// An engine of the same user on this host; also this process's own, as its peers see it.
#[derive(Debug)]
pub struct PeerEngine {
    registry: Registry,
    name: EngineName,
    header: EngineHeader,
    window: Window,
    gone: AtomicBool,
    /// Locks of open file descriptions do not keep threads of one process apart.
    attaching: Mutex<()>,
}

/// Why no channel to a peer could be opened. Packets then take the network.
#[derive(Debug)]
pub enum AttachError {
    /// The peer has no such lane.
    Lane {
        /// Asked for.
        lane: u32,
        /// The lanes that the peer has.
        lanes: u32,
    },
    /// All its slots for channels are taken.
    NoSlot,
    /// It is gone.
    Gone,
    /// The ring's sizes make no sense.
    Config(LayoutError),
    /// The file system refused, for example because `/dev/shm` is full.
    Io(PathBuf, io::Error),
}

impl PeerEngine {
    pub(super) fn new(
        registry: Registry,
        name: EngineName,
        segment: Arc<Segment>,
    ) -> Result<PeerEngine, LookupError> {
        let window = Window::whole(&segment);
        let header = EngineHeader::read(&window).map_err(LookupError::Layout)?;
        if header.name() != name || window.u64_at(STATE).load(Ordering::Acquire) != RUNNING {
            return Err(LookupError::Gone);
        }
        Ok(PeerEngine {
            registry,
            name,
            header,
            window,
            gone: AtomicBool::new(false),
            attaching: Mutex::new(()),
        })
    }

    /// Its GID.
    pub fn gid(&self) -> IpAddr {
        self.name.gid
    }

    /// Its name in the registry.
    pub fn name(&self) -> EngineName {
        self.name
    }

    /// Its lanes; a QP lives in lane `qpn % lanes`.
    pub fn lanes(&self) -> u32 {
        self.header.lanes
    }

    /// Tells it from other engines that had or will have the same GID.
    pub fn generation(&self) -> u64 {
        self.header.generation
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.header.pid
    }

    /// Whether the peer has closed its segment, was found dead by [`check_alive`](Self::check_alive), or has lost the thread that
    /// [stands for its life](super::Life): then the kernel is asked. Otherwise two loads from one cache line.
    #[inline]
    pub fn is_gone(&self) -> bool {
        self.has_closed() || (life::seems_over(&self.window) && !self.check_alive())
    }

    #[inline]
    fn has_closed(&self) -> bool {
        self.gone.load(Ordering::Relaxed) || self.window.u64_at(STATE).load(Ordering::Acquire) != RUNNING
    }

    /// Asks the kernel whether its process still lives: one system call, for timeouts and housekeeping. The end of an engine
    /// for which no thread stands is not noticed otherwise.
    #[cold]
    pub fn check_alive(&self) -> bool {
        let file = self.window.segment().file().expect("an opened segment has a file");
        // Without an answer assume the best: a packet's timeout will tell.
        if self.has_closed() || !lock::is_locked(file, Byte::Life).unwrap_or(true) {
            self.gone.store(true, Ordering::Relaxed);
        }
        !self.has_closed()
    }

    /// Opens a channel from one of our lanes to one of the peer's.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach(
        self: &Arc<Self>,
        from: &Arc<LocalEngine>,
        from_lane: u32,
        to_lane: u32,
        config: &ChannelConfig,
    ) -> Result<ShmSender, AttachError> {
        if to_lane >= self.header.lanes {
            return Err(AttachError::Lane { lane: to_lane, lanes: self.header.lanes });
        }
        if !self.check_alive() {
            return Err(AttachError::Gone);
        }
        let file = from.next_channel_file();
        let mut sender = ShmSender::create(from, Arc::clone(self), to_lane, file, config)?;
        let announcement = Announcement {
            gid: from.header().gid,
            generation: from.generation(),
            from_lane,
            to_lane,
            file,
            shard: from.header().shard,
        };
        sender.set_slot(self.announce(&announcement)?);
        Ok(sender)
    }

    /// Fills a free slot and counts up; returns the slot's offset and its first word once accepted.
    fn announce(&self, announcement: &Announcement) -> Result<(usize, u64), AttachError> {
        let _threads = self.attaching.lock().unwrap_or_else(PoisonError::into_inner);
        let file = self.window.segment().file().expect("an opened segment has a file");
        let failed = |error| AttachError::Io(self.registry.directory(self.name), error);
        lock::lock(file, Byte::Attach, ATTACH_PATIENCE).map_err(failed)?;
        let slot = (0..self.header.channel_slots)
            .map(|slot| self.header.channel(slot))
            .find(|&at| self.window.u64_at(at).load(Ordering::Acquire) & 0xFF == FREE);
        if let Some(at) = slot {
            let generation = self.window.u64_at(at).load(Ordering::Relaxed) >> 8;
            in_use(&self.window, at).store(0, Ordering::Relaxed);
            announcement.write(&self.window, at);
            self.window.u64_at(at).store(generation << 8 | ANNOUNCED, Ordering::Release);
            let counter = self.header.lane(announcement.to_lane) + LANE_ANNOUNCED;
            self.window.u64_at(counter).fetch_add(1, Ordering::Release);
        }
        lock::unlock(file, Byte::Attach);
        let at = slot.ok_or(AttachError::NoSlot)?;
        Ok((at, self.window.u64_at(at).load(Ordering::Relaxed) >> 8))
    }

    /// Maps a segment of registered memory.
    pub(super) fn open_memory(&self, segment: u32) -> io::Result<Segment> {
        Segment::open(&self.registry.directory(self.name).join(SharedPool::file_name(segment)))
    }

    /// Where its files lie.
    pub(super) fn directory(&self) -> PathBuf {
        self.registry.directory(self.name)
    }

    pub(super) fn header(&self) -> &EngineHeader {
        &self.header
    }

    pub(super) fn window(&self) -> &Window {
        &self.window
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::Lane { lane, lanes } => {
                write!(f, "the peer has {lanes} lanes, so none numbered {lane}")
            }
            AttachError::NoSlot => write!(f, "the peer takes no more channels"),
            AttachError::Gone => write!(f, "the peer is gone"),
            AttachError::Config(error) => error.fmt(f),
            AttachError::Io(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for AttachError {}
