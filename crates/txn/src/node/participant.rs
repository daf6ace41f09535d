//! The node's answers to other nodes' requests, behind the fence: it refuses requests of another
//! configuration.

use crate::defect::planted;
use crate::id::{Key, NodeId, TableId, Txid, Version};
use crate::journal::Entry;
use crate::message::{Request, Response};
use crate::record::Write;
use crate::settings::Settings;
use crate::table::{Lock, Row, Table};

use super::{Node, Role};

impl Node {
    /// Answers a request. `None` if not now or never: the sender repeats a request that it still needs.
    pub(super) fn answer_packet(
        &mut self,
        configuration: u32,
        from: NodeId,
        request: &Request,
    ) -> Option<Response> {
        match *request {
            Request::Heartbeat { boot, sent_ns, is_restarted } => {
                if is_restarted
                    && configuration == self.configuration.id
                    && self.configuration.boot(from).is_some()
                {
                    self.membership.restarted_since.get_or_insert(self.now_ns);
                }
                return self.answer_heartbeat(configuration, boot, sent_ns);
            }
            // A joiner in an older configuration than this node's is not noted: it might still move to a
            // configuration from which it has been removed since.
            Request::Join { boot }
                if self.role == Role::Member
                    && (configuration >= self.configuration.id || planted!(self, JoinerGoesBack)) =>
            {
                self.membership.joiners.insert(from, (boot, self.now_ns));
                return Some(Response::Done {});
            }
            Request::Leave { boot } if self.configuration.has((from, boot)) => {
                self.membership.leavers.insert((from, boot));
                return Some(Response::Done {});
            }
            Request::Adopt { ref new } => return self.answer_adopt(from, (**new).clone()),
            _ => {}
        }
        let same = configuration == self.configuration.id && self.configuration.boot(from).is_some();
        let is_restarted = self.is_restarted && !planted!(self, RestartedNodesAreOpened);
        if self.role != Role::Member || is_restarted || !(same || planted!(self, NoFence)) {
            self.counters.fenced += 1;
            self.notice(configuration);
            return None;
        }
        match request {
            Request::Records { from: place } => self.answer_records(from, *place),
            Request::Recover { records, floors } => self.answer_recover(from, records, floors),
            Request::Open {} => self.answer_open(from),
            _ if !self.is_open => None,
            request => self.answer_data(from, request),
        }
    }

    fn answer_data(&mut self, from: NodeId, request: &Request) -> Option<Response> {
        Some(match *request {
            Request::Read { table, key } => {
                self.check_lease()?;
                Response::Read { row: self.read(table, key)? }
            }
            Request::Scan { txid, table, low, high } => {
                self.check_lease()?;
                let Table::Ordered(ordered) = self.primary_table(table, low)? else { return None };
                let floor = ordered.floors().absent;
                Response::from_scan(ordered.scan(low, high, self.settings.scan_rows_max, txid), floor)
            }
            Request::Lock { txid, table, key, mode, wants_value } => {
                self.check_lease()?;
                let lock = self.primary_table(table, key)?.lock(key, txid, mode);
                if lock == Lock::Held {
                    // Perhaps the table has too many rows of deleted keys.
                    self.reclaim_in(self.settings.region_of(&self.configuration, table, key), table);
                }
                #[cfg(all(test, not(loom)))]
                let lock = self.maybe_without_owner(lock, table, key);
                Response::Lock {
                    lock: match lock {
                        Lock::Granted(row) if !wants_value => Lock::Granted(Row { value: None, ..row }),
                        lock => lock,
                    },
                }
            }
            Request::Validate { table, key, version } => {
                self.check_lease()?;
                let (now, is_locked) = self.primary_table(table, key)?.version(key);
                let free = !is_locked || planted!(self, ValidationIgnoresLocks);
                Response::Valid { valid: now == version && free }
            }
            Request::ValidateScan { txid, table, low, high, ref seen, floor } => {
                self.check_lease()?;
                let Table::Ordered(ordered) = self.primary_table(table, low)? else { return None };
                let now = ordered.scan(low, high, self.settings.scan_rows_max, txid);
                let same = |row: &crate::table::RangeRow, old: &(Key, u64)| (row.key, row.version) == *old;
                // A key of the range may have come, gone and been reclaimed: then the floor is higher.
                let is_level = ordered.floors().absent == floor || planted!(self, RangesIgnoreTheFloor);
                let valid = now.is_ok_and(|now| {
                    is_level
                        && now.len() == seen.len()
                        && now.iter().zip(seen).all(|(row, old)| same(row, old))
                });
                Response::Valid { valid }
            }
            Request::Log { worker, ref record } => {
                if !planted!(self, LossIsOnlyPrinted) || !self.rng.chance(0.2) {
                    self.note(|| Entry::Logged { node: from, worker, record: record.clone() });
                    self.store.slots.entry((from, worker)).or_default().clone_from(record);
                }
                Response::Done {}
            }
            Request::CommitBackup { txid, ref write } => {
                self.check_write(write)?;
                if planted!(self, BackupsKeepTheirVersion) {
                    self.apply(txid, &Write { read: write.read.saturating_sub(1), ..write.clone() });
                } else if !planted!(self, NewReplicaIgnoresWrites) || self.is_synced(write) {
                    self.apply(txid, write);
                }
                Response::Done {}
            }
            Request::CommitPrimary { txid, ref write } => {
                self.check_write(write)?;
                self.apply(txid, write);
                let region = self.settings.region_of(&self.configuration, write.table, write.key);
                self.reclaim_in(region, write.table);
                Response::Done {}
            }
            Request::Unlock { txid, table, key } => {
                let table = self.primary_table(table, key)?;
                if planted!(self, AbortBumpsTheVersion) {
                    let row = table.row(key);
                    table.apply(key, row.version + 1, row.value.as_deref(), txid);
                } else if !planted!(self, AbortKeepsLocks) {
                    table.unlock(key, txid);
                }
                self.go_on_reclaiming();
                Response::Done {}
            }
            Request::Reclaim { region, table, floor, ref rows } => {
                return self.answer_reclaim(from, region, table, floor, rows);
            }
            Request::Fetch { region, table, cursor } => {
                (self.configuration.replica(region, self.id)?.synced).then_some(())?;
                let Settings { page_rows, part_bytes, .. } = self.settings;
                let (entries, next) = self.store.table(region, table)?.page(cursor, page_rows, part_bytes);
                Response::Page { entries, next }
            }
            Request::Synced { region } => {
                self.membership.synced.insert((region, from));
                Response::Done {}
            }
            _ => return None,
        })
    }

