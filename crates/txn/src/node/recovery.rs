//! Recovery: from a configuration's adoption to its opening.
//!
//! The manager asks all members to adopt; each answers with every record in its log, its own transactions' included. When all have
//! answered, no member can act in an older configuration any more; when the leases of the removed nodes are over as well, those cannot act
//! either. A transaction with a record anywhere is committed: its writes go to every replica that lacks them. All others are aborted: every
//! lock is released. Then the manager opens the configuration. If it fails on the way, the next configuration does all of it again, and
//! finds the same records: slots are emptied on opening only.

use std::collections::BTreeSet;

use crate::configuration::Configuration;
use crate::defect::planted;
use crate::id::NodeId;
use crate::journal::Entry;
use crate::message::{Request, Response};
use crate::record::Record;
use crate::table::Table;

use super::{Node, Purpose, Role};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Adopting,
    WaitingForLeases { until_ns: u64 },
    Recovering,
    Opening,
}

/// The manager's part of a recovery.
#[derive(Debug)]
pub(super) struct Manager {
    stage: Stage,
    missing: BTreeSet<NodeId>,
    records: BTreeSet<Vec<u8>>,
}

impl Manager {
    pub(super) fn wake(&self) -> Option<u64> {
        match self.stage {
            Stage::WaitingForLeases { until_ns } => Some(until_ns),
            _ => None,
        }
    }
}

impl Node {
    pub(super) fn start_managing(&mut self) {
        let records = self.records().into_iter().collect();
        self.manager = Some(Manager { stage: Stage::Adopting, missing: BTreeSet::new(), records });
        let new = self.configuration.clone();
        self.ask_members(|_| Request::Adopt { new: Box::new(new.clone()) }, Purpose::Adopt);
    }

    fn ask_members(&mut self, request: impl Fn(NodeId) -> Request, purpose: Purpose) {
        let others = self.others();
        // The manager makes durable what it asks the others to make durable, before it goes on.
        let waits_for_disk = self.hold(purpose);
        if let Some(manager) = &mut self.manager {
            manager.missing = others.clone();
            manager.missing.extend(waits_for_disk.then_some(self.id));
        }
        for to in others {
            self.send(to, request(to), purpose);
        }
        self.manage();
    }

    pub(super) fn on_manager_response(&mut self, from: NodeId, purpose: Purpose, response: Response) {
        let Some(manager) = &mut self.manager else { return };
        let expected = match manager.stage {
            Stage::Adopting => Purpose::Adopt,
            Stage::Recovering => Purpose::Recover,
            Stage::Opening => Purpose::Open,
            Stage::WaitingForLeases { .. } => return,
        };
        if purpose != expected {
            return;
        }
        if let Response::Adopted { records } = response {
            manager.records.extend(records);
        }
        manager.missing.remove(&from);
        self.manage();
    }

    /// Goes on to the next stage if this one is over.
    pub(super) fn manage(&mut self) {
        let Some(manager) = &mut self.manager else { return };
        if !manager.missing.is_empty() {
            return;
        }
        match manager.stage {
            Stage::Adopting => {
                let waits = self.configuration.has_removed && !planted!(self, LeasesAreNotWaitedFor);
                let wait_ns = if waits { self.settings.lease_wait_ns() } else { 0 };
                manager.stage = Stage::WaitingForLeases { until_ns: self.now_ns + wait_ns };
                self.manage();
            }
            Stage::WaitingForLeases { until_ns } if self.now_ns < until_ns => {}
            Stage::WaitingForLeases { .. } => {
                manager.stage = Stage::Recovering;
                let records: Vec<Vec<u8>> = manager.records.iter().cloned().collect();
                self.recover(&records);
                self.ask_members(|_| Request::Recover { records: records.clone() }, Purpose::Recover);
            }
            Stage::Recovering => {
                manager.stage = Stage::Opening;
                self.open();
                self.ask_members(|_| Request::Open {}, Purpose::Open);
            }
            Stage::Opening => self.manager = None,
        }
    }

    pub(super) fn answer_adopt(&mut self, from: NodeId, new: Configuration) -> Option<Response> {
        if new.manager != from
            || !self.is_sound(&new)
            || !new.has((self.id, self.boot))
            || self.role == Role::Left
        {
            return None;
        }
        if self.is_next(&new) {
            self.adopt(new);
        } else if new.id < self.configuration.id || self.is_restarted && !planted!(self, RestartIsNotNoticed)
        {
            return None;
        } else if planted!(self, RestartIsNotNoticed) {
            self.is_restarted = false;
        }
        Some(Response::Adopted { records: self.records() })
    }

    pub(super) fn answer_recover(&mut self, from: NodeId, records: &[Vec<u8>]) -> Option<Response> {
        if from != self.configuration.manager {
            return None;
        }
        // A late repetition of the request must not release the locks of transactions that run now.
        if !self.is_open {
            self.recover(records);
        }
        Some(Response::Done {})
    }

    pub(super) fn answer_open(&mut self, from: NodeId) -> Option<Response> {
        if from != self.configuration.manager {
            return None;
        }
        self.open();
        Some(Response::Done {})
    }

    /// Every whole record in this node's log. A torn record was never acknowledged.
    fn records(&self) -> Vec<Vec<u8>> {
        if planted!(self, RecoveryForgetsRecords) {
            let own = |slot: &(&(NodeId, u16), &Vec<u8>)| slot.0.0 == self.id;
            return self.store.slots.iter().filter(own).map(|(_, slot)| slot.clone()).collect();
        }
        let checked = !planted!(self, TornRecordAccepted);
        self.store.slots.values().filter(|slot| Record::unseal(slot, checked).is_ok()).cloned().collect()
    }

    fn recover(&mut self, records: &[Vec<u8>]) {
        let checked = !planted!(self, TornRecordAccepted);
        for record in records.iter().filter_map(|slot| Record::unseal(slot, checked).ok()) {
            for write in &record.writes {
                if self.check_write(write).is_none() {
                    continue;
                }
                let region = self.settings.region_of(&self.configuration, write.table, write.key);
                let is_backup = self.configuration.primary(region) != self.id;
                if !(is_backup && planted!(self, RecoverySkipsBackups)) {
                    self.apply(record.txid, write);
                }
            }
        }
        if !planted!(self, RecoveryKeepsLocks) {
            self.store.tables.values().for_each(Table::release_locks);
        }
    }

    fn open(&mut self) {
        if self.is_open {
            return;
        }
        self.is_open = true;
        self.note(|| Entry::Opened {});
        self.store.slots.clear();
        for worker in 0..self.settings.workers {
            self.settle(worker);
        }
        self.start_replication();
    }
}
