//! The coordinator: FaSST's verbs, and its phases (FaSST §5).
//!
//! A worker goes on only when all responses of a phase are in, so it has one batch of requests at a time, and
//! a receiver need remember only that batch.

use std::mem::take;

use crate::defect::planted;
use crate::id::{Key, NodeId, TableId, Txid};
use crate::journal::Entry;
use crate::message::{Request, Response};
use crate::record::{Record, Write};
use crate::table::{Lock, Mode};
use crate::worker::{AbortReason, Item, Phase, RangeItem};

use super::{Event, Node, Purpose};

/// A verb at the wrong time, or with arguments that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionError {
    /// This node is not a member, or recovery is going on: try again soon.
    Unavailable,
    /// The verb is not allowed in this phase.
    WrongPhase,
    /// The schema has no such table, or the table has no ranges.
    NoSuchTable,
    /// More than [`crate::Settings::value_bytes_max`].
    ValueTooLong,
    /// The key was not locked.
    NotInWriteSet,
}

impl Node {
    /// Begins a worker's next transaction.
    pub fn begin(&mut self, worker: u16) -> Result<Txid, TransactionError> {
        if !self.is_open() {
            return Err(TransactionError::Unavailable);
        }
        self.in_phase(worker, Phase::Idle)?;
        self.sequence += 1;
        let txid = Txid { node: self.id, worker, sequence: self.sequence };
        self.workers[usize::from(worker)].begin(txid);
        Ok(txid)
    }

    /// Adds a key to be read by the next [`Node::execute`].
    pub fn add_to_read_set(&mut self, worker: u16, table: TableId, key: Key) -> Result<(), TransactionError> {
        self.add(worker, table, key, None, false)
    }

    /// Adds a key to be read and locked by the next [`Node::execute`].
    pub fn add_to_write_set(
        &mut self,
        worker: u16,
        table: TableId,
        key: Key,
        mode: Mode,
    ) -> Result<(), TransactionError> {
        self.add(worker, table, key, Some(mode), false)
    }

    /// Adds a key to be locked by the next [`Node::execute`] whose old value is of no use: it stays where it is.
    pub fn add_blindly_to_write_set(
        &mut self,
        worker: u16,
        table: TableId,
        key: Key,
        mode: Mode,
    ) -> Result<(), TransactionError> {
        self.add(worker, table, key, Some(mode), true)
    }

    /// Adds all keys from `low` to `high` of an ordered table, those that are not there included.
    pub fn add_range(
        &mut self,
        worker: u16,
        table: TableId,
        low: Key,
        high: Key,
    ) -> Result<(), TransactionError> {
        self.in_phase(worker, Phase::Building)?;
        self.check_table(table)?;
        let pieces = self.settings.pieces(table, low, high);
        if pieces.is_empty() {
            return Err(TransactionError::NoSuchTable);
        }
        let piece = |(low, high)| RangeItem { table, low, high, rows: None, floor: 0, asked: false };
        self.workers[usize::from(worker)].ranges.extend(pieces.into_iter().map(piece));
        Ok(())
    }

    /// Reads and locks, in one round trip, all keys that were added since the last time. Ends with [`Event::Executed`].
    pub fn execute(&mut self, now_ns: u64, worker: u16) -> Result<(), TransactionError> {
        self.now_ns = self.now_ns.max(now_ns);
        self.in_phase(worker, Phase::Building)?;
        if self.end_if_doomed(worker) {
            return Ok(());
        }
        let mut requests = take(&mut self.requests);
        let slot = &mut self.workers[usize::from(worker)];
        slot.phase = Phase::Executing;
        let txid = slot.txid;
        for (part, item) in slot.items.iter_mut().enumerate().filter(|(_, item)| !item.asked) {
            item.asked = true;
            let (table, key) = (item.table, item.key);
            let request = match item.mode {
                Some(mode) => Request::Lock { txid, table, key, mode, wants_value: !item.is_blind },
                None => Request::Read { table, key },
            };
            requests.push((part, table, key, request));
        }
        for (part, range) in slot.ranges.iter_mut().enumerate().filter(|(_, range)| !range.asked) {
            range.asked = true;
            let (table, low, high) = (range.table, range.low, range.high);
            requests.push((part | RANGE, table, low, Request::Scan { txid, table, low, high }));
        }
        self.ask_primaries(worker, requests);
        self.run_local();
        Ok(())
    }

