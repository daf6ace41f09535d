//! The send requests of a queue pair, from the oldest that is not complete to the newest.
//!
//! The front part of the queue has been started: those requests have their PSNs. `cursor` is the request whose
//! packets leave now, `packet` the next one of them. Going back moves the cursor, never the requests.

use highwire_verbs::{CompletionStatus, Datagram, Operation, SendFlags, SgeList};
use highwire_wire::Psn;
use std::collections::VecDeque;

/// A posted send.
#[derive(Clone, Debug)]
pub(crate) struct SendWqe {
    pub(crate) wr_id: u64,
    pub(crate) operation: Operation,
    pub(crate) flags: SendFlags,
    pub(crate) sges: SgeList,
    pub(crate) datagram: Option<Datagram>,
    /// Bytes of the message.
    pub(crate) length: u32,
    pub(crate) progress: Progress,
    /// Its first PSN.
    pub(crate) first: Psn,
    /// How many PSNs it takes.
    pub(crate) psns: u32,
    /// How many request packets it takes; a READ takes one, and as many PSNs as its answer has packets.
    pub(crate) packets: u32,
    /// Its place among all requests (IBTA §9.7.3.3).
    pub(crate) ssn: u32,
    /// recv_WQE_SN or read_WQE_SN (IRN §5.3.2).
    pub(crate) wqe_sn: u32,
    /// IRN: the first PSN of its responses.
    pub(crate) response_first: Psn,
    /// How many response packets it gets.
    pub(crate) responses: u32,
    /// Go-back-N: how many of them have arrived.
    pub(crate) received: u32,
    /// The generation of the region table under which its local keys were last checked.
    pub(crate) checked: u64,
}

/// How far a request has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Progress {
    /// It has no PSN yet.
    Waiting,
    /// Its packets are leaving, or have left.
    Started,
    /// It has ended.
    Done(CompletionStatus),
}

impl SendWqe {
    /// An empty entry, to be filled with a request.
    pub(crate) const EMPTY: SendWqe = SendWqe {
        wr_id: 0,
        operation: Operation::Send,
        flags: SendFlags { signaled: false, solicited: false, fence: false, inline: false },
        sges: SgeList::EMPTY,
        datagram: None,
        length: 0,
        progress: Progress::Waiting,
        first: Psn::new(0),
        psns: 0,
        packets: 0,
        ssn: 0,
        wqe_sn: 0,
        response_first: Psn::new(0),
        responses: 0,
        received: 0,
        checked: 0,
    };

    /// The PSN after its last one.
    pub(crate) fn end(&self) -> Psn {
        self.first.add(self.psns)
    }

    pub(crate) fn is_started(&self) -> bool {
        self.progress != Progress::Waiting
    }
}

/// The queue with its cursor.
#[derive(Clone, Debug, Default)]
pub(crate) struct SendQueue {
    pub(crate) wqes: VecDeque<SendWqe>,
    pub(crate) cursor: usize,
    pub(crate) packet: u32,
}

impl SendQueue {
    pub(crate) fn len(&self) -> usize {
        self.wqes.len()
    }

    /// Whether every request has been sent to its end.
    #[inline]
    pub(crate) fn is_exhausted(&self) -> bool {
        self.cursor >= self.wqes.len()
    }

    /// The next request.
    #[inline]
    pub(crate) fn step(&mut self) {
        self.cursor += 1;
        self.packet = 0;
    }

    /// Takes the oldest request out.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<SendWqe> {
        let wqe = self.wqes.pop_front()?;
        // The cursor stays with its request, or at the front if that one left early.
        match self.cursor.checked_sub(1) {
            Some(cursor) => self.cursor = cursor,
            None => self.packet = 0,
        }
        Some(wqe)
    }

    /// The started request that `psn` belongs to, and which of its PSNs it is.
    #[inline]
    pub(crate) fn find(&self, psn: Psn) -> Option<(usize, u32)> {
        let after = self
            .wqes
            .partition_point(|w| w.is_started() && w.first.distance_from(psn) <= 0 && w.psns_known());
        let index = after.checked_sub(1)?;
        let offset = psn.ahead_of(self.wqes[index].first);
        (offset < self.wqes[index].psns).then_some((index, offset))
    }

    /// Moves the cursor to the packet with `psn`, or behind everything that was started if there is none.
    pub(crate) fn rewind(&mut self, psn: Psn) {
        match self.find(psn) {
            Some((index, offset)) => {
                self.cursor = index;
                // A READ's only packet asks again for the responses that are missing.
                self.packet = if self.wqes[index].operation.is_read_or_atomic() { 0 } else { offset };
            }
            None => {
                self.cursor = self.wqes.partition_point(SendWqe::is_started);
                self.packet = 0;
            }
        }
    }
}

impl SendWqe {
    /// A request that failed before it got PSNs stands at the end of the started ones and has none.
    fn psns_known(&self) -> bool {
        self.psns > 0 || self.operation.is_local()
    }
}
