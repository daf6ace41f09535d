//! Making, changing and freeing objects.

use crate::rnic::{Entry, Rnic, with_qp};
use highwire_stdx::Instant;
use highwire_transport::{Context, QpSnapshot, QueuePair, ReceiveQueue};
use highwire_verbs::{CqId, ModifyError, Pd, QpAttr, QpConfig, RegisterError, Service, SrqId};
use highwire_wire::Qpn;

/// Why an object was not made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateError {
    /// There is no such protection domain.
    NoSuchPd,
    /// There is no such completion queue.
    NoSuchCq,
    /// There is no such shared receive queue.
    NoSuchSrq,
    /// The number is taken.
    InUse,
    /// A size is zero or beyond the limit.
    BadSize,
}

impl std::fmt::Display for CreateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            CreateError::NoSuchPd => "there is no such protection domain",
            CreateError::NoSuchCq => "there is no such completion queue",
            CreateError::NoSuchSrq => "there is no such shared receive queue",
            CreateError::InUse => "the number is taken",
            CreateError::BadSize => "a size is zero or too large",
        })
    }
}

impl std::error::Error for CreateError {}

impl Rnic {
    /// Most requests of one queue.
    pub const QUEUE_MAX: u32 = 1 << 16;
    /// Most SGEs of one request.
    pub const SGE_MAX: u32 = 32;

    /// Makes a protection domain.
    pub fn alloc_pd(&mut self) -> Pd {
        let pd = Pd(self.pds.last().map_or(1, |last| last.0 + 1));
        self.pds.insert(pd);
        pd
    }

    /// Takes over a protection domain that another lane of the device made.
    pub fn adopt_pd(&mut self, pd: Pd) {
        self.pds.insert(pd);
    }

    /// Frees a protection domain.
    ///
    /// # Errors
    /// [`RegisterError::NoSuchPd`]; [`RegisterError::InUse`] while objects belong to it.
    pub fn dealloc_pd(&mut self, pd: Pd) -> Result<(), RegisterError> {
        if !self.pds.contains(&pd) {
            return Err(RegisterError::NoSuchPd);
        }
        let in_use = self.regions.uses(pd)
            || self.qps.iter().any(|(_, e)| is_tied(e) && e.qp.config().pd == pd)
            || self.shared.iter().any(|(_, q)| q.pd() == pd);
        if in_use {
            return Err(RegisterError::InUse);
        }
        self.pds.remove(&pd);
        Ok(())
    }

    /// Makes a completion queue. The driver keeps its entries; the RNIC only its number.
    pub fn create_cq(&mut self) -> CqId {
        let cq = CqId(self.cqs.last_key_value().map_or(0, |(last, _)| last.0 + 1));
        self.cqs.insert(cq, 0);
        cq
    }

