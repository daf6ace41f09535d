//! A journal read back: whole, cut at every byte, and damaged.

use std::collections::BTreeMap;

use highwire_txn::{
    Configuration, DiskOperation, Event, FileName, LoadError, Loaded, Mode, Node, NodeId, Settings, TableId,
    TableKind, load,
};

const ME: NodeId = NodeId(0);
const TABLE: TableId = TableId(0);

fn settings() -> Settings {
    Settings {
        f: 0,
        tables: vec![TableKind::Hash],
        rows_max: 1000,
        scan_rows_max: 10,
        workers: 1,
        lease_ns: 1_000_000,
        drift_ppm_max: 0,
        stuck_ns: 10_000_000,
        page_rows: 4,
        page_pause_ns: 0,
        part_bytes: 300,
        page_pause_times: 0,
        tombstones_max: 4096,
    }
}

type Files = BTreeMap<FileName, Vec<u8>>;

/// A cluster of one node, and its disk.
struct Single {
    node: Node,
    files: Files,
}

impl Single {
    fn new(checkpoint_bytes: u64) -> Single {
        let first = Configuration::first(&[ME], &[77], 2, 0);
        let mut node = Node::new(ME, 77, first, settings(), 1);
        node.keep_journal(&Loaded::default(), checkpoint_bytes);
        let mut single = Single { node, files: Files::new() };
        single.settle();
        single
    }

    /// Carries out the node's disk operations.
    fn settle(&mut self) {
        while let Some(operation) = self.node.poll_disk() {
            match operation {
                DiskOperation::Append { file, bytes } => self.files.entry(file).or_default().extend(bytes),
                DiskOperation::Sync { .. } => self.node.handle_synced(1),
                DiskOperation::Remove { file } => drop(self.files.remove(&file)),
            }
        }
    }

    /// Asks for a write; it commits when the disk has it.
    fn ask(&mut self, key: u64, mode: Mode) {
        self.node.begin(0).expect("idle");
        self.node.add_to_write_set(0, TABLE, key, mode).expect("in time");
        self.node.execute(1, 0).expect("in time");
        assert!(matches!(self.node.poll_event(), Some(Event::Executed { result: Ok(()), .. })));
        if mode != Mode::Delete {
            self.node.set_value(0, TABLE, key, &key.to_le_bytes()).expect("locked");
        }
        self.node.commit(1, 0).expect("in time");
    }

    fn write(&mut self, key: u64, mode: Mode) {
        self.ask(key, mode);
        assert_eq!(self.node.poll_event(), None, "it was committed before the disk had it");
        self.settle();
        assert!(matches!(self.node.poll_event(), Some(Event::Committed { .. })));
    }
}

/// The keys that a node finds on its disk.
fn keys(files: &Files) -> Result<Vec<u64>, LoadError> {
    let loaded = load(ME, files, &settings())?;
    let Some(memory) = loaded.memory else { return Ok(Vec::new()) };
    let node = Node::restart(ME, memory, settings(), 1);
    let tables = (0..2).filter_map(|region| node.store().table(highwire_txn::RegionId(region), TABLE));
    let entries = tables.flat_map(|table| table.page(0, usize::MAX, usize::MAX).0);
    let mut keys: Vec<u64> = entries.filter_map(|entry| entry.value.map(|_| entry.key)).collect();
    keys.sort_unstable();
    Ok(keys)
}

#[test]
fn a_commit_is_told_when_the_disk_has_it_and_not_before() {
    let mut single = Single::new(u64::MAX);
    for key in 0..20 {
        single.write(key, Mode::Insert);
    }
    single.write(7, Mode::Delete);
    let expected: Vec<u64> = (0..20).filter(|&key| key != 7).collect();
    assert_eq!(keys(&single.files), Ok(expected));
}

#[test]
fn a_log_that_ends_anywhere_gives_what_was_written_before() {
    let mut single = Single::new(u64::MAX);
    let mut lengths = Vec::new();
    for key in 0..6 {
        single.write(key, Mode::Insert);
        lengths.push(single.files[&FileName::Log(0)].len());
    }
    let whole = single.files[&FileName::Log(0)].clone();
    for end in 0..whole.len() {
        let files = Files::from([(FileName::Log(0), whole[..end].to_vec())]);
        let found = keys(&files).expect("an end is no damage");
        // A write is an entry before the end of its transaction.
        let told = lengths.iter().filter(|&&length| length <= end).count() as u64;
        assert!(
            found == (0..told).collect::<Vec<_>>() || found == (0..=told).collect::<Vec<_>>(),
            "{end}: {found:?}"
        );
    }
}

