//! Cores that share a word: a conditional store fails when another core has written in between.

use super::*;

#[test]
fn four_cores_count_together() {
    let Some(mut testbed) = testbed(&["counter"], 4) else { return };
    assert_eq!(ask(&mut testbed, &[0]), [status::OK, 0]);
    let start = testbed.cycle() + 1_000;
    let requests = (0..8).map(|_| Request::of_words(start, address(0), 0, &[300]));
    let first = testbed.requests();
    let times = testbed.play(requests.collect(), PATIENCE_CYCLES).expect("no trap");
    assert!(times.iter().all(Option::is_some));
    let behind: Vec<u64> =
        (first..first + 8).map(|number| testbed.answer(number).expect("answered").words()[1]).collect();
    assert_eq!(behind.iter().max(), Some(&2_400), "{behind:?}");
    assert_eq!(ask(&mut testbed, &[0]), [status::OK, 2_400]);
    assert_eq!(ask(&mut testbed, &[1, 2]), [status::MALFORMED]);
}
