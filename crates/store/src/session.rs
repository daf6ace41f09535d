//! One transaction at its coordinator, as `async` code on the node's own thread.
//!
//! [`Local`] is what jobs on that thread get. A [`Session`] borrows one of the node's workers for one
//! transaction and gives it back when it is dropped, in any state: its locks are released first.

use crate::clock::{Clock, Wall};
use crate::door::direct::Direct;
use crate::error::StoreError;
use crate::freeze::Freeze;
use crate::metrics::Latencies;
use crate::milestones::Milestones;
use highwire_host::rpc::{Worker, time};
use highwire_stdx::Rng;
use highwire_txn::{
    AbortReason, Event, Key, Mode, Node, Phase, RangeRow, TableId, TransactionError, Version,
};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Poll, Waker};

mod queue;

pub(crate) use queue::Arrival;
use queue::{LONG_WORKERS, Queue};

/// The table of `txn` in which keys lie, and values that are short.
pub(crate) const ROWS: TableId = TableId(0);
/// The table of `txn` for values that are long.
pub(crate) const LONG_VALUES: TableId = TableId(1);

/// The table of `txn` for the trees of ordered tables.
pub(crate) const ORDER: TableId = TableId(2);

/// Records that are longer need such a worker.
pub(crate) const USUAL_RECORD_BYTES_MAX: usize = 64 << 10;

/// The state that the tasks of a node's thread share.
pub(crate) struct Shared {
    pub(crate) node: RefCell<Node>,
    pub(crate) clock: Clock,
    /// The time of day, by which keys expire.
    pub(crate) wall: Wall,
    /// A time after the arrival of the requests that this turn has taken from the network; 0: not read yet.
    arrival_ns: Cell<u64>,
    pub(crate) rng: RefCell<Rng>,
    pub(crate) f: usize,
    workers: RefCell<Workers>,
    /// Wakers of answers to other nodes that wait for the disk.
    promises: RefCell<Vec<Waker>>,
    /// How transactions of this node have ended.
    pub(crate) outcomes: RefCell<Outcomes>,
    pub(crate) milestones: RefCell<Milestones>,
    pub(crate) freeze: RefCell<Freeze>,
    /// The tables were nearly full when they were looked at last.
    pub(crate) is_nearly_full: Cell<bool>,
    /// Where clients reach the node by RPCs.
    pub(crate) direct: RefCell<Direct>,
}

/// Counts of how this node's transactions have ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) committed: u64,
    pub(crate) conflicts: u64,
    pub(crate) unknown: u64,
    /// Attempts that no member could serve, and those that asked for something impossible.
    pub(crate) unavailable: u64,
    pub(crate) refused: u64,
    /// From the first attempt to the commit.
    pub(crate) latencies: Latencies,
}

#[derive(Default)]
struct Workers {
    seats: Vec<Seat>,
    queue: Queue,
    /// Events of the node that have not been delivered yet.
    events: VecDeque<Event>,
}

#[derive(Default)]
struct Seat {
    event: Option<Event>,
    waker: Option<Waker>,
    /// The client of this worker is gone; its transaction must be ended.
    is_orphan: bool,
}

impl Shared {
    pub(crate) fn new(node: Node, wall: Wall, f: usize, workers: u16, seed: u64) -> Rc<Shared> {
        let seats = (0..workers).map(|_| Seat::default()).collect();
        let workers = Workers { seats, queue: Queue::new(workers), events: VecDeque::new() };
        Rc::new(Shared {
            node: RefCell::new(node),
            clock: Clock,
            wall,
            arrival_ns: Cell::new(0),
            f,
            rng: RefCell::new(Rng::new(seed)),
            workers: RefCell::new(workers),
            promises: RefCell::default(),
            outcomes: RefCell::default(),
            milestones: RefCell::default(),
            freeze: RefCell::default(),
            is_nearly_full: Cell::default(),
            direct: RefCell::default(),
        })
    }

