//! The sending end of a channel.
//!
//! Only the sender knows where in the data its packets lie; the receiver only reports how many slots it has
//! consumed, and `data_ends` turns that into bytes. So the sender has to check one cursor, and no other can
//! be wrong.
//!
//! Laps are short while little is in flight and long while much is. A ring that stays in the first-level cache is
//! faster: walking 1024 slots made the round trip of a small packet half as long again (Zen 4, cores without a common
//! third-level cache). A ring of few slots, on the other hand, is full as soon as the receiver loses its core.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use highwire_shmem::{LayoutError, Segment, Window, copy_racy};

use super::bell::BellPull;
use super::channel::{
    APART, Channel, ChannelConfig, HERE, LAST, PACKET_MAX_BYTES, RawSlice, SEVERAL, SLOT_PAYLOAD_BYTES,
    SLOTS_PACKET_MAX_BYTES, header,
};
use super::engine::LocalEngine;
use super::layout::{FREE, LANE_ANNOUNCED, LANE_SLEEPING, gid_words};
use super::peer::{AttachError, PeerEngine};

/// Packets start on cache lines, and with them their payload on words.
const DATA_GRAIN: u64 = 64;

/// A lap may end where this many slots are passed, if no more than half as many are in flight.
const SHORT_LAP_SLOTS: u64 = 64;

/// The same for data, if none of it is in flight.
const SHORT_LAP_DATA_BYTES: u64 = 16 << 10;

/// The slot so far ahead is prefetched for writing, so that in a group its line has crossed between the cores
/// when its packet comes. Not fewer, since the receiver polls the first slot without pause.
const FETCH_AHEAD_SLOTS: u64 = 6;

/// Packets become visible in groups of at most so many, all at once: the receiver polls the first slot that
/// it expects, so each packet shown by itself would have to wait for its cache line to come back.
const GROUP_PACKETS: u32 = 16;

/// At least once in so many slots a lap goes through all slots, so that no header grows so old that its
/// sequence number returns.
const FULL_LAP_INTERVAL_SLOTS: u64 = 1 << 30;

/// One lane's channel to one lane of a peer, and its direct access to the peer's memory.
pub struct ShmSender {
    pub(super) peer: Arc<PeerEngine>,
    engine: Arc<LocalEngine>,
    channel: Channel,
    /// Wakes the receiver, if it has one.
    bell: Option<BellPull>,
    file: u32,
    to_lane: u32,
    /// Our slot in the peer's segment: its offset (0 before it is announced) and its generation.
    pub(super) slot: usize,
    pub(super) slot_generation: u64,
    pub(super) gid_words: (u64, u64),
    pub(super) memory: Vec<(u32, Arc<Segment>)>,
    tail: u64,
    head: u64,
    /// Where the last lap that went through all slots ended.
    full_lap: u64,
    data_tail: u64,
    data_head: u64,
    /// Where the data ends of the packet before each cursor, by the index of the slot before the cursor.
    data_ends: Box<[u64]>,
    staging: Box<[u8]>,
    /// The first packet that the receiver cannot see yet, and how many follow it.
    held: Option<Held>,
    behind_held: u32,
    is_batch: bool,
    unflushed: bool,
    /// The peer has given our slot up: it could not open the channel.
    is_refused: bool,
}

/// A packet whose slot is yet to be written: the receiver polls the slot, and would take its cache line back
/// between two stores that are far apart.
struct Held {
    slot: u64,
    header: u64,
    words: [u64; 7],
}

/// What the receiver of a batch does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receiver {
    /// It sees the batch by itself.
    Awake,
    /// It slept, and its bell was rung.
    Rung,
    /// It sleeps and has no bell: the caller must wake it, by an empty datagram to the peer's lane.
    Asleep,
}

/// Why a packet was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// No room until the receiver consumes something; try again later.
    Full,
    /// Longer than [`PACKET_MAX_BYTES`].
    TooLong,
    /// The receiver is gone or has given the channel up.
    Closed,
}

