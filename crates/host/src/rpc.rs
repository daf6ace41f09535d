//! FaSST RPCs in the real world: an endpoint of `highwire-rpc` on a UD queue pair, one per thread.
//!
//! One turn: sweep the completions, hand every datagram to the endpoint, post the receives again all at once,
//! resume workers, and ring one doorbell for everything that they and the handlers send. `docs/rpc.md` tells
//! the whole story.
#![allow(unsafe_code)]

mod config;
mod outgoing;
mod receives;

pub use config::{Idle, RpcConfig, RpcError};
pub use highwire_rpc::{
    Batch, CallError, ClusterKey, Config as EndpointConfig, Counters as RpcCounters, NestedRequest, Node,
    Optimisations, Parcel, ParcelId, Replies, Reply, Request, RequestType, Response, ReturnedParcel, Running,
    SpawnError, Worker, wire,
};
pub use highwire_stdx as time;

use crate::clock::Clock;
use crate::completion_queue::{CompletionQueue, EMPTY, WaitFor};
use crate::device::Device;
use crate::endpoint::Endpoint;
use crate::queue_pair::{QueuePair, QueuePairConfig};
use highwire_rpc::{GRH_BYTES, Received};
use highwire_stdx::Instant;
use highwire_verbs::{Address, Completion, CompletionOp, CompletionStatus, Datagram, QpCaps, Service};
use outgoing::Sends;
use receives::Receives;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Completions taken in one sweep.
const SWEEP: usize = 64;
/// Turns without work between two looks at the clock.
const TURNS_PER_CLOCK: u32 = 16;
/// Turns without work until a thread that may sleep, or let others run, does so.
const TURNS_AWAKE: u32 = 2000;
/// The longest sleep.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// The driver's counters, beside its endpoint's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DriverCounters {
    /// Sweeps that found datagrams.
    pub sweeps: u64,
    /// Chains of datagrams posted: doorbells.
    pub doorbells: u64,
    /// Times that receives were posted, one or many.
    pub receive_posts: u64,
    /// Completions with an error.
    pub failed: u64,
    /// Times that the send queue was full.
    pub full: u64,
}

/// An endpoint on a queue pair. It belongs to one thread.
pub struct Rpc {
    endpoint: highwire_rpc::Endpoint,
    // Dropped before the memory that it names.
    qp: QueuePair,
    cq: CompletionQueue,
    receives: Receives,
    sends: Sends,
    clock: Clock,
    now: Instant,
    idle: Idle,
    idle_turns: u32,
    is_rung: Arc<AtomicBool>,
    optimisations: Optimisations,
    qkey: u32,
    counters: DriverCounters,
    swept: Box<[Completion; SWEEP]>,
    /// Receives that are to be posted again.
    used: Vec<u32>,
}

impl Rpc {
    /// An endpoint on a queue pair of its own.
    ///
    /// # Errors
    /// [`RpcError`].
    pub fn open(device: &Device, config: RpcConfig) -> Result<Rpc, RpcError> {
        let mut endpoint_config = config.endpoint;
        endpoint_config.datagram_bytes = endpoint_config.datagram_bytes.min(device.mtu().bytes() as u16);
        let (optimisations, qkey) = (endpoint_config.optimisations, endpoint_config.qkey);
        let cq = device.create_completion_queue(&crate::CompletionQueueConfig {
            lane: config.lane,
            ..crate::CompletionQueueConfig::new(config.receives + config.sends)
        })?;
        let caps = QpCaps {
            max_send_wr: config.sends,
            max_recv_wr: config.receives,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline: outgoing::INLINE_MAX as u32,
        };
        let pd = device.protection_domain();
        let qp = pd.queue_pair(&QueuePairConfig { caps, ..QueuePairConfig::new(Service::Ud, &cq) })?;
        let receives = Receives::new(&pd, config.receives, device.mtu().bytes())?;
        let sends = Sends::new(&pd, config.sends, device.mtu().bytes())?;
        qp.activate(qkey).map_err(RpcError::Connect)?;
        let all: Vec<u32> = (0..config.receives).collect();
        receives.post(&qp, &all)?;
        let clock = device.owner().clock.clone();
        Ok(Rpc {
            endpoint: highwire_rpc::Endpoint::new(endpoint_config),
            qp,
            cq,
            receives,
            sends,
            now: clock.now(),
            clock,
            idle: config.idle,
            idle_turns: 0,
            is_rung: Arc::default(),
            optimisations,
            qkey,
            counters: DriverCounters::default(),
            swept: Box::new([EMPTY; SWEEP]),
            used: Vec::with_capacity(SWEEP),
        })
    }

