//! The object store O(r, w): r keys are read and w of them written (FaSST §6.1).

use highwire_stdx::Rng;

use super::{Access, Procedure, Put, Step, View, Workload, lock, read};
use crate::id::{Key, TableId};
use crate::settings::TableKind;
use crate::table::Mode;

const TABLE: TableId = TableId(0);

/// Keys of 8 bytes, values of 40, uniformly drawn, none of a transaction's keys with a replica at its coordinator.
#[derive(Clone, Debug)]
pub struct Objects {
    /// How many there are.
    pub keys: u64,
    /// Keys of a transaction.
    pub reads: usize,
    /// Those of them that it writes.
    pub writes: usize,
}

struct Transaction {
    accesses: Vec<Access>,
    is_executed: bool,
}

impl Workload for Objects {
    fn tables(&self) -> Vec<TableKind> {
        vec![TableKind::Hash]
    }

    fn rows(&self) -> Box<dyn Iterator<Item = Put> + '_> {
        Box::new((0..self.keys).map(|key| Put { table: TABLE, key, value: vec![key as u8; 40] }))
    }

    fn draw(&mut self, rng: &mut Rng, is_elsewhere: &dyn Fn(TableId, Key) -> bool) -> Box<dyn Procedure> {
        let mut accesses: Vec<Access> = Vec::new();
        while accesses.len() < self.reads {
            let key = rng.below(self.keys);
            if !is_elsewhere(TABLE, key) || accesses.iter().any(|access| access.key == key) {
                continue;
            }
            let is_written = accesses.len() < self.writes;
            accesses.push(if is_written { lock(TABLE, key, Mode::Update) } else { read(TABLE, key) });
        }
        Box::new(Transaction { accesses, is_executed: false })
    }
}

impl Procedure for Transaction {
    fn name(&self) -> &'static str {
        "OBJECTS"
    }

    fn step(&mut self, view: &dyn View) -> Step {
        if !self.is_executed {
            self.is_executed = true;
            return Step::Execute(self.accesses.clone());
        }
        let written = self.accesses.iter().filter(|access| access.mode.is_some());
        let put = |access: &Access| {
            let mut value = view.value(access.table, access.key).unwrap_or_default().to_vec();
            value.rotate_left(1);
            Put { table: access.table, key: access.key, value }
        };
        Step::Commit(written.map(put).collect())
    }
}
