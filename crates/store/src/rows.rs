//! How keys that are strings become rows whose keys are eight bytes.
//!
//! The upper 16 bits of a row's key are a hash of the table's name, the lower 48 a hash of the key, so a
//! table is a range of rows and can be read as one. Hashes collide, so **a row holds whole keys**: it is a
//! bucket of entries, each with its table's name, its key and its value. If an entry finds no room in its
//! row, that row is marked as *overflowing* and the entry goes to the next place of its chain. A search ends
//! at the first row of the chain that does not overflow.
//!
//! Every row that a search looks at is in the transaction's read set, absent ones included, so a search is as
//! serialisable as a read. The mark stays when entries are removed: a search may look at a row more than it
//! must, but never at one too few.
//!
//! **A value that does not fit into a row of one datagram has a row of its own**, in another table of `txn`. The entry
//! then has the value's length and its place. Every transaction that changes such a value changes the entry's row as
//! well, so a reader whose entry is still the same has seen one value and not pieces of two; and searches,
//! scans and counts read rows that are short.
//!
//! **An entry may expire.** Then its time stands in the row, and a transaction that reads the row at that time or later takes the entry away
//! (`Row::take_expired`). Entries of ordered tables do not expire.

mod place;
pub(crate) mod slot;

pub(crate) use place::{KEYS_PER_RUN, SLOTTED, place, place_of_node, range, root, slots};

use crate::error::StoreError;
use crate::order::is_ordered;
use serde::{Deserialize, Serialize};

/// The longest name of a table.
pub const TABLE_BYTES_MAX: usize = 32;
/// The longest key.
pub const KEY_BYTES_MAX: usize = 512;
/// The longest value.
pub const VALUE_BYTES_MAX: usize = 1 << 20;
/// All that a transaction writes, keys included. Its record is one message, which has less than 16 MiB.
pub const WRITE_BYTES_MAX: usize = 8 << 20;
/// All long values that a transaction reads at a node.
pub const READ_BYTES_MAX: usize = 32 << 20;
/// The longest row of entries: one datagram.
const ROW_BYTES_MAX: usize = highwire_txn::VALUE_BYTES_MAX;
/// The longest value that lies beside its key. An entry with the longest of all three fits into a row of its own.
pub(crate) const SHORT_VALUE_BYTES_MAX: usize =
    ROW_BYTES_MAX - 1 - ENTRY_HEADER_BYTES - TABLE_BYTES_MAX - KEY_BYTES_MAX;
const _: () = assert!(
    VALUE_BYTES_MAX + LONG_HEADER_BYTES + TABLE_BYTES_MAX + KEY_BYTES_MAX
        <= highwire_txn::LONG_VALUE_BYTES_MAX
);

const ENTRY_HEADER_BYTES: usize = 1 + 2 + 1 + 2;
/// Lengths of the table's name and of the key, in front of a long value.
const LONG_HEADER_BYTES: usize = 1 + 2;
/// In the byte of an entry's kind: its value is long, and lies elsewhere.
const LONG: u8 = 0x40;
/// In the same byte: the entry's time stands between its key and its value.
const EXPIRES: u8 = 0x80;
const EXPIRY_BYTES: usize = 8;
/// The type of an entry's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u8)]
pub(crate) enum Kind {
    Bytes = 0,
    /// Fields with values: a hash of the Redis door.
    Fields = 1,
    /// Elements in an order: a list of the Redis door.
    List = 2,
    /// Members: a set of the Redis door.
    Set = 3,
    /// Members with scores: a sorted set of the Redis door.
    Sorted = 4,
}

impl Kind {
    pub(crate) const ALL: [Kind; 5] = [Kind::Bytes, Kind::Fields, Kind::List, Kind::Set, Kind::Sorted];

    /// `None`: a kind of a later version of this program.
    fn of(byte: u8) -> Option<Kind> {
        Kind::ALL.get(usize::from(byte)).copied()
    }
}

/// When an entry expires: milliseconds since 1970, never 0.
pub(crate) type Expiry = Option<u64>;

fn take_expiry(mark: u8, bytes: &mut &[u8]) -> Option<Expiry> {
    if mark & EXPIRES == 0 {
        return Some(None);
    }
    let (time, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    match u64::from_le_bytes(*time) {
        0 => None,
        time => Some(Some(time)),
    }
}

fn put_expiry(expires: Expiry, bytes: &mut Vec<u8>) {
    if let Some(time) = expires {
        bytes.extend_from_slice(&time.to_le_bytes());
    }
}

/// Whether a value lies beside its key.
pub(crate) fn is_short(value_bytes: usize, expires: Expiry) -> bool {
    value_bytes + expires.map_or(0, |_| EXPIRY_BYTES) <= SHORT_VALUE_BYTES_MAX
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) table: Vec<u8>,
    pub(crate) key: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) expires: Expiry,
    pub(crate) value: Value,
}

