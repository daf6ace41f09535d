//! One of the processes, from inside.

use std::io::{BufRead, Lines, StdinLock};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use highwire_host::broker::{PortSpace, ServiceIds};
use highwire_host::verbs::{Access, Completion, CompletionStatus, Operation, RecvWr, SendWr, Service};
use highwire_host::{
    Buffer, CompletionQueue, ConnectOptions, Device, DeviceConfig, Endpoint, Gsi, LinkChoice,
    ProtectionDomain, QueuePair, QueuePairConfig, Sharing, WaitFor,
};

/// What a process is there for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Role {
    /// Sends and checks what comes back, until it is told to stop.
    Ping,
    /// Sends back what it gets.
    Echo,
    /// Comes, talks to itself when it is told to, and goes.
    Visitor,
    /// Sends until its peer is dead.
    Orphan,
}

const SLOT_BYTES: usize = 16 << 10;
/// The offsets of sent and of received messages.
const OUT: usize = 0;
const IN: usize = SLOT_BYTES;
/// The interval between two checks for another order.
const PATIENCE: Duration = Duration::from_millis(100);
/// Fruitless checks after which a peer counts as lost: far longer than all its retries.
const LOOKS_MAX: u32 = 600;
/// Messages of a visitor's work.
const VISIT_MESSAGES: u64 = 20;

pub(super) fn run(role: Role, address: IpAddr, link: LinkChoice) -> Result<()> {
    let lines = std::io::stdin().lock().lines();
    let config =
        DeviceConfig { address: Some(address), sharing: Sharing::Shared, link, ..DeviceConfig::default() };
    let device = Device::open(&config)?;
    match role {
        Role::Visitor => visit(&device, address, lines),
        Role::Ping => ping(&connected(&device, lines)?, &device),
        Role::Echo => echo(&connected(&device, lines)?),
        Role::Orphan => be_orphaned(&connected(&device, lines)?),
    }
}

/// A queue pair and its buffers.
struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    buffer: Buffer,
}

impl End {
    fn new(device: &Device, pd: &ProtectionDomain) -> Result<End> {
        let cq = device.completion_queue(64)?;
        let qp = pd.queue_pair(&QueuePairConfig::new(Service::Rc, &cq))?;
        let buffer = pd.allocate(2 * SLOT_BYTES, Access::ALL)?;
        Ok(End { qp, cq, buffer })
    }

    fn connect(&self, peer: &Endpoint) -> Result<()> {
        // Four seconds until a dead peer is given up: a living one may have to wait for a processor.
        let options = ConnectOptions { timeout: 17, retry_count: 7, ..ConnectOptions::default() };
        self.qp.prepare(options.access)?;
        self.receive()?;
        self.qp.connect(peer, &options)?;
        Ok(())
    }

    fn receive(&self) -> Result<()> {
        let sges = [self.buffer.sge(IN as u64, SLOT_BYTES as u32)];
        Ok(self.qp.post_recv(&RecvWr { wr_id: 1, sges: &sges })?)
    }

    fn send(&self, from: usize, length: usize) -> Result<()> {
        let sges = [self.buffer.sge(from as u64, length as u32)];
        Ok(self.qp.post_send(&[SendWr::new(2, Operation::Send, &sges)])?)
    }

    /// The next completion; `None` after a while without.
    fn next(&self) -> Option<Completion> {
        if let Some(completion) = self.cq.poll_one() {
            return Some(completion);
        }
        self.cq.wait(WaitFor::Any, PATIENCE);
        self.cq.poll_one()
    }

    fn next_good(&self) -> Result<Option<Completion>> {
        let completion = self.next();
        if let Some(completion) = &completion {
            ensure!(completion.status == CompletionStatus::Success, "{completion:?}");
        }
        Ok(completion)
    }

    /// Sends a message and waits until it has come back and was acknowledged.
    fn round_trip(&self, number: u64) -> Result<()> {
        let length = 1 + (number as usize).wrapping_mul(7919) % (SLOT_BYTES - 1);
        let bytes: Vec<u8> = (0..length).map(|at| (at as u64 * 31 + number) as u8).collect();
        self.buffer.write(OUT, &bytes);
        self.send(OUT, length)?;
        let (mut left, mut looks) = (2, 0);
        while left > 0 {
            match self.next_good()? {
                Some(completion) if completion.wr_id == 1 => {
                    ensure!(completion.byte_len as usize == length, "message {number} came back shorter");
                    ensure!(self.buffer.to_vec(IN, length) == bytes, "message {number} came back changed");
                    self.receive()?;
                    left -= 1;
                }
                Some(_) => left -= 1,
                None => looks += 1,
            }
            ensure!(looks < LOOKS_MAX, "message {number} did not come back");
        }
        Ok(())
    }
}

