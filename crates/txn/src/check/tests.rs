//! Anomalies made by hand, each of which the checker must name, and histories that it must let pass.

use super::*;
use crate::id::{NodeId, TableId, Txid};

const X: u64 = 1;
const Y: u64 = 2;

/// A transaction over register keys: `(key, version)` read and written; a value is its version's.
fn transaction(sequence: u64, span: (u64, u64), reads: &[(u64, u64)], writes: &[(u64, u64)]) -> Transaction {
    let cell = |&(key, version): &(u64, u64)| Observation {
        table: TableId(0),
        key,
        version,
        value: (version > 0).then(|| vec![version as u8]),
    };
    Transaction {
        txid: Txid { node: NodeId(0), worker: 0, sequence },
        invoked_ns: span.0,
        completed_ns: Some(span.1),
        outcome: Outcome::Committed,
        reads: reads.iter().map(cell).collect(),
        writes: writes.iter().map(cell).collect(),
    }
}

fn history(transactions: Vec<Transaction>) -> History {
    History { transactions, ..History::default() }
}

fn check_for(transactions: Vec<Transaction>, expected: &str) {
    match super::check(&history(transactions)) {
        Ok(verdict) => panic!("passed: {verdict:?}, but expected {expected}"),
        Err(Anomaly(text)) => assert!(text.contains(expected), "{text}"),
    }
}

#[test]
fn a_serial_history_passes() {
    let verdict = super::check(&history(vec![
        transaction(1, (0, 1), &[(X, 0)], &[(X, 1)]),
        transaction(2, (2, 3), &[(X, 1), (Y, 0)], &[(Y, 1)]),
        transaction(3, (4, 5), &[(X, 1), (Y, 1)], &[]),
    ]));
    assert_eq!(verdict.map(|verdict| verdict.version_edges), Ok(3));
}

#[test]
fn concurrent_transactions_may_come_in_either_order() {
    let late = transaction(1, (0, 10), &[(X, 1)], &[]);
    let writer = transaction(2, (0, 5), &[(X, 0)], &[(X, 1)]);
    let early = transaction(3, (0, 10), &[(X, 0)], &[]);
    assert!(super::check(&history(vec![late, writer, early])).is_ok());
}

#[test]
fn a_stale_read_is_found_by_real_time() {
    let writer = transaction(1, (0, 1), &[(X, 0)], &[(X, 1)]);
    check_for(vec![writer, transaction(2, (2, 3), &[(X, 0)], &[])], "real time");
}

#[test]
fn a_lost_update_is_found() {
    let one = transaction(1, (0, 9), &[(X, 0)], &[(X, 1)]);
    check_for(vec![one, transaction(2, (0, 9), &[(X, 0)], &[(X, 1)])], "written twice");
}

#[test]
fn write_skew_is_found() {
    let one = transaction(1, (0, 9), &[(X, 0), (Y, 0)], &[(X, 1)]);
    check_for(vec![one, transaction(2, (0, 9), &[(X, 0), (Y, 0)], &[(Y, 1)])], "G2");
}

#[test]
fn a_skewed_read_is_found() {
    let writer = transaction(1, (0, 9), &[(X, 0), (Y, 0)], &[(X, 1), (Y, 1)]);
    check_for(vec![writer, transaction(2, (0, 9), &[(X, 1), (Y, 0)], &[])], "G-single");
}

#[test]
fn circular_information_is_found() {
    let one = transaction(1, (0, 9), &[(X, 0), (Y, 1)], &[(X, 1)]);
    check_for(vec![one, transaction(2, (0, 9), &[(Y, 0), (X, 1)], &[(Y, 1)])], "G");
    let reads = |key| [(key, 1)];
    let one = transaction(1, (0, 9), &reads(Y), &[(X, 1)]);
    check_for(vec![one, transaction(2, (0, 9), &reads(X), &[(Y, 1)])], "G1c");
}

#[test]
fn a_cycle_of_writes_is_found() {
    let one = transaction(1, (0, 9), &[], &[(X, 1), (Y, 2)]);
    check_for(vec![one, transaction(2, (0, 9), &[], &[(X, 2), (Y, 1)])], "G0");
}

