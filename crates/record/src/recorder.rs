//! The writing end: a part of the file, mapped into the process.

use crate::VERSION;
use crate::entry::{About, Event, Packet, Request};
use crate::file::{
    ENTRY_BYTES, FILE_MAGIC, HEADER_BYTES, KEPT_ENTRIES, PART_MAGIC, PARTS_MAX, Shape, file_word, part_word,
};
use crate::packing::{
    BODY_WORDS, Body, Kind, TEXT_BYTES_MAX, TEXT_FIRST_BYTES, TEXT_MORE_BYTES, floor_boundary, pack, stamp,
    text_entries, text_head,
};
use highwire_shmem::{Segment, Window};
use highwire_stdx::Instant;
use highwire_verbs::{Completion, CompletionStatus, Gid};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::time::SystemTime;

/// `O_NOFOLLOW`: the file was made under this very name.
const NO_FOLLOW: i32 = 0o400_000;

/// Why a process has no part in a record.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The file is not one that [`create`](crate::create) has made.
    #[error("it is no record of this version")]
    NotARecord,
    /// Other processes have all parts.
    #[error("{PARTS_MAX} processes are in it already")]
    Full,
    /// The system says so.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// A process's part of a record. It is written to by any thread.
#[derive(Debug)]
pub struct Recorder {
    part: Window,
    shape: Shape,
    origin: std::time::Instant,
    process: u32,
    devices: AtomicU8,
}

/// A list of entries in a part: where its count is, and where it begins.
#[derive(Clone, Copy)]
enum List {
    Kept,
    Ring,
}

impl Recorder {
    /// Takes a part of the file for this process.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(path: &Path) -> Result<Recorder, OpenError> {
        let file = OpenOptions::new().read(true).write(true).custom_flags(NO_FOLLOW).open(path)?;
        if file.metadata()?.len() < HEADER_BYTES {
            return Err(OpenError::NotARecord);
        }
        let header = whole(Segment::part_of_file(&file, 0, HEADER_BYTES as usize)?);
        let mut magic = [0; 8];
        header.copy_out(0, &mut magic);
        let version = header.u32_at(file_word::VERSION).load(Ordering::Relaxed);
        if magic != FILE_MAGIC || version != VERSION {
            return Err(OpenError::NotARecord);
        }
        let entries = header.u64_at(file_word::RING_ENTRIES).load(Ordering::Relaxed);
        let shape = Shape::of_entries(entries).ok_or(OpenError::NotARecord)?;
        let number = header.u64_at(file_word::PARTS).fetch_add(1, Ordering::Relaxed);
        if number >= PARTS_MAX {
            return Err(OpenError::Full);
        }
        let offset = HEADER_BYTES + number * shape.part_bytes();
        let part = whole(Segment::part_of_file(&file, offset, shape.part_bytes() as usize)?);
        Ok(Recorder::begin(part, shape))
    }

    fn begin(part: Window, shape: Shape) -> Recorder {
        let process = std::process::id();
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        part.u32_at(part_word::PROCESS).store(process, Ordering::Relaxed);
        part.u64_at(part_word::ORIGIN).store(since_1970.as_nanos() as u64, Ordering::Relaxed);
        let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        let name = name.trim();
        part.copy_in(part_word::NAME, &name.as_bytes()[..floor_boundary(name, part_word::NAME_BYTES)]);
        part.u64_at(part_word::MAGIC).store(PART_MAGIC, Ordering::Release);
        let origin = std::time::Instant::now();
        Recorder { part, shape, origin, process, devices: AtomicU8::new(0) }
    }

    /// The process that it belongs to; a child of `fork` needs one of its own.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// The process ends by itself.
    pub fn note_end(&self) {
        self.part.u32_at(part_word::HAS_ENDED).store(1, Ordering::Relaxed);
    }

    /// Keeps a line, its end cut off if it is very long.
    pub fn text(&self, about: About, qpn: u32, text: &str) {
        self.line((0, self.now()), about, qpn, text);
    }

    fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// The recorder of one device, at whose own time `now` this is called.
    pub fn device(self: &Arc<Recorder>, gid: Gid, name: &str, now: Instant) -> Tap {
        let number = self.devices.fetch_add(1, Ordering::Relaxed);
        let shift = self.now().wrapping_sub(now.as_nanos());
        let tap = Tap { recorder: Arc::clone(self), number, shift };
        tap.keep(now, &Event::Device { gid, name: name.to_string() });
        tap
    }

    /// The place for `count` entries in a row: kept as long as there is room, or else in the ring.
    fn reserve_kept(&self, count: u64) -> (List, u64) {
        let kept = self.part.u64_at(part_word::KEPT);
        let reserved = kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(count).filter(|used| *used <= KEPT_ENTRIES)
        });
        match reserved {
            Ok(place) => (List::Kept, place),
            Err(_) => (List::Ring, self.reserve(count)),
        }
    }

    #[inline]
    fn reserve(&self, count: u64) -> u64 {
        self.part.u64_at(part_word::RING).fetch_add(count, Ordering::Relaxed)
    }

    #[inline]
    fn write(&self, (list, place): (List, u64), (kind, device): (Kind, u8), time: u64, body: &Body) {
        let index = match list {
            List::Kept => place,
            List::Ring => KEPT_ENTRIES + (place & (self.shape.ring_entries() - 1)),
        };
        let at = (HEADER_BYTES + index * ENTRY_BYTES) as usize;
        let word = self.part.u64_at(at);
        // A process may end between any two stores: without a stamp, an entry is none.
        word.store(0, Ordering::Relaxed);
        fence(Ordering::Release);
        let mut words = [time; 1 + BODY_WORDS];
        words[1..].copy_from_slice(body);
        self.part.store_words_relaxed(at + 8, &words);
        word.store(stamp(place, kind, device), Ordering::Release);
    }

    fn line(&self, (device, time): (u8, u64), about: About, qpn: u32, text: &str) {
        let text = &text.as_bytes()[..floor_boundary(text, TEXT_BYTES_MAX)];
        let (list, first) = self.reserve_kept(text_entries(text.len()));
        let (head, rest) = text.split_at(text.len().min(TEXT_FIRST_BYTES));
        // From the last to the first: a line whose beginning is there is whole.
        for (number, piece) in rest.chunks(TEXT_MORE_BYTES).enumerate().rev() {
            let [time, body @ ..] = words_of::<{ BODY_WORDS + 1 }>(piece);
            self.write((list, first + 1 + number as u64), (Kind::More, device), time, &body);
        }
        let mut body = [0; BODY_WORDS];
        body[0] = text_head(about, qpn, text.len());
        body[1..].copy_from_slice(&words_of::<{ BODY_WORDS - 1 }>(head));
        self.write((list, first), (Kind::Text, device), time, &body);
    }
}