/// A value, or where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// The value itself.
    Short(Vec<u8>),
    /// It has so many bytes, and lies in this place of its key's chain.
    Long { bytes: u32, step: u8 },
}

impl Value {
    /// The bytes that it takes in a row of entries.
    fn bytes(&self) -> usize {
        match self {
            Value::Short(bytes) => bytes.len(),
            Value::Long { .. } => 4 + 1,
        }
    }
}

/// A key with its whole value, as a backup has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackupEntry {
    pub(crate) table: Vec<u8>,
    pub(crate) key: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) expires: Expiry,
    pub(crate) value: Vec<u8>,
}

impl BackupEntry {
    /// Whether its time has come.
    pub(crate) fn has_expired(&self, now_ms: u64) -> bool {
        self.expires.is_some_and(|time| time <= now_ms) && !is_ordered(&self.table)
    }

    /// Appends its bytes, of which [`BackupEntry::parse_all`] makes it again.
    pub(crate) fn put(&self, bytes: &mut Vec<u8>) {
        bytes.push(self.table.len() as u8);
        bytes.extend_from_slice(&(self.key.len() as u16).to_le_bytes());
        bytes.push(self.kind as u8 | if self.expires.is_some() { EXPIRES } else { 0 });
        bytes.extend_from_slice(&(self.value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&self.table);
        bytes.extend_from_slice(&self.key);
        put_expiry(self.expires, bytes);
        bytes.extend_from_slice(&self.value);
    }

    /// Entries one behind the other; `None` if these bytes are no such entries.
    pub(crate) fn parse_all(mut bytes: &[u8]) -> Option<Vec<BackupEntry>> {
        let mut entries = Vec::new();
        while !bytes.is_empty() {
            let (header, rest) = bytes.split_first_chunk::<8>()?;
            bytes = rest;
            let kind = Kind::of(header[3] & !EXPIRES)?;
            let table = take(&mut bytes, usize::from(header[0]))?.to_vec();
            let key = take(&mut bytes, usize::from(u16::from_le_bytes([header[1], header[2]])))?.to_vec();
            let expires = take_expiry(header[3], &mut bytes)?;
            let length = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
            let value = take(&mut bytes, length as usize)?.to_vec();
            entries.push(BackupEntry { table, key, kind, expires, value });
        }
        Some(entries)
    }
}

/// A row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) overflows: bool,
    pub(crate) cells: Vec<Cell>,
}

impl Cell {
    fn bytes(&self) -> usize {
        let expiry_bytes = self.expires.map_or(0, |_| EXPIRY_BYTES);
        ENTRY_HEADER_BYTES + self.table.len() + self.key.len() + expiry_bytes + self.value.bytes()
    }

    /// Whether its time has come.
    pub(crate) fn has_expired(&self, now_ms: u64) -> bool {
        self.expires.is_some_and(|time| time <= now_ms) && !is_ordered(&self.table)
    }

    fn is(&self, table: &[u8], key: &[u8]) -> bool {
        self.table == table && self.key == key
    }
}

impl Row {
    /// Parses a row's bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Row, StoreError> {
        parse(bytes).ok_or_else(|| {
            StoreError::invalid("a row of the store is damaged, or of another version of this program")
        })
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![u8::from(self.overflows)];
        for cell in &self.cells {
            bytes.push(cell.table.len() as u8);
            bytes.extend_from_slice(&(cell.key.len() as u16).to_le_bytes());
            let long = if matches!(cell.value, Value::Long { .. }) { LONG } else { 0 };
            let expires = if cell.expires.is_some() { EXPIRES } else { 0 };
            bytes.push(cell.kind as u8 | long | expires);
            bytes.extend_from_slice(&(cell.value.bytes() as u16).to_le_bytes());
            bytes.extend_from_slice(&cell.table);
            bytes.extend_from_slice(&cell.key);
            put_expiry(cell.expires, &mut bytes);
            match &cell.value {
                Value::Short(value) => bytes.extend_from_slice(value),
                Value::Long { bytes: length, step } => {
                    bytes.extend_from_slice(&length.to_le_bytes());
                    bytes.push(*step);
                }
            }
        }
        bytes
    }

    pub(crate) fn find(&self, table: &[u8], key: &[u8]) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.is(table, key))
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, table: &[u8], key: &[u8]) -> Option<Cell> {
        let at = self.cells.iter().position(|cell| cell.is(table, key))?;
        Some(self.cells.remove(at))
    }

    /// Whether an entry's time has come.
    pub(crate) fn has_expired(&self, now_ms: u64) -> bool {
        self.cells.iter().any(|cell| cell.has_expired(now_ms))
    }

    /// Removes all entries whose time has come.
    pub(crate) fn take_expired(&mut self, now_ms: u64) -> Vec<Cell> {
        self.cells.extract_if(.., |cell| cell.has_expired(now_ms)).collect()
    }

    /// Whether there is room for an entry.
    pub(crate) fn has_room_for(&self, cell: &Cell) -> bool {
        let taken: usize = self.cells.iter().map(Cell::bytes).sum();
        1 + taken + cell.bytes() <= ROW_BYTES_MAX
    }

    /// Whether the row can be deleted without loss.
    pub(crate) fn is_needless(&self) -> bool {
        self.cells.is_empty() && !self.overflows
    }
}

