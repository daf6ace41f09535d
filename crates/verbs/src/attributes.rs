//! The attributes of a queue pair, at creation and later.

use crate::access::Access;
use crate::address::Address;
use crate::modify_error::ModifyError;
use crate::qp_state::{AttrMask, QpState, transition};
use crate::service::{Mtu, Service};
use crate::{CqId, Pd, SrqId};
use highwire_wire::{Psn, Qpn};

/// The most requests and elements that a queue pair holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpCaps {
    /// Send requests in the queue.
    pub max_send_wr: u32,
    /// Receive requests in the queue; ignored with an SRQ.
    pub max_recv_wr: u32,
    /// SGEs of one send request.
    pub max_send_sge: u32,
    /// SGEs of one receive request.
    pub max_recv_sge: u32,
    /// Bytes of inline data.
    pub max_inline: u32,
}

impl Default for QpCaps {
    fn default() -> Self {
        QpCaps { max_send_wr: 128, max_recv_wr: 128, max_send_sge: 4, max_recv_sge: 4, max_inline: 256 }
    }
}

/// The configuration of a new queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QpConfig {
    /// The transport service.
    pub service: Service,
    /// The protection domain.
    pub pd: Pd,
    /// The completion queue of sends.
    pub send_cq: CqId,
    /// The completion queue of receives.
    pub recv_cq: CqId,
    /// The shared receive queue, if receives come from one.
    pub srq: Option<SrqId>,
    /// Sizes.
    pub caps: QpCaps,
    /// Every send completes visibly, even without the signaled flag.
    pub signal_all: bool,
}

/// How lost packets are found and sent again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum Recovery {
    /// As RoCE NICs do: everything since the loss is sent again. Standard RoCEv2 packets.
    #[default]
    GoBackN,
    /// IRN: only lost packets are sent again, with BDP flow control. Highwire's packets, for Highwire peers.
    Irn,
}

/// Attributes for a change of a queue pair; `None` leaves an attribute as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QpAttr {
    /// The state to go to.
    pub state: Option<QpState>,
    /// What peers may do through this QP.
    pub access: Option<Access>,
    /// The Q_Key (UD).
    pub qkey: Option<u32>,
    /// The peer.
    pub address: Option<Address>,
    /// The peer's queue pair.
    pub remote_qpn: Option<Qpn>,
    /// The largest payload of a packet.
    pub path_mtu: Option<Mtu>,
    /// The first PSN expected from the peer.
    pub rq_psn: Option<Psn>,
    /// The first PSN to send.
    pub sq_psn: Option<Psn>,
    /// READs and atomics accepted at once.
    pub max_dest_rd_atomic: Option<u8>,
    /// READs and atomics sent at once.
    pub max_rd_atomic: Option<u8>,
    /// The wait for which an RNR NAK asks: a code of 5 bits (IBTA table 45).
    pub min_rnr_timer: Option<u8>,
    /// Local ACK timeout: 4.096 µs × 2^n; 0 waits for ever.
    pub timeout: Option<u8>,
    /// Timeouts and sequence NAKs in a row before giving up, at most 7.
    pub retry_count: Option<u8>,
    /// RNR NAKs in a row before giving up; 7 never gives up.
    pub rnr_retry: Option<u8>,
    /// How this requester recovers losses.
    pub recovery: Option<Recovery>,
    /// Whether the device reports when the send queue has drained, on the way to SQD. It does unless told otherwise.
    pub notify_drained: Option<bool>,
}

impl QpAttr {
    /// A change of state and nothing else.
    pub fn to_state(state: QpState) -> QpAttr {
        QpAttr { state: Some(state), ..QpAttr::default() }
    }

