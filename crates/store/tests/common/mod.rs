//! Clusters for tests: nodes of this process, or one process each.
#![allow(dead_code, reason = "each test binary uses its part of this")]

pub(crate) mod bank;
pub(crate) mod resp;

use highwire_host::LinkChoice;
use highwire_store::bench::Benchmark;
use highwire_store::{Client, ClusterConfig, Engine, NodeStatus, StartError, StoreError};
use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Longer than any step takes, even on a machine whose cores are busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// Tells threads to end, also when an assertion fails: they would go on for ever.
pub(crate) struct Ends<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A port of this machine that nothing has. It is none of those that the kernel gives to whoever connects: one of them would be taken
/// again before a node is there.
pub(crate) fn free_port() -> u16 {
    const FIRST: u32 = 10_000;
    const COUNT: u32 = 20_000;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Processes begin at places of their own.
    let begin = std::process::id().wrapping_mul(97);
    let mut ports = std::iter::repeat_with(|| begin.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)));
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port = ports.by_ref().take(COUNT as usize).map(|at| (FIRST + at % COUNT) as u16).find(is_free);
    port.expect("a free port")
}

pub(crate) fn free_address() -> String {
    format!("127.0.0.1:{}", free_port())
}

/// A cluster's folder, with its file in it.
pub(crate) struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    /// A cluster of this many nodes at free ports.
    pub(crate) fn new(nodes: usize, more: &str) -> Folder {
        Folder::make(nodes, more, false, "register")
    }

    /// As `new`, with a register somewhere else.
    pub(crate) fn with_register(nodes: usize, more: &str, register: &str) -> Folder {
        Folder::make(nodes, more, false, register)
    }

    /// As `new`, with data folders for the nodes.
    pub(crate) fn with_disks(nodes: usize, more: &str) -> Folder {
        Folder::make(nodes, more, true, "register")
    }

    fn make(nodes: usize, more: &str, has_disks: bool, register: &str) -> Folder {
        // Process numbers are no names: tests in containers that share the folder may all have the same one.
        let name = format!("highwire-store-test-{}", highwire_store::fresh_name().expect("random numbers"));
        let folder = Folder(std::env::temp_dir().join(name));
        std::fs::create_dir_all(&folder.0).expect("a folder");
        let mut text = format!("register = \"{register}\"\n{more}\n");
        for id in 0..nodes {
            let door = free_address();
            text.push_str(&format!("[[node]]\nid = {id}\ndoor = \"{door}\"\n"));
            if has_disks {
                text.push_str(&format!("data = \"node-{id}\"\n"));
            }
        }
        std::fs::write(folder.file(), text).expect("written");
        folder
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn file(&self) -> PathBuf {
        self.0.join("cluster.toml")
    }

    /// A file that has one node more, at a free port, or another door for a node that is there; and that door.
    pub(crate) fn grown(&self, node: u16, has_disks: bool, more: &str) -> (PathBuf, String) {
        let door = free_address();
        let text = std::fs::read_to_string(self.file()).expect("a cluster file");
        let (head, nodes) = text.split_once("[[node]]").expect("a node");
        let is_other = |text: &&str| !text.contains(&format!("id = {node}\n"));
        let mut text = format!("{more}\n{head}");
        let own = format!("\nid = {node}\ndoor = \"{door}\"\n");
        for other in nodes.split("[[node]]").filter(is_other).chain([own.as_str()]) {
            text.push_str(&format!("[[node]]{other}"));
            if has_disks && !other.contains("data = ") {
                let id = other.split("id = ").nth(1).and_then(|rest| rest.lines().next()).expect("a number");
                text.push_str(&format!("data = \"node-{id}\"\n"));
            }
        }
        let path = self.0.join(format!("grown-{node}-{}.toml", more.len()));
        std::fs::write(&path, text).expect("written");
        (path, door)
    }

    pub(crate) fn config(&self) -> ClusterConfig {
        ClusterConfig::load(&self.file()).expect("a cluster file")
    }

    pub(crate) fn client(&self) -> Client {
        let mut client = Client::new(self.config().doors());
        client.set_patience(PATIENCE);
        client
    }

    /// Waits until every node of `nodes` serves, as one of this many members, and all data has all its
    /// copies.
    #[track_caller]
    pub(crate) fn wait_for(&self, nodes: &[usize], members: usize) {
        let doors = self.config().doors();
        let mut clients: Vec<Client> = nodes.iter().map(|&node| Client::new([doors[node].clone()])).collect();
        clients.iter_mut().for_each(|client| client.set_patience(Duration::from_secs(1)));
        until(&format!("nodes {nodes:?} of {members}"), || {
            let statuses: Vec<NodeStatus> =
                clients.iter_mut().filter_map(|client| client.status().ok()).collect();
            let serves = |status: &NodeStatus| status.is_open && status.members.len() == members;
            // Only the manager learns at once that copies are complete.
            let is_settled = statuses.iter().any(|status| status.is_settled);
            (statuses.len() == nodes.len() && statuses.iter().all(serves) && is_settled).then_some(())
        });
    }
}

