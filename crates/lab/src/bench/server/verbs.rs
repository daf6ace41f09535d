//! The server over queue pairs: every thread sleeps on a channel of its own, or one thread watches the descriptors of all.

use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use highwire_host::verbs::{
    Access, CompletionOp, CompletionStatus, Operation, RecvWr, SendFlags, SendWr, Service, Sge,
};
use highwire_host::{
    Buffer, ChannelTarget, CompletionChannel, CompletionQueue, CompletionQueueConfig, ConnectOptions, Device,
    DeviceConfig, LinkChoice, QueuePair, QueuePairConfig, WaitFor, WakeMode,
};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

use super::{Connections, Door, Load, MESSAGE_BYTES, Outcome, PATIENCE, drive, own_cost};

const STACK_BYTES: usize = 128 << 10;
/// The first byte of a request that asks the thread to end.
const END: u8 = 1;
/// The most events that one call returns.
const EVENTS_MAX: usize = 64;

/// A connection's end at the server.
struct Served<'a> {
    qp: QueuePair,
    cq: CompletionQueue,
    channel: CompletionChannel,
    buffer: &'a Buffer,
    /// The offset of the request; the response lies behind it.
    offset: u64,
}

impl Served<'_> {
    fn receive(&self) -> Result<()> {
        let sges = [self.buffer.sge(self.offset, MESSAGE_BYTES as u32)];
        self.qp.post_recv(&RecvWr { wr_id: 0, sges: &sges }).context("cannot post a receive")
    }

    /// Arms the channel, and answers the requests that have come; true once a request asked it to end.
    fn answer(&self) -> Result<bool> {
        self.cq.request_notify(WaitFor::Any)?;
        while let Some(completion) = self.cq.poll_one() {
            if completion.status != CompletionStatus::Success {
                bail!("a request ended with {:?}", completion.status);
            }
            if completion.operation != CompletionOp::Receive {
                continue;
            }
            let is_end = self.buffer.byte(self.offset as usize) == END;
            self.receive()?;
            let sges = [self.buffer.sge(self.offset + MESSAGE_BYTES as u64, MESSAGE_BYTES as u32)];
            self.qp.post_send(&[unsignaled(&sges)]).context("cannot answer")?;
            if is_end {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Answers until a request asks it to end, blocking in the library or in `poll`.
    fn serve(&self, door: Door) -> Result<()> {
        while !self.answer()? {
            let has_come = match door {
                Door::Event | Door::Epoll => self.channel.event(Some(2 * PATIENCE)).is_some(),
                Door::Poll => self.poll_descriptor()? && self.channel.try_event().is_some(),
            };
            if !has_come {
                bail!("no request in {PATIENCE:?}");
            }
        }
        Ok(())
    }

    /// Sleeps until the channel's descriptor is readable; false if that takes too long.
    fn poll_descriptor(&self) -> Result<bool> {
        loop {
            let mut fds = [PollFd::from_borrowed_fd(self.channel.fd(), PollFlags::IN)];
            match poll(&mut fds, Some(&patience())) {
                Err(Errno::INTR) => {}
                ready => return Ok(ready? > 0),
            }
        }
    }
}

/// A message whose own completion wakes no thread: the peer's next message implies it.
fn unsignaled(sges: &[Sge]) -> SendWr<'_> {
    let flags = SendFlags { signaled: false, ..SendFlags::default() };
    SendWr { flags, ..SendWr::new(0, Operation::Send, sges) }
}

fn patience() -> Timespec {
    Timespec { tv_sec: 2 * PATIENCE.as_secs() as i64, tv_nsec: 0 }
}

/// Answers on all connections until each was asked to end, blocking in `epoll_wait`.
fn serve_all(served: &[Served<'_>]) -> Result<()> {
    let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, one) in (0..).zip(served) {
        epoll::add(&set, one.channel.fd(), epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
        one.answer()?;
    }
    let mut left = served.len();
    let mut events = Vec::with_capacity(EVENTS_MAX);
    while left > 0 {
        events.clear();
        match epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), Some(&patience())) {
            Err(Errno::INTR) => continue,
            Ok(0) => bail!("no request in {PATIENCE:?}"),
            waited => waited?,
        };
        for event in &events {
            let one = &served[event.data.u64() as usize];
            if one.channel.try_event().is_some() && one.answer()? {
                epoll::delete(&set, one.channel.fd().as_fd())?;
                left -= 1;
            }
        }
    }
    Ok(())
}

