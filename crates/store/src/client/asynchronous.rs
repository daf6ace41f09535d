//! The client itself, as `async` code: many questions may be under way at a time. The blocking client is this one, and a loop that waits for it.

use super::backoff::Backoff;
use super::connection::{ANSWER_PATIENCE, State};
use super::{AsyncTransaction, Counts, Name, Transport, Value, unexpected};
use crate::access::Access;
use crate::error::StoreError;
use crate::message::{Answer, Entry, Footprint, NodeStatus, Request};
use crate::milestones::Milestone;
use crate::rows;
use std::cell::RefCell;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// A client of a cluster whose operations are futures. With [`Transport::Rpc`] many may be under way at a time, and each drives the endpoint
/// while it is polled, on any executor; they stay on their thread. Connecting blocks, and over [`Transport::Tcp`] so does every
/// question.
#[derive(Debug)]
pub struct AsyncClient {
    pub(super) doors: Vec<String>,
    pub(super) access: Access,
    pub(super) transport: Transport,
    pub(super) patience: Duration,
    pub(super) answer_patience: Duration,
    pub(super) state: RefCell<State>,
}

impl AsyncClient {
    /// As [`Client::new`](super::Client::new).
    pub fn new(doors: impl IntoIterator<Item = impl Into<String>>) -> AsyncClient {
        AsyncClient {
            doors: doors.into_iter().map(Into::into).collect(),
            access: Access::anonymous(),
            transport: Transport::default(),
            patience: Duration::from_secs(20),
            answer_patience: ANSWER_PATIENCE,
            state: RefCell::new(State::new(Backoff::new(random_seed()))),
        }
    }

    /// What the client shows of itself when it connects; nothing unless set.
    pub fn set_access(&mut self, access: Access) {
        self.access = access;
        self.state.get_mut().leave();
    }

    /// How questions travel; over TCP unless set.
    pub fn set_transport(&mut self, transport: Transport) {
        self.transport = transport;
        self.state.get_mut().leave();
    }

    /// As [`Client::set_seed`](super::Client::set_seed).
    pub fn set_seed(&mut self, seed: u64) {
        self.state.get_mut().backoff = Backoff::new(seed);
    }

    /// As [`Client::set_patience`](super::Client::set_patience).
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// As [`Client::set_answer_patience`](super::Client::set_answer_patience).
    pub fn set_answer_patience(&mut self, patience: Duration) {
        self.answer_patience = patience.max(Duration::from_millis(1));
    }

    /// The counts so far.
    pub fn counts(&self) -> Counts {
        self.state.borrow().counts
    }

    /// A key's value; `None` if there is none.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn get(&self, table: &str, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, StoreError> {
        self.transact(async |transaction| transaction.get(table, key.as_ref()).await).await
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn put(
        &self,
        table: &str,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<(), StoreError> {
        self.transact(async |transaction| {
            transaction.put(table, key.as_ref(), value.as_ref());
            Ok(())
        })
        .await
    }

    /// Takes a key away; returns whether it was there.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn delete(&self, table: &str, key: impl AsRef<[u8]>) -> Result<bool, StoreError> {
        self.transact(async |transaction| {
            let was_there = transaction.get(table, key.as_ref()).await?.is_some();
            if was_there {
                transaction.delete(table, key.as_ref());
            }
            Ok(was_there)
        })
        .await
    }

