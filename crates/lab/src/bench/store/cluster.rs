//! The benchmark's cluster: a process for each node, all of which get the same orders at the same time.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use highwire_store::Client;
use highwire_store::bench::{Audit, Benchmark, Turn, TurnReport};
use serde::Serialize;

use crate::progress::Progress;

use super::super::served::{Folder, free_ports};
use super::Options;
use super::node::{Answer, Order, Usage};

/// How long the nodes may take until all serve.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// The interval between two looks for answers.
const LOOK: Duration = Duration::from_millis(100);
/// How much longer than its length a turn may take: transactions must end.
const TURN_PATIENCE: Duration = Duration::from_secs(120);
/// Populating and auditing take longer with more keys.
const TABLE_PATIENCE: Duration = Duration::from_secs(1800);
/// A node whose process gets no core for long must not count as failed here.
const LEASE_MS: u64 = 20_000;
/// Regions of each node.
const REGIONS: u16 = 8;

struct Node {
    process: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<Answer>,
}

/// Processes that end with this value.
pub(super) struct Cluster {
    nodes: Vec<Node>,
    // Declared after the nodes, which use it.
    _folder: Folder,
    journals: Option<Folder>,
}

/// The memory that keys take.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Memory {
    /// Rows of the benchmark.
    pub(super) rows: u64,
    /// Their copies on all nodes.
    pub(super) copies: u64,
    /// The memory that the tables take for them.
    pub(super) table_bytes: u64,
    /// The growth of the processes' memory since before the nodes began, including queues and the like.
    pub(super) resident_bytes: u64,
}

/// A cluster's results in a turn.
pub(super) struct Played {
    pub(super) reports: Vec<TurnReport>,
    /// Of all threads of all nodes.
    pub(super) cpu: Duration,
}

impl Cluster {
    /// The bytes in the nodes' journals, if they keep any.
    pub(super) fn journal_bytes(&self) -> Result<Option<u64>> {
        let Some(journals) = &self.journals else { return Ok(None) };
        let mut bytes = 0;
        for node in std::fs::read_dir(journals.path())? {
            for file in std::fs::read_dir(node?.path())? {
                // A node removes files that a checkpoint has made needless.
                bytes += file?.metadata().map_or(0, |file| file.len());
            }
        }
        Ok(Some(bytes))
    }

