//! Keys that come and go for ever: their rows are reclaimed, on all copies, and what is there stays.

mod common;

use common::Cluster;
use highwire_store::StoreError;

/// Rows of a table in a region: some dozens of keys fill it.
const ROWS_MAX: usize = 40;

#[test]
fn many_times_more_keys_come_and_go_than_there_is_room_for() {
    let cluster = Cluster::start(3, &format!("lease_ms = 20000\nrows_max = {ROWS_MAX}\nregions = 2\n"));
    let mut client = cluster.client();
    client.put("stays", "key", "value").expect("stored");
    for number in 0..2000u32 {
        let (key, old) = (number.to_string(), number.wrapping_sub(5).to_string());
        client
            .transact(|transaction| {
                transaction.put("churn", &key, "value");
                transaction.delete("churn", &old);
                transaction.put("ordered.churn", &key, vec![1; 5000]);
                transaction.delete("ordered.churn", &old);
                Ok(())
            })
            .unwrap_or_else(|error| panic!("key {number}: {error}"));
    }
    assert_eq!(client.scan("churn", "").expect("scanned").len(), 5);
    assert_eq!(client.range("ordered.churn", "", None, 100).expect("a range").len(), 5);
    assert_eq!(client.get("stays", "key").expect("read").as_deref(), Some(&b"value"[..]));
    for number in [0, 1000] {
        assert_eq!(client.get("churn", number.to_string()), Ok(None));
    }
    for mut client in cluster.clients() {
        let status = client.status().expect("its status");
        assert_eq!(status.rows_max, ROWS_MAX as u64);
        // Three tables, two regions.
        assert!(status.tombstones <= 6 * (ROWS_MAX as u64 / 4 + 1), "{status:?}");
        assert!(status.fullest_percent < 80, "{status:?}");
    }
}

#[test]
fn a_store_that_is_full_of_keys_says_so_before_and_takes_new_ones_when_old_ones_go() {
    let cluster = Cluster::start(2, &format!("lease_ms = 20000\nrows_max = {ROWS_MAX}\nregions = 1\n"));
    let mut client = cluster.client();
    let fullest = |client: &mut highwire_store::Client| client.status().expect("its status").fullest_percent;
    let mut count = 0;
    let mut last = 0;
    let error = loop {
        match client.put("t", format!("{count}"), "v") {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
        let percent = fullest(&mut client);
        assert!(percent >= last);
        last = percent;
    };
    assert_eq!(error, StoreError::Full);
    assert_eq!((count, last), (ROWS_MAX, 100));
    for round in 0..3 * ROWS_MAX {
        assert!(client.delete("t", format!("{round}")).expect("deleted"));
        client.put("t", format!("{}", round + count), "v").expect("there is room for one");
    }
    assert_eq!(client.put("t", "one more", "v"), Err(StoreError::Full));
    assert_eq!(client.scan("t", "").expect("scanned").len(), ROWS_MAX);
}
