//! Classic capture files: a file header, then records of time, length and bytes.
//!
//! Reads everything that tcpdump writes in this format: either byte order, micro- or nanoseconds. Writes
//! nanoseconds in little-endian order. No file is opened here: a reader borrows the bytes, a writer hands
//! them to a function.

use highwire_stdx::Instant;

use crate::{HeaderName, LinkType, ParseError, ParseErrorKind};

/// Length of the header that begins a file.
pub const FILE_HEADER_LEN: usize = 24;
/// Length of the header that begins a record.
pub const RECORD_HEADER_LEN: usize = 16;
/// The longest frame that [`Writer`] announces.
pub const SNAPLEN: u32 = 262_144;

const MAGIC_MICROS: u32 = 0xA1B2_C3D4;
const MAGIC_NANOS: u32 = 0xA1B2_3C4D;

const LINKTYPE_ETHERNET: u32 = 1;
const LINKTYPE_RAW: u32 = 101;
/// The number that some systems write for [`LINKTYPE_RAW`].
const DLT_RAW: [u32; 2] = [12, 14];
const LINKTYPE_IPV4: u32 = 228;
const LINKTYPE_IPV6: u32 = 229;

/// Iterates over the records of a capture.
///
/// It ends after an error, because the place of the next record is then unknown.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    offset: usize,
    link_type: LinkType,
    snaplen: u32,
    big_endian: bool,
    nanos: bool,
}

/// One captured frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// When it was captured, since 1970 or another origin that the writer chose.
    pub time: Instant,
    /// Its length on the wire; more than `bytes` if the capture cut it short.
    pub original_len: u32,
    /// The bytes that the capture kept.
    pub bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of the capture in `file`.
    ///
    /// # Errors
    /// The capture has another format, or a link type other than Ethernet and raw IP.
    pub fn new(file: &'a [u8]) -> Result<Reader<'a>, ParseError> {
        let fail = |offset, kind| Err(ParseError::new(HeaderName::Pcap, offset, kind));
        let Some((head, rest)) = file.split_first_chunk::<FILE_HEADER_LEN>() else {
            return fail(0, ParseErrorKind::Truncated);
        };
        let (big_endian, nanos) = match (number(head, 0, false), number(head, 0, true)) {
            (MAGIC_MICROS, _) => (false, false),
            (MAGIC_NANOS, _) => (false, true),
            (_, MAGIC_MICROS) => (true, false),
            (_, MAGIC_NANOS) => (true, true),
            _ => return fail(0, ParseErrorKind::BadValue),
        };
        let version = number(head, 4, big_endian);
        let major = if big_endian { version >> 16 } else { version & 0xFFFF };
        if major != 2 {
            return fail(4, ParseErrorKind::BadVersion);
        }
        // The upper half may describe a frame check sequence; the link type is the lower half.
        let link_type = match number(head, 20, big_endian) & 0xFFFF {
            LINKTYPE_ETHERNET => LinkType::Ethernet,
            LINKTYPE_RAW | LINKTYPE_IPV4 | LINKTYPE_IPV6 => LinkType::RawIp,
            other if DLT_RAW.contains(&other) => LinkType::RawIp,
            _ => return fail(20, ParseErrorKind::OtherProtocol),
        };
        let snaplen = number(head, 16, big_endian);
        Ok(Reader { rest, offset: FILE_HEADER_LEN, link_type, snaplen, big_endian, nanos })
    }

    /// The first header of every frame.
    pub fn link_type(&self) -> LinkType {
        self.link_type
    }

    /// The length at which the capture cut frames short.
    pub fn snaplen(&self) -> u32 {
        self.snaplen
    }

    fn record(&mut self) -> Result<Record<'a>, ParseError> {
        let fail = |offset, kind| Err(ParseError::new(HeaderName::Pcap, offset, kind));
        let Some((head, rest)) = self.rest.split_first_chunk::<RECORD_HEADER_LEN>() else {
            return fail(self.offset, ParseErrorKind::Truncated);
        };
        let field = |at| number(head, at, self.big_endian);
        let (seconds, fraction, len, original_len) = (field(0), field(4), field(8), field(12));
        let Some((bytes, rest)) = usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len)) else {
            return fail(self.offset + 8, ParseErrorKind::Truncated);
        };
        let nanos = u64::from(fraction) * if self.nanos { 1 } else { 1_000 };
        let time = Instant::from_nanos(u64::from(seconds) * 1_000_000_000 + nanos);
        self.offset += RECORD_HEADER_LEN + bytes.len();
        self.rest = rest;
        Ok(Record { time, original_len, bytes })
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<Record<'a>, ParseError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let record = self.record();
        if record.is_err() {
            self.rest = &[];
        }
        Some(record)
    }
}

