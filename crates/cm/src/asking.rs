//! The requesting end of a connection, and what both ends do once there is one.

use highwire_stdx::Instant;
use highwire_verbs::Gid;
use highwire_wire::cm::{CmMad, CmMessage, Dreq, RejectReason, Rejected, Req, Rtu};

use crate::connection::Connection;
use crate::manager::{padded, plain_rej};
use crate::table::State;
use crate::{CallError, CommId, ConnectionManager, Transmit};

impl ConnectionManager {
    /// Asks `to` for a connection. The answer is [`Replied`](crate::Event::Replied), [`Rejected`](crate::Event::Rejected)
    /// or [`Unreachable`](crate::Event::Unreachable).
    ///
    /// This fills in the identifier, the GUID, the response times and the number of retries of `request`.
    pub fn connect(&mut self, now: Instant, to: Gid, request: &Req, ece_options: u32) -> CommId {
        let id = self.fresh_id();
        let transaction = self.fresh_transaction(id);
        let request = Req {
            local_id: id,
            ca_guid: self.config.ca_guid,
            remote_response_timeout: self.config.response_timeout,
            local_response_timeout: self.config.response_timeout,
            max_cm_retries: self.config.retries_max,
            ..*request
        };
        let mut connection = Connection::new(State::ReqSent, to, transaction);
        connection.asked = Some(request.service_id);
        connection.local_qpn = Some(request.qpn);
        self.connections.insert(id, connection);
        self.send_and_await(
            now,
            id,
            CmMad { transaction_id: transaction, ece_options, message: CmMessage::Req(request) },
        );
        CommId(id)
    }

    /// Accepts the peer's reply: from here on the connection is in use.
    ///
    /// # Errors
    /// Unknown, or no reply waits for this.
    pub fn establish(&mut self, id: CommId) -> Result<(), CallError> {
        let connection = self.connections.get_mut(&id.0).ok_or(CallError::UnknownId)?;
        if connection.state != State::RepReceived {
            return Err(CallError::WrongState);
        }
        connection.state = State::Established;
        let rtu = Rtu {
            local_id: id.0,
            remote_id: connection.remote_id_or_zero(),
            private_data: [0; Rtu::PRIVATE_LEN],
        };
        let mad =
            CmMad { transaction_id: connection.transaction, ece_options: 0, message: CmMessage::Rtu(rtu) };
        connection.last = Some(Box::new(mad));
        let peer = connection.peer;
        self.send(peer, &mad);
        self.set_deadline(id.0, None);
        Ok(())
    }

    /// Ends a connection. [`Disconnected`](crate::Event::Disconnected) follows when the peer has answered.
    ///
    /// # Errors
    /// Unknown; not in use (a connection that has ended already included); private data longer than 220 bytes.
    pub fn disconnect(&mut self, now: Instant, id: CommId, private_data: &[u8]) -> Result<(), CallError> {
        let private_data = padded(private_data)?;
        let connection = self.connections.get_mut(&id.0).ok_or(CallError::UnknownId)?;
        // A responder may end the connection before the RTU has reached it.
        if !matches!(connection.state, State::Established | State::RepSent) {
            return Err(CallError::WrongState);
        }
        connection.state = State::DreqSent;
        let dreq = Dreq {
            local_id: id.0,
            remote_id: connection.remote_id_or_zero(),
            remote_qpn: connection.remote_qpn.unwrap_or_default(),
            private_data,
        };
        let transaction_id = self.fresh_transaction(id.0);
        if let Some(connection) = self.connections.get_mut(&id.0) {
            connection.dreq_transaction = Some(transaction_id);
        }
        self.send_and_await(
            now,
            id.0,
            CmMad { transaction_id, ece_options: 0, message: CmMessage::Dreq(dreq) },
        );
        Ok(())
    }

    /// The MAD that would end connection `id`. The broker can send it if this process vanishes; `None` unless it is in use.
    pub fn farewell(&self, id: CommId) -> Option<Transmit> {
        let connection = self.connections.get(&id.0)?;
        if !matches!(connection.state, State::Established | State::RepSent) {
            return None;
        }
        let dreq = Dreq {
            local_id: id.0,
            remote_id: connection.remote_id_or_zero(),
            remote_qpn: connection.remote_qpn.unwrap_or_default(),
            private_data: [0; Dreq::PRIVATE_LEN],
        };
        let message = CmMessage::Dreq(dreq);
        let mad = CmMad { transaction_id: u64::from(id.0), ece_options: 0, message }.emit();
        Some(Transmit { to: connection.peer, mad })
    }

