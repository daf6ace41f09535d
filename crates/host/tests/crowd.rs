//! Threads that poll in vain beside more neighbours than there are cores for.

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
    let setup = Setup::new(Service::Rc, LinkChoice::Auto);
    let end = setup.end();
    let gave_way = || {
        for _ in 0..1000 {
            assert!(end.cq.poll_one().is_none());
        }
        end.device.counters().value("gave_way")
    };
    meet(&setup, &end, &end);
    // Housekeeping comes ten times a second.
    let until_seen = std::time::Duration::from_millis(500);
    std::thread::sleep(until_seen);
    assert_eq!(gave_way(), 0, "the device itself is no neighbour");
    let others: Vec<End> = (0..cores).map(|_| setup.end()).collect();
    for other in &others[1..] {
        meet(&setup, &end, other);
    }
    std::thread::sleep(until_seen);
    assert_eq!(gave_way(), 0, "there is a core for each");
    meet(&setup, &end, &others[0]);
    until("a core given away", || (gave_way() > 0).then_some(()));
}
