//! What a client's transaction has seen so far.

use highwire_txn::workloads::{Access, View};
use highwire_txn::{Key, Mode, TableId};

#[derive(Default)]
pub(crate) struct Seen(pub(crate) Vec<(Access, Option<Vec<u8>>)>);

impl View for Seen {
    fn value(&self, table: TableId, key: Key) -> Option<&[u8]> {
        let there = self.0.iter().find(|(access, _)| (access.table, access.key) == (table, key));
        there?.1.as_deref()
    }
}

impl Seen {
    /// Whether all required keys exist, and no forbidden one.
    pub(crate) fn is_as_wanted(&self) -> bool {
        self.0.iter().all(|(access, value)| match access.mode {
            None => true,
            Some(Mode::Insert) => value.is_none(),
            Some(Mode::Update | Mode::Delete) => value.is_some(),
        })
    }
}
