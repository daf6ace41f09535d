//! `cluster.toml`: the nodes of a cluster, and the settings that all of them share.

use crate::clock::DRIFT_PPM_MAX;
use crate::register::ETCD;
use crate::tls::TlsConfig;
use highwire_host::LinkChoice;
use highwire_txn::{NodeId, Settings, TableKind};
use serde::Deserialize;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// A cluster, as `cluster.toml` describes it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// How many nodes may be lost at once: every row has f + 1 copies.
    #[serde(default = "default_f")]
    pub f: usize,
    /// Where the configurations are agreed on: a folder that all nodes reach, relative to the file, or `etcd://HOST:PORT,…/NAME`.
    pub register: PathBuf,
    /// Parts of the key space that are replicated as a whole.
    #[serde(default = "default_regions")]
    pub regions: usize,
    /// Rows in one region; the store refuses more.
    #[serde(default = "default_rows_max")]
    pub rows_max: usize,
    /// The length of a lease. A node that is silent for twice as long is removed.
    #[serde(default = "default_lease_ms")]
    pub lease_ms: u64,
    /// Transactions that a node coordinates at a time.
    #[serde(default = "default_workers")]
    pub workers: u16,
    /// The link that carries requests between nodes.
    #[serde(default)]
    pub link: Link,
    /// The file of the cluster's key, relative to this one. The variable HIGHWIRE_STORE_KEY takes its place. Without a key, nodes are on
    /// one machine.
    pub key: Option<PathBuf>,
    /// The users' file, relative to this one; without one, clients of the same machine may do everything.
    pub users: Option<PathBuf>,
    /// The certificates of the endpoints, which speak TLS 1.3 with them, and nothing else.
    pub tls: Option<TlsConfig>,
    /// What clients may do at the doors.
    #[serde(default)]
    pub doors: DoorLimits,
    /// The nodes.
    #[serde(rename = "node")]
    pub nodes: Vec<NodeConfig>,
}

/// The limits of a node's doors, each by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DoorLimits {
    /// Connections at a time.
    pub connections: usize,
    /// Those of one address, or of one network of IPv6.
    pub connections_per_address: usize,
    /// A connection that asks nothing for so many seconds is ended; 0: none is.
    pub idle_s: u64,
    /// A request or an answer that is on its way for so many seconds, and one more for every 256 KiB, ends the connection.
    pub slow_s: u64,
    /// While there are no users, only clients of a loopback address are let in.
    pub protected_mode: bool,
    /// Redis clients are sent to the primaries of their keys (`MOVED`), also those that have not asked for the cluster's map.
    pub moved: bool,
}

impl Default for DoorLimits {
    fn default() -> DoorLimits {
        DoorLimits {
            connections: 1024,
            connections_per_address: 512,
            idle_s: 300,
            slow_s: 10,
            protected_mode: true,
            moved: false,
        }
    }
}

/// The link that carries requests between nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Link {
    /// Shared memory between nodes of one user on one machine, UDP otherwise.
    #[default]
    Auto,
    /// UDP.
    Udp,
    /// Shared memory; other nodes are unreachable.
    Shm,
}

impl From<Link> for LinkChoice {
    fn from(link: Link) -> LinkChoice {
        match link {
            Link::Auto => LinkChoice::Auto,
            Link::Udp => LinkChoice::Udp,
            Link::Shm => LinkChoice::Shm,
        }
    }
}

/// One node.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// The node's number.
    pub id: u16,
    /// Where clients and other nodes reach its door: host and port of TCP.
    pub door: String,
    /// The address of the node's RDMA device; unless given, a free one of 127.0.0.0/8, which only nodes on
    /// this machine can reach.
    pub address: Option<IpAddr>,
    /// The folder in which the node keeps its journal, relative to the file; without one, it keeps everything
    /// in memory.
    pub data: Option<PathBuf>,
}

