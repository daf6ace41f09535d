//! Both tables against a plain map, then against threads.

use std::collections::BTreeMap;

use highwire_stdx::Rng;

use super::*;
use crate::id::NodeId;

fn txid(sequence: u64) -> Txid {
    Txid { node: NodeId(3), worker: 9, sequence }
}

fn both(rows_max: usize) -> [Table; 2] {
    [Table::Hash(Box::new(HashTable::new(rows_max))), Table::Ordered(OrderedTable::new(rows_max))]
}

#[test]
fn tables_do_what_a_map_does() {
    let steps = if cfg!(miri) { 400 } else { 40_000 };
    for (seed, table) in (0..6).flat_map(|seed| both(4096).map(|table| (seed, table))) {
        let mut rng = Rng::new(seed);
        let mut model: BTreeMap<Key, Row> = BTreeMap::new();
        for step in 0..steps {
            let key = rng.below(300);
            let me = txid(rng.below(3));
            let row = model.get(&key).cloned().unwrap_or_default();
            let held = row.owner.is_some_and(|owner| owner != me);
            match rng.below(5) {
                0 => assert_eq!(table.row(key), row, "seed {seed} step {step}"),
                1 | 2 => {
                    let mode = *rng.pick(&[Mode::Insert, Mode::Update, Mode::Delete]);
                    let expected = if held {
                        Lock::Held
                    } else if let Some(refused) = refusal(mode, row.value.is_some()) {
                        refused
                    } else {
                        Lock::Granted(Row { owner: Some(me), ..row.clone() })
                    };
                    assert_eq!(table.lock(key, me, mode), expected, "seed {seed} step {step}");
                    if let Lock::Granted(row) = expected {
                        model.insert(key, row);
                    }
                }
                3 => {
                    assert_eq!(table.unlock(key, me), row.owner == Some(me), "seed {seed} step {step}");
                    if row.owner == Some(me) {
                        model.insert(key, Row { owner: None, ..row });
                    }
                }
                _ => {
                    let version = row.version + rng.below(2);
                    let mut bytes = vec![0; rng.below(600) as usize * 7 % 4061];
                    rng.fill(&mut bytes);
                    let value = rng.chance(0.7).then_some(bytes);
                    let newer = version > row.version;
                    assert_eq!(table.apply(key, version, value.as_deref(), me), newer);
                    let mut row = if newer { Row { version, value, ..row } } else { row };
                    row.owner = row.owner.filter(|&owner| owner != me);
                    model.insert(key, row);
                }
            }
        }
        assert_eq!(table.locks(), model.values().filter(|row| row.owner.is_some()).count());
        assert_eq!(pages(&table), committed(&model));
        for (&key, row) in &model {
            assert_eq!(table.version(key), (row.version, row.owner.is_some()));
        }
        table.release_locks();
        assert_eq!(table.locks(), 0);
        assert_eq!(pages(&table), committed(&model));
    }
}

fn pages(table: &Table) -> BTreeMap<Key, (Version, Option<Vec<u8>>)> {
    let short = pages_of(table, 50);
    assert_eq!(short, pages_of(table, usize::MAX));
    short
}

fn pages_of(table: &Table, bytes_max: usize) -> BTreeMap<Key, (Version, Option<Vec<u8>>)> {
    let (mut all, mut cursor) = (BTreeMap::new(), Some(0));
    while let Some(from) = cursor {
        let (entries, next) = table.page(from, 10, bytes_max);
        for entry in entries {
            assert!(all.insert(entry.key, (entry.version, entry.value)).is_none(), "a key came twice");
        }
        cursor = next;
    }
    all
}

fn committed(model: &BTreeMap<Key, Row>) -> BTreeMap<Key, (Version, Option<Vec<u8>>)> {
    let written = model.iter().filter(|(_, row)| row.version > 0);
    written.map(|(&key, row)| (key, (row.version, row.value.clone()))).collect()
}