    /// Frees a completion queue.
    ///
    /// # Errors
    /// [`RegisterError::NoSuchKey`]; [`RegisterError::InUse`] while queue pairs use it.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<(), RegisterError> {
        match self.cqs.get(&cq) {
            None => Err(RegisterError::NoSuchKey),
            Some(0) => {
                self.cqs.remove(&cq);
                Ok(())
            }
            Some(_) => Err(RegisterError::InUse),
        }
    }

    /// Makes a shared receive queue.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create_srq(&mut self, pd: Pd, max_wr: u32, max_sge: u32) -> Result<SrqId, CreateError> {
        if !self.pds.contains(&pd) {
            return Err(CreateError::NoSuchPd);
        }
        if !(1..=Rnic::QUEUE_MAX).contains(&max_wr) || max_sge > Rnic::SGE_MAX {
            return Err(CreateError::BadSize);
        }
        Ok(SrqId(self.shared.insert(ReceiveQueue::new(pd, max_wr, max_sge))))
    }

    /// A shared receive queue, to resize it or set its limit.
    pub fn srq_mut(&mut self, srq: SrqId) -> Option<&mut ReceiveQueue> {
        self.shared.get_mut(srq.0)
    }

    /// Frees a shared receive queue.
    ///
    /// # Errors
    /// [`RegisterError::NoSuchKey`]; [`RegisterError::InUse`] while queue pairs use it.
    pub fn destroy_srq(&mut self, srq: SrqId) -> Result<(), RegisterError> {
        if self.qps.iter().any(|(_, e)| is_tied(e) && e.qp.config().srq == Some(srq)) {
            return Err(RegisterError::InUse);
        }
        self.forget_srqn(srq);
        self.forget_tags(srq);
        self.shared.remove(srq.0).map(drop).ok_or(RegisterError::NoSuchKey)
    }

    /// Makes a queue pair with a random number that belongs to this lane.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create_qp(&mut self, config: QpConfig) -> Result<Qpn, CreateError> {
        let (lane, lanes) = (self.config.lane, self.config.lanes);
        let qpn = loop {
            let random = self.rng.next_u32() & 0x00FF_FFFF;
            let Some(qpn) = (random - random % lanes).checked_add(lane).map(Qpn::new) else { continue };
            let is_reserved = qpn.value() < 16 || qpn == Qpn::MULTICAST || qpn.value() % lanes != lane;
            if !is_reserved && !self.by_qpn.contains(qpn.value()) {
                break qpn;
            }
        };
        self.create_qp_numbered(qpn, config).map(|()| qpn)
    }

    /// Makes a queue pair with a given number.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create_qp_numbered(&mut self, qpn: Qpn, config: QpConfig) -> Result<(), CreateError> {
        if !self.pds.contains(&config.pd) {
            return Err(CreateError::NoSuchPd);
        }
        if !self.cqs.contains_key(&config.send_cq) || !self.cqs.contains_key(&config.recv_cq) {
            return Err(CreateError::NoSuchCq);
        }
        if config.srq.is_some_and(|srq| self.shared.get(srq.0).is_none()) {
            return Err(CreateError::NoSuchSrq);
        }
        let caps = &config.caps;
        if caps.max_send_wr > Rnic::QUEUE_MAX
            || caps.max_recv_wr > Rnic::QUEUE_MAX
            || caps.max_send_sge > Rnic::SGE_MAX
            || caps.max_recv_sge > Rnic::SGE_MAX
        {
            return Err(CreateError::BadSize);
        }
        if self.by_qpn.contains(qpn.value()) {
            return Err(CreateError::InUse);
        }
        let entry = Entry::new(QueuePair::new(qpn, config, self.config.transport));
        if is_tied(&entry) {
            for cq in [config.send_cq, config.recv_cq] {
                *self.cqs.entry(cq).or_default() += 1;
            }
        }
        let slot = self.qps.insert(entry);
        self.by_qpn.insert(qpn.value(), slot);
        Ok(())
    }

    /// Frees a queue pair; its requests disappear.
    ///
    /// # Errors
    /// [`ModifyError::NoSuchQp`].
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), ModifyError> {
        let slot = self.by_qpn.remove(qpn.value()).ok_or(ModifyError::NoSuchQp)?;
        self.forget_ready(slot);
        self.detach_from_all(qpn);
        self.forget_flows(qpn);
        self.forget_transfers(qpn);
        let entry = self.qps.remove(slot).ok_or(ModifyError::NoSuchQp)?;
        if !is_tied(&entry) {
            return Ok(());
        }
        for cq in [entry.qp.config().send_cq, entry.qp.config().recv_cq] {
            if let Some(uses) = self.cqs.get_mut(&cq) {
                *uses -= 1;
            }
        }
        Ok(())
    }

    /// Changes a queue pair's attributes and state.
    ///
    /// # Errors
    /// [`ModifyError`]; then nothing has changed.
    pub fn modify_qp(&mut self, now: Instant, qpn: Qpn, attr: &QpAttr) -> Result<(), ModifyError> {
        let slot = self.slot(qpn).ok_or(ModifyError::NoSuchQp)?;
        let result = with_qp!(self, now, slot, |entry, ctx| entry.qp.modify(ctx, attr));
        self.settle(now, slot);
        result.unwrap_or(Err(ModifyError::NoSuchQp))
    }

    /// Everything about a queue pair.
    pub fn query_qp(&self, qpn: Qpn) -> Option<QpSnapshot> {
        self.qp(qpn).map(QueuePair::snapshot)
    }

    /// Every queue pair's number.
    pub fn qpns(&self) -> impl Iterator<Item = Qpn> + '_ {
        self.qps.iter().map(|(_, entry)| entry.qp.qpn())
    }

    /// Sets whether the peer of this queue pair may send in IRN's format: it has proved to be a Highwire.
    pub fn set_irn_accepted(&mut self, qpn: Qpn, accepted: bool) {
        if let Some(entry) = self.slot(qpn).and_then(|slot| self.qps.get_mut(slot)) {
            entry.qp.set_irn_accepted(accepted);
        }
    }

    /// Keeps a queue pair's requests back, or releases them.
    pub fn hold_transmit(&mut self, now: Instant, qpn: Qpn, held: bool) {
        let Some(slot) = self.slot(qpn) else { return };
        if let Some(entry) = self.qps.get_mut(slot) {
            entry.qp.hold_transmit(held);
        }
        self.settle(now, slot);
    }
}

/// Whether a queue pair uses a domain and queues of its own. An XRC target does not: it uses those of the
/// shared receive queue that its peer names.
fn is_tied(entry: &Entry) -> bool {
    entry.qp.config().service != Service::XrcTarget
}
