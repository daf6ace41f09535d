//! Events of transactions that nobody waits for any more, and of those beside them.

use super::*;
use highwire_txn::{Configuration, NodeId};
use std::task::Context;

/// A node that is a cluster by itself: its requests are answered in the call that makes them.
fn node() -> Rc<Shared> {
    let text = "f = 0\nregister = \"r\"\n[[node]]\nid = 0\ndoor = \"a:1\"\n";
    let settings = crate::ClusterConfig::parse(text).expect("a cluster").settings();
    let workers = settings.workers;
    let node = Node::new(NodeId(0), 1, Configuration::first(&[NodeId(0)], &[1], 4, 0), settings, 1);
    Shared::new(node, Wall::default(), 0, workers, 1)
}

impl Shared {
    /// Takes a worker as a transaction that has arrived now.
    fn take(&self) -> u16 {
        let mut workers = self.workers.borrow_mut();
        let arrival = workers.queue.arrive();
        match workers.queue.poll(arrival, false, &Context::from_waker(Waker::noop())) {
            Poll::Ready(worker) => worker,
            Poll::Pending => panic!("no worker is free"),
        }
    }

    /// A transaction that has read a key, and has not been told so.
    fn read(&self, key: Key) -> u16 {
        let worker = self.take();
        let mut node = self.node.borrow_mut();
        node.begin(worker).expect("open");
        node.add_to_read_set(worker, ROWS, key).expect("in time");
        node.execute(1, worker).expect("in time");
        worker
    }

    fn event(&self, worker: u16) -> Option<Event> {
        self.workers.borrow().seats[usize::from(worker)].event
    }

    fn free(&self) -> usize {
        self.workers.borrow().queue.free()
    }
}

#[test]
fn a_worker_that_is_given_back_has_no_event_of_its_last_transaction() {
    let shared = node();
    let all = shared.free();
    let worker = shared.read(1);
    // The client goes away between the event and its delivery.
    shared.abandon(worker);
    shared.deliver_events();
    assert_eq!(shared.free(), all);
    let next = shared.take();
    assert_eq!((next, shared.event(next)), (worker, None), "the last one's event");
    shared.deliver_events();
    assert_eq!(shared.event(next), None);
}

#[test]
fn an_event_of_another_worker_that_is_on_its_way_meanwhile_is_delivered() {
    let shared = node();
    let all = shared.free();
    let workers: Vec<u16> = (0..5).map(|key| shared.read(key)).collect();
    // Every other one goes away; the events of all are on their way.
    workers.iter().step_by(2).for_each(|&worker| shared.abandon(worker));
    shared.deliver_events();
    for &worker in workers.iter().skip(1).step_by(2) {
        let event = shared.event(worker);
        assert_eq!(event, Some(Event::Executed { worker, result: Ok(()) }), "lost with another one's");
    }
    assert_eq!(shared.free(), all - 2);
    workers.iter().step_by(2).for_each(|&worker| assert_eq!(shared.event(worker), None));
}
