//! Multicast groups: one datagram for every queue pair that is attached (IBTA §10.5).

use crate::rnic::{Rnic, with_qp};
use highwire_stdx::Instant;
use highwire_transport::{Arrival, Context, Counter};
use highwire_verbs::{Gid, Memory, Payload, Service};
use highwire_wire::{Headers, Qpn};

/// Why a queue pair was not attached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachError {
    /// There is no such queue pair.
    NoSuchQp,
    /// Groups are for datagrams: the queue pair is of another service.
    NotDatagram,
    /// The address is not a group's.
    NotGroup,
}

impl std::fmt::Display for AttachError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            AttachError::NoSuchQp => "there is no such queue pair",
            AttachError::NotDatagram => "only queue pairs of UD join multicast groups",
            AttachError::NotGroup => "the address is not that of a multicast group",
        })
    }
}

impl std::error::Error for AttachError {}

impl Rnic {
    /// Attaches a queue pair to a group; attaching it again changes nothing.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn attach_multicast(&mut self, qpn: Qpn, group: Gid) -> Result<(), AttachError> {
        let qp = self.qp(qpn).ok_or(AttachError::NoSuchQp)?;
        if qp.config().service != Service::Ud {
            return Err(AttachError::NotDatagram);
        }
        if !group.is_multicast() {
            return Err(AttachError::NotGroup);
        }
        let members = self.groups.entry(group).or_default();
        if !members.contains(&qpn) {
            members.push(qpn);
        }
        Ok(())
    }

    /// Takes a queue pair out of a group; false if it was not a member.
    pub fn detach_multicast(&mut self, qpn: Qpn, group: Gid) -> bool {
        let Some(members) = self.groups.get_mut(&group) else { return false };
        let before = members.len();
        members.retain(|member| *member != qpn);
        let was_in = members.len() < before;
        if members.is_empty() {
            self.groups.remove(&group);
        }
        was_in
    }

    /// Whether any queue pair is attached to a group.
    pub fn has_group(&self, group: Gid) -> bool {
        self.groups.contains_key(&group)
    }

    /// Takes a queue pair out of every group.
    pub(crate) fn detach_from_all(&mut self, qpn: Qpn) {
        self.groups.retain(|_, members| {
            members.retain(|member| *member != qpn);
            !members.is_empty()
        });
    }

    /// Hands a packet to every member of the group that it was sent to.
    #[cold]
    pub(crate) fn handle_multicast<P: Payload>(
        &mut self,
        now: Instant,
        arrival: &Arrival,
        headers: &Headers,
        payload: P,
        memory: &mut impl Memory<P>,
    ) {
        let info = headers.bth.opcode.info();
        let is_datagram = info.service == Some(highwire_wire::Service::Ud);
        let is_ours = headers.bth.pkey & 0x7FFF == highwire_wire::DEFAULT_PKEY & 0x7FFF;
        if !is_datagram || !is_ours || info.layout != headers.ext.layout() {
            return self.counters.count(Counter::DroppedMalformed);
        }
        let Some(members) = self.groups.get(&arrival.destination).cloned() else {
            return self.counters.count(Counter::DroppedUnknownQp);
        };
        for slot in members.into_iter().filter_map(|qpn| self.slot(qpn)).collect::<Vec<_>>() {
            with_qp!(self, now, slot, |entry, ctx| entry
                .qp
                .handle_packet(ctx, arrival, headers, payload, memory));
            self.settle(now, slot);
        }
    }
}
