//! The hardware thread scheduler under load: the authors' recorded requests, played to a program of ours.
//!
//! A generator at the other end of a link of 140 cycles sends each request when the record says so, and takes the time until the
//! first word of its answer is back.

mod support;

use highwire_nanopu::client::{Client, Request};
use highwire_nanopu::{Node, NodeConfig};
use support::{CLIENT, NODE, program};

const LINK_CYCLES: u64 = 140;

/// A request to work for `service` cycles.
fn work(sent: u64, context: u16, service: u64) -> Request {
    Request { sent, context, payload: [service.to_be_bytes(), sent.to_be_bytes()].concat() }
}

/// Plays `requests`, in order of `sent`, and returns the response time of each.
fn play(node: &mut Node, requests: &[Request]) -> Vec<Option<u64>> {
    let mut client = Client::new(CLIENT, NODE, LINK_CYCLES);
    let answers = client.play(node, requests, 400_000, |_, _| {}).expect("no traps");
    let both = answers.into_iter().zip(requests);
    both.map(|(answer, request)| {
        let answer = answer?;
        assert_eq!(answer.payload, request.payload);
        Some(answer.received - request.sent)
    })
    .collect()
}

fn started() -> Option<Node> {
    let mut node = Node::new(&program("service")?, &NodeConfig::default()).expect("it fits");
    for _ in 0..5_000 {
        node.tick(|_, _| {});
    }
    Some(node)
}

#[test]
fn a_switch_costs_what_it_does_on_the_prototype() {
    let Some(mut node) = started() else { return };
    let start = node.cycle() + 10_000;
    // Warm up both threads; then context 0 alone, and context 0 in the middle of context 1's work.
    let mut requests: Vec<_> = (0..8u64).map(|i| work(start + 8_000 * i, (i % 2) as u16, 1600)).collect();
    let at = |i: u64| start + 100_000 + 20_000 * i;
    requests.extend((0..2).map(|i| work(at(i), 0, 1600)));
    requests.push(work(at(2), 1, 1600));
    requests.push(work(at(2) + 700, 0, 1600));
    let responses: Vec<_> =
        play(&mut node, &requests).into_iter().map(|time| time.expect("answered")).collect();
    let over = |response: u64| response - 1600 - 2 * LINK_CYCLES;
    // The first of the two still finds the other thread on the core.
    let (alone, preempting) = (over(responses[9]).min(over(responses[8])), over(responses[11]));
    println!(
        "over service and links: alone {alone}, preempting {preempting}, a switch {}",
        preempting - alone
    );
    // The prototype's own program: 58 to 65 cycles alone, 142 for a switch. Ours stops to think for less time.
    assert!((40..=65).contains(&alone), "{alone}");
    assert!((80..=150).contains(&(preempting - alone)), "{alone} {preempting}");
}

fn column<'a>(header: &str, line: &'a str, name: &str) -> &'a str {
    let index = header.split(',').position(|column| column == name).expect("a column of that name");
    line.split(',').nth(index).unwrap()
}

fn read_gz(path: &std::path::Path) -> String {
    let output = std::process::Command::new("zcat").arg(path).output().expect("zcat runs");
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn recorded_requests_get_the_recorded_answers() {
    let Some(traces) = std::env::var_os("HIGHWIRE_NANOPU_TRACES") else {
        println!("skipped: no traces; HIGHWIRE_NANOPU_TRACES names their directory");
        return;
    };
    for load in ["50", "80", "100"] {
        let directory = std::path::Path::new(&traces).join(format!("firesim/lnic-driven_{load}pc-load"));
        let text = read_gz(&directory.join("resp_time.csv.gz"));
        let mut lines = text.lines();
        let header = lines.next().unwrap();
        let number = |line: &str, name| column(header, line, name).parse::<f64>().unwrap() as u64;
        let mut recorded: Vec<_> = lines
            .map(|line| {
                let (sent, service) = (number(line, "sent_time"), number(line, "service_time"));
                let context = number(line, "context") as u16;
                let request = (sent, context, service);
                (request, number(line, "resp_time"))
            })
            .collect();
        recorded.sort_by_key(|(request, _)| request.0);
        recorded.truncate(2000);
        let Some(mut node) = started() else { return };
        let offset = recorded[0].0.0 - 20_000;
        let requests: Vec<_> = recorded
            .iter()
            .map(|&((sent, context, service), _)| work(sent - offset, context, service))
            .collect();
        let responses = play(&mut node, &requests);
        let mut off: Vec<i64> = responses
            .iter()
            .zip(&recorded)
            .map(|(ours, (_, theirs))| ours.map_or(i64::MAX, |ours| ours as i64 - *theirs as i64))
            .collect();
        off.sort_by_key(|off| off.abs());
        let (median, p90) = (off[off.len() / 2], off[off.len() * 9 / 10]);
        println!("{load} % load: ours minus the record, median {median}, nine in ten within {}", p90.abs());
        assert!(median.abs() <= 110, "{load} %: {median}");
    }
}
