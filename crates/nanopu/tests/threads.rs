//! The hardware thread scheduler under load: the authors' recorded requests, played to a program of ours.
//!
//! A generator at the other end of a link of 140 cycles sends each request when the record says so, and takes the time until the
//! first word of its answer is back. It sits in a switch that works in rounds, as theirs.

mod support;

use highwire_nanopu::client::{Client, Request};
use highwire_nanopu::{Mistake, Node, NodeConfig};
use support::{CLIENT, NODE, program};

const LINK_CYCLES: u64 = 140;

/// A request to work for `service` cycles.
fn work(sent: u64, context: u16, service: u64) -> Request {
    Request { sent, context, payload: [service.to_be_bytes(), sent.to_be_bytes()].concat() }
}

/// Plays `requests`, in order of `sent`, and returns the response time of each.
fn play(node: &mut Node, requests: &[Request]) -> Vec<Option<u64>> {
    let mut client = Client::in_rounds(CLIENT, NODE, LINK_CYCLES);
    let answers = client.play_in_rounds(node, requests, 400_000).expect("no traps");
    let both = answers.into_iter().zip(requests);
    both.map(|(answer, request)| {
        let answer = answer?;
        assert_eq!(answer.payload, request.payload);
        Some(answer.received - request.sent)
    })
    .collect()
}

/// The first requests, so that the program has started, and served both contexts.
fn warm_up() -> Vec<Request> {
    (40..80).map(|i| work(30 * LINK_CYCLES * i, (i % 2) as u16, 1600)).collect()
}

/// The beginning of a round some time after that.
const START: u64 = 2500 * LINK_CYCLES;

fn node(name: &str) -> Option<Node> {
    Some(Node::new(&program(name)?, &NodeConfig::default()).expect("it fits"))
}

/// Cycles of a request beyond its work and the links: alone, and with a switch of threads before it and none
/// behind it.
fn alone_and_preempting(name: &str) -> Option<(u64, u64)> {
    let mut node = node(name)?;
    let at = |i: u64| START + 23 * LINK_CYCLES * i;
    let mut requests = warm_up();
    // Idle threads take turns, so only some of these find their own on the core.
    requests.extend((0..8).map(|i| work(at(i), 0, 1600)));
    requests.push(work(at(9), 1, 1600));
    requests.push(work(at(9) + 5 * LINK_CYCLES, 0, 1600));
    let responses = play(&mut node, &requests);
    let over = |place: usize| responses[40 + place].expect("answered") - 1600 - 2 * LINK_CYCLES;
    let (alone, preempting) = ((0..8).map(over).min().expect("some"), over(9));
    println!("{name}: alone {alone}, preempting {preempting}, a switch {}", preempting - alone);
    Some((alone, preempting))
}

#[test]
fn a_switch_costs_what_it_does_on_the_prototype() {
    let Some((alone, preempting)) = alone_and_preempting("service_replay") else { return };
    // The recordings: 58 to 65 cycles alone, and a switch of 131 to 148.
    assert!((57..=65).contains(&alone), "{alone}");
    assert!((131..=148).contains(&(preempting - alone)), "{alone} {preempting}");
}

/// The published switch sets an alarm of its core's own.
#[test]
fn four_cores_switch_threads() {
    let Some(program) = program("service_replay") else { return };
    let mut node = Node::new(&program, &NodeConfig { cores: 4, ..NodeConfig::default() }).expect("it fits");
    let requests: Vec<_> = (300..500).map(|i| work(4 * LINK_CYCLES * i, (i % 2) as u16, 1600)).collect();
    assert!(play(&mut node, &requests).iter().all(Option::is_some));
}

#[test]
fn our_own_switch_is_shorter() {
    let Some((alone, preempting)) = alone_and_preempting("service") else { return };
    assert!((45..=62).contains(&alone), "{alone}");
    assert!((95..=115).contains(&(preempting - alone)), "{alone} {preempting}");
}

#[test]
fn a_message_of_another_length_is_refused() {
    let Some(mut node) = node("service") else { return };
    let of = |i: u64, bytes: usize| Request {
        sent: START + 70 * LINK_CYCLES * i,
        context: 0,
        payload: vec![0; bytes],
    };
    let requests: Vec<_> =
        [8, 1, 24, 200].into_iter().enumerate().map(|(i, bytes)| of(i as u64, bytes)).collect();
    let answers = Client::in_rounds(CLIENT, NODE, LINK_CYCLES).play_in_rounds(&mut node, &requests, 100_000);
    for answer in answers.expect("no traps") {
        assert_eq!(answer.expect("answered").payload, 2u64.to_be_bytes(), "malformed");
    }
    assert_eq!(node.misuse(0).count(Mistake::EmptyRead), 0);
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
        let Some(mut node) = node("service_replay") else { return };
        let first = recorded[0].0.0;
        let recorded_works = recorded
            .iter()
            .map(|&((sent, context, service), _)| work(sent - first + START, context, service));
        let requests: Vec<_> = warm_up().into_iter().chain(recorded_works).collect();
        let responses = play(&mut node, &requests);
        let mut off: Vec<i64> = responses[40..]
            .iter()
            .zip(&recorded)
            .map(|(ours, (_, theirs))| ours.map_or(i64::MAX, |ours| ours as i64 - *theirs as i64))
            .collect();
        off.sort_unstable();
        let median = off[off.len() / 2];
        off.sort_by_key(|off| off.abs());
        let within = |share: usize| off[off.len() * share / 100].abs();
        println!(
            "{load} % load: ours minus the record, median {median}, half within {}, 90 % within {}",
            within(50),
            within(90)
        );
        // Where the other thread waits long, an order decided otherwise is off by whole messages.
        assert!(median.abs() <= 10 && within(50) <= 10, "{load} %: {median}, {}", within(50));
    }
}
