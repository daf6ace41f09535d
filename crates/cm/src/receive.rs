//! Received messages: finds the conversation, looks the reaction up in the table, and carries it out.

use highwire_stdx::Instant;
use highwire_verbs::Gid;
use highwire_wire::Qpn;
use highwire_wire::cm::{
    Answered, CmAttribute, CmMad, CmMessage, Drep, Dreq, Mra, Rej, RejectReason, Rejected, Req, TransportType,
};

use crate::config::exponent;
use crate::connection::Connection;
use crate::manager::plain_rej;
use crate::table::{Answer, State, answer};
use crate::{CommId, ConnectionManager, DisconnectCause, Event};

impl ConnectionManager {
    /// Takes a MAD that queue pair 1 of `from` sent. Any bytes are safe.
    pub fn handle_mad(&mut self, now: Instant, from: Gid, bytes: &[u8]) {
        let Ok(mad) = CmMad::parse(bytes) else {
            self.counters.malformed += 1;
            return;
        };
        self.counters.received += 1;
        match &mad.message {
            CmMessage::Req(req) => self.handle_req(now, from, &mad, req),
            CmMessage::SidrReq(req) => self.handle_sidr_req(now, from, &mad, req),
            CmMessage::SidrRep(rep) => self.handle_sidr_rep(now, from, &mad, rep),
            _ => match self.find(from, &mad) {
                Some(id) => self.react(now, id, &mad),
                None => self.handle_stranger(from, &mad),
            },
        }
    }

    /// The connection to which a message belongs: it comes from the peer's address, names both ends, and
    /// belongs to a transaction of theirs. Any user of a machine can send in the name of an address of
    /// 127.0.0.0/8, so only values that an outsider cannot have read prove that the peer sent it.
    fn find(&self, from: Gid, mad: &CmMad) -> Option<u32> {
        let message = &mad.message;
        if let CmMessage::Rej(rej) = message
            && (rej.reason, rej.remote_id) == (RejectReason::TIMEOUT, 0)
        {
            // A requester that never heard from this end does not know its identifier.
            let &id = self.by_remote_id.get(&(from, rej.local_id))?;
            let is_right =
                self.connections.get(&id).is_some_and(|known| known.transaction == mad.transaction_id);
            return is_right.then_some(id);
        }
        let id = message.receiver_id()?;
        let connection = self.connections.get(&id).filter(|connection| connection.peer == from)?;
        let is_ours = connection.transaction == mad.transaction_id;
        let names_peer = |local_id| connection.remote_id == Some(local_id);
        let is_right = match message {
            // The peer's identifier is news. It may even change: a peer forgets a request that it refused,
            // and knows its repetition by another identifier.
            CmMessage::Rep(_) | CmMessage::Rej(_) | CmMessage::Mra(_)
                if connection.state == State::ReqSent =>
            {
                is_ours
            }
            CmMessage::Rep(rep) => is_ours && names_peer(rep.local_id),
            CmMessage::Rej(rej) => is_ours && names_peer(rej.local_id),
            CmMessage::Mra(mra) => is_ours && names_peer(mra.local_id),
            CmMessage::Rtu(rtu) => is_ours && names_peer(rtu.local_id),
            // It begins a transaction of its own; its sender must know this end's queue pair instead.
            CmMessage::Dreq(dreq) => {
                names_peer(dreq.local_id) && connection.local_qpn == Some(dreq.remote_qpn)
            }
            CmMessage::Drep(drep) => {
                names_peer(drep.local_id) && connection.dreq_transaction == Some(mad.transaction_id)
            }
            CmMessage::Req(_) | CmMessage::SidrReq(_) | CmMessage::SidrRep(_) => false,
        };
        is_right.then_some(id)
    }