    /// The endpoint that peers need to reach it.
    pub fn address(&self) -> Endpoint {
        self.qp.endpoint()
    }

    /// Adds a peer, or gives it another address.
    ///
    /// # Errors
    /// [`RpcError::Peer`].
    pub fn connect(&mut self, node: Node, address: &Endpoint) -> Result<(), RpcError> {
        let to = Datagram { address: Address::new(address.gid), qpn: address.qpn, qkey: self.qkey };
        self.endpoint.add_peer(node, to).map_err(RpcError::Peer)
    }

    /// The driver's counters.
    pub fn driver_counters(&self) -> DriverCounters {
        self.counters
    }

    /// The time as of the last turn.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// One turn. Returns whether there was anything to do.
    pub fn poll(&mut self) -> bool {
        let taken = self.cq.poll(&mut self.swept[..]);
        let was_ready = self.endpoint.has_work();
        if taken > 0 || was_ready || self.idle_turns.is_multiple_of(TURNS_PER_CLOCK) {
            self.now = self.clock.now();
        }
        if taken > 0 {
            self.sweep(taken);
        }
        if self.endpoint.poll_timeout().is_some_and(|at| at <= self.now) {
            self.endpoint.handle_timeout(self.now);
        }
        self.endpoint.run(self.now);
        let sent = self.transmit();
        let has_worked = taken > 0 || was_ready || sent > 0;
        self.idle_turns = if has_worked { 0 } else { self.idle_turns.wrapping_add(1) };
        has_worked
    }

    fn sweep(&mut self, taken: usize) {
        self.counters.sweeps += 1;
        for at in 0..taken {
            let completion = self.swept[at];
            if completion.operation != CompletionOp::Receive {
                self.counters.failed += u64::from(completion.status != CompletionStatus::Success);
                continue;
            }
            let index = completion.wr_id as u32;
            if completion.status == CompletionStatus::Success {
                let (grh, bytes) = self.receives.datagram(index, completion.byte_len);
                let immediate = completion.immediate;
                let received =
                    Received { immediate, source_qpn: completion.source_qpn, grh: Some(grh), bytes };
                // A datagram without an immediate is not of this protocol; it counts as a greeting here, and
                // its header shows that it is none.
                self.endpoint.handle_receive(self.now, &received);
            } else {
                self.counters.failed += 1;
                continue;
            }
            if self.optimisations.cheap_receives {
                self.used.push(index);
            } else {
                self.post_receives(&[index]);
            }
            if !self.optimisations.response_batching {
                self.transmit();
            }
        }
        if !self.used.is_empty() {
            let mut used = std::mem::take(&mut self.used);
            self.post_receives(&used);
            used.clear();
            self.used = used;
        }
    }

    fn post_receives(&mut self, indices: &[u32]) {
        self.counters.receive_posts += 1;
        // Refused only by a queue pair in error, which shows in its completions.
        let posted = self.receives.post(&self.qp, indices);
        self.counters.failed += u64::from(posted.is_err());
    }

    /// Sends all of the endpoint's datagrams.
    fn transmit(&mut self) -> u32 {
        let (sends, counters) = (&mut self.sends, &mut self.counters);
        if !self.optimisations.doorbell_batching {
            let qp = &self.qp;
            return self.endpoint.transmit(|outgoing| {
                counters.doorbells += 1;
                qp.chain(|chain| sends.post(chain, outgoing, counters))
            });
        }
        if !self.endpoint.has_output() {
            return 0;
        }
        let endpoint = &mut self.endpoint;
        counters.doorbells += 1;
        self.qp.chain(|chain| endpoint.transmit(|outgoing| sends.post(chain, outgoing, counters)))
    }

