//! Commands that read many keys: DBSIZE, KEYS and SCAN, each a transaction or, beside writers that never stop, a snapshot.
//!
//! A cursor of SCAN is a place among the keys' hashes and how wide the next step is. A key that stays is reported, because its place stays; and a
//! step is as wide as the last steps had to be for `COUNT` keys.

use super::keys::{integer, not_an_integer, take};
use super::outcome::Done;
use super::reply::Reply;
use super::{TABLE, Words, glob, keys, upper};
use crate::door::Room;
use crate::engine::Store;
use crate::error::StoreError;
use crate::rows::{self, BackupEntry, Kind};
use crate::scan::{self, Rows};
use crate::session::Stop;
use crate::transaction::{Found, Transaction};
use highwire_txn::Key;

/// Keys of a table have so many bits.
const PLACE_BITS: u32 = 48;
/// Steps are at least `2^LEAST_BITS` places wide, and four times as wide with each level.
const LEAST_BITS: u32 = 28;
const LEVEL_MAX: u32 = (PLACE_BITS - LEAST_BITS) / 2;
/// What a SCAN that reads a snapshot reads, at least: it holds commits back for a moment, and so must be worth that.
const SNAPSHOT_LEVEL: u32 = LEVEL_MAX - 2;
/// The keys of a step of SCAN, if it is not told.
const COUNT: usize = 10;
/// Keys that one step gives, about.
const COUNT_MAX: usize = 1 << 16;

/// A place in the table, and the level of the next step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cursor {
    place: u64,
    level: u32,
}

impl Cursor {
    fn of(number: u64) -> Cursor {
        let level = (number >> PLACE_BITS) as u32;
        Cursor { place: number & ((1 << PLACE_BITS) - 1), level: level.min(LEVEL_MAX) }
    }

    fn number(self) -> u64 {
        u64::from(self.level) << PLACE_BITS | self.place
    }

    /// A place anywhere.
    pub(super) fn at(random: u64) -> Cursor {
        Cursor { place: random >> (64 - PLACE_BITS), level: 0 }
    }

    /// The places of a step, and the cursor behind it.
    fn step(self) -> ((Key, Key), Option<Cursor>) {
        let (low, high) = rows::range(TABLE);
        let from = low + self.place;
        let to = from.saturating_add((1 << (LEAST_BITS + 2 * self.level)) - 1).min(high);
        let next = (to < high).then(|| Cursor { place: to - low + 1, ..self });
        ((from, to), next)
    }
}

/// At least so many keys from a place on, if there are so many; and where to go on.
pub(super) async fn walk(
    transaction: &mut Transaction,
    from: Cursor,
    count: usize,
) -> Result<(Vec<Found>, Option<Cursor>), Stop> {
    let (mut found, mut next) = (Vec::new(), Some(from));
    while let Some(cursor) = next.filter(|_| found.len() < count) {
        let ((low, high), behind) = cursor.step();
        let some = transaction.scan(TABLE, low, high).await?.0;
        // Steps that find few keys get wider, and those that find many narrower.
        let level = match some.len() {
            few if few < count / 4 || few == 0 => (cursor.level + 1).min(LEVEL_MAX),
            many if many > 4 * count => cursor.level.saturating_sub(1),
            _ => cursor.level,
        };
        next = behind.map(|behind| Cursor { level, ..behind });
        found.extend(some);
    }
    Ok((found, next))
}

/// What a SCAN asks for.
struct Scan<'a> {
    from: Cursor,
    count: usize,
    pattern: Option<&'a [u8]>,
    /// `Some(None)`: a type that no key here has.
    kind: Option<Option<Kind>>,
}

impl Scan<'_> {
    fn wants(&self, kind: Kind) -> bool {
        self.kind.is_none_or(|wanted| wanted == Some(kind))
    }
}

fn page(next: Option<Cursor>, found: Vec<Reply>) -> Reply {
    let next = next.map_or(0, Cursor::number);
    Reply::Array(vec![Reply::bulk(next.to_string()), Reply::Array(found)])
}

/// A cursor's number, as Redis takes it.
pub(super) fn cursor_number(word: &[u8]) -> Result<u64, Reply> {
    let number = std::str::from_utf8(word).ok().and_then(|text| text.parse::<u64>().ok());
    number.ok_or_else(|| Reply::error("ERR invalid cursor"))
}

/// `MATCH`, `COUNT` and `TYPE`. `with_type`: TYPE is one of them.
type Options<'a> = (Option<&'a [u8]>, usize, Option<&'a [u8]>);

pub(super) fn parse_options(words: &[Vec<u8>], with_type: bool) -> Result<Options<'_>, Reply> {
    let (mut pattern, mut count, mut kind) = (None, COUNT, None);
    for pair in words.chunks(2) {
        let [name, value] = pair else { return Err(Reply::error("ERR syntax error")) };
        match &*upper(name) {
            "MATCH" => pattern = Some(&value[..]),
            "COUNT" => match integer(value) {
                Some(1..) => count = integer(value).map_or(COUNT, |count| count as usize),
                Some(_) => return Err(Reply::error("ERR syntax error")),
                None => return Err(not_an_integer()),
            },
            "TYPE" if with_type => kind = Some(&value[..]),
            _ => return Err(Reply::error("ERR syntax error")),
        }
    }
    if pattern.is_some_and(|pattern| pattern.len() > glob::PATTERN_BYTES_MAX) {
        return Err(pattern_too_long());
    }
    Ok((pattern, count.min(COUNT_MAX), kind))
}