    /// A turn begins: requests that it takes from the network may have arrived just now.
    pub(crate) fn begin_turn(&self) {
        self.arrival_ns.set(0);
    }

    /// The time for requests from the network. It is read after the first request of a turn has been taken,
    /// and a turn takes them all at once. A time from before their arrival would not do: a lease that ended
    /// while this thread was stopped would still seem to hold.
    pub(crate) fn arrival_ns(&self) -> u64 {
        if self.arrival_ns.get() == 0 {
            self.arrival_ns.set(self.clock.now_ns());
        }
        self.arrival_ns.get()
    }

    /// Waits until the node's disk has an answer's promise. `false`: it never will.
    pub(crate) async fn durable(&self, after: u64) -> bool {
        std::future::poll_fn(|cx| {
            let node = self.node.borrow();
            if after <= node.durable() || node.is_halted() {
                return Poll::Ready(!node.is_halted());
            }
            self.promises.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    /// The disk has synced more, or has failed.
    pub(crate) fn wake_promises(&self) {
        self.promises.take().into_iter().for_each(Waker::wake);
    }

    /// Hands the node's events to the sessions that wait for them. Returns whether there were any.
    pub(crate) fn deliver_events(&self) -> bool {
        let mut any = false;
        while let Some(event) = self.next_event() {
            any = true;
            self.deliver(event);
        }
        any
    }

    fn next_event(&self) -> Option<Event> {
        let waiting = self.workers.borrow_mut().events.pop_front();
        waiting.or_else(|| self.node.borrow_mut().poll_event())
    }

    fn deliver(&self, event: Event) {
        let worker = worker_of(&event);
        let mut workers = self.workers.borrow_mut();
        let seat = &mut workers.seats[usize::from(worker)];
        if seat.is_orphan {
            drop(workers);
            self.end_orphan(worker);
        } else {
            seat.event = Some(event);
            if let Some(waker) = &seat.waker {
                waker.wake_by_ref();
            }
        }
    }

    /// A client does not wait for its transaction any longer.
    fn abandon(&self, worker: u16) {
        {
            let mut workers = self.workers.borrow_mut();
            let seat = &mut workers.seats[usize::from(worker)];
            (seat.is_orphan, seat.event) = (true, None);
        }
        self.end_orphan(worker);
    }

    /// Ends a transaction that no client waits for, and frees its worker when it has ended.
    fn end_orphan(&self, worker: u16) {
        let mut node = self.node.borrow_mut();
        match node.worker(worker).phase() {
            Phase::Building => {
                let now = self.clock.now_ns();
                // Aborting is always possible in this phase; it ends with an event, which comes here again.
                let _ = node.abort(now, worker);
            }
            Phase::Idle => {
                // Events of the transaction that has ended may still be on their way. The worker's next transaction must not take them for its own.
                let mut workers = self.workers.borrow_mut();
                workers.events.extend(std::iter::from_fn(|| node.poll_event()));
                workers.events.retain(|event| worker_of(event) != worker);
                drop((node, workers));
                self.give_back(worker);
            }
            _ => {}
        }
    }

    /// Whether all workers are free, and have nothing of their last transactions.
    #[cfg(test)]
    pub(crate) fn check_workers(&self, workers: u16) -> Result<(), String> {
        let of = self.workers.borrow();
        let events = of.seats.iter().filter(|seat| seat.event.is_some()).count();
        let free = of.queue.free();
        let is_well = free == usize::from(workers) && events == 0;
        is_well.then_some(()).ok_or_else(|| format!("{free} workers are free, and {events} have an event"))
    }

    fn give_back(&self, worker: u16) {
        let mut workers = self.workers.borrow_mut();
        let seat = &mut workers.seats[usize::from(worker)];
        (seat.is_orphan, seat.event) = (false, None);
        workers.queue.give_back(worker);
    }
}

fn worker_of(event: &Event) -> u16 {
    match *event {
        Event::Executed { worker, .. }
        | Event::Committed { worker, .. }
        | Event::Aborted { worker, .. }
        | Event::Unknown { worker, .. } => worker,
    }
}

/// The node, for jobs that run on its thread.
#[derive(Clone)]
pub struct Local {
    pub(crate) shared: Rc<Shared>,
    pub(crate) rpc: Worker,
}

impl std::fmt::Debug for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Local").field("node", &self.shared.node.borrow().id()).finish()
    }
}

/// Why a transaction ended without a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Other transactions conflicted: worth another try.
    Conflict,
    /// This node is no member now, or recovery is going on: worth another try later.
    Unavailable,
    /// A range has too many rows: worth another try with a shorter one.
    TooLong,
    /// The transaction writes so much that it needs a worker for long records: worth another try with one.
    NeedsLongWorker,
    /// The error is final.
    Error(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Stop {
        Stop::Error(error)
    }
}

impl From<AbortReason> for Stop {
    fn from(reason: AbortReason) -> Stop {
        match reason {
            AbortReason::Full => Stop::Error(StoreError::Full),
            AbortReason::TooLong => Stop::TooLong,
            AbortReason::Reconfigured => Stop::Unavailable,
            // This session has read before whether the key exists: another transaction has changed that
            // since.
            _ => Stop::Conflict,
        }
    }
}

impl From<TransactionError> for Stop {
    fn from(error: TransactionError) -> Stop {
        match error {
            TransactionError::Unavailable => Stop::Unavailable,
            error => Stop::Error(StoreError::invalid(format!("{error:?}"))),
        }
    }
}

/// A worker of the node, and its transaction.
pub(crate) struct Session {
    local: Local,
    pub(crate) worker: u16,
}

impl Local {
    pub(crate) async fn sleep_ns(&self, ns: u64) {
        self.rpc.sleep(time::Duration::from_nanos(ns)).await;
    }

