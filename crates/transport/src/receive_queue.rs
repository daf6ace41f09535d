//! Receive requests in the order in which they were posted: a queue pair's own, or shared by many.

use highwire_verbs::{CqId, Pd, PostError, RecvWr, SgeList, XrcDomain};
use std::collections::VecDeque;

/// A posted receive.
#[derive(Clone, Debug)]
pub(crate) struct ReceiveWqe {
    pub(crate) wr_id: u64,
    pub(crate) sges: SgeList,
    /// Bytes that fit.
    pub(crate) capacity: u64,
    /// The generation of the region table under which its keys were last checked; zero for never.
    pub(crate) checked: u64,
}

impl ReceiveWqe {
    const EMPTY: ReceiveWqe = ReceiveWqe { wr_id: 0, sges: SgeList::EMPTY, capacity: 0, checked: 0 };
}

/// A receive queue, or a shared one.
#[derive(Clone, Debug)]
pub struct ReceiveQueue {
    pd: Pd,
    wqes: VecDeque<ReceiveWqe>,
    max_wr: u32,
    max_sge: u32,
    /// An SRQ reports once when fewer than this many are left; zero reports nothing.
    limit: u32,
    /// XRC: the domain whose queue pairs it serves, and the completion queue of its receives.
    xrc: Option<(XrcDomain, CqId)>,
}

impl ReceiveQueue {
    /// An empty queue for `max_wr` requests of at most `max_sge` elements.
    pub fn new(pd: Pd, max_wr: u32, max_sge: u32) -> ReceiveQueue {
        ReceiveQueue { pd, wqes: VecDeque::new(), max_wr, max_sge, limit: 0, xrc: None }
    }

    /// The same for queue pairs of an XRC domain; its receives complete in `cq`.
    pub fn for_xrc(self, domain: XrcDomain, cq: CqId) -> ReceiveQueue {
        ReceiveQueue { xrc: Some((domain, cq)), ..self }
    }

    /// The XRC domain that it serves, and its completion queue.
    pub fn xrc(&self) -> Option<(XrcDomain, CqId)> {
        self.xrc
    }

    /// The protection domain whose keys its requests use.
    pub fn pd(&self) -> Pd {
        self.pd
    }

    /// How many requests are waiting.
    pub fn len(&self) -> u32 {
        self.wqes.len() as u32
    }

    /// Whether none is waiting.
    pub fn is_empty(&self) -> bool {
        self.wqes.is_empty()
    }

    /// Asks for one report when fewer than `limit` requests are left.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit;
    }

    /// The limit, zero once it has been reported.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Most requests it holds, and most elements of each.
    pub fn capacity(&self) -> (u32, u32) {
        (self.max_wr, self.max_sge)
    }

    /// Changes how many requests it holds, if so many are not waiting already.
    pub fn resize(&mut self, max_wr: u32) -> bool {
        let fits = max_wr as usize >= self.wqes.len();
        if fits {
            self.max_wr = max_wr;
        }
        fits
    }

    /// Takes a request.
    ///
    /// # Errors
    /// When the queue is full or the request has too many elements.
    #[inline]
    pub fn post(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if wr.sges.len() > self.max_sge as usize {
            return Err(PostError::TooManySges);
        }
        if self.wqes.len() >= self.max_wr as usize {
            return Err(PostError::QueueFull);
        }
        // Filled in place, see `SgeList::set`.
        self.wqes.push_back(ReceiveWqe::EMPTY);
        let Some(wqe) = self.wqes.back_mut() else { return Err(PostError::QueueFull) };
        wqe.wr_id = wr.wr_id;
        wqe.sges.set(wr.sges);
        wqe.capacity = wqe.sges.total();
        Ok(())
    }

    /// Moves the oldest request to the end of `to`, if there is one. Returns whether the number of requests
    /// fell below the limit by that.
    #[inline]
    pub(crate) fn take_into(&mut self, to: &mut VecDeque<ReceiveWqe>) -> Option<bool> {
        to.push_back(self.wqes.pop_front()?);
        let passed = self.len() < self.limit;
        if passed {
            self.limit = 0;
        }
        Some(passed)
    }

    pub(crate) fn clear(&mut self) {
        self.wqes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_verbs::Sge;

    #[test]
    fn a_queue_is_bounded_and_reports_its_limit_once() {
        let mut queue = ReceiveQueue::new(Pd(1), 2, 1);
        let sge = [Sge::default(); 2];
        assert_eq!(queue.post(&RecvWr { wr_id: 1, sges: &sge }), Err(PostError::TooManySges));
        assert_eq!(queue.post(&RecvWr { wr_id: 1, sges: &sge[..1] }), Ok(()));
        assert_eq!(queue.post(&RecvWr { wr_id: 2, sges: &[] }), Ok(()));
        assert_eq!(queue.post(&RecvWr { wr_id: 3, sges: &[] }), Err(PostError::QueueFull));
        queue.set_limit(2);
        let mut taken = VecDeque::new();
        assert_eq!(queue.take_into(&mut taken), Some(true));
        assert_eq!(queue.take_into(&mut taken), Some(false));
        assert_eq!(queue.take_into(&mut taken), None);
        assert!(taken.iter().map(|wqe| wqe.wr_id).eq([1, 2]));
    }

    #[test]
    fn a_limit_is_passed_by_the_request_that_leaves_fewer_and_by_no_other() {
        for limit in 0..5 {
            let mut queue = ReceiveQueue::new(Pd(1), 4, 1);
            (0..4).for_each(|wr_id| queue.post(&RecvWr { wr_id, sges: &[] }).expect("there is room"));
            queue.set_limit(limit);
            let mut taken = VecDeque::new();
            let passed: Vec<bool> = (0..4).filter_map(|_| queue.take_into(&mut taken)).collect();
            let left = [3, 2, 1, 0];
            let first = left.iter().position(|&left| left < limit);
            let expected: Vec<bool> = (0..4).map(|n| Some(n) == first).collect();
            assert_eq!(passed, expected, "limit {limit}");
            assert_eq!(queue.limit(), if first.is_some() { 0 } else { limit });
        }
    }
}
