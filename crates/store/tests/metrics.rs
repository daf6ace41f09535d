//! The metrics of a node that Prometheus scrapes.

mod common;

use common::{Cluster, free_address};
use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

fn ask(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the endpoint");
    stream.write_all(request.as_bytes()).expect("written");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Samples by their names and labels. Checks the stated length and the end of the page.
fn scrape(address: &str) -> BTreeMap<String, f64> {
    let answer = ask(address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (head, page) = answer.split_once("\r\n\r\n").expect("head and page");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains(&format!("Content-Length: {}\r\n", page.len())), "{head}");
    assert!(page.ends_with("# EOF\n"));
    let samples = page.lines().filter(|line| !line.starts_with('#'));
    samples
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a sample");
            (name.to_string(), value.parse().expect(line))
        })
        .collect()
}

#[test]
fn a_scrape_sees_transactions_commit_conflict_and_be_refused() {
    let cluster = Cluster::start(3, "");
    let address = free_address();
    cluster.engine(0).store().open_metrics(&address).expect("the endpoint");
    let mut client = highwire_store::Client::new([cluster.folder.config().doors()[0].clone()]);
    client.put("t", "k", "0").expect("stored");
    let before = scrape(&address);
    for (name, value) in [("node", 0.0), ("open", 1.0), ("members", 3.0), ("configuration", 1.0)] {
        assert_eq!(before[&format!("highwire_store_{name}")], value, "{name}");
    }
    assert!(before["highwire_store_regions"] > before["highwire_store_primary_regions"]);
    let count = 40;
    for number in 0..count {
        client.put("t", format!("k{number}"), "1").expect("stored");
    }
    // The client reads, and another client changes the key before the commit: one conflict.
    let mut other = cluster.client();
    let mut is_first = true;
    let raced = client.transact(|transaction| {
        transaction.get("t", "k")?;
        if std::mem::take(&mut is_first) {
            other.put("t", "k", "2")?;
        }
        transaction.put("t", "k", "3");
        Ok(())
    });
    raced.expect("committed the second time");
    let after = scrape(&address);
    let of = |samples: &BTreeMap<String, f64>, name: &str| {
        let name = format!("highwire_store_{name}");
        *samples.get(&name).unwrap_or_else(|| panic!("{name} is missing: {samples:?}"))
    };
    let grown = |name: &str| of(&after, name) - of(&before, name);
    assert!(grown("committed_total") >= f64::from(count), "{after:?}");
    assert_eq!(grown("latency_seconds_count"), grown("committed_total"));
    assert!(grown("latency_seconds_sum") > 0.0);
    assert_eq!(grown("latency_seconds_bucket{le=\"+Inf\"}"), grown("latency_seconds_count"));
    for kind in ["execute", "log", "commit_backup", "commit_primary"] {
        assert!(grown(&format!("requests_total{{kind=\"{kind}\"}}")) > 0.0, "{kind}");
    }
    assert!(grown("rpc_total{event=\"requests\"}") > 0.0);
    assert!(grown("aborted_total{cause=\"conflict\"}") >= 1.0, "{after:?}");
    assert_eq!(grown("aborted_total{cause=\"unknown\"}"), 0.0);
}

#[test]
fn what_is_no_scrape_is_told_so() {
    let cluster = Cluster::start(1, "f = 0");
    let address = free_address();
    cluster.engine(0).store().open_metrics(&address).expect("the endpoint");
    let check = |request: &str, expected: &str| {
        let answer = ask(&address, request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected}")), "{request}: {answer}");
    };
    check("GET / HTTP/1.1\r\n\r\n", "404");
    check("POST /metrics HTTP/1.1\r\n\r\n", "405");
    check("\x01\x02\x03\r\n\r\n", "400");
    assert_eq!(scrape(&address)["highwire_store_open"], 1.0);
}
