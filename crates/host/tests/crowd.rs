//! Threads that poll in vain beside more neighbours than there are cores for.
#![allow(unsafe_code, reason = "it names a registry of its own by the environment")]

mod common;

use common::{End, Setup, until};
use highwire_host::LinkChoice;
use highwire_host::verbs::{Operation, RecvWr, SendWr, Service};

/// More neighbours than this, and a test would be about descriptors.
const CORES_MAX: usize = 64;

/// Connects one more queue pair of `a` with one of `b`, and sends a message, so that they have met.
fn meet(setup: &Setup, a: &End, b: &End) {
    let (here, there) = (setup.told(a, 1), setup.told(b, 1));
    setup.join(&here.qp, &there.qp);
    there.qp.post_recv(&RecvWr { wr_id: 1, sges: &[] }).expect("posts");
    let wr = SendWr::new(1, Operation::Send, &[]);
    here.qp.post_send(&[wr]).expect("posts");
    until("the message", || there.cq.poll_one());
    until("its completion", || here.cq.poll_one());
}

#[test]
fn a_thread_that_polls_gives_its_core_away_only_among_too_many_neighbours() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if cores > CORES_MAX {
        println!("skipped: this machine has {cores} cores, and so many devices are not opened here");
        return;
    }
    // Threads of other programs that poll on this core would be company, so this test has a registry of its own.
    let registry = std::path::PathBuf::from(format!("/dev/shm/highwire-crowd-{}", std::process::id()));
    // SAFETY: no other thread of this program looks at its environment yet.
    unsafe { std::env::set_var("HIGHWIRE_SHM_DIR", &registry) };
    let setup = Setup::new(Service::Rc, LinkChoice::Auto);
    let end = setup.end();
    let figure = |name| end.device.counters().value(name);
    let gave_way = || {
        for _ in 0..1000 {
            assert!(end.cq.poll_one().is_none());
        }
        figure("gave_way")
    };
    // The first round may have begun before the latest neighbour came.
    let until_counted = || {
        let seen = figure("housekeeping") + 2;
        until("housekeeping", || {
            gave_way();
            (figure("housekeeping") >= seen).then_some(())
        });
    };
    meet(&setup, &end, &end);
    until_counted();
    assert_eq!(gave_way(), 0, "the device itself is no neighbour");
    let others: Vec<End> = (0..cores).map(|_| setup.end()).collect();
    for other in &others[1..] {
        meet(&setup, &end, other);
    }
    until_counted();
    assert_eq!(gave_way(), 0, "there is a core for each");
    meet(&setup, &end, &others[0]);
    until("a core given away", || (gave_way() > 0).then_some(()));
    drop((others, end));
    let _ = std::fs::remove_dir_all(registry);
}
