//! The end of a run: the faults are over, and the cluster must make progress, settle, and have kept its
//! promise.

use std::collections::BTreeSet;

use crate::check::{self, Observation, Outcome, Transaction};
use crate::id::{Key, NodeId, RegionId, TableId, Txid, Version};
use crate::table::Entry;

use super::Report;
use super::clients::{ACCOUNT_KEYS, ACCOUNTS, BALANCE, balance};
use super::world::World;

const PATIENCE_NS: u64 = 3_000_000_000;
/// What each client must commit after the faults.
const PROGRESS: u64 = 3;

impl World {
    /// Ends all faults, and waits for progress and for rest.
    pub(super) fn heal(&mut self) -> Result<(), String> {
        self.is_healed = true;
        self.ambush = None;
        self.blocked.clear();
        self.service_down_until_ns = 0;
        self.without_service_until_ns.clear();
        let all: Vec<NodeId> = self.machines.keys().copied().collect();
        for &at in &all {
            let machine = self.machines.get_mut(&at).expect("a machine of ours");
            machine.paused_until_ns = machine.paused_until_ns.min(self.now_ns);
            if let Some(disk) = &mut machine.disk {
                disk.full_until_ns = 0;
            }
            self.restart_if_halted(at);
            self.start(at);
        }
        self.wait_for_progress("the faults ended")?;
        if self.plan.has_disks {
            self.lose_all_memories();
            self.wait_for_progress("all memories were lost")?;
        }
        self.stop_clients();
        let until = self.now_ns + PATIENCE_NS;
        let rests = self.run(until, |world| {
            world.revive_those_that_left();
            world.is_at_rest()
        });
        if rests { Ok(()) } else { Err(format!("no rest after the clients ended\n{}", self.describe())) }
    }

    fn wait_for_progress(&mut self, after: &str) -> Result<(), String> {
        let committed = |world: &World| -> Vec<(NodeId, u64, Vec<u64>)> {
            let processes =
                world.machines.values().filter_map(|machine| Some((machine.id, machine.process.as_ref()?)));
            let counts = processes.map(|(id, process)| {
                let counts = process.clients.iter().map(|client| client.committed).collect();
                (id, process.number, counts)
            });
            counts.collect()
        };
        let mut before = committed(self);
        let until = self.now_ns + PATIENCE_NS;
        let progressed = self.run(until, |world| {
            world.revive_those_that_left();
            let now = committed(world);
            before.retain(|old| now.iter().any(|new| new.1 == old.1));
            for new in &now {
                if !before.iter().any(|old| old.1 == new.1) {
                    before.push(new.clone());
                }
            }
            now.len() == world.machines.len()
                && now.iter().all(|new| {
                    let old = before.iter().find(|old| old.1 == new.1);
                    old.is_some_and(|old| new.2.iter().zip(&old.2).all(|(new, old)| *new >= old + PROGRESS))
                })
        });
        match self.wrong.take() {
            Some(wrong) => Err(wrong),
            None if progressed => Ok(()),
            None => Err(format!("no progress after {after}\n{}", self.describe())),
        }
    }

    fn revive_those_that_left(&mut self) {
        let left = |machine: &&super::machine::Machine| {
            machine.process.as_ref().is_some_and(|process| process.node.has_left())
        };
        let gone: Vec<NodeId> = self.machines.values().filter(left).map(|machine| machine.id).collect();
        for at in gone {
            self.crash(at, false);
            self.start(at);
        }
    }

    fn is_at_rest(&self) -> bool {
        let configuration = &self.service.0;
        let rests = |machine: &super::machine::Machine| {
            machine.process.as_ref().is_some_and(|process| {
                process.node.is_open()
                    && process.node.configuration().id == configuration.id
                    && process.clients.iter().all(|client| client.job.is_none())
                    && process.node.is_durable()
                    && !process.node.is_reclaiming()
            })
        };
        configuration.is_settled(self.plan.f)
            && configuration.members.len() == self.machines.len()
            && self.machines.values().all(rests)
    }

    fn describe(&self) -> String {
        let mut lines = vec![format!("service: {:?}", self.service.0)];
        for machine in self.machines.values() {
            lines.push(match &machine.process {
                None => format!("{}: down", machine.id),
                Some(process) => {
                    format!("{} {:x}: {}", machine.id, process.node.boot(), process.node.standing())
                }
            });
        }
        lines.join("\n")
    }

    /// Checks everything.
    pub(super) fn finish(&mut self) -> Result<Report, String> {
        self.check_replicas()?;
        self.check_disks()?;
        let last = self.final_read();
        let money: i64 = last
            .reads
            .iter()
            .filter(|read| read.table == ACCOUNTS)
            .map(|read| balance(read.value.clone()))
            .sum();
        self.history.transactions.push(last);
        let expected = BALANCE * ACCOUNT_KEYS as i64;
        self.check_audits(expected)?;
        let verdict = check::check(&self.history).map_err(|anomaly| anomaly.0)?;
        if money != expected {
            return Err(format!("{expected} in all accounts became {money}"));
        }
        Ok(Report { configurations: self.service.0.id, verdict, ..self.report.clone() })
    }