    /// A transaction's place in the order of all. It keeps it for all its attempts.
    pub(crate) fn arrive(&self) -> Arrival {
        self.shared.workers.borrow_mut().queue.arrive()
    }

    /// Begins a transaction, when it is its turn.
    pub(crate) async fn begin(&self) -> Result<Session, Stop> {
        self.begin_with(self.arrive(), false).await
    }

    /// The same, with a worker that may have long records if `is_long`.
    pub(crate) async fn begin_with(&self, arrival: Arrival, is_long: bool) -> Result<Session, Stop> {
        if !self.shared.node.borrow().is_open() {
            return Err(Stop::Unavailable);
        }
        let turn = Turn { shared: &self.shared, arrival };
        let worker =
            std::future::poll_fn(|cx| turn.shared.workers.borrow_mut().queue.poll(arrival, is_long, cx))
                .await;
        drop(turn);
        match self.shared.node.borrow_mut().begin(worker) {
            Ok(_) => Ok(Session { local: self.clone(), worker }),
            Err(error) => {
                self.shared.give_back(worker);
                Err(error.into())
            }
        }
    }
}

/// A wait for a worker. It may be given up at any moment.
struct Turn<'a> {
    shared: &'a Shared,
    arrival: Arrival,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.shared.workers.borrow_mut().queue.leave(self.arrival);
    }
}

