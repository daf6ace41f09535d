//! Recovery: from a configuration's adoption to its opening.
//!
//! The manager asks all members to adopt; each answers with every record in its log, its own transactions' included. When all have
//! answered, no member can act in an older configuration any more; when the leases of the removed nodes are over as well, those cannot act
//! either. A transaction with a record anywhere is committed: its writes go to every replica that lacks them. All others are aborted: every
//! lock is released. Then the manager opens the configuration. If it fails on the way, the next configuration does all of it again. A member
//! that has applied a record has it in its own log, and logs are emptied on opening only. So the next recovery finds every record of
//! which a write is left, even if the node that had the only copy has been removed meanwhile.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::configuration::Configuration;
use crate::defect::planted;
use crate::id::{NodeId, RegionId, TableId, Txid, Version};
use crate::journal::Entry;
use crate::message::{Request, Response};
use crate::record::Record;
use crate::table::Table;

use super::{Floor, Node, Purpose, Role};

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
    /// The highest floor of each table in each region.
    floors: BTreeMap<(RegionId, TableId), Version>,
    /// The records again, cut into messages that have not been sent yet.
    parts: VecDeque<Vec<Vec<u8>>>,
}

impl Manager {
    pub(super) fn wake(&self) -> Option<u64> {
        match self.stage {
            Stage::WaitingForLeases { until_ns } => Some(until_ns),
            _ => None,
        }
    }

    fn note_floors(&mut self, floors: &[Floor]) {
        for floor in floors {
            let highest = self.floors.entry((floor.region, floor.table)).or_insert(0);
            *highest = floor.version.max(*highest);
        }
    }
}

impl Node {
    pub(super) fn start_managing(&mut self) {
        let (mut records, mut next) = (BTreeSet::new(), Some(FIRST_SLOT));
        while let Some(from) = next {
            let (part, later) = self.records(from);
            records.extend(part);
            next = later;
        }
        let (missing, parts) = (BTreeSet::new(), VecDeque::new());
        let mut manager =
            Manager { stage: Stage::Adopting, missing, records, floors: BTreeMap::new(), parts };
        manager.note_floors(&self.floors());
        self.manager = Some(manager);
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
        if let Response::Adopted { records, next, floors } = response {
            manager.records.extend(records);
            manager.note_floors(&floors);
            if let Some(place) = next.filter(|_| !planted!(self, LaterRecordsAreNotAskedFor)) {
                return self.send(from, Request::Records { from: place }, Purpose::Adopt);
            }
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
                let wait_ns =
                    if waits { self.settings.lease_wait_ns(self.configuration.lease_before_ns) } else { 0 };
                manager.stage = Stage::WaitingForLeases { until_ns: self.now_ns + wait_ns };
                self.manage();
            }
            Stage::WaitingForLeases { until_ns } if self.now_ns < until_ns => {}
            Stage::WaitingForLeases { .. } => {
                manager.stage = Stage::Recovering;
                manager.parts = cut(std::mem::take(&mut manager.records), self.settings.part_bytes);
                self.manage();
            }
            // Every part has been applied by all members before the next one is sent, and all parts before
            // the configuration opens.
            Stage::Recovering => match manager.parts.pop_front() {
                Some(records) => {
                    if planted!(self, LaterRecordsAreNotSent) {
                        manager.parts.clear();
                    }
                    let highest = |(&(region, table), &version)| Floor { region, table, version };
                    let mut floors: Vec<Floor> = manager.floors.iter().map(highest).collect();
                    if planted!(self, FloorsAreNotLevelled) {
                        floors.clear();
                    }
                    self.recover(&records, &floors);
                    let request = Request::Recover { records, floors };
                    self.ask_members(|_| request.clone(), Purpose::Recover);
                }
                None => {
                    manager.stage = Stage::Opening;
                    self.open();
                    self.ask_members(|_| Request::Open {}, Purpose::Open);
                }
            },
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
        self.answer_records(from, FIRST_SLOT)
    }

    /// Records from a slot on. Slots do not change between the adoption and the first [`Request::Recover`].
    pub(super) fn answer_records(&mut self, from: NodeId, place: (NodeId, u16)) -> Option<Response> {
        if from != self.configuration.manager {
            return None;
        }
        let (records, next) = self.records(place);
        Some(Response::Adopted { records, next, floors: self.floors() })
    }