    /// One turn. After many without work, idles as [`Idle`] says.
    pub fn step(&mut self) {
        if self.poll() || self.idle_turns < TURNS_AWAKE {
            return;
        }
        match self.idle {
            Idle::Spin => {}
            Idle::Yield => std::thread::yield_now(),
            Idle::Sleep => {
                self.now = self.clock.now();
                let due = self.endpoint.poll_timeout().map(|at| at.saturating_since(self.now).into());
                let at_most = due.unwrap_or(SLEEP_MAX).min(SLEEP_MAX);
                if self.cq.wait(WaitFor::Any, at_most) {
                    self.idle_turns = 0;
                }
                self.now = self.clock.now();
            }
        }
    }

    /// Ends this thread's [`sleep`](Self::sleep) from another thread.
    pub fn bell(&self) -> Bell {
        Bell { cq: self.cq.clone(), is_rung: Arc::clone(&self.is_rung) }
    }

    /// Sleeps until something comes, the endpoint has something to do, its bell is rung, or `at_most` has passed. For drivers with work of
    /// their own; others let [`step`](Self::step) decide.
    pub fn sleep(&mut self, at_most: Duration) {
        self.sleep_beside(None, at_most);
    }

    /// The same for two endpoints of a device: until something comes for either, or either has something to do.
    pub fn sleep_beside(&mut self, mut other: Option<&mut Rpc>, at_most: Duration) {
        let mut at_most = at_most;
        for rpc in [Some(&mut *self), other.as_deref_mut()].into_iter().flatten() {
            rpc.idle_turns = 0;
            rpc.now = rpc.clock.now();
            let due = rpc.endpoint.poll_timeout().map(|at| at.saturating_since(rpc.now).into());
            at_most =
                if rpc.endpoint.has_work() { Duration::ZERO } else { due.unwrap_or(at_most).min(at_most) };
        }
        if !at_most.is_zero() {
            let is_over = || {
                self.is_rung.load(Ordering::SeqCst)
                    || other.as_ref().is_some_and(|other| other.cq.is_waiting(WaitFor::Any))
            };
            self.cq.wait_or(WaitFor::Any, at_most, &is_over);
        }
        self.is_rung.store(false, Ordering::SeqCst);
        for rpc in [Some(self), other].into_iter().flatten() {
            rpc.now = rpc.clock.now();
        }
    }

    /// Runs until a worker has its result.
    pub fn run_until<T>(&mut self, running: &Running<T>) -> T {
        loop {
            if let Some(value) = running.take() {
                return value;
            }
            self.step();
        }
    }

    /// Runs a worker to its end, and everything else meanwhile.
    ///
    /// # Errors
    /// [`SpawnError`]: there are as many workers as there can be.
    pub fn block_on<F>(&mut self, work: impl FnOnce(Worker) -> F) -> Result<F::Output, SpawnError>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let running = self.endpoint.spawn(work)?;
        Ok(self.run_until(&running))
    }

    /// Serves for ever.
    pub fn serve(&mut self) -> ! {
        loop {
            self.step();
        }
    }
}

/// Ends the sleep of an endpoint's thread. A ring that comes before the sleep is not lost.
#[derive(Clone)]
pub struct Bell {
    cq: CompletionQueue,
    is_rung: Arc<AtomicBool>,
}

impl Bell {
    /// Rings.
    pub fn ring(&self) {
        if !self.is_rung.swap(true, Ordering::SeqCst) {
            self.cq.wake();
        }
    }
}

impl std::ops::Deref for Rpc {
    type Target = highwire_rpc::Endpoint;

    fn deref(&self) -> &highwire_rpc::Endpoint {
        &self.endpoint
    }
}

impl std::ops::DerefMut for Rpc {
    fn deref_mut(&mut self) -> &mut highwire_rpc::Endpoint {
        &mut self.endpoint
    }
}

/// The bytes in front of the datagram in a receive.
const _: () = assert!(GRH_BYTES == 40);
