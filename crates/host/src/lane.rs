//! One lane: an engine behind its token, and the parts that threads without the token may touch.
//!
//! Lanes share nothing on the data path. A packet for another lane is left in that lane's mailbox.

use crate::completion_queue::DueTasks;
use crate::engine::Engine;
use crate::process::Process;
use crate::token::{EngineToken, Running};
use crate::waker::Waker;
use highwire_shmem::DoorbellBoard;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct Lane {
    token: EngineToken<Engine>,
    /// Counts visits of application threads: the background thread backs off while this moves.
    visits: Visits,
    pub(crate) board: DoorbellBoard,
    /// Tasks to wake once the token is free.
    pub(crate) due: Arc<DueTasks>,
    /// The background thread's: a visit ends a long sleep of that thread.
    waker: Arc<Waker>,
    /// The process that made the lane.
    process: Process,
}

#[repr(align(128))]
struct Visits(AtomicU64);

impl Lane {
    pub(crate) fn new(engine: Engine, board: DoorbellBoard, waker: Arc<Waker>) -> Lane {
        let process = Process::this();
        let due = Arc::default();
        let (token, visits) = (EngineToken::new(engine), Visits(AtomicU64::new(0)));
        Lane { token, visits, board, due, waker, process }
    }

    /// Runs the engine on behalf of an application thread, if no other thread runs it right now.
    #[inline]
    pub(crate) fn visit<R>(&self, run: impl FnOnce(&mut Engine) -> R) -> Option<R> {
        let result = self.visit_and_stay(run);
        self.waker.on_visit();
        result
    }

    /// The same for a thread that looks after the lane from then on, or sleeps on its sockets.
    #[inline]
    pub(crate) fn visit_and_stay<R>(&self, run: impl FnOnce(&mut Engine) -> R) -> Option<R> {
        // Not an increment: a lost count among several pollers still moves the value.
        self.visits.0.store(self.visits.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.try_run(run)
    }

    /// The number of visits of application threads, as far as it is visible without a barrier.
    pub(crate) fn visits(&self) -> u64 {
        self.visits.0.load(Ordering::Relaxed)
    }

    /// Runs the engine, if no other thread runs it right now.
    #[inline]
    pub(crate) fn try_run<R>(&self, run: impl FnOnce(&mut Engine) -> R) -> Option<R> {
        let mut running = self.token.try_enter()?;
        let result = run(&mut running);
        self.leave(running);
        Some(result)
    }

    /// Runs the engine for a control call, once it is free.
    pub(crate) fn control<R>(&self, run: impl FnOnce(&mut Engine) -> R) -> R {
        let mut running = self.token.enter();
        let result = run(&mut running);
        self.leave(running);
        self.waker.on_visit();
        result
    }

    /// Runs the engine to take something down, unless this is a forked child: there the engine is the parent's, and if a thread
    /// held the token at the fork, it stays held for ever.
    pub(crate) fn dispose<R>(&self, run: impl FnOnce(&mut Engine) -> R) {
        if !self.is_inherited() {
            self.control(run);
        }
    }

    /// Whether this is a forked child's copy. Costs a load. The child has none of the parent's threads, so a
    /// lock that one of them held stays held there.
    #[inline]
    pub(crate) fn is_inherited(&self) -> bool {
        !self.process.is_this()
    }

    /// Work was put into a ring and its bell was rung: serve it, unless the thread that runs the engine will.
    pub(crate) fn serve_bells(&self) {
        self.token.leave_work();
        if let Some(running) = self.token.try_enter() {
            self.leave(running);
        }
        self.waker.on_visit();
    }

    /// The thread that runs the engine now has put work into a ring.
    pub(crate) fn leave_work(&self) {
        self.token.leave_work();
    }

    #[inline]
    fn leave(&self, running: Running<'_, Engine>) {
        self.let_go(running);
        while self.token.take_work_left() {
            let again = self.token.try_enter().or_else(|| {
                // Another thread runs the engine, or is about to; the mark makes that thread look again.
                self.token.leave_work();
                self.token.try_enter()
            });
            let Some(mut running) = again else { return };
            running.pump();
            self.let_go(running);
        }
    }

    /// Frees the token, and then wakes all whose completions this thread has found: one of them may have this core at once, and would find
    /// the token taken by a thread that does not run.
    #[inline]
    fn let_go(&self, mut running: Running<'_, Engine>) {
        let due = std::mem::take(&mut running.objects.due);
        drop(running);
        due.iter().for_each(|(queue, has_reported)| queue.wake(*has_reported));
        self.due.wake();
    }
}
