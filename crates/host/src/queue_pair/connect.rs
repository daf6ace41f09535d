//! From RESET to RTS, and the effects of every change of state: the entry that peers on this host read, and
//! the question whether the peer speaks IRN.

use super::QueuePair;
use crate::endpoint::Endpoint;
use crate::engine::Engine;
use crate::error::ConnectError;
use crate::negotiate::Connection;
use crate::region::{NEIGHBOUR_PATIENCE, shm_access};
use crate::rings::Ring;
use highwire_link::shm::{PublishedQueuePair, PublishedReceives};
use highwire_rnic::QpSnapshot;
use highwire_verbs::{Access, Address, ModifyError, Mtu, QpAttr, QpState, Recovery, Service};
use std::sync::atomic::Ordering;

/// How a queue pair is connected. The defaults suit a network that loses packets now and then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// The path MTU; `None` for the largest that the device offers. Both ends must choose the same.
    pub mtu: Option<Mtu>,
    /// How losses are recovered. IRN needs a Highwire peer; with any other, go-back-N is used.
    pub recovery: Recovery,
    /// The peer's rights here.
    pub access: Access,
    /// Local ACK timeout: 4.096 µs × 2^n; 0 waits for ever.
    pub timeout: u8,
    /// Timeouts in a row before giving up, at most 7.
    pub retry_count: u8,
    /// RNR NAKs in a row before giving up; 7 never gives up.
    pub rnr_retry: u8,
    /// Which wait an RNR NAK asks for: a code of 5 bits (IBTA table 45).
    pub min_rnr_timer: u8,
    /// READs and atomics at once, in either direction.
    pub max_rd_atomic: u8,
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        ConnectOptions {
            mtu: None,
            recovery: Recovery::Irn,
            access: Access::ALL,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
        }
    }
}

impl QueuePair {
    /// Connects a queue pair in RESET to its peer's endpoint (RC and UC): through INIT and RTR to RTS. Receives that must
    /// be there for the peer's first message are posted after [`prepare`](Self::prepare), or the peer retries.
    ///
    /// # Errors
    /// [`ConnectError`]; the queue pair is in the error state then.
    pub fn connect(&self, peer: &Endpoint, options: &ConnectOptions) -> Result<(), ConnectError> {
        let steps = || {
            if self.state() == QpState::Reset {
                self.modify(&QpAttr { access: Some(options.access), ..QpAttr::to_state(QpState::Init) })?;
            }
            self.modify(&self.to_rtr(peer, options))?;
            self.modify(&self.to_rts(options))
        };
        steps().map_err(|error| {
            let _ = self.modify(&QpAttr::to_state(QpState::Error));
            ConnectError(error)
        })
    }

    /// Takes a connected service from RESET to INIT, where receives can be posted before the peer can send.
    ///
    /// # Errors
    /// [`ModifyError`].
    pub fn prepare(&self, access: Access) -> Result<(), ModifyError> {
        self.modify(&QpAttr { access: Some(access), ..QpAttr::to_state(QpState::Init) })
    }

    /// Takes a UD queue pair in RESET through INIT and RTR to RTS.
    ///
    /// # Errors
    /// [`ConnectError`]; the queue pair is in the error state then.
    pub fn activate(&self, qkey: u32) -> Result<(), ConnectError> {
        let steps = || {
            self.modify(&QpAttr { qkey: Some(qkey), ..QpAttr::to_state(QpState::Init) })?;
            self.modify(&QpAttr::to_state(QpState::Rtr))?;
            self.modify(&QpAttr { sq_psn: Some(self.psn), ..QpAttr::to_state(QpState::Rts) })
        };
        steps().map_err(|error| {
            let _ = self.modify(&QpAttr::to_state(QpState::Error));
            ConnectError(error)
        })
    }

    pub(crate) fn to_rtr(&self, peer: &Endpoint, options: &ConnectOptions) -> QpAttr {
        let mtu = options.mtu.unwrap_or(self.pd.device.mtu).min(self.pd.device.mtu);
        let attr = QpAttr {
            address: Some(Address::new(peer.gid)),
            remote_qpn: Some(peer.qpn),
            path_mtu: Some(mtu),
            rq_psn: Some(peer.psn),
            ..QpAttr::to_state(QpState::Rtr)
        };
        match self.service {
            Service::Rc | Service::XrcTarget => QpAttr {
                max_dest_rd_atomic: Some(options.max_rd_atomic),
                min_rnr_timer: Some(options.min_rnr_timer),
                ..attr
            },
            Service::Uc | Service::Ud | Service::Raw | Service::XrcInitiator => attr,
        }
    }

    pub(crate) fn to_rts(&self, options: &ConnectOptions) -> QpAttr {
        let attr = QpAttr { sq_psn: Some(self.psn), ..QpAttr::to_state(QpState::Rts) };
        match self.service {
            Service::Rc | Service::XrcInitiator | Service::XrcTarget => QpAttr {
                timeout: Some(options.timeout),
                retry_count: Some(options.retry_count),
                rnr_retry: Some(options.rnr_retry),
                max_rd_atomic: Some(options.max_rd_atomic),
                recovery: Some(options.recovery),
                ..attr
            },
            Service::Uc | Service::Ud | Service::Raw => attr,
        }
    }

