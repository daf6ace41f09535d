//! Who gets a node's workers: transactions in the order in which they arrived.
//!
//! A worker that becomes free is given to the transaction that arrived first, and nobody else can take it. A transaction keeps its place when an
//! attempt of it ends in a conflict, so that one that has waited long is not overtaken again and again.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

/// Workers for transactions that write much. A worker's last record stays in the log, at f + 1 nodes, and a
/// recovery sends it to all: if every worker could have long ones, they would fill memories.
pub(super) const LONG_WORKERS: u16 = 2;

/// The place of a transaction among all that have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrival(u64);

/// A transaction's wait for a worker. Each arrival waits once at a time.
struct Waiting {
    is_long: bool,
    waker: Waker,
    /// The worker that it has been given.
    worker: Option<u16>,
}

/// Free workers, and those who wait for one.
#[derive(Default)]
pub(super) struct Queue {
    free: Vec<u16>,
    waiting: BTreeMap<Arrival, Waiting>,
    arrivals: u64,
}

impl Queue {
    pub(super) fn new(workers: u16) -> Queue {
        // The last one is taken first: those for long records are left as long as there are others.
        Queue { free: (0..workers).collect(), ..Queue::default() }
    }

    pub(super) fn arrive(&mut self) -> Arrival {
        self.arrivals += 1;
        Arrival(self.arrivals)
    }

    /// Asks for a worker, again and again until there is one or [`Queue::leave`] ends the wait.
    pub(super) fn poll(&mut self, arrival: Arrival, is_long: bool, cx: &Context<'_>) -> Poll<u16> {
        match self.waiting.get_mut(&arrival) {
            Some(waiting) => waiting.waker.clone_from(cx.waker()),
            None => {
                let waker = cx.waker().clone();
                self.waiting.insert(arrival, Waiting { is_long, waker, worker: None });
                self.hand_out();
            }
        }
        match self.waiting.get(&arrival).and_then(|waiting| waiting.worker) {
            Some(worker) => {
                self.waiting.remove(&arrival);
                Poll::Ready(worker)
            }
            None => Poll::Pending,
        }
    }

    #[cfg(test)]
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// Ends a wait. A worker that was given meanwhile goes to the next.
    pub(super) fn leave(&mut self, arrival: Arrival) {
        if let Some(worker) = self.waiting.remove(&arrival).and_then(|waiting| waiting.worker) {
            self.give_back(worker);
        }
    }

    pub(super) fn give_back(&mut self, worker: u16) {
        match worker < LONG_WORKERS {
            true => self.free.insert(0, worker),
            false => self.free.push(worker),
        }
        self.hand_out();
    }

    fn hand_out(&mut self) {
        for waiting in self.waiting.values_mut().filter(|waiting| waiting.worker.is_none()) {
            if self.free.is_empty() {
                return;
            }
            let place = match waiting.is_long {
                true => self.free.iter().position(|&worker| worker < LONG_WORKERS),
                false => Some(self.free.len() - 1),
            };
            if let Some(place) = place {
                waiting.worker = Some(self.free.remove(place));
                waiting.waker.wake_by_ref();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    fn ask(queue: &mut Queue, arrival: Arrival, is_long: bool) -> Option<u16> {
        match queue.poll(arrival, is_long, &Context::from_waker(Waker::noop())) {
            Poll::Ready(worker) => Some(worker),
            Poll::Pending => None,
        }
    }

    /// Eighty clients, three workers: newcomers ask at the very moment at which a worker is given back.
    #[test]
    fn workers_go_to_those_who_came_first_whoever_asks_when_one_is_free() {
        let mut queue = Queue::new(3);
        let mut busy: Vec<u16> = Vec::new();
        let mut waiting: Vec<Arrival> = Vec::new();
        let mut served = Vec::new();
        for turn in 0..2000 {
            let newcomer = queue.arrive();
            if turn % 3 == 0 || waiting.len() < 80 {
                match ask(&mut queue, newcomer, false) {
                    Some(worker) => {
                        served.push(newcomer);
                        busy.push(worker);
                    }
                    None => waiting.push(newcomer),
                }
            }
            if busy.len() == 3 {
                queue.give_back(busy.remove(0));
            }
            // The newest asks first; only the one whose turn it is gets the worker, however late it asks.
            let late = queue.arrive();
            let got = ask(&mut queue, late, false);
            assert!(got.is_none() || waiting.len() < 2, "a newcomer has overtaken those who wait");
            match got {
                Some(worker) => queue.give_back(worker),
                None => queue.leave(late),
            }
            for at in (0..waiting.len()).rev() {
                if let Some(worker) = ask(&mut queue, waiting[at], false) {
                    busy.push(worker);
                    served.push(waiting.remove(at));
                }
            }
        }
        assert!(served.len() > 1500, "{}", served.len());
        assert!(served.is_sorted(), "somebody was overtaken");
    }

    #[test]
    fn a_transaction_that_tries_again_keeps_its_place() {
        let mut queue = Queue::new(1);
        let first = queue.arrive();
        let worker = ask(&mut queue, first, false).expect("a free worker");
        let second = queue.arrive();
        assert_eq!(ask(&mut queue, second, false), None);
        let third = queue.arrive();
        assert_eq!(ask(&mut queue, third, false), None);
        // The first one conflicts, gives its worker to the second, and asks again.
        queue.give_back(worker);
        assert_eq!(ask(&mut queue, first, false), None);
        let worker = ask(&mut queue, second, false).expect("its turn");
        queue.give_back(worker);
        assert_eq!(ask(&mut queue, third, false), None, "the first one came before");
        assert!(ask(&mut queue, first, false).is_some());
    }

    /// Waits that are given up, long and short: no worker is lost, and each class is served in its order.
    #[test]
    fn no_worker_is_lost_by_those_who_give_up() {
        let mut rng = Rng::new(7);
        for _ in 0..200 {
            let workers = rng.between(3, 6) as u16;
            let mut queue = Queue::new(workers);
            let mut waiting: Vec<(Arrival, bool)> = Vec::new();
            let mut busy = Vec::new();
            for _ in 0..200 {
                match rng.below(4) {
                    0 | 1 => {
                        let (arrival, is_long) = (queue.arrive(), rng.chance(0.3));
                        match ask(&mut queue, arrival, is_long) {
                            Some(worker) => busy.push(worker),
                            None => waiting.push((arrival, is_long)),
                        }
                    }
                    2 if !busy.is_empty() => {
                        let at = rng.below(busy.len() as u64) as usize;
                        queue.give_back(busy.swap_remove(at));
                    }
                    3 if !waiting.is_empty() => {
                        let at = rng.below(waiting.len() as u64) as usize;
                        queue.leave(waiting.remove(at).0);
                    }
                    _ => {}
                }
                if rng.chance(0.5) {
                    let mut last = [false; 2];
                    waiting.retain(|&(arrival, is_long)| match ask(&mut queue, arrival, is_long) {
                        Some(worker) => {
                            assert!(!is_long || worker < LONG_WORKERS);
                            assert!(!last[usize::from(is_long)], "an earlier one still waits");
                            busy.push(worker);
                            false
                        }
                        None => {
                            last[usize::from(is_long)] = true;
                            true
                        }
                    });
                }
            }
            waiting.iter().for_each(|waiting| queue.leave(waiting.0));
            busy.append(&mut queue.free);
            busy.sort_unstable();
            assert_eq!(busy, (0..workers).collect::<Vec<_>>());
            assert!(queue.waiting.is_empty());
        }
    }
}
