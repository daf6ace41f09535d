//! Machines begin, end and begin again.

use std::collections::BTreeMap;

use crate::check::Outcome;
use crate::id::NodeId;
use crate::node::Node;

use super::super::clients::{self, Client};
use super::super::disk::Disk;
use super::super::machine::Process;
use super::super::network::Sender;
use super::{Event, World};

impl World {
    /// Gives a machine a process.
    pub(in crate::simulation) fn begin_process(&mut self, at: NodeId, node: Node) {
        self.processes += 1;
        #[cfg_attr(not(all(test, not(loom))), expect(unused_mut))]
        let mut node = node;
        #[cfg(all(test, not(loom)))]
        {
            node.defect = self.plan.defect;
        }
        let last = self.settings.workers - 1;
        let client = |worker| Client::new(self.rng.fork(7), worker == last);
        let clients: Vec<Client> = (0..self.settings.workers).map(client).collect();
        let machine = self.machines.get_mut(&at).expect("a machine of ours");
        machine.memory = None;
        machine.process = Some(Process {
            number: self.processes,
            node,
            sender: Sender::default(),
            receivers: BTreeMap::new(),
            clients,
            timer_ns: u64::MAX,
            service_call: 0,
            held: Vec::new(),
        });
        let process = self.processes;
        for worker in 0..self.settings.workers {
            let think = self.rng.below(2_000_000);
            self.schedule(think, Event::Client { at, process, worker });
        }
        self.schedule(0, Event::Timer { at, process });
    }

    /// Ends a machine's process. What its clients had under way is over for them.
    pub(in crate::simulation) fn crash(&mut self, at: NodeId, keeps_memory: bool) -> bool {
        let now_ns = self.now_ns;
        let Some(machine) = self.machines.get_mut(&at) else { return false };
        let Some(process) = machine.process.take() else { return false };
        self.dead.insert(process.number);
        for (worker, client) in process.clients.iter().enumerate().filter(|(_, client)| client.job.is_some())
        {
            let worker = process.node.worker(worker as u16);
            let outcome = clients::outcome_of(worker);
            let completed_ns = (outcome == Outcome::Aborted).then_some(now_ns);
            let transaction = clients::record(worker, client.invoked_ns, completed_ns, outcome);
            self.history.transactions.push(transaction);
        }
        machine.paused_until_ns = 0;
        machine.memory = if keeps_memory { process.node.into_memory() } else { None };
        self.report.crashes += 1;
        if self.plan.has_disks {
            machine.loaded = None;
            if !keeps_memory {
                machine.disk = Some(Disk::default());
            }
            let loses_power = self.rng.chance(0.8);
            self.load_disk(at, loses_power);
        }
        true
    }

    /// Puts into the history what clients have under way, as after a crash.
    pub(in crate::simulation) fn end_history(&mut self) {
        let all: Vec<NodeId> = self.machines.keys().copied().collect();
        for at in all {
            self.crash(at, false);
        }
    }

    /// Starts a machine that is down, with the memory it has.
    pub(in crate::simulation) fn start(&mut self, at: NodeId) {
        let machine = self.machines.get_mut(&at).expect("a machine of ours");
        if machine.process.is_some() {
            return;
        }
        let now = machine.clock.local(self.now_ns);
        let loaded = machine.loaded.take().unwrap_or_default();
        let mut node = match machine.memory.take() {
            Some(memory) => Node::restart(at, memory, self.settings.clone(), now),
            None => {
                let boot = loaded.boot.unwrap_or_else(|| self.rng.next_u64());
                Node::join(at, boot, self.service.0.clone(), self.settings.clone(), now)
            }
        };
        self.begin_journal(at, &mut node, &loaded);
        self.begin_process(at, node);
    }
}
