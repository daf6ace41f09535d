//! A whole RNIC under a network that replays, drops, reorders and forges packets.
//!
//! Four pairs of queue pairs of one RNIC are connected to each other: RC with go-back-N, RC with IRN, UC and
//! UD. Their packets are kept and delivered when, and as often as, the input says; forged packets come in
//! between. In all cases memory outside the region stays untouched, and a request completes at most once.

mod bench;
mod captured;
mod forge;

use std::collections::BTreeMap;

use highwire_rnic::Arrival;
use highwire_stdx::Duration;
use highwire_verbs::{
    Address, CompletionOp, Datagram, Gid, Memory, MemoryLost, Mtu, Operation, RecvWr, Remote, RemoteKey,
    SendFlags, SendWr, Service, Sge,
};
use highwire_wire::{Headers, Qpn};

use crate::ops::Decisions;

pub(crate) use captured::captured;

use bench::{Bench, QKEY, QPS, REGION_ADDR, REGION_BYTES};

/// More packets than this from one decision would be a loop.
const BURST_MAX: usize = 4096;
/// Packets kept for later delivery.
const KEPT_MAX: usize = 96;
const MESSAGE_BYTES_MAX: u32 = 6000;

/// Feeds decisions to an RNIC until they are used up.
pub(crate) fn rnic(input: &[u8]) {
    let mut decisions = Decisions::new(input);
    let mut run = Run::new(Bench::new(Mtu::B256));
    while run.step(&mut decisions).is_some() {
        run.drain();
    }
}

/// A packet that was sent and may arrive.
struct Kept {
    headers: Headers,
    payload: Vec<u8>,
}

struct Run {
    bench: Bench,
    kept: Vec<Kept>,
    /// Requests that have not completed, by queue pair, direction and identifier.
    pending: BTreeMap<(u32, bool, u64), ()>,
    next_id: u64,
}

impl Run {
    fn new(bench: Bench) -> Self {
        Self { bench, kept: Vec::new(), pending: BTreeMap::new(), next_id: 0 }
    }

    fn step(&mut self, decisions: &mut Decisions<'_>) -> Option<()> {
        match decisions.byte()? % 8 {
            0 => self.post_send(decisions),
            1 => self.post_receive(decisions),
            2 | 3 => self.deliver(decisions, true),
            4 => self.deliver(decisions, false),
            5 => {
                self.bench.now += Duration::from_nanos(u64::from(decisions.short()?) * 256);
                self.bench.rnic.handle_timeout(self.bench.now);
                Some(())
            }
            6 => {
                let forged = forge::packet(decisions, &self.bench)?;
                self.handle(forged.source, &forged.headers, &forged.payload);
                Some(())
            }
            _ => self.change_state(decisions),
        }
    }

    /// Delivers a kept packet, and forgets it or not: a network may do either.
    fn deliver(&mut self, decisions: &mut Decisions<'_>, forget: bool) -> Option<()> {
        let at = usize::from(decisions.byte()?);
        if self.kept.is_empty() {
            return Some(());
        }
        // Mostly the oldest, so that conversations get somewhere.
        let at = if at < 160 { 0 } else { at % self.kept.len() };
        let headers = self.kept[at].headers;
        let payload = if forget { self.kept.remove(at).payload } else { self.kept[at].payload.clone() };
        self.handle(self.bench.gid, &headers, &payload);
        Some(())
    }

    fn handle(&mut self, source: Gid, headers: &Headers, payload: &[u8]) {
        let Bench { rnic, now, gid, .. } = &mut self.bench;
        let arrival = Arrival { source, destination: *gid, traffic_class: payload.len() as u8 };
        rnic.handle_packet(*now, &arrival, headers, payload, &mut Guarded);
    }

    fn post_send(&mut self, decisions: &mut Decisions<'_>) -> Option<()> {
        let index = usize::from(decisions.byte()?) % QPS;
        let qpn = self.bench.qpns[index];
        let length = u32::from(decisions.short()?) % MESSAGE_BYTES_MAX;
        let offset = u64::from(decisions.byte()?) * 64;
        let remote = Remote { va: REGION_ADDR + offset, rkey: RemoteKey(self.bench.key.0) };
        let operation = match decisions.byte()? % 9 {
            0 | 1 => Operation::Send,
            2 => Operation::SendImm(7),
            3 => Operation::Write(remote),
            4 => Operation::WriteImm(remote, 9),
            5 => Operation::Read(remote),
            6 => Operation::FetchAdd { remote, add: 1 },
            7 => Operation::CompareSwap { remote, compare: 0, swap: 1 },
            _ => Operation::SendInvalidate(RemoteKey(self.bench.key.0 ^ 0x55)),
        };
        let length = if operation.is_atomic() { 8 } else { length };
        let flags = decisions.byte()?;
        let flags = SendFlags {
            signaled: flags & 1 == 0,
            solicited: flags & 2 > 0,
            fence: flags & 4 > 0,
            inline: false,
        };
        let sges = [Sge { addr: REGION_ADDR + 64 * 300, length, lkey: self.bench.key }];
        let datagram = (self.bench.service(index) == Service::Ud).then(|| Datagram {
            address: Address::new(self.bench.gid),
            qpn: self.bench.qpns[index ^ 1],
            qkey: QKEY,
        });
        let wr_id = self.take_id();
        let request = SendWr { wr_id, operation, flags, sges: &sges, datagram };
        if self.bench.rnic.post_send(self.bench.now, qpn, &request).is_ok() {
            self.pending.insert((qpn.value(), false, wr_id), ());
        }
        Some(())
    }

