//! A whole cluster on this machine: one process for each node, so that losing one is real, and a supervisor that starts it again.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use highwire_host::EndSignals;
use highwire_store::{Access, Client, ClusterConfig, Users, fresh_name, make_key};

use crate::console::Console;
use crate::failure::usage;

use super::options::Args;
use super::serve::HAS_LEFT;

/// The pause before a lost node is started again; longer for a node that does not live long.
const RESTART_AFTER: Duration = Duration::from_millis(500);
const SHORT_LIFE: Duration = Duration::from_secs(2);
/// How long a new cluster may take until it serves.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// The folder of a cluster: its file, its register, and its nodes' data if that must outlive the supervisor.
struct Folder {
    path: PathBuf,
    is_kept: bool,
    /// Held as long as the supervisor lives.
    _lock: File,
}

/// The file in it with the cluster's key.
const KEY: &str = "cluster.key";

/// The file in it that a supervisor locks, with a line about the supervisor.
const LOCK: &str = "supervisor.lock";

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

impl Folder {
    /// Opens the folder for one supervisor. Nothing in it is changed before that.
    fn open(data: Option<&Path>, doors: &[String]) -> Result<Folder> {
        let path = match data {
            Some(path) => path.to_path_buf(),
            None => std::env::temp_dir().join(format!("highwire-store-{}", fresh_name()?)),
        };
        let inside = || path.display().to_string();
        fs::create_dir_all(&path).with_context(inside)?;
        let lock = path.join(LOCK);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&lock);
        let file = file.with_context(|| lock.display().to_string())?;
        match file.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                let holder = fs::read_to_string(&lock).unwrap_or_default();
                bail!("--data: {} is in use by {}", path.display(), holder.trim_end());
            }
            Err(fs::TryLockError::Error(error)) => {
                return Err(error).with_context(|| lock.display().to_string());
            }
        }
        let about = format!("process {}, whose nodes are at {}\n", std::process::id(), doors.join(", "));
        fs::write(&lock, about).with_context(|| lock.display().to_string())?;
        Ok(Folder { path, is_kept: data.is_some(), _lock: file })
    }

    /// The cluster's file.
    fn file(&self) -> PathBuf {
        self.path.join("cluster.toml")
    }

    /// Whether the folder is new, or has a cluster of the same shape.
    fn check(&self, config: &ClusterConfig) -> Result<()> {
        if !self.file().exists() {
            return Ok(());
        }
        let old = ClusterConfig::load(&self.file()).map_err(|error| usage(error.to_string()))?;
        let options = |of: &ClusterConfig| {
            let ClusterConfig { f, lease_ms, rows_max, .. } = of;
            format!("--nodes {} --f {f} --lease-ms {lease_ms} --rows-max {rows_max}", of.nodes.len())
        };
        if options(&old) != options(config) {
            return Err(usage(format!(
                "--data: {} holds a cluster of {}, and not of {}",
                self.path.display(),
                options(&old),
                options(config)
            )));
        }
        Ok(())
    }

    /// Writes the cluster's file, as a whole.
    fn write(&self, text: &str) -> Result<PathBuf> {
        let path = self.file();
        let draft = self.path.join(format!("cluster.toml.draft-{}", fresh_name()?));
        let write = || {
            let mut file = File::create_new(&draft)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            File::open(&self.path)?.sync_all()
        };
        write().with_context(|| path.display().to_string())?;
        Ok(path)
    }
}

