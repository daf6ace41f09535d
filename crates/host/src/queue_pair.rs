//! Queue pairs: posting, connecting, changing.
//!
//! A post runs the engine at once if no other thread does, so that a packet leaves before the call returns; otherwise it leaves
//! the request in the shared ring for the thread that runs the engine.

mod connect;
mod create;

pub use connect::ConnectOptions;
pub use create::{QueuePairConfig, XrcTargetConfig};

use crate::completion_queue::CqInner;
use crate::config;
use crate::endpoint::Endpoint;
use crate::engine::MulticastError;
use crate::error::ChainError;
use crate::events::Reporter;
use crate::lane::Lane;
use crate::queue_lock::{Held, QueueLock};
use crate::receive_room::ReceiveRoom;
use crate::region::PdInner;
use crate::rings::{Ring, RingFile};
use crate::shared_receive_queue::SrqInner;
use highwire_rings::{ReceiveQueueProducer, SendQueueProducer};
use highwire_rnic::QpSnapshot;
use highwire_shmem::{WholeSegment, Window};
use highwire_verbs::{DenialCause, Gid, PostError, QpState, RecvWr, SendWr, Service};
use highwire_wake::world::may_switch;
use highwire_wire::{Psn, Qpn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// With fewer free places than this, a thread waits for the engine rather than post past it.
const NEARLY_FULL: u64 = 64;
/// How often a post then tries to get the engine. Not for ever: this very thread may be running the engine,
/// interrupted by a signal handler.
const PATIENCE: u32 = 10_000;

/// A queue pair. Dropping it destroys it; requests that have not completed then never will.
pub struct QueuePair {
    pd: Arc<PdInner>,
    send_cq: Arc<CqInner>,
    recv_cq: Arc<CqInner>,
    _srq: Option<Arc<SrqInner>>,
    service: Service,
    reporter: Reporter,
    qpn: Qpn,
    /// The first PSN that it will send: random, unless a change of attributes says otherwise.
    psn: Psn,
    /// Its place among the lane's queue pairs, and the doorbell of both its queues.
    index: u32,
    bell: u32,
    sq: QueueLock<SendQueueProducer>,
    rq: Option<QueueLock<ReceiveQueueProducer>>,
    /// IRN was asked for; whether it is used is up to the peer.
    wants_irn: AtomicBool,
    /// Where requests keep their places: how many are in use, and how many there are.
    places: Option<(Arc<AtomicU64>, u64)>,
    /// The places of its own receive queue, where they are counted.
    room: Option<Arc<ReceiveRoom>>,
    /// Its send and receive rings, if another program maps them.
    files: (Option<WholeSegment>, Option<WholeSegment>),
    /// Its receives wait in their ring, and guests may take them.
    on_demand: bool,
}

/// The rings and the bell of a queue pair, for another program that posts to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueuePairFiles {
    pub(crate) sq: RingFile,
    pub(crate) rq: RingFile,
    pub(crate) bell: u32,
}

impl QueuePair {
    /// Its number.
    pub fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// Its service.
    pub fn service(&self) -> Service {
        self.service
    }

    /// The endpoint that a peer needs to connect to it.
    pub fn endpoint(&self) -> Endpoint {
        Endpoint { gid: self.pd.device.gid, qpn: self.qpn, psn: self.psn }
    }

