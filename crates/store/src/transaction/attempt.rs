//! Attempts at a transaction: it runs until it commits, again and again if others are in its way, or once as a part of several.

use super::{PIECES_MAX, Transaction};
use crate::engine::PATIENCE_NS;
use crate::error::StoreError;
use crate::session::{Local, Stop};
use std::cell::Cell as Flag;
use std::future::Future;
use std::pin::pin;
use std::task::Poll;

/// What became of one attempt.
#[derive(Debug)]
pub(crate) enum Attempt<T> {
    Done(T),
    /// Nothing was done, because another transaction was in the way, or not all was locked in time.
    Conflict,
    /// Nothing was done, for another reason.
    Nothing,
    /// Whether it has committed is not known.
    Unknown(StoreError),
}

impl Local {
    /// Runs a transaction until it commits, again and again if others conflict with it, for at most
    /// `patience_ns`.
    pub(crate) async fn transact<T>(
        &self,
        patience_ns: u64,
        body: impl AsyncFnMut(&mut Transaction) -> Result<T, Stop>,
    ) -> Result<T, StoreError> {
        self.transact_with(patience_ns, false, body).await
    }

    /// The same; `is_long`: it will write much.
    pub(crate) async fn transact_with<T>(
        &self,
        patience_ns: u64,
        is_long: bool,
        body: impl AsyncFnMut(&mut Transaction) -> Result<T, Stop>,
    ) -> Result<T, StoreError> {
        self.transact_at_most(u32::MAX, patience_ns, is_long, body).await
    }

    /// The same, and no more than so many attempts that others conflict with: then the error is a conflict, also for a range that is too long.
    pub(crate) async fn transact_at_most<T>(
        &self,
        attempts_max: u32,
        patience_ns: u64,
        mut is_long: bool,
        mut body: impl AsyncFnMut(&mut Transaction) -> Result<T, Stop>,
    ) -> Result<T, StoreError> {
        let began = self.shared.clock.now_ns();
        let deadline = began + patience_ns;
        let arrival = self.arrive();
        let mut pieces = 1;
        // Whether the last attempt that ended was a conflict.
        let mut has_conflicted = false;
        for attempt in 0u32.. {
            let is_committing = Flag::new(false);
            let once = async {
                let session = self.begin_with(arrival, is_long).await?;
                let mut transaction = Transaction::new(session, pieces);
                let value = match body(&mut transaction).await {
                    // What led to the error may never have been true at one instant: then the body runs again.
                    Err(Stop::Error(error)) if error.is_verdict() => {
                        transaction.session.commit_reads().await?;
                        return Err(Stop::Error(error));
                    }
                    result => result?,
                };
                let is_outdated = transaction.is_outdated();
                if !transaction.lock().await? {
                    transaction.session.commit_reads().await?;
                    return Ok(value);
                }
                self.pass_freeze().await;
                if transaction.has_written {
                    is_committing.set(true);
                    transaction.session.commit().await?;
                    return Ok(value);
                }
                // Only what had expired is deleted. Whether that was done is no outcome of a read, which may run again.
                transaction.session.commit_reads().await?;
                // Versions that were shown are others now.
                if is_outdated { Err(Stop::Conflict) } else { Ok(value) }
            };
            let stop = match self.until(deadline, once).await {
                Some(Ok(value)) => {
                    self.count_committed(1, began);
                    return Ok(value);
                }
                Some(Err(stop)) => stop,
                None if is_committing.get() => {
                    self.shared.outcomes.borrow_mut().unknown += 1;
                    return Err(StoreError::Unknown(self.why_unavailable()));
                }
                // Its attempts ended in time, but other transactions came first: the members do answer.
                None if has_conflicted => Stop::Conflict,
                None => Stop::Unavailable,
            };
            let is_over = self.shared.clock.now_ns() >= deadline;
            match stop {
                Stop::Error(error) => {
                    let mut outcomes = self.shared.outcomes.borrow_mut();
                    match error {
                        StoreError::Unknown(_) => outcomes.unknown += 1,
                        // A client's read set no longer holds: the client tries again.
                        StoreError::Conflict => outcomes.conflicts += 1,
                        _ => outcomes.refused += 1,
                    }
                    return Err(error);
                }
                Stop::NeedsLongWorker => is_long = true,
                Stop::TooLong if pieces < PIECES_MAX => pieces *= 4,
                Stop::TooLong if attempts_max < u32::MAX => return Err(StoreError::Conflict),
                Stop::TooLong => {
                    return Err(StoreError::invalid(
                        "the table has too many rows to be read in one transaction",
                    ));
                }
                Stop::Conflict => {
                    has_conflicted = true;
                    self.shared.outcomes.borrow_mut().conflicts += 1;
                    if is_over || attempt + 1 >= attempts_max {
                        return Err(StoreError::Conflict);
                    }
                    let most = 10_000u64 << attempt.min(9);
                    let pause = self.shared.rng.borrow_mut().between(most / 4, most);
                    self.sleep_ns(pause).await;
                }
                Stop::Unavailable => {
                    has_conflicted = false;
                    self.shared.outcomes.borrow_mut().unavailable += 1;
                    if is_over {
                        return Err(StoreError::Unavailable(self.why_unavailable()));
                    }
                    self.sleep_ns(2_000_000).await;
                }
            }
        }
        Err(StoreError::Conflict)
    }