    /// A request that begins a connection, or its repetition.
    fn handle_req(&mut self, now: Instant, from: Gid, mad: &CmMad, req: &Req) {
        if let Some(&id) = self.by_remote_id.get(&(from, req.local_id)) {
            let is_repeated = self.connections.get(&id).is_some_and(|known| {
                known.remote_qpn == Some(req.qpn) && known.transaction == mad.transaction_id
            });
            if is_repeated {
                return self.react(now, id, mad);
            }
            let rej = plain_rej(0, req.local_id, Rejected::Req, RejectReason::DUPLICATE_LOCAL_ID);
            return self.refuse(from, mad.transaction_id, rej);
        }
        if self.is_pausing(now, req.service_id) {
            self.counters.ignored += 1;
            return;
        }
        if let Err(reason) = self.check_request(from, req) {
            if reason == RejectReason::STALE_CONNECTION {
                self.doubt_holder(from, req);
            }
            return self.refuse(from, mad.transaction_id, plain_rej(0, req.local_id, Rejected::Req, reason));
        }
        if self.waiting() >= self.config.pending_max {
            self.counters.overflowed += 1;
            return;
        }
        let id = self.fresh_id();
        let mut connection = Connection::new(State::ReqReceived, from, mad.transaction_id);
        (connection.remote_id, connection.remote_qpn) = (Some(req.local_id), Some(req.qpn));
        self.connections.insert(id, connection);
        self.by_remote_id.insert((from, req.local_id), id);
        self.by_remote_qpn.insert((from, req.qpn), id);
        let (request, ece_options) = (Box::new(*req), mad.ece_options);
        self.tell(id, Event::Requested { id: CommId(id), from, request, ece_options });
    }

    /// The reason to refuse a new connection, if there is one.
    fn check_request(&self, from: Gid, req: &Req) -> Result<(), RejectReason> {
        if !self.services.contains(&req.service_id) {
            return Err(RejectReason::INVALID_SERVICE_ID);
        }
        if req.transport == TransportType::Rd {
            return Err(RejectReason::INVALID_TRANSPORT_TYPE);
        }
        if !(1..=5).contains(&req.path_mtu) {
            return Err(RejectReason::INVALID_MTU);
        }
        if self.holder(from, req).is_some() {
            return Err(RejectReason::STALE_CONNECTION);
        }
        Ok(())
    }

    /// The connection that holds the requester's queue pair. A connection that is ending does not: the peer
    /// may have finished with it already.
    fn holder(&self, from: Gid, req: &Req) -> Option<u32> {
        let &id = self.by_remote_qpn.get(&(from, req.qpn))?;
        let state = self.connections.get(&id)?.state;
        let is_held =
            matches!(state, State::ReqReceived | State::RepReceived | State::RepSent | State::Established);
        is_held.then_some(id)
    }

    /// A connected queue pair of the peer's is in a new request: its owner has forgotten the old connection
    /// (IBTA §12.9.8.3), or another process speaks in its name.
    fn doubt_holder(&mut self, from: Gid, req: &Req) {
        if let Some(id) = self.holder(from, req) {
            self.doubt(id);
        }
    }

    /// Asks the peer whether it still knows connection `id`, which ends only if the peer does not.
    ///
    /// The question is a DREQ for queue pair 0, which no connection has: a peer that knows both identifiers ignores a
    /// DREQ for another queue pair than its own, and one that does not know them answers by DREP. Linux does both.
    fn doubt(&mut self, id: u32) {
        let fresh = self.fresh_transaction(id);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !matches!(connection.state, State::Established | State::RepSent) {
            return;
        }
        // A repetition stays in the same transaction: else requests that come fast enough would outrun every
        // answer.
        let transaction_id = *connection.dreq_transaction.get_or_insert(fresh);
        let dreq = Dreq {
            local_id: id,
            remote_id: connection.remote_id_or_zero(),
            remote_qpn: Qpn::default(),
            private_data: [0; Dreq::PRIVATE_LEN],
        };
        let peer = connection.peer;
        self.send(peer, &CmMad { transaction_id, ece_options: 0, message: CmMessage::Dreq(dreq) });
    }

    /// The number of connections that wait for the application.
    fn waiting(&self) -> usize {
        if self.connections.len() < self.config.pending_max {
            return 0;
        }
        self.connections.values().filter(|c| c.state == State::ReqReceived).count()
    }