#[test]
fn long_rows_make_a_page_and_a_range_shorter() {
    let table = OrderedTable::new(100);
    for key in 0..9 {
        assert!(table.apply(key, 1, Some(&[7; 1 << 20]), txid(0)));
    }
    assert_eq!(table.scan(0, 7, 100, txid(0)).map(|rows| rows.len()), Ok(8));
    assert_eq!(table.scan(0, 8, 100, txid(0)), Err(ScanError::TooLong));
    let table = Table::Ordered(table);
    let (entries, next) = table.page(2, 256, 3 << 20);
    assert_eq!((entries.len(), next), (3, Some(5)));
}

#[test]
fn a_full_table_refuses_new_keys_and_takes_old_ones() {
    for table in both(5) {
        for key in 0..5 {
            assert!(table.apply(key, 1, Some(b"x"), txid(0)));
        }
        assert_eq!(table.lock(9, txid(1), Mode::Insert), Lock::Full);
        assert!(matches!(table.lock(4, txid(1), Mode::Update), Lock::Granted(_)));
    }
}

#[test]
fn a_lock_on_an_absent_key_leaves_nothing_behind() {
    for table in both(8) {
        for round in 0..100 {
            let granted = table.lock(round, txid(1), Mode::Insert);
            assert_eq!(granted, Lock::Granted(Row { owner: Some(txid(1)), ..Row::default() }));
            assert!(table.unlock(round, txid(1)));
            assert_eq!(table.row(round), Row::default());
        }
    }
}

#[test]
fn versions_survive_deletion() {
    for table in both(8) {
        table.apply(7, 5, Some(b"five"), txid(0));
        table.apply(7, 6, None, txid(0));
        assert_eq!(table.row(7), Row { version: 6, ..Row::default() });
        assert!(!table.apply(7, 5, Some(b"five"), txid(0)), "an old record came back to life");
    }
}

fn tombstones(table: &Table) -> Vec<(Key, Version)> {
    let (mut all, mut cursor) = (Vec::new(), Some(0));
    while let Some(from) = cursor {
        let (found, next) = table.tombstones(from, 2);
        all.extend(found);
        cursor = next;
    }
    all.sort_unstable();
    all
}

#[test]
fn a_key_that_was_reclaimed_goes_on_above_the_floor() {
    for table in both(8) {
        for key in 0..4 {
            table.apply(key, key + 1, Some(b"there"), txid(0));
        }
        table.apply(2, 4, None, txid(0));
        table.apply(3, 5, None, txid(0));
        assert_eq!(table.usage(), Usage { live: 2, tombstones: 2 });
        assert_eq!(tombstones(&table), [(2, 4), (3, 5)]);
        table.lock(7, txid(1), Mode::Insert);
        table.raise(5);
        assert!(!table.is_drained(5) && table.is_drained(0), "a lock of a lower floor is held");
        assert_eq!(table.row(6).version, 5);
        assert!(table.unlock(7, txid(1)) && table.is_drained(5));
        // Locked rows, rows of other versions and rows with values stay.
        assert!(!table.seize(2, 3, txid(9)) && !table.seize(0, 1, txid(9)) && !table.seize(6, 5, txid(9)));
        assert!(table.seize(2, 4, txid(9)) && !table.seize(2, 4, txid(9)));
        assert_eq!(table.lock(2, txid(1), Mode::Insert), Lock::Held);
        assert_eq!(tombstones(&table), [(3, 5)]);
        assert!(!table.is_reclaimed(6, 5), "nothing is reclaimed before it is said");
        table.reclaim(&[(2, 4), (3, 4), (0, 1), (6, 5)], 5);
        assert_eq!(table.usage(), Usage { live: 2, tombstones: 1 });
        assert!(table.is_reclaimed(2, 5) && !table.is_reclaimed(2, 6) && !table.is_reclaimed(3, 5));
        assert!(!table.is_reclaimed(0, 1), "it is there");
        assert_eq!(table.version(2), (5, false));
        let Lock::Granted(row) = table.lock(2, txid(1), Mode::Insert) else { panic!("it is free") };
        assert_eq!((row.version, row.value), (5, None));
        assert_eq!(table.locks(), 1);
        assert!(table.apply(2, 6, Some(b"again"), txid(1)));
        table.drop_reclaimed();
        assert_eq!(table.usage(), Usage { live: 3, tombstones: 0 });
        assert_eq!((table.locks(), table.floors()), (0, Floors { absent: 5, reclaimed: 5 }));
        assert!(table.set_reclaimed(9) && !table.set_reclaimed(8));
        assert_eq!(table.row(3).version, 9);
    }
}

