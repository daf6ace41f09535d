//! Clients that count, each alone and all together, so that no loss of an acknowledged transaction, as a
//! whole or in part, goes unseen.
//!
//! One transaction adds one to its client's own counter, moves money between two accounts, and adds one to
//! the touches of both. So a client's counter is at least the number of its acknowledged transactions, and at
//! most that and the number of those with unknown outcome; the sum of money stays; and touches are twice the
//! counters.

use super::{FaultError, failed};
use crate::{Client, ClientTransaction, Clock, StoreError};
use highwire_stdx::Rng;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

pub(super) const ACCOUNTS: u16 = 300;
const BALANCE: i64 = 1000;
const COUNTERS: &str = "counters";
pub(super) const BANK: &str = "bank";

/// A transaction that was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// When its client began it, by [`Clock`].
    pub began_ns: u64,
    /// When its client got the answer.
    pub ended_ns: u64,
    /// The accounts that it changed.
    pub accounts: [u16; 2],
}

/// The outcomes that clients have got since the cluster began.
#[derive(Debug)]
pub struct Counted {
    acknowledged: Vec<AtomicU64>,
    unknown: Vec<AtomicU64>,
}

impl Counted {
    /// Nothing yet.
    pub fn new(clients: usize) -> Arc<Counted> {
        let zeros = || (0..clients).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Counted { acknowledged: zeros(), unknown: zeros() })
    }

    /// Transactions that were acknowledged.
    pub fn acknowledged(&self) -> u64 {
        self.acknowledged.iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }

    /// Transactions of unknown outcome.
    pub fn unknown(&self) -> u64 {
        self.unknown.iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }

    /// Counts again, at one node's door.
    ///
    /// # Errors
    /// [`FaultError`]: a transaction is missing, or there is one too many.
    pub fn check(&self, door: &str) -> Result<(), FaultError> {
        let mut client = Client::new([door]);
        client.set_patience(super::PATIENCE);
        let scanned =
            client.transact(|transaction| Ok((transaction.scan(COUNTERS, "")?, transaction.scan(BANK, "")?)));
        let (counters, bank) = scanned.map_err(|error| failed(format!("counting at {door}"), error))?;
        let wrong = |what: String| Err(FaultError(format!("at {door}: {what}")));
        let mut sum = 0;
        for (place, (acknowledged, unknown)) in self.acknowledged.iter().zip(&self.unknown).enumerate() {
            let counter = counters.iter().find(|entry| entry.key == own(place).into_bytes());
            let counted =
                counter.map_or(Ok(0), |entry| numbers(&entry.value).map(|[number]| number as u64))?;
            let (least, unknown) = (acknowledged.load(Ordering::SeqCst), unknown.load(Ordering::SeqCst));
            if counted < least || counted > least + unknown {
                return wrong(format!(
                    "client {place} was told of {least} commits and not told of {unknown}; {counted} are there"
                ));
            }
            sum += counted;
        }
        let accounts =
            bank.iter().map(|entry| numbers(&entry.value)).collect::<Result<Vec<[i64; 2]>, _>>()?;
        let (money, touches) =
            accounts.iter().fold((0, 0), |sums, [money, touches]| (sums.0 + money, sums.1 + touches));
        if accounts.len() != usize::from(ACCOUNTS) || money != i64::from(ACCOUNTS) * BALANCE {
            return wrong(format!("{} accounts hold {money}", accounts.len()));
        }
        if touches as u64 != 2 * sum {
            return wrong(format!(
                "{sum} transactions have touched accounts {touches} times: one was done in part"
            ));
        }
        Ok(())
    }
}

/// Repeats a transaction that may be done twice, until it is known to be done: nodes of a busy machine may be
/// suspected wrongly.
fn again(
    what: &str,
    client: &mut Client,
    body: &mut dyn FnMut(&mut ClientTransaction<'_>) -> Result<(), StoreError>,
) -> Result<(), FaultError> {
    super::until(what, || match client.transact(&mut *body) {
        Err(StoreError::Unknown(_) | StoreError::Unavailable(_) | StoreError::Conflict) => None,
        done => Some(done),
    })?
    .map_err(|error| failed(what, error))
}

/// Running clients.
#[derive(Debug)]
pub struct Load {
    is_over: Arc<AtomicBool>,
    counted: Arc<Counted>,
    commits: Arc<Mutex<Vec<Commit>>>,
    clients: Vec<JoinHandle<Result<(), StoreError>>>,
}

impl Drop for Load {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
    }
}

