//! RPC endpoints on simulated RNICs: the simulated arm of the storm, and tests that only a simulation can
//! run. Each seed runs twice.

#[path = "../../rpc/tests/common/storm.rs"]
mod storm;

use highwire_rpc::{CallError, RequestType};
use highwire_sim::fabric::{Span, Time};
use highwire_sim::rpc::{Cluster, ClusterConfig, Disturbance, Node, Running};
use highwire_stdx::Duration;
use storm::Storm;

const ECHO: RequestType = RequestType(1);
const ROUGH: Disturbance = Disturbance { loss: 0.08, duplication: 0.08, reordering: 0.1 };

fn cluster(nodes: u16, seed: u64, disturbance: Disturbance) -> Cluster {
    let config = ClusterConfig { disturbance, ..ClusterConfig::new(nodes, seed) };
    let mut cluster = Cluster::new(&config, move |config| config.slots = 2 + (seed % 7) as u16);
    for node in 0..nodes {
        serve(&mut cluster, Node(node));
    }
    cluster
}

fn serve(cluster: &mut Cluster, node: Node) {
    let registered =
        cluster.with(node, |e| e.register(ECHO, |request, response| response.write(request.bytes)));
    registered.expect("it runs");
}

fn call(cluster: &mut Cluster, from: u16, to: u16) -> Running<Result<Vec<u8>, CallError>> {
    let spawned = cluster.with(Node(from), |endpoint| {
        endpoint.spawn(
            move |worker| async move { worker.call(Node(to), ECHO, b"ping").await.map(|r| r.to_vec()) },
        )
    });
    spawned.expect("it runs").expect("room for a worker")
}

#[track_caller]
fn until<T>(cluster: &mut Cluster, running: &Running<T>) -> T {
    let is_over =
        cluster.run_until(Span::from_ms(30_000), || running.is_done()).expect("the fabric is sound");
    assert!(is_over, "nothing came for 30 s");
    running.take().expect("it is done")
}

fn storm(seed: u64) -> (u64, Time, u64) {
    let nodes = 3 + (seed % 3) as u16;
    let mut cluster = cluster(nodes, seed, ROUGH);
    let mut storm = Storm::new(nodes, 6, 4);
    for node in 0..nodes {
        cluster.with(Node(node), |endpoint| storm.prepare(endpoint)).expect("it runs");
    }
    let is_over = cluster.run_until(Span::from_ms(60_000), || storm.is_over()).expect("the fabric is sound");
    assert!(is_over, "seed {seed}: the storm does not end");
    let answered = storm.check(&format!("seed {seed}"));
    (cluster.fingerprint(), cluster.now(), answered)
}

#[test]
fn every_request_is_executed_once_whatever_the_fabric_does() {
    for seed in 0..12 {
        assert_eq!(storm(seed), storm(seed), "seed {seed} gave two runs");
    }
}

#[test]
fn an_idle_round_trip_takes_what_links_and_switch_take() {
    let mut cluster = cluster(2, 1, Disturbance::default());
    let hello = call(&mut cluster, 0, 1);
    assert_eq!(until(&mut cluster, &hello), Ok(b"ping".to_vec()));
    let before = cluster.now();
    let again = call(&mut cluster, 0, 1);
    cluster.run_for(Span::from_us(3)).expect("the fabric is sound");
    assert!(again.is_done(), "four links of half a microsecond: {:?}", cluster.now().since(before));
}

#[test]
fn a_way_that_is_cut_in_one_direction_fails_calls_in_both_and_heals() {
    let mut cluster = cluster(2, 1, Disturbance::default());
    let hello = call(&mut cluster, 0, 1);
    assert_eq!(until(&mut cluster, &hello), Ok(b"ping".to_vec()));
    cluster.cut(Node(1), Node(0), true);
    let there = call(&mut cluster, 0, 1);
    assert_eq!(until(&mut cluster, &there), Err(CallError::PeerSilent(Node(1))));
    let back = call(&mut cluster, 1, 0);
    assert_eq!(until(&mut cluster, &back), Err(CallError::PeerSilent(Node(0))));
    cluster.cut(Node(1), Node(0), false);
    for (from, to) in [(0, 1), (1, 0)] {
        let healed = call(&mut cluster, from, to);
        assert_eq!(until(&mut cluster, &healed), Ok(b"ping".to_vec()));
    }
}

#[test]
fn a_node_that_stops_and_starts_again_is_another_one() {
    let mut cluster = cluster(3, 5, Disturbance::default());
    let hello = call(&mut cluster, 0, 1);
    assert_eq!(until(&mut cluster, &hello), Ok(b"ping".to_vec()));
    cluster.stop(Node(1));
    let lost = call(&mut cluster, 0, 1);
    cluster.run_for(Span::from_ms(10)).expect("the fabric is sound");
    cluster.start(Node(1));
    serve(&mut cluster, Node(1));
    assert_eq!(until(&mut cluster, &lost), Err(CallError::PeerRestarted(Node(1))));
    for (from, to) in [(0, 1), (1, 0), (1, 2)] {
        let again = call(&mut cluster, from, to);
        assert_eq!(until(&mut cluster, &again), Ok(b"ping".to_vec()));
    }
}

#[test]
fn a_clock_that_runs_fast_sees_its_sleeps_end_early() {
    let mut cluster = cluster(2, 1, Disturbance::default());
    let mut ends = Vec::new();
    for (node, drift) in [(0, 100_000), (1, -100_000)] {
        cluster.set_drift(Node(node), drift);
        let slept = cluster.with(Node(node), |endpoint| {
            endpoint.spawn(|worker| async move { worker.sleep(Duration::from_millis(10)).await })
        });
        ends.push(slept.expect("it runs").expect("room for a worker"));
    }
    cluster.run_for(Span::from_us(9_200)).expect("the fabric is sound");
    assert_eq!([ends[0].is_done(), ends[1].is_done()], [true, false]);
    cluster.run_for(Span::from_us(2_000)).expect("the fabric is sound");
    assert!(ends[1].is_done());
}
