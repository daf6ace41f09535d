//! A worker's calls: call, send batches, sleep.

use crate::batch::{Batch, Reply};
use crate::config::{Node, RequestType};
use crate::core::Core;
use crate::counters::Counters;
use crate::error::CallError;
use highwire_stdx::{Duration, Instant};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// A worker's access to its endpoint. Clones are the same.
#[derive(Clone, Debug)]
pub struct Worker {
    pub(crate) core: Rc<RefCell<Core>>,
}

impl Worker {
    /// This node.
    pub fn node(&self) -> Node {
        self.core.borrow().config.node
    }

    /// The time that the driver gave last.
    pub fn now(&self) -> Instant {
        self.core.borrow().now
    }

    /// The endpoint's work so far.
    pub fn counters(&self) -> Counters {
        self.core.borrow().counters
    }

    /// The configuration id that goes with every datagram.
    pub fn fence(&self) -> u16 {
        self.core.borrow().fence
    }

    /// Sends one request, and waits for its response.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call(&self, node: Node, request: RequestType, bytes: &[u8]) -> Result<Reply, CallError> {
        let mut batch = self.batch();
        batch.add(node, request, bytes);
        batch.send().await.into_only()
    }

    /// As [`call`](Self::call), but gives up after `timeout`.
    ///
    /// # Errors
    /// [`CallError`].
    pub async fn call_within(
        &self,
        node: Node,
        request: RequestType,
        bytes: &[u8],
        timeout: Duration,
    ) -> Result<Reply, CallError> {
        let mut batch = self.batch();
        batch.timeout(timeout);
        batch.add(node, request, bytes);
        batch.send().await.into_only()
    }

    /// Requests that are sent together: those to one node in one datagram, and all with one doorbell.
    pub fn batch(&self) -> Batch {
        Batch::new(self.clone())
    }

    /// Waits until `length` of time has passed.
    pub fn sleep(&self, length: Duration) -> Sleep {
        let until = self.now() + length;
        Sleep { core: Rc::clone(&self.core), until, key: None }
    }

    /// Lets the other workers run.
    pub fn yield_now(&self) -> YieldNow {
        YieldNow { has_yielded: false }
    }
}

/// Waits for a time.
#[derive(Debug)]
pub struct Sleep {
    core: Rc<RefCell<Core>>,
    until: Instant,
    key: Option<(Instant, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let core = Rc::clone(&self.core);
        let mut core = core.borrow_mut();
        if core.now >= self.until {
            return Poll::Ready(());
        }
        let key = match self.key {
            Some(key) => key,
            None => {
                core.sleeps += 1;
                (self.until, core.sleeps)
            }
        };
        core.sleepers.insert(key, cx.waker().clone());
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.core.borrow_mut().sleepers.remove(&key);
        }
    }
}

/// Lets the other workers run once.
#[derive(Debug)]
pub struct YieldNow {
    has_yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}
