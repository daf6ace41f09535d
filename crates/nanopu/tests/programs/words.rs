//! Stream and dot product: a word in, a word out or into the sum.

use highwire_nanopu::Mistake;
use highwire_nanopu::testbed::{Request, address};
use highwire_stdx::Rng;

use super::*;

#[test]
fn stream_adds_one_to_each_word() {
    let Some(mut testbed) = testbed(&["stream"], 1) else { return };
    let mut rng = Rng::new(1);
    for count in [0, 1, 2, 3, 4, 5, 15, 16, 17, 31, 64, 128, 255, 256] {
        let words: Vec<u64> = (0..count).map(|_| rng.next_u64()).chain([u64::MAX]).take(count).collect();
        let expected: Vec<u64> = words.iter().map(|word| word.wrapping_add(1)).collect();
        assert_eq!(ask(&mut testbed, &words), expected);
    }
    let odd = Request { sent: testbed.cycle(), node: address(0), context: 0, payload: vec![255; 11] };
    let number = testbed.send(odd);
    testbed.run(5_000).expect("no trap");
    let answer = testbed.answer(number).expect("answered");
    assert_eq!(answer.payload, [0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255]);
}

#[test]
fn both_dot_products_are_the_sum() {
    for name in ["dot", "dot_naive"] {
        let Some(mut testbed) = testbed(&[name], 1) else { return };
        let mut rng = Rng::new(2);
        for count in [0, 1, 2, 3, 4, 5, 7, 8, 25, 50, 255, 256] {
            let words: Vec<u64> = (0..count).map(|_| rng.next_u64()).collect();
            let weights = (0..count as u64).map(|i| 2 * i + 1);
            let sum = words
                .iter()
                .zip(weights)
                .fold(0u64, |sum, (word, weight)| sum.wrapping_add(word.wrapping_mul(weight)));
            assert_eq!(ask(&mut testbed, &words), [status::OK, sum], "{name}, {count} words");
        }
        let odd = Request { sent: testbed.cycle(), node: address(0), context: 0, payload: vec![1; 13] };
        let number = testbed.send(odd);
        testbed.run(5_000).expect("no trap");
        assert_eq!(testbed.answer(number).expect("answered").words(), [status::MALFORMED]);
        assert_eq!(testbed.node(0).misuse(0).count(Mistake::EmptyRead), 0);
    }
}