    fn post_receive(&mut self, decisions: &mut Decisions<'_>) -> Option<()> {
        let qpn = self.bench.qpns[usize::from(decisions.byte()?) % QPS];
        let length = u32::from(decisions.short()?) % MESSAGE_BYTES_MAX;
        let wr_id = self.take_id();
        let sges = [Sge { addr: REGION_ADDR + 64 * 500, length, lkey: self.bench.key }];
        if self.bench.rnic.post_recv(self.bench.now, qpn, &RecvWr { wr_id, sges: &sges }).is_ok() {
            self.pending.insert((qpn.value(), true, wr_id), ());
        }
        Some(())
    }

    /// Now and then a queue pair is broken, or reset and connected again.
    fn change_state(&mut self, decisions: &mut Decisions<'_>) -> Option<()> {
        let choice = decisions.byte()?;
        let index = usize::from(choice) % QPS;
        match choice >> 5 {
            0 => self.bench.fail(index),
            1 => {
                self.bench.fail(index);
                self.drain();
                self.bench.reconnect(index);
                // A reset forgets the posted requests.
                let qpn = self.bench.qpns[index].value();
                self.pending.retain(|(owner, ..), ()| *owner != qpn);
            }
            _ => {}
        }
        Some(())
    }

    fn take_id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }

    /// The law: after anything is handled, every output is polled until it is empty.
    fn drain(&mut self) {
        let Bench { rnic, now, .. } = &mut self.bench;
        for burst in 0.. {
            assert!(burst < BURST_MAX, "one decision made the RNIC send without end");
            let Some(out) = rnic.poll_transmit(*now) else { break };
            let mut payload = Vec::with_capacity(out.payload.len() as usize);
            for span in out.payload.spans() {
                Guarded.check(span.addr, u64::from(span.length));
                payload.resize(payload.len() + span.length as usize, 0xA5);
            }
            let headers = *out.headers;
            if self.kept.len() < KEPT_MAX {
                self.kept.push(Kept { headers, payload });
            }
        }
        while let Some((_, completion)) = rnic.poll_completion() {
            let is_receive =
                matches!(completion.operation, CompletionOp::Receive | CompletionOp::ReceiveWriteImm);
            let key = (completion.qpn.value(), is_receive, completion.wr_id);
            assert!(self.pending.remove(&key).is_some(), "completed twice, or never posted: {completion:?}");
        }
        while rnic.poll_event().is_some() {}
    }
}

/// Memory that ends where the region ends.
struct Guarded;

impl Guarded {
    fn check(&self, addr: u64, length: u64) {
        let is_inside = addr >= REGION_ADDR && addr + length <= REGION_ADDR + REGION_BYTES;
        assert!(length == 0 || is_inside, "{length} bytes at {addr:#x} lie outside the region");
    }
}

impl Memory<&[u8]> for Guarded {
    fn place(&mut self, addr: u64, payload: &[u8]) -> Result<(), MemoryLost> {
        self.check(addr, payload.len() as u64);
        Ok(())
    }

    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), MemoryLost> {
        self.check(addr, bytes.len() as u64);
        Ok(())
    }

    fn compare_swap(&mut self, addr: u64, compare: u64, _swap: u64) -> Result<u64, MemoryLost> {
        self.check(addr, 8);
        assert!(addr.is_multiple_of(8), "an atomic at {addr:#x}");
        Ok(compare)
    }

    fn fetch_add(&mut self, addr: u64, add: u64) -> Result<u64, MemoryLost> {
        self.check(addr, 8);
        assert!(addr.is_multiple_of(8), "an atomic at {addr:#x}");
        Ok(add)
    }
}

/// The queue pair that `index` names, for forged packets.
fn destination(bench: &Bench, index: u8) -> Qpn {
    bench.qpns[usize::from(index) % QPS]
}
