//! Queue pairs: posting, connecting, changing.
//!
//! A post runs the engine at once if nobody else does, so that a packet leaves before the call returns; otherwise it
//! leaves the request in the shared ring for whoever runs the engine.

mod connect;
mod create;

pub use connect::ConnectOptions;
pub use create::{QueuePairConfig, XrcTargetConfig};

use crate::completion_queue::CqInner;
use crate::config;
use crate::convert;
use crate::endpoint::Endpoint;
use crate::engine::MulticastError;
use crate::error::ChainError;
use crate::events::Reporter;
use crate::lane::Lane;
use crate::region::PdInner;
use crate::shared_receive_queue::SrqInner;
use highwire_rnic::QpSnapshot;
use highwire_uapi::{self as uapi, MAX_SGES, ReceiveQueueProducer, SendQueueProducer, WqeData};
use highwire_verbs::{Gid, PostError, QpState, RecvWr, SendWr, Service};
use highwire_wire::{Psn, Qpn};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A queue pair. It is destroyed when dropped; what was posted and has not completed never will.
pub struct QueuePair {
    pd: Arc<PdInner>,
    send_cq: Arc<CqInner>,
    _recv_cq: Arc<CqInner>,
    _srq: Option<Arc<SrqInner>>,
    service: Service,
    reporter: Reporter,
    qpn: Qpn,
    /// The first PSN that it will send: random, unless a change of attributes says otherwise.
    psn: Psn,
    /// Its place among the lane's queue pairs, and its doorbells.
    index: u32,
    send_bell: u32,
    receive_bell: u32,
    sq: Mutex<SendQueueProducer>,
    rq: Option<Mutex<ReceiveQueueProducer>>,
    /// IRN was asked for; whether it is used is up to the peer.
    wants_irn: AtomicBool,
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

    /// What a peer needs to know to connect to it.
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
        if self.pd.device.engine != config::Engine::Background {
            let mut build = Some(build);
            let direct = self.lane().visit(|engine| {
                let build = build.take()?;
                engine.begin_post();
                let sink = if engine.sends_wait(self.index) {
                    Sink::Ring(self.producer())
                } else {
                    Sink::Engine(engine, self.index)
                };
                let mut chain = Chain { sink };
                let result = build(&mut chain);
                match chain.sink {
                    Sink::Engine(engine, _) => engine.finish_post(),
                    Sink::Ring(mut producer) => {
                        producer.publish_release();
                        self.lane().board.ring_seqcst(self.send_bell);
                        self.lane().leave_work();
                    }
                }
                Some(result)
            });
            if let Some(Some(result)) = direct {
                return result;
            }
            let Some(build) = build else { unreachable!("a chain that was built has a result") };
            return self.chain_in_ring(build);
        }
        self.chain_in_ring(build)
    }

    fn chain_in_ring<R>(&self, build: impl FnOnce(&mut Chain<'_>) -> R) -> R {
        let mut chain = Chain { sink: Sink::Ring(self.producer()) };
        let result = build(&mut chain);
        if let Sink::Ring(mut producer) = chain.sink {
            producer.publish_release();
        }
        self.ring(self.send_bell);
        result
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted. With a shared receive queue, receives are posted there.
    #[inline]
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let Some(rq) = &self.rq else { return Err(PostError::NoSuchQueue) };
        if self.pd.device.engine != config::Engine::Background
            && let Some(result) = self.lane().visit(|engine| engine.post_receive(self.index, wr))
        {
            return result;
        }
        let posted = post_receive_in_ring(rq, wr);
        self.ring(self.receive_bell);
        posted
    }

    /// Lets the queue pair (UD) take datagrams that are sent to a multicast group: one of IPv4, mapped as addresses are, or of
    /// IPv6. Whoever sends to it names queue pair [`Qpn::MULTICAST`]. A device of IPv4 reaches groups of IPv6 only at other
    /// Highwires. Attaching twice is no more than once.
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

    /// Its state now.
    pub fn state(&self) -> QpState {
        self.query().state
    }

    /// Announces work in a ring.
    fn ring(&self, bell: u32) {
        self.lane().board.ring_seqcst(bell);
        if self.pd.device.engine == config::Engine::Background {
            self.pd.device.waker.wake();
        } else {
            self.lane().serve_bells();
        }
    }

    pub(crate) fn send_cq(&self) -> &Arc<CqInner> {
        &self.send_cq
    }

    #[inline]
    pub(crate) fn lane(&self) -> &Lane {
        self.send_cq.lane()
    }

    fn producer(&self) -> MutexGuard<'_, SendQueueProducer> {
        self.sq.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A chain of send requests that is being built.
pub struct Chain<'a> {
    sink: Sink<'a>,
}

enum Sink<'a> {
    Engine(&'a mut crate::engine::Engine, u32),
    Ring(MutexGuard<'a, SendQueueProducer>),
}

impl Chain<'_> {
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
            Sink::Ring(producer) => post_send_in_ring(producer, wr),
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
            Sink::Ring(producer) => {
                producer.post(&convert::to_wqe(wr), WqeData::Inline(data)).map_err(from_ring_error)
            }
        }
    }
}

fn post_send_in_ring(producer: &mut SendQueueProducer, wr: &SendWr<'_>) -> Result<(), PostError> {
    let mut sges = [uapi::Sge::default(); MAX_SGES];
    let sges = if let highwire_verbs::Operation::BindWindow(bind) = wr.operation {
        // The slot has no field for the window's present key.
        sges[0].lkey = bind.window.0;
        &sges[..1]
    } else {
        collect(wr.sges, &mut sges)?
    };
    producer.post(&convert::to_wqe(wr), WqeData::Sges(sges)).map_err(from_ring_error)
}

pub(crate) fn post_receive_in_ring(
    ring: &Mutex<ReceiveQueueProducer>,
    wr: &RecvWr<'_>,
) -> Result<(), PostError> {
    let mut ring = ring.lock().unwrap_or_else(PoisonError::into_inner);
    let mut sges = [uapi::Sge::default(); MAX_SGES];
    ring.post(wr.wr_id, collect(wr.sges, &mut sges)?).map_err(from_ring_error)?;
    ring.publish_release();
    Ok(())
}

fn collect<'a>(
    from: &[highwire_verbs::Sge],
    to: &'a mut [uapi::Sge; MAX_SGES],
) -> Result<&'a [uapi::Sge], PostError> {
    let to = to.get_mut(..from.len()).ok_or(PostError::TooManySges)?;
    to.iter_mut().zip(from).for_each(|(to, from)| *to = convert::to_sge(from));
    Ok(to)
}

fn from_ring_error(error: uapi::PostError) -> PostError {
    match error {
        uapi::PostError::Full => PostError::QueueFull,
        uapi::PostError::TooManySges { .. } => PostError::TooManySges,
        uapi::PostError::InlineTooLong { .. } => PostError::TooLong,
        uapi::PostError::Corrupt(_) => PostError::NoSuchQueue,
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        if self.lane().is_inherited() {
            // The parent's peers still work through it.
            return;
        }
        self.disconnected();
        self.lane().control(|engine| {
            // What was said last, an acknowledgement perhaps, still leaves.
            engine.begin_post();
            engine.finish_control();
            engine.remove_bell(self.send_bell);
            engine.remove_bell(self.receive_bell);
            engine.remove_qp(self.index);
            let _ = engine.rnic.destroy_qp(self.qpn);
            engine.leave_empty_groups();
        });
        self.reporter.forget(|event| event.qpn() == Some(self.qpn));
    }
}
