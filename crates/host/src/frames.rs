//! Raw Ethernet frames: steering them to queue pairs, and spreading them over several.
//!
//! All Highwires that reach each other's multicast share one Ethernet segment. A raw packet queue pair sends whole
//! frames to it, and gets those that its rules ask for.

use crate::completion_queue::{CompletionQueue, CompletionQueueConfig, CqInner};
use crate::error::{ConnectError, CreateError, SteerError};
use crate::events::EventTarget;
use crate::queue_pair::{QueuePair, QueuePairConfig};
use crate::region::ProtectionDomain;
use highwire_rnic::{FlowCounts, FlowId};
use highwire_verbs::{FlowRule, QpAttr, QpCaps, QpState, Service, Spread};
use std::sync::Arc;

/// A steering rule that is in force; it ends when this is dropped, or with its queue pair.
pub struct Flow {
    cq: Arc<CqInner>,
    id: FlowId,
}

impl QueuePair {
    /// Takes a raw packet queue pair in RESET through INIT and RTR to RTS.
    ///
    /// # Errors
    /// [`ConnectError`]; the queue pair stays where it got to.
    pub fn activate_raw(&self) -> Result<(), ConnectError> {
        let mut states = [QpState::Init, QpState::Rtr, QpState::Rts].into_iter();
        states.try_for_each(|state| self.modify(&QpAttr::to_state(state))).map_err(ConnectError)
    }

    /// Lets the queue pair (RAW) have the frames of the segment that a rule asks for. Priorities count among
    /// the rules of one lane; other lanes and processes are other stations of the segment, whose rules do not
    /// compete with these.
    ///
    /// # Errors
    /// [`SteerError`].
    pub fn steer(&self, rule: FlowRule) -> Result<Flow, SteerError> {
        let id = self.lane().control(|engine| engine.add_flow(self.qpn(), rule))?;
        Ok(Flow { cq: Arc::clone(self.send_cq()), id })
    }
}

impl Flow {
    /// How much the rule has matched; zero once its queue pair has gone.
    pub fn counts(&self) -> FlowCounts {
        self.cq.lane().control(|engine| engine.rnic.flow_counts(self.id)).unwrap_or_default()
    }

    /// Ends the rule, and says how much it has matched.
    pub fn end(self) -> FlowCounts {
        self.cq.lane().control(|engine| engine.remove_flow(self.id)).unwrap_or_default()
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.cq.lane().dispose(|engine| engine.remove_flow(self.id));
    }
}

/// The configuration of a queue pair that spreads frames.
#[derive(Clone, Copy)]
pub struct SpreadConfig<'a> {
    /// The queues, by the hash's last bits; a power of two, at most 1024. They are raw packet queue pairs of one lane.
    pub table: &'a [&'a QueuePair],
    /// The hash.
    pub how: Spread,
    /// Where its asynchronous events go, if not to the device's own queue.
    pub events: Option<EventTarget<'a>>,
}

impl ProtectionDomain {
    /// Makes a raw packet queue pair without queues of its own: frames that are steered to it are spread over
    /// others. It is in RTS from the beginning.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn spreading_queue_pair(&self, config: &SpreadConfig<'_>) -> Result<QueuePair, CreateError> {
        let lane = config.table.first().map_or(0, |queue| queue.send_cq().lane);
        let is_foreign = |queue: &&QueuePair| {
            queue.send_cq().lane != lane || !Arc::ptr_eq(&queue.send_cq().device, &self.inner.device)
        };
        if config.table.iter().any(is_foreign) {
            return Err(CreateError::OtherLane);
        }
        // Nothing ever completes in this queue, but every queue pair must have one.
        let cq_config = CompletionQueueConfig { lane, ..CompletionQueueConfig::new(1) };
        let cq = CompletionQueue::create(&self.inner.device, &cq_config)?;
        let caps = QpCaps { max_send_wr: 0, max_recv_wr: 0, max_send_sge: 0, max_recv_sge: 0, max_inline: 0 };
        let qp_config =
            QueuePairConfig { caps, events: config.events, ..QueuePairConfig::new(Service::Raw, &cq) };
        let made = self.queue_pair(&qp_config)?;
        let table: Vec<_> = config.table.iter().map(|queue| queue.qpn()).collect();
        made.lane().control(|engine| engine.rnic.spread(made.qpn(), config.how, &table))?;
        made.activate_raw().map_err(|ConnectError(error)| error)?;
        Ok(made)
    }
}
