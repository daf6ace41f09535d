//! A neighbour that is stopped (SIGSTOP) while it writes into this process's memory.
#![allow(unsafe_code, reason = "the test stops and continues a process of its own")]

mod common;

use common::{PATIENCE, until};
use highwire_host::broker::Broker;
use highwire_host::cm::{Connection, Terms};
use highwire_host::verbs::{Access, Operation, Remote, RemoteKey, SendWr, Service};
use highwire_host::{
    CompletionQueue, Device, DeviceConfig, EMPTY_COMPLETION, LinkChoice, QueuePairConfig, Sharing,
};
use highwire_link::shm::Registry;
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// Set in the process that is going to be stopped: where its peer listens.
const TO: &str = "HIGHWIRE_TEST_WRITE_TO";
/// So long that a writer is nearly always in the middle of one.
const BYTES: usize = 1 << 20;
const ROUNDS: u32 = 6;

fn device(address: IpAddr) -> (Device, CompletionQueue) {
    let config = DeviceConfig {
        address: Some(address),
        sharing: Sharing::Shared,
        link: LinkChoice::Shm,
        ..DeviceConfig::default()
    };
    let device = Device::open(&config).expect("a device that shares its address");
    let cq = device.completion_queue(64).expect("a completion queue");
    (device, cq)
}

fn signal(child: &Child, signal: libc::c_int) {
    // SAFETY: the process is ours, and not waited for yet.
    assert_eq!(unsafe { libc::kill(child.id() as libc::pid_t, signal) }, 0);
}

/// Fails if `act` does not end.
fn in_time<T: Send>(what: &str, act: impl FnOnce() -> T + Send) -> T {
    thread::scope(|threads| {
        let (done, is_done) = mpsc::channel();
        threads.spawn(move || done.send(act()));
        is_done.recv_timeout(PATIENCE).unwrap_or_else(|_| {
            eprintln!("{what} waits for a neighbour that does not run");
            // A thread that hangs cannot be joined.
            std::process::exit(101)
        })
    })
}

#[test]
fn a_neighbour_that_is_stopped_in_the_middle_of_writes_holds_nobody_up_and_harms_nothing_new() {
    let address = [127, 89, std::process::id() as u8, (std::process::id() >> 8) as u8].into();
    let broker = Broker::open(&Registry::open().expect("a registry"), address).expect("an address");
    thread::spawn(move || broker.run().expect("serves"));
    let (device, cq) = device(address);
    let pd = device.protection_domain();
    let listener = device.listen(0).expect("a listener");
    for round in 0..ROUNDS {
        let buffer = pd.allocate(BYTES, Access::ALL).expect("a buffer");
        let mut child = Command::new(std::env::current_exe().expect("our own path"))
            .args(["--exact", "the_other_process", "--nocapture", "--test-threads=1"])
            .env(TO, listener.address().to_string())
            .spawn()
            .expect("it starts");
        let mut where_to = buffer.remote(0).rkey.0.to_le_bytes().to_vec();
        where_to.extend(buffer.remote(0).va.to_le_bytes());
        let terms = Terms { private_data: &where_to, patience: PATIENCE, ..Terms::default() };
        let queue_pair = pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq)).expect("a queue pair");
        let request = listener.request(PATIENCE).expect("a request");
        let connection = request.accept(queue_pair, &terms).expect("it accepts");
        until("a WRITE", || (buffer.to_vec(BYTES - 1, 1) == [0xA5]).then_some(()));
        thread::sleep(Duration::from_millis(u64::from(round)));
        signal(&child, libc::SIGSTOP);
        in_time("deregistration", || drop(buffer));
        in_time("the end of a queue pair", || drop(connection));
        // New memory must not lie where the writer, once continued, still writes.
        let fresh = pd.allocate(BYTES, Access::ALL).expect("a buffer");
        fresh.write(0, &[0x11; BYTES]);
        signal(&child, libc::SIGCONT);
        thread::sleep(Duration::from_millis(50));
        let bytes = fresh.to_vec(0, BYTES);
        assert!(bytes.iter().all(|byte| *byte == 0x11), "round {round}: written by a writer of before");
        child.kill().expect("it runs");
        child.wait().expect("it has ended");
    }
}

#[test]
fn the_other_process() {
    let Ok(to) = std::env::var(TO) else { return };
    let to: SocketAddr = to.parse().expect("an address");
    let (device, cq) = device(to.ip());
    let pd = device.protection_domain();
    let source = pd.allocate(BYTES, Access::LOCAL_WRITE).expect("a buffer");
    source.write(0, &[0xA5; BYTES]);
    let queue_pair = pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq)).expect("a queue pair");
    let terms = Terms { patience: PATIENCE, ..Terms::default() };
    let connection: Connection = device.connect(to, queue_pair, &terms).expect("it connects");
    let said = connection.private_data();
    let rkey = RemoteKey(u32::from_le_bytes(said[..4].try_into().expect("four bytes")));
    let va = u64::from_le_bytes(said[4..12].try_into().expect("eight bytes"));
    let sges = [source.sge(0, BYTES as u32)];
    let write = SendWr::new(1, Operation::Write(Remote { va, rkey }), &sges);
    let mut done = [EMPTY_COMPLETION; 8];
    loop {
        // Refused once the connection is over; until it is killed it goes on trying.
        let _ = connection.queue_pair().post_send(&[write]);
        cq.poll(&mut done);
    }
}
