//! A process with devices forks: the parent's devices go on, no matter what the child does with its copies.
#![allow(unsafe_code)]

mod common;

use common::{End, Setup, next_ok};
use highwire_host::broker::Broker;
use highwire_host::verbs::{Operation, PostError, Recovery, RecvWr, SendWr, Service};
use highwire_host::{Device, DeviceConfig, Engine, LinkChoice, Sharing};
use highwire_link::shm::Registry;
use std::net::IpAddr;
use std::time::Duration;

fn converse(ends: &[End; 2], seed: u8) {
    let [a, b] = ends;
    let bytes = a.fill(0, 5000, seed);
    b.receive(1, 8192, 8192);
    a.post(2, Operation::Send, 0, 5000);
    next_ok(a, b);
    next_ok(b, a);
    assert_eq!(b.buffer.to_vec(8192, 5000), bytes);
    a.post(3, Operation::Write(b.buffer.remote(20_000)), 0, 5000);
    next_ok(a, b);
    assert_eq!(b.buffer.to_vec(20_000, 5000), bytes);
}

/// The files in the registry that belong to an address, which a fork must not change.
fn traces(registry: &Registry, address: IpAddr) -> Vec<String> {
    let mut names = Vec::new();
    let mut folders = vec![registry.root().to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a directory").flatten() {
            let path = entry.path();
            if path.to_string_lossy().contains(&address.to_string()) {
                names.push(path.display().to_string());
                folders.extend(path.is_dir().then_some(path));
            }
        }
    }
    names.sort();
    names
}

fn check(setup: &Setup) {
    let registry = Registry::open().expect("a registry");
    let mut ends = Some(setup.pair());
    let pair = ends.as_ref().expect("a pair");
    converse(pair, 1);
    let address = pair[0].device.gid().to_ip();
    let before = traces(&registry, address);
    // The device's own thread may hold any lock in the moment of a fork, so there are many.
    for seed in 2..22 {
        // SAFETY: the child only drops its objects and ends without returning, which needs no other thread.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the alarm kills a child that waits for ever, which the parent sees in its exit status.
            unsafe { libc::alarm(30) };
            drop(ends.take());
            // SAFETY: ends the child at once: nothing of the test harness may run in it.
            unsafe { libc::_exit(0) };
        }
        let mut status = 1;
        // SAFETY: the pointer is to a live local.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "{}: the child ends in order", setup.label());
        assert_eq!(traces(&registry, address), before, "{}", setup.label());
        converse(ends.as_ref().expect("the parent has them"), seed);
    }
    drop(ends);
}

#[test]
fn a_forked_child_takes_nothing_down() {
    for engine in [Engine::Inline, Engine::Both] {
        let setup = Setup::new(Service::Rc, LinkChoice::Auto).recovery(Recovery::Irn).engine(engine);
        check(&setup);
        let [.., c, d] = std::process::id().to_be_bytes();
        let address = IpAddr::from([127, 190, c, d.clamp(1, 254)]);
        let registry = Registry::open().expect("a registry");
        let broker = Broker::open(&registry, address).expect("an address").with_linger(Duration::ZERO);
        let broker = std::thread::spawn(move || broker.run().expect("serves"));
        let shared = DeviceConfig {
            address: Some(address),
            sharing: Sharing::Shared,
            engine,
            ..DeviceConfig::default()
        };
        let keeper = Device::open(&shared).expect("a part of the address");
        check(&Setup { config: shared, ..setup });
        drop(keeper);
        broker.join().expect("the broker ends by itself");
        assert!(traces(&registry, address).is_empty());
    }
}

#[test]
fn what_a_child_posts_is_refused_and_its_parent_loses_nothing() {
    for engine in [Engine::Inline, Engine::Both, Engine::Background] {
        let setup = Setup::new(Service::Rc, LinkChoice::Auto).engine(engine);
        let ends = setup.pair();
        converse(&ends, 1);
        let [a, b] = &ends;
        // A completion that waits, which a child's poll might take away.
        b.receive(5, 0, 64);
        a.post(6, Operation::Send, 0, 64);
        // SAFETY: the child posts, polls and ends without returning.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: the alarm kills a child that waits for ever, which the parent sees in its exit status.
            unsafe { libc::alarm(30) };
            let sges = [a.buffer.sge(0, 8)];
            let wr = SendWr::new(9, Operation::Send, &sges);
            let posted = a.qp.post_send(&[wr]).map_err(|error| (error.index, error.error));
            let received = b.qp.post_recv(&RecvWr { wr_id: 9, sges: &sges });
            let polled = (a.cq.poll_one(), b.cq.poll_one());
            let is_right = posted == Err((0, PostError::Inherited))
                && a.qp.post_inline(&wr, &[1]) == Err(PostError::Inherited)
                && received == Err(PostError::Inherited)
                && polled == (None, None)
                && a.cq.is_inherited();
            // SAFETY: ends the child at once: nothing of the test harness may run in it.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = 1;
        // SAFETY: the pointer is to a live local.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "{}: the child is refused", setup.label());
        assert_eq!((next_ok(a, b).wr_id, next_ok(b, a).wr_id), (6, 5));
        converse(&ends, 2);
    }
}
