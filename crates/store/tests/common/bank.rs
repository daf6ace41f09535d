//! A bank as load: each transaction moves money between two accounts, and adds one to its client's counter.

use super::{commit, put, until};
use highwire_store::{Client, StoreError};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

pub(crate) const ACCOUNTS: u64 = 60;
const BALANCE: i64 = 1000;
pub(crate) const CLIENTS: usize = 3;

/// Counts by client.
pub(crate) type Counts = [u64; CLIENTS];

#[derive(Default)]
pub(crate) struct Bank {
    is_over: AtomicBool,
    acknowledged: [AtomicU64; CLIENTS],
    /// Attempts of unknown outcome.
    unknown: [AtomicU64; CLIENTS],
}

fn account(number: u64) -> String {
    format!("account-{number:04}")
}

fn counter(client: usize) -> String {
    format!("client-{client}")
}

fn number(value: Option<Vec<u8>>) -> i64 {
    value.map_or(0, |value| String::from_utf8(value).expect("digits").parse().expect("a number"))
}

impl Bank {
    pub(crate) fn open(client: &mut Client) -> Bank {
        for number in 0..ACCOUNTS {
            put(client, "bank", account(number), BALANCE.to_string());
        }
        Bank::default()
    }

    /// Rows besides, so that moving everything takes a while.
    pub(crate) fn fill(client: &mut Client, rows: usize) {
        for chunk in (0..rows).collect::<Vec<_>>().chunks(50) {
            let fill = || {
                client.transact(|transaction| {
                    for row in chunk {
                        transaction.put("filling", format!("row-{row:06}"), "x".repeat(1000));
                    }
                    Ok(())
                })
            };
            commit("rows that are stored", fill);
        }
    }

    fn run(&self, doors: &[String], own: usize) {
        let mut client = Client::new(doors);
        client.set_patience(Duration::from_secs(1));
        let mut random = own as u64;
        while !self.is_over.load(Ordering::SeqCst) {
            let mut draw = |below: u64| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 33) % below
            };
            let (from, to, amount) = (account(draw(ACCOUNTS)), account(draw(ACCOUNTS)), draw(50) as i64);
            let result = client.transact(|transaction| {
                let counted = number(transaction.get("bank", counter(own))?);
                let (there, other) =
                    (number(transaction.get("bank", &from)?), number(transaction.get("bank", &to)?));
                if from != to {
                    transaction.put("bank", &from, (there - amount).to_string());
                    transaction.put("bank", &to, (other + amount).to_string());
                }
                transaction.put("bank", counter(own), (counted + 1).to_string());
                Ok(())
            });
            match result {
                Ok(()) => drop(self.acknowledged[own].fetch_add(1, Ordering::SeqCst)),
                Err(StoreError::Unknown(_)) => drop(self.unknown[own].fetch_add(1, Ordering::SeqCst)),
                Err(StoreError::Conflict | StoreError::Unavailable(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Lets clients of these doors work while `work` runs, and waits for them.
    pub(crate) fn during<T>(&self, doors: &[String], work: impl FnOnce(&Bank) -> T) -> T {
        self.is_over.store(false, Ordering::SeqCst);
        std::thread::scope(|scope| {
            for own in 0..CLIENTS {
                scope.spawn(move || self.run(doors, own));
            }
            let _guard = StopAtEnd(self);
            work(self)
        })
    }

    /// Waits until the clients have committed this many more transactions.
    #[track_caller]
    pub(crate) fn wait_for(&self, more: u64) {
        let sum = || self.acknowledged().iter().sum::<u64>();
        let goal = sum() + more;
        until("commits of the bank's clients", || (sum() >= goal).then_some(()));
    }

    pub(crate) fn acknowledged(&self) -> Counts {
        std::array::from_fn(|own| self.acknowledged[own].load(Ordering::SeqCst))
    }

    /// More cannot have been committed, if each client has at most one transaction under way.
    pub(crate) fn possible(&self) -> Counts {
        std::array::from_fn(|own| {
            self.acknowledged[own].load(Ordering::SeqCst) + self.unknown[own].load(Ordering::SeqCst) + 1
        })
    }

    /// Asserts that a store holds the bank as it was at one instant, when at least `least` and at most `most` had been committed.
    #[track_caller]
    pub(crate) fn check(client: &mut Client, least: Counts, most: Counts) {
        let entries = client.scan("bank", "").expect("scanned");
        let mut balances: BTreeMap<String, i64> = entries
            .into_iter()
            .map(|entry| (String::from_utf8(entry.key).expect("text"), number(Some(entry.value))))
            .collect();
        for own in 0..CLIENTS {
            let counted = balances.remove(&counter(own)).unwrap_or(0) as u64;
            assert!(
                (least[own]..=most[own]).contains(&counted),
                "client {own} counted {counted}, and not {} to {}",
                least[own],
                most[own]
            );
        }
        assert_eq!(balances.len() as u64, ACCOUNTS);
        assert_eq!(balances.values().sum::<i64>(), ACCOUNTS as i64 * BALANCE, "money was lost or made");
    }

    /// Asserts that all doors give the bank as it must be now that no client works.
    #[track_caller]
    pub(crate) fn check_all(&self, doors: &[String]) {
        for door in doors {
            let mut client = Client::new([door.clone()]);
            client.set_patience(super::PATIENCE);
            Bank::check(&mut client, self.acknowledged(), self.possible());
        }
    }
}

/// A test that fails must not leave its clients running.
struct StopAtEnd<'a>(&'a Bank);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
    }
}
