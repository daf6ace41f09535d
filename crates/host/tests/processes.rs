//! Two processes: the test starts its own binary again as the other end, and talks to it over pipes.

mod common;

use common::{End, Setup, next_ok, until};
use highwire_host::verbs::{CompletionStatus, Operation, Recovery, Remote, RemoteKey, Service};
use highwire_host::{Endpoint, Engine, LinkChoice};
use std::io::{BufRead, BufReader, Lines, Write, stdin};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

const ROLE: &str = "HIGHWIRE_TEST_LINK";

struct Peer {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    fn start(link: LinkChoice) -> Peer {
        let mut child = Command::new(std::env::current_exe().expect("our own path"))
            .args(["--exact", "the_other_process", "--nocapture", "--test-threads=1"])
            .env(ROLE, link.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Peer { child, input, output }
    }

    /// The peer's next line for this process, among the lines of the test harness.
    fn hear(&mut self) -> Vec<String> {
        loop {
            let line = self.output.next().expect("the peer speaks").expect("text");
            if let Some(words) = line.split("peer: ").nth(1) {
                return words.split(' ').map(str::to_owned).collect();
            }
        }
    }

    fn say(&mut self, line: &str) {
        writeln!(self.input, "{line}").expect("the peer listens");
    }

    /// Exchanges endpoints and connects; returns where the peer's buffer is.
    fn connect(&mut self, end: &End, setup: &Setup) -> Remote {
        let hello = self.hear();
        let endpoint: Endpoint = hello[0].parse().expect("an endpoint");
        let numbers: Vec<u64> = hello[1..].iter().map(|word| word.parse().expect("a number")).collect();
        end.qp.connect(&endpoint, &setup.options).expect("connects");
        self.say(&end.qp.endpoint().to_string());
        assert_eq!(self.hear(), ["connected"]);
        Remote { va: numbers[0], rkey: RemoteKey(numbers[1] as u32) }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn setup(link: LinkChoice) -> Setup {
    Setup::new(Service::Rc, link).engine(Engine::Both).recovery(Recovery::Irn)
}

/// The other end: echoes one message, then lets itself be written to until it is told to end.
#[test]
fn the_other_process() {
    let Ok(link) = std::env::var(ROLE) else { return };
    let setup = setup(link.parse().expect("a link"));
    let end = setup.end();
    let remote = end.buffer.remote(0);
    println!("peer: {} {} {}", end.qp.endpoint(), remote.va, remote.rkey.0);
    let mut lines = stdin().lock().lines();
    let mut line = || lines.next().expect("the other side speaks").expect("text");
    let peer: Endpoint = line().parse().expect("an endpoint");
    end.qp.prepare(setup.options.access).expect("prepares");
    end.receive(1, 4096, 4096);
    end.qp.connect(&peer, &setup.options).expect("connects");
    println!("peer: connected");
    let received = until("a message", || end.cq.poll_one());
    end.post(2, Operation::Send, 4096, received.byte_len);
    until("its acknowledgement", || end.cq.poll_one());
    println!("peer: echoed");
    // From here on only the device's own thread works.
    line();
}

#[test]
fn processes_meet_over_both_links() {
    for link in [LinkChoice::Udp, LinkChoice::Auto] {
        let (mut peer, setup) = (Peer::start(link), setup(link));
        let end = setup.end();
        let remote = peer.connect(&end, &setup);
        let bytes = end.fill(0, 3000, 5);
        end.receive(7, 8192, 4096);
        end.post(8, Operation::Send, 0, 3000);
        let seen = [next_ok(&end, &end).wr_id, next_ok(&end, &end).wr_id];
        assert!(seen == [7, 8] || seen == [8, 7], "{seen:?}");
        assert_eq!(end.buffer.to_vec(8192, 3000), bytes, "{link}");
        assert_eq!(peer.hear(), ["echoed"]);
        end.post(9, Operation::Write(remote), 0, 3000);
        end.post(10, Operation::Read(remote), 100_000, 3000);
        assert_eq!([next_ok(&end, &end).wr_id, next_ok(&end, &end).wr_id], [9, 10]);
        assert_eq!(end.buffer.to_vec(100_000, 3000), bytes, "{link}");
        let direct = || end.device.counters().value("direct");
        match link {
            LinkChoice::Udp => assert_eq!(direct(), 0),
            // A request that is posted while the background thread runs the engine goes through the ring, and
            // as packets.
            _ => until("a request that is carried out directly", || {
                end.post(11, Operation::Write(remote), 0, 8);
                next_ok(&end, &end);
                (direct() > 0).then_some(())
            }),
        }
        peer.say("end");
        assert!(peer.child.wait().expect("ends").success());
    }
}

#[test]
fn a_process_that_is_killed_ends_its_connections_and_nothing_else() {
    for link in [LinkChoice::Udp, LinkChoice::Auto] {
        let (mut peer, mut setup) = (Peer::start(link), setup(link));
        // A quarter of a second: a living peer may have to wait for a processor.
        (setup.options.timeout, setup.options.retry_count) = (14, 3);
        let end = setup.end();
        let remote = peer.connect(&end, &setup);
        end.post(1, Operation::Write(remote), 0, 8);
        next_ok(&end, &end);
        peer.child.kill().expect("kills");
        peer.child.wait().expect("ends");
        end.post(2, Operation::Send, 0, 8);
        let completion = until("the end of all retries", || end.cq.poll_one());
        assert_eq!(completion.status, CompletionStatus::RetryExceeded, "{link}");
    }
}

#[test]
fn a_process_whose_end_is_known_answers_no_more() {
    for round in 0..6 {
        let (mut peer, mut setup) = (Peer::start(LinkChoice::Auto), setup(LinkChoice::Auto));
        (setup.options.timeout, setup.options.retry_count) = (10, 1);
        let end = setup.end();
        let remote = peer.connect(&end, &setup);
        let direct = || end.device.counters().value("direct");
        until("a request that is carried out directly", || {
            end.post(1, Operation::Write(remote), 0, 8);
            next_ok(&end, &end);
            (direct() > 0).then_some(())
        });
        let before = direct();
        peer.child.kill().expect("kills");
        // From here on this program knows of its end.
        peer.child.wait().expect("ends");
        let operation = if round % 2 == 0 { Operation::Write(remote) } else { Operation::Read(remote) };
        end.post(2, operation, 0, 8);
        let completion = until("the end of all retries", || end.cq.poll_one());
        assert_eq!(completion.status, CompletionStatus::RetryExceeded, "{operation:?}");
        assert_eq!(direct(), before, "its memory still answered");
    }
}