    /// Sets the new value of a locked key.
    pub fn set_value(
        &mut self,
        worker: u16,
        table: TableId,
        key: Key,
        value: &[u8],
    ) -> Result<(), TransactionError> {
        self.in_phase(worker, Phase::Building)?;
        if value.len() > self.settings.value_bytes_max(table) {
            return Err(TransactionError::ValueTooLong);
        }
        let item = self.workers[usize::from(worker)].item_mut(table, key).filter(|item| item.locked);
        let new = &mut item.ok_or(TransactionError::NotInWriteSet)?.new;
        new.clear();
        new.extend_from_slice(value);
        Ok(())
    }

    /// Commits. Ends with [`Event::Committed`], [`Event::Aborted`] or [`Event::Unknown`].
    pub fn commit(&mut self, now_ns: u64, worker: u16) -> Result<(), TransactionError> {
        self.now_ns = self.now_ns.max(now_ns);
        self.in_phase(worker, Phase::Building)?;
        if self.end_if_doomed(worker) {
            return Ok(());
        }
        let slot = &self.workers[usize::from(worker)];
        if slot.items.iter().any(|item| !item.asked) || slot.ranges.iter().any(|range| !range.asked) {
            return Err(TransactionError::WrongPhase);
        }
        if slot.failure.is_some() {
            self.start_abort(worker);
        } else if slot.is_read_only() && slot.items.len() + slot.ranges.len() <= 1 && slot.ranges.is_empty() {
            // A single key was read at one instant, which is when the transaction happened.
            self.finish(worker);
        } else {
            self.validate(worker);
        }
        self.run_local();
        Ok(())
    }

    /// Gives up. Ends with [`Event::Aborted`].
    pub fn abort(&mut self, now_ns: u64, worker: u16) -> Result<(), TransactionError> {
        self.now_ns = self.now_ns.max(now_ns);
        self.in_phase(worker, Phase::Building)?;
        if !self.end_if_doomed(worker) {
            self.workers[usize::from(worker)].fail(AbortReason::Asked);
            self.start_abort(worker);
        }
        self.run_local();
        Ok(())
    }

    /// A new configuration came: none of this worker's requests will be answered any more.
    pub(super) fn interrupt(&mut self, worker: u16) {
        let aborts = planted!(self, InDoubtIsAborted);
        let slot = &mut self.workers[usize::from(worker)];
        slot.waiting = 0;
        if slot.is_decided() && !aborts {
            slot.phase = Phase::InDoubt;
            return;
        }
        match slot.phase {
            Phase::Idle => {}
            Phase::Building => slot.doomed = true,
            _ => {
                slot.fail(AbortReason::Reconfigured);
                self.end_aborted(worker);
            }
        }
    }

    /// A new configuration opened, and in it every record was applied.
    pub(super) fn settle(&mut self, worker: u16) {
        if self.workers[usize::from(worker)].phase == Phase::InDoubt {
            self.finish(worker);
        }
    }

    /// This node was removed.
    pub(super) fn give_up(&mut self, worker: u16) {
        self.interrupt(worker);
        let slot = &mut self.workers[usize::from(worker)];
        if slot.phase == Phase::InDoubt {
            slot.phase = Phase::Idle;
            let txid = slot.txid;
            self.events.push_back(Event::Unknown { worker, txid });
        }
    }

    pub(super) fn on_worker_response(&mut self, worker: u16, part: usize, response: Response) {
        if self.note_response(worker, part, response).is_some() {
            self.asked(worker);
        }
    }

