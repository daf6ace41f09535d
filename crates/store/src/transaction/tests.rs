//! Chains of rows: keys whose hashes collide, of short values and of long ones.

use crate::rows::SHORT_VALUE_BYTES_MAX;
use crate::{Client, ClusterConfig, Engine};
use std::net::TcpListener;
use std::path::PathBuf;

/// All keys of this table belong to one chain of rows.
const TABLE: &str = "collide";

/// A folder that is removed with the test.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A node of its own, and the folder of its register.
fn node(name: &str) -> (Engine, Client, Scratch) {
    // Process numbers are no names: what a process of the same number has left must not be found, nor that of another one disturbed.
    let fresh = crate::fresh_name().expect("random numbers");
    let folder = std::env::temp_dir().join(format!("highwire-{name}-{fresh}"));
    let port = TcpListener::bind("127.0.0.1:0").and_then(|holder| holder.local_addr()).expect("a port");
    let text = format!("f = 0\nregister = \"{}\"\n[[node]]\nid = 0\ndoor = \"{port}\"\n", folder.display());
    let engine = Engine::start(&ClusterConfig::parse(&text).expect("a cluster"), 0).expect("a node");
    (engine, Client::new([port.to_string()]), Scratch(folder))
}

#[test]
fn long_values_of_keys_whose_hashes_collide_have_rows_of_their_own() {
    let (engine, mut client, _folder) = node("long-chains");
    let value = |key: usize, turn: usize| vec![(key * 7 + turn) as u8; 5000 + 1000 * key + turn];
    for turn in 0..3 {
        // All in one transaction, then each by itself, the last one first.
        let put = client.transact(|transaction| {
            (0..6).for_each(|key| transaction.put(TABLE, key.to_string(), value(key, turn)));
            Ok(())
        });
        put.expect("stored");
        for key in (0..6).rev() {
            assert!(client.get(TABLE, key.to_string()) == Ok(Some(value(key, turn))), "key {key}");
        }
        assert_eq!(client.delete(TABLE, "2"), Ok(true));
        client.put(TABLE, "4", "short").expect("stored");
        client.put(TABLE, "2", value(2, 9)).expect("stored");
        assert!(client.get(TABLE, "2") == Ok(Some(value(2, 9))));
        for key in [0, 1, 3, 5] {
            assert!(client.get(TABLE, key.to_string()) == Ok(Some(value(key, turn))), "key {key}");
        }
    }
    engine.store().stop();
    engine.join().expect("no panic");
}

#[test]
fn keys_whose_hashes_collide_are_told_apart_in_a_chain_of_rows() {
    let (engine, mut client, _folder) = node("chains");
    let value = |key: usize, bytes: usize| vec![key as u8; bytes];
    // The first fits with others into a row, the next needs one of its own, and so on.
    let sizes: Vec<usize> =
        (0..20).map(|key| if key % 3 == 0 { 100 } else { SHORT_VALUE_BYTES_MAX }).collect();
    for (key, &bytes) in sizes.iter().enumerate() {
        client.put(TABLE, format!("{key}"), value(key, bytes)).expect("stored");
    }
    let check = |client: &mut Client, key: usize, bytes: Option<usize>| {
        let there = client.get(TABLE, format!("{key}")).expect("read");
        assert_eq!(there, bytes.map(|bytes| value(key, bytes)), "key {key}");
    };
    for (key, &bytes) in sizes.iter().enumerate() {
        check(&mut client, key, Some(bytes));
    }
    check(&mut client, 99, None);
    assert_eq!(client.scan(TABLE, "").expect("scanned").len(), 20);
    // After any removal, keys behind it in the chain are still found; keys that grow or are put again
    // exist once.
    for key in (0..20).step_by(2) {
        assert_eq!(client.delete(TABLE, format!("{key}")), Ok(true));
    }
    client.put(TABLE, "3", value(3, SHORT_VALUE_BYTES_MAX)).expect("stored");
    client.put(TABLE, "4", value(4, 7)).expect("stored");
    client.put(TABLE, "5", value(5, 1)).expect("stored");
    let now = |key: usize| match key {
        3 => Some(SHORT_VALUE_BYTES_MAX),
        4 => Some(7),
        5 => Some(1),
        key => (key % 2 == 1).then(|| sizes[key]),
    };
    for key in 0..20 {
        check(&mut client, key, now(key));
    }
    assert_eq!(client.scan(TABLE, "").expect("scanned").len(), 11);
    engine.store().stop();
    engine.join().expect("no panic");
}

/// An error of a transaction at a node, as of a command of the Redis door, is about what was there at one instant, or the body runs again.
#[test]
fn an_error_at_a_node_is_never_about_a_state_that_never_was() {
    let (engine, mut client, _folder) = node("torn-error");
    let patience = crate::engine::PATIENCE_NS;
    for fails in [true, false] {
        client
            .transact(|transaction| {
                ["a", "b"].iter().for_each(|key| transaction.put("t", key, "old"));
                Ok(())
            })
            .expect("stored");
        let torn = engine.store().run(move |local| async move {
            let mut runs = 0;
            let read = async |transaction: &mut crate::Transaction| {
                runs += 1;
                let a = transaction.get(b"t", b"a").await?;
                if runs == 1 {
                    let both = async |other: &mut crate::Transaction| {
                        for key in [b"a", b"b"] {
                            other.put(b"t", key, crate::rows::Kind::Bytes, b"new").await?;
                        }
                        Ok(())
                    };
                    local.transact(patience, both).await?;
                }
                let b = transaction.get(b"t", b"b").await?;
                match fails {
                    true => Err(crate::StoreError::Aborted(format!("{}", a == b)).into()),
                    false => Ok(a == b),
                }
            };
            let result = local.transact(patience, read).await;
            (result, runs)
        });
        let expected = if fails { Err(crate::StoreError::Aborted("true".into())) } else { Ok(true) };
        assert_eq!(torn, Ok((expected, 2)));
    }
    engine.store().stop();
    engine.join().expect("no panic");
}
