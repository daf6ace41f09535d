//! The responding end of a connection.

use highwire_stdx::Instant;
use highwire_wire::cm::{Answered, CmMad, CmMessage, Mra, Rej, RejectReason, Rejected, Rep};

use crate::manager::padded;
use crate::table::State;
use crate::{CallError, CommId, ConnectionManager, Event};

impl ConnectionManager {
    /// Accepts a request. [`Established`](Event::Established) follows when the peer is ready.
    ///
    /// This fills in both identifiers and the GUID of `reply`.
    ///
    /// # Errors
    /// Unknown, or the request was accepted or rejected already.
    pub fn accept(
        &mut self,
        now: Instant,
        id: CommId,
        reply: &Rep,
        ece_options: u32,
    ) -> Result<(), CallError> {
        let ca_guid = self.config.ca_guid;
        let connection = self.connections.get_mut(&id.0).ok_or(CallError::UnknownId)?;
        if connection.state != State::ReqReceived {
            return Err(CallError::WrongState);
        }
        connection.state = State::RepSent;
        connection.local_qpn = Some(reply.qpn);
        let (transaction_id, remote_id) = (connection.transaction, connection.remote_id_or_zero());
        let reply = Rep { local_id: id.0, remote_id, ca_guid, ..*reply };
        self.send_and_await(now, id.0, CmMad { transaction_id, ece_options, message: CmMessage::Rep(reply) });
        Ok(())
    }

    /// Refuses a request, or a reply. The connection is over, and is forgotten when it is released.
    ///
    /// # Errors
    /// Unknown; neither asked for nor replied to; more than 72 bytes of information or 148 of private data.
    pub fn reject(
        &mut self,
        id: CommId,
        reason: RejectReason,
        info: &[u8],
        private_data: &[u8],
    ) -> Result<(), CallError> {
        let (info_len, info, private_data) = (info.len() as u8, padded(info)?, padded(private_data)?);
        let connection = self.connections.get_mut(&id.0).ok_or(CallError::UnknownId)?;
        let rejected = match connection.state {
            State::ReqReceived => Rejected::Req,
            State::RepReceived | State::RepSent => Rejected::Rep,
            _ => return Err(CallError::WrongState),
        };
        connection.state = State::Closed;
        let remote_id = connection.remote_id_or_zero();
        let rej = Rej { local_id: id.0, remote_id, rejected, reason, info_len, info, private_data };
        let (transaction_id, message) = (connection.transaction, CmMessage::Rej(rej));
        let mad = CmMad { transaction_id, ece_options: 0, message };
        let peer = connection.peer;
        connection.last = Some(Box::new(mad));
        self.send(peer, &mad);
        self.set_deadline(id.0, None);
        Ok(())
    }

    /// Data has arrived on the queue pair of an accepted connection: the peer is ready, even if its RTU was lost.
    ///
    /// # Errors
    /// Unknown, or neither accepted nor established.
    pub fn notify_established(&mut self, id: CommId) -> Result<(), CallError> {
        match self.connections.get(&id.0).ok_or(CallError::UnknownId)?.state {
            State::RepSent => self.on_established(id.0),
            State::Established => {}
            _ => return Err(CallError::WrongState),
        }
        Ok(())
    }

    pub(crate) fn on_established(&mut self, id: u32) {
        self.set_deadline(id, None);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        (connection.state, connection.last) = (State::Established, None);
        self.tell(id, Event::Established { id: CommId(id) });
    }

    /// Asks the peer for patience.
    pub(crate) fn delay(&mut self, id: u32, answered: Answered) {
        let service_timeout = self.config.service_timeout;
        let Some(connection) = self.connections.get(&id) else { return };
        let mra = Mra {
            local_id: id,
            remote_id: connection.remote_id_or_zero(),
            answered,
            service_timeout,
            private_data: [0; Mra::PRIVATE_LEN],
        };
        let (peer, transaction_id) = (connection.peer, connection.transaction);
        let message = CmMessage::Mra(mra);
        self.send(peer, &CmMad { transaction_id, ece_options: 0, message });
    }

    /// Reports an event about connection `id`, unless the application has released it.
    pub(crate) fn tell(&mut self, id: u32, event: Event) {
        if self.connections.get(&id).is_some_and(|connection| !connection.is_released) {
            self.events.push_back(event);
        }
    }
}
