//! The RNIC's end of the Ethernet segment: which raw packet queue pairs get a frame.
//!
//! Of the normal rules that match, those of the best priority decide; if they are several, each queue pair
//! gets a copy, as with multicast. Frames that no normal rule took go to the default rules. Sniffers get
//! every frame. A queue pair does not get its own frames, unless it sniffs.

use crate::rnic::{Rnic, with_qp};
use highwire_stdx::Instant;
use highwire_transport::{Context, Counter};
use highwire_verbs::{FlowError, FlowKind, FlowRule, Gid, Memory, ModifyError, Payload, Service, Spread};
use highwire_wire::{Layers, Qpn};

/// Names a steering rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowId(u64);

/// Every rule, normal ones first and among them the best priority first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Segment {
    flows: Vec<Flow>,
    made: u64,
}

#[derive(Clone, Debug)]
struct Flow {
    id: FlowId,
    qpn: Qpn,
    rule: FlowRule,
    counts: FlowCounts,
}

/// The counts of a rule's matches.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FlowCounts {
    /// Frames that matched.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// A frame that arrived on the segment.
#[derive(Clone, Copy, Debug)]
pub struct ArrivedFrame<'a> {
    /// The device that sent it.
    pub source: Gid,
    /// The queue pair that sent it.
    pub source_qpn: Qpn,
    /// Its headers.
    pub layers: &'a Layers,
}

/// The queues over which a queue pair without a receive queue of its own spreads its frames.
#[derive(Clone, Debug)]
pub(crate) struct SpreadOver {
    how: Spread,
    /// The table's length is a power of two.
    table: Vec<Qpn>,
}

impl Rnic {
    /// The most entries of a table of queues over which frames are spread.
    pub const SPREAD_MAX: usize = 1 << 10;

    /// Adds a steering rule for a queue pair.
    ///
    /// # Errors
    /// [`FlowError`].
    pub fn add_flow(&mut self, qpn: Qpn, rule: FlowRule) -> Result<FlowId, FlowError> {
        let qp = self.qp(qpn).ok_or(FlowError::NoSuchQp)?;
        if qp.config().service != Service::Raw {
            return Err(FlowError::NotRaw);
        }
        rule.check()?;
        let segment = &mut self.segment;
        segment.made += 1;
        let id = FlowId(segment.made);
        let order = |rule: &FlowRule| (rule.kind, rule.priority);
        let at = segment.flows.partition_point(|flow| order(&flow.rule) <= order(&rule));
        segment.flows.insert(at, Flow { id, qpn, rule, counts: FlowCounts::default() });
        Ok(id)
    }

    /// Removes a rule and returns its counts; `None` if it has gone with its queue pair.
    pub fn remove_flow(&mut self, id: FlowId) -> Option<FlowCounts> {
        let at = self.segment.flows.iter().position(|flow| flow.id == id)?;
        Some(self.segment.flows.remove(at).counts)
    }

    /// A rule's counts.
    pub fn flow_counts(&self, id: FlowId) -> Option<FlowCounts> {
        self.segment.flows.iter().find(|flow| flow.id == id).map(|flow| flow.counts)
    }

    /// Whether any rule wants frames.
    pub fn has_flows(&self) -> bool {
        !self.segment.flows.is_empty()
    }

    /// Lets a raw packet queue pair spread its frames over others of this RNIC. A queue that has gone gets
    /// none.
    ///
    /// # Errors
    /// [`ModifyError::NoSuchQp`]; [`ModifyError::NotApplicable`] if one of them is of another service;
    /// [`ModifyError::OutOfRange`] if the table's length is no power of two, or too large.
    pub fn spread(&mut self, qpn: Qpn, how: Spread, table: &[Qpn]) -> Result<(), ModifyError> {
        if !table.len().is_power_of_two() || table.len() > Rnic::SPREAD_MAX {
            return Err(ModifyError::OutOfRange("table"));
        }
        for qpn in table.iter().chain([&qpn]) {
            let qp = self.qp(*qpn).ok_or(ModifyError::NoSuchQp)?;
            if qp.config().service != Service::Raw {
                return Err(ModifyError::NotApplicable("table"));
            }
        }
        if let Some(entry) = self.slot(qpn).and_then(|slot| self.qps.get_mut(slot)) {
            entry.spread = Some(Box::new(SpreadOver { how, table: table.to_vec() }));
        }
        Ok(())
    }

    /// Handles a frame of the segment: its bytes are `payload`, and `frame` describes its headers.
    #[cold]
    pub fn handle_frame<P: Payload>(
        &mut self,
        now: Instant,
        frame: &ArrivedFrame<'_>,
        payload: P,
        memory: &mut impl Memory<P>,
    ) {
        self.counters.count(Counter::PacketsReceived);
        self.counters.add(Counter::BytesReceived, u64::from(payload.len()));
        let is_ours = frame.source == self.config.gid;
        let sender = is_ours.then_some(frame.source_qpn);
        let receivers = self.segment.steer(frame.layers, sender, payload.len());
        if receivers.is_empty() {
            return self.counters.count(Counter::DroppedUnsteered);
        }
        for qpn in receivers {
            let Some(slot) = self.queue_for(qpn, frame.layers) else { continue };
            with_qp!(self, now, slot, |entry, ctx| entry.qp.handle_frame(ctx, payload, memory));
            self.settle(now, slot);
        }
    }

    /// The queue pair that takes a frame in: this one, or one of those over which it spreads.
    fn queue_for(&self, qpn: Qpn, layers: &Layers) -> Option<u32> {
        let slot = self.slot(qpn)?;
        let Some(spread) = &self.qps.get(slot)?.spread else { return Some(slot) };
        let at = spread.how.hash(layers) as usize & (spread.table.len() - 1);
        self.slot(spread.table[at])
    }

    /// Takes away the rules of a queue pair.
    pub(crate) fn forget_flows(&mut self, qpn: Qpn) {
        self.segment.flows.retain(|flow| flow.qpn != qpn);
    }
}

impl Segment {
    /// The queue pairs that get a frame; counts it. `sender` is the queue pair that sent it, if it is on this
    /// RNIC.
    fn steer(&mut self, layers: &Layers, sender: Option<Qpn>, bytes: u32) -> Vec<Qpn> {
        let mut receivers = Vec::new();
        let mut is_taken = false;
        // The best priority of a normal rule that matched.
        let mut last = None;
        for flow in &mut self.flows {
            let FlowRule { kind, priority, .. } = flow.rule;
            let is_own = sender == Some(flow.qpn);
            let applies = match kind {
                FlowKind::Normal => !is_own && last.is_none_or(|last| priority == last),
                FlowKind::AllDefault => !is_own && !is_taken,
                FlowKind::MulticastDefault => !is_own && !is_taken && layers.is_multicast(),
                FlowKind::Sniffer => true,
            };
            if !applies || !flow.rule.matches(layers) {
                continue;
            }
            flow.counts.packets += 1;
            flow.counts.bytes += u64::from(bytes);
            if kind == FlowKind::Normal && !flow.rule.passes_on {
                (is_taken, last) = (true, Some(priority));
            }
            if !flow.rule.drops && !receivers.contains(&flow.qpn) {
                receivers.push(flow.qpn);
            }
        }
        receivers
    }
}
