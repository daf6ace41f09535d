//! SmallBank: two accounts for each customer, few customers that are in most transactions, and money that is neither made nor lost (FaSST §6.4).

use highwire_stdx::Rng;

use super::{Access, Procedure, Put, Step, View, Workload, lock, pick, read};
use crate::id::{Key, TableId};
use crate::settings::TableKind;
use crate::table::Mode;

/// Savings accounts: eight bytes, a balance.
pub(super) const SAVINGS: TableId = TableId(0);
/// Checking accounts: eight bytes, a balance.
pub(super) const CHECKING: TableId = TableId(1);
const MIX: [(&str, u64); 6] = [
    ("AMALGAMATE", 15),
    ("BALANCE", 15),
    ("DEPOSIT_CHECKING", 15),
    ("SEND_PAYMENT", 25),
    ("TRANSACT_SAVINGS", 15),
    ("WRITE_CHECK", 15),
];
/// In each account at first.
const BALANCE: i64 = 1_000_000;
/// For a check that is not covered.
const PENALTY: i64 = 100;

/// Customers, a hot set of them, and how many transactions in a hundred draw their customers from it.
#[derive(Clone, Debug)]
pub struct SmallBank {
    /// All customers.
    pub customers: u64,
    /// The first of them.
    pub hot: u64,
    /// In percent.
    pub hot_share: u64,
}

impl SmallBank {
    /// The paper's 4000 of 100,000 customers for each thread, in 90 of 100 transactions.
    pub fn of_threads(threads: u64) -> SmallBank {
        SmallBank { customers: 100_000 * threads, hot: 4_000 * threads, hot_share: 90 }
    }
}

struct Transaction {
    name: &'static str,
    one: Key,
    two: Key,
    is_executed: bool,
    money: i64,
}

impl Workload for SmallBank {
    fn tables(&self) -> Vec<TableKind> {
        vec![TableKind::Hash; 2]
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Put> + '_> {
        let account = |key, table| Put { table, key, value: BALANCE.to_le_bytes().to_vec() };
        Box::new((0..self.customers).flat_map(move |key| [account(key, SAVINGS), account(key, CHECKING)]))
    }

    fn draw(&mut self, rng: &mut Rng, _: &dyn Fn(TableId, Key) -> bool) -> Box<dyn Procedure> {
        let name = pick(rng, &MIX);
        let range = if rng.below(100) < self.hot_share { self.hot } else { self.customers };
        let one = rng.below(range);
        let two = (one + rng.between(1, range - 1)) % range;
        Box::new(Transaction { name, one, two, is_executed: false, money: 0 })
    }

    fn mix(&self) -> &'static [(&'static str, u64)] {
        &MIX
    }

    fn balance(&self, value: &[u8]) -> i64 {
        balance(value)
    }
}

impl Transaction {
    fn accesses(&self) -> Vec<Access> {
        let update = |table, key| lock(table, key, Mode::Update);
        match self.name {
            "AMALGAMATE" => {
                vec![update(SAVINGS, self.one), update(CHECKING, self.one), update(CHECKING, self.two)]
            }
            "BALANCE" => vec![read(SAVINGS, self.one), read(CHECKING, self.one)],
            "DEPOSIT_CHECKING" => vec![update(CHECKING, self.one)],
            "SEND_PAYMENT" => vec![update(CHECKING, self.one), update(CHECKING, self.two)],
            "TRANSACT_SAVINGS" => vec![update(SAVINGS, self.one)],
            _ => vec![read(SAVINGS, self.one), update(CHECKING, self.one)],
        }
    }

    /// The new balances; `None` if there is too little on an account.
    fn effects(&mut self, savings: i64, checking: i64, other: i64) -> Option<Vec<(TableId, Key, i64)>> {
        let (one, two) = (self.one, self.two);
        Some(match self.name {
            "AMALGAMATE" => {
                vec![(SAVINGS, one, 0), (CHECKING, one, 0), (CHECKING, two, other + savings + checking)]
            }
            "BALANCE" => Vec::new(),
            "DEPOSIT_CHECKING" => {
                self.money = 130;
                vec![(CHECKING, one, checking + 130)]
            }
            "SEND_PAYMENT" if checking < 500 => return None,
            "SEND_PAYMENT" => vec![(CHECKING, one, checking - 500), (CHECKING, two, other + 500)],
            "TRANSACT_SAVINGS" => {
                self.money = 2020;
                vec![(SAVINGS, one, savings + 2020)]
            }
            _ => {
                let penalty = if savings + checking < 500 { PENALTY } else { 0 };
                self.money = -(500 + penalty);
                vec![(CHECKING, one, checking + self.money)]
            }
        })
    }
}

impl Procedure for Transaction {
    fn name(&self) -> &'static str {
        self.name
    }

    fn arguments(&self) -> Vec<i64> {
        vec![self.one as i64, self.two as i64]
    }

    fn step(&mut self, view: &dyn View) -> Step {
        if !self.is_executed {
            self.is_executed = true;
            return Step::Execute(self.accesses());
        }
        let seen = |table, key| view.value(table, key).map_or(0, balance);
        let (savings, checking) = (seen(SAVINGS, self.one), seen(CHECKING, self.one));
        let other = seen(CHECKING, self.two);
        let Some(effects) = self.effects(savings, checking, other) else { return Step::Abort };
        let put = |(table, key, balance): (TableId, Key, i64)| Put {
            table,
            key,
            value: balance.to_le_bytes().to_vec(),
        };
        Step::Commit(effects.into_iter().map(put).collect())
    }

    fn money(&self) -> i64 {
        self.money
    }
}

/// An account's balance.
pub(super) fn balance(value: &[u8]) -> i64 {
    value.first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes))
}