/// Runs a cluster until a signal ends it.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let ends = EndSignals::block();
    let f = args.f.unwrap_or(usize::from(args.nodes > 1));
    let text = cluster_file(args, f)?;
    let config = ClusterConfig::parse(&text).map_err(usage)?;
    let folder = Folder::open(args.data.as_deref(), &config.doors())?;
    folder.check(&config)?;
    if let Some(path) = &args.users {
        // One clear error now is better than one from each node.
        Users::load(path).map_err(|error| usage(format!("--users: {error}")))?;
    }
    let mut doors = config.doors();
    for node in 0..args.nodes {
        doors.extend(nth("--resp", args.resp.as_ref(), node)?);
        doors.extend(nth("--metrics", args.metrics.as_ref(), node)?);
    }
    for door in doors {
        // One clear error now is better than one from each node.
        TcpListener::bind(&door).with_context(|| format!("{door} is taken; another port?"))?;
    }
    let key = folder.path.join(KEY);
    if !key.exists() {
        make_key(&key).with_context(|| key.display().to_string())?;
    }
    let path = folder.write(&text)?;
    let is_ending = Arc::new(AtomicBool::new(false));
    let inputs: Arc<Mutex<Vec<Option<ChildStdin>>>> =
        Arc::new(Mutex::new((0..args.nodes).map(|_| None).collect()));
    let mut watchers = Vec::new();
    let failed: Vec<Arc<AtomicBool>> = (0..args.nodes).map(|_| Arc::default()).collect();
    for node in 0..args.nodes {
        let keeper = Keeper {
            config: path.clone(),
            node,
            door: config.doors()[usize::from(node)].clone(),
            resp: nth("--resp", args.resp.as_ref(), node)?,
            metrics: nth("--metrics", args.metrics.as_ref(), node)?,
            restarts: !args.no_restart,
            is_ending: Arc::clone(&is_ending),
            inputs: Arc::clone(&inputs),
            has_failed: Arc::clone(&failed[usize::from(node)]),
        };
        let child = keeper.start()?;
        watchers.push(thread::spawn(move || keeper.keep(child)));
    }
    let has_failed = |node: usize| failed[node].load(Ordering::SeqCst);
    let config = ClusterConfig::load(&path).map_err(|error| usage(error.to_string()))?;
    let served = wait_until_it_serves(&config, &is_ending, !args.no_restart, has_failed);
    if let Ok(out) = &served {
        let mut console = Console::new();
        for node in out {
            console.line(format_args!("node {node} does not serve; the others do, as f = {f} promises"))?;
        }
        console.line(format_args!(
            "the store serves: {} nodes, everything {} times; HIGHWIRE_STORE={}",
            args.nodes,
            f + 1,
            config.doors().join(",")
        ))?;
        console.finish()?;
        ends.wait();
    }
    is_ending.store(true, Ordering::SeqCst);
    inputs.lock().unwrap_or_else(PoisonError::into_inner).clear();
    for watcher in watchers {
        let _ = watcher.join();
    }
    served.map(|_| ExitCode::SUCCESS)
}

fn cluster_file(args: &Args, f: usize) -> Result<String> {
    let register = args.register.as_deref().unwrap_or("register");
    let mut text = format!(
        "f = {f}\nregister = {register:?}\nkey = {KEY:?}\nlease_ms = {}\nrows_max = {}\n",
        args.lease_ms, args.rows_max
    );
    if let Some(users) = &args.users {
        let users = std::path::absolute(users).with_context(|| users.display().to_string())?;
        text.push_str(&format!("users = {users:?}\n"));
    }
    if let Some(certificate) = &args.tls_certificate {
        text.push_str("\n[tls]\n");
        let files = [
            ("certificate", Some(certificate)),
            ("key", args.tls_key.as_ref()),
            ("authority", args.tls_authority.as_ref()),
            ("clients", args.tls_clients.as_ref()),
        ];
        for (name, path) in files {
            let Some(path) = path else { continue };
            let path = std::path::absolute(path).with_context(|| path.display().to_string())?;
            text.push_str(&format!("{name} = {path:?}\n"));
        }
    }
    for node in 0..args.nodes {
        let port =
            args.port.checked_add(node).ok_or_else(|| usage("--port: there are no ports beyond 65535"))?;
        text.push_str(&format!("\n[[node]]\nid = {node}\ndoor = \"127.0.0.1:{port}\"\n"));
        if args.data.is_some() {
            text.push_str(&format!("data = \"node-{node}\"\n"));
        }
    }
    Ok(text)
}

/// The address at which clients find a node, if there is one: the first node's address, and the nth port
/// behind it.
fn nth(option: &str, first: Option<&(String, u16)>, node: u16) -> Result<Option<String>> {
    let Some((address, port)) = first else { return Ok(None) };
    let beyond = || usage(format!("{option}: there are no ports beyond 65535"));
    let port = port.checked_add(node).ok_or_else(beyond)?;
    Ok(Some(format!("{address}:{port}")))
}

