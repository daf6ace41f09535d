//! Properties of turns that hold however slow the machine is: tests on one node, without a network.
//! `tests/bench.rs` has clusters.

use super::turn::Play;
use super::*;

#[test]
fn tables_have_room_for_whatever_their_benchmark_can_insert() {
    for benchmark in [
        Benchmark::Objects { keys: 1000, reads: 4, writes: 2 },
        Benchmark::Tatp { subscribers: 1000 },
        Benchmark::SmallBank { customers: 1000, hot: 40 },
        Benchmark::Ycsb { keys: 1000, operations: 4, mix: YcsbMix::A, theta: 0.5 },
    ] {
        let workload = benchmark.workload();
        let keys = benchmark.keys();
        assert_eq!(keys.len(), workload.tables().len(), "{benchmark:?}");
        let mut rows = vec![0; keys.len()];
        workload.rows().for_each(|row| rows[usize::from(row.table.0)] += 1);
        // A population is a random sample where a benchmark draws its kinds.
        assert!(rows.iter().zip(&keys).all(|(rows, keys)| *rows <= keys * 11 / 10), "{rows:?} {keys:?}");
    }
}

const SECOND: u64 = 1_000_000_000;

fn open_loop(rate: f64) -> Play {
    let turn = Turn {
        benchmark: Benchmark::SmallBank { customers: 10, hot: 5 },
        seed: 3,
        workers: 1,
        length_ns: SECOND,
        transactions: u64::MAX,
        rate: Some(rate),
        elsewhere: false,
    };
    let mut play = Play::new(&turn, 0).expect("bounds");
    play.began_ns = 7 * SECOND;
    play
}

#[test]
fn transactions_of_an_open_loop_begin_when_they_should_whoever_is_late() {
    let mut prompt = open_loop(1000.0);
    let mut times = vec![7 * SECOND];
    while let Some(arrival) = prompt.next(*times.last().expect("one")) {
        times.push(arrival.at_ns);
    }
    let mut late = open_loop(1000.0);
    let late: Vec<u64> = std::iter::from_fn(|| late.next(8 * SECOND)).map(|arrival| arrival.at_ns).collect();
    assert_eq!(times[1..], late);
    assert!((850..1150).contains(&late.len()), "{}", late.len());
    // In a Poisson process the gaps' standard deviation equals their mean.
    let gaps: Vec<f64> = times.windows(2).map(|pair| (pair[1] - pair[0]) as f64).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|gap| (gap - mean) * (gap - mean)).sum::<f64>() / gaps.len() as f64;
    assert!((0.8..1.2).contains(&(variance.sqrt() / mean)), "{mean} {variance}");
}

#[test]
fn a_latency_counts_from_when_the_transaction_should_have_begun() {
    let mut play = open_loop(1000.0);
    let arrival = play.next(7 * SECOND).expect("one");
    play.ended(arrival.at_ns, arrival.at_ns + SECOND);
    assert!(play.latencies.max().abs_diff(SECOND) < SECOND / 500);
    assert_eq!(play.report.behind, 1, "it ended after no more began");
}

#[test]
fn transactions_that_never_begin_are_counted() {
    let all = std::iter::from_fn({
        let mut play = open_loop(1000.0);
        move || play.next(8 * SECOND)
    });
    let all = all.count() as u64;
    let mut hopeless = open_loop(1000.0);
    for _ in 0..10 {
        assert!(hopeless.next(8 * SECOND).is_some());
    }
    assert!(hopeless.next(9 * SECOND + 1).is_none());
    assert_eq!(hopeless.report.never, all - 10);
}
