//! READ, WRITE and both atomics on a peer that does nothing. `cargo run --example one_sided`
//!
//! The peer gives out the address and key of its memory and never calls anything again.

use highwire_host::verbs::{Access, CompletionStatus, Operation, Remote, SendWr, Service};
use highwire_host::{
    Buffer, CompletionQueue, ConnectOptions, Device, DeviceConfig, QueuePair, QueuePairConfig, WaitFor,
};
use std::error::Error;
use std::time::Duration;

/// Where the answers of the peer's memory go.
const ANSWER_AT: u64 = 1024;

struct Requester {
    qp: QueuePair,
    cq: CompletionQueue,
    buffer: Buffer,
}

impl Requester {
    /// Carries out one operation, whose local data lies at `offset`.
    fn run(&self, operation: Operation, offset: u64, length: u32) -> Result<(), Box<dyn Error>> {
        self.qp.post_send(&[SendWr::new(1, operation, &[self.buffer.sge(offset, length)])])?;
        if !self.cq.wait(WaitFor::Any, Duration::from_secs(10)) {
            return Err("no completion".into());
        }
        match self.cq.poll_one() {
            Some(done) if done.status == CompletionStatus::Success => Ok(()),
            other => Err(format!("{operation:?}: {other:?}").into()),
        }
    }

    /// Carries out an atomic operation; returns the word that was there before.
    fn exchange(&self, operation: Operation) -> Result<u64, Box<dyn Error>> {
        self.run(operation, ANSWER_AT, 8)?;
        let word = self.buffer.to_vec(ANSWER_AT as usize, 8);
        Ok(u64::from_ne_bytes(word.try_into().expect("eight bytes")))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let (here, there) = (Device::open(&DeviceConfig::default())?, Device::open(&DeviceConfig::default())?);
    let (pd, cq) = (here.protection_domain(), here.completion_queue(16)?);
    let qp = pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq))?;
    let buffer = pd.allocate(4096, Access::LOCAL_WRITE)?;

    // The peer: memory that others may use, and a queue pair through which they do.
    let (peer_pd, peer_cq) = (there.protection_domain(), there.completion_queue(16)?);
    let peer_qp = peer_pd.queue_pair(&QueuePairConfig::new(Service::Rc, &peer_cq))?;
    let memory = peer_pd.allocate(4096, Access::ALL)?;
    qp.connect(&peer_qp.endpoint(), &ConnectOptions::default())?;
    peer_qp.connect(&qp.endpoint(), &ConnectOptions::default())?;
    let (text, counter): (Remote, Remote) = (memory.remote(0), memory.remote(2048));
    let requester = Requester { qp, cq, buffer };

    requester.buffer.write(0, b"nobody asked me");
    requester.run(Operation::Write(text), 0, 15)?;
    println!("WRITE: the peer's memory says {:?}", String::from_utf8_lossy(&memory.to_vec(0, 15)));

    requester.run(Operation::Read(text), ANSWER_AT, 15)?;
    let read = requester.buffer.to_vec(ANSWER_AT as usize, 15);
    println!("READ: it says {:?}", String::from_utf8_lossy(&read));
    assert_eq!(read, b"nobody asked me");

    for expected in [0, 5, 10] {
        let before = requester.exchange(Operation::FetchAdd { remote: counter, add: 5 })?;
        println!("fetch and add: {before} was there");
        assert_eq!(before, expected);
    }
    let before = requester.exchange(Operation::CompareSwap { remote: counter, compare: 15, swap: 100 })?;
    println!(
        "compare and swap: {before} was there, now {}",
        memory.word(2048).load(std::sync::atomic::Ordering::Relaxed)
    );
    assert_eq!(before, 15);

    // A key that was never given out: the peer's RNIC refuses, and the queue pair is broken (IBTA §9.7.4.1.2).
    let forged = Remote { rkey: highwire_host::verbs::RemoteKey(text.rkey.0 ^ 0x100), ..text };
    match requester.run(Operation::Read(forged), 0, 8) {
        Err(refusal) => println!("a forged key: {refusal}"),
        Ok(()) => return Err("a forged key was taken".into()),
    }
    Ok(())
}