impl Session {
    pub(crate) fn node(&self) -> std::cell::RefMut<'_, Node> {
        self.local.shared.node.borrow_mut()
    }

    pub(crate) fn now(&self) -> u64 {
        self.local.shared.clock.now_ns()
    }

    /// Milliseconds since 1970.
    pub(crate) fn now_ms(&self) -> u64 {
        self.local.shared.wall.now_ms()
    }

    pub(crate) fn random(&self) -> u64 {
        self.local.shared.rng.borrow_mut().next_u64()
    }

    /// Lets the node do its other work.
    pub(crate) async fn yield_now(&self) {
        self.local.rpc.yield_now().await;
    }

    /// Whether this worker may have long records.
    pub(crate) fn is_long(&self) -> bool {
        self.worker < LONG_WORKERS
    }

    pub(crate) fn add_read(&self, table: TableId, key: Key) -> Result<(), Stop> {
        Ok(self.node().add_to_read_set(self.worker, table, key)?)
    }

    pub(crate) fn add_write(&self, table: TableId, key: Key, mode: Mode) -> Result<(), Stop> {
        // The rows that a transaction writes are those that it has read, or long values to be replaced.
        Ok(self.node().add_blindly_to_write_set(self.worker, table, key, mode)?)
    }

    pub(crate) fn add_range(&self, low: Key, high: Key) -> Result<(), Stop> {
        Ok(self.node().add_range(self.worker, ROWS, low, high)?)
    }

    pub(crate) fn set_value(&self, table: TableId, key: Key, value: &[u8]) -> Result<(), Stop> {
        Ok(self.node().set_value(self.worker, table, key, value)?)
    }

    /// Reads and locks the keys that were added.
    pub(crate) async fn execute(&self) -> Result<(), Stop> {
        let now = self.now();
        self.node().execute(now, self.worker)?;
        match self.event().await {
            Event::Executed { result: Ok(()), .. } => Ok(()),
            Event::Executed { result: Err(reason), .. } | Event::Aborted { reason, .. } => Err(reason.into()),
            Event::Unknown { .. } | Event::Committed { .. } => Err(Stop::Unavailable),
        }
    }

    /// A key as read: its version, and its value if it exists.
    pub(crate) fn seen(&self, table: TableId, key: Key) -> Option<(Version, Option<Vec<u8>>)> {
        let node = self.node();
        let item = node.worker(self.worker).item(table, key)?;
        Some((item.seen?, item.value.clone()))
    }

    /// The rows read in the last ranges, behind the first `skip`; and how many there are now.
    pub(crate) fn rows(&self, skip: usize) -> (Vec<RangeRow>, usize) {
        let node = self.node();
        let ranges = node.worker(self.worker).ranges();
        let rows = ranges[skip.min(ranges.len())..].iter().filter_map(|range| range.rows.clone()).flatten();
        (rows.collect(), ranges.len())
    }

    pub(crate) async fn commit(self) -> Result<(), Stop> {
        let now = self.now();
        self.node().commit(now, self.worker)?;
        match self.event().await {
            Event::Committed { .. } => Ok(()),
            Event::Aborted { reason, .. } => Err(reason.into()),
            Event::Unknown { .. } | Event::Executed { .. } => Err(Stop::Error(StoreError::Unknown(
                "the node lost its part in the cluster meanwhile: it was silent for too long, or its disk failed"
                    .into(),
            ))),
        }
    }

    /// Ends a transaction that has written nothing, if all that it read was true at one instant. It never has an unknown outcome: nothing can
    /// have been done.
    pub(crate) async fn commit_reads(self) -> Result<(), Stop> {
        match self.commit().await {
            Err(Stop::Error(StoreError::Unknown(_))) => Err(Stop::Unavailable),
            result => result,
        }
    }

    /// Waits for the next event of the transaction.
    pub(crate) async fn event(&self) -> Event {
        std::future::poll_fn(|cx| {
            let mut workers = self.local.shared.workers.borrow_mut();
            let seat = &mut workers.seats[usize::from(self.worker)];
            match seat.event.take() {
                Some(event) => Poll::Ready(event),
                None => {
                    // A task that goes on in the same seat has left its waker there.
                    match &mut seat.waker {
                        Some(waker) => waker.clone_from(cx.waker()),
                        none => *none = Some(cx.waker().clone()),
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.local.shared.abandon(self.worker);
    }
}

#[cfg(test)]
mod tests;
