//! What a client's closure returns counts only if all that it read was true at one instant.

mod common;

use common::{Cluster, commit};
use highwire_store::{Client, ClientTransaction, StoreError};

/// Two keys that always have one value.
fn set(client: &mut Client, value: &str) {
    commit("both keys", || {
        client.transact(|transaction| {
            transaction.put("t", "a", value);
            transaction.put("t", "b", value);
            Ok(())
        })
    });
}

/// The way in which a closure asks a question about key `a` or `b`.
type Ask = fn(&mut ClientTransaction<'_>, &str) -> Result<Option<Vec<u8>>, StoreError>;

const WAYS: [(&str, Ask); 3] = [
    ("get", |transaction, key| transaction.get("t", key)),
    ("get_all", |transaction, key| {
        transaction.get_all(&[("t", key.as_bytes())]).map(|mut values| values.remove(0))
    }),
    ("scan", |transaction, key| {
        transaction.scan("t", key).map(|entries| entries.first().map(|entry| entry.value.clone()))
    }),
];

/// Runs a closure of two questions, between which both keys change in its first run. It returns what it has read, as a value or as an error.
fn read_torn(cluster: &Cluster, first: Ask, second: Ask, fails: bool) -> (Result<String, StoreError>, u32) {
    let (mut client, mut other) = (cluster.client(), cluster.client());
    set(&mut other, "old");
    let mut runs = 0;
    let result = client.transact(|transaction| {
        runs += 1;
        let a = first(transaction, "a")?.unwrap_or_default();
        if runs == 1 {
            set(&mut other, "new");
        }
        let b = second(transaction, "b")?.unwrap_or_default();
        let text = format!("{} {}", String::from_utf8_lossy(&a), String::from_utf8_lossy(&b));
        if fails { Err(StoreError::Aborted(text)) } else { Ok(text) }
    });
    (result, runs)
}

#[test]
fn a_read_only_transaction_of_two_questions_sees_one_instant() {
    let cluster = Cluster::start(3, "lease_ms = 2000");
    for (name, first) in WAYS {
        for (other_name, second) in WAYS {
            let (result, runs) = read_torn(&cluster, first, second, false);
            assert_eq!(result, Ok("new new".into()), "{name}, then {other_name}");
            assert!(runs > 1, "it saw a state that never was");
        }
    }
}

#[test]
fn an_error_about_a_state_that_never_was_is_never_returned() {
    let cluster = Cluster::start(3, "lease_ms = 2000");
    for (name, first) in WAYS {
        for (other_name, second) in WAYS {
            let (result, runs) = read_torn(&cluster, first, second, true);
            let expected = Err(StoreError::Aborted("new new".into()));
            assert_eq!(result, expected, "{name}, then {other_name}");
            assert!(runs > 1, "it saw a state that never was");
        }
    }
    assert_eq!(cluster.client().get("t", "a"), Ok(Some(b"new".to_vec())));
}

/// A write that the closure asked for is forgotten with its error, and does not stand in the way of the check.
#[test]
fn an_error_about_what_was_there_is_returned_at_once_and_nothing_is_written() {
    let cluster = Cluster::start(3, "lease_ms = 2000");
    let mut client = cluster.client();
    set(&mut client, "one");
    for questions in 0..3 {
        let mut runs = 0;
        let result: Result<(), StoreError> = client.transact(|transaction| {
            runs += 1;
            for key in ["a", "b"].iter().take(questions) {
                transaction.get("t", key)?;
            }
            transaction.put("t", "a", "two");
            transaction.put("t", vec![b'k'; 9999], "a key that is too long to be written");
            Err(StoreError::Aborted("enough".into()))
        });
        assert_eq!(result, Err(StoreError::Aborted("enough".into())));
        assert_eq!((runs, client.get("t", "a")), (1, Ok(Some(b"one".to_vec()))));
    }
}