    /// Takes a response into the transaction. `None`: it is of no part of it.
    fn note_response(&mut self, worker: u16, part: usize, response: Response) -> Option<()> {
        let compares = !planted!(self, RereadIsNotCompared);
        let slot = self.workers.get_mut(usize::from(worker))?;
        match response {
            Response::Read { row } => {
                let item = slot.items.get_mut(part)?;
                item.seen = Some(row.version);
                item.value = row.value;
                if row.owner.is_some() {
                    slot.fail(AbortReason::Locked);
                }
            }
            Response::Lock { lock: Lock::Granted(row) } => {
                let item = slot.items.get_mut(part)?;
                item.locked = true;
                // A key that was read before it was locked must not have changed in between.
                let changed = item.seen.is_some_and(|seen| seen != row.version) && compares;
                item.seen = Some(row.version);
                item.new = row.value.clone().unwrap_or_default();
                item.value = row.value;
                if changed {
                    slot.fail(AbortReason::Changed);
                }
            }
            Response::Lock { lock } => slot.fail(match lock {
                Lock::Exists => AbortReason::Exists,
                Lock::Missing => AbortReason::Missing,
                Lock::Full => AbortReason::Full,
                Lock::Held | Lock::Granted(_) => AbortReason::Locked,
            }),
            Response::Scan { rows, floor } => {
                let range = slot.ranges.get_mut(part & !RANGE)?;
                (range.rows, range.floor) = (Some(rows), floor);
            }
            Response::ScanRefused { too_long: true } => slot.fail(AbortReason::TooLong),
            Response::ScanRefused { too_long: false } => slot.fail(AbortReason::Locked),
            Response::Valid { valid: false } => slot.fail(AbortReason::Changed),
            _ => {}
        }
        slot.waiting = slot.waiting.saturating_sub(1);
        Some(())
    }

    /// All responses of a phase are in.
    fn advance(&mut self, worker: u16) {
        let slot = &mut self.workers[usize::from(worker)];
        match slot.phase {
            Phase::Executing => {
                slot.phase = Phase::Building;
                let result = slot.failure.map_or(Ok(()), Err);
                self.events.push_back(Event::Executed { worker, result });
            }
            Phase::Validating if slot.failure.is_some() => self.start_abort(worker),
            Phase::Validating if slot.is_read_only() => self.finish(worker),
            Phase::Validating => self.log(worker),
            Phase::Logging => self.commit_backups(worker),
            Phase::CommitBackup => self.commit_primaries(worker),
            Phase::CommitPrimary => self.finish(worker),
            Phase::Aborting => self.end_aborted(worker),
            Phase::Idle | Phase::Building | Phase::InDoubt => {}
        }
    }

    fn validate(&mut self, worker: u16) {
        let without_versions = planted!(self, AbsentKeysAreNotValidated);
        let without_ranges = planted!(self, RangesAreNotValidated);
        let nothing = planted!(self, NoValidation);
        let mut requests = take(&mut self.requests);
        let slot = &mut self.workers[usize::from(worker)];
        slot.phase = Phase::Validating;
        let txid = slot.txid;
        // Keys of the write set are locked: they cannot have changed.
        for (part, item) in slot.items.iter().enumerate().filter(|(_, item)| item.mode.is_none() && !nothing)
        {
            let (table, key) = (item.table, item.key);
            if let Some(version) = item.seen.filter(|_| item.value.is_some() || !without_versions) {
                requests.push((part, table, key, Request::Validate { table, key, version }));
            }
        }
        for (part, range) in slot.ranges.iter().enumerate().filter(|_| !without_ranges) {
            let (table, low, high) = (range.table, range.low, range.high);
            let rows = range.rows.as_deref().unwrap_or_default();
            let seen = rows.iter().map(|row| (row.key, row.version)).collect();
            let floor = range.floor;
            let request = Request::ValidateScan { txid, table, low, high, seen, floor };
            requests.push((part | RANGE, table, low, request));
        }
        self.ask_primaries(worker, requests);
    }

