//! A device can have as many objects as it says, even if descriptors are scarce.
#![allow(unsafe_code, reason = "it limits the descriptors of the process")]

mod common;

use common::{Setup, next_ok};
use highwire_host::verbs::{Operation, QpCaps, Service};
use highwire_host::{CreateError, LinkChoice, QueuePairConfig};

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("the kernel tells").count()
}

#[test]
fn all_queue_pairs_of_a_device_fit_into_few_descriptors() {
    let [a, b] = &Setup::new(Service::Rc, LinkChoice::Auto).pair();
    let limits = libc::rlimit { rlim_cur: 128, rlim_max: 128 };
    // SAFETY: the pointer is to a live local.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limits) }, 0);
    let before = descriptors();
    let caps = QpCaps { max_send_wr: 4, max_recv_wr: 4, ..QpCaps::default() };
    let config = QueuePairConfig { caps, ..QueuePairConfig::new(Service::Rc, &a.cq) };
    // One object exists already.
    for _ in 0..2 {
        let queue_pairs: Vec<_> = (1..a.device.limits().max_qp)
            .map(|number| a.pd.queue_pair(&config).unwrap_or_else(|error| panic!("{number}: {error}")))
            .collect();
        assert!(queue_pairs.len() > 4000, "{}", queue_pairs.len());
        assert!(descriptors() < before + 16, "{} and {before}", descriptors());
        assert!(matches!(a.pd.queue_pair(&config), Err(CreateError::TooManyQueues)));
    }
    // Several objects have used the memory in turn, and the first one is unharmed.
    let bytes = a.fill(0, 500, 7);
    b.receive(1, 0, 500);
    a.post(2, Operation::Send, 0, 500);
    next_ok(a, b);
    next_ok(b, a);
    assert_eq!(b.buffer.to_vec(0, 500), bytes);
}