/// Waits until all nodes serve, or all but those that have failed, which may be f. Returns these.
fn wait_until_it_serves(
    config: &ClusterConfig,
    is_ending: &AtomicBool,
    restarts: bool,
    has_failed: impl Fn(usize) -> bool,
) -> Result<Vec<usize>> {
    let deadline = Instant::now() + START_PATIENCE;
    let mut clients: Vec<Client> = config.doors().into_iter().map(|door| Client::new([door])).collect();
    let access = Access::member(config).map_err(anyhow::Error::msg)?;
    for client in &mut clients {
        client.set_patience(Duration::from_secs(1));
        client.set_access(access.clone());
    }
    loop {
        let mut out = Vec::new();
        let mut waits_for = None;
        for (node, client) in clients.iter_mut().enumerate() {
            if client.status().is_ok_and(|status| status.is_open) {
                continue;
            }
            match has_failed(node) {
                true => out.push(node),
                false => waits_for = Some(node),
            }
        }
        let is_lost = out.len() > config.f;
        let is_late = is_ending.load(Ordering::SeqCst) || Instant::now() >= deadline;
        match waits_for {
            None if !is_lost => return Ok(out),
            // A node that is started again may come back.
            _ if !is_late && (restarts || !is_lost) => thread::sleep(Duration::from_millis(20)),
            _ => {
                let node = waits_for.or(out.first().copied()).unwrap_or_default();
                bail!("the node at {} does not serve", config.doors()[node]);
            }
        }
    }
}

/// Keeps one node running.
struct Keeper {
    config: PathBuf,
    node: u16,
    door: String,
    resp: Option<String>,
    metrics: Option<String>,
    restarts: bool,
    is_ending: Arc<AtomicBool>,
    inputs: Arc<Mutex<Vec<Option<ChildStdin>>>>,
    /// It has ended at least once by itself.
    has_failed: Arc<AtomicBool>,
}

impl Keeper {
    fn start(&self) -> Result<Child> {
        let program = std::env::current_exe().unwrap_or_else(|_| Path::new("/proc/self/exe").into());
        let mut child = Command::new(program)
            .args(["store", "serve", "--until-stdin-ends", "--config"])
            .arg(&self.config)
            .args(["--node", &self.node.to_string()])
            .args(self.resp.iter().flat_map(|resp| ["--resp", resp]))
            .args(self.metrics.iter().flat_map(|metrics| ["--metrics", metrics]))
            .stdin(Stdio::piped())
            // The supervisor passes on the signal by which the keyboard ends it.
            .process_group(0)
            .spawn()
            .with_context(|| format!("node {}", self.node))?;
        let mut inputs = self.inputs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(input) = inputs.get_mut(usize::from(self.node)) {
            *input = child.stdin.take();
        }
        let resp = self.resp.as_ref().map(|resp| format!(", redis {resp}")).unwrap_or_default();
        let metrics = self.metrics.as_ref().map(|at| format!(", metrics {at}")).unwrap_or_default();
        say(format_args!("node {}: process {}, door {}{resp}{metrics}", self.node, child.id(), self.door));
        Ok(child)
    }

    fn keep(&self, mut child: Child) {
        loop {
            let began = Instant::now();
            let Ok(status) = child.wait() else { return };
            if self.is_ending.load(Ordering::SeqCst) {
                return;
            }
            self.has_failed.store(true, Ordering::SeqCst);
            say(format_args!("node {}: process {} has ended ({status})", self.node, child.id()));
            if !self.restarts || [Some(2), Some(i32::from(HAS_LEFT))].contains(&status.code()) {
                return;
            }
            thread::sleep(if began.elapsed() < SHORT_LIFE { SHORT_LIFE } else { RESTART_AFTER });
            if self.is_ending.load(Ordering::SeqCst) {
                return;
            }
            match self.start() {
                Ok(again) => child = again,
                Err(error) => {
                    // The operator's terminal may be gone; the nodes that this process keeps alive must stay.
                    let _ = writeln!(std::io::stderr(), "error: {error:#}");
                    return;
                }
            }
        }
    }
}

/// Writes to the terminal, if it is still there.
fn say(what: fmt::Arguments<'_>) {
    let _ = writeln!(io::stdout(), "{what}");
}
