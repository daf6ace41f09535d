//! DBSIZE, KEYS and SCAN beside writers that never stop: their replies from a snapshot.

use super::keys::{Scan, parse_scan};
use super::reply::Reply;
use super::{TABLE, Words, glob, upper};
use crate::door::Room;
use crate::engine::Store;
use crate::error::StoreError;
use crate::rows::{self, BackupEntry};
use crate::scan::{self, Rows};

/// Whether a command reads many keys and writes none.
pub(super) fn is_scan(words: &Words) -> bool {
    matches!(&*upper(&words[0]), "DBSIZE" | "KEYS" | "SCAN")
}

/// The reply, from a snapshot. It blocks, and so has a thread for itself.
pub(super) fn from_snapshot(store: &Store, words: &Words, room: &mut Room) -> Reply {
    let (low, high) = rows::range(TABLE);
    let all = Rows { low, high, has_values: false };
    let reply = match &*upper(&words[0]) {
        "DBSIZE" => count(store, all, room).map(Reply::Integer),
        "KEYS" => names(store, all, room, |cell| glob::matches(&words[1], &cell.key)).map(Reply::Array),
        _ => match parse_scan(words) {
            Ok(asked) => part(store, &asked, room),
            Err(reply) => Ok(reply),
        },
    };
    reply.unwrap_or_else(|error| Reply::failed(&error))
}

fn part(store: &Store, asked: &Scan<'_>, room: &mut Room) -> Result<Reply, StoreError> {
    let rows = Rows { low: asked.low, high: asked.high, has_values: false };
    let is_wanted = |cell: &BackupEntry| {
        asked.wants(cell.kind) && asked.pattern.is_none_or(|pattern| glob::matches(pattern, &cell.key))
    };
    Ok(asked.reply(names(store, rows, room, is_wanted)?))
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
