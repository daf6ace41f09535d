//! What clients do: they write keys that expire beside keys that count how often they were written.

use super::history::{History, Seen, State};
use crate::rows::Kind;
use crate::session::{Local, Stop};
use crate::transaction::Transaction;
use highwire_stdx::Rng;
use std::cell::RefCell;
use std::rc::Rc;

pub(super) const KEYS: u64 = 5;
const TABLE: &[u8] = b"t";
const PATIENCE_NS: u64 = 60_000_000_000;
/// Longer values lie in rows of their own.
const PADDING_MAX: u64 = 8000;

pub(super) struct Client {
    pub(super) local: Local,
    pub(super) rng: Rng,
    pub(super) history: Rc<RefCell<History>>,
}

fn key(number: u64) -> Vec<u8> {
    format!("key-{number}").into_bytes()
}

/// How often a key was written.
fn count_key(number: u64) -> Vec<u8> {
    format!("count-{number}").into_bytes()
}

fn number(bytes: &[u8], place: usize) -> u64 {
    bytes.chunks(8).nth(place).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}

/// A key as a transaction sees it. An entry is its number and the time at which it expires at the latest.
async fn look(transaction: &mut Transaction, of: u64) -> Result<State, Stop> {
    let count = transaction.get(TABLE, &count_key(of)).await?.map_or(0, |(_, value)| number(&value, 0));
    let entry = transaction.get(TABLE, &key(of)).await?;
    let now_ms = transaction.now_ms();
    Ok(match entry {
        None => State { count, is_there: false, is_wrong: false },
        Some((_, value)) => {
            let is_wrong = number(&value, 0) != count || number(&value, 1) <= now_ms;
            State { count, is_there: true, is_wrong }
        }
    })
}

async fn write(transaction: &mut Transaction, of: u64, ttl_ms: u64, padding: usize) -> Result<State, Stop> {
    let before = look(transaction, of).await?;
    let (count, until) = (before.count + 1, transaction.now_ms() + ttl_ms);
    let mut value = [count.to_le_bytes(), until.to_le_bytes()].concat();
    value.resize(16 + padding, 7);
    transaction.put_until(TABLE, &key(of), Kind::Bytes, &value, Some(until)).await?;
    transaction.put(TABLE, &count_key(of), Kind::Bytes, &count.to_le_bytes()).await?;
    Ok(State { count, ..before })
}

impl Client {
    pub(super) async fn work(mut self, operations: usize) {
        for _ in 0..operations {
            let pause = self.rng.below(60_000_000);
            self.local.sleep_ns(pause).await;
            // Who gives up drops a transaction in any state.
            let patience = if self.rng.chance(0.2) { self.rng.below(1_500_000) } else { PATIENCE_NS };
            let began_ns = self.local.shared.clock.now_ns();
            let of = self.rng.below(KEYS);
            let local = self.local.clone();
            let seen = match self.rng.below(10) {
                0..=3 => {
                    let (ttl_ms, padding) = (self.rng.between(1, 300), self.padding());
                    let body = async |transaction: &mut Transaction| {
                        let seen = write(transaction, of, ttl_ms, padding).await?;
                        Ok(vec![Seen { key: of, before: Some(seen.before()), after: seen.written() }])
                    };
                    local.until(began_ns + patience, local.transact(PATIENCE_NS, body)).await
                }
                4 => {
                    let ttl_ms = self.rng.below(20);
                    // It expires sooner, if it is there.
                    let body = async |transaction: &mut Transaction| {
                        let seen = look(transaction, of).await?;
                        let sooner = transaction.now_ms() + ttl_ms;
                        let now = transaction.expiry(TABLE, &key(of)).await?.flatten();
                        if now.is_some_and(|now| now > sooner) {
                            transaction.set_expiry(TABLE, &key(of), Some(sooner)).await?;
                        }
                        let after = State { is_there: seen.is_there && ttl_ms > 0, ..seen };
                        Ok(vec![Seen { key: of, before: Some(seen), after }])
                    };
                    local.until(began_ns + patience, local.transact(PATIENCE_NS, body)).await
                }
                5..=7 => {
                    let body = async |transaction: &mut Transaction| {
                        let seen = look(transaction, of).await?;
                        Ok(vec![Seen { key: of, before: None, after: seen }])
                    };
                    local.until(began_ns + patience, local.transact(PATIENCE_NS, body)).await
                }
                _ => {
                    let body = async |transaction: &mut Transaction| {
                        let mut all = Vec::new();
                        for key in 0..KEYS {
                            all.push(Seen { key, before: None, after: look(transaction, key).await? });
                        }
                        Ok(all)
                    };
                    local.until(began_ns + patience, local.transact(PATIENCE_NS, body)).await
                }
            };
            let ended_ns = self.local.shared.clock.now_ns();
            self.history.borrow_mut().add(began_ns, ended_ns, seen);
        }
    }

    fn padding(&mut self) -> usize {
        if self.rng.chance(0.2) { self.rng.below(PADDING_MAX) as usize } else { 0 }
    }
}