/// The header that begins a capture.
pub fn file_header(link_type: LinkType) -> [u8; FILE_HEADER_LEN] {
    let link = match link_type {
        LinkType::Ethernet => LINKTYPE_ETHERNET,
        LinkType::RawIp => LINKTYPE_RAW,
    };
    let mut header = [0; FILE_HEADER_LEN];
    header[0..4].copy_from_slice(&MAGIC_NANOS.to_le_bytes());
    header[4..6].copy_from_slice(&2u16.to_le_bytes());
    header[6..8].copy_from_slice(&4u16.to_le_bytes());
    header[16..20].copy_from_slice(&SNAPLEN.to_le_bytes());
    header[20..24].copy_from_slice(&link.to_le_bytes());
    header
}

/// The header that begins a record of `len` bytes, all of them kept.
pub fn record_header(time: Instant, len: u32) -> [u8; RECORD_HEADER_LEN] {
    let nanos = time.as_nanos();
    let mut header = [0; RECORD_HEADER_LEN];
    header[0..4].copy_from_slice(&((nanos / 1_000_000_000) as u32).to_le_bytes());
    header[4..8].copy_from_slice(&((nanos % 1_000_000_000) as u32).to_le_bytes());
    header[8..12].copy_from_slice(&len.to_le_bytes());
    header[12..16].copy_from_slice(&len.to_le_bytes());
    header
}

/// Writes a capture: `sink` gets the bytes piece by piece.
#[derive(Debug)]
pub struct Writer<F> {
    sink: F,
}

impl<F: FnMut(&[u8])> Writer<F> {
    /// A writer that has written the file's header.
    pub fn new(link_type: LinkType, mut sink: F) -> Writer<F> {
        sink(&file_header(link_type));
        Writer { sink }
    }

    /// Writes one frame, given in any number of parts.
    pub fn write(&mut self, time: Instant, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        (self.sink)(&record_header(time, len as u32));
        for part in parts {
            (self.sink)(part);
        }
    }
}

/// The 32-bit number at `at`, in the file's byte order.
fn number(header: &[u8], at: usize, big_endian: bool) -> u32 {
    let bytes = header[at..at + 4].try_into().expect("four bytes");
    if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records(file: &[u8]) -> Result<Vec<(u64, Vec<u8>)>, ParseError> {
        Reader::new(file)?.map(|r| r.map(|r| (r.time.as_nanos(), r.bytes.to_vec()))).collect()
    }

    #[test]
    fn what_was_written_is_read() {
        let mut file = Vec::new();
        let mut writer = Writer::new(LinkType::RawIp, |bytes: &[u8]| file.extend_from_slice(bytes));
        writer.write(Instant::from_nanos(1_500_000_007), &[b"ab", b"", b"c"]);
        writer.write(Instant::from_nanos(2_000_000_000), &[]);
        assert_eq!(Reader::new(&file).map(|r| (r.link_type(), r.snaplen())), Ok((LinkType::RawIp, SNAPLEN)));
        assert_eq!(records(&file), Ok(vec![(1_500_000_007, b"abc".to_vec()), (2_000_000_000, vec![])]));
        for cut in 0..file.len() {
            assert!(records(&file[..cut]).is_err() || [24, 43].contains(&cut), "cut at {cut}");
        }
    }

    #[test]
    fn both_byte_orders_and_both_resolutions() {
        for (magic, nanos) in [(MAGIC_MICROS, 5_000), (MAGIC_NANOS, 5)] {
            for order in [u32::to_be_bytes, u32::to_le_bytes] {
                let version = if order(1)[0] == 0 { 0x0002_0004 } else { 0x0004_0002 };
                let numbers = [magic, version, 0, 0, 65_535, 1, 3, 5, 2, 900];
                let mut file: Vec<u8> = numbers.into_iter().flat_map(order).collect();
                file.extend(b"hi");
                assert_eq!(records(&file), Ok(vec![(3_000_000_000 + nanos, b"hi".to_vec())]));
            }
        }
    }

    #[test]
    fn other_files_are_refused() {
        let mut file = file_header(LinkType::Ethernet);
        file[20] = 113;
        let kind = |file: &[u8]| records(file).map_err(|e| e.kind);
        assert_eq!(kind(&file), Err(ParseErrorKind::OtherProtocol));
        file[4] = 3;
        assert_eq!(kind(&file), Err(ParseErrorKind::BadVersion));
        assert_eq!(kind(b"\x7fELF then something that goes on"), Err(ParseErrorKind::BadValue));
    }
}
