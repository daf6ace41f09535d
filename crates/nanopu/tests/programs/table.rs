//! The key-value store against a map in Rust.

use std::collections::BTreeMap;

use super::*;

const GET: u64 = 1;
const SET: u64 = 2;
const VALUE_WORDS: usize = 64;
const ITEMS: u64 = 12_288;

/// What a client's hash function might be.
fn hash(key: u64) -> u64 {
    let mixed = (key ^ key >> 31).wrapping_mul(0x7fb5_d329_728e_a185);
    (mixed ^ mixed >> 27).wrapping_mul(0x81da_def4_bc2d_d44d) ^ mixed >> 33
}

fn request(operation: u64, hash: u64, key: u64, value: Option<u64>) -> Vec<u64> {
    let value = value.into_iter().flat_map(|first| (first..).take(VALUE_WORDS));
    [operation, hash, key, !key].into_iter().chain(value).collect()
}

fn get(hash: u64, key: u64) -> Vec<u64> {
    request(GET, hash, key, None)
}

fn set(hash: u64, key: u64, value: u64) -> Vec<u64> {
    request(SET, hash, key, Some(value))
}

#[test]
fn the_store_holds_what_was_set_last() {
    let Some(mut testbed) = testbed(&["mica"], 1) else { return };
    let mut model = BTreeMap::new();
    let mut rng = Rng::new(5);
    for step in 0..600 {
        let key = rng.below(50);
        // Half of the keys share a bucket and a tag, so that chains and comparisons are used.
        let hash = if key.is_multiple_of(2) { 0x1234_0000_0000_0007 } else { hash(key) };
        if rng.chance(0.5) {
            assert_eq!(ask(&mut testbed, &set(hash, key, step)), [status::OK]);
            model.insert(key, step);
        } else {
            let answer = ask(&mut testbed, &get(hash, key));
            match model.get(&key) {
                None => assert_eq!(answer, [status::NOT_FOUND]),
                Some(&first) => {
                    assert_eq!((answer[0], answer.len()), (status::OK, 1 + VALUE_WORDS));
                    assert!((first..).zip(&answer[1..]).all(|(expected, &word)| expected == word));
                }
            }
        }
    }
    throw_garbage(&mut testbed, 6, 2);
}

#[test]
fn a_full_store_says_so_and_goes_on() {
    let Some(mut testbed) = testbed(&["mica"], 4) else { return };
    let requests = (0..ITEMS + 4).map(|key| {
        Request::of_words(testbed.cycle() + 2_000 + 300 * key, address(0), 0, &set(hash(key), key, key))
    });
    let requests: Vec<_> = requests.collect();
    let numbers: Vec<usize> = requests.into_iter().map(|request| testbed.send(request)).collect();
    testbed.run(300 * ITEMS + 60_000).expect("no trap");
    let statuses: Vec<u64> =
        numbers.iter().map(|&number| testbed.answer(number).expect("answered").words()[0]).collect();
    let full = statuses.iter().filter(|&&status| status == status::FULL).count();
    assert_eq!(full, 4, "as many as there is no room for");
    // Overwriting needs no room.
    let stored = statuses.iter().position(|&status| status == status::OK).expect("most") as u64;
    assert_eq!(ask(&mut testbed, &set(hash(stored), stored, 9)), [status::OK]);
    assert_eq!(ask(&mut testbed, &get(hash(stored), stored))[..2], [status::OK, 9]);
}

#[test]
fn four_cores_never_mix_values() {
    let Some(mut testbed) = testbed(&["mica"], 4) else { return };
    ask(&mut testbed, &set(hash(1), 1, 0));
    // All requests read and write the same value at once: an answer must be a value that one request wrote, whole.
    let start = testbed.cycle() + 1_000;
    let numbers: Vec<usize> = (0..200)
        .map(|i| {
            let words = if i % 2 == 0 { set(hash(1), 1, 1000 * i) } else { get(hash(1), 1) };
            testbed.send(Request::of_words(start + 90 * i, address(0), 0, &words))
        })
        .collect();
    testbed.run(100_000).expect("no trap");
    for number in numbers {
        let words = testbed.answer(number).expect("answered").words();
        assert_eq!(words[0], status::OK);
        let is_whole = words[1..].windows(2).all(|pair| pair[0] + 1 == pair[1]);
        assert!(is_whole && words.get(1).is_none_or(|first| first % 1000 == 0), "{words:?}");
    }
}

#[test]
fn each_core_has_its_own_context_if_the_client_chooses() {
    let Some(mut testbed) = testbed(&["mica_static"], 4) else { return };
    for context in 0..4 {
        let words = set(hash(9), 9 + u64::from(context), 5);
        let answer = testbed.call(address(0), context, &words, PATIENCE_CYCLES).expect("answered");
        assert_eq!(answer.words(), [status::OK]);
    }
    let absent = testbed.call(address(0), 4, &get(1, 1), 200_000);
    assert!(absent.is_err(), "there is no fifth");
}