fn default_f() -> usize {
    1
}
fn default_regions() -> usize {
    16
}
fn default_rows_max() -> usize {
    1 << 20
}
fn default_lease_ms() -> u64 {
    300
}
fn default_workers() -> u16 {
    64
}

/// What is wrong with a cluster file.
#[derive(Debug)]
pub struct ConfigError {
    path: PathBuf,
    what: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what.trim_end())
    }
}

impl std::error::Error for ConfigError {}

impl ClusterConfig {
    /// Reads a cluster file.
    ///
    /// # Errors
    /// What is wrong with the file, and where.
    pub fn load(path: &Path) -> Result<ClusterConfig, ConfigError> {
        let fail = |what: String| ConfigError { path: path.to_path_buf(), what };
        let text = std::fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
        let mut config = ClusterConfig::parse(&text).map_err(fail)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        if !config.register.to_str().is_some_and(|place| place.starts_with(ETCD)) {
            config.register = folder.join(&config.register);
        }
        if let Some(key) = &mut config.key {
            *key = folder.join(&key);
        }
        if let Some(users) = &mut config.users {
            *users = folder.join(&users);
        }
        for path in config.tls.iter_mut().flat_map(TlsConfig::paths_mut) {
            *path = folder.join(&path);
        }
        for data in config.nodes.iter_mut().filter_map(|node| node.data.as_mut()) {
            *data = folder.join(&data);
        }
        Ok(config)
    }

    /// Reads a cluster file's text.
    ///
    /// # Errors
    /// What is wrong with it: line, key and what would be right.
    pub fn parse(text: &str) -> Result<ClusterConfig, String> {
        let mut config: ClusterConfig = toml::from_str(text).map_err(|error| error.to_string())?;
        config.nodes.sort_by_key(|node| node.id);
        config.check()?;
        Ok(config)
    }

    fn check(&self) -> Result<(), String> {
        if self.nodes.is_empty() {
            return Err("no `[[node]]`: a cluster has at least one".into());
        }
        for pair in self.nodes.windows(2) {
            if pair[0].id == pair[1].id {
                return Err(format!("two nodes have the `id` {}", pair[0].id));
            }
        }
        for (at, node) in self.nodes.iter().enumerate() {
            if !is_door(&node.door) {
                return Err(format!(
                    "node {}: `door` is `{}`, which is no `host:port`, for example 192.0.2.7:7400",
                    node.id, node.door
                ));
            }
            if self.nodes[..at].iter().any(|other| other.door == node.door) {
                return Err(format!("two nodes have the `door` {}", node.door));
            }
            if node.address.is_some() && self.nodes[..at].iter().any(|other| other.address == node.address) {
                return Err(format!("node {}: another node has its `address` as well", node.id));
            }
        }
        // If only some nodes kept a journal, no client could rely on it.
        if let [some, none] =
            [true, false].map(|has| self.nodes.iter().find(|node| node.data.is_some() == has))
            && let (Some(some), Some(none)) = (some, none)
        {
            return Err(format!("node {} has a `data` folder and node {} has none", some.id, none.id));
        }
        let within = |name: &str, value: u64, low: u64, high: u64| {
            let fits = (low..=high).contains(&value);
            if fits { Ok(()) } else { Err(format!("`{name}` is {value}, not {low} to {high}")) }
        };
        within("f", self.f as u64, 0, self.nodes.len() as u64 - 1).map_err(|error| {
            format!("{error}: f + 1 copies need as many nodes, of which there are {}", self.nodes.len())
        })?;
        within("regions", self.regions as u64, 1, 4096)?;
        within("rows_max", self.rows_max as u64, 1, 1 << 32)?;
        within("lease_ms", self.lease_ms, 10, 60_000)?;
        within("workers", u64::from(self.workers), 1, 1024)?;
        let doors = &self.doors;
        within("doors.connections", doors.connections as u64, 1, 65_536)?;
        within("doors.connections_per_address", doors.connections_per_address as u64, 1, 65_536)?;
        within("doors.idle_s", doors.idle_s, 0, 1 << 32)?;
        within("doors.slow_s", doors.slow_s, 1, 3600)
    }