    /// As [`Client::scan`](super::Client::scan).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn scan(&self, table: &str, prefix: impl AsRef<[u8]>) -> Result<Vec<Entry>, StoreError> {
        self.transact(async |transaction| transaction.scan_as(table, prefix.as_ref(), true).await).await
    }

    /// As [`Client::range`](super::Client::range).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn range(
        &self,
        table: &str,
        from: impl AsRef<[u8]>,
        to: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<Entry>, StoreError> {
        self.transact(async |transaction| transaction.range(table, from.as_ref(), to, limit).await).await
    }

    /// Runs a transaction until it commits. What is true of [`Client::transact`](super::Client::transact) is true of this.
    ///
    /// # Errors
    /// The closure's error, or why the transaction could not be committed.
    pub async fn transact<T>(
        &self,
        mut body: impl AsyncFnMut(&mut AsyncTransaction<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut attempts = Attempts::new(self.patience);
        loop {
            let mut transaction = AsyncTransaction::new(self);
            let result = body(&mut transaction).await;
            if let Some(result) = self.settle(transaction, result, &mut attempts).await {
                return result;
            }
        }
    }

    /// Ends an attempt at a transaction: its result, or `None` if there is to be another one.
    pub(super) async fn settle<T>(
        &self,
        transaction: AsyncTransaction<'_>,
        result: Result<T, StoreError>,
        attempts: &mut Attempts,
    ) -> Option<Result<T, StoreError>> {
        let result = match result {
            Ok(value) => transaction.commit().await.map(|()| value),
            Err(error) if error.is_verdict() => transaction.check_reads().await.and(Err(error)),
            Err(error) => Err(error),
        };
        let is_over = Instant::now() >= attempts.deadline;
        let pause = {
            let mut state = self.state.borrow_mut();
            match result {
                Err(StoreError::Conflict) if !is_over => state.counts.retries += 1,
                // The commit had no effect, and another node may be able to serve.
                Err(StoreError::Unavailable(_)) if !is_over && state.leave() => state.next += 1,
                result => return Some(result),
            }
            // A random part of a limit that doubles: two clients that conflicted should not conflict again.
            state.backoff.part_of(Duration::from_nanos(50_000 << attempts.failed.min(8)))
        };
        attempts.failed += 1;
        self.pause(pause).await;
        None
    }

    /// Other questions go on meanwhile.
    async fn pause(&self, length: Duration) {
        let line = self.state.borrow().line.clone();
        match line {
            Some(line) => line.sleep(length).await,
            None => std::thread::sleep(length),
        }
    }

    /// As [`Client::status`](super::Client::status).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn status(&self) -> Result<NodeStatus, StoreError> {
        match self.ask(&Request::Status).await? {
            Answer::Status(status) => Ok(*status),
            answer => Err(unexpected(answer)),
        }
    }

    /// As [`Client::doors`](super::Client::doors).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn doors(&self) -> Result<Vec<(u16, String)>, StoreError> {
        match self.ask(&Request::Doors).await? {
            Answer::Doors(doors) => Ok(doors),
            answer => Err(unexpected(answer)),
        }
    }

    /// As [`Client::primaries`](super::Client::primaries).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn primaries(&self, keys: &[(&str, &[u8])]) -> Result<Vec<u16>, StoreError> {
        let names = keys.iter().map(|(table, key)| (table.as_bytes().to_vec(), key.to_vec()));
        match self.ask(&Request::Locate { keys: names.collect() }).await? {
            Answer::Located { nodes } if nodes.len() == keys.len() => Ok(nodes),
            answer => Err(unexpected(answer)),
        }
    }

    /// As [`Client::milestones`](super::Client::milestones).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn milestones(&self) -> Result<Vec<Milestone>, StoreError> {
        match self.ask(&Request::Milestones).await? {
            Answer::Milestones(milestones) => Ok(milestones),
            answer => Err(unexpected(answer)),
        }
    }

    /// As [`Client::stop_node`](super::Client::stop_node).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn stop_node(&self) -> Result<(), StoreError> {
        match self.tell(&Request::Stop).await? {
            Answer::Stopping => Ok(()),
            answer => Err(unexpected(answer)),
        }
    }

    /// As [`Client::leave`](super::Client::leave).
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn leave(&self) -> Result<(), StoreError> {
        match self.tell(&Request::Leave).await? {
            Answer::Leaving => Ok(()),
            answer => Err(unexpected(answer)),
        }
    }

    pub(super) async fn read(&self, keys: &[Name]) -> Result<(Vec<Value>, Footprint), StoreError> {
        keys.iter().try_for_each(|(table, key)| rows::check_key(table, key))?;
        match self.ask(&Request::Get { keys: keys.to_vec() }).await? {
            Answer::Got { values, seen } if values.len() == keys.len() => Ok((values, seen)),
            answer => Err(unexpected(answer)),
        }
    }

    /// Waits for an operation of this client. The thread runs the endpoint meanwhile, and sleeps if nothing comes for a while.
    ///
    /// Only this client's operations make progress: a future that waits for something else as well belongs on an executor.
    pub fn block_on<T>(&self, operation: impl Future<Output = T>) -> T {
        let mut operation = pin!(operation);
        let mut context = Context::from_waker(Waker::noop());
        loop {
            if let Poll::Ready(value) = operation.as_mut().poll(&mut context) {
                return value;
            }
            let line = self.state.borrow().line.clone();
            if let Some(line) = line {
                line.step();
            }
        }
    }
}

/// Attempts at a transaction.
pub(super) struct Attempts {
    deadline: Instant,
    failed: u32,
}

impl Attempts {
    pub(super) fn new(patience: Duration) -> Attempts {
        Attempts { deadline: Instant::now() + patience, failed: 0 }
    }
}

/// A seed that no two clients share. A system without random numbers, if there is one, has the time.
fn random_seed() -> u64 {
    let mut bytes = [0; 8];
    match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::NONBLOCK) {
        Ok(8) => u64::from_le_bytes(bytes),
        _ => std::time::SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64),
    }
}