#[test]
fn tombstones_do_not_make_a_table_full_of_keys() {
    for table in both(5) {
        for key in 0..5 {
            table.apply(key, 1, Some(b"x"), txid(0));
        }
        assert_eq!(table.lock(9, txid(1), Mode::Insert), Lock::Full);
        for key in 0..5 {
            table.apply(key, 2, None, txid(0));
            assert!(matches!(table.lock(10 + key, txid(1), Mode::Insert), Lock::Granted(_)));
            table.apply(10 + key, 1, Some(b"x"), txid(1));
        }
        assert_eq!(table.usage(), Usage { live: 5, tombstones: 5 });
        table.apply(10, 2, None, txid(0));
        assert_eq!(table.lock(20, txid(1), Mode::Insert), Lock::Held, "first tombstones must go");
        table.reclaim(&[(0, 2)], 2);
        assert!(matches!(table.lock(20, txid(1), Mode::Insert), Lock::Granted(_)));
        assert_eq!(table.lock(1, txid(1), Mode::Insert), Lock::Full, "a deleted key takes a place, too");
    }
}

#[test]
fn a_range_shows_rows_deletions_and_locks() {
    let table = OrderedTable::new(100);
    for key in [1, 3, 5, 7] {
        table.apply(key, key, Some(&[key as u8]), txid(0));
    }
    table.apply(5, 6, None, txid(0));
    let versions =
        |rows: Vec<RangeRow>| rows.into_iter().map(|row| (row.key, row.version)).collect::<Vec<_>>();
    assert_eq!(versions(table.scan(2, 7, 9, txid(2)).unwrap()), [(3, 3), (5, 6), (7, 7)]);
    assert_eq!(table.scan(2, 7, 2, txid(2)), Err(ScanError::TooLong));
    assert_eq!(table.scan(7, 2, 9, txid(2)), Ok(vec![]));
    table.lock(4, txid(1), Mode::Insert);
    assert_eq!(table.scan(2, 7, 9, txid(2)), Err(ScanError::Locked));
    assert!(table.scan(5, 7, 9, txid(2)).is_ok());
    assert_eq!(versions(table.scan(2, 7, 9, txid(1)).unwrap()), [(3, 3), (5, 6), (7, 7)], "its own lock");
}

/// Threads lock, write both halves of a value and unlock; readers must never see halves that differ, nor a version that goes back.
#[test]
fn threads_see_whole_values_and_growing_versions() {
    let rounds = if cfg!(miri) { 30 } else { 20_000 };
    for table in both(64) {
        std::thread::scope(|scope| {
            for thread in 0..2u64 {
                let table = &table;
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    let mut seen = [0; 12];
                    for round in 0..rounds {
                        let me = txid(round * 2 + thread);
                        let key = rng.below(12);
                        let row = table.row(key);
                        check_whole(&row);
                        assert!(row.version >= seen[key as usize]);
                        seen[key as usize] = row.version;
                        let mode = if row.value.is_some() { Mode::Update } else { Mode::Insert };
                        if let Lock::Granted(row) = table.lock(key, me, mode) {
                            check_whole(&row);
                            let mut value = vec![thread as u8 + 1; rng.below(200) as usize * 2];
                            value.fill(rng.next_u32() as u8);
                            let value = rng.chance(0.9).then_some(value);
                            assert!(table.apply(key, row.version + 1, value.as_deref(), me));
                        }
                    }
                });
            }
        });
        assert_eq!(table.locks(), 0);
    }
}

fn check_whole(row: &Row) {
    if let Some(value) = &row.value {
        assert!(value.windows(2).all(|pair| pair[0] == pair[1]), "half a value");
    }
}