#[test]
fn aborted_and_invented_values_are_found() {
    let mut aborted = transaction(1, (0, 1), &[(X, 0)], &[(X, 1)]);
    aborted.outcome = Outcome::Aborted;
    check_for(vec![aborted, transaction(2, (2, 3), &[(X, 1)], &[])], "nobody wrote");
    let mut reader = transaction(2, (2, 3), &[(X, 1)], &[]);
    reader.reads[0].value = Some(b"other".to_vec());
    check_for(vec![transaction(1, (0, 1), &[(X, 0)], &[(X, 1)]), reader], "never written");
}

#[test]
fn an_unknown_outcome_may_be_either_but_not_half() {
    let unknown = || {
        let mut unknown = transaction(1, (0, 1), &[(X, 0), (Y, 0)], &[(X, 1), (Y, 1)]);
        unknown.outcome = Outcome::Unknown;
        unknown.completed_ns = None;
        unknown
    };
    let both = |x, y| transaction(2, (2, 3), &[(X, x), (Y, y)], &[]);
    assert!(super::check(&history(vec![unknown(), both(0, 0)])).is_ok());
    assert!(super::check(&history(vec![unknown(), both(1, 1)])).is_ok());
    check_for(vec![unknown(), both(1, 0)], "G-single");
}

#[test]
fn an_insert_into_a_range_that_was_read_is_found() {
    // Two transactions see a range of two absent keys and insert one each.
    let one = transaction(1, (0, 9), &[(X, 0), (Y, 0)], &[(X, 1)]);
    let two = transaction(2, (0, 9), &[(X, 0), (Y, 0)], &[(Y, 1)]);
    check_for(vec![one, two], "anti-dependencies");
}

/// Transactions over a list, whose version numbers all lie.
fn append(sequence: u64, span: (u64, u64), read: &[u64], element: Option<u64>) -> Transaction {
    let bytes = |list: &[u64]| Some(list.iter().flat_map(|element| element.to_le_bytes()).collect());
    let cell = |version, list: &[u64]| Observation { table: TableId(7), key: X, version, value: bytes(list) };
    let longer: Vec<u64> = read.iter().copied().chain(element).collect();
    let mut transaction = transaction(sequence, span, &[], &[]);
    transaction.reads = vec![cell(0, read)];
    transaction.writes = element.map(|_| cell(sequence, &longer)).into_iter().collect();
    transaction
}

fn lists(transactions: Vec<Transaction>) -> Result<usize, Anomaly> {
    let history = History { transactions, lists: [TableId(7)].into() };
    let included = vec![true; history.transactions.len()];
    let mut graph = Graph::new(&history, &included);
    super::lists::add_edges(&history, &included, &mut graph)?;
    graph.find_cycle(&history, "lists")?;
    Ok(graph.dependencies())
}

#[test]
fn lists_are_a_witness_of_their_own() {
    let first = || append(1, (0, 1), &[], Some(11));
    let second = || append(2, (2, 3), &[11], Some(12));
    assert!(lists(vec![first(), second(), append(3, (4, 5), &[11, 12], None)]).is_ok());
    let fork = lists(vec![
        first(),
        append(2, (0, 9), &[], Some(12)),
        append(3, (4, 5), &[11], None),
        append(4, (4, 5), &[12], None),
    ]);
    assert!(fork.unwrap_err().0.contains("neither begins"));
    let stale =
        lists(vec![first(), second(), append(3, (4, 5), &[11], None), append(4, (6, 7), &[11, 12], None)]);
    assert!(stale.unwrap_err().0.contains("real time"));
    assert!(lists(vec![append(3, (4, 5), &[99], None)]).unwrap_err().0.contains("nobody appended"));
}

#[test]
fn of_several_that_may_have_made_a_version_any_may_be_the_one() {
    let unknown = |one: Transaction| Transaction { completed_ns: None, outcome: Outcome::Unknown, ..one };
    // Either of two transactions may have written X@1, and their writes look alike. The first cannot have: it
    // read Y before the writer of Y read X.
    let first = unknown(transaction(1, (0, 9), &[(X, 0), (Y, 0)], &[(X, 1)]));
    let second = unknown(transaction(2, (0, 9), &[(X, 0)], &[(X, 1)]));
    let writer = transaction(3, (0, 1), &[(X, 0), (Y, 0)], &[(Y, 1)]);
    let reader = transaction(4, (2, 3), &[(X, 1), (Y, 1)], &[]);
    let without = history(vec![first.clone(), writer.clone(), reader.clone()]);
    assert!(super::check(&without).is_err());
    assert!(super::check(&history(vec![first, second, writer, reader])).is_ok());
}
