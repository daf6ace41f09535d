//! The receiving end of all channels into one lane.
//!
//! The engine discovers a peer's channel by a counter in its own segment (one load per pump), then maps and
//! checks it. A peer that writes nonsense loses its channel; a peer that dies loses it once the ring is
//! empty.

use std::fmt;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use highwire_shmem::{Segment, Window};

use super::bell::Bell;
use super::channel::{
    APART, Channel, HERE, LAST, PACKET_MAX_BYTES, SEVERAL, SLOT_PAYLOAD_BYTES, SLOTS_PACKET_MAX_BYTES,
    sequence,
};
use super::engine::LocalEngine;
use super::layout::{ACCEPTED, ANNOUNCED, Announcement};
use super::peer::PeerEngine;
use super::sender::file_name;

/// The slot so far beyond the next one is prefetched.
const FETCH_AHEAD_SLOTS: u64 = 2;

/// Everything that arrives for one lane through shared memory.
#[derive(Debug)]
pub struct Inbox {
    engine: Arc<LocalEngine>,
    lane: u32,
    /// Where neighbours ring; without it they send datagrams.
    bell: Option<Bell>,
    announced: u64,
    channels: Vec<Incoming>,
    /// Where the next round begins, so that no channel starves another.
    next: usize,
    rejected: u64,
}

/// A channel that was accepted.
#[derive(Debug)]
struct Incoming {
    channel: Channel,
    source: IpAddr,
    sender: PeerEngine,
    /// Our slot's number.
    slot: u32,
    head: u64,
    released: u64,
    /// The sender is gone: close when empty.
    draining: bool,
}

/// A packet, valid during the callback.
#[derive(Debug)]
pub enum Received<'a> {
    /// Up to 224 bytes, copied out already: the sender cannot change them any more.
    Copied(&'a [u8]),
    /// More than that, still where the sender wrote it.
    Shared(SharedBytes<'a>),
}

/// Bytes in a ring that a peer has mapped as well. Copy them out, and check what was copied.
#[derive(Clone, Copy)]
pub struct SharedBytes<'a> {
    window: &'a Window,
    at: usize,
    len: usize,
}

/// The contents of the next slot.
enum Next {
    Nothing,
    Packet { next: u64, len: usize, form: u16 },
    Nonsense,
}

impl Inbox {
    /// The inbox of one of our lanes.
    ///
    /// # Panics
    /// If the engine has no such lane. There must be one inbox per lane.
    pub fn new(engine: &Arc<LocalEngine>, lane: u32) -> Inbox {
        assert!(lane < engine.lanes(), "lane {lane} of {}", engine.lanes());
        let bell = Bell::open(engine.directory(), lane).ok();
        let engine = Arc::clone(engine);
        Inbox { engine, lane, bell, announced: 0, channels: Vec::new(), next: 0, rejected: 0 }
    }

    /// Hands up to `budget` packets to `each`, with the GID they come from, in the order of each channel. Returns
    /// their number.
    #[inline]
    pub fn receive(&mut self, budget: usize, mut each: impl FnMut(IpAddr, Received<'_>)) -> usize {
        self.discover();
        let mut received = 0;
        for _ in 0..self.channels.len() {
            if self.next >= self.channels.len() {
                self.next = 0;
            }
            // A channel that closes may have brought packets before.
            match self.channels[self.next].receive(budget, &mut received, &mut each) {
                Ok(()) => self.next += 1,
                Err(Close) => self.close(self.next),
            }
            if received == budget {
                break;
            }
        }
        received
    }

    /// Whether [`receive`](Self::receive) would find something.
    pub fn has_packets(&mut self) -> bool {
        self.discover();
        self.channels.iter().any(|incoming| !matches!(incoming.peek(), Next::Nothing))
    }

    /// Announces that a thread of this lane is about to sleep; false if packets wait and it must not. After true, the
    /// next sender must wake this lane. After false the announcement stands as well, for another thread may sleep here: call
    /// [`awake`](Self::awake) if none does.
    #[must_use = "packets may wait"]
    pub fn prepare_sleep(&mut self) -> bool {
        self.announce_sleep();
        !self.has_packets()
    }

    /// Announces that threads of this lane sleep, or still do after the bell was [silenced](Self::silence). The caller looks for packets
    /// afterwards: senders ring for those that come later.
    pub fn announce_sleep(&self) {
        self.engine.sleeping(self.lane).store(1, Ordering::Relaxed);
        // Store of `sleeping`, then load of headers: only a full fence keeps this order. Pairs with `ShmSender::flush`.
        fence(Ordering::SeqCst);
    }

    /// Announces that this lane is awake, so that peers do not wake it.
    pub fn awake(&self) {
        self.engine.sleeping(self.lane).store(0, Ordering::Release);
    }

    /// A descriptor that becomes readable when a neighbour wakes the lane, and stays so until [`silence`](Self::silence). `None` if
    /// neighbours send a datagram.
    pub fn bell(&self) -> Option<BorrowedFd<'_>> {
        self.bell.as_ref().map(Bell::fd)
    }