    /// The decision: from the first copy of the record on, this node can only commit the transaction. f + 1 copies outlast the failure of
    /// f nodes; if all copies are lost before that, recovery aborts it, and no client has been told otherwise.
    fn log(&mut self, worker: u16) {
        let slot = &mut self.workers[usize::from(worker)];
        slot.phase = Phase::Logging;
        let record = slot.record();
        let is_spoiled =
            [planted!(self, LogHasNoValues), planted!(self, LogForgetsDeletions)].contains(&true);
        let sealed = if is_spoiled { self.spoiled(&record).seal() } else { record.seal() };
        self.workers[usize::from(worker)].writes = record.writes;
        let node = self.id;
        self.note(|| Entry::Logged { node, worker, record: sealed.clone() });
        self.store.slots.entry((self.id, worker)).or_default().clone_from(&sealed);
        let mut replicas = self.configuration.log_replicas(self.id, self.settings.f);
        if planted!(self, LogOnlyAtHome) {
            replicas.clear();
        }
        let own = self.hold(Purpose::Worker { worker, part: 0 });
        self.workers[usize::from(worker)].waiting = usize::from(own);
        self.ask_all(worker, &replicas, Request::Log { worker, record: sealed });
        self.asked(worker);
        if planted!(self, LogIsNotAwaited) && self.workers[usize::from(worker)].phase == Phase::Logging {
            self.workers[usize::from(worker)].waiting = 0;
            self.forget(worker);
            self.advance(worker);
        }
    }

    /// For planted mistakes: a record that does not say what is written.
    fn spoiled(&self, record: &Record) -> Record {
        let mut spoiled = record.clone();
        for write in &mut spoiled.writes {
            if planted!(self, LogHasNoValues) && write.value.is_some() {
                write.value = Some(vec![0; 8]);
            }
            if planted!(self, LogForgetsDeletions) && write.value.is_none() {
                write.value = Some(Vec::new());
            }
        }
        spoiled
    }

    fn commit_backups(&mut self, worker: u16) {
        let slot = &mut self.workers[usize::from(worker)];
        (slot.phase, slot.waiting) = (Phase::CommitBackup, 0);
        let (txid, mut writes) = (slot.txid, take(&mut slot.writes));
        let mut replicas = take(&mut self.replicas);
        for write in &mut writes {
            let region = self.settings.region_of(&self.configuration, write.table, write.key);
            replicas.clear();
            replicas.extend(self.configuration.backups(region));
            // The value is lent to the request: the primary gets it next.
            let lent = Write { value: write.value.take(), ..*write };
            let request = self.ask_all(worker, &replicas, Request::CommitBackup { txid, write: lent });
            if let Request::CommitBackup { write: back, .. } = request {
                *write = back;
            }
        }
        self.replicas = replicas;
        self.workers[usize::from(worker)].writes = writes;
        self.asked(worker);
        if planted!(self, BackupsAreNotAwaited) {
            self.workers[usize::from(worker)].waiting = 0;
            self.forget(worker);
            self.advance(worker);
        }
    }

    /// Only after the backups: a primary's write releases its lock, and the next transaction's writes must
    /// find this one's at the backups.
    fn commit_primaries(&mut self, worker: u16) {
        let mut requests = take(&mut self.requests);
        let slot = &mut self.workers[usize::from(worker)];
        slot.phase = Phase::CommitPrimary;
        let txid = slot.txid;
        let write = |write: Write| (0, write.table, write.key, Request::CommitPrimary { txid, write });
        requests.extend(slot.writes.drain(..).map(write));
        self.ask_primaries(worker, requests);
        if planted!(self, LogSlotReusedEarly)
            && self.workers[usize::from(worker)].phase == Phase::CommitPrimary
        {
            self.forget(worker);
            self.finish(worker);
        }
    }

    fn start_abort(&mut self, worker: u16) {
        let mut requests = take(&mut self.requests);
        let slot = &mut self.workers[usize::from(worker)];
        slot.phase = Phase::Aborting;
        let txid = slot.txid;
        let unlock = |item: &Item| {
            let (table, key) = (item.table, item.key);
            (0, table, key, Request::Unlock { txid, table, key })
        };
        requests.extend(slot.items.iter().filter(|item| item.locked).map(unlock));
        self.ask_primaries(worker, requests);
    }

