//! The cluster to which faults are done: one process for each node, etcd, and the doors.

use super::network::run;
use super::{Counted, Etcd, FaultError, Load, Network, failed, until};
use crate::access::make_key;
use crate::{Client, ClusterConfig, Milestone, NodeStatus};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Nodes of the cluster.
pub(super) const NODES: u16 = 3;
/// A disk that can be filled, in bytes: log, checkpoint and the next log.
const DISK_BYTES: u64 = 256 << 20;

/// Where committed transactions are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// In f + 1 memories.
    Memory,
    /// On f + 1 disks as well.
    Disk,
}

/// The configuration of a laboratory.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Where data is kept.
    pub level: Level,
    /// The lease, in milliseconds.
    pub lease_ms: u64,
    /// Clients at a time.
    pub clients: usize,
    /// Rows of 1000 bytes that are written at the beginning.
    pub filling: u64,
    /// How long a client waits for an answer before it goes to another node.
    pub patience: Duration,
    /// How long the load runs before a fault, and after the cluster has recovered.
    pub calm: Duration,
}

/// How a node is started: the cluster's file and the node's number. The process must end when its standard
/// input does.
pub type Launch = Box<dyn Fn(&Path, u16) -> Command>;

/// A cluster of three nodes, and etcd.
pub struct Laboratory {
    pub(super) setting: Setting,
    pub(super) counted: Arc<Counted>,
    pub(super) network: Option<Network>,
    /// Whether a node's disk can be filled.
    pub(super) can_fill: bool,
    pub(super) etcd: Etcd,
    config: ClusterConfig,
    nodes: Vec<Option<Child>>,
    launch: Launch,
    folder: Folder,
}

/// A folder that is removed with its owner, after the processes that use it have ended.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Drop for Laboratory {
    fn drop(&mut self) {
        (0..NODES).for_each(|node| self.kill(node));
        self.etcd.stop();
        if self.can_fill {
            let _ = run(Command::new("umount").arg("--lazy").arg(self.data(1)));
        }
    }
}

