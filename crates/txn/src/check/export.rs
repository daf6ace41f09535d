//! Histories for the checkers of others: Elle's two forms in EDN, and single keys for Porcupine.
//!
//! Elle reads operations as Jepsen records them, an invocation and its end for each transaction. Lists give it appends of elements and reads
//! of whole lists; registers give it writes of values that are unique for their key. Bytes become small numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::id::{Key, TableId};

use super::lists::elements;
use super::{History, Observation, Outcome, Transaction};

/// The form in which a history is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// EDN for Elle's `list-append`: tables of lists only.
    ListAppend,
    /// EDN for Elle's `rw-register`: tables in which nothing is deleted, since all deletions look alike.
    RwRegister,
    /// Lines of JSON, one for each transaction and key: the history of each key by itself. A strictly
    /// serialisable history is linearizable for every key.
    SingleKeys,
}

/// Numbers for keys and values, which are bytes.
#[derive(Default)]
struct Numbers {
    elements: BTreeMap<(TableId, Key, u64), usize>,
    values: BTreeMap<Identity, usize>,
}

/// Tells a value of a key from those of other writes: its bytes carry a tag; absence has only its version.
type Identity = (TableId, Key, Option<Vec<u8>>, u64);

impl Numbers {
    fn element(&mut self, table: TableId, key: Key, element: u64) -> usize {
        let next = self.elements.len() + 1;
        *self.elements.entry((table, key, element)).or_insert(next)
    }

    /// `None` for the value before the first write.
    fn value(&mut self, seen: &Observation) -> Option<usize> {
        if seen.value.is_none() && seen.version == 0 {
            return None;
        }
        let version = if seen.value.is_none() { seen.version } else { 0 };
        let next = self.values.len() + 1;
        Some(*self.values.entry((seen.table, seen.key, seen.value.clone(), version)).or_insert(next))
    }
}

impl History {
    /// The text of a file for a checker that is not ours.
    pub fn export(&self, form: Form) -> String {
        let named = self.with_deletions_named();
        match form {
            Form::ListAppend | Form::RwRegister => named.edn(form),
            Form::SingleKeys => named.single_keys(),
        }
    }