fn whole(segment: Segment) -> Window {
    Window::whole(&Arc::new(segment))
}

/// Bytes as words, with zeros behind them.
fn words_of<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, piece) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut whole = [0; 8];
        whole[..piece.len()].copy_from_slice(piece);
        *word = u64::from_le_bytes(whole);
    }
    words
}

/// The recorder of one device. Clones write as one.
#[derive(Clone, Debug)]
pub struct Tap {
    recorder: Arc<Recorder>,
    number: u8,
    /// Added to the device's time.
    shift: u64,
}

impl Tap {
    #[inline]
    fn time(&self, now: Instant) -> u64 {
        now.as_nanos().wrapping_add(self.shift)
    }

    #[inline]
    fn push(&self, now: Instant, (kind, body): (Kind, Body)) {
        let place = self.recorder.reserve(1);
        self.recorder.write((List::Ring, place), (kind, self.number), self.time(now), &body);
    }

    /// Keeps an entry that later traffic does not overwrite.
    pub fn keep(&self, now: Instant, event: &Event) {
        let (kind, body) = pack(event);
        let place = self.recorder.reserve_kept(1);
        self.recorder.write(place, (kind, self.number), self.time(now), &body);
    }

    /// A request was posted.
    #[inline]
    pub fn posted(&self, now: Instant, request: Request) {
        self.push(now, pack(&Event::Posted(request)));
    }

    /// A receive was posted.
    #[inline]
    pub fn receive_posted(&self, now: Instant, qpn: u32, wr_id: u64, length: u64) {
        self.push(now, pack(&Event::ReceivePosted { qpn, wr_id, length }));
    }

    /// A request has ended. Those that tell of a cause are kept.
    #[inline]
    pub fn completed(&self, now: Instant, completion: &Completion) {
        let &Completion { wr_id, status, operation, byte_len, qpn, .. } = completion;
        let event = Event::Completed { qpn: qpn.value(), wr_id, status, operation, bytes: byte_len };
        match status {
            CompletionStatus::Success | CompletionStatus::Flushed => self.push(now, pack(&event)),
            _ => self.keep(now, &event),
        }
    }

    /// What became of a packet.
    #[inline]
    pub fn packet(&self, now: Instant, packet: Packet) {
        self.push(now, pack(&Event::Packet(packet)));
    }

    /// Keeps a line.
    pub fn text(&self, now: Instant, about: About, qpn: u32, text: &str) {
        self.recorder.line((self.number, self.time(now)), about, qpn, text);
    }
}
