//! Receives that several queue pairs of one lane share.

use crate::completion_queue::{CompletionQueue, CqInner};
use crate::config;
use crate::engine::{Bell, SrqEnds};
use crate::error::CreateError;
use crate::events::{EventTarget, Reporter};
use crate::queue_lock::QueueLock;
use crate::queue_pair::post_receive_in_ring;
use crate::receive_room::ReceiveRoom;
use crate::region::{PdInner, ProtectionDomain};
use crate::rings::{self, Home, Ring, RingFile};
use highwire_rings::{RECEIVE_RING, ReceiveQueueConsumer, ReceiveQueueProducer};
use highwire_shmem::{RingLayout, WholeSegment};
use highwire_verbs::{
    AsyncEvent, ModifyError, PostError, RecvWr, SrqId, TagHandle, TagRequest, TaggedBuffer, XrcDomain,
};
use highwire_wire::Qpn;
use std::sync::Arc;

/// A shared receive queue of one lane. Clones are the same queue; it lives until the last clone and the last queue pair
/// that takes from it are gone.
#[derive(Clone)]
pub struct SharedReceiveQueue {
    pub(crate) inner: Arc<SrqInner>,
}

pub(crate) struct SrqInner {
    pub(crate) pd: Arc<PdInner>,
    pub(crate) lane: u32,
    pub(crate) id: SrqId,
    index: u32,
    bell: u32,
    ring: QueueLock<ReceiveQueueProducer>,
    room: Arc<ReceiveRoom>,
    reporter: Reporter,
    number: Option<Qpn>,
    pub(crate) has_tags: bool,
    /// Its completion queue, if it is of XRC or has tags.
    _cq: Option<Arc<CqInner>>,
    /// Its ring, if another program maps that.
    file: Option<WholeSegment>,
}

/// The attributes that a shared receive queue reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SrqSnapshot {
    /// Receives that it holds.
    pub max_wr: u32,
    /// SGEs of one receive.
    pub max_sge: u32,
    /// The limit; zero when none is set, or once it has been reported.
    pub limit: u32,
    /// Receives that wait.
    pub waiting: u32,
}

/// The configuration of a shared receive queue.
#[derive(Clone, Copy)]
pub struct SharedReceiveQueueConfig<'a> {
    /// The lane that it and its queue pairs live in.
    pub lane: u32,
    /// Receives that it holds.
    pub max_wr: u32,
    /// SGEs of one receive, at most 16.
    pub max_sge: u32,
    /// Where its asynchronous events go, if not to the device's own queue.
    pub events: Option<EventTarget<'a>>,
    /// For XRC: it serves targets of this domain and lane, and its receives complete in this queue.
    pub xrc: Option<(XrcDomain, &'a CompletionQueue)>,
    /// For tag matching: how many buffers its list holds, and the queue in which all its requests complete.
    /// Not together with `xrc`.
    pub tags: Option<(u32, &'a CompletionQueue)>,
}

impl SharedReceiveQueueConfig<'_> {
    /// A queue in lane 0.
    pub fn new(max_wr: u32, max_sge: u32) -> SharedReceiveQueueConfig<'static> {
        SharedReceiveQueueConfig { lane: 0, max_wr, max_sge, events: None, xrc: None, tags: None }
    }
}

impl SharedReceiveQueue {
    pub(crate) fn create(
        pd: &ProtectionDomain,
        config: &SharedReceiveQueueConfig<'_>,
    ) -> Result<SharedReceiveQueue, CreateError> {
        SharedReceiveQueue::create_in(pd, config, Home::Arena(&pd.inner.device.arenas.rings))
    }