    fn finish(&mut self, worker: u16) {
        let slot = &mut self.workers[usize::from(worker)];
        slot.phase = Phase::Idle;
        let txid = slot.txid;
        self.events.push_back(Event::Committed { worker, txid });
    }

    fn end_aborted(&mut self, worker: u16) {
        let slot = &mut self.workers[usize::from(worker)];
        slot.phase = Phase::Idle;
        let (txid, reason) = (slot.txid, slot.failure.unwrap_or(AbortReason::Asked));
        self.events.push_back(Event::Aborted { worker, txid, reason });
    }

    fn end_if_doomed(&mut self, worker: u16) -> bool {
        let slot = &mut self.workers[usize::from(worker)];
        let doomed = slot.doomed;
        if doomed {
            slot.fail(AbortReason::Reconfigured);
            self.end_aborted(worker);
        }
        doomed
    }

    fn add(
        &mut self,
        worker: u16,
        table: TableId,
        key: Key,
        mode: Option<Mode>,
        is_blind: bool,
    ) -> Result<(), TransactionError> {
        self.in_phase(worker, Phase::Building)?;
        self.check_table(table)?;
        let slot = &mut self.workers[usize::from(worker)];
        if let Some(item) = slot.item_mut(table, key) {
            if item.mode.is_none() && mode.is_some() {
                (item.mode, item.is_blind) = (mode, is_blind);
                item.asked = false;
            }
            return Ok(());
        }
        let (seen, value, new) = (None, None, Vec::new());
        slot.add(Item { table, key, mode, seen, value, new, asked: false, locked: false, is_blind });
        Ok(())
    }

    /// Sends a phase's requests, each to its key's primary; this node answers its own at once. With none on
    /// their way, the phase is over. The list's memory is used again.
    fn ask_primaries(&mut self, worker: u16, mut requests: Vec<(usize, TableId, Key, Request)>) {
        self.workers[usize::from(worker)].waiting = requests.len();
        for (part, table, key, request) in requests.drain(..) {
            let region = self.settings.region_of(&self.configuration, table, key);
            let primary = self.configuration.primary(region);
            if primary == self.id
                && let Some(response) = self.answer_at_home(&request)
            {
                let _ = self.note_response(worker, part, response);
                continue;
            }
            self.send(primary, request, Purpose::Worker { worker, part });
        }
        self.requests = requests;
        self.asked(worker);
    }

    /// This node's answer to its own request, if it has one now that need not wait for the disk.
    fn answer_at_home(&mut self, request: &Request) -> Option<Response> {
        let waits = self.journal.is_some() && request.is_promise();
        if waits { None } else { self.answer_packet(self.configuration.id, self.id, request) }
    }

    /// Sends one request to several nodes, and gives it back.
    fn ask_all(&mut self, worker: u16, to: &[NodeId], request: Request) -> Request {
        self.workers[usize::from(worker)].waiting += to.len();
        self.send_all(to, request, Purpose::Worker { worker, part: 0 })
    }

    /// All requests of a phase have been sent: if no response is missing, it is over.
    fn asked(&mut self, worker: u16) {
        if self.workers[usize::from(worker)].waiting == 0 {
            self.advance(worker);
        }
    }

    /// For a planted mistake: the worker ignores the responses, while their requests are still repeated.
    fn forget(&mut self, worker: u16) {
        for purpose in self.tickets.purposes_mut() {
            if matches!(purpose, Purpose::Worker { worker: whose, .. } if *whose == worker) {
                *purpose = Purpose::Synced;
            }
        }
    }

    fn in_phase(&self, worker: u16, phase: Phase) -> Result<(), TransactionError> {
        let slot = self.workers.get(usize::from(worker)).ok_or(TransactionError::WrongPhase)?;
        if slot.phase == phase { Ok(()) } else { Err(TransactionError::WrongPhase) }
    }

    fn check_table(&self, table: TableId) -> Result<(), TransactionError> {
        let known = usize::from(table.0) < self.settings.tables.len();
        if known { Ok(()) } else { Err(TransactionError::NoSuchTable) }
    }
}

/// Marks parts that are ranges.
const RANGE: usize = 1 << 31;
