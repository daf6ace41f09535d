//! A node's thread: it owns the node and its endpoint, and drives both.
//!
//! One turn: commands of other threads, datagrams from the network, timers; then the node's messages to other
//! nodes, to the configuration service and to waiting transactions. After a turn with nothing to do, `idle`
//! decides what comes next.

mod drive;
mod starter;

use crate::access::{Access, Gate, NodeKey, key};
use crate::clock::Wall;
use crate::config::ClusterConfig;
use crate::disk::Disk;
use crate::door::Keeper;
use crate::error::StoreError;
use crate::message::Introduction;
use crate::register::Register;
use crate::resp::Hub;
use crate::session::Local;
use crate::tls::Tls;
use crate::{door, peers};
use highwire_host::rpc::{Bell, ClusterKey, Node as RpcNode, Rpc, RpcConfig, time};
use highwire_host::{Device, DeviceConfig, Endpoint, LinkChoice};
use highwire_txn::{Configuration, NodeId, Settings};
use starter::Starter;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io::Write as _;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// A job that a thread of the node's process sends to the node's thread.
type Job = Box<dyn FnOnce(Local) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// How long a transaction may take, all its attempts together.
pub(crate) const PATIENCE_NS: u64 = 5_000_000_000;
/// The pause between two attempts to read a register that does not answer.
const REGISTER_PAUSE: std::time::Duration = std::time::Duration::from_millis(100);
/// Calls are never given up because a peer is silent: see `carrier`.
const NEVER: time::Duration = time::Duration::from_secs(365 * 86400);
/// A recovery's records travel in one message.
const BATCH_BYTES_MAX: u32 = 256 << 20;

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
    /// Who is let in at the node's doors.
    pub(crate) keeper: Arc<Keeper>,
    /// With it nodes prove to each other that they are of one cluster.
    pub(crate) key: NodeKey,
    /// What this node shows at the endpoints of others.
    pub(crate) access: Access,
    /// The loop that serves them.
    pub(crate) io: Handle,
    pub(crate) wall: Wall,
    /// Where clients of the Redis endpoint wait for one another.
    pub(crate) hub: Arc<Hub>,
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

    /// The node's time of day, for tests that move it.
    #[doc(hidden)]
    pub fn wall(&self) -> &Wall {
        &self.wall
    }

    /// Asks the node to end.
    pub fn stop(&self) {
        self.command(Command::Stop);
    }

    /// Runs a job on the node's thread and waits for its result, for tasks of the I/O loop.
    ///
    /// # Errors
    /// The node is still starting, or ends before the job does.
    pub(crate) async fn ask<T, F, W>(&self, job: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(Local) -> W + Send + 'static,
        W: Future<Output = T> + 'static,
    {
        let (answer, result) = oneshot::channel();
        self.send(job, move |value| drop(answer.send(value)))?;
        result.await.map_err(|_| StoreError::Unknown("the node has ended".into()))
    }

    /// Runs what blocks on a thread of its own, for tasks of the I/O loop.
    ///
    /// # Errors
    /// The node ends before.
    pub(crate) async fn block<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Store) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = self.clone();
        let result = self.io.spawn_blocking(move || work(&store)).await;
        result.map_err(|_| StoreError::Unknown("the node has ended".into()))
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
        let (answer, result): (SyncSender<T>, _) = mpsc::sync_channel(1);
        self.send(job, move |value| drop(answer.send(value)))?;
        Ok(result)
    }

    /// Sends a job to the node's thread; `answer` gets its result there, unless the node ends before.
    fn send<T, F, W>(&self, job: F, answer: impl FnOnce(T) + Send + 'static) -> Result<(), StoreError>
    where
        T: 'static,
        F: FnOnce(Local) -> W + Send + 'static,
        W: Future<Output = T> + 'static,
    {
        if let Some(what) = self.waits_for() {
            return Err(StoreError::Unavailable(what));
        }
        // The answer is for nobody if who has asked is gone.
        let job = move |local: Local| -> Pin<Box<dyn Future<Output = ()>>> {
            Box::pin(async move { answer(job(local).await) })
        };
        self.command(Command::Run(Box::new(job)));
        Ok(())
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
        let gate = Gate::open(config.users.clone(), config.doors.protected_mode).map_err(StartError)?;
        let tls = config.tls.as_ref().map(Tls::open).transpose();
        let tls = tls.map_err(|what| failed("TLS", what))?.map(Arc::new);
        let listener = TcpListener::bind(&own.door)
            .map_err(|error| failed(format!("the door {} of node {id}", own.door), error))?;
        let mut register = Register::open(&config.register).map_err(|error| failed("the register", error))?;
        let fresh_boot = random().map_err(|error| failed("the system's random numbers", error))?;
        let disk = own.data.as_deref().map(|path| Disk::open(path, config, id, fresh_boot)).transpose();
        let disk = disk.map_err(StartError)?;
        let secret = secret_of(&mut register, config)?;
        let key = node_key(secret, config).map_err(StartError)?;
        let datagrams_key = key::of(config).map_err(StartError)?;
        if datagrams_key.is_none() {
            key::check_loopback(&own).map_err(StartError)?;
        }
        if let Some(agreed) = register.holds().ok().flatten().and_then(|holds| holds.agreed) {
            peers::check_agreed(&settings.agreed(), &agreed).map_err(StartError)?;
        }
        if let Some(disk) = &disk {
            disk.check(&mut register).map_err(StartError)?;
        }
        let boot = disk.as_ref().map_or(fresh_boot, Disk::boot);
        let (commands, inbox) = mpsc::channel();
        let (started, ready) = mpsc::channel();
        let waits_for = Arc::new(Mutex::new(Some("the node is starting".to_string())));
        let end = Arc::new(Mutex::new(End::Told));
        let wall = Wall::default();
        let hub = Arc::<Hub>::default();
        let starter = Starter {
            config: config.clone(),
            settings,
            id: NodeId(id),
            boot,
            wall: wall.clone(),
            disk,
            register,
            commands: commands.clone(),
            inbox,
            waits_for: Arc::clone(&waits_for),
            end: Arc::clone(&end),
            hub: Arc::clone(&hub),
        };
        // The node's thread runs the device, in every turn and while it sleeps: an engine thread would only
        // wake up to find that out.
        let engine = highwire_host::Engine::Inline;
        let device = DeviceConfig { address: own.address, link, engine, ..DeviceConfig::default() };
        let (io, doors_open) = door::io_loop(id).map_err(|error| failed("the doors' I/O loop", error))?;
        let heard_by = io.clone();
        let work = move || match open(&device, id, secret, datagrams_key) {
            Ok((device, rpc)) => {
                let _ = started.send(Ok((rpc.bell(), rpc.address().to_string())));
                starter.run(&device, rpc, &heard_by);
                // The doors close with their node.
                drop((device, doors_open));
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
        let keeper = Arc::new(Keeper::new(config.doors, gate, tls.clone()));
        keeper.gate.follow(&io);
        if let Some(tls) = &tls {
            tls.follow(&io);
        }
        let access = Access::node(&key, tls);
        let store =
            Store { commands, bell, introduction, waits_for, doors, end, keeper, key, access, io, wall, hub };
        store.hub.turns().start(&store);
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
pub(crate) fn say(what: fmt::Arguments<'_>) {
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

/// The key of a cluster's nodes.
pub(crate) fn node_key(secret: u64, config: &ClusterConfig) -> Result<NodeKey, String> {
    Ok(NodeKey::new(secret, key::of(config)?.as_ref()))
}

/// `secret`: only who knows it can send to the queue pair.
fn open(
    config: &DeviceConfig,
    id: u16,
    secret: u64,
    key: Option<[u8; 32]>,
) -> Result<(Device, Rpc), StartError> {
    let device = Device::open(config).map_err(|error| failed("the RDMA device", error))?;
    let mut config = RpcConfig::new(RpcNode(id));
    config.idle = highwire_host::rpc::Idle::Spin;
    (config.receives, config.sends) = (1024, 512);
    config.endpoint.failure_after = NEVER;
    // A Q_Key whose highest bit is set means the queue pair's own (IBTA §3.5.3), so a secret has 31 bits.
    config.endpoint.qkey = secret as u32 >> 1;
    config.endpoint.key = key.map(ClusterKey);
    // Nodes meet at their doors first.
    config.endpoint.accepts_strangers = false;
    config.endpoint.tasks_max = 4096;
    config.endpoint.batch_bytes_max = BATCH_BYTES_MAX;
    let rpc = Rpc::open(&device, config).map_err(|error| failed("the RPC endpoint", error))?;
    Ok((device, rpc))
}

/// The secret that the register keeps. An etcd that does not answer is waited for: a cluster's machines start in any order.
fn secret_of(register: &mut Register, config: &ClusterConfig) -> Result<u64, StartError> {
    let mut has_said = false;
    loop {
        match register.secret() {
            Ok(secret) => return Ok(secret),
            Err(error) if config.register.to_string_lossy().starts_with(crate::register::ETCD) => {
                if !has_said {
                    say(format_args!("the register cannot be read, and the node waits for it: {error}"));
                    has_said = true;
                }
                thread::sleep(REGISTER_PAUSE);
            }
            Err(error) => return Err(failed("the register", error)),
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
