//! A whole cluster on this machine: one process for each node, so that losing one is real, and a supervisor that starts it again.

use std::io::{self, Write as _};
use std::net::TcpListener;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use std::{fmt, fs};

use anyhow::{Context, Result, bail};
use highwire_host::EndSignals;
use highwire_store::{Client, ClusterConfig};

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
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

impl Folder {
    fn open(data: Option<&Path>) -> Result<Folder> {
        let temporary = || std::env::temp_dir().join(format!("highwire-store-{}", std::process::id()));
        let folder = Folder { path: data.map_or_else(temporary, Path::to_path_buf), is_kept: data.is_some() };
        fs::create_dir_all(&folder.path).with_context(|| folder.path.display().to_string())?;
        Ok(folder)
    }

    /// Writes the cluster's file. An existing file must be of a cluster of the same shape.
    fn write(&self, text: &str, config: &ClusterConfig) -> Result<PathBuf> {
        let path = self.path.join("cluster.toml");
        if path.exists() {
            let old = ClusterConfig::load(&path).map_err(|error| usage(error.to_string()))?;
            if (old.nodes.len(), old.f) != (config.nodes.len(), config.f) {
                return Err(usage(format!(
                    "--data: {} holds a cluster of --nodes {} --f {}",
                    self.path.display(),
                    old.nodes.len(),
                    old.f
                )));
            }
        }
        fs::write(&path, text).with_context(|| path.display().to_string())?;
        Ok(path)
    }
}

/// Runs a cluster until a signal ends it.
pub(super) fn run(args: &Args) -> Result<ExitCode> {
    let ends = EndSignals::block();
    let f = args.f.unwrap_or(usize::from(args.nodes > 1));
    let text = cluster_file(args, f)?;
    let config = ClusterConfig::parse(&text).map_err(usage)?;
    let folder = Folder::open(args.data.as_deref())?;
    let path = folder.write(&text, &config)?;
    let mut doors = config.doors();
    for node in 0..args.nodes {
        doors.extend(nth("--resp", args.resp.as_ref(), node)?);
        doors.extend(nth("--metrics", args.metrics.as_ref(), node)?);
    }
    for door in doors {
        // One clear error now is better than one from each node.
        TcpListener::bind(&door).with_context(|| format!("{door} is taken; another port?"))?;
    }
    let is_ending = Arc::new(AtomicBool::new(false));
    let inputs: Arc<Mutex<Vec<Option<ChildStdin>>>> =
        Arc::new(Mutex::new((0..args.nodes).map(|_| None).collect()));
    let mut watchers = Vec::new();
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
        };
        let child = keeper.start()?;
        watchers.push(thread::spawn(move || keeper.keep(child)));
    }
    let served =
        wait_until_it_serves(&config, &is_ending, || watchers.iter().any(thread::JoinHandle::is_finished));
    if served.is_ok() {
        let mut console = Console::new();
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
    served.map(|()| ExitCode::SUCCESS)
}

fn cluster_file(args: &Args, f: usize) -> Result<String> {
    let register = args.register.as_deref().unwrap_or("register");
    let mut text = format!(
        "f = {f}\nregister = {register:?}\nlease_ms = {}\nrows_max = {}\n",
        args.lease_ms, args.rows_max
    );
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

fn wait_until_it_serves(
    config: &ClusterConfig,
    is_ending: &AtomicBool,
    has_failed: impl Fn() -> bool,
) -> Result<()> {
    let deadline = Instant::now() + START_PATIENCE;
    for door in config.doors() {
        let mut client = Client::new([door.clone()]);
        client.set_patience(Duration::from_secs(1));
        while !client.status().is_ok_and(|status| status.is_open) {
            if has_failed() || is_ending.load(Ordering::SeqCst) || Instant::now() >= deadline {
                bail!("the node at {door} does not serve");
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
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