    /// Changes attributes and state, as the specification has it.
    ///
    /// Asking for [`Recovery::Irn`] is a wish: requests wait until the peer has answered whether it speaks IRN, and go out
    /// in the standard format if it does not.
    ///
    /// # Errors
    /// [`ModifyError`]; the queue pair is as it was.
    pub fn modify(&self, attr: &QpAttr) -> Result<(), ModifyError> {
        if attr.state.is_some_and(is_an_end) {
            // Before the change: no peer may begin anything in a queue pair that is going away.
            self.disconnected();
        }
        let changed = self.lane().control(|engine| self.change(engine, attr));
        let (from, now, asks) = changed?;
        self.publish(&now);
        let Some(side_band) = &self.pd.device.side_band else { return Ok(()) };
        let is_connected = self.service == Service::Rc && now.state.receives();
        if is_connected && (from != now.state || asks) {
            let connection = Connection {
                qpn: self.qpn,
                peer: now.address.gid,
                peer_qpn: now.remote_qpn,
                rq_psn: now.rq_psn,
                sq_psn: (now.state != QpState::Rtr).then_some(now.sq_psn),
            };
            // In later states its PSNs have moved on, and no longer identify the connection.
            if matches!(from, QpState::Init | QpState::Rtr) {
                side_band.on_connected(&self.pd.device, connection);
            }
            if asks {
                side_band.ask(&self.pd.device, self.qpn);
            }
        }
        Ok(())
    }

    /// The change itself. Returns the former state, the new attributes, and whether to ask the peer.
    fn change(&self, engine: &mut Engine, attr: &QpAttr) -> Result<(QpState, QpSnapshot, bool), ModifyError> {
        engine.begin_post();
        if attr.state.is_some_and(is_an_end) {
            // What the program has seen arrive is acknowledged, as a card has done before it shows it.
            engine.finish_control();
        }
        let time = engine.now();
        let before = engine.rnic.query_qp(self.qpn).ok_or(ModifyError::NoSuchQp)?;
        let mut attr = *attr;
        let wish = attr.recovery;
        if wish == Some(Recovery::Irn) {
            // Go-back-N, until the peer has proved that it speaks IRN.
            attr.recovery = Some(Recovery::GoBackN);
        }
        if attr.state == Some(QpState::Reset) {
            engine.arrivals.held.forget(self.qpn);
        }
        let begins_to_receive = before.state == QpState::Init && attr.state == Some(QpState::Rtr);
        if self.service.is_datagram() && begins_to_receive {
            // There is no peer with which to agree on the MTU.
            attr.path_mtu = attr.path_mtu.or(Some(self.pd.device.mtu));
        }
        engine.rnic.modify_qp(time, self.qpn, &attr)?;
        engine.record_state(self.qpn);
        if attr.state == Some(QpState::Reset) {
            engine.reset_places(self.index);
        }
        if let Some(wish) = wish {
            self.wants_irn.store(wish == Recovery::Irn, Ordering::Relaxed);
        }
        let now = engine.rnic.query_qp(self.qpn).ok_or(ModifyError::NoSuchQp)?;
        let begins = before.state == QpState::Rtr && now.state == QpState::Rts;
        let asks = begins
            && self.service == Service::Rc
            && self.wants_irn.load(Ordering::Relaxed)
            && self.pd.device.side_band.is_some();
        if asks {
            engine.rnic.hold_transmit(time, self.qpn, true);
        }
        let is_connected = !self.service.is_datagram() && now.state.receives();
        engine.set_peer(self.index, is_connected.then_some((now.address.gid, now.remote_qpn)));
        engine.settle_receives(self.qpn);
        engine.finish_control();
        Ok((before.state, now, asks))
    }

    /// Tells peers on this host what they may do through this queue pair.
    fn publish(&self, now: &QpSnapshot) {
        let Some(local) = self.pd.device.directly_reached() else { return };
        if !matches!(self.service, Service::Rc | Service::Uc)
            || matches!(now.state, QpState::Reset | QpState::Init)
        {
            return;
        }
        let entry = PublishedQueuePair {
            pd: self.pd.pd.0,
            access: shm_access(now.access),
            peer_qpn: now.remote_qpn.value(),
            peer_gid: now.address.gid.0,
            ready: now.state.receives(),
            receives: self.published_receives(),
        };
        // A full table only means that the peer sends packets.
        let _ = local.publish_queue_pair(self.qpn.value(), &entry);
    }

    /// The rings in which a guest that is the peer finds the receives.
    fn published_receives(&self) -> PublishedReceives {
        if !self.on_demand {
            return PublishedReceives::default();
        }
        PublishedReceives {
            ring: self.files().rq.segment,
            completions: Ring::place(self.recv_cq.file.as_ref()).segment,
        }
    }

    /// The connection ends: neighbours may no longer carry out operations through it, and peers are no longer told that IRN is
    /// welcome.
    pub(super) fn disconnected(&self) {
        if let Some(local) = &self.pd.device.local {
            // A peer may be copying right now. If it takes longer than the patience, it goes on in memory
            // that is still registered; deregistering that memory waits for it again.
            let _ = local.withdraw_queue_pair(self.qpn.value(), NEIGHBOUR_PATIENCE);
        }
        if let Some(side_band) = &self.pd.device.side_band {
            side_band.on_disconnected(self.qpn);
        }
    }
}

/// Whether a queue pair of that state neither takes nor answers packets any more.
fn is_an_end(state: QpState) -> bool {
    matches!(state, QpState::Reset | QpState::Error)
}