    /// Posts a chain of requests in order.
    ///
    /// A request with `flags.inline` is refused here: inline data comes as bytes, through [`chain`](Self::chain).
    ///
    /// # Errors
    /// The first request that was refused; those before it are posted.
    #[inline]
    pub fn post_send(&self, requests: &[SendWr<'_>]) -> Result<(), ChainError> {
        self.chain(|chain| {
            for (index, wr) in requests.iter().enumerate() {
                chain.push(wr).map_err(|error| ChainError { index, error })?;
            }
            Ok(())
        })
    }

    /// Posts one request whose data is `data`, copied before the call returns. The SGEs of `wr` are not looked at.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    #[inline]
    pub fn post_inline(&self, wr: &SendWr<'_>, data: &[u8]) -> Result<(), PostError> {
        self.chain(|chain| chain.push_inline(wr, data))
    }

    /// Builds a chain of requests and rings one doorbell for all of them.
    #[inline]
    pub fn chain<R>(&self, build: impl FnOnce(&mut Chain<'_>) -> R) -> R {
        if self.lane().is_inherited() {
            return build(&mut Chain { sink: Sink::Refuses(PostError::Inherited) });
        }
        if self.pd.device.engine != config::Engine::Background {
            let mut build = Some(build);
            let mut patience = if self.is_nearly_full() { PATIENCE } else { 0 };
            let mut direct = || {
                self.lane().visit(|engine| {
                    let build = build.take()?;
                    engine.begin_post();
                    let sink = if engine.sends_wait(self.index) {
                        self.ring_sink()
                    } else {
                        Sink::Engine(engine, self.index)
                    };
                    let mut chain = Chain { sink };
                    let result = build(&mut chain);
                    match chain.sink {
                        Sink::Engine(engine, _) => engine.finish_post(),
                        Sink::Ring(mut producer) => {
                            producer.publish_release();
                            self.lane().board.ring_seqcst(self.bell);
                            self.lane().leave_work();
                        }
                        Sink::Refuses(_) => {}
                    }
                    Some(result)
                })
            };
            loop {
                if let Some(Some(result)) = direct() {
                    return result;
                }
                if patience == 0 {
                    break;
                }
                patience -= 1;
                highwire_wake::yield_core();
            }
            let Some(build) = build else { unreachable!("a chain that was built has a result") };
            return self.chain_in_ring(build);
        }
        self.chain_in_ring(build)
    }

    /// Whether only the engine can tell that there is a place for every request of a chain.
    #[inline]
    fn is_nearly_full(&self) -> bool {
        self.places
            .as_ref()
            .is_some_and(|(used, places)| used.load(Ordering::Relaxed) + NEARLY_FULL > *places)
    }

    fn chain_in_ring<R>(&self, build: impl FnOnce(&mut Chain<'_>) -> R) -> R {
        let mut chain = Chain { sink: self.ring_sink() };
        let result = build(&mut chain);
        if let Sink::Ring(mut producer) = chain.sink {
            producer.publish_release();
            may_switch();
        }
        self.ring();
        result
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted. With a shared receive queue, receives are posted there.
    #[inline]
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let Some(rq) = &self.rq else { return Err(PostError::NoSuchQueue) };
        if self.lane().is_inherited() {
            return Err(PostError::Inherited);
        }
        let Some(room) = &self.room else { return self.post_recv_anywhere(rq, wr) };
        if !room.take() {
            return Err(PostError::QueueFull);
        }
        let posted = self.post_recv_anywhere(rq, wr);
        if posted.is_err() {
            room.give_back();
        }
        posted
    }

    /// To the RNIC, or into the ring if another thread runs the engine.
    #[inline]
    fn post_recv_anywhere(
        &self,
        rq: &QueueLock<ReceiveQueueProducer>,
        wr: &RecvWr<'_>,
    ) -> Result<(), PostError> {
        if self.pd.device.engine != config::Engine::Background
            && let Some(result) = self.lane().visit(|engine| engine.post_receive(self.index, wr))
        {
            return result;
        }
        let posted = post_receive_in_ring(rq, wr);
        self.ring();
        posted
    }

    /// Posts receives in order, with one look at the queue for all of them.
    ///
    /// # Errors
    /// The first receive that was refused; those before it are posted.
    #[inline]
    pub fn post_recv_chain(&self, requests: &[RecvWr<'_>]) -> Result<(), ChainError> {
        let Some(rq) = &self.rq else { return Err(ChainError { index: 0, error: PostError::NoSuchQueue }) };
        if self.lane().is_inherited() {
            return Err(ChainError { index: 0, error: PostError::Inherited });
        }
        if self.room.is_some() {
            let one = |(index, wr)| self.post_recv(wr).map_err(|error| ChainError { index, error });
            return requests.iter().enumerate().try_for_each(one);
        }
        if self.pd.device.engine != config::Engine::Background
            && let Some(result) = self.lane().visit(|engine| engine.post_receives(self.index, requests))
        {
            return result;
        }
        let posted = post_receives_in_ring(rq, requests);
        self.ring();
        posted
    }

    /// Lets the queue pair (UD) take datagrams that are sent to a multicast group: one of IPv4, mapped as addresses are, or of
    /// IPv6. Senders name queue pair [`Qpn::MULTICAST`]. A device of IPv4 reaches groups of IPv6 only at other Highwires.
    /// Attaching twice has the effect of attaching once.
    ///
    /// # Errors
    /// [`MulticastError`].
    pub fn attach_multicast(&self, group: Gid) -> Result<(), MulticastError> {
        self.lane().control(|engine| engine.attach(self.qpn, group))
    }

    /// Takes the queue pair out of a group; false if it was not in it.
    pub fn detach_multicast(&self, group: Gid) -> bool {
        self.lane().control(|engine| engine.detach(self.qpn, group))
    }

    /// Its attributes and state now.
    pub fn query(&self) -> QpSnapshot {
        let snapshot = self.lane().control(|engine| engine.rnic.query_qp(self.qpn));
        snapshot.expect("the queue pair lives as long as this value")
    }

    /// Why a request of its own or a peer's was refused last, as far as a key or a right was the cause.
    pub fn last_denial(&self) -> Option<DenialCause> {
        self.lane().control(|engine| engine.last_denial(self.qpn))
    }

    /// Its state now.
    pub fn state(&self) -> QpState {
        self.query().state
    }

    /// Announces work in a ring.
    fn ring(&self) {
        self.lane().board.ring_seqcst(self.bell);
        may_switch();
        if self.pd.device.engine == config::Engine::Background {
            self.pd.device.waker.wake();
        } else {
            self.lane().serve_bells();
        }
    }

    /// The files of its rings, for another program, and the bell that this program rings for both.
    pub(crate) fn files(&self) -> QueuePairFiles {
        let (sq, rq) = &self.files;
        QueuePairFiles { sq: Ring::place(sq.as_ref()), rq: Ring::place(rq.as_ref()), bell: self.bell }
    }

    /// The send ring, if another program maps it.
    pub(crate) fn mapped_sq(&self) -> Option<&Window> {
        self.files.0.as_ref().map(WholeSegment::window)
    }

    pub(crate) fn send_cq(&self) -> &Arc<CqInner> {
        &self.send_cq
    }

    #[inline]
    pub(crate) fn lane(&self) -> &Lane {
        self.send_cq.lane()
    }

    fn ring_sink(&self) -> Sink<'_> {
        self.sq.lock().map_or(Sink::Refuses(PostError::Reentered), Sink::Ring)
    }
}

/// A chain of send requests that is being built.
pub struct Chain<'a> {
    sink: Sink<'a>,
}

enum Sink<'a> {
    Engine(&'a mut crate::engine::Engine, u32),
    Ring(Held<'a, SendQueueProducer>),
    Refuses(PostError),
}

impl Chain<'_> {
    /// Whether all these requests would be taken now, one behind the other; with each, how many bytes of inline data it brings along.
    ///
    /// While another thread runs the engine, only room and lengths can be looked at.
    ///
    /// # Errors
    /// Why the first one that would not be taken is refused.
    pub fn check<'w>(
        &mut self,
        requests: impl ExactSizeIterator<Item = (SendWr<'w>, Option<usize>)>,
    ) -> Result<(), PostError> {
        match &mut self.sink {
            Sink::Engine(engine, index) => {
                for (ahead, (wr, inline)) in requests.enumerate() {
                    engine.check_send(*index, &wr, inline, ahead)?;
                }
            }
            Sink::Ring(producer) => {
                let free = producer.free_slots().map_err(|_| PostError::NoSuchQueue)?;
                if requests.len() as u64 > free {
                    return Err(PostError::QueueFull);
                }
                for (wr, inline) in requests {
                    producer.check(&wr, inline)?;
                }
            }
            Sink::Refuses(why) => return Err(*why),
        }
        Ok(())
    }

    /// Adds a request.
    ///
    /// # Errors
    /// [`PostError`]; the request is not in the chain.
    #[inline]
    pub fn push(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        if wr.flags.inline {
            return Err(PostError::Unsupported);
        }
        match &mut self.sink {
            Sink::Engine(engine, index) => engine.post_send(*index, wr, None),
            Sink::Ring(producer) => producer.post(wr),
            Sink::Refuses(why) => Err(*why),
        }
    }

    /// Adds a request whose data is `data`, copied here. The SGEs of `wr` are not looked at.
    ///
    /// # Errors
    /// [`PostError`]; the request is not in the chain.
    #[inline]
    pub fn push_inline(&mut self, wr: &SendWr<'_>, data: &[u8]) -> Result<(), PostError> {
        match &mut self.sink {
            Sink::Engine(engine, index) => engine.post_send(*index, wr, Some(data)),
            Sink::Ring(producer) => producer.post_inline(wr, data),
            Sink::Refuses(why) => Err(*why),
        }
    }
}

pub(crate) fn post_receive_in_ring(
    ring: &QueueLock<ReceiveQueueProducer>,
    wr: &RecvWr<'_>,
) -> Result<(), PostError> {
    post_receives_in_ring(ring, std::slice::from_ref(wr)).map_err(|refused| refused.error)
}

fn post_receives_in_ring(
    ring: &QueueLock<ReceiveQueueProducer>,
    requests: &[RecvWr<'_>],
) -> Result<(), ChainError> {
    let mut ring = ring.lock().ok_or(ChainError { index: 0, error: PostError::Reentered })?;
    let mut refused = Ok(());
    for (index, wr) in requests.iter().enumerate() {
        if let Err(error) = ring.post(wr) {
            refused = Err(ChainError { index, error });
            break;
        }
    }
    ring.publish_release();
    refused
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if self.lane().is_inherited() {
            // The parent's peers still work through it.
            return;
        }
        self.disconnected();
        self.lane().control(|engine| {
            // The last packets, perhaps an acknowledgement, still leave.
            engine.begin_post();
            engine.finish_control();
            engine.remove_bell(self.bell);
            engine.remove_qp(self.index);
            let _ = engine.rnic.destroy_qp(self.qpn);
            engine.leave_empty_groups();
        });
        self.reporter.forget(|event| event.qpn() == Some(self.qpn));
    }
}
