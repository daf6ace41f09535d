//! A node that is starting: it finds its part in the cluster, and the threads that work for it.

use super::drive::Drive;
use super::{Command, End, connect, named, refuse, say};
use crate::carrier::{self, Backlog};
use crate::clock::{Clock, Wall};
use crate::config::ClusterConfig;
use crate::disk::{Disk, write_journal};
use crate::door::direct::Direct;
use crate::peers::check_agreed;
use crate::register::Register;
use crate::resp::{Hub, cluster, hub, turns};
use crate::session::{Local, Shared};
use crate::sweep;
use highwire_host::Device;
use highwire_host::rpc::{Bell, Rpc};
use highwire_txn::{Configuration, ConfigurationService, Node, NodeId, ServiceCall, Settings};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;

/// The pause between two looks at a register that is still empty.
const FIRST_LOOK: Duration = Duration::from_millis(20);
/// A checkpoint is written when the journal has grown by this much.
const CHECKPOINT_BYTES: u64 = 64 << 20;

/// A node that is starting.
pub(super) struct Starter {
    pub(super) config: ClusterConfig,
    pub(super) settings: Settings,
    pub(super) id: NodeId,
    pub(super) boot: u64,
    pub(super) wall: Wall,
    pub(super) disk: Option<Disk>,
    pub(super) register: Register,
    pub(super) commands: Sender<Command>,
    pub(super) inbox: Receiver<Command>,
    pub(super) waits_for: Arc<Mutex<Option<String>>>,
    pub(super) end: Arc<Mutex<End>>,
    pub(super) hub: Arc<Hub>,
}