#[test]
fn damage_before_the_end_is_found_wherever_it_is() {
    let mut single = Single::new(u64::MAX);
    for key in 0..6 {
        single.write(key, Mode::Insert);
    }
    let whole = single.files[&FileName::Log(0)].clone();
    let all = keys(&single.files).expect("whole");
    let (mut refused, mut torn) = (0, 0);
    for place in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[place] ^= 0x10;
        match keys(&Files::from([(FileName::Log(0), bytes)])) {
            Err(LoadError::Damaged { file: FileName::Log(0), offset }) => {
                assert!(offset <= place as u64);
                refused += 1;
            }
            Err(error) => panic!("{error}"),
            // Only the last group may be dropped: no node was told of its entries.
            Ok(found) => {
                assert!(all.starts_with(&found) && found.len() + 1 >= all.len(), "{place}: {found:?}");
                torn += 1;
            }
        }
    }
    assert!(refused > torn && torn > 0, "{refused} {torn}");
}

/// Where each entry of a log lies, its number, and the number up to which entries were durable when it was written.
fn entries(log: &[u8]) -> Vec<(std::ops::Range<usize>, u64, u64)> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < log.len() {
        let length = u32::from_le_bytes(log[at..at + 4].try_into().expect("four bytes")) as usize;
        let long = |from: usize| u64::from_le_bytes(log[from..from + 8].try_into().expect("eight bytes"));
        found.push((at..at + 24 + length, long(at + 8), long(at + 16)));
        at += 24 + length;
    }
    found
}

/// The last entry that was durable for certain is known by the entries behind it only: none of it may be missing.
#[test]
fn the_loss_of_any_entry_that_a_later_one_knew_to_be_durable_is_found() {
    let mut single = Single::new(u64::MAX);
    for key in 0..6 {
        single.write(key, Mode::Insert);
    }
    let whole = single.files[&FileName::Log(0)].clone();
    let all = entries(&whole);
    let durable = all.last().expect("entries").2;
    assert!(all.iter().any(|entry| entry.1 + 1 == durable), "{all:?}");
    for (range, number, _) in &all {
        let mut bent = whole.clone();
        bent[range.end - 1] ^= 1;
        let mut cut = whole.clone();
        cut.drain(range.clone());
        for log in [bent, cut] {
            let found = keys(&Files::from([(FileName::Log(0), log)]));
            let is_refused = matches!(found, Err(LoadError::Damaged { file: FileName::Log(0), offset }) if offset == range.start as u64);
            assert_eq!(is_refused, *number < durable, "entry {number}, {durable} are durable: {found:?}");
        }
    }
}

#[test]
fn a_checkpoint_takes_the_place_of_the_log_before_it() {
    let mut single = Single::new(2000);
    for key in 0..200 {
        single.write(key, Mode::Insert);
    }
    assert!(!single.files.contains_key(&FileName::Log(0)), "{:?}", single.files.keys());
    let sizes: usize = single.files.values().map(Vec::len).sum();
    assert!(sizes < 40_000, "{sizes} bytes of files");
    assert_eq!(keys(&single.files), Ok((0..200).collect()));
    // Without its log and its checkpoint nothing is as it was, and that is not passed over.
    let is_log = |file: &FileName| matches!(file, FileName::Log(_));
    let logs: Files =
        single.files.iter().filter(|file| is_log(file.0)).map(|(f, b)| (*f, b.clone())).collect();
    assert_eq!(keys(&logs), Err(LoadError::NoBeginning { file: FileName::Log(0) }));
}

#[test]
fn a_node_whose_disk_failed_commits_nothing_and_says_nothing() {
    let mut single = Single::new(u64::MAX);
    single.write(1, Mode::Insert);
    single.ask(2, Mode::Insert);
    assert!(single.node.poll_disk().is_some(), "an append");
    single.node.handle_disk_failure();
    assert!(
        matches!(single.node.poll_event(), Some(Event::Unknown { .. })),
        "nobody knows what the disk has"
    );
    single.node.handle_synced(2);
    single.node.handle_timeout(1 << 40);
    assert!(single.node.begin(0).is_err());
    assert!(single.node.poll_event().is_none() && single.node.poll_request().is_none());
    assert!(single.node.poll_service().is_none() && single.node.poll_disk().is_none());
    assert_eq!(keys(&single.files), Ok(vec![1]));
}
