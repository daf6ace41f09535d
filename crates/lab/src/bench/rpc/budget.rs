//! The time of one unreliable datagram at each end, stage by stage: both ends in one thread, so that no stage
//! waits for the other end.

use std::time::Instant;

use anyhow::{Context, Result, bail};
use highwire_host::verbs::{
    Access, Address, Completion, Datagram, Operation, QpCaps, RecvWr, SendFlags, SendWr, Service,
};
use highwire_host::{
    Buffer, CompletionQueue, Device, DeviceConfig, EMPTY_COMPLETION, Engine, QueuePair, QueuePairConfig,
};
use serde::Serialize;

use super::LinkName;

const QKEY: u32 = 0x0FA5_5701;
/// Bytes of the GRH at the beginning of a UD receive (IBTA §11.4.1.2).
const GRH_BYTES: u32 = 40;
/// Datagrams of a batch.
const BATCH: usize = 11;
/// Longer messages are not sent inline, and need another measurement.
const SIZE_MAX: u32 = 256;
const BATCHES: usize = 2000;
const BATCHES_BEFORE: usize = 200;
/// Polls without a datagram until one is taken for lost.
const POLLS_MAX: usize = 50_000_000;
const STAGES: [&str; 4] = [
    "sender: post and send",
    "sender: progress",
    "receiver: take and complete",
    "receiver: post receives again",
];

/// A stage, for one datagram.
#[derive(Debug, Serialize)]
pub(super) struct Stage {
    pub(super) link: LinkName,
    pub(super) what: &'static str,
    /// The median over all batches, divided by the datagrams of a batch.
    pub(super) ns: f64,
}

struct End {
    // Declared before the device, so that they are dropped first.
    queue_pair: QueuePair,
    completion_queue: CompletionQueue,
    landing: Buffer,
    _device: Device,
}

impl End {
    fn open(link: LinkName, size: u32) -> Result<End> {
        let config = DeviceConfig { link: link.choice(), engine: Engine::Inline, ..DeviceConfig::default() };
        let device = Device::open(&config)?;
        let domain = device.protection_domain();
        let landing = domain.allocate((size + GRH_BYTES) as usize * 4 * BATCH, Access::ALL)?;
        let completion_queue = device.completion_queue(16 * BATCH as u32)?;
        let caps = QpCaps {
            max_send_wr: 8 * BATCH as u32,
            max_recv_wr: 4 * BATCH as u32,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: SIZE_MAX,
        };
        let queue_pair = domain
            .queue_pair(&QueuePairConfig { caps, ..QueuePairConfig::new(Service::Ud, &completion_queue) })
            .context("cannot make a queue pair")?;
        queue_pair.activate(QKEY)?;
        Ok(End { queue_pair, completion_queue, landing, _device: device })
    }

    fn post_receives(&self, size: u32) -> Result<()> {
        let length = size + GRH_BYTES;
        let sges: [_; BATCH] =
            std::array::from_fn(|place| [self.landing.sge(place as u64 * u64::from(length), length)]);
        let requests: [_; BATCH] = std::array::from_fn(|place| RecvWr { wr_id: 0, sges: &sges[place] });
        Ok(self.queue_pair.post_recv_chain(&requests)?)
    }
}

/// Measures every stage over a link.
///
/// # Errors
/// A queue pair cannot be made, or a datagram was lost.
pub(super) fn measure(link: LinkName, size: u32, rounds: u32) -> Result<Vec<Stage>> {
    if size > SIZE_MAX {
        bail!(
            "the budget is that of messages that are sent inline, at most {SIZE_MAX} bytes: {size} is more"
        );
    }
    let (from, to) = (End::open(link, size)?, End::open(link, size)?);
    let address = to.queue_pair.endpoint();
    let address = Datagram { address: Address::new(address.gid), qpn: address.qpn, qkey: QKEY };
    let message = vec![0x5A; size as usize];
    let mut completions = [EMPTY_COMPLETION; 2 * BATCH];
    (0..3).try_for_each(|_| to.post_receives(size))?;
    let mut times: [Vec<u64>; STAGES.len()] = Default::default();
    for batch in 0..BATCHES_BEFORE + BATCHES * rounds as usize {
        let lengths = one(&from, &to, address, &message, size, &mut completions)?;
        if batch >= BATCHES_BEFORE {
            times.iter_mut().zip(lengths).for_each(|(times, length)| times.push(length));
        }
    }
    Ok(STAGES
        .into_iter()
        .zip(times)
        .map(|(what, mut times)| {
            times.sort_unstable();
            Stage { link, what, ns: times[times.len() / 2] as f64 / BATCH as f64 }
        })
        .collect())
}

/// One batch; nanoseconds of each stage.
fn one(
    from: &End,
    to: &End,
    address: Datagram,
    message: &[u8],
    size: u32,
    completions: &mut [Completion],
) -> Result<[u64; STAGES.len()]> {
    let mut lengths = [0; STAGES.len()];
    let mut begin = Instant::now();
    let mut lap = |stage: usize, begin: &mut Instant| {
        let now = Instant::now();
        lengths[stage] += (now - *begin).as_nanos() as u64;
        *begin = now;
    };
    from.queue_pair.chain(|chain| {
        (0..BATCH).try_for_each(|_| {
            let wr = SendWr {
                wr_id: 0,
                operation: Operation::SendImm(0),
                flags: SendFlags::default(),
                sges: &[],
                datagram: Some(address),
            };
            chain.push_inline(&wr, message)
        })
    })?;
    lap(0, &mut begin);
    from.completion_queue.poll(completions);
    lap(1, &mut begin);
    let mut taken = 0;
    for poll in 0.. {
        let here = to.completion_queue.poll(completions);
        if here > 0 {
            taken += here;
            // Polls that found nothing are no part of a datagram's cost; the last one is.
            lap(2, &mut begin);
        } else {
            begin = Instant::now();
        }
        if taken >= BATCH {
            break;
        }
        // The loopback may hand datagrams over a little later.
        from.completion_queue.poll(&mut []);
        if poll > POLLS_MAX {
            bail!("a datagram was lost");
        }
    }
    begin = Instant::now();
    to.post_receives(size)?;
    lap(3, &mut begin);
    Ok(lengths)
}