    /// Single-key reads are not validated, and a validation needs a current answer: so a primary answers only
    /// while no other node can be primary.
    fn check_lease(&self) -> Option<()> {
        let until = self.leases.enough_until(&self.configuration, self.id, self.settings.f);
        (self.now_ns < until || planted!(self, LeaseIgnored)).then_some(())
    }

    /// Reads a key of which this node is primary, as a transaction that does nothing else: at once, and without a worker. `None`: not here, or not
    /// now, or a transaction holds the row.
    ///
    /// `now_ns` must have been read after the read was asked for: a lease that has ended meanwhile no longer holds.
    pub fn read_at_home(
        &mut self,
        now_ns: u64,
        table: TableId,
        key: Key,
    ) -> Option<(Version, Option<Vec<u8>>)> {
        self.now_ns = self.now_ns.max(now_ns);
        // An open node has adopted its configuration in this life, and has it on its disk: see `rules.rs`.
        if !self.is_open() {
            return None;
        }
        self.check_lease()?;
        let row = self.read(table, key)?;
        row.owner.is_none().then(|| {
            self.counters.reads_at_home += 1;
            (row.version, row.value)
        })
    }

    fn read(&self, table: TableId, key: Key) -> Option<Row> {
        let mut row = self.primary_table(table, key)?.row(key);
        if planted!(self, AbsentReadHasNoVersion) && row.value.is_none() {
            row.version = 0;
        }
        Some(row)
    }

    /// The table that this node answers for, as the key's primary.
    fn primary_table(&self, table: TableId, key: Key) -> Option<&Table> {
        if usize::from(table.0) >= self.settings.tables.len() {
            return None;
        }
        let region = self.settings.region_of(&self.configuration, table, key);
        let mine = self.configuration.primary(region) == self.id || planted!(self, NoFence);
        self.store.table(region, table).filter(|_| mine)
    }

    /// `Some` if a write is one that a coordinator of this cluster can have made.
    pub(super) fn check_write(&self, write: &Write) -> Option<()> {
        let most = self.settings.value_bytes_max(write.table);
        let fits = write.value.as_ref().is_none_or(|value| value.len() <= most);
        let known = usize::from(write.table.0) < self.settings.tables.len();
        (fits && known && write.read < u64::MAX >> 1).then_some(())
    }

    pub(crate) fn apply(&mut self, txid: Txid, write: &Write) {
        let region = self.settings.region_of(&self.configuration, write.table, write.key);
        self.keep_for_snapshots(region, write);
        if self.store.apply(txid, write, region) {
            self.note(|| Entry::Wrote { write: write.clone() });
        }
    }

    #[cfg(all(test, not(loom)))]
    fn is_synced(&self, write: &Write) -> bool {
        let region = self.settings.region_of(&self.configuration, write.table, write.key);
        self.configuration.replica(region, self.id).is_some_and(|replica| replica.synced)
    }

    #[cfg(not(all(test, not(loom))))]
    fn is_synced(&self, _write: &Write) -> bool {
        true
    }

    #[cfg(all(test, not(loom)))]
    fn maybe_without_owner(&self, lock: Lock, table: TableId, key: Key) -> Lock {
        match lock {
            Lock::Held if planted!(self, LocksHaveNoOwner) => {
                let row = self.primary_table(table, key).map(|table| table.row(key)).unwrap_or_default();
                Lock::Granted(row)
            }
            lock => lock,
        }
    }
}