    /// Whether connection `id` is in use, as far as both ends know.
    pub fn is_established(&self, id: CommId) -> bool {
        self.connections.get(&id.0).is_some_and(|connection| connection.state == State::Established)
    }

    /// Releases `id`: the application gets no more events of it. A connection in use is disconnected, one
    /// being made is rejected, and one that must linger does so unseen.
    pub fn release(&mut self, now: Instant, id: CommId) {
        if self.release_service(now, id.0) {
            return;
        }
        let Some(connection) = self.connections.get_mut(&id.0) else { return };
        connection.is_released = true;
        match connection.state {
            State::ReqSent => {
                self.say_no(id.0, Rejected::Req, RejectReason::TIMEOUT);
                self.forget(id.0);
            }
            State::ReqReceived | State::RepReceived => {
                let refused = self.reject(id, RejectReason::CONSUMER, &[], &[]);
                debug_assert!(refused.is_ok(), "both states can refuse");
                self.set_deadline(id.0, Some(now + self.config.timewait));
            }
            State::RepSent | State::Established => {
                let parting = self.disconnect(now, id, &[]);
                debug_assert!(parting.is_ok(), "both states can part");
            }
            // The REJ may be lost, and the peer may repeat the message that it refused.
            State::Closed if connection.last.is_some() => self.linger(now, id.0),
            State::Closed => self.forget(id.0),
            State::DreqSent | State::Timewait => {}
        }
    }

    /// Forgets the conversation `id`, and tells nobody: the device that it went through is gone.
    pub fn abandon(&mut self, id: CommId) {
        self.forget_service(id.0);
        self.forget(id.0);
        self.events.retain(|event| event.id() != id);
    }

    /// Remembers a refused connection until the peer can no longer repeat its message.
    fn linger(&mut self, now: Instant, id: u32) {
        let span = self.config.repeat_after_max.saturating_mul(4);
        self.set_deadline(id, Some(now + span));
    }

    /// Sends a REJ about connection `id`.
    pub(crate) fn say_no(&mut self, id: u32, rejected: Rejected, reason: RejectReason) {
        let Some(connection) = self.connections.get(&id) else { return };
        let mut rej = plain_rej(id, connection.remote_id_or_zero(), rejected, reason);
        if reason == RejectReason::TIMEOUT {
            // A peer that never answered has not told its identifier: it looks for this end's, with its GUID.
            let guid = self.config.ca_guid.to_be_bytes();
            rej.info[..guid.len()].copy_from_slice(&guid);
            rej.info_len = guid.len() as u8;
        }
        self.refuse(connection.peer, connection.transaction, rej);
    }

    /// Sends `mad` and awaits an answer: from now on the timer repeats it.
    pub(crate) fn send_and_await(&mut self, now: Instant, id: u32, mad: CmMad) {
        let pause = self.config.repeat_after;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.last = Some(Box::new(mad));
        (connection.repeats, connection.pause, connection.patience) = (0, pause, None);
        let peer = connection.peer;
        self.send(peer, &mad);
        self.set_deadline(id, Some(now + pause));
    }

    /// Removes every trace of a connection.
    pub(crate) fn forget(&mut self, id: u32) {
        self.set_deadline(id, None);
        let Some(connection) = self.connections.remove(&id) else { return };
        if let Some(remote_id) = connection.remote_id {
            remove_if(&mut self.by_remote_id, &(connection.peer, remote_id), id);
        }
        if let Some(qpn) = connection.remote_qpn {
            remove_if(&mut self.by_remote_qpn, &(connection.peer, qpn), id);
        }
    }
}

/// Removes the entry of `key` if it is still `id`'s.
fn remove_if<K: Ord>(map: &mut std::collections::BTreeMap<K, u32>, key: &K, id: u32) {
    if map.get(key) == Some(&id) {
        map.remove(key);
    }
}
