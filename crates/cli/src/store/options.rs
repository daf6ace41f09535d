//! The options of `highwire store serve`, which one node and the supervisor of a whole cluster both read.

use std::path::PathBuf;

/// Options of `highwire store serve`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Nodes of a cluster on this machine.
    #[arg(long, default_value_t = 3, conflicts_with = "config", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(super) nodes: u16,
    /// How many of them may be lost at once: everything is kept f + 1 times. 1 unless given, or 0 for a single node.
    #[arg(long, conflicts_with = "config")]
    pub(super) f: Option<usize>,
    /// The door of node 0; node n has the nth port behind it.
    #[arg(long, default_value_t = 7400, conflicts_with = "config")]
    pub(super) port: u16,
    /// The length of a lease: a node that is silent for twice as long is removed, and comes back with nothing.
    #[arg(long, default_value_t = 300, conflicts_with = "config", value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub(super) lease_ms: u64,
    /// Rows in each of the 16 regions; the store refuses more.
    #[arg(long, default_value_t = 1 << 20, conflicts_with = "config")]
    pub(super) rows_max: usize,
    /// Do not start nodes again that are lost.
    #[arg(long, conflicts_with = "config")]
    pub(super) no_restart: bool,
    /// Keep a journal in this folder, so that what was committed survives the loss of all memories. A cluster of this machine goes on with what
    /// the folder holds.
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<PathBuf>,
    /// Where the nodes agree on who they are: a folder that all reach, or etcd.
    #[arg(long, value_name = "DIR|etcd://HOST:PORT,…/NAME")]
    pub(super) register: Option<String>,
    /// Run one node of the cluster that this file describes.
    #[arg(long, requires = "node")]
    pub(super) config: Option<PathBuf>,
    /// Which one.
    #[arg(long, requires = "config")]
    pub(super) node: Option<u16>,
    /// The file of users, who must say who they are (`highwire store user`). Without one, clients of this machine may do everything.
    #[arg(long, value_name = "FILE")]
    pub(super) users: Option<PathBuf>,
    /// Speak TLS at all endpoints, with the certificate in this file.
    #[arg(long, value_name = "PEM", requires_all = ["tls_key", "tls_authority"], conflicts_with = "config")]
    pub(super) tls_certificate: Option<PathBuf>,
    /// The certificate's private key, which nobody else may read.
    #[arg(long, value_name = "PEM", requires = "tls_certificate")]
    pub(super) tls_key: Option<PathBuf>,
    /// The authority of the nodes' certificates.
    #[arg(long, value_name = "PEM", requires = "tls_certificate")]
    pub(super) tls_authority: Option<PathBuf>,
    /// Let only clients in that have a certificate of this authority.
    #[arg(long, value_name = "PEM", requires = "tls_certificate")]
    pub(super) tls_clients: Option<PathBuf>,
    /// Let Redis clients in at this port of the loopback address, or at this address and port. In a cluster on this machine node n has the
    /// nth port behind it.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = address_and_port)]
    pub(super) resp: Option<(String, u16)>,
    /// Let Prometheus scrape /metrics at this port of the loopback address, or at this address and port. In a cluster on this machine node n
    /// has the nth port behind it.
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = address_and_port)]
    pub(super) metrics: Option<(String, u16)>,
    /// End when the standard input does: how a supervisor's nodes outlive it by nothing.
    #[arg(long, hide = true)]
    pub(super) until_stdin_ends: bool,
}

fn address_and_port(text: &str) -> Result<(String, u16), String> {
    let (address, port) = text.rsplit_once(':').unwrap_or(("127.0.0.1", text));
    let port = port.parse().ok().filter(|&port| port > 0 && !address.is_empty());
    Ok((address.to_string(), port.ok_or("write it as 6379 or 127.0.0.1:6379")?))
}
