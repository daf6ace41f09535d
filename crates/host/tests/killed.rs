//! A process that is killed amid its traffic: its capture holds every packet that left, and the next start sweeps up.

mod common;

use common::{Setup, until};
use highwire_host::LinkChoice;
use highwire_host::verbs::{Operation, RecvWr, SendWr, Service};
use highwire_wire::{Ethernet, Frame, LinkType, Opcode, icrc, pcap};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Tells this very program that it is the other process, and where its capture goes.
const ROLE: &str = "HIGHWIRE_TEST_KILLED";
const MESSAGES_FIRST: u64 = 200;

/// The other process: talks to itself until it is killed, or once around without a capture.
#[test]
fn the_other_process() {
    let Some(role) = std::env::var_os(ROLE) else { return };
    let is_to_be_killed = !role.is_empty();
    let link = if is_to_be_killed { LinkChoice::Shm } else { LinkChoice::Auto };
    let setup = Setup::new(Service::Rc, link);
    let mut recorded = setup.clone();
    recorded.config.capture = is_to_be_killed.then(|| PathBuf::from(role));
    let ends = [recorded.end(), setup.end()];
    setup.connect(&ends);
    let [a, b] = ends;
    let rounds = if is_to_be_killed { u64::MAX } else { 1 };
    for round in 0..rounds {
        b.qp.post_recv(&RecvWr { wr_id: round, sges: &[b.buffer.sge(0, 4096)] }).expect("posts");
        a.qp.post_send(&[SendWr::new(round, Operation::Send, &[a.buffer.sge(0, 100)])]).expect("posts");
        until("a message", || {
            a.cq.poll_one();
            b.cq.poll_one()
        });
        if round + 1 == MESSAGES_FIRST.min(rounds) {
            println!("\nready");
        }
    }
}

fn start(place: &Path, capture: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["--exact", "the_other_process", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, capture).env("HIGHWIRE_SHM_DIR", place).stdout(Stdio::piped());
    command.spawn().expect("it starts")
}

fn wait_until_ready(child: &mut Child) {
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    assert!(lines.any(|line| line.expect("text") == "ready"), "it ended early");
}

#[test]
fn a_killed_process_leaves_a_capture_of_all_it_sent_and_nothing_else() {
    let place = PathBuf::from(format!("/dev/shm/highwire-killed-{}", std::process::id()));
    let file = std::env::temp_dir().join(format!("highwire-killed-{}.pcap", std::process::id()));
    let mut victim = start(&place, file.to_str().expect("text"));
    wait_until_ready(&mut victim);
    victim.kill().expect("it lives");
    victim.wait().expect("it is ours");
    let bytes = std::fs::read(&file).expect("the capture");
    let mut sent = 0;
    for record in pcap::Reader::new(&bytes).expect("a capture") {
        // The last record may have been under way.
        let Ok(record) = record else { break };
        let frame = Frame::parse(LinkType::Ethernet, record.bytes).expect("a RoCEv2 frame");
        let (_, ip_start) = Ethernet::parse(record.bytes).expect("an Ethernet frame");
        assert_eq!(icrc::verify_ip_packet(&record.bytes[ip_start..]), Ok(true));
        sent += u64::from(frame.headers.bth.opcode == Opcode::RcSendOnly);
    }
    // The capture has each message before the receiver reports it.
    assert!(sent >= MESSAGES_FIRST, "{sent} messages are recorded");
    let names = || -> Vec<String> {
        let entries = std::fs::read_dir(&place).into_iter().flatten();
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        names.filter(|name| !["lock", "roster-1", "net"].contains(&name.as_str())).collect()
    };
    assert!(!names().is_empty(), "what was killed swept up by itself");
    let next = start(&place, "").wait_with_output().expect("it is ours");
    assert!(next.status.success() && String::from_utf8_lossy(&next.stdout).contains("ready"));
    assert_eq!(names(), Vec::<String>::new(), "left in {}", place.display());
    std::fs::remove_dir_all(&place).expect("it is ours");
    std::fs::remove_file(&file).expect("it is ours");
}
