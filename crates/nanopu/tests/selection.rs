//! JBSQ(2) in front of four cores that execute a program: against ideal servers behind the same rule, request by request.

mod support;

use highwire_nanopu::client::{self, Client};
use highwire_nanopu::nic::Selection;
use highwire_nanopu::queueing::{Request, percentile, response_times};
use highwire_nanopu::{Node, NodeConfig};
use highwire_stdx::Rng;
use support::{CLIENT, NODE, program};

const LINK_CYCLES: u64 = 140;
const CORES: usize = 4;

/// Poisson arrivals, quantised to the link as the authors' generator has them, of two kinds of work: one in 200 takes ten times as long.
fn requests(count: usize, mean_cycles: f64, start: u64, seed: u64) -> Vec<(u64, u64)> {
    let mut rng = Rng::new(seed);
    let mut now = start as f64;
    let mut last = 0;
    (0..count)
        .map(|_| {
            now += -(1.0 - rng.unit()).ln() * mean_cycles;
            let sent = (now as u64).max(last + LINK_CYCLES).next_multiple_of(LINK_CYCLES);
            last = sent;
            let spread = (0..12).map(|_| rng.unit()).sum::<f64>() - 6.0;
            let mean = if rng.chance(0.005) { 16_000.0 } else { 1_600.0 };
            (sent, (mean + 100.0 * spread).max(300.0) as u64)
        })
        .collect()
}

/// The response times of both, in cycles.
/// The latter only mean something for JBSQ: hashes are the NIC's own.
fn both(selection: Selection, count: usize, mean_cycles: f64) -> Option<(Vec<f64>, Vec<f64>)> {
    let mut config = NodeConfig { cores: CORES, ..NodeConfig::default() };
    config.nic.selection = selection;
    let mut node = Node::new(&program("service4")?, &config).expect("it fits");
    let list = requests(count, mean_cycles, 20_000, 5);
    let sent: Vec<_> = list
        .iter()
        .map(|&(sent, service)| client::Request {
            sent,
            context: 0,
            payload: [service.to_be_bytes(), sent.to_be_bytes()].concat(),
        })
        .collect();
    let answers = Client::new(CLIENT, NODE, LINK_CYCLES).play(&mut node, &sent, 1_000_000, |_, _| {});
    let cycles: Vec<f64> = answers
        .expect("no traps")
        .iter()
        .zip(&list)
        .map(|(answer, &(sent, _))| (answer.as_ref().expect("answered").received - sent) as f64)
        .collect();
    // Cycles that a core adds to a message's service, and the network to its response.
    let (core, network) = (27.0, 20.0);
    let ideal: Vec<_> = list
        .iter()
        .map(|&(sent, service)| Request { arrival: sent as f64, service: service as f64 + core, hash: 0 })
        .collect();
    let ideal = response_times(selection, CORES, &ideal);
    Some((cycles, ideal.into_iter().map(|time| time + network + 2.0 * LINK_CYCLES as f64).collect()))
}

#[test]
fn four_cores_are_four_servers_behind_jbsq() {
    let Some((cycles, ideal)) = both(Selection::Jbsq(2), 3_000, 550.0) else { return };
    let mut off: Vec<f64> =
        cycles.iter().zip(&ideal).map(|(here, ideal)| 100.0 * (here / ideal - 1.0).abs()).collect();
    off.sort_by(f64::total_cmp);
    for share in [0.5, 0.9, 0.99] {
        println!(
            "p{:.0}: {:.0} cycles here, {:.0} ideal",
            share * 100.0,
            percentile(&cycles, share),
            percentile(&ideal, share)
        );
    }
    println!("request by request: median off {:.2} %, nine in ten within {:.2} %", off[1500], off[2700]);
    assert!(off[1500] <= 0.6, "{}", off[1500]);
    for share in [0.5, 0.9, 0.99] {
        let ratio = percentile(&cycles, share) / percentile(&ideal, share);
        assert!((0.96..1.04).contains(&ratio), "p{share}: {ratio}");
    }
}

#[test]
fn hashing_lets_messages_wait_behind_long_ones() {
    let Some((jbsq, _)) = both(Selection::Jbsq(2), 3_000, 550.0) else { return };
    let Some((hashed, _)) = both(Selection::Rss, 3_000, 550.0) else { return };
    let (jbsq, hashed) = (percentile(&jbsq, 0.99), percentile(&hashed, 0.99));
    println!("p99: RSS {hashed:.0}, JBSQ(2) {jbsq:.0}");
    assert!(hashed > 1.5 * jbsq, "{hashed} {jbsq}");
}

/// The first requests of a recorded trace, run on the RTL of the prototype.
#[test]
fn the_rtl_gives_the_same_answers() {
    let Some(traces) = std::env::var_os("HIGHWIRE_NANOPU_TRACES") else {
        println!("skipped: no traces; HIGHWIRE_NANOPU_TRACES names their directory");
        return;
    };
    let read = |name: &str| {
        let path = std::path::Path::new(&traces).join("rtl_runs").join(name);
        let output = std::process::Command::new("zcat").arg(path).output().expect("zcat runs");
        String::from_utf8(output.stdout).unwrap()
    };
    let columns = |line: &str| -> Vec<u64> {
        line.split(',').filter_map(|field| field.parse::<f64>().ok()).map(|value| value as u64).collect()
    };
    let requests = read("jbsq4_m550_first5000_requests.csv.gz");
    let rtl = read("jbsq4_m550_first5000_rtl.csv.gz");
    let recorded: std::collections::BTreeMap<u64, u64> =
        rtl.lines().map(columns).filter(|row| row.len() >= 2).map(|row| (row[0], row[1])).collect();
    let list: Vec<(u64, u64)> =
        requests.lines().map(columns).filter(|row| row.len() == 5).map(|row| (row[3], row[4])).collect();
    let Some(program) = program("service4") else { return };
    let config = NodeConfig { cores: CORES, ..NodeConfig::default() };
    let mut node = Node::new(&program, &config).expect("it fits");
    let offset = list[0].0 - 20_000;
    let sent: Vec<_> = list
        .iter()
        .map(|&(sent, service)| client::Request {
            sent: sent - offset,
            context: 0,
            payload: [service.to_be_bytes(), sent.to_be_bytes()].concat(),
        })
        .collect();
    let answers = Client::new(CLIENT, NODE, LINK_CYCLES)
        .play(&mut node, &sent, 1_000_000, |_, _| {})
        .expect("no traps");
    let mut off: Vec<f64> = Vec::new();
    for ((answer, request), (at, _)) in answers.iter().zip(&sent).zip(&list) {
        let (Some(answer), Some(&theirs)) = (answer, recorded.get(at)) else { continue };
        off.push(100.0 * ((answer.received - request.sent) as f64 / theirs as f64 - 1.0).abs());
    }
    off.sort_by(f64::total_cmp);
    println!(
        "{} requests: median off {:.2} %, nine in ten within {:.2} %",
        off.len(),
        off[off.len() / 2],
        off[off.len() * 9 / 10]
    );
    assert!(off.len() > 4_900 && off[off.len() / 2] < 3.0);
}