impl ShmSender {
    pub(super) fn create(
        engine: &Arc<LocalEngine>,
        peer: Arc<PeerEngine>,
        to_lane: u32,
        file: u32,
        config: &ChannelConfig,
    ) -> Result<ShmSender, AttachError> {
        let path = engine.directory().join(file_name(file));
        let bytes = Channel::bytes(config).map_err(AttachError::Config)?;
        let segment =
            Segment::create_file(&path, bytes, 0o600).map_err(|error| AttachError::Io(path, error))?;
        let channel = Channel::create(&Window::whole(&Arc::new(segment)), config, engine.generation());
        let channel = channel.map_err(|error: LayoutError| AttachError::Config(error))?;
        Ok(ShmSender {
            gid_words: gid_words(engine.header().gid),
            data_ends: vec![0; channel.slot_count() as usize].into(),
            staging: vec![0; PACKET_MAX_BYTES].into(),
            engine: Arc::clone(engine),
            bell: BellPull::open(&peer.directory(), to_lane).ok(),
            peer,
            channel,
            file,
            to_lane,
            slot: 0,
            slot_generation: 0,
            memory: Vec::new(),
            tail: 0,
            head: 0,
            full_lap: 0,
            data_tail: 0,
            data_head: 0,
            held: None,
            behind_held: 0,
            is_batch: false,
            unflushed: false,
            is_refused: false,
        })
    }

    pub(super) fn set_slot(&mut self, (slot, generation): (usize, u64)) {
        (self.slot, self.slot_generation) = (slot, generation);
    }

    /// Whether our slot in the peer's segment is still ours.
    #[inline]
    pub(super) fn is_attached(&self) -> bool {
        let state = self.peer.window().u64_at(self.slot).load(Ordering::Relaxed);
        state >> 8 == self.slot_generation && state & 0xFF != FREE
    }

    /// Whether the peer has been seen to refuse the channel, for instance because it may not open this engine's files any more: another
    /// attempt would end in the same way. What was sent is lost.
    pub fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// The engine that it sends to.
    pub fn peer(&self) -> &Arc<PeerEngine> {
        &self.peer
    }

    /// The peer's lane.
    pub fn to_lane(&self) -> u32 {
        self.to_lane
    }

    /// Whether a packet of `len` bytes would be taken now, so that the caller builds none in vain.
    ///
    /// # Errors
    /// [`SendError`], which is what the send would return.
    #[inline]
    pub fn can_send(&mut self, len: usize) -> Result<(), SendError> {
        self.reserve(len)
    }

    /// Begins a batch: until the next [`flush`](Self::flush), packets become visible in groups, which costs both ends less.
    #[inline]
    pub fn begin_batch(&mut self) {
        self.is_batch = true;
    }

    /// Sends a packet of `len` bytes that `fill` writes. The receiver can see it at once, or, in a batch, after the next
    /// [`flush`](Self::flush) at the latest. In any case, call `flush` after the last packet.
    ///
    /// # Errors
    /// [`SendError`]; `fill` was not called.
    #[inline]
    pub fn try_send(&mut self, len: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), SendError> {
        let sent = self.try_fill::<Infallible>(len, |out| {
            fill(out);
            Ok(())
        });
        sent.map(|Ok(())| ())
    }

