//! The reading end: whatever is in the file, which a process may have left in the middle of a word.

use crate::VERSION;
use crate::entry::{Entry, Event};
use crate::file::{
    ENTRY_BYTES, FILE_MAGIC, HEADER_BYTES, KEPT_ENTRIES, PART_MAGIC, PARTS_MAX, Shape, file_word, part_word,
};
use crate::packing::{
    BODY_WORDS, Body, Kind, TEXT_FIRST_BYTES, TEXT_MORE_BYTES, read_stamp, read_text_head, text_entries,
    unpack,
};
use std::io::{self, Read, Seek, SeekFrom};

/// Why a file cannot be read as a record.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// It does not begin as one.
    #[error("this is no record of `highwire run --record`")]
    NotARecord,
    /// It has another version.
    #[error("the record has version {0}, and this program reads version {VERSION}")]
    OtherVersion(u32),
    /// Its header makes no sense.
    #[error("the record's header is damaged")]
    BadHeader,
    /// The system says so.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// What one process has left.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Part {
    /// The process.
    pub process: u32,
    /// Its name.
    pub name: String,
    /// The time since 1970 at which its time was 0.
    pub origin_ns: u64,
    /// Whether it ended by itself: it was not killed, and did not leave by `_exit`.
    pub has_ended: bool,
    /// In the order of time.
    pub entries: Vec<Entry>,
    /// Entries of traffic that later ones have overwritten.
    pub dropped: u64,
    /// Entries that are not whole.
    pub damaged: u64,
}

/// Reads a record part by part: one part is in memory at a time.
#[derive(Debug)]
pub struct Reader<S> {
    source: S,
    shape: Shape,
    next: u64,
    parts: u64,
    left_out: u64,
}

impl<S: Read + Seek> Reader<S> {
    /// Begins to read.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn new(mut source: S) -> Result<Reader<S>, ReadError> {
        let mut header = Vec::new();
        source.by_ref().take(HEADER_BYTES).read_to_end(&mut header)?;
        if !header.starts_with(&FILE_MAGIC) {
            return Err(ReadError::NotARecord);
        }
        let version = word(&header, file_word::VERSION).ok_or(ReadError::BadHeader)? as u32;
        if version != VERSION {
            return Err(ReadError::OtherVersion(version));
        }
        let entries = word(&header, file_word::RING_ENTRIES).ok_or(ReadError::BadHeader)?;
        let wanted = word(&header, file_word::PARTS).ok_or(ReadError::BadHeader)?;
        let shape = Shape::of_entries(entries).ok_or(ReadError::BadHeader)?;
        let parts = wanted.min(PARTS_MAX);
        Ok(Reader { source, shape, next: 0, parts, left_out: wanted - parts })
    }

    /// Processes that there was no part for.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The earliest beginning of a process, since 1970.
    ///
    /// # Errors
    /// Those of the file.
    pub fn begin_ns(&mut self) -> Result<Option<u64>, ReadError> {
        let mut earliest = None;
        for number in 0..self.parts {
            self.source.seek(SeekFrom::Start(HEADER_BYTES + number * self.shape.part_bytes()))?;
            let mut header = Vec::new();
            self.source.by_ref().take(HEADER_BYTES).read_to_end(&mut header)?;
            if word(&header, part_word::MAGIC) == Some(PART_MAGIC) {
                earliest = earliest.into_iter().chain(word(&header, part_word::ORIGIN)).min();
            }
        }
        Ok(earliest)
    }

    /// The next process's part; one that was never begun is left out.
    ///
    /// # Errors
    /// Those of the file.
    pub fn next_part(&mut self) -> Result<Option<Part>, ReadError> {
        while self.next < self.parts {
            let offset = HEADER_BYTES + self.next * self.shape.part_bytes();
            self.next += 1;
            self.source.seek(SeekFrom::Start(offset))?;
            let mut bytes = Vec::new();
            self.source.by_ref().take(self.shape.part_bytes()).read_to_end(&mut bytes)?;
            if let Some(part) = read_part(&bytes, self.shape) {
                return Ok(Some(part));
            }
        }
        Ok(None)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let piece = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(piece.try_into().expect("it has eight bytes")))
}