    /// Takes note of the bell, before the packets that it was rung for are looked for; whether it had been rung.
    pub fn silence(&self) -> bool {
        // A neighbour announces its channel before it rings for the first time. Acquire: as in `discover`.
        let may_ring =
            self.engine.announced(self.lane).load(Ordering::Acquire) > 0 || self.engine.guests().may_ring();
        may_ring && self.bell.as_ref().is_some_and(Bell::silence)
    }

    /// Looks for peers that are gone, one system call per channel; for housekeeping. Packets that they had
    /// sent are still received. Returns how many are gone.
    pub fn reap(&mut self) -> usize {
        for incoming in &mut self.channels {
            incoming.draining |= !incoming.sender.check_alive();
        }
        self.channels.iter().filter(|incoming| incoming.draining).count()
    }

    /// Whether an engine with this address has an open channel to us: any at all, or the one of this name.
    #[inline]
    pub fn hears(&self, gid: IpAddr, shard: Option<u8>) -> bool {
        self.channels.iter().any(|incoming| {
            incoming.source == gid
                && !incoming.draining
                && shard.is_none_or(|shard| incoming.sender.name().shard == shard)
        })
    }

    /// Channels that are open.
    pub fn channels(&self) -> usize {
        self.channels.len()
    }

    /// Channels that were refused or closed because they made no sense.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    #[inline]
    fn discover(&mut self) {
        // Acquire: the slots announced before the count are complete.
        let announced = self.engine.announced(self.lane).load(Ordering::Acquire);
        if announced != self.announced {
            self.announced = announced;
            self.accept_all();
            for incoming in &mut self.channels {
                // Senders count up when they close, too.
                incoming.draining |= incoming.channel.sender_closed().load(Ordering::Acquire) != 0;
            }
        }
    }

    #[cold]
    fn accept_all(&mut self) {
        for slot in 0..self.engine.header().channel_slots {
            let at = self.engine.header().channel(slot);
            let state = self.engine.window().u64_at(at);
            let word = state.load(Ordering::Acquire);
            if word & 0xFF != ANNOUNCED {
                continue;
            }
            let announcement = Announcement::read(self.engine.window(), at);
            // The first lane also clears announcements for lanes that do not exist.
            let stray = announcement.to_lane >= self.engine.lanes() && self.lane == 0;
            if announcement.to_lane != self.lane && !stray {
                continue;
            }
            let accepted = word & !0xFF | ACCEPTED;
            if state.compare_exchange(word, accepted, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            match Incoming::open(&self.engine, slot, &announcement) {
                Some(incoming) if !stray => self.channels.push(incoming),
                _ => {
                    self.rejected += 1;
                    self.engine.free_channel(slot);
                }
            }
        }
    }

    #[cold]
    fn close(&mut self, index: usize) {
        let incoming = self.channels.swap_remove(index);
        incoming.channel.receiver_closed().store(1, Ordering::Release);
        if !incoming.draining {
            self.rejected += 1;
        }
        self.engine.free_channel(incoming.slot);
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        if !self.engine.is_ours() {
            return;
        }
        while !self.channels.is_empty() {
            self.close(self.channels.len() - 1);
        }
    }
}

/// The channel is over, or makes no sense.
struct Close;

impl Incoming {
    fn open(engine: &LocalEngine, slot: u32, announcement: &Announcement) -> Option<Incoming> {
        let sender = engine.registry().lookup(announcement.name()).ok()?;
        if sender.generation() != announcement.generation {
            return None;
        }
        let path = engine.registry().directory(announcement.name()).join(file_name(announcement.file));
        let segment = Segment::open(&path).ok()?.without_file();
        // Both ends have the file open, so it can lose its name and disappear with them. A sender that closes
        // earlier leaves the name to the receiver, so that its packets still arrive.
        let _ = std::fs::remove_file(&path);
        let window = Window::whole(&Arc::new(segment));
        let channel = Channel::open(&window, announcement.generation).ok()?;
        Some(Incoming { channel, source: sender.gid(), sender, slot, head: 0, released: 0, draining: false })
    }