impl Load {
    /// Opens the accounts, and fills a table that no client reads, so that copying takes some time.
    ///
    /// # Errors
    /// [`FaultError`]
    pub fn prepare(doors: &[String], filling: u64) -> Result<(), FaultError> {
        let mut client = Client::new(doors);
        client.set_patience(super::PATIENCE);
        for first in (0..ACCOUNTS).step_by(50) {
            again("opening accounts", &mut client, &mut |transaction| {
                for account in first..(first + 50).min(ACCOUNTS) {
                    transaction.put(BANK, name(account), format!("{BALANCE} 0"));
                }
                Ok(())
            })?;
        }
        for first in (0..filling).step_by(20) {
            again("filling", &mut client, &mut |transaction| {
                for row in first..(first + 20).min(filling) {
                    transaction.put("filling", format!("{row:08}"), "x".repeat(1000));
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Starts as many clients as `counted` has places, spread over the doors. A client that has no answer for
    /// `patience` goes to the next door.
    pub fn start(doors: &[String], counted: &Arc<Counted>, patience: Duration, seed: u64) -> Load {
        let is_over = Arc::new(AtomicBool::new(false));
        let commits = Arc::new(Mutex::new(Vec::new()));
        let start = |place: usize| {
            let mut doors = doors.to_vec();
            let length = doors.len().max(1);
            doors.rotate_left(place % length);
            let mut client = Client::new(doors);
            client.set_patience(patience);
            client.set_answer_patience(patience);
            let clerk = Clerk {
                place,
                client,
                rng: Rng::new(seed.wrapping_mul(1000) + place as u64),
                counted: Arc::clone(counted),
                commits: Arc::clone(&commits),
            };
            let is_over = Arc::clone(&is_over);
            thread::spawn(move || clerk.run(&is_over))
        };
        let clients = (0..counted.acknowledged.len()).map(start).collect();
        Load { is_over, counted: Arc::clone(counted), commits, clients }
    }

    /// Waits until this many more transactions were acknowledged.
    ///
    /// # Errors
    /// [`FaultError`]
    pub fn wait_for(&self, more: u64) -> Result<(), FaultError> {
        let goal = self.counted.acknowledged() + more;
        super::until("commits", || (self.counted.acknowledged() >= goal).then_some(()))
    }

    /// Ends the load; returns the acknowledged transactions, in no order.
    ///
    /// # Errors
    /// [`FaultError`]: a client met an error that no fault excuses.
    pub fn stop(mut self) -> Result<Vec<Commit>, FaultError> {
        self.is_over.store(true, Ordering::SeqCst);
        for client in std::mem::take(&mut self.clients) {
            let ended = client.join().map_err(|_| FaultError("a client panicked".into()))?;
            ended.map_err(|error| failed("a client", error))?;
        }
        Ok(std::mem::take(&mut *self.commits.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// One client.
struct Clerk {
    place: usize,
    client: Client,
    rng: Rng,
    counted: Arc<Counted>,
    commits: Arc<Mutex<Vec<Commit>>>,
}

impl Clerk {
    fn run(mut self, is_over: &AtomicBool) -> Result<(), StoreError> {
        while !is_over.load(Ordering::SeqCst) {
            let one = self.rng.below(u64::from(ACCOUNTS)) as u16;
            let two = (one + 1 + self.rng.below(u64::from(ACCOUNTS) - 1) as u16) % ACCOUNTS;
            let amount = self.rng.between(1, 20) as i64;
            let began_ns = Clock.now_ns();
            match count(&mut self.client, self.place, [one, two], amount) {
                Ok(()) => {
                    let commit = Commit { began_ns, ended_ns: Clock.now_ns(), accounts: [one, two] };
                    self.counted.acknowledged[self.place].fetch_add(1, Ordering::SeqCst);
                    self.commits.lock().unwrap_or_else(PoisonError::into_inner).push(commit);
                }
                Err(StoreError::Unknown(_)) => {
                    self.counted.unknown[self.place].fetch_add(1, Ordering::SeqCst);
                }
                Err(StoreError::Conflict | StoreError::Unavailable(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn count(client: &mut Client, place: usize, accounts: [u16; 2], amount: i64) -> Result<(), StoreError> {
    let (own, [one, two]) = (own(place), accounts.map(name));
    client.transact(|transaction| {
        let keys = [(COUNTERS, own.as_bytes()), (BANK, one.as_bytes()), (BANK, two.as_bytes())];
        let values = transaction.get_all(&keys)?;
        let counter = values[0].as_deref().map_or(Ok([0]), numbers);
        let read = |place: usize| values[place].as_deref().map_or(Ok([0, 0]), numbers);
        let broken = |error: FaultError| StoreError::Aborted(error.to_string());
        let ([counter], from, to) =
            (counter.map_err(broken)?, read(1).map_err(broken)?, read(2).map_err(broken)?);
        transaction.put(COUNTERS, &own, (counter + 1).to_string());
        transaction.put(BANK, &one, format!("{} {}", from[0] - amount, from[1] + 1));
        transaction.put(BANK, &two, format!("{} {}", to[0] + amount, to[1] + 1));
        Ok(())
    })
}

fn own(place: usize) -> String {
    format!("client-{place}")
}

pub(super) fn name(account: u16) -> String {
    format!("account-{account:04}")
}

fn numbers<const N: usize>(value: &[u8]) -> Result<[i64; N], FaultError> {
    let text = String::from_utf8_lossy(value);
    let read = text.split(' ').map(str::parse).collect::<Result<Vec<i64>, _>>().ok();
    let numbers = read.and_then(|numbers| numbers.try_into().ok());
    numbers.ok_or_else(|| FaultError(format!("`{text}` is not what was written")))
}