    /// The same, with the ring in a place of the caller's choice.
    pub(crate) fn create_in(
        pd: &ProtectionDomain,
        config: &SharedReceiveQueueConfig<'_>,
        home: Home<'_>,
    ) -> Result<SharedReceiveQueue, CreateError> {
        let &SharedReceiveQueueConfig { lane, max_wr, max_sge, events, xrc, tags } = config;
        let own_cq = xrc.map(|(_, cq)| cq).or(tags.map(|(_, cq)| cq));
        if own_cq.is_some_and(|cq| cq.inner.lane != lane || !Arc::ptr_eq(&cq.inner.device, &pd.inner.device))
        {
            return Err(CreateError::OtherLane);
        }
        let slot_bytes = rings::receive_slot_bytes(max_sge);
        let layout = RingLayout::new(RECEIVE_RING, max_wr.max(1), slot_bytes)?;
        let Ring { window: ring, file } = home.create(&layout)?;
        let consumer = ReceiveQueueConsumer::attach(&ring)?;
        let device = &pd.inner.device;
        let reporter = Reporter::new(events, &device.events);
        let room = Arc::new(ReceiveRoom::new(max_wr));
        let (id, number, index, bell) =
            device.lane(lane).ok_or(CreateError::NoSuchLane(lane))?.control(|engine| {
                let (rnic, pd) = (&mut engine.rnic, pd.inner.pd);
                let (id, number) = match (xrc, tags) {
                    (Some((domain, cq)), _) => rnic
                        .create_xrc_srq(pd, domain, cq.inner.id, max_wr, max_sge)
                        .map(|(id, number)| (id, Some(number)))?,
                    (None, Some((tags, cq))) => {
                        (rnic.create_tagged_srq(pd, cq.inner.id, tags, max_wr, max_sge)?, None)
                    }
                    (None, None) => (rnic.create_srq(pd, max_wr, max_sge)?, None),
                };
                let index = engine.add_srq(SrqEnds {
                    id,
                    rq: consumer,
                    room: Arc::clone(&room),
                    reporter: reporter.clone(),
                });
                let bell = engine.add_bell(Bell::Shared(index));
                if bell.is_none() {
                    engine.remove_srq(index);
                    let _ = engine.rnic.destroy_srq(id);
                }
                Ok::<_, CreateError>((id, number, index, bell.ok_or(CreateError::TooManyQueues)?))
            })?;
        let ring = QueueLock::new(ReceiveQueueProducer::attach(&ring)?);
        Ok(SharedReceiveQueue {
            inner: Arc::new(SrqInner {
                pd: Arc::clone(&pd.inner),
                lane,
                id,
                index,
                bell,
                ring,
                room,
                reporter,
                number,
                has_tags: tags.is_some(),
                _cq: own_cq.map(|cq| Arc::clone(&cq.inner)),
                file,
            }),
        })
    }