    /// Carries out the table's reaction to a message.
    fn react(&mut self, now: Instant, id: u32, mad: &CmMad) {
        let Some(state) = self.connections.get(&id).map(|connection| connection.state) else { return };
        let answer = answer(state, mad.message.attribute());
        match (answer, &mad.message) {
            (Answer::Proceed, CmMessage::Rep(rep)) => self.on_replied(id, mad, rep),
            (Answer::Establish, _) => self.on_established(id),
            (Answer::Wait, CmMessage::Mra(mra)) => self.on_delayed(now, id, mra),
            (Answer::Repeat, _) => self.say_again(id),
            (Answer::Delay, CmMessage::Rep(_)) => self.delay(id, Answered::Rep),
            (Answer::Delay, _) => self.delay(id, Answered::Req),
            (Answer::Abandon, CmMessage::Rej(rej))
                if self.may_come_back(now, id, rej) && self.asks_again(now, id) => {}
            (Answer::Abandon, CmMessage::Rej(rej)) => {
                self.close(id);
                self.end(id, Event::Rejected { id: CommId(id), reject: Box::new(*rej) });
            }
            (Answer::Part, CmMessage::Dreq(dreq)) => self.on_parting(now, id, mad, dreq),
            (Answer::Parted, _) => self.depart(now, id, DisconnectCause::Answered),
            (Answer::Lost, _) => self.depart(now, id, DisconnectCause::Stale),
            _ => self.counters.ignored += 1,
        }
    }

