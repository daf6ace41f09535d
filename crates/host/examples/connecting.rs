//! Connections by address and port. `cargo run --example connecting` listens, prints its address and answers one message;
//! `cargo run --example connecting ADDRESS:PORT WORDS…` connects and asks. Either end may be a program that was written for librdmacm.

use highwire_host::cm::Terms;
use highwire_host::verbs::{Access, CompletionStatus, Operation, RecvWr, SendWr, Service};
use highwire_host::{Device, DeviceConfig, QueuePairConfig, Sharing, WaitFor};
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open(&DeviceConfig { sharing: Sharing::Shared, ..DeviceConfig::default() })?;
    let (pd, cq) = (device.protection_domain(), device.completion_queue(16)?);
    let buffer = pd.allocate(4096, Access::LOCAL_WRITE)?;
    let queue_pair = pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq))?;
    // A receive that is there before the peer can send.
    queue_pair.prepare(Access::NONE)?;
    queue_pair.post_recv(&RecvWr { wr_id: 0, sges: &[buffer.sge(0, 2048)] })?;
    let next = || -> Result<u32, Box<dyn Error>> {
        if !cq.wait(WaitFor::Any, PATIENCE) {
            return Err("the peer says nothing".into());
        }
        let done = cq.poll_one().ok_or("another thread took it")?;
        if done.status == CompletionStatus::Success {
            Ok(done.byte_len)
        } else {
            Err(format!("{:?}", done.status).into())
        }
    };

    let mut words = std::env::args().skip(1);
    if let Some(server) = words.next() {
        let connection = device.connect(server.parse::<SocketAddr>()?, queue_pair, &Terms::default())?;
        let question = words.collect::<Vec<_>>().join(" ");
        buffer.write(2048, question.as_bytes());
        let sges = [buffer.sge(2048, question.len() as u32)];
        connection.queue_pair().post_send(&[SendWr::new(1, Operation::Send, &sges)])?;
        // The request's own completion, and the answer.
        let lengths = [next()?, next()?];
        println!("{}", String::from_utf8_lossy(&buffer.to_vec(0, lengths[1] as usize)));
        connection.disconnect(PATIENCE)?;
    } else {
        let listener = device.listen(0)?;
        println!("{}", listener.address());
        let request = listener.request(PATIENCE).ok_or("nobody came")?;
        let connection = request.accept(queue_pair, &Terms::default())?;
        let question = String::from_utf8_lossy(&buffer.to_vec(0, next()? as usize)).into_owned();
        let answer = question.to_uppercase();
        buffer.write(2048, answer.as_bytes());
        let sges = [buffer.sge(2048, answer.len() as u32)];
        connection.queue_pair().post_send(&[SendWr::new(1, Operation::Send, &sges)])?;
        next()?;
        connection.wait_ended(PATIENCE).ok_or("the peer does not go")?;
    }
    Ok(())
}
