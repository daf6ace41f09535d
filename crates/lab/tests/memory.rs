//! `highwire bench memory` counts what queue pairs take, and more where they are larger.

mod common;

use common::lab;
use serde_json::Value;

fn connected(sends: &str) -> Vec<(String, u64)> {
    let words = ["bench", "memory", "--queue-pairs", "200", "--receives", "16", "--json", "--sends", sends];
    let output = lab(words).output().expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).expect("a list");
    rows.iter()
        .map(|row| {
            let bytes = |key: &str| row[key].as_u64().expect("a number");
            // The kernel counts pages, and may take one back.
            assert!(bytes("used") + 64 >= bytes("connected"), "{row}");
            (row["place"].as_str().expect("a name").to_owned(), bytes("connected"))
        })
        .collect()
}

#[test]
fn a_queue_pair_with_more_places_takes_more_memory() {
    let (small, large) = (connected("16"), connected("512"));
    let places: Vec<&str> = small.iter().map(|(place, _)| place.as_str()).collect();
    assert_eq!(places, ["udp", "shared-memory", "simulator"]);
    for ((place, few), (_, many)) in small.iter().zip(&large) {
        // A hundred bytes of state at the very least, and no megabytes.
        assert!((100..1 << 20).contains(few), "{place}: {few}");
        // The simulator's queues grow with what is in them.
        assert!(
            if place == "simulator" { many + 256 >= *few } else { *many > few + 496 * 16 },
            "{place}: {few}, {many}"
        );
    }
}
