//! A poll loop for workers: it resumes workers that were woken, in turn, until none is ready.
//!
//! Wakers set bits that say which workers are ready, so a worker that is woken twice runs once, and resuming
//! one costs a bit, a call and no allocation. Wakers may be sent to other threads, as their contract demands;
//! the workers stay on their thread.

use crate::error::SpawnError;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

type Job = Pin<Box<dyn Future<Output = ()>>>;

/// Bits of the tasks that are to be resumed.
#[derive(Debug)]
struct Ready {
    words: Box<[AtomicU64]>,
}

impl Ready {
    fn set(&self, task: usize) {
        self.words[task / 64].fetch_or(1 << (task % 64), Ordering::AcqRel);
    }
}

struct Bell {
    ready: Arc<Ready>,
    task: usize,
}

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.ready.set(self.task);
    }

    fn wake_by_ref(self: &Arc<Bell>) {
        self.ready.set(self.task);
    }
}

struct Task {
    job: Option<Job>,
    waker: Waker,
}

/// Runs workers.
pub(crate) struct Executor {
    ready: Arc<Ready>,
    tasks: Vec<Task>,
    free: Vec<usize>,
    tasks_max: usize,
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("running", &self.running()).finish()
    }
}

impl Executor {
    pub(crate) fn new(tasks_max: usize) -> Executor {
        let words = (0..tasks_max.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Executor { ready: Arc::new(Ready { words }), tasks: Vec::new(), free: Vec::new(), tasks_max }
    }

    /// The number of workers.
    pub(crate) fn running(&self) -> usize {
        self.tasks.len() - self.free.len()
    }

    /// Whether there is no place for another one.
    pub(crate) fn is_full(&self) -> bool {
        self.running() == self.tasks_max
    }

    /// Adds a worker, which runs for the first time with the next [`run`](Self::run).
    pub(crate) fn spawn<T: 'static>(
        &mut self,
        future: impl Future<Output = T> + 'static,
    ) -> Result<Running<T>, SpawnError> {
        let result = Rc::new(RefCell::new(None));
        let place = Rc::clone(&result);
        let job: Job = Box::pin(async move {
            let value = future.await;
            *place.borrow_mut() = Some(value);
        });
        let task = match self.free.pop() {
            Some(task) => {
                self.tasks[task].job = Some(job);
                task
            }
            None if self.tasks.len() < self.tasks_max => {
                let task = self.tasks.len();
                let waker = Waker::from(Arc::new(Bell { ready: Arc::clone(&self.ready), task }));
                self.tasks.push(Task { job: Some(job), waker });
                task
            }
            None => return Err(SpawnError),
        };
        self.ready.set(task);
        Ok(Running { result })
    }

    /// Whether a worker is to be resumed.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.words_used().iter().any(|word| word.load(Ordering::Relaxed) != 0)
    }

    /// The words in which a task's bit may be set: a loop that only polls looks at them several times a turn,
    /// and there may be places for thousands of tasks.
    #[inline]
    fn words_used(&self) -> &[AtomicU64] {
        &self.ready.words[..self.tasks.len().div_ceil(64)]
    }

    /// Resumes every worker that was woken, once; returns how many.
    #[inline]
    pub(crate) fn run(&mut self) -> u64 {
        let mut resumed = 0;
        for at in 0..self.words_used().len() {
            if self.ready.words[at].load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = self.ready.words[at].swap(0, Ordering::AcqRel);
            while bits != 0 {
                let task = at * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                resumed += self.resume(task);
            }
        }
        resumed
    }

    #[inline]
    fn resume(&mut self, index: usize) -> u64 {
        let Some(task) = self.tasks.get_mut(index) else { return 0 };
        let Some(job) = &mut task.job else { return 0 };
        if let Poll::Ready(()) = job.as_mut().poll(&mut Context::from_waker(&task.waker)) {
            task.job = None;
            self.free.push(index);
        }
        1
    }
}

/// A worker's result, once it has one. Dropping this leaves the worker running.
#[derive(Debug)]
pub struct Running<T> {
    result: Rc<RefCell<Option<T>>>,
}

impl<T> Running<T> {
    /// Whether the worker has ended and its result has not been taken.
    pub fn is_done(&self) -> bool {
        self.result.borrow().is_some()
    }

    /// Takes the result, if the worker has ended.
    pub fn take(&self) -> Option<T> {
        self.result.borrow_mut().take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_worker_runs_once_however_often_it_is_woken() {
        let mut executor = Executor::new(100);
        let (runs, waker) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(None::<Waker>)));
        for _ in 0..70 {
            let (runs, waker) = (Rc::clone(&runs), Rc::clone(&waker));
            let running = executor.spawn(std::future::poll_fn(move |cx| {
                runs.set(runs.get() + 1);
                *waker.borrow_mut() = Some(cx.waker().clone());
                if runs.get() > 71 { Poll::Ready(()) } else { Poll::Pending }
            }));
            assert!(running.is_ok());
        }
        assert_eq!((executor.run(), runs.get()), (70, 70));
        assert_eq!(executor.run(), 0);
        let last = waker.borrow().clone().expect("the last one's");
        last.wake_by_ref();
        last.wake_by_ref();
        assert_eq!((executor.run(), runs.get()), (1, 71));
        last.wake();
        assert_eq!((executor.run(), executor.running()), (1, 69));
    }

    #[test]
    fn places_are_used_again_and_there_are_no_more_than_said() {
        let mut executor = Executor::new(2);
        for round in 0..5 {
            let both = [executor.spawn(async move { round }), executor.spawn(async move { round + 1 })];
            assert!(executor.spawn(async {}).is_err());
            executor.run();
            let taken = both.map(|running| running.ok().and_then(|running| running.take()));
            assert_eq!(taken, [Some(round), Some(round + 1)]);
        }
    }
}
