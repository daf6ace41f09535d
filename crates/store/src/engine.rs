//! A node's thread: it owns the node and its endpoint, and drives both.
//!
//! One turn: commands of other threads, datagrams from the network, timers; then the node's messages to other
//! nodes, to the configuration service and to waiting transactions. After a turn with nothing to do, `idle`
//! decides what comes next.

use crate::carrier::{self, Backlog};
use crate::clock::Clock;
use crate::config::ClusterConfig;
use crate::disk::{Disk, write_journal};
use crate::error::StoreError;
use crate::idle::{Idle, Rest};
use crate::message::Introduction;
use crate::register::Register;
use crate::session::{Local, Shared};
use crate::{door, peers};
use highwire_host::rpc::{Bell, Node as RpcNode, Rpc, RpcConfig, time};
use highwire_host::{Device, DeviceConfig, Endpoint, LinkChoice};
use highwire_txn::{Configuration, ConfigurationService, DiskOperation, Node, NodeId, ServiceCall, Settings};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io::Write as _;
use std::net::TcpListener;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// A job that a thread of the node's process sends to the node's thread.
type Job = Box<dyn FnOnce(Local) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// How long a transaction may take, all its attempts together.
pub(crate) const PATIENCE_NS: u64 = 5_000_000_000;
/// The longest sleep.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// The pause between two looks at a register that is still empty.
const FIRST_LOOK: Duration = Duration::from_millis(20);
/// Calls are never given up because a peer is silent: see `carrier`.
const NEVER: time::Duration = time::Duration::from_secs(365 * 86400);
/// A recovery's records travel in one message.
const BATCH_BYTES_MAX: u32 = 256 << 20;
/// A checkpoint is written when the journal has grown by this much.
const CHECKPOINT_BYTES: u64 = 64 << 20;

enum Command {
    Run(Job),
    Service(Option<Configuration>),
    /// A sync has ended; or the disk failed, and why.
    Disk(Result<(), String>),
    Peer(Introduction),
    /// Other nodes do not take this one, and why.
    Refused(String),
    Stop,
}

/// Why a node cannot be started.
#[derive(Debug)]
pub struct StartError(String);

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

fn failed(what: impl fmt::Display, error: impl fmt::Display) -> StartError {
    StartError(format!("{what}: {error}"))
}

/// A node that runs in this process.
#[derive(Debug)]
pub struct Engine {
    store: Store,
    thread: Option<JoinHandle<()>>,
}

/// A handle to a node of this process, for any thread.
#[derive(Clone)]
pub struct Store {
    commands: Sender<Command>,
    bell: Bell,
    /// This node's introduction, for other nodes that ask.
    pub(crate) introduction: Introduction,
    /// Why the node does not serve yet.
    waits_for: Arc<Mutex<Option<String>>>,
    /// The doors of the nodes that this one knows.
    doors: Arc<Mutex<BTreeMap<u16, String>>>,
    end: Arc<Mutex<End>>,
}

/// Why a node has ended, if not because it was told to.
#[derive(Clone, Debug, Default)]
enum End {
    #[default]
    Told,
    Left,
    Refused(String),
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("node", &self.introduction.node).finish()
    }
}

impl Store {
    fn command(&self, command: Command) {
        // A node that has ended needs no commands.
        if self.commands.send(command).is_ok() {
            self.bell.ring();
        }
    }

    pub(crate) fn meet(&self, peer: Introduction) {
        self.learn(peer.node, &peer.door);
        self.command(Command::Peer(peer));
    }

    /// The doors of the nodes that this one knows.
    pub(crate) fn doors(&self) -> Vec<(u16, String)> {
        let doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        doors.iter().map(|(&node, door)| (node, door.clone())).collect()
    }

    /// Notes another node's door. A node that was not known before is visited from now on.
    pub(crate) fn learn(&self, node: u16, door: &str) {
        let mut doors = self.doors.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = doors.insert(node, door.to_string()).is_none();
        drop(doors);
        if is_new && node != self.introduction.node && peers::visit(self, node, true).is_err() {
            self.forget(node);
        }
    }

