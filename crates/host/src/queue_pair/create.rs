//! Making a queue pair and its rings.

use super::QueuePair;
use crate::completion_queue::CompletionQueue;
use crate::device::Device;
use crate::engine::{Bell, InlineArena, OWN_SENDS, Places, QpEnds};
use crate::error::CreateError;
use crate::events::{EventTarget, Reporter};
use crate::queue_lock::QueueLock;
use crate::receive_room::ReceiveRoom;
use crate::region::ProtectionDomain;
use crate::rings::{self, Home};
use crate::shared_receive_queue::SharedReceiveQueue;
use highwire_rings::{
    MAX_INLINE_BYTES, MAX_SGES, RECEIVE_RING, ReceiveQueueConsumer, ReceiveQueueProducer, SEND_RING,
    SendQueueConsumer, SendQueueProducer,
};
use highwire_shmem::RingLayout;
use highwire_verbs::{QpCaps, QpConfig, Service, XrcDomain};
use highwire_wire::TagHeader;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The configuration of a queue pair.
#[derive(Clone)]
pub struct QueuePairConfig<'a> {
    /// The service.
    pub service: Service,
    /// The completion queue of sends; the queue pair lives in its lane.
    pub send_cq: &'a CompletionQueue,
    /// The completion queue of receives, in the same lane.
    pub recv_cq: &'a CompletionQueue,
    /// The shared receive queue, in the same lane; without one the queue pair has its own.
    pub srq: Option<&'a SharedReceiveQueue>,
    /// Sizes. At most 16 SGEs and 256 inline bytes.
    pub caps: QpCaps,
    /// Every send completes visibly, even without the signaled flag.
    pub signal_all: bool,
    /// A request keeps its place in the send queue until the program has polled its completion or a later
    /// one's, as with cards. Otherwise the place is free as soon as the request has ended. A thread that
    /// cannot get at the engine for long, because another one runs it, may post a few more than there are
    /// places. Receives are counted as well, and are never more than the queue was made for.
    pub keeps_places: bool,
    /// Where its asynchronous events go, if not to the device's own queue.
    pub events: Option<EventTarget<'a>>,
}

impl<'a> QueuePairConfig<'a> {
    /// A queue pair with default sizes that completes everything into one queue.
    pub fn new(service: Service, cq: &'a CompletionQueue) -> QueuePairConfig<'a> {
        QueuePairConfig {
            service,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            caps: QpCaps::default(),
            signal_all: false,
            keeps_places: false,
            events: None,
        }
    }
}

impl ProtectionDomain {
    /// Makes a queue pair in RESET.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn queue_pair(&self, config: &QueuePairConfig<'_>) -> Result<QueuePair, CreateError> {
        self.queue_pair_in(config, Home::Arena(&self.inner.device.arenas.rings), false)
    }