    /// Starts the cluster and waits until it serves.
    pub(super) fn start(args: &Options, benchmark: Benchmark) -> Result<Cluster> {
        let port = free_ports(args.nodes)?;
        let folder = Folder::new("bench")?;
        let mut text = format!(
            "f = {}\nregister = \"register\"\nlease_ms = {LEASE_MS}\nworkers = {}\nregions = {}\n",
            args.replicas - 1,
            args.workers,
            args.nodes * REGIONS
        );
        let journals = match &args.data {
            Some(parent) => Some(Folder::below(&std::path::absolute(parent)?, "bench-journals")?),
            None => None,
        };
        for node in 0..args.nodes {
            text.push_str(&format!("[[node]]\nid = {node}\ndoor = \"127.0.0.1:{}\"\n", port + node));
            if let Some(journals) = &journals {
                // TOML's strings and Rust's have the same escapes for the characters of a path.
                text.push_str(&format!("data = {:?}\n", journals.path().join(format!("node-{node}"))));
            }
        }
        let file = folder.path().join("cluster.toml");
        std::fs::write(&file, text).with_context(|| file.display().to_string())?;
        let mut cluster = Cluster { nodes: Vec::new(), _folder: folder, journals };
        for node in 0..args.nodes {
            let process = Command::new(std::env::current_exe()?)
                .args(["bench", "store-node", "--config"])
                .arg(&file)
                .args(["--node", &node.to_string(), "--link", &args.link.to_string()])
                .args(["--benchmark", &serde_json::to_string(&benchmark)?])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn();
            cluster.nodes.push(Node::of(process.with_context(|| format!("node {node}"))?)?);
        }
        let deadline = Instant::now() + START_PATIENCE;
        for node in 0..args.nodes {
            let mut client = Client::new([format!("127.0.0.1:{}", port + node)]);
            client.set_patience(Duration::from_secs(1));
            while !client.status().is_ok_and(|status| status.is_open) {
                cluster.check_alive()?;
                if Instant::now() >= deadline {
                    bail!("node {node} does not serve");
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(cluster)
    }

    /// Fills all nodes.
    pub(super) fn populate(&mut self, benchmark: Benchmark) -> Result<Memory> {
        let began = Instant::now();
        let answers = self.ask("populating", &Order::Populate(benchmark), began, None)?;
        let mut memory = Memory { rows: 0, copies: 0, table_bytes: 0, resident_bytes: 0 };
        for answer in answers {
            let Answer::Populated(one) = answer else { bail!("a node answers something else") };
            memory.rows = one.rows;
            memory.copies += one.copies;
            memory.table_bytes += one.table_bytes;
        }
        memory.resident_bytes = self.usage()?.resident_bytes;
        Ok(memory)
    }

    /// Plays a turn on all nodes.
    pub(super) fn play(&mut self, turn: &Turn, began: Instant) -> Result<Played> {
        let before = self.usage()?;
        let length = Duration::from_nanos(turn.length_ns);
        let answers = self.ask("measuring", &Order::Play(turn.clone()), began, Some(length))?;
        let after = self.usage()?;
        let report = |answer| match answer {
            Answer::Played(report) => Ok(*report),
            _ => bail!("a node answers something else"),
        };
        let reports = answers.into_iter().map(report).collect::<Result<_>>()?;
        Ok(Played { reports, cpu: Duration::from_nanos(after.cpu_ns - before.cpu_ns) })
    }

    /// The sum of the primaries' balances, and the faults of the copies.
    pub(super) fn audit(&mut self, benchmark: Benchmark) -> Result<Audited> {
        let began = Instant::now();
        let mut audited = Audited::default();
        let mut digests: BTreeMap<u16, u64> = BTreeMap::new();
        for answer in self.ask("looking at all copies", &Order::Audit(benchmark), began, None)? {
            let Answer::Audited(Audit { balance, digests: own, locks }) = answer else {
                bail!("a node answers something else")
            };
            audited.balance += balance;
            audited.locks += locks;
            for (region, digest) in own {
                let differs = *digests.entry(region).or_insert(digest) != digest;
                audited.regions_that_differ += u64::from(differs);
            }
        }
        Ok(audited)
    }

    fn usage(&mut self) -> Result<Usage> {
        let mut sum = Usage::default();
        for answer in self.ask("", &Order::Usage, Instant::now(), None)? {
            let Answer::Usage(one) = answer else { bail!("a node answers something else") };
            sum.cpu_ns += one.cpu_ns;
            sum.resident_bytes += one.resident_bytes;
        }
        Ok(sum)
    }

    /// Sends an order to all nodes and waits for all answers, `length` longer if the order takes a known
    /// time.
    fn ask(
        &mut self,
        title: &'static str,
        order: &Order,
        began: Instant,
        length: Option<Duration>,
    ) -> Result<Vec<Answer>> {
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        for (number, node) in self.nodes.iter_mut().enumerate() {
            let orders = node.orders.as_mut().context("the cluster is ending")?;
            orders.write_all(line.as_bytes()).with_context(|| format!("node {number} has ended"))?;
        }
        let patience = length.map_or(TABLE_PATIENCE, |length| length * 2 + TURN_PATIENCE);
        let mut progress = Progress::new(title, length.map_or(1, |length| length.as_millis() as u64));
        let mut answers = Vec::new();
        for (number, node) in self.nodes.iter().enumerate() {
            answers.push(loop {
                match node.answers.recv_timeout(LOOK) {
                    Ok(Answer::Failed(what)) => bail!("node {number}: {what}"),
                    Ok(answer) => break answer,
                    Err(RecvTimeoutError::Disconnected) => bail!("node {number} has ended"),
                    Err(RecvTimeoutError::Timeout) if began.elapsed() > patience => {
                        bail!("node {number} says nothing for {} s", patience.as_secs());
                    }
                    Err(RecvTimeoutError::Timeout) => {
                        progress.at(began.elapsed().as_millis() as u64, Instant::now());
                    }
                }
            });
        }
        Ok(answers)
    }

    fn check_alive(&mut self) -> Result<()> {
        for (number, node) in self.nodes.iter_mut().enumerate() {
            if let Some(status) = node.process.try_wait()? {
                bail!("node {number} has ended: {status}");
            }
        }
        Ok(())
    }
}

/// The data of all nodes together.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Audited {
    pub(super) balance: i64,
    pub(super) regions_that_differ: u64,
    pub(super) locks: u64,
}

impl Node {
    fn of(mut process: Child) -> Result<Node> {
        let orders = process.stdin.take();
        let output = process.stdout.take().context("a node's output")?;
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                let answer = serde_json::from_str(&line);
                let answer = answer.unwrap_or_else(|error| Answer::Failed(format!("`{line}`: {error}")));
                if sender.send(answer).is_err() {
                    return;
                }
            }
        });
        Ok(Node { process, orders, answers })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // A node ends when its orders end; one that does not is killed.
        self.nodes.iter_mut().for_each(|node| drop(node.orders.take()));
        let deadline = Instant::now() + Duration::from_secs(10);
        for node in &mut self.nodes {
            while matches!(node.process.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = node.process.kill();
            let _ = node.process.wait();
        }
    }
}
