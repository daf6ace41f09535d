//! One-sided operations against an array in Rust.

use super::*;

const READ: u64 = 1;
const WRITE: u64 = 2;
const CAS: u64 = 3;
const FETCH_ADD: u64 = 4;
const INDIRECT: u64 = 5;
const WORDS: u64 = 400_000;

/// The table as the program makes it.
fn table() -> Vec<u64> {
    (0..WORDS).map(|i| i * 154_321 % WORDS * 8).collect()
}

/// What an operation answers, and does to the table.
fn model(table: &mut [u64], words: &[u64]) -> Vec<u64> {
    let lengths = [0, 2, 3, 4, 3, 2];
    if words.is_empty() || lengths.get(words[0] as usize).is_none_or(|&length| length != words.len()) {
        return vec![status::MALFORMED];
    }
    let index =
        |address: u64| (address.is_multiple_of(8) && address / 8 < WORDS).then_some(address as usize / 8);
    let Some(i) = index(words[1]) else { return vec![status::BAD_ADDRESS] };
    let before = table[i];
    match words[0] {
        WRITE => {
            table[i] = words[2];
            return vec![status::OK];
        }
        FETCH_ADD => table[i] = before.wrapping_add(words[2]),
        CAS if before == words[2] => table[i] = words[3],
        INDIRECT => {
            return index(before).map_or(vec![status::BAD_ADDRESS], |i| vec![status::OK, table[i]]);
        }
        _ => {}
    }
    vec![status::OK, before]
}

#[test]
fn operations_do_to_the_table_what_they_say() {
    let Some(mut testbed) = testbed(&["onesided"], 1) else { return };
    let mut table = table();
    let mut rng = Rng::new(3);
    // Few words, so that operations meet, and some outside or askew.
    let addresses: Vec<u64> = (0..8)
        .map(|_| rng.below(WORDS) * 8)
        .chain([0, 8 * WORDS - 8, 8 * WORDS, u64::MAX, 4, 1 << 63])
        .collect();
    for _ in 0..600 {
        let address = *rng.pick(&addresses);
        let now = table.get(address as usize / 8).copied().unwrap_or(0);
        let operand = *rng.pick(&[rng.clone().next_u64(), now, 8, addresses[0]]);
        let mut words = vec![rng.below(7), address, operand, rng.next_u64()];
        words.truncate(match words[0] {
            _ if rng.chance(0.05) => rng.below(5) as usize,
            READ | INDIRECT => 2,
            WRITE | FETCH_ADD => 3,
            _ => 4,
        });
        assert_eq!(ask(&mut testbed, &words), model(&mut table, &words), "{words:?}");
    }
    throw_garbage(&mut testbed, 4, 5);
}

#[test]
fn the_client_measures_each_operation() {
    let Some(mut testbed) = testbed(&["onesided", "onesided_client"], 1) else { return };
    ask_node(&mut testbed, 0, &[READ, 0]);
    for operation in [READ, WRITE, CAS, FETCH_ADD, INDIRECT] {
        let answer = ask_node(&mut testbed, 1, &[address(0).into(), operation, 10, 77]);
        assert_eq!((answer[0], answer.len()), (status::OK, 11));
        // Never less than the links, and never much more than a miss or two besides.
        assert!(answer[1..].iter().all(|&cycles| (4 * LINK_CYCLES..2_000).contains(&cycles)), "{answer:?}");
    }
    for wrong in [[1, 0, 10, 1], [1, 6, 10, 1], [1, 1, 0, 1], [1, 1, 201, 1]] {
        assert_eq!(ask_node(&mut testbed, 1, &wrong), [status::MALFORMED]);
    }
    assert_eq!(ask_node(&mut testbed, 1, &[1, 2, 3]), [status::MALFORMED]);
    assert_eq!(ask_node(&mut testbed, 1, &[99, READ, 1, 1]), [status::NOT_FOUND], "nobody has that address");
    assert_eq!(ask_node(&mut testbed, 1, &[address(0).into(), READ, 1, 1])[0], status::OK);
}
