//! Completions as a future that any executor can run.
//!
//! A task that finds nothing leaves its waker with the queue, arms the queue, and counts as a sleeping thread, so that the
//! background thread takes the lane over. The thread that runs the engine and delivers a completion finds the wakers. It calls
//! them only after it has let go of the lane's token, because a waker may run any code of the executor.
//!
//! Invariant: a task counts as asleep exactly while its waker is with the queue.

use super::{CompletionQueue, WaitFor};
use crate::config::Engine;
use crate::waiting::Count;
use highwire_verbs::Completion;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// The next completion of a queue; see [`CompletionQueue::next`].
#[must_use = "a future does nothing until it is awaited"]
pub struct Next<'a> {
    queue: &'a CompletionQueue,
    /// The number of its waker, while the queue has the waker.
    task: Option<u64>,
}

/// The tasks that wait for one queue.
#[derive(Debug)]
pub(crate) struct Tasks {
    waiting: Mutex<Waiting>,
    /// Whether there are tasks; saves the lock if there never are.
    any: AtomicBool,
    due: Arc<DueTasks>,
    count: Arc<Count>,
}

#[derive(Debug, Default)]
struct Waiting {
    wakers: Vec<(u64, Waker)>,
    next_task: u64,
}

/// The tasks of a lane that are to be woken once its token is free.
#[derive(Debug, Default)]
pub(crate) struct DueTasks {
    any: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl CompletionQueue {
    /// The next completion, as a future that needs no particular executor.
    ///
    /// The device's background thread, or a thread that polls, delivers it; no thread is blocked meanwhile. With
    /// [`Engine::Inline`] there is no background thread, so the task asks to be run again at once, and each run turns the
    /// engine once. Several tasks may await one queue: each completion goes to one of them. Dropping the future before it is
    /// ready loses nothing; the completion stays in the queue.
    ///
    /// ```
    /// use highwire_host::verbs::{Access, Operation, RecvWr, SendWr, Service};
    /// use highwire_host::{ConnectOptions, Device, DeviceConfig, QueuePairConfig};
    /// # use std::{sync::Arc, task::{Context, Poll, Wake, Waker}, thread::{self, Thread}};
    /// # struct Unpark(Thread);
    /// # impl Wake for Unpark {
    /// #     fn wake(self: Arc<Self>) { self.0.unpark() }
    /// # }
    /// # fn block_on<T>(future: impl Future<Output = T>) -> T {
    /// #     let mut future = std::pin::pin!(future);
    /// #     let waker = Waker::from(Arc::new(Unpark(thread::current())));
    /// #     loop {
    /// #         if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) { return value }
    /// #         thread::park();
    /// #     }
    /// # }
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let device = Device::open(&DeviceConfig::default())?;
    /// let (pd, cq) = (device.protection_domain(), device.completion_queue(8)?);
    /// let qp = pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq))?;
    /// qp.connect(&qp.endpoint(), &ConnectOptions::default())?; // with itself
    /// let buffer = pd.allocate(64, Access::LOCAL_WRITE)?;
    /// qp.post_recv(&RecvWr { wr_id: 1, sges: &[buffer.sge(0, 64)] })?;
    /// qp.post_send(&[SendWr::new(2, Operation::Send, &[])])?;
    /// let mut done = block_on(async { [cq.next().await.wr_id, cq.next().await.wr_id] });
    /// done.sort();
    /// assert_eq!(done, [1, 2]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn next(&self) -> Next<'_> {
        Next { queue: self, task: None }
    }
}

impl Future for Next<'_> {
    type Output = Completion;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Completion> {
        let queue = self.queue;
        let inner = &*queue.inner;
        loop {
            if let Some(completion) = queue.poll_one() {
                self.leave();
                return Poll::Ready(completion);
            }
            if queue.is_inherited() {
                return Poll::Pending;
            }
            inner.use_events();
            self.task = Some(inner.notifier.tasks.stay(self.task, context.waker()));
            // Armed after the waker is there: any thread that delivers a completion from now on finds it. A corrupt ring
            // delivers nothing.
            if !inner.consumer().arm(WaitFor::Any.into()).unwrap_or(false) {
                break;
            }
        }
        match inner.device.engine {
            Engine::Inline => context.waker().wake_by_ref(),
            Engine::Both | Engine::Background => inner.device.waker.wake(),
        }
        Poll::Pending
    }
}

impl Next<'_> {
    fn leave(&mut self) {
        if let Some(task) = self.task.take() {
            self.queue.inner.notifier.tasks.leave(task);
        }
    }
}

impl Drop for Next<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Tasks {
    pub(super) fn new(due: &Arc<DueTasks>, count: &Arc<Count>) -> Tasks {
        let (due, count) = (Arc::clone(due), Arc::clone(count));
        Tasks { waiting: Mutex::default(), any: AtomicBool::new(false), due, count }
    }

    /// A task waits, or goes on waiting and may have another waker by now.
    fn stay(&self, task: Option<u64>, waker: &Waker) -> u64 {
        let mut waiting = self.lock();
        let known = task.and_then(|task| waiting.wakers.iter_mut().find(|(other, _)| *other == task));
        if let Some((task, kept)) = known {
            let task = *task;
            // Dropping the earlier waker may drop a task that takes this lock, so it is dropped after
            // unlocking.
            let before = (!kept.will_wake(waker)).then(|| mem::replace(kept, waker.clone()));
            drop(waiting);
            drop(before);
            return task;
        }
        let task = waiting.next_task;
        waiting.next_task += 1;
        waiting.wakers.push((task, waker.clone()));
        self.any.store(true, Ordering::SeqCst);
        self.count.begin();
        task
    }

    /// The task no longer waits. If it was woken for a completion that another task must take now, all the
    /// others were woken as well.
    fn leave(&self, task: u64) {
        let mut waiting = self.lock();
        if let Some(at) = waiting.wakers.iter().position(|(other, _)| *other == task) {
            let gone = waiting.wakers.swap_remove(at);
            self.any.store(!waiting.wakers.is_empty(), Ordering::SeqCst);
            self.count.end();
            // As above.
            drop(waiting);
            drop(gone);
        }
    }

    /// A completion was delivered; the caller runs the engine.
    pub(super) fn notify(&self) {
        if !self.any.load(Ordering::SeqCst) {
            return;
        }
        let mut waiting = self.lock();
        self.any.store(false, Ordering::SeqCst);
        for (_, waker) in waiting.wakers.drain(..) {
            self.count.end();
            self.due.push(waker);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DueTasks {
    fn push(&self, waker: Waker) {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
        self.any.store(true, Ordering::SeqCst);
    }

    /// Wakes them; the caller has let go of the lane's token.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.any.load(Ordering::SeqCst) {
            self.wake_all();
        }
    }

    #[cold]
    fn wake_all(&self) {
        let due = {
            let mut wakers = self.wakers.lock().unwrap_or_else(PoisonError::into_inner);
            self.any.store(false, Ordering::SeqCst);
            mem::take(&mut *wakers)
        };
        due.into_iter().for_each(Waker::wake);
    }
}