    /// Which attributes are given.
    pub fn mask(&self) -> AttrMask {
        let given = [
            (self.state.is_some(), AttrMask::STATE),
            (self.access.is_some(), AttrMask::ACCESS),
            (self.qkey.is_some(), AttrMask::QKEY),
            (self.address.is_some(), AttrMask::ADDRESS),
            (self.remote_qpn.is_some(), AttrMask::REMOTE_QPN),
            (self.path_mtu.is_some(), AttrMask::PATH_MTU),
            (self.rq_psn.is_some(), AttrMask::RQ_PSN),
            (self.sq_psn.is_some(), AttrMask::SQ_PSN),
            (self.max_dest_rd_atomic.is_some(), AttrMask::MAX_DEST_RD_ATOMIC),
            (self.max_rd_atomic.is_some(), AttrMask::MAX_RD_ATOMIC),
            (self.min_rnr_timer.is_some(), AttrMask::MIN_RNR_TIMER),
            (self.timeout.is_some(), AttrMask::TIMEOUT),
            (self.retry_count.is_some(), AttrMask::RETRY_COUNT),
            (self.rnr_retry.is_some(), AttrMask::RNR_RETRY),
            (self.notify_drained.is_some(), AttrMask::NOTIFY_DRAINED),
        ];
        given.iter().filter(|(is_given, _)| *is_given).fold(AttrMask::NONE, |mask, (_, bit)| mask | *bit)
    }

    /// Checks a change from state `from` for `service`, and returns the new state. Attributes that mean
    /// nothing to the service are let pass here; [`check_attributes`](crate::check_attributes) is as strict
    /// as the verbs are.
    ///
    /// # Errors
    /// When there is no such change, an attribute is missing, or a value is out of range.
    pub fn check(&self, service: Service, from: QpState) -> Result<QpState, ModifyError> {
        let to = self.state.unwrap_or(from);
        if self.state.is_some() {
            let change = transition(service, from, to).ok_or(ModifyError::WrongState { from, to })?;
            // There is one port, and one partition, so the application need not name them.
            let required = change.required.without(AttrMask::PORT | AttrMask::PKEY_INDEX);
            if let Some(name) = required.without(self.mask()).first_name() {
                return Err(ModifyError::Missing(name));
            }
        }
        let limits = [
            ("min_rnr_timer", self.min_rnr_timer, 31),
            ("timeout", self.timeout, 31),
            ("retry_count", self.retry_count, 7),
            ("rnr_retry", self.rnr_retry, 7),
        ];
        for (name, value, max) in limits {
            if value.is_some_and(|v| v > max) {
                return Err(ModifyError::OutOfRange(name));
            }
        }
        // The path belongs to the step to RTR; later changes of it would tear a connection (IBTA table 91).
        let path = AttrMask::ADDRESS | AttrMask::REMOTE_QPN | AttrMask::PATH_MTU | AttrMask::RQ_PSN;
        let allowed = match from {
            // Frames have no peer.
            QpState::Init if service == Service::Raw => AttrMask::PATH_MTU,
            QpState::Init => path,
            QpState::Sqd => AttrMask::ADDRESS,
            _ => AttrMask::NONE,
        };
        let qkey = if service == Service::Ud { AttrMask::NONE } else { AttrMask::QKEY };
        let misplaced = self.mask() & (path.without(allowed) | qkey);
        if let Some(name) = misplaced.first_name() {
            return Err(ModifyError::NotApplicable(name));
        }
        Ok(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_names_what_it_lacks() {
        let attr = QpAttr::to_state(QpState::Init);
        assert_eq!(attr.check(Service::Rc, QpState::Reset), Err(ModifyError::Missing("access")));
        let attr = QpAttr { access: Some(Access::NONE), ..attr };
        assert_eq!(attr.check(Service::Rc, QpState::Reset), Ok(QpState::Init));
        assert_eq!(
            attr.check(Service::Rc, QpState::Rts),
            Err(ModifyError::WrongState { from: QpState::Rts, to: QpState::Init })
        );
    }

    #[test]
    fn values_out_of_range_are_refused() {
        let attr = QpAttr { retry_count: Some(8), ..QpAttr::default() };
        assert_eq!(attr.check(Service::Rc, QpState::Rts), Err(ModifyError::OutOfRange("retry_count")));
        let attr = QpAttr { rq_psn: Some(Psn::new(1)), ..QpAttr::default() };
        assert_eq!(attr.check(Service::Rc, QpState::Rts), Err(ModifyError::NotApplicable("rq_psn")));
    }
}
