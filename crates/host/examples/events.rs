//! One thread sleeps on one descriptor for several completion queues, and gets an event when a queue pair
//! breaks. `cargo run --example events`
//!
//! A program adds the channel's descriptor to its own event loop. It uses each queue in the same order: ask for an event, poll
//! until the queue is empty, and only then sleep.

use highwire_host::verbs::{Access, AsyncEvent, Operation, RecvWr, Remote, RemoteKey, SendWr, Service};
use highwire_host::{
    ChannelTarget, CompletionQueue, CompletionQueueConfig, ConnectOptions, Device, DeviceConfig, QueuePair,
    QueuePairConfig, WaitFor,
};
use std::error::Error;
use std::thread;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(10);
const MESSAGES: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let (listening, talking) =
        (Device::open(&DeviceConfig::default())?, Device::open(&DeviceConfig::default())?);
    let (pd, talker_pd) = (listening.protection_domain(), talking.protection_domain());
    let channel = listening.completion_channel()?;
    let mut connections: Vec<(QueuePair, CompletionQueue)> = Vec::new();
    let mut talkers = Vec::new();
    for tag in 0..2 {
        let target = Some(ChannelTarget { channel: &channel, tag });
        let cq = listening.create_completion_queue(&CompletionQueueConfig {
            channel: target,
            ..CompletionQueueConfig::new(16)
        })?;
        let qp = pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq))?;
        let talker_cq = talking.completion_queue(16)?;
        let talker = talker_pd.queue_pair(&QueuePairConfig::new(Service::Rc, &talker_cq))?;
        qp.connect(&talker.endpoint(), &ConnectOptions::default())?;
        talker.connect(&qp.endpoint(), &ConnectOptions::default())?;
        for wr_id in 0..MESSAGES as u64 {
            qp.post_recv(&RecvWr { wr_id, sges: &[] })?;
        }
        connections.push((qp, cq));
        talkers.push((talker, talker_cq));
    }

    thread::scope(|threads| {
        let heard = threads.spawn(|| -> Result<[usize; 2], String> {
            let mut heard = [0; 2];
            // Ask first: a message that is there already brings no event, but the poll below finds it.
            let serve = |tag: usize| {
                let cq = &connections[tag].1;
                cq.request_notify(WaitFor::Any).map_err(|error| error.to_string())?;
                Ok::<usize, String>(std::iter::from_fn(|| cq.poll_one()).count())
            };
            for (tag, heard) in heard.iter_mut().enumerate() {
                *heard += serve(tag)?;
            }
            while heard.iter().sum::<usize>() < 2 * MESSAGES {
                let tag = channel.event(Some(PATIENCE)).ok_or("no event")? as usize;
                heard[tag] += serve(tag)?;
                println!("queue {tag} has had {} messages", heard[tag]);
            }
            Ok(heard)
        });
        for _ in 0..MESSAGES {
            for (talker, _) in &talkers {
                talker.post_send(&[SendWr::new(0, Operation::Send, &[])])?;
                thread::sleep(Duration::from_millis(1));
            }
        }
        let heard = heard.join().expect("no panic")?;
        assert_eq!(heard, [MESSAGES; 2]);
        Ok::<_, Box<dyn Error>>(())
    })?;

    // No device gave out this key. The responder refuses the WRITE and gets an event, although no request of its own has
    // failed.
    let talker_memory = talker_pd.allocate(64, Access::LOCAL_WRITE)?;
    let nowhere = Operation::Write(Remote { va: 0, rkey: RemoteKey(0xBAD) });
    talkers[0].0.post_send(&[SendWr::new(1, nowhere, &[talker_memory.sge(0, 8)])])?;
    let event = listening.wait_async_event(PATIENCE);
    println!("asynchronous event: {event:?}");
    match event {
        Some(AsyncEvent::QpAccessError(qpn)) if qpn == connections[0].0.qpn() => Ok(()),
        other => Err(format!("not the event that was expected: {other:?}").into()),
    }
}