impl Starter {
    fn wait_for(&self, what: Option<String>) {
        *self.waits_for.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    /// `io`: the loop that serves clients.
    pub(super) fn run(mut self, device: &Device, mut rpc: Rpc, io: &Handle) {
        let Some(mut node) = self.begin(&mut rpc) else { return };
        let has_disk = self.disk.is_some();
        let disk = self.disk.take().map(|Disk { folder, loaded }| {
            node.keep_journal(&loaded, CHECKPOINT_BYTES);
            folder.writer()
        });
        let (calls, service) = mpsc::channel();
        let own_commands = self.commands;
        let (register, commands, bell) = (self.register, own_commands.clone(), rpc.bell());
        // File operations may be slow; the node must not wait for them.
        let work = move || serve_register(register, &service, &commands, &bell);
        if named("register".into()).spawn(work).is_err() {
            return;
        }
        let (operations, writes) = mpsc::channel();
        let writer = disk.map(|writer| {
            let (commands, bell) = (own_commands.clone(), rpc.bell());
            let report = move |report| {
                let is_heard = commands.send(Command::Disk(report)).is_ok();
                bell.ring();
                is_heard
            };
            let work = move || write_journal(writer, &writes, report);
            named("journal".into()).spawn(work)
        });
        let Ok(writer) = writer.transpose() else { return };
        let shared = Shared::new(node, self.wall, self.config.f, self.config.workers, self.boot);
        *shared.direct.borrow_mut() = Direct::new(device.clone());
        match has_disk {
            true => carrier::serve_durably(&mut rpc, &shared),
            false => carrier::serve(&mut rpc, &shared),
        }
        hub::serve(&mut rpc, &self.hub, io);
        turns::serve(&mut rpc, &self.hub, &shared);
        cluster::serve(&mut rpc, &self.hub);
        // The rows of a benchmark's tables have another form.
        if self.settings.tables == self.config.settings().tables {
            let shared = Rc::clone(&shared);
            // There is room for a first task.
            let _ = rpc.spawn(move |rpc| sweep::run(Local { shared, rpc }));
        }
        *self.waits_for.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let (inbox, waits_for, end) = (self.inbox, self.waits_for, self.end);
        let backlog = Backlog::default();
        let of = Rc::clone(&shared);
        Drive { rpc, shared, backlog, inbox, calls, operations, waits_for, end }.run();
        // Its tasks hold the node, which holds them.
        drop(of.direct.take());
        // The folder is free when the node has ended.
        if let Some(writer) = writer {
            let _ = writer.join();
        }
    }

    /// Finds this node's part: one of the first members, or an empty node that asks to be let in.
    fn begin(&mut self, rpc: &mut Rpc) -> Option<Node> {
        let mut boots = BTreeMap::from([(self.id, self.boot)]);
        let settings = self.settings.clone();
        let mut is_begun = false;
        // Why another node does not take this one. Others may, so it is no reason to give up before the cluster has begun.
        let mut refused: Option<String> = None;
        loop {
            match self.register.holds() {
                Ok(Some(holds)) if holds.regions.len() != self.config.regions => {
                    is_begun = true;
                    self.wait_for(Some(format!(
                        "`regions` is {} here, and {} in the register",
                        self.config.regions,
                        holds.regions.len()
                    )));
                }
                Ok(Some(holds)) => {
                    let agreed = holds.agreed.as_ref();
                    if let Some(why) =
                        agreed.and_then(|agreed| check_agreed(&self.settings.agreed(), agreed).err())
                    {
                        refuse(&self.end, why);
                        return None;
                    }
                    let now = Clock.now_ns();
                    if let Some(memory) = self.disk.as_mut().and_then(|disk| disk.loaded.memory.take()) {
                        return Some(Node::restart(self.id, memory, settings, now));
                    }
                    let is_first = holds.id == 1 && holds.has((self.id, self.boot));
                    // Without a disk, this life's promises are forgotten; an empty disk proves that there
                    // were none.
                    let is_forgotten = self.disk.is_none() && holds.has((self.id, self.boot));
                    let boot = if is_forgotten { self.boot ^ 1 } else { self.boot };
                    return Some(match is_first {
                        true => Node::new(self.id, self.boot, holds, settings, now),
                        false => Node::join(self.id, boot, holds, settings, now),
                    });
                }
                Ok(None) => {
                    let ids = self.config.node_ids();
                    let missing = ids.iter().filter(|id| !boots.contains_key(id));
                    let missing: Vec<String> = missing.map(|id| id.0.to_string()).collect();
                    if missing.is_empty() && ids.first() == Some(&self.id) {
                        let boots: Vec<u64> = boots.values().copied().collect();
                        let first = Configuration::first(&ids, &boots, self.config.regions, self.config.f)
                            .with(self.settings.agreed());
                        if let Err(error) = self.register.begin(&first) {
                            self.wait_for(Some(format!("the register cannot be written: {error}")));
                        }
                        continue;
                    }
                    let mut text = match missing.is_empty() {
                        true => "the node waits for the first configuration".into(),
                        false => format!(
                            "a new cluster waits until all its nodes run; missing: {}",
                            missing.join(", ")
                        ),
                    };
                    if let Some(why) = &refused {
                        text = format!("{text}; another node does not take this one: {why}");
                    }
                    self.wait_for(Some(text));
                }
                Err(error) => self.wait_for(Some(format!("the register cannot be read: {error}"))),
            }
            match self.inbox.recv_timeout(FIRST_LOOK) {
                Ok(Command::Peer(peer)) => {
                    boots.insert(NodeId(peer.node), peer.boot);
                    connect(rpc, &peer);
                }
                // Of a cluster that runs, the others know better than this node.
                Ok(Command::Refused(why)) if is_begun => {
                    refuse(&self.end, why);
                    return None;
                }
                Ok(Command::Refused(why)) => refused = Some(why),
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => return None,
                Ok(Command::Run(_) | Command::Service(_) | Command::Disk(_))
                | Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// Carries the node's calls to the register, one at a time.
fn serve_register(
    mut register: Register,
    calls: &Receiver<ServiceCall>,
    commands: &Sender<Command>,
    bell: &Bell,
) {
    while let Ok(call) = calls.recv() {
        let answer = match call {
            ServiceCall::Read => register.read(),
            ServiceCall::CompareAndSwap { id, revision, new } => {
                register.compare_and_swap(id, revision, *new)
            }
        };
        if let Err(error) = &answer {
            say(format_args!("the register: {error}"));
        }
        if commands.send(Command::Service(answer.ok())).is_err() {
            return;
        }
        bell.ring();
    }
}