#[track_caller]
pub(crate) fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = look() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited too long for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits until the nodes at these doors, by their numbers, and no others, are members, serve, and have all copies.
#[track_caller]
pub(crate) fn wait_for_members(doors: &[String], members: &[u16]) {
    until(&format!("members {members:?}"), || {
        let status = |&node: &u16| {
            let mut client = Client::new([doors[usize::from(node)].clone()]);
            client.set_patience(Duration::from_secs(1));
            client.status().ok()
        };
        let statuses: Vec<NodeStatus> = members.iter().filter_map(status).collect();
        let serves = |status: &NodeStatus| status.is_open && status.members == members;
        let is_settled = statuses.iter().any(|status| status.is_settled);
        (statuses.len() == members.len() && statuses.iter().all(serves) && is_settled).then_some(())
    });
}

/// Stores a value. A node that has no core for longer than its lease loses its part in the cluster for a moment, and then it is not known whether
/// a write has happened: writing the same again does no harm.
#[track_caller]
pub(crate) fn put(client: &mut Client, table: &str, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) {
    commit("a value that is stored", || client.put(table, &key, &value));
}

/// The same for any transaction that may happen twice.
#[track_caller]
pub(crate) fn commit<T>(what: &str, mut transact: impl FnMut() -> Result<T, StoreError>) -> T {
    until(what, || match transact() {
        Ok(value) => Some(value),
        Err(StoreError::Unknown(_) | StoreError::Unavailable(_) | StoreError::Conflict) => None,
        Err(error) => panic!("{what}: {error}"),
    })
}

/// Nodes of this very process.
pub(crate) struct Cluster {
    pub(crate) folder: Folder,
    engines: Vec<Engine>,
}

impl Cluster {
    pub(crate) fn start(nodes: usize, more: &str) -> Cluster {
        Cluster::start_by(nodes, more, Engine::start)
    }

    /// A client of each node's door alone.
    pub(crate) fn clients(&self) -> Vec<Client> {
        let own = |door: String| {
            let mut client = Client::new([door]);
            client.set_patience(PATIENCE);
            client
        };
        self.folder.config().doors().into_iter().map(own).collect()
    }

    /// A cluster with a benchmark's tables.
    pub(crate) fn of_benchmark(nodes: usize, more: &str, benchmark: Benchmark) -> Cluster {
        Cluster::start_by(nodes, more, |config, id| {
            Engine::start_with(config, id, benchmark.settings(config), LinkChoice::Auto)
        })
    }

    fn start_by(
        nodes: usize,
        more: &str,
        start: impl Fn(&ClusterConfig, u16) -> Result<Engine, StartError>,
    ) -> Cluster {
        let folder = Folder::new(nodes, more);
        let config = folder.config();
        let engines: Vec<Engine> = (0..nodes).map(|id| start(&config, id as u16).expect("a node")).collect();
        let cluster = Cluster { folder, engines };
        cluster.folder.wait_for(&(0..nodes).collect::<Vec<_>>(), nodes);
        cluster
    }

