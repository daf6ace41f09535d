//! What a node makes durable, and what waits for that.
//!
//! Three things wait for the disk. An answer that is a promise waits for all entries so far. So does the
//! node's own part of a request to other nodes (its copy of a record, the manager's share of a recovery). And
//! every message waits for the entries that hold the node's life and configuration. Reads need not wait: a
//! value was committed by f + 1 durable records before it was written.
//!
//! A node whose disk fails stops. It can make no further promise durable, so other nodes could not rely on
//! its messages, and it sends none.

use std::collections::VecDeque;

use crate::defect::planted;
use crate::id::NodeId;
use crate::journal::{DiskOperation, Entry, Journal, Loaded, Part, Slot};
use crate::message::{Request, Response};

use super::{Node, Purpose, Role};

/// A message that is held back.
#[derive(Debug)]
pub(super) enum Held {
    Request(NodeId, Request, Purpose),
    /// A response to a request that this node sent to itself, by its ticket.
    Response(u64, Response),
}

impl Node {
    /// Lets this node keep a journal on its disk. To be called once, before anything else, on a node that was
    /// made from `loaded`. A checkpoint begins when the log has grown by `checkpoint_bytes`.
    pub fn keep_journal(&mut self, loaded: &Loaded, checkpoint_bytes: u64) {
        self.journal = Some(Journal::new(loaded, checkpoint_bytes));
        if self.is_restarted {
            return;
        }
        self.note_life();
        if self.role == Role::Member {
            self.note_adopted();
        }
    }

    /// The next thing to be done with the disk. The driver does one after the other.
    pub fn poll_disk(&mut self) -> Option<DiskOperation> {
        let journal = self.journal.as_mut().filter(|_| !self.is_halted)?;
        let mut operation = journal.poll();
        if operation.is_none() && !journal.is_syncing() {
            self.go_on_with_checkpoint();
            operation = self.journal.as_mut()?.poll();
        }
        if self.role == Role::Member && self.journal.as_ref()?.wants_checkpoint() {
            self.begin_checkpoint();
        }
        operation
    }

    /// The last [`DiskOperation::Sync`] has ended, and well.
    pub fn handle_synced(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        let Some(journal) = self.journal.as_mut().filter(|_| !self.is_halted) else { return };
        journal.synced();
        let durable = journal.durable();
        while self.held.front().is_some_and(|held| held.0 <= durable)
            && let Some((_, held)) = self.held.pop_front()
        {
            match held {
                Held::Request(to, request, purpose) => self.send(to, request, purpose),
                Held::Response(ticket, response) => self.on_response(ticket, response),
            }
        }
        self.run_local();
    }

    /// An operation failed: the disk is full, or broken. This node stops; its next life reads what the disk
    /// has.
    pub fn handle_disk_failure(&mut self) {
        if planted!(self, FullDiskIsIgnored) {
            return;
        }
        self.is_halted = true;
        self.is_open = false;
        self.manager = None;
        self.forget_requests();
        for worker in 0..self.settings.workers {
            self.give_up(worker);
        }
    }

    /// Whether the disk failed.
    pub fn is_halted(&self) -> bool {
        self.is_halted
    }

    /// Entries before this one are durable: what a [`super::Reply`] waits for.
    pub fn durable(&self) -> u64 {
        self.journal.as_ref().map_or(0, Journal::durable)
    }

    /// Whether everything is durable.
    pub fn is_durable(&self) -> bool {
        self.journal.as_ref().is_none_or(|journal| journal.durable() == journal.next())
    }

    pub(super) fn note(&mut self, entry: impl FnOnce() -> Entry) {
        let misses = planted!(self, CheckpointMissesWrites);
        let forgets = planted!(self, WritesAreNotJournalled);
        let Some(journal) = &mut self.journal else { return };
        let entry = entry();
        let is_write = matches!(entry, Entry::Wrote { .. });
        // The planted mistakes: to believe that the checkpoint under way will contain the write, or that its
        // record in the log is enough.
        if !(is_write && (forgets || misses && journal.checkpoint.is_some())) {
            journal.add(&entry);
        }
    }

    pub(super) fn note_life(&mut self) {
        let boot = self.boot;
        self.note(|| Entry::Life { boot });
    }

    pub(super) fn note_adopted(&mut self) {
        if let Some(journal) = &mut self.journal {
            journal.add(&Entry::Adopted { configuration: self.configuration.clone() });
        }
    }

    /// The number of the entry up to which entries must be durable before a message leaves: for a promise all
    /// entries so far, for other messages those with this node's life and configuration. 0 if they are.
    pub(super) fn after(&self, is_promise: bool) -> u64 {
        let Some(journal) = &self.journal else { return 0 };
        let after = if is_promise { journal.next() } else { journal.barrier() };
        let is_durable = after <= journal.durable() || is_promise && planted!(self, AnswersBeforeDurable);
        if is_durable { 0 } else { after }
    }

    /// Holds this node's own answer back until all entries so far are durable. Returns `false` if they are.
    pub(super) fn hold(&mut self, purpose: Purpose) -> bool {
        let after = self.after(true);
        if after > 0 {
            let ticket = self.tickets.issue(self.id, purpose);
            self.held.push_back((after, Held::Response(ticket, Response::Done {})));
        }
        after > 0
    }

    fn begin_checkpoint(&mut self) {
        let slot =
            |(&(node, worker), record): (&(_, _), &Vec<u8>)| Slot { node, worker, record: record.clone() };
        let mut parts = vec![Vec::new()];
        let mut bytes = 0;
        for slot in self.store.slots.iter().map(slot) {
            if bytes >= self.settings.part_bytes {
                parts.push(Vec::new());
                bytes = 0;
            }
            bytes += slot.record.len();
            parts.last_mut().expect("it has a first").push(slot);
        }
        let mut parts = parts.into_iter();
        let slots = parts.next().unwrap_or_default();
        let start = Part::Start { boot: self.boot, configuration: self.configuration.clone(), slots };
        let floors = self.floors();
        let queue: VecDeque<_> = self.store.tables.iter().map(|(region, table, _)| (region, table)).collect();
        if let Some(journal) = &mut self.journal {
            journal.begin_checkpoint(&start, queue);
            parts.for_each(|slots| journal.add_part(&Part::Slots { slots }));
            if !floors.is_empty() {
                journal.add_part(&Part::Floors { floors });
            }
        }
    }

    /// Adds the next rows, or the end.
    fn go_on_with_checkpoint(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        while let Some(checkpoint) = &mut journal.checkpoint {
            let Some(&(region, table)) = checkpoint.queue.front() else { return journal.end_checkpoint() };
            // A table may be gone meanwhile; the log has an entry that says so.
            let (rows, next) = match self.store.table(region, table) {
                Some(rows) => rows.page(checkpoint.cursor, self.settings.page_rows, self.settings.part_bytes),
                None => (Vec::new(), None),
            };
            checkpoint.cursor = next.unwrap_or(0);
            if next.is_none() {
                checkpoint.queue.pop_front();
            }
            if !rows.is_empty() {
                return journal.add_part(&Part::Rows { region, table, rows });
            }
        }
    }
}