    /// Notes transactions that have committed, and how long each took.
    pub(crate) fn count_committed(&self, count: u64, began_ns: u64) {
        let mut outcomes = self.shared.outcomes.borrow_mut();
        outcomes.committed += count;
        let took_ns = self.shared.clock.now_ns().saturating_sub(began_ns);
        (0..count).for_each(|_| outcomes.latencies.record(took_ns));
    }

    /// One attempt at a transaction that is made of several, which can run alone as well. It has `prepare_ns` to read and lock all.
    pub(crate) async fn attempt<T>(
        &self,
        prepare_ns: u64,
        body: impl AsyncFnOnce(&mut Transaction) -> Result<T, Stop>,
    ) -> Attempt<T> {
        let began = self.shared.clock.now_ns();
        let prepared = async {
            let session = self.begin().await?;
            let mut transaction = Transaction::new(session, 1);
            let value = body(&mut transaction).await?;
            if !transaction.lock().await? {
                transaction.session.commit_reads().await?;
                return Ok((value, None));
            }
            self.pass_freeze().await;
            Ok((value, Some((transaction.session, transaction.has_written))))
        };
        let (value, session) = match self.until(began + prepare_ns, prepared).await {
            Some(Ok(prepared)) => prepared,
            Some(Err(stop)) => return self.nothing(&stop),
            None => return Attempt::Conflict,
        };
        let Some((session, has_written)) = session else { return Attempt::Done(value) };
        let unknown = match self.until(began + PATIENCE_NS, session.commit()).await {
            Some(Ok(())) => return Attempt::Done(value),
            Some(Err(Stop::Error(error @ StoreError::Unknown(_)))) => error,
            Some(Err(stop)) => return self.nothing(&stop),
            None => StoreError::Unknown(self.why_unavailable()),
        };
        // Only what had expired was to be deleted. Whether that was done is no outcome of a read, which may run again.
        if !has_written {
            return Attempt::Nothing;
        }
        self.shared.outcomes.borrow_mut().unknown += 1;
        Attempt::Unknown(unknown)
    }

    fn nothing<T>(&self, stop: &Stop) -> Attempt<T> {
        if !matches!(stop, Stop::Conflict) {
            return Attempt::Nothing;
        }
        self.shared.outcomes.borrow_mut().conflicts += 1;
        Attempt::Conflict
    }

    /// The future's result, or `None` if the deadline passes before.
    pub(crate) async fn until<T>(&self, deadline_ns: u64, work: impl Future<Output = T>) -> Option<T> {
        let left = deadline_ns.saturating_sub(self.shared.clock.now_ns());
        let mut work = pin!(work);
        let mut over = pin!(self.sleep_ns(left));
        std::future::poll_fn(move |cx| match work.as_mut().poll(cx) {
            Poll::Ready(value) => Poll::Ready(Some(value)),
            Poll::Pending => over.as_mut().poll(cx).map(|()| None),
        })
        .await
    }

    /// Why transactions cannot run, for a person who asks.
    pub(crate) fn why_unavailable(&self) -> String {
        let node = self.shared.node.borrow();
        let configuration = node.configuration();
        let members: Vec<String> = configuration.nodes().map(|node| node.0.to_string()).collect();
        let members = members.join(", ");
        if configuration.boot(node.id()) != Some(node.boot()) {
            return format!(
                "node {} is none of the members (now {members}) and waits to be let in again",
                node.id().0
            );
        }
        if node.is_open() {
            return format!("too few of the members ({members}) answer node {}", node.id().0);
        }
        format!("the members ({members}) recover from a failure, and some of them do not answer")
    }
}
