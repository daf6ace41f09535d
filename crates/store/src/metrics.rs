//! A node's counters and status, for Prometheus: a snapshot for each scrape, taken by the node's own thread.
//!
//! The endpoint speaks as much of HTTP as a scrape needs: `GET /metrics`, one answer, and the connection
//! ends. A node that is still starting, or that was removed, answers too: an alarm wants to know that it is
//! not open.

use crate::access::{Refusal, Role};
use crate::door::{self, Ended, Guest, Keeper, PacedStream, Refused};
use crate::engine::Store;
use crate::resp::Hub;
use crate::session::{Local, Outcomes};
use base64::Engine as _;
use highwire_txn::Usage;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;
use std::io;
use std::net::{IpAddr, TcpListener};
use std::sync::Arc;

/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// Upper bounds of the buckets, in microseconds; the last has none.
pub(crate) const BOUNDS_US: [u64; 16] = [
    10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 500_000, 1_000_000,
    5_000_000,
];

/// Latencies of transactions that committed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latencies {
    buckets: [u64; BOUNDS_US.len() + 1],
    sum_ns: u64,
}

impl Latencies {
    pub(crate) fn record(&mut self, ns: u64) {
        let bucket = BOUNDS_US.partition_point(|bound| bound * 1000 < ns);
        self.buckets[bucket] += 1;
        self.sum_ns += ns;
    }

    fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

/// One node at one moment.
#[derive(Debug)]
struct Snapshot {
    is_open: bool,
    configuration: u32,
    members: usize,
    primary_of: usize,
    copy_of: usize,
    rows: Usage,
    rows_max: u64,
    fullest_percent: u64,
    outcomes: Outcomes,
    requests: [(&'static str, u64); 6],
    fenced: u64,
    reads_at_home: u64,
    rpc: Vec<(&'static str, u64)>,
    /// Of the endpoint for clients.
    rpc_clients: Vec<(&'static str, u64)>,
    rpc_connected: usize,
}

impl Snapshot {
    fn of(local: &Local) -> Snapshot {
        let node = local.shared.node.borrow();
        let (configuration, own, counters) = (node.configuration(), node.id(), node.counters());
        let regions = &configuration.regions;
        let is_member = configuration.boot(own) == Some(node.boot());
        let held = |replicas: &[highwire_txn::Replica]| replicas.iter().any(|replica| replica.node == own);
        let (rows, fullest_percent) = node.usage();
        Snapshot {
            is_open: is_member && node.is_open(),
            configuration: configuration.id,
            members: configuration.members.len(),
            primary_of: regions.iter().filter(|replicas| held(&replicas[..1])).count(),
            copy_of: regions.iter().filter(|replicas| held(replicas)).count(),
            rows,
            rows_max: node.settings().rows_max as u64,
            fullest_percent,
            outcomes: *local.shared.outcomes.borrow(),
            requests: [
                ("execute", counters.execute),
                ("validate", counters.validate),
                ("log", counters.log),
                ("commit_backup", counters.commit_backup),
                ("commit_primary", counters.commit_primary),
                ("unlock", counters.unlock),
            ],
            fenced: counters.fenced,
            reads_at_home: counters.reads_at_home,
            rpc: local.rpc.counters().iter().collect(),
            rpc_clients: local.shared.direct.borrow().counters().iter().collect(),
            rpc_connected: local.shared.direct.borrow().callers(),
        }
    }
}

/// A node that does not run answers too, that it is not open.
#[derive(Debug)]
struct Scrape {
    node: u16,
    keeper: Arc<Keeper>,
    hub: Arc<Hub>,
    snapshot: Option<Snapshot>,
}

fn doors(to: &mut DescriptorEncoder<'_>, keeper: &Keeper) -> fmt::Result {
    let help = "Connections at a door";
    let mut family = to.encode_descriptor("connections", help, None, MetricType::Gauge)?;
    for door in ["door", "resp", "metrics"] {
        let count = keeper.visits(door).len() as i64;
        ConstGauge::new(count).encode(family.encode_family(&[("door", door)])?)?;
    }
    let help = "How clients were let in, and what was refused to them";
    counters(to, "access", help, "what", &keeper.gate.counts.list())?;
    let help = "Connections that were not let in (full, address, protected), or ended by this node";
    counters(to, "connections_ended", help, "why", &keeper.ended())?;
    let [held, most, by_one] = keeper.total.bytes();
    gauge(to, "held_bytes", "Requests and answers in memory, of all connections", held as i64)?;
    gauge(to, "held_bytes_max", "The most that there ever was of them", most as i64)?;
    gauge(to, "held_bytes_max_of_one", "The most that one connection ever held", by_one as i64)?;
    let help = "Requests refused because all connections together held too much";
    counter(to, "held_refused", help, keeper.total.refused())
}

fn hub(to: &mut DescriptorEncoder<'_>, hub: &Hub) -> fmt::Result {
    let counts = hub.counts();
    gauge(to, "waiting", "Places of waiting Redis clients in the queues of keys", counts.waiting as i64)?;
    let help = "Waiting Redis clients: served, found an element without a hint, hints from other nodes";
    counters(to, "waits", help, "event", &counts.waits)?;
    let help = "Subscriptions of Redis clients to channels and patterns";
    gauge(to, "subscriptions", help, counts.subscriptions as i64)?;
    let help = "Messages of channels that did not reach a subscriber, because it had not read enough";
    counter(to, "messages_dropped", help, counts.dropped)?;
    let help = "Commands of Redis clients carried to the primary of a key for which nodes compete, and what became of them";
    counters(to, "carried", help, "event", &hub.turns().carried())
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let to = &mut encoder;
        doors(to, &self.keeper)?;
        hub(to, &self.hub)?;
        gauge(to, "node", "The node's number", i64::from(self.node))?;
        let Some(snapshot) = &self.snapshot else {
            return gauge(to, "open", "Whether transactions can run here", 0);
        };
        gauge(to, "open", "Whether transactions can run here", i64::from(snapshot.is_open))?;
        let id = i64::from(snapshot.configuration);
        gauge(to, "configuration", "The configuration's number; it grows with every change of members", id)?;
        gauge(to, "members", "Nodes of the configuration", snapshot.members as i64)?;
        gauge(to, "primary_regions", "Regions of which this node is primary", snapshot.primary_of as i64)?;
        gauge(to, "regions", "Regions of which this node has a copy", snapshot.copy_of as i64)?;
        gauge(to, "rows", "Keys in the regions of which this node is primary", snapshot.rows.live as i64)?;
        let help = "Rows there of deleted keys that are not reclaimed yet";
        gauge(to, "tombstones", help, snapshot.rows.tombstones as i64)?;
        gauge(to, "rows_max", "Rows that a table takes in a region", snapshot.rows_max as i64)?;
        let help = "The fullest table of a region here, in percent of what it takes";
        gauge(to, "fullest_percent", help, snapshot.fullest_percent as i64)?;
        let outcomes = &snapshot.outcomes;
        counter(to, "committed", "Transactions that committed here", outcomes.committed)?;
        let causes = [
            ("conflict", outcomes.conflicts),
            ("unavailable", outcomes.unavailable),
            ("refused", outcomes.refused),
            ("unknown", outcomes.unknown),
        ];
        let help = "Attempts that did not commit, or of which it is not known; conflicts are tried again";
        counters(to, "aborted", help, "cause", &causes)?;
        counters(to, "requests", "Requests to other nodes, by phase", "kind", &snapshot.requests)?;
        let help = "Single reads that the node answered at once, as the key's primary";
        counter(to, "reads_at_home", help, snapshot.reads_at_home)?;
        counter(to, "fenced", "Requests refused for being of another configuration", snapshot.fenced)?;
        counters(to, "rpc", "What the RPC endpoint has done", "event", &snapshot.rpc)?;
        gauge(to, "rpc_connected", "Clients that come by RPCs", snapshot.rpc_connected as i64)?;
        let help = "What the RPC endpoint for clients has done";
        counters(to, "rpc_clients", help, "event", &snapshot.rpc_clients)?;
        let latencies = &outcomes.latencies;
        let bounds = BOUNDS_US.iter().map(|&us| us as f64 / 1e6).chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(latencies.buckets).collect();
        to.encode_descriptor(
            "latency_seconds",
            "Of transactions that committed",
            None,
            MetricType::Histogram,
        )?
        .encode_histogram::<NoLabelSet>(
            latencies.sum_ns as f64 / 1e9,
            latencies.count(),
            &buckets,
            None,
        )
    }
}

fn gauge(to: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: i64) -> fmt::Result {
    ConstGauge::new(value).encode(to.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

fn counter(to: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    ConstCounter::new(value).encode(to.encode_descriptor(name, help, None, MetricType::Counter)?)
}

fn counters(
    to: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &str,
    values: &[(&str, u64)],
) -> fmt::Result {
    let mut family = to.encode_descriptor(name, help, None, MetricType::Counter)?;
    for (value, count) in values {
        ConstCounter::new(*count).encode(family.encode_family(&[(label, *value)])?)?;
    }
    Ok(())
}

impl Store {
    /// Lets Prometheus scrape the node at `address`.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub fn open_metrics(&self, address: &str) -> io::Result<()> {
        let listener = TcpListener::bind(address)?;
        let store = self.clone();
        door::serve(listener, "metrics", &self.keeper, &self.io, move |guest| converse(guest, store.clone()))
    }

    async fn scrape(&self) -> Result<String, fmt::Error> {
        let snapshot = self.ask(|local| async move { Snapshot::of(&local) }).await.ok();
        let mut registry = Registry::with_prefix("highwire_store");
        registry.register_collector(Box::new(Scrape {
            node: self.introduction.node,
            keeper: Arc::clone(&self.keeper),
            hub: Arc::clone(&self.hub),
            snapshot,
        }));
        let mut page = String::new();
        text::encode(&mut page, &registry)?;
        Ok(page)
    }
}

async fn converse(mut guest: Guest, store: Store) {
    guest.stream.begin();
    // A broken conversation concerns only the scraper.
    let result = answer(&mut guest, &store).await;
    if guest.refused.is_none() {
        store.keeper.count_too_long(guest.stream.ended);
    }
    if result.is_ok() {
        guest.part().await;
    }
}

async fn answer(guest: &mut Guest, store: &Store) -> io::Result<()> {
    let (status, body) = match asked(&mut guest.stream, guest.visit.local.ip()).await? {
        _ if guest.refused.is_some() => {
            let why = guest.refused.as_ref().map(ToString::to_string).unwrap_or_default();
            match guest.refused {
                Some(Refused::Protected) => ("403 Forbidden", format!("{why}\n")),
                _ => ("503 Service Unavailable", format!("{why}\n")),
            }
        }
        Asked::Metrics(authorization) => match is_let_in(guest, authorization).await {
            Err(why) => why,
            Ok(()) => match store.scrape().await {
                Ok(page) => ("200 OK", page),
                Err(_) => ("500 Internal Server Error", "the metrics cannot be written\n".into()),
            },
        },
        Asked::Other => ("404 Not Found", "the metrics are at /metrics\n".into()),
        Asked::OtherMethod => ("405 Method Not Allowed", "GET /metrics\n".into()),
        Asked::OtherHost => {
            store.keeper.count(Ended::Http);
            let why = "at a loopback address, this page is for localhost and for names without a dot\n";
            ("421 Misdirected Request", why.into())
        }
        Asked::Nonsense => ("400 Bad Request", "this is no HTTP\n".into()),
    };
    let kind = match status {
        "200 OK" => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        _ => "text/plain; charset=utf-8",
    };
    let allow = match &status[..3] {
        "405" => "Allow: GET\r\n",
        "401" => "WWW-Authenticate: Basic realm=\"highwire\"\r\n",
        _ => "",
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n"
    );
    guest.stream.write([head, body].concat().as_bytes()).await
}

/// Whether the page may be given: to any user, where there are users.
async fn is_let_in(guest: &mut Guest, authorization: Option<Vec<u8>>) -> Result<(), (&'static str, String)> {
    if let Some(given) = authorization
        && guest.visitor.gate().has_users()
    {
        let wrong = ("401 Unauthorized", "there is no such user, or its password is another\n".to_string());
        let (name, password) = basic(&given).ok_or_else(|| wrong.clone())?;
        guest.visitor.enter(&name, &password).await.map_err(|refusal| match refusal {
            Refusal::Wrong | Refusal::NoUsers => wrong,
            Refusal::Busy => ("503 Service Unavailable", "too many passwords are being checked\n".into()),
            Refusal::Connections => {
                ("429 Too Many Requests", "the user has as many connections as it may\n".into())
            }
        })?;
    }
    let denied = |_| ("401 Unauthorized", "the metrics are for users of the store\n".to_string());
    guest.visitor.check(Some(Role::Read)).map_err(denied)
}

/// Name and password of HTTP's basic authentication (RFC 7617).
fn basic(given: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (scheme, rest) = given.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"basic ") {
        return None;
    }
    let both = base64::engine::general_purpose::STANDARD.decode(rest.trim_ascii()).ok()?;
    let colon = both.iter().position(|&byte| byte == b':')?;
    Some((both[..colon].to_vec(), both[colon + 1..].to_vec()))
}

/// Whether a request that came to this address may name that host. A web page can make a browser resolve the page's own name as a
/// loopback address, and then read what it finds there. Nobody but the owner of a machine gives it names without a dot.
fn is_own(host: &[u8], address: IpAddr) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    !address.to_canonical().is_loopback()
        || name.parse::<IpAddr>().is_ok()
        || !name.contains('.')
        || name.to_ascii_lowercase().ends_with(".localhost")
}

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    /// With what stands behind `Authorization`.
    Metrics(Option<Vec<u8>>),
    Other,
    OtherMethod,
    OtherHost,
    Nonsense,
}

async fn asked(stream: &mut PacedStream, address: IpAddr) -> io::Result<Asked> {
    let mut head = Vec::new();
    loop {
        if let Some(asked) = understand(&head, address) {
            return Ok(asked);
        }
        if stream.read(|more| head.extend_from_slice(more)).await? == 0 {
            return Ok(Asked::Nonsense);
        }
    }
}

/// What a request asks; `None` if it has not come to its end.
fn understand(head: &[u8], address: IpAddr) -> Option<Asked> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(head) {
        Ok(httparse::Status::Complete(_)) => {
            let path = request.path.unwrap_or_default();
            let authorization =
                request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("authorization"));
            let mut hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
            Some(match request.method {
                _ if !hosts.all(|header| is_own(header.value, address)) => Asked::OtherHost,
                Some("GET") if path.split('?').next() == Some("/metrics") => {
                    Asked::Metrics(authorization.map(|header| header.value.to_vec()))
                }
                Some("GET") => Asked::Other,
                _ => Asked::OtherMethod,
            })
        }
        Ok(httparse::Status::Partial) if head.len() < HEAD_BYTES_MAX => None,
        _ => Some(Asked::Nonsense),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    #[test]
    fn a_request_is_understood_or_refused() {
        let local = IpAddr::from([127, 0, 0, 1]);
        let check = |text: &str, expected| {
            assert_eq!(understand(text.as_bytes(), local), Some(expected), "{text}");
        };
        check("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Asked::Metrics(None));
        check("GET /metrics?name=x HTTP/1.0\r\n\r\n", Asked::Metrics(None));
        check("GET / HTTP/1.1\r\n\r\n", Asked::Other);
        check("POST /metrics HTTP/1.1\r\n\r\n", Asked::OtherMethod);
        assert_eq!(understand(b"GET /metrics HTTP/1.1\r\nHost: x\r\n", local), None, "it is not complete");
        check("hello\r\n\r\n", Asked::Nonsense);
        check(&format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(20_000)), Asked::Nonsense);
        let mut rng = Rng::new(1);
        for _ in 0..2000 {
            let mut bytes = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u32() as u8;
            let _ = understand(&bytes, local);
        }
    }

    #[test]
    fn at_a_loopback_address_only_names_of_its_machine_are_known() {
        let check = |host: &str, address: &str, expected| {
            let address = address.parse().expect("an address");
            assert_eq!(is_own(host.as_bytes(), address), expected, "{host} at {address}");
        };
        for host in
            ["localhost", "localhost:9464", "127.0.0.1:9464", "[::1]:9464", "node", "a.localhost:1", "::1"]
        {
            check(host, "127.0.0.1", true);
        }
        for host in ["evil.example", "evil.example:9464", "127.0.0.1.evil.example", "localhost.evil.example"]
        {
            check(host, "127.0.0.1", false);
            check(host, "::1", false);
            check(host, "::ffff:127.0.0.1", false);
        }
        check("node-1.example", "192.0.2.1", true);
    }

    #[test]
    fn a_latency_is_in_the_bucket_that_it_does_not_exceed() {
        let mut latencies = Latencies::default();
        for ns in [1, 10_000, 10_001, 6_000_000_000] {
            latencies.record(ns);
        }
        assert_eq!((latencies.buckets[0], latencies.buckets[1], latencies.buckets[16]), (2, 1, 1));
        assert_eq!((latencies.count(), latencies.sum_ns), (4, 6_000_020_002));
    }
}