fn parse(mut bytes: &[u8]) -> Option<Row> {
    let overflows = match take(&mut bytes, 1)?[0] {
        0 => false,
        1 => true,
        _ => return None,
    };
    let mut cells = Vec::new();
    while !bytes.is_empty() {
        let header = take(&mut bytes, ENTRY_HEADER_BYTES)?;
        let length = |at: usize| usize::from(u16::from_le_bytes([header[at], header[at + 1]]));
        let kind = Kind::of(header[3] & !(LONG | EXPIRES))?;
        let table = take(&mut bytes, usize::from(header[0]))?.to_vec();
        let key = take(&mut bytes, length(1))?.to_vec();
        let expires = take_expiry(header[3], &mut bytes)?;
        let value = take(&mut bytes, length(4))?;
        let value = match header[3] & LONG {
            0 => Value::Short(value.to_vec()),
            _ => {
                let (length, step) = value.split_first_chunk()?;
                let [step] = *step else { return None };
                Value::Long { bytes: u32::from_le_bytes(*length), step }
            }
        };
        cells.push(Cell { table, key, kind, expires, value });
    }
    Some(Row { overflows, cells })
}

/// The row of a long value: whose it is, and the value.
pub(crate) fn long_row(table: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(LONG_HEADER_BYTES + table.len() + key.len() + value.len());
    bytes.push(table.len() as u8);
    bytes.extend_from_slice(&(key.len() as u16).to_le_bytes());
    bytes.extend_from_slice(table);
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
    bytes
}

/// The long value in a row, if it is this key's.
pub(crate) fn long_value<'a>(mut row: &'a [u8], table: &[u8], key: &[u8]) -> Option<&'a [u8]> {
    let header = take(&mut row, LONG_HEADER_BYTES)?;
    let key_bytes = usize::from(u16::from_le_bytes([header[1], header[2]]));
    let is_its = take(&mut row, usize::from(header[0]))? == table && take(&mut row, key_bytes)? == key;
    is_its.then_some(row)
}

pub(crate) fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

/// Whether a key and its table's name are valid.
pub(crate) fn check_key(table: &[u8], key: &[u8]) -> Result<(), StoreError> {
    check_table(table)?;
    if key.len() > KEY_BYTES_MAX {
        return Err(StoreError::invalid(format!(
            "the key has {} bytes; at most {KEY_BYTES_MAX} are possible",
            key.len()
        )));
    }
    Ok(())
}

/// Whether a table's name is valid.
pub(crate) fn check_table(table: &[u8]) -> Result<(), StoreError> {
    let length = table.len();
    if length == 0 || length > TABLE_BYTES_MAX {
        return Err(StoreError::invalid(format!(
            "a table's name has 1 to {TABLE_BYTES_MAX} bytes, not {length}"
        )));
    }
    Ok(())
}

pub(crate) fn check_value(value: &[u8]) -> Result<(), StoreError> {
    let length = value.len();
    if length > VALUE_BYTES_MAX {
        return Err(StoreError::invalid(format!(
            "the value has {length} bytes; at most {VALUE_BYTES_MAX} are possible"
        )));
    }
    Ok(())
}