    fn on_replied(&mut self, id: u32, mad: &CmMad, rep: &highwire_wire::cm::Rep) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let key = (connection.peer, rep.qpn);
        (connection.remote_id, connection.remote_qpn) = (Some(rep.local_id), Some(rep.qpn));
        (connection.state, connection.last) = (State::RepReceived, None);
        self.set_deadline(id, None);
        if let Some(&old) = self.by_remote_qpn.get(&key)
            && self.connections.get(&old).is_some_and(|c| c.state != State::Timewait)
        {
            self.doubt(old);
        }
        self.by_remote_qpn.insert(key, id);
        let (reply, ece_options) = (Box::new(*rep), mad.ece_options);
        self.tell(id, Event::Replied { id: CommId(id), reply, ece_options });
    }

    /// The peer has the message and asks for more time. Repetitions go on, slowly: its answer may be lost,
    /// and a REJ is not repeated by itself. Only the first MRA counts, so that this end finally gives up an
    /// application that never decides.
    fn on_delayed(&mut self, now: Instant, id: u32, mra: &Mra) {
        let patience = now + exponent(mra.service_timeout) + exponent(self.config.response_timeout);
        let next = now + self.config.repeat_after_max;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if connection.remote_id.is_none() && mra.local_id != 0 {
            connection.remote_id = Some(mra.local_id);
        }
        if connection.patience.is_none() {
            connection.patience = Some(patience);
            self.set_deadline(id, Some(next.min(patience)));
        }
    }

    /// Sends the last message again, because the peer repeats its own.
    pub(crate) fn say_again(&mut self, id: u32) {
        let Some(connection) = self.connections.get(&id) else { return };
        let (peer, last) = (connection.peer, connection.last.clone());
        if let Some(mad) = last {
            self.counters.repeated += 1;
            self.send(peer, &mad);
        }
    }

    fn on_parting(&mut self, now: Instant, id: u32, mad: &CmMad, dreq: &Dreq) {
        let drep = Drep { local_id: id, remote_id: dreq.local_id, private_data: [0; Drep::PRIVATE_LEN] };
        let message = CmMessage::Drep(drep);
        let mad = CmMad { transaction_id: mad.transaction_id, ece_options: 0, message };
        let Some(connection) = self.connections.get(&id) else { return };
        let peer = connection.peer;
        self.send(peer, &mad);
        self.depart(now, id, DisconnectCause::Peer);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.last = Some(Box::new(mad));
        }
    }

    /// The connection has ended: it lingers, and the application gets an event.
    pub(crate) fn depart(&mut self, now: Instant, id: u32, cause: DisconnectCause) {
        self.enter_timewait(now, id);
        self.tell(id, Event::Disconnected { id: CommId(id), cause });
    }

    /// Whether a service without a listener had one a moment ago: a server that makes a listener for each
    /// connection may be between two of them. This end then repeats the request as if the peer had not
    /// answered.
    fn may_come_back(&self, now: Instant, id: u32, rej: &Rej) -> bool {
        let Some(Connection { state: State::ReqSent, peer, asked: Some(service), .. }) =
            self.connections.get(&id)
        else {
            return false;
        };
        let is_known = |other: &Connection| {
            other.peer == *peer
                && other.asked == Some(*service)
                && matches!(other.state, State::Established | State::DreqSent)
        };
        rej.reason == RejectReason::INVALID_SERVICE_ID
            && (self.left.get(&(*peer, *service)).is_some_and(|&until| until > now)
                || self.connections.values().any(is_known))
    }

    /// Repeats a refused request soon; false if that was done often enough.
    fn asks_again(&mut self, now: Instant, id: u32) -> bool {
        let (again_after, at_most) = (self.config.ask_again_after, self.config.ask_again_max);
        let asked = self.connections.get_mut(&id).filter(|asked| asked.refusals < at_most);
        let Some(asked) = asked else { return false };
        // The peer lives, so counting its silence begins anew.
        (asked.refusals, asked.repeats, asked.pause) = (asked.refusals + 1, 0, again_after);
        self.set_deadline(id, Some(now + again_after));
        self.counters.ignored += 1;
        true
    }

    pub(crate) fn enter_timewait(&mut self, now: Instant, id: u32) {
        let grace = self.config.grace;
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if let Some(service) = connection.asked {
            self.left.retain(|_, until| *until > now);
            self.left.insert((connection.peer, service), now + grace);
        }
        (connection.state, connection.last) = (State::Timewait, None);
        self.set_deadline(id, Some(now + self.config.timewait));
    }

    /// Closes a connection that will never be in use.
    pub(crate) fn close(&mut self, id: u32) {
        if let Some(connection) = self.connections.get_mut(&id) {
            (connection.state, connection.last) = (State::Closed, None);
        }
        self.set_deadline(id, None);
    }

    /// Reports the last event of a connection, or forgets it if the application has released the connection.
    pub(crate) fn end(&mut self, id: u32, event: Event) {
        if self.connections.get(&id).is_some_and(|connection| connection.is_released) {
            self.forget(id);
        } else {
            self.tell(id, event);
        }
    }

    /// Whether both identifiers of a DREQ are those of a connection that has not ended.
    fn knows(&self, from: Gid, dreq: &Dreq) -> bool {
        self.connections.get(&dreq.remote_id).is_some_and(|known| {
            let has_ended = matches!(known.state, State::Timewait | State::Closed);
            known.peer == from && known.remote_id == Some(dreq.local_id) && !has_ended
        })
    }

    /// A message about an unknown connection: a sender that still waits for an answer gets one (IBTA
    /// §12.9.8.2).
    fn handle_stranger(&mut self, from: Gid, mad: &CmMad) {
        self.counters.ignored += 1;
        match &mad.message {
            CmMessage::Rep(rep) => {
                let reason = RejectReason::INVALID_COMMUNICATION_ID;
                let rej = plain_rej(rep.remote_id, rep.local_id, Rejected::Rep, reason);
                self.refuse(from, mad.transaction_id, rej);
            }
            // A DREQ for another queue pair is a forgery, or the peer asks whether this end still knows the
            // connection.
            CmMessage::Dreq(dreq) if self.knows(from, dreq) => {}
            CmMessage::Dreq(dreq) => {
                let (local_id, remote_id) = (dreq.remote_id, dreq.local_id);
                let drep = Drep { local_id, remote_id, private_data: [0; Drep::PRIVATE_LEN] };
                let (transaction_id, message) = (mad.transaction_id, CmMessage::Drep(drep));
                self.send(from, &CmMad { transaction_id, ece_options: 0, message });
            }
            _ => debug_assert_ne!(mad.message.attribute(), CmAttribute::Req, "requests are never strangers"),
        }
    }
}
