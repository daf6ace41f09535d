//! A client of the bank: one transaction after the other.

use std::time::Instant;

use hdrhistogram::Histogram;
use highwire_stdx::Rng;
use highwire_store::{Client, ClientTransaction, StoreError};

pub(super) const SAVINGS: &str = "savings";
pub(super) const CHECKING: &str = "checking";
/// The sum that the bank itself has put in or taken out: with it, the total never changes.
pub(super) const LEDGER: &str = "ledger";
/// The share of hot accounts, in percent; and the share of transactions that draw among them.
const HOT_ACCOUNTS: u64 = 4;
const HOT_TRANSACTIONS: u64 = 90;

/// SmallBank's transactions, with their share in percent.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Amalgamate,
    Balance,
    DepositChecking,
    SendPayment,
    TransactSavings,
    WriteCheck,
}

const MIX: [(Kind, u64); 6] = [
    (Kind::Amalgamate, 15),
    (Kind::Balance, 15),
    (Kind::DepositChecking, 15),
    (Kind::SendPayment, 25),
    (Kind::TransactSavings, 15),
    (Kind::WriteCheck, 15),
];

fn draw_kind(rng: &mut Rng) -> Kind {
    let mut drawn = rng.below(100);
    for (kind, share) in MIX {
        if drawn < share {
            return kind;
        }
        drawn -= share;
    }
    Kind::Balance
}

/// One client, and its results.
pub(super) struct Teller {
    pub(super) client: Client,
    pub(super) name: String,
    pub(super) rng: Rng,
    pub(super) accounts: u64,
    /// Whether money that the bank gives or takes is recorded.
    pub(super) keeps_ledger: bool,
    pub(super) latencies: Histogram<u64>,
    pub(super) unknown: u64,
    pub(super) unavailable: u64,
}

impl Teller {
    /// Carries out one transaction, until it is committed or cannot be.
    pub(super) fn work(&mut self) -> Result<bool, StoreError> {
        let kind = draw_kind(&mut self.rng);
        let hot = (self.accounts * HOT_ACCOUNTS / 100).max(2);
        let among = if self.rng.below(100) < HOT_TRANSACTIONS { hot } else { self.accounts };
        let one = self.rng.below(among);
        let two = (one + self.rng.between(1, among - 1)) % among;
        let amount = self.rng.between(1, 500) as i64;
        let (ledger, keeps_ledger) = (self.name.clone(), self.keeps_ledger);
        let began = Instant::now();
        let result = self.client.transact(|transaction| {
            let made = run(transaction, kind, &name(one), &name(two), amount)?;
            if keeps_ledger && made != 0 {
                let there = number(transaction.get(LEDGER, &ledger)?)?;
                transaction.put(LEDGER, &ledger, (there - made).to_string());
            }
            Ok(())
        });
        match result {
            Ok(()) => {
                self.latencies.saturating_record(began.elapsed().as_nanos() as u64);
                Ok(true)
            }
            Err(StoreError::Unknown(_)) => {
                self.unknown += 1;
                Ok(false)
            }
            Err(StoreError::Unavailable(_) | StoreError::Conflict) => {
                self.unavailable += 1;
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

pub(super) fn name(account: u64) -> String {
    format!("{account:06}")
}

pub(super) fn number(value: Option<Vec<u8>>) -> Result<i64, StoreError> {
    let Some(value) = value else { return Ok(0) };
    let number = std::str::from_utf8(&value).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| StoreError::Aborted("an account holds no number".into()))
}

/// Carries out the transaction; returns by how much the money has grown.
fn run(
    transaction: &mut ClientTransaction<'_>,
    kind: Kind,
    one: &str,
    two: &str,
    amount: i64,
) -> Result<i64, StoreError> {
    let read =
        |transaction: &mut ClientTransaction<'_>, keys: &[(&str, &str)]| -> Result<Vec<i64>, StoreError> {
            let keys: Vec<(&str, &[u8])> = keys.iter().map(|(table, key)| (*table, key.as_bytes())).collect();
            transaction.get_all(&keys)?.into_iter().map(number).collect()
        };
    Ok(match kind {
        Kind::Amalgamate => {
            let there = read(transaction, &[(SAVINGS, one), (CHECKING, one), (CHECKING, two)])?;
            transaction.put(SAVINGS, one, "0");
            transaction.put(CHECKING, one, "0");
            transaction.put(CHECKING, two, (there[0] + there[1] + there[2]).to_string());
            0
        }
        Kind::Balance => {
            read(transaction, &[(SAVINGS, one), (CHECKING, one)])?;
            0
        }
        Kind::DepositChecking => {
            let there = read(transaction, &[(CHECKING, one)])?;
            transaction.put(CHECKING, one, (there[0] + amount).to_string());
            amount
        }
        Kind::SendPayment => {
            let there = read(transaction, &[(CHECKING, one), (CHECKING, two)])?;
            if there[0] >= amount {
                transaction.put(CHECKING, one, (there[0] - amount).to_string());
                transaction.put(CHECKING, two, (there[1] + amount).to_string());
            }
            0
        }
        Kind::TransactSavings => {
            let there = read(transaction, &[(SAVINGS, one)])?;
            transaction.put(SAVINGS, one, (there[0] + amount).to_string());
            amount
        }
        Kind::WriteCheck => {
            let there = read(transaction, &[(SAVINGS, one), (CHECKING, one)])?;
            // An overdraft costs a cent more.
            let fee = i64::from(there[0] + there[1] < amount);
            transaction.put(CHECKING, one, (there[1] - amount - fee).to_string());
            -amount - fee
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mix_is_fassts() {
        assert_eq!(MIX.iter().map(|(_, share)| share).sum::<u64>(), 100);
        let mut rng = Rng::new(1);
        let payments = (0..10_000).filter(|_| matches!(draw_kind(&mut rng), Kind::SendPayment)).count();
        assert!((2300..2700).contains(&payments), "{payments}");
    }
}