    /// The file of its ring, for another program, and the bell that this program rings.
    pub(crate) fn ring_file(&self) -> (RingFile, u32) {
        (Ring::place(self.inner.file.as_ref()), self.inner.bell)
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted.
    pub fn post_recv(&self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let inner = &*self.inner;
        let device = &inner.pd.device;
        let lane = &device.lanes[inner.lane as usize];
        if lane.is_inherited() {
            return Err(PostError::Inherited);
        }
        if !inner.room.take() {
            return Err(PostError::QueueFull);
        }
        let posted = self.post_anywhere(wr);
        if posted.is_err() {
            inner.room.give_back();
        }
        posted
    }

    /// To the RNIC, or into the ring if another thread runs the engine.
    fn post_anywhere(&self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let inner = &*self.inner;
        let device = &inner.pd.device;
        let lane = &device.lanes[inner.lane as usize];
        if device.engine != config::Engine::Background
            && let Some(result) = lane.visit(|engine| engine.post_shared(inner.index, wr))
        {
            return result;
        }
        let posted = post_receive_in_ring(&inner.ring, wr);
        lane.board.ring_seqcst(inner.bell);
        if device.engine == config::Engine::Background {
            device.waker.wake();
        } else {
            lane.serve_bells();
        }
        posted
    }

    /// Adds a buffer for a message with a tag.
    ///
    /// # Errors
    /// [`PostError::QueueFull`]; [`PostError::NoSuchQueue`] if the queue does not match tags.
    pub fn add_tag(&self, buffer: TaggedBuffer, request: &TagRequest) -> Result<TagHandle, PostError> {
        let inner = &*self.inner;
        inner.pd.device.lanes[inner.lane as usize].control(|engine| engine.add_tag(inner.id, buffer, request))
    }

    /// Takes a buffer back; if a message was faster, the completion tells.
    ///
    /// # Errors
    /// [`PostError::NoSuchQueue`] if the queue does not match tags.
    pub fn remove_tag(&self, handle: TagHandle, request: &TagRequest) -> Result<(), PostError> {
        let inner = &*self.inner;
        inner.pd.device.lanes[inner.lane as usize]
            .control(|engine| engine.remove_tag(inner.id, handle, request))
    }

    /// Tells the queue how many unexpected messages the application has seen. Until it has seen all, the
    /// queue refuses new buffers.
    ///
    /// # Errors
    /// [`PostError::NoSuchQueue`] if the queue does not match tags.
    pub fn sync_tags(&self, request: &TagRequest) -> Result<(), PostError> {
        let inner = &*self.inner;
        inner.pd.device.lanes[inner.lane as usize].control(|engine| engine.sync_tags(inner.id, request))
    }

    /// The number by which peers name it, if it is of XRC.
    pub fn number(&self) -> Option<Qpn> {
        self.inner.number
    }

    /// Its attributes now.
    pub fn query(&self) -> SrqSnapshot {
        let inner = &*self.inner;
        inner.pd.device.lanes[inner.lane as usize].control(|engine| {
            // Receives that wait in the ring count as posted.
            engine.fetch_shared(inner.index);
            let queue = engine.rnic.srq_mut(inner.id).expect("the queue lives as long as this value");
            let (max_wr, max_sge) = queue.capacity();
            SrqSnapshot { max_wr, max_sge, limit: queue.limit(), waiting: queue.len() }
        })
    }

    /// Changes how many receives it holds, and its limit, as [`set_limit`](Self::set_limit) does; `None` leaves either as it is.
    ///
    /// # Errors
    /// [`ModifyError::OutOfRange`]: more receives wait than would fit, or the limit is beyond what it holds. Nothing has
    /// changed then.
    pub fn modify(&self, max_wr: Option<u32>, limit: Option<u32>) -> Result<(), ModifyError> {
        let inner = &*self.inner;
        inner.pd.device.lanes[inner.lane as usize].control(|engine| {
            engine.fetch_shared(inner.index);
            let queue = engine.rnic.srq_mut(inner.id).ok_or(ModifyError::NoSuchQp)?;
            let holds = max_wr.unwrap_or(queue.capacity().0);
            if limit.is_some_and(|limit| limit > holds) {
                return Err(ModifyError::OutOfRange("limit"));
            }
            if !(1..=highwire_rnic::Rnic::QUEUE_MAX).contains(&holds) || !queue.resize(holds) {
                return Err(ModifyError::OutOfRange("max_wr"));
            }
            if let Some(limit) = limit {
                queue.set_limit(limit);
            }
            inner.room.set_limit(holds);
            Ok(())
        })
    }

    /// Asks for an event when fewer than `limit` receives are left; once, and not again until asked again.
    pub fn set_limit(&self, limit: u32) {
        self.inner.pd.device.lanes[self.inner.lane as usize].control(|engine| {
            if let Some(queue) = engine.rnic.srq_mut(self.inner.id) {
                queue.set_limit(limit);
            }
        });
    }
}

impl SrqInner {
    /// Its place among the lane's shared receive queues.
    pub(crate) fn index(&self) -> u32 {
        self.index
    }
}

impl Drop for SrqInner {
    fn drop(&mut self) {
        let lane = &self.pd.device.lanes[self.lane as usize];
        if lane.is_inherited() {
            return;
        }
        lane.control(|engine| {
            engine.remove_bell(self.bell);
            engine.remove_srq(self.index);
            // Refused only while a queue pair uses the queue, but then the queue would still be alive.
            let _ = engine.rnic.destroy_srq(self.id);
        });
        self.reporter.forget(|event| *event == AsyncEvent::SrqLimitReached(self.id));
    }
}