pub(super) fn pattern_too_long() -> Reply {
    Reply::error(format!("ERR a pattern has at most {} bytes", glob::PATTERN_BYTES_MAX))
}

fn parse(words: &Words) -> Result<Scan<'_>, Reply> {
    let from = Cursor::of(cursor_number(&words[1])?);
    let (pattern, count, kind) = parse_options(&words[2..], true)?;
    let of_name = |name: &[u8]| {
        Kind::ALL.into_iter().find(|kind| keys::type_name(*kind).as_bytes().eq_ignore_ascii_case(name))
    };
    let kind = kind.map(of_name);
    Ok(Scan { from, count, pattern, kind })
}

/// Whether a command reads many keys and writes none.
pub(super) fn is_scan(words: &Words) -> bool {
    matches!(&*upper(&words[0]), "DBSIZE" | "KEYS" | "SCAN")
}

/// Carries it out within a transaction.
pub(super) async fn apply(transaction: &mut Transaction, name: &str, words: &Words, room: &mut Room) -> Done {
    let (low, high) = rows::range(TABLE);
    Ok(match name {
        "DBSIZE" => Reply::Integer(transaction.scan(TABLE, low, high).await?.0.len() as i64),
        "KEYS" if words[1].len() > glob::PATTERN_BYTES_MAX => pattern_too_long(),
        "KEYS" => {
            let all = transaction.scan(TABLE, low, high).await?.0;
            Reply::Array(matching(transaction, all, Some(&words[1]), room).await?)
        }
        _ => {
            let scan = parse(words)?;
            let (found, next) = walk(transaction, scan.from, scan.count).await?;
            let wanted = found.into_iter().filter(|found| scan.wants(found.kind)).collect();
            page(next, matching(transaction, wanted, scan.pattern, room).await?)
        }
    })
}

/// The keys that match a pattern.
async fn matching(
    transaction: &Transaction,
    found: Vec<Found>,
    pattern: Option<&[u8]>,
    room: &mut Room,
) -> Result<Vec<Reply>, Stop> {
    let mut names = Vec::new();
    for Found { key, .. } in found {
        transaction.breathe(super::keys::PER_KEY + pattern.map_or(0, <[u8]>::len) * key.len()).await;
        if pattern.is_none_or(|pattern| glob::matches(pattern, &key)) {
            let name = Reply::Bulk(key);
            take(room, &name)?;
            names.push(name);
        }
    }
    Ok(names)
}

/// The reply, from a snapshot. It blocks, and so has a thread for itself.
pub(super) fn from_snapshot(store: &Store, words: &Words, room: &mut Room) -> Reply {
    let (low, high) = rows::range(TABLE);
    let all = Rows { low, high, has_values: false };
    let reply = match &*upper(&words[0]) {
        "DBSIZE" => count(store, all, room).map(Reply::Integer),
        "KEYS" => names(store, all, room, |cell| glob::matches(&words[1], &cell.key)).map(Reply::Array),
        _ => match parse(words) {
            Ok(asked) => part(store, &asked, room),
            Err(reply) => Ok(reply),
        },
    };
    reply.unwrap_or_else(|error| Reply::failed(&error))
}

fn part(store: &Store, asked: &Scan<'_>, room: &mut Room) -> Result<Reply, StoreError> {
    let from = Cursor { level: asked.from.level.max(SNAPSHOT_LEVEL), ..asked.from };
    let ((low, high), next) = from.step();
    let rows = Rows { low, high, has_values: false };
    let is_wanted = |cell: &BackupEntry| {
        asked.wants(cell.kind) && asked.pattern.is_none_or(|pattern| glob::matches(pattern, &cell.key))
    };
    let next = next.map(|next| Cursor { level: asked.from.level, ..next });
    Ok(page(next, names(store, rows, room, is_wanted)?))
}

fn count(store: &Store, rows: Rows, room: &mut Room) -> Result<i64, StoreError> {
    scan::scan(store, rows, room, |count: &mut i64, _, cells| {
        *count += cells.iter().filter(|cell| cell.table == TABLE).count() as i64;
        Ok(())
    })
}

fn names(
    store: &Store,
    rows: Rows,
    room: &mut Room,
    is_wanted: impl Fn(&BackupEntry) -> bool,
) -> Result<Vec<Reply>, StoreError> {
    scan::scan(store, rows, room, |names: &mut Vec<Reply>, room, cells| {
        for cell in cells.into_iter().filter(|cell| cell.table == TABLE && is_wanted(cell)) {
            let name = Reply::Bulk(cell.key);
            room.take(name.held())?;
            names.push(name);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_comes_back_and_any_number_is_one() {
        for number in [0, 1, 1 << 47, (1 << 48) + 5, u64::from(LEVEL_MAX) << 48 | 7] {
            assert_eq!(Cursor::of(number).number(), number);
        }
        assert_eq!(Cursor::of(u64::MAX).level, LEVEL_MAX);
    }

    #[test]
    fn steps_of_every_level_cover_the_table_without_a_gap() {
        let (low, high) = rows::range(TABLE);
        for level in LEVEL_MAX - 4..=LEVEL_MAX {
            let (mut next, mut at) = (Some(Cursor { place: 0, level }), low);
            while let Some(cursor) = next {
                let ((from, to), behind) = cursor.step();
                assert!(from == at && to >= from, "{cursor:?}");
                (at, next) = (to + 1, behind);
            }
            assert_eq!(at, high + 1);
        }
        let behind = Cursor { place: 5, level: 0 }.step().1.expect("more");
        assert!(behind.number() > 0, "0 is the end");
    }
}
