//! Two devices in one process: a message, then a one-sided WRITE. `cargo run --example hello`
//!
//! Two programs do the same with one `End` each, and send each other their endpoints as text.

use highwire_host::verbs::{Access, Operation, RecvWr, SendWr, Service};
use highwire_host::{
    Buffer, CompletionQueue, ConnectOptions, Device, DeviceConfig, QueuePair, QueuePairConfig,
};
use std::error::Error;

struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    buffer: Buffer,
}

fn end() -> Result<End, Box<dyn Error>> {
    // No address given: an unused one of 127.0.0.0/8 becomes the device's GID.
    let device = Device::open(&DeviceConfig::default())?;
    let pd = device.protection_domain();
    let cq = device.completion_queue(16)?;
    let qp = pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq))?;
    let buffer = pd.allocate(4096, Access::ALL)?;
    Ok(End { qp, cq, buffer })
}

fn wait(cq: &CompletionQueue) -> u32 {
    let completion = std::iter::repeat_with(|| cq.poll_one()).flatten().next().expect("polls for ever");
    println!("  {:?}: {:?}", completion.operation, completion.status);
    completion.byte_len
}

fn main() -> Result<(), Box<dyn Error>> {
    let (alice, bob) = (end()?, end()?);
    println!("alice is {}\nbob   is {}", alice.qp.endpoint(), bob.qp.endpoint());
    alice.qp.connect(&bob.qp.endpoint(), &ConnectOptions::default())?;
    bob.qp.connect(&alice.qp.endpoint(), &ConnectOptions::default())?;

    println!("a message:");
    bob.qp.post_recv(&RecvWr { wr_id: 1, sges: &[bob.buffer.sge(0, 64)] })?;
    alice.buffer.write(0, b"hello, bob");
    alice.qp.post_send(&[SendWr::new(2, Operation::Send, &[alice.buffer.sge(0, 10)])])?;
    let length = wait(&bob.cq) as usize;
    wait(&alice.cq);
    println!("  bob has {:?}", String::from_utf8_lossy(&bob.buffer.to_vec(0, length)));

    println!("a WRITE into bob's memory, while bob does nothing:");
    alice.buffer.write(0, b"no hands");
    let there = Operation::Write(bob.buffer.remote(1000));
    alice.qp.post_send(&[SendWr::new(3, there, &[alice.buffer.sge(0, 8)])])?;
    wait(&alice.cq);
    println!("  bob has {:?}", String::from_utf8_lossy(&bob.buffer.to_vec(1000, 8)));
    Ok(())
}