pub(crate) fn writes_too_much(bytes: usize) -> StoreError {
    StoreError::invalid(format!(
        "the transaction writes {bytes} bytes; at most {WRITE_BYTES_MAX} are possible, all keys and values together"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    fn cell(key: &str, value_bytes: usize) -> Cell {
        let value = Value::Short(vec![7; value_bytes]);
        Cell { table: b"t".to_vec(), key: key.into(), kind: Kind::Bytes, expires: None, value }
    }

    #[test]
    fn rows_come_back_as_they_were() {
        for overflows in [false, true] {
            let row = Row {
                overflows,
                cells: vec![
                    cell("a", 0),
                    cell("", 100),
                    Cell { kind: Kind::Fields, ..cell("b", 3) },
                    Cell { value: Value::Long { bytes: 1 << 20, step: 63 }, ..cell("c", 0) },
                    Cell { expires: Some(1 << 41), ..cell("d", 9) },
                    Cell { expires: Some(1), value: Value::Long { bytes: 5000, step: 2 }, ..cell("e", 0) },
                ],
            };
            assert_eq!(Row::parse(&row.to_bytes()), Ok(row));
        }
    }

    #[test]
    fn damaged_rows_never_panic() {
        let long = Cell { value: Value::Long { bytes: 9, step: 1 }, ..cell("e", 0) };
        let bytes = Row { overflows: true, cells: vec![cell("abc", 20), expiring("d", 5), long] }.to_bytes();
        let mut rng = Rng::new(3);
        for _ in 0..5000 {
            let mut bent = bytes.clone();
            let at = rng.below(bent.len() as u64) as usize;
            bent[at] = rng.next_u32() as u8;
            bent.truncate(rng.below(bent.len() as u64 + 1) as usize);
            let _ = Row::parse(&bent);
        }
        assert!(Row::parse(&[]).is_err());
    }

    #[test]
    fn the_longest_entry_fits_into_a_row_of_its_own_and_no_longer_one_does() {
        let longest = |extra: usize| Cell {
            table: vec![1; TABLE_BYTES_MAX],
            key: vec![2; KEY_BYTES_MAX],
            kind: Kind::Bytes,
            expires: None,
            value: Value::Short(vec![3; SHORT_VALUE_BYTES_MAX + extra]),
        };
        assert!(Row::default().has_room_for(&longest(0)));
        assert!(!Row::default().has_room_for(&longest(1)));
        let row = Row { overflows: true, cells: vec![longest(0)] };
        assert_eq!(row.to_bytes().len(), ROW_BYTES_MAX);
    }

    #[test]
    fn each_kind_keeps_its_byte_and_one_of_a_later_version_is_an_error() {
        for (byte, kind) in (0u8..).zip(Kind::ALL) {
            assert_eq!((kind as u8, Kind::of(byte)), (byte, Some(kind)));
            let row = Row { overflows: false, cells: vec![Cell { kind, ..cell("k", 2) }] };
            let mut bytes = row.to_bytes();
            assert_eq!(bytes[4], byte);
            assert_eq!(Row::parse(&bytes), Ok(row));
            bytes[4] = Kind::ALL.len() as u8;
            assert!(Row::parse(&bytes).is_err());
            let (table, key, value) = (b"t".to_vec(), b"k".to_vec(), b"v".to_vec());
            let entry = BackupEntry { table, key, kind, expires: None, value };
            let mut bytes = Vec::new();
            entry.put(&mut bytes);
            assert_eq!(BackupEntry::parse_all(&bytes), Some(vec![entry]));
            bytes[3] = Kind::ALL.len() as u8;
            assert_eq!(BackupEntry::parse_all(&bytes), None);
        }
    }

    /// Rows of earlier versions of the program are read.
    #[test]
    fn a_row_of_short_values_is_as_it_always_was() {
        let bytes = Row { overflows: true, cells: vec![cell("abc", 2)] }.to_bytes();
        assert_eq!(bytes, [1, 1, 3, 0, 0, 2, 0, b't', b'a', b'b', b'c', 7, 7]);
    }

    fn expiring(key: &str, time: u64) -> Cell {
        Cell { expires: Some(time), ..cell(key, 2) }
    }

    #[test]
    fn a_row_of_entries_that_expire_has_their_times_behind_their_keys() {
        let bytes = Row { overflows: false, cells: vec![expiring("abc", 0x0102), cell("d", 0)] }.to_bytes();
        let expected = [
            &[0, 1, 3, 0, 0x80, 2, 0][..],
            b"tabc",
            &[2, 1, 0, 0, 0, 0, 0, 0, 7, 7],
            &[1, 1, 0, 0, 0, 0],
            b"td",
        ];
        assert_eq!(bytes, expected.concat());
        // No entry expires at 0: such a row is damaged.
        assert!(Row::parse(&[&[0, 1, 0, 0, 0x80, 0, 0, b't'][..], &[0; 8]].concat()).is_err());
        assert!(Row::parse(&[&[0, 1, 0, 0, 0x80, 0, 0, b't'][..], &[1; 7]].concat()).is_err());
    }

    #[test]
    fn an_entry_is_taken_at_its_time_and_not_before() {
        let ordered = Cell { table: b"ordered.t".to_vec(), ..expiring("d", 1) };
        let row =
            Row { overflows: true, cells: vec![expiring("a", 10), cell("b", 1), expiring("c", 11), ordered] };
        for (now_ms, expected) in
            [(9, vec![]), (10, vec!["a"]), (11, vec!["a", "c"]), (u64::MAX, vec!["a", "c"])]
        {
            let mut row = row.clone();
            assert_eq!(row.has_expired(now_ms), !expected.is_empty(), "at {now_ms}");
            let taken = row.take_expired(now_ms).into_iter().map(|cell| cell.key).collect::<Vec<_>>();
            assert_eq!(
                taken,
                expected.iter().map(|key| key.as_bytes().to_vec()).collect::<Vec<_>>(),
                "at {now_ms}"
            );
            assert_eq!(row.cells.len(), 4 - taken.len());
        }
    }

    #[test]
    fn the_longest_entry_that_expires_fits_into_a_row_of_its_own() {
        let value_bytes = SHORT_VALUE_BYTES_MAX - EXPIRY_BYTES;
        assert!(is_short(value_bytes, Some(1)) && !is_short(value_bytes + 1, Some(1)));
        let longest = Cell {
            table: vec![1; TABLE_BYTES_MAX],
            key: vec![2; KEY_BYTES_MAX],
            expires: Some(1),
            ..cell("", value_bytes)
        };
        assert!(Row::default().has_room_for(&longest));
        assert_eq!(Row { overflows: true, cells: vec![longest] }.to_bytes().len(), ROW_BYTES_MAX);
    }

    #[test]
    fn entries_of_backups_come_back_with_their_times_and_those_without_are_as_they_always_were() {
        let entry = |expires, key: &[u8]| BackupEntry {
            table: b"t".to_vec(),
            key: key.to_vec(),
            kind: Kind::Fields,
            expires,
            value: vec![9],
        };
        let entries = vec![entry(None, b"a"), entry(Some(7), b""), entry(Some(u64::MAX), b"c")];
        let mut bytes = Vec::new();
        entries.iter().for_each(|entry| entry.put(&mut bytes));
        assert!(bytes.starts_with(&[1, 1, 0, 1, 1, 0, 0, 0, b't', b'a', 9]));
        assert_eq!(BackupEntry::parse_all(&bytes), Some(entries));
    }

    #[test]
    fn a_long_value_is_found_only_in_its_own_row() {
        let row = long_row(b"t", b"key", b"value");
        assert_eq!(long_value(&row, b"t", b"key"), Some(&b"value"[..]));
        for (table, key) in [(&b"u"[..], &b"key"[..]), (b"t", b"ke"), (b"t", b"keyv"), (b"tk", b"ey")] {
            assert_eq!(long_value(&row, table, key), None);
        }
        for end in 0..row.len() - 5 {
            assert_eq!(long_value(&row[..end], b"t", b"key"), None, "{end}");
        }
    }

    /// Stored data is found only if these numbers never change.
    #[test]
    fn places_are_the_same_for_ever() {
        assert_eq!(place(b"accounts", b"alice", 0), 0x6EA4C5D1556D6677);
        assert_eq!(place(b"accounts", b"alice", 1), 0x6EA41A046F573E1E);
        assert_eq!(root(b"ordered.events"), 0x84F5824E620A5514);
        assert_eq!(place(b"redis", b"{alice}.name", 0) >> 44, place(b"redis", b"alice", 7) >> 44);
        let (low, high) = range(b"accounts");
        for step in 0..100 {
            assert!((low..=high).contains(&place(b"accounts", b"alice", step)));
        }
    }

    #[test]
    fn all_places_of_a_slots_keys_are_in_its_run_and_runs_share_the_slots() {
        let runs: Vec<_> = slots().collect();
        assert_eq!((runs.len(), runs[0].0, runs[15].1), (16, 0, slot::COUNT - 1));
        assert!(runs.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0));
        let mut used = [0; 16];
        for number in 0..2000 {
            let key = format!("key {number}");
            let slot = slot::of(key.as_bytes());
            let &(_, _, row) = runs.iter().find(|run| (run.0..=run.1).contains(&slot)).expect("a run");
            used[usize::from(slot >> 10)] += 1;
            for step in 0..5 {
                assert_eq!(place(SLOTTED, key.as_bytes(), step) / KEYS_PER_RUN, row / KEYS_PER_RUN, "{key}");
            }
        }
        assert!(used.iter().all(|keys| (60..200).contains(keys)), "{used:?}");
    }
}