    pub(crate) fn client(&self) -> Client {
        self.folder.client()
    }

    pub(crate) fn engine(&self, node: usize) -> &Engine {
        &self.engines[node]
    }

    pub(crate) fn engines(&self) -> &[Engine] {
        &self.engines
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for engine in self.engines.drain(..) {
            engine.store().stop();
            engine.join().expect("the node's thread did not panic");
        }
    }
}

const FILE: &str = "HIGHWIRE_STORE_TEST_FILE";
const NODE: &str = "HIGHWIRE_STORE_TEST_NODE";
const RESP: &str = "HIGHWIRE_STORE_TEST_RESP";

/// A node in a process of its own: this test program, which runs the test `this_process_is_a_node`.
pub(crate) struct Process(Child);

impl Process {
    pub(crate) fn start(file: &Path, node: usize) -> Process {
        Process::run(Command::new(std::env::current_exe().expect("this program")), file, node)
    }

    /// Starts a node with a Redis endpoint at this address.
    pub(crate) fn start_with_resp(file: &Path, node: usize, address: &str) -> Process {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env(RESP, address);
        Process::run(command, file, node)
    }

    /// Starts a node that gets an error, not a signal, from a file that must not grow. Its own messages go to
    /// `log`.
    pub(crate) fn start_to_be_limited(file: &Path, node: usize, log: File) -> Process {
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]);
        shell.arg(std::env::current_exe().expect("this program")).stderr(log);
        Process::run(shell, file, node)
    }

    /// Limits the length of the node's files from now on.
    pub(crate) fn limit_files(&self, bytes: u64) {
        let arguments = ["--pid", &self.0.id().to_string(), &format!("--fsize={bytes}")];
        let status = Command::new("prlimit").args(arguments).status().expect("prlimit");
        assert!(status.success());
    }

    fn run(command: Command, file: &Path, node: usize) -> Process {
        let mut command = as_node(command, file, node);
        Process(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("a process"))
    }

    /// Its exit status, if it has ended.
    pub(crate) fn ended(&mut self) -> Option<std::process::ExitStatus> {
        self.0.try_wait().expect("a child")
    }

    /// Stops it, and returns when none of its threads runs any more.
    pub(crate) fn stop(&self) {
        self.signal("-STOP");
        let tasks = format!("/proc/{}/task", self.0.id());
        until("all threads to stop", || {
            let is_stopped = |task: std::io::Result<std::fs::DirEntry>| {
                let stat = std::fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
                // The state stands behind the name, which is in brackets.
                Some(stat.rsplit_once(") ")?.1.starts_with('T'))
            };
            let mut tasks = std::fs::read_dir(&tasks).ok()?;
            tasks.all(|task| is_stopped(task) == Some(true)).then_some(())
        });
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill").args([name, &self.0.id().to_string()]).status().expect("kill");
        assert!(status.success());
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The command that starts a node in a process of its own, which ends with its standard input.
pub(crate) fn node_command(file: &Path, node: u16) -> Command {
    as_node(Command::new(std::env::current_exe().expect("this program")), file, usize::from(node))
}

fn as_node(mut command: Command, file: &Path, node: usize) -> Command {
    command.args(["--exact", "this_process_is_a_node", "--nocapture"]);
    command.env(FILE, file).env(NODE, node.to_string());
    command
}

/// Runs the node in the other process; returns at once in the first one.
pub(crate) fn be_a_node_if_asked() {
    let (Some(file), Ok(node)) = (std::env::var_os(FILE), std::env::var(NODE)) else { return };
    let config = ClusterConfig::load(Path::new(&file)).expect("a cluster file");
    let engine = Engine::start(&config, node.parse().expect("a number")).expect("a node");
    let store = engine.store().clone();
    if let Ok(address) = std::env::var(RESP) {
        store.open_resp(&address).expect("the endpoint");
    }
    std::thread::spawn(move || {
        let _ = std::io::Read::read_to_end(&mut std::io::stdin(), &mut Vec::new());
        store.stop();
    });
    engine.join().expect("no panic");
}