    /// Another node's door, as far as this one knows.
    pub(crate) fn door_of(&self, node: u16) -> Option<String> {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner).get(&node).cloned()
    }

    pub(crate) fn forget(&self, node: u16) {
        self.doors.lock().unwrap_or_else(PoisonError::into_inner).remove(&node);
    }

    pub(crate) fn refused(&self, why: String) {
        self.command(Command::Refused(why));
    }

    /// Why the node cannot serve yet, if it is still starting.
    pub(crate) fn waits_for(&self) -> Option<String> {
        self.waits_for.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether the node has left the cluster, and ends because of that.
    pub fn has_left(&self) -> bool {
        matches!(*self.end.lock().unwrap_or_else(PoisonError::into_inner), End::Left)
    }

    /// Asks the node to end.
    pub fn stop(&self) {
        self.command(Command::Stop);
    }

    /// Runs a job on the node's thread and waits for its result.
    ///
    /// # Errors
    /// The node is still starting, or ends before the job does.
    pub(crate) fn run<T, F, W>(&self, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(Local) -> W + Send + 'static,
        W: Future<Output = T> + 'static,
    {
        self.start(job)?.recv().map_err(|_| StoreError::Unknown("the node has ended".into()))
    }

    /// Starts a job on the node's thread; its result comes through the channel, which closes without one if the node ends.
    ///
    /// # Errors
    /// The node is still starting.
    pub(crate) fn start<T, F, W>(&self, job: F) -> Result<Receiver<T>, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(Local) -> W + Send + 'static,
        W: Future<Output = T> + 'static,
    {
        if let Some(what) = self.waits_for() {
            return Err(StoreError::Unavailable(what));
        }
        let (answer, result): (SyncSender<T>, _) = mpsc::sync_channel(1);
        let job = move |local: Local| -> Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(async move {
                // No thread waits if the caller's is gone.
                let _ = answer.send(job(local).await);
            })
        };
        self.command(Command::Run(Box::new(job)));
        Ok(result)
    }
}

impl Engine {
    /// Starts a node of a cluster, and opens its door.
    ///
    /// # Errors
    /// [`StartError`]: a wrong number, an address that is taken, a device that does not open.
    pub fn start(config: &ClusterConfig, id: u16) -> Result<Engine, StartError> {
        Engine::start_with(config, id, config.settings(), config.link.into())
    }

    /// The same with another schema, over another link.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub fn start_with(
        config: &ClusterConfig,
        id: u16,
        settings: Settings,
        link: LinkChoice,
    ) -> Result<Engine, StartError> {
        let own = config.node(id).map_err(StartError)?.clone();
        let listener = TcpListener::bind(&own.door)
            .map_err(|error| failed(format!("the door {} of node {id}", own.door), error))?;
        let mut register = Register::open(&config.register).map_err(|error| failed("the register", error))?;
        let fresh_boot = random().map_err(|error| failed("the system's random numbers", error))?;
        let disk = own.data.as_deref().map(|path| Disk::open(path, config, id, fresh_boot)).transpose();
        let disk = disk.map_err(StartError)?;
        if let Some(disk) = &disk {
            disk.check(&mut register).map_err(StartError)?;
        }
        let boot = disk.as_ref().map_or(fresh_boot, Disk::boot);
        let (commands, inbox) = mpsc::channel();
        let (started, ready) = mpsc::channel();
        let waits_for = Arc::new(Mutex::new(Some("the node is starting".to_string())));
        let end = Arc::new(Mutex::new(End::Told));
        let starter = Starter {
            config: config.clone(),
            settings,
            id: NodeId(id),
            boot,
            disk,
            register,
            commands: commands.clone(),
            inbox,
            waits_for: Arc::clone(&waits_for),
            end: Arc::clone(&end),
        };
        // The node's thread runs the device, in every turn and while it sleeps: an engine thread would only
        // wake up to find that out.
        let engine = highwire_host::Engine::Inline;
        let device = DeviceConfig { address: own.address, link, engine, ..DeviceConfig::default() };
        let work = move || match open(&device, id) {
            Ok((device, rpc)) => {
                let _ = started.send(Ok((rpc.bell(), rpc.address().to_string())));
                starter.run(rpc);
                drop(device);
            }
            Err(error) => {
                let _ = started.send(Err(error));
            }
        };
        let thread = named(format!("node {id}")).spawn(work).map_err(|error| failed("a thread", error))?;
        let (bell, endpoint) = ready.recv().map_err(|_| StartError("the node's thread ended".into()))??;
        let shape = peers::shape_of(config, own.data.is_some());
        let introduction = Introduction { node: id, boot, endpoint, door: own.door, shape };
        let doors = config.nodes.iter().map(|node| (node.id, node.door.clone())).collect();
        let doors = Arc::new(Mutex::new(doors));
        let store = Store { commands, bell, introduction, waits_for, doors, end };
        peers::introduce(&store, config).map_err(|error| failed("a thread", error))?;
        door::open(listener, &store).map_err(|error| failed("a thread", error))?;
        Ok(Engine { store, thread: Some(thread) })
    }

    /// The handle to the node.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Waits until the node has ended.
    ///
    /// # Errors
    /// Its thread panicked, or the other nodes did not take it.
    pub fn join(mut self) -> Result<(), StartError> {
        let ended = self.thread.take().map_or(Ok(()), JoinHandle::join);
        ended.map_err(|_| StartError("the node's thread panicked".into()))?;
        match &*self.store.end.lock().unwrap_or_else(PoisonError::into_inner) {
            End::Refused(why) => Err(StartError(why.clone())),
            End::Told | End::Left => Ok(()),
        }
    }
}