    /// The same with a `fill` that may fail: then nothing is sent.
    ///
    /// # Errors
    /// [`SendError`]; `fill` was not called. The inner error is its own.
    #[inline]
    pub fn try_fill<E>(
        &mut self,
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Result<(), E>, SendError> {
        if len <= SLOT_PAYLOAD_BYTES {
            self.reserve_slots(1)?;
            // Not in place: the peer has the slot mapped as well, and may write to it whatever the protocol says.
            let mut bytes = [0; SLOT_PAYLOAD_BYTES];
            if let Err(error) = fill(&mut bytes[..len]) {
                return Ok(Err(error));
            }
            if !self.is_batch || self.held.is_some() {
                self.publish_here(len, &bytes);
                return Ok(Ok(()));
            }
            let (slot, header) = self.take_slots(1, len, HERE);
            self.held = Some(Held { slot, header, words: words(&bytes) });
            return Ok(Ok(()));
        }
        self.reserve(len)?;
        let mut staging = std::mem::take(&mut self.staging);
        let filled = fill(&mut staging[..len]);
        if filled.is_ok() {
            let part = RawSlice { address: staging.as_ptr(), len };
            // SAFETY: the staging buffer is ours and lives until the end of this function.
            unsafe { self.publish_parts(len, &[part]) };
        }
        self.staging = staging;
        Ok(filled)
    }

    /// Sends a packet that is gathered from pieces, which are copied once.
    ///
    /// # Errors
    /// [`SendError`].
    ///
    /// # Safety
    /// Every piece must be readable memory for as long as the call lasts. Others may be writing to it.
    #[inline]
    pub unsafe fn try_send_parts(&mut self, parts: &[RawSlice]) -> Result<(), SendError> {
        let len =
            parts.iter().try_fold(0usize, |sum, part| sum.checked_add(part.len)).ok_or(SendError::TooLong)?;
        self.reserve(len)?;
        // SAFETY: as the caller promises.
        unsafe { self.publish_parts(len, parts) };
        Ok(())
    }

    /// Ends a batch, and rings for the receiver if it sleeps.
    ///
    /// Contains a full fence, so once per batch is enough and better than once per packet.
    #[inline]
    #[must_use = "a peer without a bell has to be woken"]
    pub fn flush(&mut self) -> Receiver {
        self.is_batch = false;
        if !std::mem::take(&mut self.unflushed) {
            return Receiver::Awake;
        }
        self.publish_held();
        // Stores of headers, then load of `sleeping`: only a full fence keeps this order. Pairs with
        // `Inbox::prepare_sleep`.
        fence(Ordering::SeqCst);
        self.is_refused = !self.is_attached();
        let sleeping = self.receiver_sleeps();
        if sleeping.load(Ordering::Relaxed) == 0 || sleeping.swap(0, Ordering::AcqRel) == 0 {
            return Receiver::Awake;
        }
        if self.bell.as_ref().is_some_and(BellPull::pull) { Receiver::Rung } else { Receiver::Asleep }
    }

    /// Shows the receiver the packets that were sent, and wakes it not: true if it sleeps, so that it has to be woken by a
    /// [`flush`](Self::flush) later.
    #[inline]
    pub fn show(&mut self) -> bool {
        if !self.unflushed {
            return false;
        }
        self.publish_held();
        // As in `flush`.
        fence(Ordering::SeqCst);
        self.unflushed = self.receiver_sleeps().load(Ordering::Relaxed) != 0;
        self.is_batch &= self.unflushed;
        self.unflushed
    }

    /// Whether the receiver has yet to look at some of the packets.
    pub fn is_unheard(&self) -> bool {
        self.channel.head().load(Ordering::Acquire) != self.tail
    }

    /// Whether the receiver is gone or has closed the channel, as far as memory shows.
    pub fn is_closed(&self) -> bool {
        self.is_refused || self.peer.is_gone() || self.channel.receiver_closed().load(Ordering::Relaxed) != 0
    }

    /// Not zero while the receiver sleeps and has not been rung for.
    #[inline]
    fn receiver_sleeps(&self) -> &AtomicU64 {
        let lane = self.peer.header().lane(self.to_lane);
        self.peer.window().u64_at(lane + LANE_SLEEPING)
    }

    /// Room for a packet of `len` bytes, or why there is none.
    #[inline]
    fn reserve(&mut self, len: usize) -> Result<(), SendError> {
        if len <= SLOTS_PACKET_MAX_BYTES {
            return self.reserve_slots(len.div_ceil(SLOT_PAYLOAD_BYTES).max(1) as u64);
        }
        if len > PACKET_MAX_BYTES {
            return Err(SendError::TooLong);
        }
        self.reserve_slots(1)?;
        self.shorten_data_lap(len);
        if !self.has_data_room(len) {
            self.observe_head_acquire()?;
            if !self.has_data_room(len) {
                return Err(SendError::Full);
            }
        }
        Ok(())
    }

    #[inline]
    fn reserve_slots(&mut self, slots: u64) -> Result<(), SendError> {
        if self.is_refused {
            return Err(SendError::Closed);
        }
        if self.tail - self.head + slots > self.channel.slot_count() {
            self.observe_head_acquire()?;
            if self.tail - self.head + slots > self.channel.slot_count() {
                return Err(SendError::Full);
            }
        }
        Ok(())
    }

    /// Where a packet of `len` bytes would begin: packets do not wrap.
    #[inline]
    fn data_start(&self, len: usize) -> u64 {
        let lap = self.channel.data_bytes;
        let place = self.data_tail & (lap - 1);
        if place + len as u64 <= lap { self.data_tail } else { self.data_tail - place + lap }
    }

    /// Goes back to the start of the data if all of it is free.
    #[inline]
    fn shorten_data_lap(&mut self, len: usize) {
        let lap = self.channel.data_bytes;
        let passes = (self.data_tail ^ (self.data_tail + len as u64)) & !(SHORT_LAP_DATA_BYTES - 1) != 0;
        let inside = self.data_tail & (lap - 1) != 0;
        if passes && inside && self.observe_head_acquire().is_ok() && self.data_head == self.data_tail {
            self.data_tail = self.data_tail.next_multiple_of(lap);
            self.data_head = self.data_tail;
        }
    }

    #[inline]
    fn has_data_room(&self, len: usize) -> bool {
        self.data_start(len) + len as u64 <= self.data_head + self.channel.data_bytes
    }

    /// Reads how far the receiver is.
    #[cold]
    fn observe_head_acquire(&mut self) -> Result<(), SendError> {
        // The receiver never frees slots of packets that it cannot see.
        self.publish_held();
        if self.is_closed() {
            return Err(SendError::Closed);
        }
        // Acquire: the receiver is done with everything below before this side overwrites it.
        let head = self.channel.head().load(Ordering::Acquire);
        if head < self.head || head > self.tail {
            // The receiver cannot have consumed that many: it is broken.
            self.channel.sender_closed().store(1, Ordering::Release);
            return Err(SendError::Closed);
        }
        if head > self.head {
            // Between packets, where no honest receiver stops, the record may be an old one.
            let data_head = self.data_ends[self.channel.index(head - 1)];
            self.data_head = data_head.clamp(self.data_head, self.data_tail);
            self.head = head;
        }
        Ok(())
    }

    /// Fills and publishes one slot.
    #[inline]
    fn publish_here(&mut self, len: usize, bytes: &[u8; SLOT_PAYLOAD_BYTES]) {
        let at = self.channel.slot(self.tail);
        self.channel.window.store_words_relaxed(at + 8, &words(bytes));
        self.ring(1, len, HERE);
    }

    /// # Safety
    /// The parts are readable and `len` bytes together, for which there is room.
    #[inline]
    unsafe fn publish_parts(&mut self, len: usize, parts: &[RawSlice]) {
        if len <= SLOTS_PACKET_MAX_BYTES {
            let mut bytes = [0; SLOTS_PACKET_MAX_BYTES];
            // SAFETY: the buffer has room for `len` bytes.
            unsafe { gather(parts, bytes.as_mut_ptr(), len) };
            self.publish_slots(len, &bytes);
            return;
        }
        let start = self.data_start(len);
        let at = self.channel.data(start);
        debug_assert!(at + len <= self.channel.window.len());
        // SAFETY: `reserve` found room for `len` bytes here, which the receiver does not read before they are published.
        unsafe { gather(parts, self.channel.window.as_ptr().add(at), len) };
        self.data_tail = (start + len as u64).next_multiple_of(DATA_GRAIN);
        let slot = self.channel.slot(self.tail);
        self.channel.window.u64_at(slot + 8).store(start & (self.channel.data_bytes - 1), Ordering::Relaxed);
        self.ring(1, len, APART);
    }

    /// Fills up to four slots. The first one's header goes last: when it shows, the packet is whole.
    #[inline]
    fn publish_slots(&mut self, len: usize, bytes: &[u8; SLOTS_PACKET_MAX_BYTES]) {
        let chunk = |i: usize| -> &[u8; SLOT_PAYLOAD_BYTES] {
            bytes[i * SLOT_PAYLOAD_BYTES..][..SLOT_PAYLOAD_BYTES].try_into().expect("four chunks")
        };
        if len <= SLOT_PAYLOAD_BYTES {
            return self.publish_here(len, chunk(0));
        }
        let first = self.tail;
        let slots = len.div_ceil(SLOT_PAYLOAD_BYTES);
        for i in 0..slots {
            let cursor = first + i as u64;
            let at = self.channel.slot(cursor);
            self.channel.window.copy_in(at + 8, chunk(i));
            if i > 0 {
                self.channel.window.u64_at(at).store(header(cursor, len, SEVERAL), Ordering::Relaxed);
            }
        }
        self.ring(slots as u64, len, SEVERAL);
    }

    /// Publishes the packet that fills the next `slots` slots.
    #[inline]
    fn ring(&mut self, slots: u64, len: usize, form: u16) {
        let (first, header) = self.take_slots(slots, len, form);
        self.publish(first, header);
        if self.held.is_some() {
            self.behind_held += 1;
            self.channel.window.prefetch_write(self.channel.slot(self.tail + FETCH_AHEAD_SLOTS));
            if self.behind_held >= GROUP_PACKETS - 1 {
                self.publish_held();
            }
        }
    }

    /// Moves on by a packet that fills the next `slots` slots. Returns the first slot and its header.
    #[inline]
    fn take_slots(&mut self, slots: u64, len: usize, form: u16) -> (u64, u64) {
        let first = self.tail;
        let end = first + slots;
        let ends_lap = (first ^ end) & !(SHORT_LAP_SLOTS - 1) != 0 && self.ends_lap(first, end);
        let (next, form) = if ends_lap { (self.channel.lap_end(end), form | LAST) } else { (end, form) };
        let index = self.channel.index(next - 1);
        self.data_ends[index] = self.data_tail;
        self.tail = next;
        self.unflushed = true;
        (first, header(first, len, form))
    }

    /// Makes a packet visible, if those before it are.
    #[inline]
    fn publish(&self, slot: u64, header: u64) {
        // Release: the packet and those behind it in its group are visible before its header.
        self.channel.window.u64_at(self.channel.slot(slot)).store(header, Ordering::Release);
    }

    /// Makes the group that is under way visible.
    #[inline]
    fn publish_held(&mut self) {
        if let Some(Held { slot, header, words }) = self.held.take() {
            self.channel.window.store_words_relaxed(self.channel.slot(slot) + 8, &words);
            self.publish(slot, header);
        }
        self.behind_held = 0;
    }

    /// Whether the lap should end here, behind the packet in the slots `first .. end`, with slots left out.
    #[cold]
    fn ends_lap(&mut self, first: u64, end: u64) -> bool {
        let lap_end = self.channel.lap_end(first + 1);
        if end >= lap_end {
            self.full_lap = lap_end;
            return false;
        }
        end - self.full_lap < FULL_LAP_INTERVAL_SLOTS
            && self.observe_head_acquire().is_ok()
            && first - self.head <= SHORT_LAP_SLOTS / 2
    }
}

#[inline]
fn words(bytes: &[u8; SLOT_PAYLOAD_BYTES]) -> [u64; 7] {
    std::array::from_fn(|i| u64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().expect("eight bytes")))
}