    /// The same, with the rings in a place of the caller's choice. `on_demand`: receives stay in their ring, unannounced, until a
    /// packet needs one or a guest takes one; for a connected service with a receive queue of its own.
    pub(crate) fn queue_pair_in(
        &self,
        config: &QueuePairConfig<'_>,
        home: Home<'_>,
        on_demand: bool,
    ) -> Result<QueuePair, CreateError> {
        let device = &self.inner.device;
        let (send_cq, recv_cq) = (&config.send_cq.inner, &config.recv_cq.inner);
        let srq = config.srq.map(|srq| &srq.inner);
        let owners = [&send_cq.device, &recv_cq.device].into_iter().chain(srq.map(|srq| &srq.pd.device));
        let lanes = [recv_cq.lane].into_iter().chain(srq.map(|srq| srq.lane));
        if owners.into_iter().any(|owner| !Arc::ptr_eq(owner, device))
            || lanes.into_iter().any(|lane| lane != send_cq.lane)
        {
            return Err(CreateError::OtherLane);
        }
        let caps = config.caps;
        if caps.max_send_sge.max(caps.max_recv_sge) as usize > MAX_SGES
            || caps.max_inline as usize > MAX_INLINE_BYTES
        {
            return Err(CreateError::RequestTooLarge { sges: MAX_SGES, inline_bytes: MAX_INLINE_BYTES });
        }
        let slot_bytes = rings::send_slot_bytes(caps.max_send_sge, caps.max_inline);
        let sq_layout = RingLayout::new(SEND_RING, caps.max_send_wr.max(1), slot_bytes)?;
        let sq_ring = home.create(&sq_layout)?;
        let sq = sq_ring.window;
        let rq_ring = match srq {
            Some(_) => None,
            None if config.service.is_xrc() => None,
            None => {
                let slot_bytes = rings::receive_slot_bytes(caps.max_recv_sge);
                let layout = RingLayout::new(RECEIVE_RING, caps.max_recv_wr.max(1), slot_bytes)?;
                Some(home.create(&layout)?)
            }
        };
        let (rq, rq_file) = match rq_ring {
            Some(ring) => (Some(ring.window), ring.file),
            None => (None, None),
        };
        // Tags make the queue pair post requests of its own.
        let own_caps = match srq {
            Some(srq) if srq.has_tags => QpCaps {
                max_send_wr: caps.max_send_wr + OWN_SENDS,
                max_send_sge: MAX_SGES as u32,
                max_inline: caps.max_inline.max(TagHeader::LEN as u32),
                ..caps
            },
            _ => caps,
        };
        let qp_config = QpConfig {
            service: config.service,
            pd: self.inner.pd,
            send_cq: send_cq.id,
            recv_cq: recv_cq.id,
            srq: srq.map(|srq| srq.id),
            caps: own_caps,
            signal_all: config.signal_all,
        };
        // The program cannot take completions of requests that the queue pair posts itself.
        let keeps_places = config.keeps_places && !srq.is_some_and(|srq| srq.has_tags);
        let used = keeps_places.then(Arc::default);
        let room = (keeps_places && rq.is_some()).then(|| Arc::new(ReceiveRoom::new(caps.max_recv_wr)));
        let consumers =
            (SendQueueConsumer::attach(&sq)?, rq.as_ref().map(ReceiveQueueConsumer::attach).transpose()?);
        let reporter = Reporter::new(config.events, &device.events);
        let (qpn, index, bell) = send_cq.lane().control(|engine| {
            let qpn = engine.rnic.create_qp(qp_config)?;
            let (sq, rq) = consumers;
            let index = engine.add_qp(QpEnds {
                qpn,
                send_cq: send_cq.id,
                recv_cq: recv_cq.id,
                sq,
                rq,
                holds: false,
                inline: InlineArena::new(own_caps.max_send_wr, own_caps.max_inline),
                places: used
                    .as_ref()
                    .map(|used| Box::new(Places::new(caps.max_send_wr, config.signal_all, Arc::clone(used)))),
                room: room.clone(),
                srq: srq.map(|srq| srq.index()),
                reporter: reporter.clone(),
                peer: None,
            });
            if on_demand {
                engine.take_on_demand(index);
            }
            let bell = engine.add_bell(Bell::Pair(index));
            if bell.is_none() {
                engine.remove_qp(index);
                let _ = engine.rnic.destroy_qp(qpn);
            }
            Ok::<_, CreateError>((qpn, index, bell.ok_or(CreateError::TooManyQueues)?))
        })?;
        Ok(QueuePair {
            pd: Arc::clone(&self.inner),
            send_cq: Arc::clone(send_cq),
            recv_cq: Arc::clone(recv_cq),
            _srq: srq.map(Arc::clone),
            service: config.service,
            reporter,
            qpn,
            psn: device.random_psn(),
            index,
            bell,
            sq: QueueLock::new(SendQueueProducer::attach(&sq)?),
            rq: rq.as_ref().map(ReceiveQueueProducer::attach).transpose()?.map(QueueLock::new),
            wants_irn: AtomicBool::new(false),
            places: used.map(|used| (used, u64::from(caps.max_send_wr))),
            room,
            files: (sq_ring.file, rq_file),
            on_demand,
        })
    }
}

/// The configuration of an XRC target.
#[derive(Clone, Copy, Debug)]
pub struct XrcTargetConfig<'a> {
    /// The domain whose shared receive queues peers may name.
    pub domain: XrcDomain,
    /// The lane that it and those queues live in.
    pub lane: u32,
    /// Where its asynchronous events go, if not to the device's own queue.
    pub events: Option<EventTarget<'a>>,
}

impl Device {
    /// Makes the answering half of an extended reliable connection, in RESET. It has no queues and no
    /// protection domain of its own: those of the shared receive queue that a request names count.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn xrc_target(&self, config: &XrcTargetConfig<'_>) -> Result<QueuePair, CreateError> {
        // Nothing ever completes in this queue, but every queue pair must have one.
        let cq = self.completion_queue_in(config.lane, 1)?;
        let caps = QpCaps { max_send_wr: 0, max_recv_wr: 0, max_send_sge: 0, max_recv_sge: 0, max_inline: 0 };
        let qp_config =
            QueuePairConfig { caps, events: config.events, ..QueuePairConfig::new(Service::XrcTarget, &cq) };
        let target = self.protection_domain().queue_pair(&qp_config)?;
        target.lane().control(|engine| engine.rnic.set_xrc_domain(target.qpn, config.domain));
        Ok(target)
    }
}