    pub(super) fn answer_recover(
        &mut self,
        from: NodeId,
        records: &[Vec<u8>],
        floors: &[Floor],
    ) -> Option<Response> {
        if from != self.configuration.manager {
            return None;
        }
        // A late repetition of the request must not release the locks of transactions that run now.
        if !self.is_open {
            self.recover(records, floors);
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

    /// Whole records in this node's log, from a slot on, as many as one message takes; and the slot of the next.
    /// A torn record was never acknowledged.
    fn records(&self, from: (NodeId, u16)) -> (Vec<Vec<u8>>, Option<(NodeId, u16)>) {
        let only_own = planted!(self, RecoveryForgetsRecords);
        let checked = !planted!(self, TornRecordAccepted);
        let (mut records, mut bytes) = (Vec::new(), 0);
        for (&place, slot) in self.store.slots.range(from..) {
            let counts = if only_own { place.0 == self.id } else { Record::unseal(slot, checked).is_ok() };
            if !counts {
                continue;
            }
            if bytes >= self.settings.part_bytes {
                return (records, Some(place));
            }
            bytes += slot.len();
            records.push(slot.clone());
        }
        (records, None)
    }

    fn recover(&mut self, records: &[Vec<u8>], floors: &[Floor]) {
        // First the floors: below them is what the records of rows that are gone would bring back.
        self.raise_floors(floors);
        if planted!(self, TombstonesGoBeforeRecords) {
            self.store.tables.values().for_each(Table::drop_reclaimed);
        }
        let checked = !planted!(self, TornRecordAccepted);
        for slot in records {
            let Ok(record) = Record::unseal(slot, checked) else { continue };
            if !planted!(self, RecoveryIsNotLogged) {
                self.keep(record.txid, slot);
            }
            for write in &record.writes {
                if self.check_write(write).is_none() {
                    continue;
                }
                let region = self.settings.region_of(&self.configuration, write.table, write.key);
                let is_backup = self.configuration.primary(region) != self.id;
                let rows = self.store.table(region, write.table);
                let is_old = rows.is_some_and(|rows| rows.is_reclaimed(write.key, write.version()));
                if is_old && !planted!(self, RecoveryIgnoresFloors) {
                    continue;
                }
                if !(is_backup && planted!(self, RecoverySkipsBackups)) {
                    self.apply(record.txid, write);
                }
            }
        }
        if !planted!(self, RecoveryKeepsLocks) {
            self.store.tables.values().for_each(Table::release_locks);
        }
    }

    /// Puts a record into the log before its first write is made. Only a newer record of the same worker takes a slot: a worker begins its
    /// next transaction when every replica has the last one's writes.
    fn keep(&mut self, txid: Txid, record: &[u8]) {
        let (node, worker) = (txid.node, txid.worker);
        let slot = self.store.slots.entry((node, worker)).or_default();
        if Record::unseal(slot, true).is_ok_and(|there| there.txid.sequence >= txid.sequence) {
            return;
        }
        record.clone_into(slot);
        self.note(|| Entry::Logged { node, worker, record: record.to_vec() });
    }

    fn open(&mut self) {
        if self.is_open {
            return;
        }
        self.is_open = true;
        self.note(|| Entry::Opened {});
        self.store.slots.clear();
        self.store.tables.values().for_each(Table::drop_reclaimed);
        for worker in 0..self.settings.workers {
            self.settle(worker);
        }
        self.start_replication();
    }
}

const FIRST_SLOT: (NodeId, u16) = (NodeId(0), 0);

/// Cuts records into messages: at least one, since its receivers also release all locks.
fn cut(records: BTreeSet<Vec<u8>>, part_bytes: usize) -> VecDeque<Vec<Vec<u8>>> {
    let (mut parts, mut part, mut bytes) = (VecDeque::new(), Vec::new(), 0);
    for record in records {
        if bytes >= part_bytes {
            parts.push_back(std::mem::take(&mut part));
            bytes = 0;
        }
        bytes += record.len();
        part.push(record);
    }
    parts.push_back(part);
    parts
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::codec::encode;
    use crate::configuration::Member;
    use crate::message::Packet;
    use crate::record::Write;
    use crate::settings::Settings;

    const MEMBERS: [Member; 3] = [(NodeId(0), 100), (NodeId(1), 101), (NodeId(2), 102)];
    const TABLE: TableId = TableId(0);

    /// Node 1, and the three configurations through which node 0 leads it.
    fn member() -> (Node, Vec<Configuration>) {
        let (ids, boots): (Vec<NodeId>, Vec<u64>) = MEMBERS.into_iter().unzip();
        let first = Configuration::first(&ids, &boots, 1, 1);
        let second = first.successor(NodeId(0), MEMBERS.to_vec(), &[], 1).expect("nothing is removed");
        let third = second.successor(NodeId(0), MEMBERS[..2].to_vec(), &[], 1).expect("one is removed");
        (Node::new(NodeId(1), 101, first.clone(), Settings::of_tests(), 1), vec![first, second, third])
    }

    fn ask(node: &mut Node, configuration: u32, request: Request) -> Response {
        let packet = Packet { configuration, from: NodeId(0), request };
        let reply = node.handle_request(2, NodeId(0), &encode(&packet)).expect("the member answers");
        Response::parse(&reply.bytes).expect("a response")
    }

    fn adopt(node: &mut Node, new: &Configuration) -> Vec<Vec<u8>> {
        let response = ask(node, new.id, Request::Adopt { new: Box::new(new.clone()) });
        let Response::Adopted { records, next: None, .. } = response else { panic!("{response:?}") };
        records
    }

    fn record(sequence: u64, key: u64) -> Vec<u8> {
        let write = Write { table: TABLE, key, read: 6, value: Some(vec![sequence as u8]) };
        Record { txid: Txid { node: NodeId(2), worker: 0, sequence }, writes: vec![write] }.seal()
    }

    fn version(node: &Node, key: u64) -> u64 {
        node.store().table(RegionId(0), TABLE).expect("a region of its own").row(key).version
    }

    #[test]
    fn the_next_recovery_finds_what_the_last_has_begun_to_apply() {
        let (mut node, configurations) = member();
        let (second, third) = (&configurations[1], &configurations[2]);
        assert_eq!(adopt(&mut node, second), Vec::<Vec<u8>>::new());
        // Node 2 has the only copy, and is removed before all members have applied it.
        ask(&mut node, second.id, Request::Recover { records: vec![record(9, 5)], floors: vec![] });
        assert_eq!(version(&node, 5), 7);
        assert_eq!(adopt(&mut node, third), [record(9, 5)]);
        ask(&mut node, third.id, Request::Recover { records: vec![record(9, 5)], floors: vec![] });
        ask(&mut node, third.id, Request::Open {});
        assert!(node.store.slots.is_empty());
    }

    #[test]
    fn records_that_do_not_fit_into_one_message_come_in_several() {
        let (mut node, configurations) = member();
        node.settings.part_bytes = 2 * record(0, 0).len();
        let all: Vec<Vec<u8>> = (0..5).map(|key| record(key + 1, key)).collect();
        for (worker, record) in (0..).zip(&all) {
            node.store.slots.insert((NodeId(2), worker), record.clone());
        }
        let new = &configurations[1];
        let mut request = Request::Adopt { new: Box::new(new.clone()) };
        let mut found = Vec::new();
        loop {
            let Response::Adopted { records, next, .. } = ask(&mut node, new.id, request) else { panic!() };
            assert!((1..=2).contains(&records.len()), "{records:?}");
            found.extend(records);
            let Some(from) = next else { break };
            request = Request::Records { from };
        }
        assert_eq!(found, all);
        let parts = cut(all.iter().cloned().collect(), node.settings.part_bytes);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1]);
        assert_eq!(cut(BTreeSet::new(), 9), [Vec::<Vec<u8>>::new()], "locks are to be released all the same");
    }

    #[test]
    fn of_a_workers_records_the_newest_stays_whatever_their_order() {
        for order in [[8, 9], [9, 8]] {
            let (mut node, configurations) = member();
            adopt(&mut node, &configurations[1]);
            let records = order.map(|sequence| record(sequence, sequence)).to_vec();
            ask(&mut node, configurations[1].id, Request::Recover { records, floors: vec![] });
            assert_eq!((version(&node, 8), version(&node, 9)), (7, 7));
            assert_eq!(adopt(&mut node, &configurations[2]), [record(9, 9)]);
        }
    }

    #[test]
    fn a_whole_record_takes_the_place_of_a_torn_one() {
        let (mut node, configurations) = member();
        let mut torn = record(12, 5);
        torn[7] ^= 1;
        node.store.slots.insert((NodeId(2), 0), torn);
        assert_eq!(adopt(&mut node, &configurations[1]), Vec::<Vec<u8>>::new());
        ask(
            &mut node,
            configurations[1].id,
            Request::Recover { records: vec![record(9, 5)], floors: vec![] },
        );
        assert_eq!(adopt(&mut node, &configurations[2]), [record(9, 5)]);
    }
}
