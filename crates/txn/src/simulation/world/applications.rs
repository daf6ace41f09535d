//! The nodes' applications: each worker has a client that begins transactions, and writes down how they end.

use crate::check::Outcome;
use crate::id::{NodeId, Txid};
use crate::node::Event as NodeEvent;

use super::super::clients::{self, Next};
use super::{Event, World};

/// Reads without a transaction have numbers in the history that no transaction has, and are those of another process than the client's
/// transactions: the one that reads the same key begins before they end.
const HOME_READS_FROM: u64 = 1 << 60;
const HOME_WORKERS_FROM: u16 = 1 << 15;

impl World {
    pub(in crate::simulation) fn stop_clients(&mut self) {
        self.is_stopping = true;
    }

    pub(super) fn begin_transaction(&mut self, at: NodeId, local: u64, worker: u16) {
        let stopping = self.is_stopping;
        let now_ns = self.now_ns;
        let Some(process) = self.machines.get_mut(&at).and_then(|machine| machine.process.as_mut()) else {
            return;
        };
        let number = process.number;
        let client = &mut process.clients[usize::from(worker)];
        if stopping || client.job.is_some() {
            return;
        }
        if process.node.begin(worker).is_err() {
            self.schedule(500_000, Event::Client { at, process: number, worker });
            return;
        }
        client.begin(&mut process.node, worker, now_ns);
        // The same key once more, without a transaction.
        if let Some((table, key)) = client.reads_at_home()
            && let Some((version, value)) = process.node.read_at_home(local, table, key)
        {
            self.home_reads += 1;
            let (worker, sequence) = (HOME_WORKERS_FROM + worker, HOME_READS_FROM + self.home_reads);
            let txid = Txid { node: at, worker, sequence };
            self.history.transactions.push(clients::home_read(txid, now_ns, table, key, version, value));
        }
        process.node.execute(local, worker).expect("it has just begun");
    }

    pub(super) fn tell_client(&mut self, at: NodeId, process: u64, event: NodeEvent) {
        let now_ns = self.now_ns;
        let machine = self.machines.get_mut(&at).expect("a machine of ours");
        let local = machine.clock.local(now_ns);
        let Some(running) = machine.process.as_mut() else { return };
        let (worker, outcome) = match event {
            NodeEvent::Executed { worker, result: Ok(()) } => {
                let txid = running.node.worker(worker).txid();
                if self.rng.chance(0.2) {
                    let think = self.rng.below(1_000_000);
                    self.schedule(think, Event::Thought { at, process, worker, txid });
                } else {
                    self.go_on(at, worker);
                }
                return;
            }
            NodeEvent::Executed { worker, result: Err(_) } => {
                running.node.abort(local, worker).expect("its turn");
                return;
            }
            NodeEvent::Committed { worker, .. } => (worker, Outcome::Committed),
            NodeEvent::Aborted { worker, .. } => (worker, Outcome::Aborted),
            NodeEvent::Unknown { worker, .. } => (worker, Outcome::Unknown),
        };
        let client = &mut running.clients[usize::from(worker)];
        if client.job.take().is_none() {
            return;
        }
        let completed_ns = (outcome != Outcome::Unknown).then_some(now_ns);
        let transaction =
            clients::record(running.node.worker(worker), client.invoked_ns, completed_ns, outcome);
        self.history.transactions.push(transaction);
        match outcome {
            Outcome::Committed => {
                client.committed += 1;
                self.report.committed += 1;
            }
            Outcome::Aborted => self.report.aborted += 1,
            Outcome::Unknown => self.report.unknown += 1,
        }
        let longest = if client.is_local { 400_000 } else { 1_500_000 };
        let think = self.rng.between(10_000, longest);
        self.schedule(think, Event::Client { at, process, worker });
    }

    pub(super) fn go_on(&mut self, at: NodeId, worker: u16) {
        let machine = self.machines.get_mut(&at).expect("a machine of ours");
        let local = machine.clock.local(self.now_ns);
        let Some(process) = machine.process.as_mut() else { return };
        let next = process.clients[usize::from(worker)].go_on(&mut process.node, worker);
        match next {
            Next::Execute => process.node.execute(local, worker),
            Next::Commit => process.node.commit(local, worker),
            Next::Abort => process.node.abort(local, worker),
        }
        .expect("its turn");
    }
}