/// Writes a line for the operator. If that fails, perhaps because the log's disk is full, the node goes on.
fn say(what: fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{what}");
}

pub(crate) fn named(name: String) -> thread::Builder {
    thread::Builder::new().name(name)
}

fn random() -> std::io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    Ok(u64::from_le_bytes(bytes))
}

fn open(config: &DeviceConfig, id: u16) -> Result<(Device, Rpc), StartError> {
    let device = Device::open(config).map_err(|error| failed("the RDMA device", error))?;
    let mut config = RpcConfig::new(RpcNode(id));
    config.idle = highwire_host::rpc::Idle::Spin;
    (config.receives, config.sends) = (1024, 512);
    config.endpoint.failure_after = NEVER;
    config.endpoint.tasks_max = 4096;
    config.endpoint.batch_bytes_max = BATCH_BYTES_MAX;
    let rpc = Rpc::open(&device, config).map_err(|error| failed("the RPC endpoint", error))?;
    Ok((device, rpc))
}

/// A node that is starting.
struct Starter {
    config: ClusterConfig,
    settings: Settings,
    id: NodeId,
    boot: u64,
    disk: Option<Disk>,
    register: Register,
    commands: Sender<Command>,
    inbox: Receiver<Command>,
    waits_for: Arc<Mutex<Option<String>>>,
    end: Arc<Mutex<End>>,
}

impl Starter {
    fn wait_for(&self, what: Option<String>) {
        *self.waits_for.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }

    fn run(mut self, mut rpc: Rpc) {
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
        let shared = Shared::new(node, self.config.f, self.config.workers, self.boot);
        match has_disk {
            true => carrier::serve_durably(&mut rpc, &shared),
            false => carrier::serve(&mut rpc, &shared),
        }
        *self.waits_for.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let lease_ns = self.settings.lease_ns;
        let (inbox, waits_for, end) = (self.inbox, self.waits_for, self.end);
        let backlog = Backlog::default();
        Drive { rpc, shared, backlog, inbox, calls, operations, waits_for, lease_ns, end }.run();
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
                        let first = Configuration::first(&ids, &boots, self.config.regions, self.config.f);
                        if let Err(error) = self.register.begin(&first) {
                            self.wait_for(Some(format!("the register cannot be written: {error}")));
                        }
                        continue;
                    }
                    self.wait_for(Some(match missing.is_empty() {
                        true => "the node waits for the first configuration".into(),
                        false => format!(
                            "a new cluster waits until all its nodes run; missing: {}",
                            missing.join(", ")
                        ),
                    }));
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
                Ok(Command::Refused(why)) => self.wait_for(Some(why)),
                Ok(Command::Stop) | Err(RecvTimeoutError::Disconnected) => return None,
                Ok(Command::Run(_) | Command::Service(_) | Command::Disk(_))
                | Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

fn refuse(end: &Mutex<End>, why: String) {
    *end.lock().unwrap_or_else(PoisonError::into_inner) =
        End::Refused(format!("the cluster does not take this node: {why}"));
}

fn connect(rpc: &mut Rpc, peer: &Introduction) {
    if let Ok(endpoint) = peer.endpoint.parse::<Endpoint>() {
        // Only the node itself is refused.
        let _ = rpc.connect(RpcNode(peer.node), &endpoint);
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

/// A node that runs.
struct Drive {
    rpc: Rpc,
    shared: Rc<Shared>,
    backlog: Backlog,
    inbox: Receiver<Command>,
    calls: Sender<ServiceCall>,
    operations: Sender<DiskOperation>,
    waits_for: Arc<Mutex<Option<String>>>,
    lease_ns: u64,
    end: Arc<Mutex<End>>,
}

impl Drive {
    fn run(mut self) {
        let mut idle = Idle::default();
        loop {
            let Some(mut has_worked) = self.take_commands() else { return };
            if self.has_left() {
                return;
            }
            self.shared.begin_turn();
            has_worked |= self.rpc.poll();
            has_worked |= self.turn();
            if has_worked {
                idle.worked();
                continue;
            }
            match idle.rest(|| self.pace()) {
                Rest::Look => {}
                Rest::Offer => {
                    let before = self.shared.clock.now_ns();
                    thread::yield_now();
                    if let Some(nap) = idle.offered(self.shared.clock.now_ns() - before) {
                        thread::sleep(nap);
                    }
                }
                Rest::Sleep => {
                    let now = self.shared.clock.now_ns();
                    let due = self.shared.node.borrow().next_timeout();
                    let due = self.backlog.next_ns().map_or(due, |again| again.min(due)).saturating_sub(now);
                    self.rpc.sleep(SLEEP_MAX.min(Duration::from_nanos(due)));
                }
            }
        }
    }

    /// The time, and the number of requests so far, to this node and from it.
    fn pace(&self) -> (u64, u64) {
        let counters = self.rpc.counters();
        (self.shared.clock.now_ns(), counters.handled + counters.requests)
    }

    /// `None`: the node is to end.
    fn take_commands(&mut self) -> Option<bool> {
        let mut any = false;
        while let Ok(command) = self.inbox.try_recv() {
            any = true;
            match command {
                Command::Run(job) => {
                    let shared = Rc::clone(&self.shared);
                    // A job for which there is no room is dropped, which tells its sender.
                    let _ = self.rpc.spawn(move |rpc| job(Local { shared, rpc }));
                }
                Command::Service(answer) => {
                    let now = self.shared.clock.now_ns();
                    self.shared.node.borrow_mut().handle_service(now, answer);
                }
                Command::Disk(Ok(())) => {
                    let now = self.shared.clock.now_ns();
                    self.shared.node.borrow_mut().handle_synced(now);
                    self.shared.wake_promises();
                }
                Command::Disk(Err(what)) => self.halt(&what),
                Command::Peer(peer) => connect(&mut self.rpc, &peer),
                Command::Refused(why) => {
                    let node = self.shared.node.borrow();
                    // A member needs no leave of any other node.
                    if node.configuration().boot(node.id()) != Some(node.boot()) {
                        refuse(&self.end, why);
                        return None;
                    }
                }
                Command::Stop => return None,
            }
        }
        Some(any)
    }

    /// The disk failed. All promises so far are on it; the node makes no more.
    fn halt(&mut self, what: &str) {
        let what = format!(
            "the node has stopped, because its journal could not be written: {what}. \
             Make room, and start the node again; nothing that was committed is lost"
        );
        say(format_args!("node {}: {what}", self.shared.node.borrow().id().0));
        self.shared.node.borrow_mut().handle_disk_failure();
        self.shared.wake_promises();
        *self.waits_for.lock().unwrap_or_else(PoisonError::into_inner) = Some(what);
    }

    /// A wish to leave that the members have taken up outlives the process that had it; and a node that has left ends.
    fn consider_leaving(&self) {
        let mut node = self.shared.node.borrow_mut();
        let known = node.configuration();
        if known.boot(node.id()) == Some(node.boot()) && known.leaving.contains(&node.id()) {
            node.leave();
        }
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        // Its next life must not take up this one's part: the disk has to know that it is over.
        if node.has_left() && node.is_durable() && !matches!(*end, End::Left) {
            *end = End::Left;
            say(format_args!(
                "node {}: it has left the cluster, and its data is with the others",
                node.id().0
            ));
        }
    }

    fn has_left(&self) -> bool {
        matches!(*self.end.lock().unwrap_or_else(PoisonError::into_inner), End::Left)
    }

    fn turn(&mut self) -> bool {
        let now = self.shared.clock.now_ns();
        let is_due = self.shared.node.borrow().next_timeout() <= now;
        if is_due {
            self.shared.node.borrow_mut().handle_timeout(now);
            self.shared.milestones.borrow_mut().look_for_suspects(&self.shared.node.borrow(), now);
        }
        let call = self.shared.node.borrow_mut().poll_service();
        if let Some(call) = call {
            // Its thread ends only after this one.
            let _ = self.calls.send(call);
        }
        loop {
            let operation = self.shared.node.borrow_mut().poll_disk();
            let Some(operation) = operation else { break };
            // After a failure the disk's thread has ended, and has reported why.
            let _ = self.operations.send(operation);
        }
        self.shared.milestones.borrow_mut().look(&self.shared.node.borrow(), self.shared.f, now);
        if is_due {
            self.consider_leaving();
        }
        let has_received = self.backlog.receive(&mut self.rpc, &self.shared, now);
        let has_events = self.shared.deliver_events();
        if has_events {
            // Workers go on at once: their requests leave with the messages of this turn.
            let as_of = self.rpc.now();
            self.rpc.run(as_of);
        }
        let has_sent = self.backlog.send(&mut self.rpc, &self.shared, now, self.lease_ns);
        self.shared.deliver_events() | has_events | has_received | has_sent | is_due
    }
}