    /// The configuration of one node.
    ///
    /// # Errors
    /// There is no such node; the text names the existing ones.
    pub fn node(&self, id: u16) -> Result<&NodeConfig, String> {
        self.nodes.iter().find(|node| node.id == id).ok_or_else(|| {
            let known: Vec<String> = self.nodes.iter().map(|node| node.id.to_string()).collect();
            format!("there is no node {id} in the cluster file, which has {}", known.join(", "))
        })
    }

    /// All nodes' doors.
    pub fn doors(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.door.clone()).collect()
    }

    pub(crate) fn node_ids(&self) -> Vec<NodeId> {
        self.nodes.iter().map(|node| NodeId(node.id)).collect()
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings {
            f: self.f,
            // Rows, long values, and the trees of ordered tables. A key has its row and its value in one region.
            tables: vec![TableKind::Ordered { keys_per_run: crate::rows::KEYS_PER_RUN }; 3],
            rows_max: self.rows_max,
            scan_rows_max: SCAN_ROWS_MAX,
            workers: self.workers,
            lease_ns: self.lease_ms * 1_000_000,
            drift_ppm_max: DRIFT_PPM_MAX,
            stuck_ns: self.lease_ms * 10_000_000,
            page_rows: 256,
            page_pause_ns: 1_000_000,
            part_bytes: PART_BYTES,
            page_pause_times: 2,
            tombstones_max: 4096,
        }
    }
}

/// Records and rows travel in messages of about so many bytes; a message of the RPC layer has less than 16 MiB.
const PART_BYTES: usize = 4 << 20;

/// The number of rows in one run of keys that a range read gives at most.
pub(crate) const SCAN_ROWS_MAX: usize = 1024;

fn is_door(text: &str) -> bool {
    text.rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: &str =
        "register = \"r\"\n[[node]]\nid = 1\ndoor = \"a:1\"\n[[node]]\nid = 0\ndoor = \"a:2\"\n";

    #[test]
    fn a_cluster_file_is_read_and_its_nodes_are_in_order() {
        let config = ClusterConfig::parse(NODES).expect("a cluster");
        assert_eq!(config.doors(), ["a:2", "a:1"]);
        assert_eq!((config.f, config.lease_ms, config.link), (1, 300, Link::Auto));
        let config = ClusterConfig::parse(&format!("link = \"udp\"\n{NODES}")).expect("a cluster");
        assert_eq!(config.link, Link::Udp);
        assert!(config.node(7).expect_err("no such node").contains("0, 1"));
    }

    #[test]
    fn what_is_wrong_with_a_cluster_file_is_named() {
        let check = |text: &str, expected: &str| {
            let error = ClusterConfig::parse(text).expect_err(text);
            assert!(error.contains(expected), "{error}");
        };
        check("register = \"r\"", "node");
        check("register = \"r\"\nnode = []", "at least one");
        check(&format!("lease = 3\n{NODES}"), "unknown field `lease`");
        check(&format!("lease_ms = 3\n{NODES}"), "`lease_ms` is 3, not 10 to 60000");
        check(&format!("link = \"tcp\"\n{NODES}"), "unknown variant `tcp`");
        check(&format!("doors = {{ idle_s = -1 }}\n{NODES}"), "idle_s");
        check(&format!("doors = {{ slow_s = 0 }}\n{NODES}"), "`doors.slow_s` is 0, not 1 to 3600");
        check(&format!("f = 2\n{NODES}"), "`f` is 2, not 0 to 1");
        check(&NODES.replace("id = 1", "id = 0"), "two nodes have the `id` 0");
        check(&NODES.replace("a:1", "a:2"), "two nodes have the `door` a:2");
        check(&NODES.replace("a:1", "a:http"), "no `host:port`");
        check(&format!("{NODES}data = \"d\"\n"), "node 0 has a `data` folder and node 1 has none");
        check("f = ", "line 1");
    }
}
