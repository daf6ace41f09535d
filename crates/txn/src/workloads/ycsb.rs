//! YCSB's core workloads over points: A (half updates), B (few), C (none) and F (half read and then written), keys drawn by Zipf's law. D and E, which
//! read what was inserted last and short ranges, are not here.

use highwire_stdx::Rng;

use super::{Access, Procedure, Put, Step, View, Workload, lock, read};
use crate::id::{Key, TableId, mix};
use crate::settings::TableKind;
use crate::table::Mode;

const TABLE: TableId = TableId(0);

/// Which of the core workloads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mix {
    /// 50 % reads, 50 % updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads only.
    C,
    /// 50 % reads, 50 % reads with an update of the same key.
    F,
}

/// Keys, their values, and how they are drawn.
#[derive(Clone, Debug)]
pub struct Ycsb {
    mix: Mix,
    keys: u64,
    value_bytes: usize,
    operations: usize,
    zipf: Zipf,
}

/// Zipf's law, as Gray and others draw from it (SIGMOD 1994).
#[derive(Clone, Debug)]
struct Zipf {
    count: u64,
    theta: f64,
    alpha: f64,
    zeta: f64,
    eta: f64,
}

impl Zipf {
    fn new(count: u64, theta: f64) -> Zipf {
        let zeta_of = |count: u64| (1..=count).map(|rank| libm::pow(1.0 / rank as f64, theta)).sum::<f64>();
        let zeta = zeta_of(count);
        let eta = (1.0 - libm::pow(2.0 / count as f64, 1.0 - theta)) / (1.0 - zeta_of(2) / zeta);
        Zipf { count, theta, alpha: 1.0 / (1.0 - theta), zeta, eta }
    }

    /// A rank; 0 is the most frequent.
    fn draw(&self, rng: &mut Rng) -> u64 {
        let uniform = rng.unit();
        let scaled = uniform * self.zeta;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + libm::pow(0.5, self.theta) {
            return 1;
        }
        let rank = self.count as f64 * libm::pow(self.eta * uniform - self.eta + 1.0, self.alpha);
        (rank as u64).min(self.count - 1)
    }
}

impl Ycsb {
    /// `theta` is the law's exponent, 0 for uniform keys and below 1; YCSB's own is 0.99. A transaction has `operations` of them.
    pub fn new(mix: Mix, keys: u64, value_bytes: usize, operations: usize, theta: f64) -> Ycsb {
        assert!(keys > 1 && (0.0..1.0).contains(&theta), "two keys at least, and an exponent below 1");
        Ycsb { mix, keys, value_bytes, operations, zipf: Zipf::new(keys, theta) }
    }
}

struct Transaction {
    accesses: Vec<Access>,
    /// What it writes depends on what it reads.
    modifies: bool,
    random: u64,
    value_bytes: usize,
    is_executed: bool,
}

impl Workload for Ycsb {
    fn tables(&self) -> Vec<TableKind> {
        vec![TableKind::Hash]
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Put> + '_> {
        let value =
            |key: Key| mix(key + 1).to_le_bytes().into_iter().cycle().take(self.value_bytes).collect();
        Box::new((0..self.keys).map(move |key| Put { table: TABLE, key, value: value(key) }))
    }

    fn draw(&mut self, rng: &mut Rng, _: &dyn Fn(TableId, Key) -> bool) -> Box<dyn Procedure> {
        let writes = match self.mix {
            Mix::A | Mix::F => 0.5,
            Mix::B => 0.05,
            Mix::C => 0.0,
        };
        let mut accesses: Vec<Access> = Vec::new();
        while accesses.len() < self.operations {
            // Frequent keys lie scattered over all.
            let key = mix(self.zipf.draw(rng) + 1) % self.keys;
            if accesses.iter().any(|access| access.key == key) {
                continue;
            }
            accesses.push(if rng.chance(writes) { lock(TABLE, key, Mode::Update) } else { read(TABLE, key) });
        }
        let (random, value_bytes) = (rng.next_u64(), self.value_bytes);
        Box::new(Transaction {
            accesses,
            modifies: self.mix == Mix::F,
            random,
            value_bytes,
            is_executed: false,
        })
    }
}

impl Procedure for Transaction {
    fn name(&self) -> &'static str {
        if self.accesses.iter().any(|access| access.mode.is_some()) { "UPDATE" } else { "READ" }
    }

    fn step(&mut self, view: &dyn View) -> Step {
        if !self.is_executed {
            self.is_executed = true;
            return Step::Execute(self.accesses.clone());
        }
        let written = self.accesses.iter().filter(|access| access.mode.is_some());
        let value: Vec<u8> = self.random.to_le_bytes().into_iter().cycle().take(self.value_bytes).collect();
        let put = |access: &Access| {
            let mut value = value.clone();
            if let (true, Some(old)) = (self.modifies, view.value(access.table, access.key)) {
                value.iter_mut().zip(old).for_each(|(byte, old)| *byte ^= old);
            }
            Put { table: access.table, key: access.key, value }
        };
        Step::Commit(written.map(put).collect())
    }
}
