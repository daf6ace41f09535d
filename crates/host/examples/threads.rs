//! A server with a thread for each connection, each of which blocks for its next request: `cargo run --release --example threads -- 128`.
//!
//! Its threads share cores. The device decides which of them polls for the others, and when all sleep
//! (`HIGHWIRE_WAKE`).

use highwire_host::verbs::{Access, CompletionOp, Operation, RecvWr, SendWr, Service};
use highwire_host::{
    ChannelTarget, CompletionQueueConfig, ConnectOptions, Device, DeviceConfig, QueuePairConfig, WaitFor,
};
use std::error::Error;
use std::thread;
use std::time::{Duration, Instant};

const REQUESTS: u64 = 20_000;
const NONE: &[highwire_host::verbs::Sge] = &[];

fn main() -> Result<(), Box<dyn Error>> {
    let threads: u64 = std::env::args().nth(1).map_or(Ok(16), |count| count.parse())?;
    let (asking, serving) =
        (Device::open(&DeviceConfig::default())?, Device::open(&DeviceConfig::default())?);
    let (asking_pd, serving_pd) = (asking.protection_domain(), serving.protection_domain());
    let answers = asking.completion_queue(64)?;
    let buffer = asking_pd.allocate(64, Access::ALL)?;
    let mut clients = Vec::new();
    for number in 0..threads {
        let channel = serving.completion_channel()?;
        let target = Some(ChannelTarget { channel: &channel, tag: number });
        let config = CompletionQueueConfig { channel: target, ..CompletionQueueConfig::new(16) };
        let requests = serving.create_completion_queue(&config)?;
        let server = serving_pd.queue_pair(&QueuePairConfig::new(Service::Rc, &requests))?;
        let client = asking_pd.queue_pair(&QueuePairConfig::new(Service::Rc, &answers))?;
        client.connect(&server.endpoint(), &ConnectOptions::default())?;
        server.connect(&client.endpoint(), &ConnectOptions::default())?;
        server.post_recv(&RecvWr { wr_id: 0, sges: NONE })?;
        clients.push(client);
        thread::spawn(move || {
            loop {
                // Ask for an event, poll once more, and only then sleep: a completion that arrives in between causes an event.
                requests.request_notify(WaitFor::Any).expect("it has a channel");
                while let Some(completion) = requests.poll_one() {
                    if completion.operation == CompletionOp::Receive {
                        server.post_recv(&RecvWr { wr_id: 0, sges: NONE }).expect("there is room");
                        server.post_send(&[SendWr::new(0, Operation::Send, NONE)]).expect("there is room");
                    }
                }
                channel.event(None);
            }
        });
    }
    let begin = Instant::now();
    for request in 0..REQUESTS {
        // Another connection each time, so another thread is to be woken.
        let client = &clients[(request * 7 % threads) as usize];
        client.post_recv(&RecvWr { wr_id: 0, sges: &[buffer.sge(0, 0)] })?;
        client.post_send(&[SendWr::new(0, Operation::Send, NONE)])?;
        let mut missing = 2;
        while missing > 0 {
            assert!(answers.wait(WaitFor::Any, Duration::from_secs(30)), "an answer");
            missing -= std::iter::from_fn(|| answers.poll_one()).count();
        }
    }
    println!("{threads} threads, {REQUESTS} requests, {:.1?} each", begin.elapsed() / REQUESTS as u32);
    Ok(())
}