/// # Safety
/// The parts are readable and `target` has room for `room` bytes; parts beyond that are left out.
#[inline]
unsafe fn gather(parts: &[RawSlice], target: *mut u8, room: usize) {
    let mut at = 0;
    for part in parts {
        let len = part.len.min(room - at);
        // SAFETY: `at + len <= room`.
        unsafe { copy_racy(part.address, target.add(at), len) };
        at += len;
    }
}

/// The name of a channel's file in its sender's directory.
pub(super) fn file_name(file: u32) -> String {
    format!("chan-{file}")
}

impl Drop for ShmSender {
    fn drop(&mut self) {
        if !self.engine.is_ours() {
            return;
        }
        self.publish_held();
        self.channel.sender_closed().store(1, Ordering::Release);
        // The receiver looks at closed channels when this counter changes.
        let lane = self.peer.header().lane(self.to_lane);
        self.peer.window().u64_at(lane + LANE_ANNOUNCED).fetch_add(1, Ordering::Release);
        if self.slot == 0 || self.is_closed() {
            // The receiver never saw this channel or has closed it, so no process will open the file any more.
            let _ = std::fs::remove_file(self.engine.directory().join(file_name(self.file)));
        }
    }
}

impl fmt::Debug for ShmSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ShmSender(to {} lane {}, {} in flight)",
            self.peer.gid(),
            self.to_lane,
            self.tail - self.head
        )
    }
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendError::Full => "the channel is full",
            SendError::TooLong => "the packet is too long",
            SendError::Closed => "the peer is gone",
        })
    }
}

impl std::error::Error for SendError {}