    /// Processes, as Jepsen has them: one transaction after the other, and a new process after a transaction whose outcome is
    /// unknown.
    fn processes(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.transactions.len()).collect();
        order.sort_by_key(|&index| self.transactions[index].invoked_ns);
        let mut current = BTreeMap::new();
        let mut count = 0;
        let mut processes = vec![0; order.len()];
        for index in order {
            let transaction = &self.transactions[index];
            let worker = (transaction.txid.node, transaction.txid.worker);
            let process = *current.entry(worker).or_insert_with(|| {
                count += 1;
                count - 1
            });
            processes[index] = process;
            if transaction.outcome == Outcome::Unknown {
                current.remove(&worker);
            }
        }
        processes
    }

    /// The tables whose keys a form can express.
    fn tables(&self, form: Form) -> BTreeSet<TableId> {
        if form == Form::ListAppend {
            return self.lists.clone();
        }
        let writes = || self.transactions.iter().flat_map(|transaction| &transaction.writes);
        let deleting: BTreeSet<TableId> =
            writes().filter(|write| write.value.is_none()).map(|write| write.table).collect();
        writes().map(|write| write.table).filter(|table| !deleting.contains(table)).collect()
    }

    fn edn(&self, form: Form) -> String {
        let mut numbers = Numbers::default();
        let tables = self.tables(form);
        let operations: Vec<(String, String)> = self
            .transactions
            .iter()
            .map(|transaction| self.operations(form, &tables, transaction, &mut numbers))
            .collect();
        let processes = self.processes();
        // An invocation comes before an end of the same moment: then Elle takes the two for concurrent, as we do.
        let mut moments = Vec::new();
        for (index, transaction) in self.transactions.iter().enumerate() {
            if operations[index].0 == "[]" {
                continue;
            }
            moments.push((transaction.invoked_ns, 0, index));
            let end = transaction.completed_ns.unwrap_or(u64::MAX >> 1);
            moments.push((end, 1, index));
        }
        moments.sort_unstable();
        let mut text = String::from("[");
        for (place, &(time, is_end, index)) in moments.iter().enumerate() {
            let (invoked, seen) = &operations[index];
            let (kind, value) = match (is_end, self.transactions[index].outcome) {
                (0, _) => ("invoke", invoked),
                (_, Outcome::Committed) => ("ok", seen),
                (_, Outcome::Aborted) => ("fail", invoked),
                (_, Outcome::Unknown) => ("info", invoked),
            };
            let process = processes[index];
            let _ = writeln!(
                text,
                "{{:index {place}, :time {time}, :process {process}, :type :{kind}, :f :txn, :value {value}}}"
            );
        }
        text.push_str("]\n");
        text
    }

    /// A transaction's operations: as invoked, and with the values that it saw.
    fn operations(
        &self,
        form: Form,
        tables: &BTreeSet<TableId>,
        transaction: &Transaction,
        numbers: &mut Numbers,
    ) -> (String, String) {
        let of_form = |seen: &&Observation| tables.contains(&seen.table);
        let name = |seen: &Observation| u64::from(seen.table.0) * 1_000_000 + seen.key;
        let (mut invoked, mut ended) = (Vec::new(), Vec::new());
        for read in transaction.reads.iter().filter(of_form) {
            let key = name(read);
            invoked.push(format!("[:r {key} nil]"));
            ended.push(if form == Form::ListAppend {
                let list: Vec<String> = elements(read)
                    .iter()
                    .map(|&element| numbers.element(read.table, read.key, element).to_string())
                    .collect();
                format!("[:r {key} [{}]]", list.join(" "))
            } else {
                let value = numbers.value(read).map_or("nil".to_string(), |value| value.to_string());
                format!("[:r {key} {value}]")
            });
        }
        // A transaction that aborted after locking and before it set its values still has, as values to
        // write, those that it read.
        let is_new = |write: &&Observation| {
            let same = |read: &Observation| {
                (read.table, read.key) == (write.table, write.key) && read.value == write.value
            };
            let is_empty = write.value.as_ref().is_none_or(Vec::is_empty);
            transaction.outcome != Outcome::Aborted || !is_empty && !transaction.reads.iter().any(same)
        };
        for write in transaction.writes.iter().filter(of_form).filter(is_new) {
            let key = name(write);
            let operation = match (form, elements(write).last()) {
                (Form::ListAppend, Some(&last)) => {
                    format!("[:append {key} {}]", numbers.element(write.table, write.key, last))
                }
                (Form::ListAppend, None) => continue,
                _ => format!("[:w {key} {}]", numbers.value(write).unwrap_or(0)),
            };
            invoked.push(operation.clone());
            ended.push(operation);
        }
        (format!("[{}]", invoked.join(" ")), format!("[{}]", ended.join(" ")))
    }

    fn single_keys(&self) -> String {
        let mut numbers = Numbers::default();
        let mut text = String::new();
        let happened = |transaction: &&Transaction| transaction.outcome != Outcome::Aborted;
        let processes = self.processes();
        for (index, transaction) in
            self.transactions.iter().enumerate().filter(|(_, transaction)| happened(transaction))
        {
            // The reads of a transaction of unknown outcome count only as the base of its writes.
            let is_known = transaction.outcome == Outcome::Committed;
            let written = |read: &Observation| {
                transaction.writes.iter().find(|write| (write.table, write.key) == (read.table, read.key))
            };
            // A key that was read by itself and in a range was one operation.
            let mut told = BTreeSet::new();
            let mut line = |seen: &Observation, read: Option<usize>, write: Option<usize>| {
                if !told.insert((seen.table, seen.key, read, write)) {
                    return;
                }
                let number =
                    |value: Option<usize>| value.map_or("null".to_string(), |value| value.to_string());
                let _ = writeln!(
                    text,
                    "{{\"key\":\"{}/{}\",\"process\":{},\"call\":{},\"return\":{},\"read\":{},\"write\":{}}}",
                    seen.table.0,
                    seen.key,
                    processes[index],
                    transaction.invoked_ns,
                    transaction.completed_ns.map_or("null".to_string(), |end| end.to_string()),
                    number(read),
                    number(write)
                );
            };
            for read in transaction.reads.iter().filter(|read| is_known || written(read).is_some()) {
                let before = numbers.value(read).unwrap_or(0);
                line(read, Some(before), written(read).and_then(|write| numbers.value(write)));
            }
            for write in &transaction.writes {
                let is_read =
                    transaction.reads.iter().any(|read| (read.table, read.key) == (write.table, write.key));
                if !is_read {
                    line(write, None, numbers.value(write));
                }
            }
        }
        text
    }
}