struct Client {
    qps: Vec<QueuePair>,
    cq: CompletionQueue,
    buffer: Buffer,
}

impl Client {
    fn ask(&mut self, connection: usize, first: u8) -> Result<()> {
        self.buffer.write(0, &[first; MESSAGE_BYTES]);
        let sges = [self.buffer.sge(0, MESSAGE_BYTES as u32)];
        let into = [self.buffer.sge(MESSAGE_BYTES as u64, MESSAGE_BYTES as u32)];
        let qp = &self.qps[connection];
        qp.post_recv(&RecvWr { wr_id: connection as u64, sges: &into }).context("cannot post a receive")?;
        qp.post_send(&[unsignaled(&sges)]).context("cannot ask")
    }
}

impl Connections for Client {
    fn send(&mut self, connection: usize) -> Result<()> {
        self.ask(connection, 0)
    }

    fn poll(&mut self, _waiting: &[usize]) -> Result<Option<usize>> {
        while let Some(completion) = self.cq.poll_one() {
            if completion.status != CompletionStatus::Success {
                bail!("a response ended with {:?}", completion.status);
            }
            if completion.operation == CompletionOp::Receive {
                return Ok(Some(completion.wr_id as usize));
            }
        }
        Ok(None)
    }
}

pub(super) fn play(link: LinkChoice, mode: WakeMode, door: Door, load: Load) -> Result<Outcome> {
    let config = DeviceConfig { link, wake: Some(mode), ..DeviceConfig::default() };
    let open = || Device::open(&config).context("cannot open a device");
    let (asking, serving) = (open()?, open()?);
    let (asking_pd, serving_pd) = (asking.protection_domain(), serving.protection_domain());
    let served_buffer = serving_pd.allocate(2 * MESSAGE_BYTES * load.connections, Access::ALL)?;
    let cq = asking.completion_queue(4 * load.connections as u32)?;
    let buffer = asking_pd.allocate(2 * MESSAGE_BYTES, Access::ALL)?;
    let (mut qps, mut served) = (Vec::new(), Vec::new());
    let options = ConnectOptions::default();
    for number in 0..load.connections {
        let channel = serving.completion_channel()?;
        let target = Some(ChannelTarget { channel: &channel, tag: number as u64 });
        let config = CompletionQueueConfig { channel: target, ..CompletionQueueConfig::new(16) };
        let served_cq = serving.create_completion_queue(&config)?;
        let qp = serving_pd.queue_pair(&QueuePairConfig::new(Service::Rc, &served_cq))?;
        let peer = asking_pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq))?;
        peer.connect(&qp.endpoint(), &options)?;
        qp.connect(&peer.endpoint(), &options)?;
        let offset = (2 * MESSAGE_BYTES * number) as u64;
        let one = Served { qp, cq: served_cq, channel, buffer: &served_buffer, offset };
        one.receive()?;
        served.push(one);
        qps.push(peer);
    }
    let mut client = Client { qps, cq, buffer };
    thread::scope(|threads| {
        let mut serving = Vec::new();
        let small = || thread::Builder::new().stack_size(STACK_BYTES);
        if door == Door::Epoll {
            serving.push(small().spawn_scoped(threads, || serve_all(&served))?);
        } else {
            for one in &served {
                serving.push(small().spawn_scoped(threads, move || one.serve(door))?);
            }
        }
        // So that no thread is measured on its way to its first sleep.
        thread::sleep(Duration::from_millis(20));
        let outcome = drive(&mut client, load, &own_cost);
        // One after the other: there is one buffer.
        for connection in 0..load.connections {
            client.ask(connection, END)?;
            while outcome.is_ok() && client.poll(&[])?.is_none() {}
        }
        for thread in serving {
            thread.join().unwrap_or_else(|_| bail!("a thread of the server panicked"))?;
        }
        outcome
    })
}
