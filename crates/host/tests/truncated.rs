//! Files of shared memory that another process of the user truncates: an error for the processes that use them, at most.

mod common;

use common::{Setup, next, next_ok, until};
use highwire_host::LinkChoice;
use highwire_host::verbs::{CompletionStatus, Operation, Service};
use highwire_link::shm::Registry;
use std::fs::OpenOptions;

/// Truncates every file with this prefix in the directories of two devices, as another process of the user could.
fn truncate(ends: &[common::End; 2], prefix: &str) -> usize {
    let registry = Registry::open().expect("a registry");
    let mut count = 0;
    for end in ends {
        let folder = registry.directory(end.device.gid().to_ip());
        for entry in std::fs::read_dir(folder).expect("a directory").flatten() {
            if entry.file_name().to_string_lossy().starts_with(prefix) {
                let file = OpenOptions::new().write(true).open(entry.path()).expect("the user's own");
                file.set_len(0).expect("truncates");
                count += 1;
            }
        }
    }
    count
}

#[test]
fn memory_whose_file_was_truncated_is_an_error_for_its_peer() {
    let ends = Setup::new(Service::Rc, LinkChoice::Auto).pair();
    let [a, b] = &ends;
    a.post(1, Operation::Write(b.buffer.remote(0)), 0, 64);
    next_ok(a, b);
    assert!(truncate(&ends, "mem-") >= 2);
    a.post(2, Operation::Read(b.buffer.remote(0)), 0, 8192);
    let status = next(a, b).status;
    let expected = [CompletionStatus::RemoteOperation, CompletionStatus::LocalProtection];
    assert!(expected.contains(&status), "{status:?}");
    // The owner itself reads zeros there, and lives.
    assert_eq!(b.buffer.to_vec(0, 64), [0; 64]);
    assert!(b.device.counters().value("segments_lost") > 0);
}

#[test]
fn an_engine_whose_file_was_truncated_is_reached_over_the_network() {
    let ends = Setup::new(Service::Rc, LinkChoice::Auto).pair();
    let [a, b] = &ends;
    b.receive(1, 0, 64);
    a.post(1, Operation::Send, 0, 64);
    next_ok(a, b);
    next_ok(b, a);
    assert_eq!(truncate(&ends, "engine"), 2);
    let bytes = a.fill(0, 3000, 5);
    b.receive(2, 0, 8192);
    a.post(3, Operation::Send, 0, 3000);
    a.post(4, Operation::Write(b.buffer.remote(16_384)), 0, 3000);
    assert_eq!((next_ok(a, b).wr_id, next_ok(a, b).wr_id, next_ok(b, a).wr_id), (3, 4, 2));
    assert_eq!((b.buffer.to_vec(0, 3000), b.buffer.to_vec(16_384, 3000)), (bytes.clone(), bytes));
    until("word of it", || (a.device.counters().value("segments_lost") > 0).then_some(()));
}