/// Reads a part, which may be cut off anywhere; `None` if no process has begun it.
pub fn read_part(bytes: &[u8], shape: Shape) -> Option<Part> {
    if word(bytes, part_word::MAGIC)? != PART_MAGIC {
        return None;
    }
    let name = bytes.get(part_word::NAME..part_word::NAME + part_word::NAME_BYTES)?;
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    let mut part = Part {
        process: word(bytes, part_word::PROCESS)? as u32,
        name: String::from_utf8_lossy(name).replace(char::is_control, " "),
        origin_ns: word(bytes, part_word::ORIGIN)?,
        has_ended: word(bytes, part_word::HAS_ENDED)? & 1 == 1,
        ..Part::default()
    };
    let kept = word(bytes, part_word::KEPT)?.min(KEPT_ENTRIES);
    let written = word(bytes, part_word::RING)?;
    part.dropped = written.saturating_sub(shape.ring_entries());
    let mut found = Vec::new();
    let ring = List { bytes, begin: KEPT_ENTRIES, mask: shape.ring_entries() - 1 };
    ring.read(part.dropped..written, &mut found, &mut part.damaged);
    let list = List { bytes, begin: 0, mask: u64::MAX };
    list.read(0..kept, &mut found, &mut part.damaged);
    // What is kept tells of the result of the packets that have the same time, so it comes behind them: the order is stable.
    found.sort_by_key(|entry| entry.time_ns);
    part.entries = found;
    Some(part)
}

/// The entries of one list.
struct List<'a> {
    bytes: &'a [u8],
    begin: u64,
    mask: u64,
}

/// An entry's stamp and words.
struct Raw {
    kind: u8,
    device: u8,
    time: u64,
    body: Body,
}

impl List<'_> {
    /// The entry at a place, if it was written whole.
    fn raw(&self, place: u64) -> Option<Raw> {
        let at = usize::try_from(HEADER_BYTES + (self.begin + (place & self.mask)) * ENTRY_BYTES).ok()?;
        let (stamped, kind, device) = read_stamp(word(self.bytes, at)?)?;
        // A stamp has 48 bits of its place.
        if (stamped ^ place) << 16 != 0 {
            return None;
        }
        let mut body = [0; BODY_WORDS];
        for (index, to) in body.iter_mut().enumerate() {
            *to = word(self.bytes, at + 16 + 8 * index)?;
        }
        Some(Raw { kind, device, time: word(self.bytes, at + 8)?, body })
    }

    fn read(&self, places: std::ops::Range<u64>, found: &mut Vec<Entry>, damaged: &mut u64) {
        let (mut place, mut is_first) = (places.start, true);
        while place < places.end {
            let (entry, taken, is_whole) = self.entry(place, places.end, is_first);
            found.extend(entry);
            *damaged += u64::from(!is_whole);
            is_first &= taken == 1 && is_whole;
            place += taken;
        }
    }

    /// The entry at a place, how many places it takes, and whether they make sense. The first of a ring may be the rest of a line.
    fn entry(&self, place: u64, end: u64, is_first: bool) -> (Option<Entry>, u64, bool) {
        let Some(raw) = self.raw(place) else { return (None, 1, false) };
        let Raw { device, time: time_ns, body, .. } = raw;
        let whole = |event| Entry { time_ns, device, event };
        match Kind::from_u8(raw.kind) {
            None => (None, 1, false),
            Some(Kind::More) => (None, 1, is_first || self.begin > 0),
            Some(Kind::Text) => {
                let Some((about, qpn, length)) = read_text_head(body[0]) else { return (None, 1, false) };
                let count = text_entries(length);
                match self.text(place, end, length, &body) {
                    Some(text) => (Some(whole(Event::Text { about, qpn, text })), count, true),
                    None => (None, 1, false),
                }
            }
            Some(kind) => {
                let event = unpack(kind, &body);
                let is_whole = event.is_some();
                (event.map(whole), 1, is_whole)
            }
        }
    }

    /// A line of `length` bytes that begins at a place.
    fn text(&self, place: u64, end: u64, length: usize, first: &Body) -> Option<String> {
        let mut bytes: Vec<u8> = first[1..].iter().flat_map(|word| word.to_le_bytes()).collect();
        debug_assert_eq!(bytes.len(), TEXT_FIRST_BYTES);
        for next in 1..text_entries(length) {
            let place = place.checked_add(next).filter(|place| *place < end)?;
            let raw = self.raw(place).filter(|raw| Kind::from_u8(raw.kind) == Some(Kind::More))?;
            let words = std::iter::once(raw.time).chain(raw.body);
            bytes.extend(words.flat_map(u64::to_le_bytes));
            debug_assert_eq!((bytes.len() - TEXT_FIRST_BYTES) % TEXT_MORE_BYTES, 0);
        }
        let text = String::from_utf8_lossy(bytes.get(..length)?);
        Some(text.replace(char::is_control, " "))
    }
}