impl Laboratory {
    /// Starts the cluster in a folder of its own, fills it, and waits until all data has all its copies. In a
    /// program with a network of its own (`network::private`) the nodes are in namespaces and use UDP.
    ///
    /// # Errors
    /// [`FaultError`]
    pub fn start(setting: Setting, folder: &Path, launch: Launch) -> Result<Laboratory, FaultError> {
        let unusable = |error| failed(folder.display(), error);
        fs::create_dir_all(folder).map_err(unusable)?;
        let folder = Folder(folder.to_path_buf());
        let network = super::is_private().then(|| Network::build(NODES)).transpose()?;
        let hub = if network.is_some() { Network::hub() } else { "127.0.0.1" };
        let etcd = Etcd::start(&folder.0.join("etcd"), hub)?;
        let config = write_file(&folder.0, &setting, &etcd.register(), network.is_some())?;
        let mut laboratory = Laboratory {
            counted: Counted::new(setting.clients),
            can_fill: false,
            nodes: (0..NODES).map(|_| None).collect(),
            setting,
            network,
            etcd,
            config,
            launch,
            folder,
        };
        if laboratory.setting.level == Level::Disk && laboratory.network.is_some() {
            let disk = laboratory.data(1);
            fs::create_dir_all(&disk).map_err(|error| failed(disk.display(), error))?;
            let size = format!("size={DISK_BYTES}");
            run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&disk))?;
            laboratory.can_fill = true;
        }
        (0..NODES).try_for_each(|node| laboratory.start_node(node))?;
        laboratory.wait_for(&[0, 1, 2])?;
        Load::prepare(&laboratory.doors(), laboratory.setting.filling)?;
        Ok(laboratory)
    }

    fn file(&self) -> PathBuf {
        self.folder.0.join(FILE)
    }

    /// A node's data folder, if it has one.
    pub(super) fn data(&self, node: u16) -> PathBuf {
        self.folder.0.join(format!("node-{node}"))
    }

    /// All nodes' doors.
    pub fn doors(&self) -> Vec<String> {
        self.config.doors()
    }

    /// Starts clients that count.
    pub fn load(&self, seed: u64) -> Load {
        Load::start(&self.doors(), &self.counted, self.setting.patience, seed)
    }

    /// Counts the committed transactions again, at every node.
    ///
    /// # Errors
    /// [`FaultError`]: a transaction is missing, or there is one too many.
    pub fn check(&self) -> Result<(), FaultError> {
        self.doors().iter().try_for_each(|door| self.counted.check(door))
    }

    /// The outcomes that clients have got so far.
    pub fn counted(&self) -> &Counted {
        &self.counted
    }

    /// Starts a node's process.
    ///
    /// # Errors
    /// [`FaultError`]
    pub fn start_node(&mut self, node: u16) -> Result<(), FaultError> {
        let mut command = (self.launch)(&self.file(), node);
        if let Some(network) = &self.network {
            // Devices of other clusters, in other namespaces, may have the same addresses.
            let shared = self.folder.0.join("shm");
            command = network.within(node, command.env("HIGHWIRE_SHM_DIR", shared));
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        self.nodes[usize::from(node)] = Some(child.map_err(|error| failed(format!("node {node}"), error))?);
        Ok(())
    }

    /// Kills a node's process, and waits until it is gone.
    pub fn kill(&mut self, node: u16) {
        if let Some(mut child) = self.nodes[usize::from(node)].take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Asks a node's process to end, and waits until it has.
    pub fn end(&mut self, node: u16) {
        if let Some(mut child) = self.nodes[usize::from(node)].take() {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }

    /// Stops a node's process, or lets it go on. Returns when it has stopped.
    ///
    /// # Errors
    /// [`FaultError`]
    pub fn freeze(&self, node: u16, is_frozen: bool) -> Result<(), FaultError> {
        let child = self.nodes[usize::from(node)].as_ref();
        let pid = child.and_then(|child| Pid::from_raw(child.id() as i32));
        let pid = pid.ok_or_else(|| FaultError(format!("node {node} does not run")))?;
        let signal = if is_frozen { Signal::STOP } else { Signal::CONT };
        kill_process(pid, signal).map_err(|error| failed(format!("node {node}"), error))?;
        let stat = format!("/proc/{}/stat", pid.as_raw_nonzero());
        until("a process to stop", || {
            let stat = fs::read_to_string(&stat).ok()?;
            let state = stat.rsplit_once(") ")?.1.chars().next()?;
            ((state == 'T') == is_frozen).then_some(())
        })
    }

    /// A node's status.
    ///
    /// # Errors
    /// [`FaultError`]: it does not answer.
    pub fn status(&self, node: u16) -> Result<NodeStatus, FaultError> {
        until("a node's status", || self.client(node).status().ok())
    }

    fn client(&self, node: u16) -> Client {
        let mut client = Client::new([self.doors()[usize::from(node)].clone()]);
        client.set_patience(Duration::from_secs(1));
        client.set_answer_patience(Duration::from_secs(2));
        client
    }

    /// Waits until these nodes serve, as the only members, and all data has all its copies.
    ///
    /// # Errors
    /// [`FaultError`]
    pub fn wait_for(&self, nodes: &[u16]) -> Result<(), FaultError> {
        let mut clients: Vec<Client> = nodes.iter().map(|&node| self.client(node)).collect();
        until(&format!("nodes {nodes:?}"), || {
            let ask = |client: &mut Client| client.status().ok();
            let statuses: Option<Vec<NodeStatus>> = clients.iter_mut().map(ask).collect();
            let statuses = statuses?;
            let serves = |status: &NodeStatus| status.is_open && status.members == nodes;
            (statuses.iter().all(serves) && statuses.iter().any(|status| status.is_settled)).then_some(())
        })
    }

    /// The milestones of nodes, each with its node's number.
    pub(super) fn milestones(&self, nodes: &[u16]) -> Result<Vec<(u16, Milestone)>, FaultError> {
        let mut all = Vec::new();
        for &node in nodes {
            let of_node = until("milestones", || self.client(node).milestones().ok())?;
            all.extend(of_node.into_iter().map(|milestone| (node, milestone)));
        }
        Ok(all)
    }

    /// Each account's primary, as node 0 sees it.
    pub(super) fn primaries(&self) -> Result<Vec<u16>, FaultError> {
        let names: Vec<String> = (0..super::load::ACCOUNTS).map(super::load::name).collect();
        let keys: Vec<(&str, &[u8])> =
            names.iter().map(|name| (super::load::BANK, name.as_bytes())).collect();
        until("where accounts are", || self.client(0).primaries(&keys).ok())
    }
}

/// The cluster's file.
const FILE: &str = "cluster.toml";

fn write_file(
    folder: &Path,
    setting: &Setting,
    register: &str,
    has_network: bool,
) -> Result<ClusterConfig, FaultError> {
    let mut text =
        format!("f = 1\nregister = \"{register}\"\nkey = \"cluster.key\"\nlease_ms = {}\n", setting.lease_ms);
    let key = folder.join("cluster.key");
    make_key(&key).map_err(|error| failed("the cluster's key", error))?;
    if has_network {
        // Clients are on a network that nobody else reaches.
        text.push_str("link = \"udp\"\ndoors = { protected_mode = false }\n");
    }
    // All sockets are held until all ports are known, so that no two are the same.
    let mut holders = Vec::new();
    for node in 0..NODES {
        text.push_str(&format!("[[node]]\nid = {node}\n"));
        if has_network {
            let address = Network::address(node);
            text.push_str(&format!("door = \"{address}:7400\"\naddress = \"{address}\"\n"));
        } else {
            let holder = TcpListener::bind("127.0.0.1:0").map_err(|error| failed("a port", error))?;
            let door = holder.local_addr().map_err(|error| failed("a port", error))?;
            text.push_str(&format!("door = \"{door}\"\n"));
            holders.push(holder);
        }
        if setting.level == Level::Disk {
            text.push_str(&format!("data = \"node-{node}\"\n"));
        }
    }
    let file = folder.join(FILE);
    fs::write(&file, text).map_err(|error| failed(file.display(), error))?;
    ClusterConfig::load(&file).map_err(|error| failed("the cluster's file", error))
}