    /// Replicas are equal to the last byte, versions included, and nothing is locked.
    fn check_replicas(&self) -> Result<(), String> {
        let configuration = &self.service.0;
        for (region, replicas) in configuration.regions.iter().enumerate() {
            for table in (0..self.settings.tables.len()).map(|table| TableId(table as u8)) {
                let contents = |node| self.contents(node, RegionId(region as u16), table);
                let first = contents(replicas[0].node);
                for replica in &replicas[1..] {
                    let other = contents(replica.node);
                    if first != other {
                        let differ = first.iter().zip(&other).find(|(one, two)| one != two);
                        let names = format!("{} and {}", replicas[0].node, replica.node);
                        return Err(format!("region {region} table {}: {names} differ: {differ:?}", table.0));
                    }
                }
            }
        }
        for machine in self.machines.values() {
            let locks = machine.process.as_ref().map_or(0, |process| process.node.store().locks());
            if locks > 0 {
                return Err(format!("{} has {locks} locks, and nobody to release them", machine.id));
            }
        }
        Ok(())
    }

    /// Checks that each disk holds what its node remembers.
    fn check_disks(&self) -> Result<(), String> {
        for machine in self.machines.values() {
            let (Some(disk), Some(process)) = (&machine.disk, &machine.process) else { continue };
            let loaded =
                disk.load(machine.id, &self.settings, &self.plan).map_err(|error| error.to_string())?;
            let memory = loaded.memory.ok_or(format!("{}: the disk knows of no membership", machine.id))?;
            let node = &process.node;
            if (memory.boot, memory.configuration.id) != (node.boot(), node.configuration().id) {
                return Err(format!("{}: the disk is in another life or configuration", machine.id));
            }
            for (region, table, rows) in node.store().tables.iter() {
                let on_disk =
                    memory.store.table(region, table).map(|rows| rows.page(0, usize::MAX, usize::MAX).0);
                let mut on_disk = on_disk.unwrap_or_default();
                let mut here = rows.page(0, usize::MAX, usize::MAX).0;
                on_disk.sort_unstable_by_key(|entry| entry.key);
                here.sort_unstable_by_key(|entry| entry.key);
                if on_disk != here {
                    return Err(format!("{}: disk and memory of {region:?} {table:?} differ", machine.id));
                }
            }
        }
        Ok(())
    }

    fn contents(&self, node: NodeId, region: RegionId, table: TableId) -> Vec<Entry> {
        let process = self.machines.get(&node).and_then(|machine| machine.process.as_ref());
        let found = process.and_then(|process| process.node.store().table(region, table));
        let mut entries = found.map(|table| table.page(0, usize::MAX, usize::MAX).0).unwrap_or_default();
        entries.sort_unstable_by_key(|entry| entry.key);
        entries
    }

    /// The version of a key without a row, at its primary.
    fn floor(&self, table: TableId, key: Key) -> Version {
        let configuration = &self.service.0;
        let region = self.settings.region_of(configuration, table, key);
        let process =
            self.machines.get(&configuration.primary(region)).and_then(|machine| machine.process.as_ref());
        let rows = process.and_then(|process| process.node.store().table(region, table));
        rows.map_or(0, |rows| rows.row(key).version)
    }

    /// The final state of all keys, as a transaction that reads them.
    fn final_read(&self) -> Transaction {
        let mut reads = Vec::new();
        for (region, replicas) in self.service.0.regions.iter().enumerate() {
            for table in (0..self.settings.tables.len()).map(|table| TableId(table as u8)) {
                let entries = self.contents(replicas[0].node, RegionId(region as u16), table);
                let observe = |Entry { key, version, value }| Observation { table, key, version, value };
                reads.extend(entries.into_iter().map(observe));
            }
        }
        // Keys without a row are absent.
        let known: BTreeSet<(TableId, Key)> = reads.iter().map(|read| (read.table, read.key)).collect();
        let effects = self.history.transactions.iter().flat_map(|transaction| &transaction.writes);
        let written: BTreeSet<(TableId, Key)> = effects.map(|write| (write.table, write.key)).collect();
        for &(table, key) in written.difference(&known) {
            reads.push(Observation { table, key, version: self.floor(table, key), value: None });
        }
        Transaction {
            txid: Txid { node: NodeId(u16::MAX), worker: 1, sequence: 0 },
            invoked_ns: self.now_ns + 1,
            completed_ns: Some(self.now_ns + 2),
            outcome: Outcome::Committed,
            reads,
            writes: Vec::new(),
        }
    }

    /// A transaction that read all accounts saw all money.
    fn check_audits(&self, expected: i64) -> Result<(), String> {
        for transaction in
            self.history.transactions.iter().filter(|transaction| transaction.outcome == Outcome::Committed)
        {
            let accounts: Vec<&Observation> =
                transaction.reads.iter().filter(|read| read.table == ACCOUNTS).collect();
            let money: i64 = accounts.iter().map(|read| balance(read.value.clone())).sum();
            if accounts.len() as u64 == ACCOUNT_KEYS && money != expected {
                return Err(format!(
                    "an audit found {money} instead of {expected}\n  {}",
                    transaction.describe()
                ));
            }
        }
        Ok(())
    }
}
