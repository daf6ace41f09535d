//! RPCs between two devices of one process, over both links, whole and disturbed by seed: the real arm of `highwire-rpc`'s scenarios.

#[path = "../../rpc/tests/common/storm.rs"]
mod storm;

use highwire_host::rpc::{CallError, Node, Optimisations, RequestType, Rpc, RpcConfig};
use highwire_host::{Device, DeviceConfig, Engine, FaultConfig, LinkChoice};
use std::time::{Duration, Instant};
use storm::Storm;

const ECHO: RequestType = RequestType(1);
/// Far longer than anything takes, even on a machine with other things to do.
const PATIENCE: Duration = Duration::from_secs(60);

fn rpc(
    node: u16,
    link: LinkChoice,
    engine: Engine,
    faults: Option<&str>,
    change: impl Fn(&mut RpcConfig),
) -> Rpc {
    let faults = faults.map(|text| text.parse::<FaultConfig>().expect("faults"));
    let config = DeviceConfig { link, engine, faults, ..DeviceConfig::default() };
    let device = Device::open(&config).expect("a device");
    let mut config = RpcConfig::new(Node(node));
    // A machine with other things to do leaves a thread alone for long.
    config.endpoint.failure_after = highwire_host::rpc::time::Duration::from_secs(60);
    change(&mut config);
    let mut rpc = Rpc::open(&device, config).expect("an endpoint");
    rpc.register(ECHO, |request, response| response.write(request.bytes));
    rpc
}

fn pair(link: LinkChoice, engine: Engine, faults: Option<&str>, change: impl Fn(&mut RpcConfig)) -> [Rpc; 2] {
    let [mut a, mut b] = [0, 1].map(|node| rpc(node, link, engine, faults, &change));
    let addresses = [a.address(), b.address()];
    a.connect(Node(1), &addresses[1]).expect("another node");
    b.connect(Node(0), &addresses[0]).expect("another node");
    [a, b]
}

#[track_caller]
fn until<T>(ends: &mut [Rpc; 2], mut is_done: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        ends.iter_mut().for_each(|end| {
            end.poll();
        });
        if let Some(value) = is_done() {
            return value;
        }
        assert!(
            Instant::now() < deadline,
            "waited too long: {:?}",
            ends.iter().map(|end| (end.counters(), end.driver_counters())).collect::<Vec<_>>()
        );
    }
}

#[test]
fn messages_of_every_length_come_back_over_both_links_and_by_every_engine() {
    for link in [LinkChoice::Shm, LinkChoice::Udp] {
        for engine in [Engine::Inline, Engine::Both, Engine::Background] {
            let mut ends = pair(link, engine, None, |_| {});
            let running = ends[0]
                .spawn(|worker| async move {
                    for length in [0usize, 1, 32, 235, 236, 237, 1000, 4060, 4076, 4077, 60_000] {
                        let bytes: Vec<u8> = (0..length).map(|i| (i * 13 + i / 256) as u8).collect();
                        let reply = worker.call(Node(1), ECHO, &bytes).await?;
                        assert!(*reply == *bytes, "{length} bytes");
                    }
                    Ok::<_, CallError>(())
                })
                .expect("room for a worker");
            assert_eq!(until(&mut ends, || running.take()), Ok(()), "over {link} by {engine}");
        }
    }
}

#[test]
fn every_optimisation_can_be_left_out() {
    let off = Optimisations {
        coalescing: false,
        response_batching: false,
        doorbell_batching: false,
        cheap_receives: false,
    };
    let mut seen = Vec::new();
    for optimisations in [off, Optimisations::default()] {
        let mut ends = pair(LinkChoice::Shm, Engine::Inline, None, |config| {
            config.endpoint.optimisations = optimisations;
        });
        let running = ends[0]
            .spawn(|worker| async move {
                for _ in 0..50 {
                    let mut batch = worker.batch();
                    (0..11u8).for_each(|i| {
                        batch.add(Node(1), ECHO, &[i; 32]);
                    });
                    let replies = batch.send().await;
                    assert!(replies.iter().enumerate().all(|(i, reply)| reply == Ok(&[i as u8; 32][..])));
                }
            })
            .expect("room for a worker");
        until(&mut ends, || running.take());
        let driver = ends[1].driver_counters();
        seen.push((ends[0].counters().request_datagrams, driver.receive_posts, driver.doorbells));
    }
    // One of each per request, and one of each per batch; the greeting and the answer to its challenge are two more. On a busy machine
    // the greeting is sent again.
    const GREETINGS: std::ops::Range<u64> = 2..20;
    for ((requests, receives, doorbells), expected) in seen.into_iter().zip([550, 50]) {
        assert_eq!(requests, expected);
        for count in [receives, doorbells] {
            assert!(GREETINGS.contains(&(count - expected)), "{count} for {expected} requests");
        }
    }
}

#[test]
fn every_request_is_executed_once_whatever_the_link_does() {
    for link in [LinkChoice::Shm, LinkChoice::Udp] {
        for seed in 1..4u64 {
            let faults = format!("loss=5%,duplicate=5%,reorder=10%,seed={seed}");
            let mut ends = pair(link, Engine::Inline, Some(&faults), |config| config.endpoint.slots = 6);
            let mut storm = Storm::new(2, 10, 10);
            ends.iter_mut().for_each(|end| storm.prepare(end));
            until(&mut ends, || storm.is_over().then_some(()));
            storm.check(&format!("{link}, {faults}"));
            let resent: u64 = ends.iter().map(|end| end.counters().resent).sum();
            assert!(resent > 0, "{link}, {faults}: nothing was lost");
        }
    }
}

#[test]
fn more_datagrams_than_receives_are_repaired() {
    let mut ends = pair(LinkChoice::Shm, Engine::Inline, None, |config| {
        (config.receives, config.endpoint.slots) = (4, 64);
    });
    let running: Vec<_> = (0..64u8)
        .map(|i| {
            let work = move |worker: highwire_host::rpc::Worker| async move {
                worker.call(Node(1), ECHO, &[i]).await.map(|reply| reply[0])
            };
            ends[0].spawn(work).expect("room for a worker")
        })
        .collect();
    for (i, running) in running.iter().enumerate() {
        assert_eq!(until(&mut ends, || running.take()), Ok(i as u8));
    }
}