    /// Hands packets to `each` until `received`, which counts them, is `budget`.
    #[inline]
    fn receive(
        &mut self,
        budget: usize,
        received: &mut usize,
        each: &mut impl FnMut(IpAddr, Received<'_>),
    ) -> Result<(), Close> {
        let mut is_in_group = false;
        while *received < budget {
            match self.peek() {
                Next::Packet { next, len, form } => {
                    // Only within a group: the slots behind this one cross the cores while it is handled.
                    // Behind a packet that came alone, the sender is about to write the line.
                    if is_in_group {
                        self.channel.window.prefetch_read(self.channel.slot(next + FETCH_AHEAD_SLOTS));
                    }
                    self.deliver(len, form, each)?;
                    self.head = next;
                    *received += 1;
                    is_in_group = true;
                }
                // Packets that the sender sent before it closed or died were visible before this side
                // noticed.
                Next::Nothing if self.draining => return Err(Close),
                Next::Nothing => break,
                Next::Nonsense => return Err(Close),
            }
        }
        if self.released != self.head {
            self.released = self.head;
            // Release: the reads are over before the sender overwrites the slots.
            self.channel.head().store(self.head, Ordering::Release);
        }
        Ok(())
    }

    #[inline]
    fn peek(&self) -> Next {
        // Acquire: pairs with the sender's Release, so the packet is whole.
        let word = self.channel.window.u64_at(self.channel.slot(self.head)).load(Ordering::Acquire);
        if word as u32 != sequence(self.head) {
            return Next::Nothing;
        }
        let len = (word >> 32) as usize & 0xFFFF;
        let form = (word >> 48) as u16 & !LAST;
        let slots = match form {
            HERE if len <= SLOT_PAYLOAD_BYTES => 1,
            SEVERAL if (SLOT_PAYLOAD_BYTES + 1..=SLOTS_PACKET_MAX_BYTES).contains(&len) => {
                len.div_ceil(SLOT_PAYLOAD_BYTES) as u64
            }
            APART if (SLOTS_PACKET_MAX_BYTES + 1..=PACKET_MAX_BYTES).contains(&len) => 1,
            _ => return Next::Nonsense,
        };
        let end = self.head + slots;
        let ends_lap = (word >> 48) as u16 & LAST != 0;
        Next::Packet { next: if ends_lap { self.channel.lap_end(end) } else { end }, len, form }
    }

    #[inline]
    fn deliver(
        &self,
        len: usize,
        form: u16,
        each: &mut impl FnMut(IpAddr, Received<'_>),
    ) -> Result<(), Close> {
        let window = &self.channel.window;
        match form {
            HERE => {
                let words = window.load_words_relaxed::<7>(self.channel.slot(self.head) + 8);
                let mut bytes = [0; SLOT_PAYLOAD_BYTES];
                for (chunk, word) in bytes.chunks_exact_mut(8).zip(words) {
                    chunk.copy_from_slice(&word.to_le_bytes());
                }
                each(self.source, Received::Copied(&bytes[..len]));
            }
            SEVERAL => {
                let mut bytes = [0; SLOTS_PACKET_MAX_BYTES];
                for (i, chunk) in bytes[..len].chunks_mut(SLOT_PAYLOAD_BYTES).enumerate() {
                    let cursor = self.head + i as u64;
                    let at = self.channel.slot(cursor);
                    if window.u64_at(at).load(Ordering::Relaxed) as u32 != sequence(cursor) {
                        return Err(Close);
                    }
                    window.copy_out(at + 8, chunk);
                }
                each(self.source, Received::Copied(&bytes[..len]));
            }
            _ => {
                let slot = self.channel.slot(self.head);
                let position = window.u64_at(slot + 8).load(Ordering::Relaxed);
                if position.checked_add(len as u64).is_none_or(|end| end > self.channel.data_bytes) {
                    return Err(Close);
                }
                let at = self.channel.data(position);
                each(self.source, Received::Shared(SharedBytes { window, at, len }));
            }
        }
        Ok(())
    }
}

impl Received<'_> {
    /// Bytes of the packet.
    pub fn len(&self) -> usize {
        match self {
            Received::Copied(bytes) => bytes.len(),
            Received::Shared(bytes) => bytes.len(),
        }
    }

    /// Whether the packet has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The packet as bytes that the sender cannot change, copied into `buffer` unless they are private already.
    #[inline]
    pub fn copied<'b>(&'b self, buffer: &'b mut [u8; PACKET_MAX_BYTES]) -> &'b [u8] {
        match self {
            Received::Copied(bytes) => bytes,
            Received::Shared(bytes) => {
                bytes.copy_to(0, &mut buffer[..bytes.len]);
                &buffer[..bytes.len]
            }
        }
    }
}

impl SharedBytes<'_> {
    /// Bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes from position `from` on.
    ///
    /// # Panics
    /// If there are not as many.
    #[inline]
    pub fn copy_to(&self, from: usize, to: &mut [u8]) {
        assert!(from <= self.len && self.len - from >= to.len(), "read behind the packet");
        self.window.copy_out(self.at + from, to);
    }

    /// Where they lie: mapped for as long as this value is borrowed, and never to be made a slice of, since the sender may write
    /// to them at any time.
    #[inline]
    pub fn as_ptr(&self) -> *const u8 {
        // In bounds: `deliver` has checked the place.
        self.window.as_ptr().wrapping_add(self.at)
    }
}

impl fmt::Debug for SharedBytes<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedBytes({})", self.len)
    }
}
