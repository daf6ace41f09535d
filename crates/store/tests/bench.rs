//! Small benchmarks by nodes' own workers: properties that hold however slow the machine is.

mod common;

use common::Cluster;
use highwire_store::bench::{Audit, Benchmark, Turn, TurnReport, YcsbMix};

/// Leases are long enough for a machine whose cores are busy: a new configuration would end attempts and
/// spoil the counts.
const COPIES: &str = "f = 2\nlease_ms = 60000\nregions = 12\nworkers = 8";

/// Transactions of each node.
const EACH: u64 = 250;

fn turn(benchmark: Benchmark, workers: u16, transactions: u64) -> Turn {
    Turn {
        benchmark,
        seed: 5,
        workers,
        length_ns: 3_600_000_000_000,
        transactions,
        rate: None,
        elsewhere: false,
    }
}

/// Lets all nodes play at the same time.
fn play(cluster: &Cluster, turn: &Turn) -> Vec<TurnReport> {
    std::thread::scope(|scope| {
        let play =
            |engine| scope.spawn(move || highwire_store::Engine::store(engine).play(turn).expect("played"));
        let threads: Vec<_> = cluster.engines().iter().map(play).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    })
}

fn populated(nodes: usize, more: &str, benchmark: Benchmark) -> Cluster {
    let cluster = Cluster::of_benchmark(nodes, more, benchmark);
    for engine in cluster.engines() {
        let population = engine.store().populate(benchmark).expect("populated");
        assert!(population.copies > 0 && population.copies <= population.rows);
        assert!(population.table_bytes > population.copies * 48);
    }
    cluster
}

/// The sum of all primaries' balances; asserts that copies are equal and no lock is left.
fn audit(cluster: &Cluster, benchmark: Benchmark) -> i64 {
    let audits: Vec<Audit> =
        cluster.engines().iter().map(|engine| engine.store().audit(benchmark).expect("audited")).collect();
    for audit in &audits {
        assert_eq!(audit.locks, 0);
        for (region, digest) in &audit.digests {
            let others = audits.iter().filter_map(|other| other.digests.get(region));
            assert!(others.clone().count() > 1, "region {region} has one copy");
            assert!(others.clone().all(|other| other == digest), "copies of region {region} differ");
        }
    }
    audits.iter().map(|audit| audit.balance).sum()
}

fn check(benchmark: Benchmark, expected_conflicts: bool) {
    let cluster = populated(3, COPIES, benchmark);
    let before = audit(&cluster, benchmark);
    let reports = play(&cluster, &turn(benchmark, 8, EACH));
    for (node, report) in reports.iter().enumerate() {
        let total = report.total();
        assert_eq!(report.failure, None);
        assert_eq!((total.begun, report.interrupted, report.unknown), (EACH, 0, 0), "node {node}");
        assert!(total.commits > 0, "node {node} has committed nothing");
        assert_eq!(total.commits + total.refusals + report.given_up, EACH, "node {node}");
        assert_eq!(report.requests, report.forecast, "node {node}");
        assert!(report.requests.total() > 0, "node {node} has asked nobody");
        let ended: u64 = report.latencies.iter().map(|(_, count)| count).sum();
        assert_eq!(ended, EACH, "node {node}");
    }
    let conflicts: u64 = reports.iter().map(|report| report.total().conflicts).sum();
    assert!(conflicts > 0 || !expected_conflicts, "nobody was in anybody's way, so this proves little");
    let made: i64 = reports.iter().map(|report| report.money).sum();
    assert_eq!(audit(&cluster, benchmark), before + made, "money was made or lost");
    if let Benchmark::SmallBank { customers, .. } = benchmark {
        assert_eq!(before, customers as i64 * 2_000_000);
        assert_ne!(made, 0);
    }
}

#[test]
fn tatp_takes_the_requests_of_the_formula_and_leaves_copies_equal() {
    check(Benchmark::Tatp { subscribers: 500 }, false);
}

#[test]
fn smallbank_takes_the_requests_of_the_formula_and_loses_no_money_with_a_small_hot_set() {
    check(Benchmark::SmallBank { customers: 500, hot: 3 }, true);
}

#[test]
fn objects_take_the_requests_of_the_formula() {
    check(Benchmark::Objects { keys: 1000, reads: 4, writes: 2 }, false);
}

#[test]
fn ycsb_takes_the_requests_of_the_formula() {
    check(Benchmark::Ycsb { keys: 500, operations: 4, mix: YcsbMix::F, theta: 0.9 }, true);
}

/// With more nodes than copies a coordinator can have none of its keys at home, as in the paper; and a
/// coordinator that works alone meets no conflict.
#[test]
fn objects_whose_keys_are_elsewhere_take_exactly_the_papers_requests() {
    let benchmark = Benchmark::Objects { keys: 2000, reads: 4, writes: 2 };
    let cluster = populated(4, COPIES, benchmark);
    let turn = Turn { elsewhere: true, ..turn(benchmark, 1, 100) };
    for engine in cluster.engines() {
        let report = engine.store().play(&turn).expect("played");
        assert_eq!((report.total().commits, report.total().conflicts), (100, 0));
        // r + (r − w) + f + w·f + w.
        assert_eq!(report.requests.total(), 100 * (4 + 2 + 2 + 2 * 2 + 2));
        assert_eq!(report.of_paper, report.requests.total());
    }
}

#[test]
fn what_an_open_loop_offers_does_not_depend_on_how_fast_the_nodes_are() {
    let benchmark = Benchmark::SmallBank { customers: 200, hot: 100 };
    let cluster = populated(3, COPIES, benchmark);
    let offered = |workers: u16, rate: f64| -> Vec<(u64, u64)> {
        let turn = Turn { rate: Some(rate), length_ns: 50_000_000, ..turn(benchmark, workers, u64::MAX) };
        let reports = play(&cluster, &turn);
        let counts = reports.iter().map(|report| {
            let begun = report.total().begun;
            assert!(report.behind <= begun);
            (begun + report.never, report.behind + report.never)
        });
        counts.collect()
    };
    let all = |counts: &[(u64, u64)]| counts.iter().map(|count| count.0).collect::<Vec<_>>();
    let (one, many) = (offered(1, 4000.0), offered(8, 4000.0));
    assert_eq!(all(&one), all(&many));
    assert!(all(&one).iter().all(|&count| (120..280).contains(&count)), "{one:?}");
    // Ten million a second are more than any node can do: the report says how many transactions the node
    // owes.
    let hopeless = offered(1, 1e7);
    assert!(
        hopeless.iter().all(|&(offered, behind)| offered > 400_000 && behind > offered / 2),
        "{hopeless:?}"
    );
}
