//! Set intersection against sets in Rust, on one core and on four.

use std::collections::BTreeSet;

use super::*;

const APPEND: u64 = 1;
const INTERSECT: u64 = 2;
const ANSWER_MAX: usize = 250;

/// Appends in messages of at most 200 elements.
fn append(testbed: &mut Testbed, list: u64, elements: &[u64]) {
    for part in elements.chunks(200) {
        let words: Vec<u64> = [APPEND, list].into_iter().chain(part.iter().copied()).collect();
        assert_eq!(ask(testbed, &words), [status::OK]);
    }
}

/// What the lists' intersection answers.
fn model(lists: &[BTreeSet<u64>], terms: &[u64]) -> Vec<u64> {
    let common: Vec<u64> = lists[terms[0] as usize]
        .iter()
        .copied()
        .filter(|element| terms.iter().all(|&term| lists[term as usize].contains(element)))
        .collect();
    [status::OK, common.len() as u64].into_iter().chain(common.into_iter().take(ANSWER_MAX)).collect()
}

#[test]
fn intersections_are_those_of_the_sets() {
    for cores in [1, 4] {
        let Some(mut testbed) = testbed(&["intersection"], cores) else { return };
        let mut rng = Rng::new(10);
        // Full, empty, dense, sparse.
        let lists: Vec<BTreeSet<u64>> =
            [(900, 1000), (0, 1), (1, 5), (300, 1000), (60, 500), (900, 100_000), (250, 700)]
                .iter()
                .map(|&(count, below)| (0..count).map(|_| rng.below(below)).collect())
                .collect();
        for (number, list) in lists.iter().enumerate() {
            append(&mut testbed, number as u64, &list.iter().copied().collect::<Vec<_>>());
        }
        let queries: Vec<Vec<u64>> = (0..150)
            .map(|_| (0..rng.between(1, 8)).map(|_| rng.below(lists.len() as u64)).collect())
            .collect();
        // All at once, so that cores work side by side.
        let numbers: Vec<usize> = queries
            .iter()
            .map(|query| {
                let words: Vec<u64> = [INTERSECT].into_iter().chain(query.iter().copied()).collect();
                testbed.send(Request::of_words(testbed.cycle(), address(0), 0, &words))
            })
            .collect();
        let end = testbed.cycle() + PATIENCE_CYCLES;
        while numbers.iter().any(|&number| testbed.answer(number).is_none()) && testbed.cycle() < end {
            testbed.run(1_000).expect("no trap");
        }
        for (query, number) in queries.iter().zip(numbers) {
            let answer = testbed.answer(number).expect("answered").words();
            assert_eq!(answer, model(&lists, query), "{query:?} on {cores}");
        }
    }
}

#[test]
fn lists_take_only_what_ascends_and_fits() {
    let Some(mut testbed) = testbed(&["intersection"], 1) else { return };
    append(&mut testbed, 3, &[5, 8]);
    for wrong in [vec![8], vec![7], vec![9, 9], vec![10, 9]] {
        let words = [vec![APPEND, 3], wrong].concat();
        assert_eq!(ask(&mut testbed, &words), [status::MALFORMED]);
    }
    assert_eq!(ask(&mut testbed, &[INTERSECT, 3]), [status::OK, 2, 5, 8]);
    assert_eq!(ask(&mut testbed, &[APPEND, 256, 1]), [status::NOT_FOUND]);
    assert_eq!(ask(&mut testbed, &[INTERSECT, 3, 256]), [status::NOT_FOUND]);
    append(&mut testbed, 4, &(0..1024).collect::<Vec<_>>());
    assert_eq!(ask(&mut testbed, &[APPEND, 4, 5000]), [status::FULL]);
    for wrong in [vec![], vec![INTERSECT], vec![APPEND], vec![7, 1], vec![INTERSECT; 10]] {
        assert_eq!(ask(&mut testbed, &wrong), [status::MALFORMED], "{wrong:?}");
    }
    throw_garbage(&mut testbed, 11, 2);
}