/// An end whose peer is the process that the next line names.
fn connected(device: &Device, mut lines: Lines<StdinLock<'static>>) -> Result<End> {
    let end = End::new(device, &device.protection_domain())?;
    println!("endpoint {}", end.qp.endpoint());
    let peer = lines.next().context("nobody to connect to")??;
    end.connect(&peer.parse()?)?;
    println!("connected");
    Ok(end)
}

/// Becomes true with the next line, or when there will be none.
fn next_line() -> Arc<AtomicBool> {
    let is_there = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_there);
    std::thread::spawn(move || {
        let _ = std::io::stdin().lock().read_line(&mut String::new());
        told.store(true, Ordering::Release);
    });
    is_there
}

fn ping(end: &End, device: &Device) -> Result<()> {
    let is_over = next_line();
    let mut echoes = 0;
    while !is_over.load(Ordering::Acquire) {
        end.round_trip(echoes)?;
        echoes += 1;
    }
    println!("echoes {echoes} {}", device.counters().value("retransmitted"));
    Ok(())
}

/// Sends back what it gets, until its peer is gone.
fn echo(end: &End) -> Result<()> {
    let is_over = next_line();
    while !is_over.load(Ordering::Acquire) {
        let Some(completion) = end.next() else { continue };
        if completion.status != CompletionStatus::Success {
            // Its peer has ended first.
            break;
        }
        if completion.wr_id == 1 {
            let length = completion.byte_len as usize;
            let bytes = end.buffer.to_vec(IN, length);
            end.buffer.write(OUT, &bytes);
            end.receive()?;
            end.send(OUT, length)?;
        }
    }
    Ok(())
}

fn visit(device: &Device, address: IpAddr, lines: Lines<StdinLock<'static>>) -> Result<()> {
    let gsi = device.gsi()?;
    for (visit, line) in lines.enumerate() {
        line?;
        // Occupies everything that a process can leave behind.
        occupy(&gsi, address, visit as u32)?;
        let pd = device.protection_domain();
        let (a, b) = (End::new(device, &pd)?, End::new(device, &pd)?);
        b.connect(&a.qp.endpoint())?;
        a.connect(&b.qp.endpoint())?;
        for number in 0..VISIT_MESSAGES {
            exchange(&a, &b, number)?;
        }
    }
    Ok(())
}

fn occupy(gsi: &Gsi, address: IpAddr, visit: u32) -> Result<()> {
    let port = gsi.bind_port(PortSpace::TCP, 0)?;
    gsi.listen(ServiceIds::one(u64::from(PortSpace::TCP.0) << 16 | u64::from(port)))?;
    let mut will = [0; 256];
    // A DREQ to itself, which will find no connection.
    (will[0], will[1], will[17], will[31]) = (1, 7, 0x15, gsi.shard());
    gsi.leave_last_message(visit, address, &will)?;
    Ok(())
}

/// One message from `a` to `b`, both of this process.
fn exchange(a: &End, b: &End, number: u64) -> Result<()> {
    let bytes = [number as u8; 1000];
    a.buffer.write(OUT, &bytes);
    a.send(OUT, bytes.len())?;
    // The sender's completions are polled as well: if it gives up, nothing will arrive.
    let (mut looks, mut waits) = (0, vec![b, a]);
    while let Some(end) = waits.first() {
        if end.next_good()?.is_some() {
            waits.remove(0);
        } else {
            waits.rotate_left(1);
            looks += 1;
        }
        ensure!(looks < LOOKS_MAX, "message {number} to itself did not arrive");
    }
    ensure!(b.buffer.to_vec(IN, bytes.len()) == bytes, "message {number} to itself has changed");
    b.receive()
}

fn be_orphaned(end: &End) -> Result<()> {
    let mut looks = 0;
    loop {
        // The queue may be full, or in error already; then its completions report that.
        let _ = end.send(OUT, 100);
        match end.next() {
            Some(completion) if completion.status == CompletionStatus::RetryExceeded => break,
            Some(completion) if completion.status == CompletionStatus::Success => looks = 0,
            Some(completion) => bail!("its peer is dead, but {completion:?}"),
            None => looks += 1,
        }
        ensure!(looks < LOOKS_MAX, "its peer is dead, and nothing says so");
    }
    println!("orphaned");
    Ok(())
}
