//! One end of a conversation with a program in another language: prints its own endpoint, reads the peer's,
//! and then does everything once. `highwire-host`'s side of the Java tests.
//!
//! Standard output and input: `qpn-psn@address va rkey`, the same of the peer. Then this side WRITEs, READs back, adds to
//! the peer's word at 2048, and answers every message with its bytes in reverse until one says `end`.

use highwire_host::verbs::{
    Access, Completion, CompletionStatus, Operation, RecvWr, Remote, RemoteKey, SendWr, Service,
};
use highwire_host::{
    Buffer, CompletionQueue, ConnectOptions, Device, DeviceConfig, Endpoint, QueuePair, QueuePairConfig,
};
use std::error::Error;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const GREETING: &[u8] = b"written by Rust";
const RECEIVE_AT: u64 = 4096;
const RECEIVE_BYTES: u32 = 2048;

fn main() -> Result<(), Box<dyn Error>> {
    let device = Device::open(&DeviceConfig::default())?;
    let pd = device.protection_domain();
    let cq = device.completion_queue(64)?;
    let qp = pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq))?;
    let buffer = pd.allocate(1 << 16, Access::ALL)?;
    println!("{} {} {}", qp.endpoint(), buffer.addr(), buffer.rkey().0);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let mut word = || words.next().ok_or("the peer said too little");
    let peer: Endpoint = word()?.parse()?;
    let there = Remote { va: word()?.parse()?, rkey: RemoteKey(word()?.parse()?) };
    qp.prepare(Access::ALL)?;
    receive(&qp, &buffer)?;
    qp.connect(&peer, &ConnectOptions::default())?;

    buffer.write(0, GREETING);
    let length = GREETING.len() as u32;
    run(&qp, &cq, Operation::Write(there), &buffer, 0, length)?;
    run(&qp, &cq, Operation::Read(there), &buffer, 1024, length)?;
    if buffer.to_vec(1024, GREETING.len()) != GREETING {
        return Err("what came back is not what was written".into());
    }
    let word_there = Remote { va: there.va + 2048, ..there };
    run(&qp, &cq, Operation::FetchAdd { remote: word_there, add: 5 }, &buffer, 1536, 8)?;
    println!("the word was {}", buffer.word(1536).load(std::sync::atomic::Ordering::Acquire));

    loop {
        let message = wait(&cq)?;
        let mut bytes = buffer.to_vec(RECEIVE_AT as usize, message.byte_len as usize);
        if bytes == b"end" {
            println!("end");
            return Ok(());
        }
        receive(&qp, &buffer)?;
        bytes.reverse();
        buffer.write(0, &bytes);
        run(&qp, &cq, Operation::Send, &buffer, 0, message.byte_len)?;
    }
}

fn receive(qp: &QueuePair, buffer: &Buffer) -> Result<(), Box<dyn Error>> {
    Ok(qp.post_recv(&RecvWr { wr_id: 1, sges: &[buffer.sge(RECEIVE_AT, RECEIVE_BYTES)] })?)
}

/// Posts one request and waits for it.
fn run(
    qp: &QueuePair,
    cq: &CompletionQueue,
    operation: Operation,
    buffer: &Buffer,
    at: u64,
    length: u32,
) -> Result<(), Box<dyn Error>> {
    qp.post_send(&[SendWr::new(2, operation, &[buffer.sge(at, length)])])?;
    wait(cq).map(drop)
}

fn wait(cq: &CompletionQueue) -> Result<Completion, Box<dyn Error>> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        match cq.poll_one() {
            Some(completion) if completion.status == CompletionStatus::Success => return Ok(completion),
            Some(failed) => return Err(format!("{failed:?}").into()),
            None => {}
        }
    }
    Err("the peer stays silent".into())
}
