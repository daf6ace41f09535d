//! Keys that have expired and that nobody reads: each node looks for them in the regions whose primary it is, a bounded piece at a time,
//! and deletes them by transactions, as every reader would. So their rows are reclaimed as those of other deleted keys.
//!
//! What it sees while it looks is a hint: the transaction reads the rows again, and deletes what has expired then.

use crate::engine::PATIENCE_NS;
use crate::rows::Row;
use crate::session::{Local, ROWS};
use crate::transaction::Transaction;
use highwire_txn::{Key, Node, RegionId};

/// The pause between two pieces, and after a piece with many keys that had expired.
const PAUSE_NS: u64 = 100_000_000;
const SHORT_PAUSE_NS: u64 = 2_000_000;
/// Rows of a piece, and the bytes of their values after which it ends.
const PIECE_ROWS: usize = 1024;
const PIECE_BYTES: usize = 256 << 10;
/// So many rows of a piece with something that has expired are many.
const MANY: usize = PIECE_ROWS / 8;

/// Where the node looks next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Place {
    region: u16,
    cursor: u64,
}

/// Looks and deletes for as long as the node runs.
pub(crate) async fn run(local: Local) {
    let mut place = Place::default();
    loop {
        let mut found = Vec::new();
        if local.shared.wall.is_swept() {
            let now_ms = local.shared.wall.now_ms();
            (found, place) = look(&local.shared.node.borrow(), place, now_ms);
        }
        let pause_ns = if found.len() >= MANY { SHORT_PAUSE_NS } else { PAUSE_NS };
        if !found.is_empty() {
            // Whatever is in the way now, the same keys are found again in the next round.
            let purge = async |transaction: &mut Transaction| transaction.purge(&found).await;
            let _ = local.transact(PATIENCE_NS, purge).await;
        }
        local.sleep_ns(pause_ns).await;
    }
}

/// One piece: rows with entries that have expired, and where the next piece begins.
fn look(node: &Node, place: Place, now_ms: u64) -> (Vec<Key>, Place) {
    let configuration = node.configuration();
    let regions = configuration.regions.len() as u16;
    let is_mine = |region: &u16| configuration.primary(RegionId(*region)) == node.id();
    let of = (place.region..regions).chain(0..place.region.min(regions)).find(is_mine);
    let Some(of) = of.filter(|_| node.is_open()) else { return (Vec::new(), Place::default()) };
    let cursor = if of == place.region { place.cursor } else { 0 };
    let behind = Place { region: (of + 1) % regions, cursor: 0 };
    let Some(table) = node.store().table(RegionId(of), ROWS) else { return (Vec::new(), behind) };
    let (entries, next) = table.page(cursor, PIECE_ROWS, PIECE_BYTES);
    let has_expired = |value: &[u8]| Row::parse(value).is_ok_and(|row| row.has_expired(now_ms));
    let expired = entries.iter().filter(|entry| entry.value.as_deref().is_some_and(has_expired));
    let found = expired.map(|entry| entry.key).take(PIECE_ROWS).collect();
    (found, next.map_or(behind, |cursor| Place { region: of, cursor }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::{Cell, KEYS_PER_RUN, Kind, Value};
    use highwire_txn::{Configuration, Event, Mode, NodeId};

    fn put(node: &mut Node, key: Key, expires: Option<u64>) {
        let cell = Cell {
            table: b"t".to_vec(),
            key: key.to_le_bytes().to_vec(),
            kind: Kind::Bytes,
            expires,
            value: Value::Short(vec![1]),
        };
        node.begin(0).expect("open");
        node.add_to_write_set(0, ROWS, key, Mode::Insert).expect("in time");
        node.execute(1, 0).expect("in time");
        let row = Row { overflows: false, cells: vec![cell] };
        node.set_value(0, ROWS, key, &row.to_bytes()).expect("locked");
        node.commit(1, 0).expect("in time");
        assert!(matches!(node.poll_event(), Some(Event::Executed { result: Ok(()), .. })));
        assert!(matches!(node.poll_event(), Some(Event::Committed { .. })));
    }

    /// A node of a cluster of one, whose rows lie in four regions.
    fn node() -> Node {
        let text = "f = 0\nregister = \"r\"\n[[node]]\nid = 0\ndoor = \"a:1\"\n";
        let settings = crate::ClusterConfig::parse(text).expect("a cluster").settings();
        Node::new(NodeId(0), 1, Configuration::first(&[NodeId(0)], &[1], 4, 0), settings, 1)
    }

    #[test]
    fn a_round_finds_every_row_that_has_expired_once_and_no_other() {
        let mut node = node();
        let keys = 4 * PIECE_ROWS as u64;
        // In a region of another number each.
        let place_of = |number: u64| number % 3 * KEYS_PER_RUN + number;
        let expires = |number: u64| [None, Some(10), Some(11), None, Some(9)][number as usize % 5];
        (0..keys).for_each(|number| put(&mut node, place_of(number), expires(number)));
        let mut place = Place::default();
        let (mut all, mut pieces) = (Vec::new(), 0);
        loop {
            let (found, next) = look(&node, place, 10);
            all.extend(found);
            (place, pieces) = (next, pieces + 1);
            if place == Place::default() {
                break;
            }
            assert!(pieces < 100, "a round ends");
        }
        all.sort_unstable();
        let mut expected: Vec<Key> =
            (0..keys).filter(|number| [1, 4].contains(&(number % 5))).map(place_of).collect();
        expected.sort_unstable();
        assert_eq!(all, expected);
        assert!(pieces >= 4, "{pieces}");
        // A place in a region that is no more.
        assert!(look(&node, Place { region: 9, cursor: 7 }, 0).1.region < 4);
    }
}
