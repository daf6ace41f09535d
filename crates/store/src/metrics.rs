//! A node's counters and status, for Prometheus: a snapshot for each scrape, taken by the node's own thread.
//!
//! The endpoint speaks as much of HTTP as a scrape needs: `GET /metrics`, one answer, and the connection
//! ends. A node that is still starting, or that was removed, answers too: an alarm wants to know that it is
//! not open.

use crate::door;
use crate::engine::Store;
use crate::session::{Local, Outcomes};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use std::fmt;
use std::io::{self, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

/// The longest head of a request.
const HEAD_BYTES_MAX: usize = 8 << 10;
const HEADERS_MAX: usize = 64;
/// How long a scraper may take to ask, and to read its answer.
const PATIENCE: Duration = Duration::from_secs(10);
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
    outcomes: Outcomes,
    requests: [(&'static str, u64); 6],
    fenced: u64,
    rpc: Vec<(&'static str, u64)>,
}

impl Snapshot {
    fn of(local: &Local) -> Snapshot {
        let node = local.shared.node.borrow();
        let (configuration, own, counters) = (node.configuration(), node.id(), node.counters());
        let regions = &configuration.regions;
        let is_member = configuration.boot(own) == Some(node.boot());
        let held = |replicas: &[highwire_txn::Replica]| replicas.iter().any(|replica| replica.node == own);
        Snapshot {
            is_open: is_member && node.is_open(),
            configuration: configuration.id,
            members: configuration.members.len(),
            primary_of: regions.iter().filter(|replicas| held(&replicas[..1])).count(),
            copy_of: regions.iter().filter(|replicas| held(replicas)).count(),
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
            rpc: local.rpc.counters().iter().collect(),
        }
    }
}

/// A node that does not run answers too, that it is not open.
#[derive(Debug)]
struct Scrape {
    node: u16,
    snapshot: Option<Snapshot>,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let to = &mut encoder;
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
        counter(to, "fenced", "Requests refused for being of another configuration", snapshot.fenced)?;
        counters(to, "rpc", "What the RPC endpoint has done", "event", &snapshot.rpc)?;
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
        door::serve(listener, "metrics", move |stream| {
            // A broken conversation concerns only the scraper.
            let _ = converse(stream, &store);
        })
    }

    fn scrape(&self) -> Result<String, fmt::Error> {
        let snapshot = self.run(|local| async move { Snapshot::of(&local) }).ok();
        let mut registry = Registry::with_prefix("highwire_store");
        registry.register_collector(Box::new(Scrape { node: self.introduction.node, snapshot }));
        let mut page = String::new();
        text::encode(&mut page, &registry)?;
        Ok(page)
    }
}

fn converse(mut stream: TcpStream, store: &Store) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let (status, body) = match asked(&mut stream)? {
        Asked::Metrics => match store.scrape() {
            Ok(page) => ("200 OK", page),
            Err(_) => ("500 Internal Server Error", "the metrics cannot be written\n".into()),
        },
        Asked::Other => ("404 Not Found", "the metrics are at /metrics\n".into()),
        Asked::OtherMethod => ("405 Method Not Allowed", "GET /metrics\n".into()),
        Asked::Nonsense => ("400 Bad Request", "this is no HTTP\n".into()),
    };
    let kind = match status {
        "200 OK" => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        _ => "text/plain; charset=utf-8",
    };
    let allow = if status.starts_with("405") { "Allow: GET\r\n" } else { "" };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Metrics,
    Other,
    OtherMethod,
    Nonsense,
}

fn asked(stream: &mut impl io::Read) -> io::Result<Asked> {
    let mut head = Vec::new();
    let mut portion = [0; 1024];
    loop {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head) {
            Ok(httparse::Status::Complete(_)) => {
                let path = request.path.unwrap_or_default();
                return Ok(match request.method {
                    Some("GET") if path.split('?').next() == Some("/metrics") => Asked::Metrics,
                    Some("GET") => Asked::Other,
                    _ => Asked::OtherMethod,
                });
            }
            Ok(httparse::Status::Partial) if head.len() < HEAD_BYTES_MAX => {}
            _ => return Ok(Asked::Nonsense),
        }
        match stream.read(&mut portion)? {
            0 => return Ok(Asked::Nonsense),
            length => head.extend_from_slice(&portion[..length]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_stdx::Rng;

    #[test]
    fn a_request_is_understood_or_refused() {
        let check = |text: &str, expected| {
            assert_eq!(asked(&mut text.as_bytes()).expect("memory"), expected, "{text}")
        };
        check("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", Asked::Metrics);
        check("GET /metrics?name=x HTTP/1.0\r\n\r\n", Asked::Metrics);
        check("GET / HTTP/1.1\r\n\r\n", Asked::Other);
        check("POST /metrics HTTP/1.1\r\n\r\n", Asked::OtherMethod);
        check("GET /metrics HTTP/1.1\r\nHost: x\r\n", Asked::Nonsense);
        check("hello\r\n\r\n", Asked::Nonsense);
        check(&format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(20_000)), Asked::Nonsense);
        let mut rng = Rng::new(1);
        for _ in 0..2000 {
            let mut bytes = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".to_vec();
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] = rng.next_u32() as u8;
            let _ = asked(&mut &bytes[..]);
        }
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
