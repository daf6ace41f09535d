//! Requests for the queue pair that provides a datagram service, and their answers (IBTA §12.11).

use highwire_stdx::Instant;
use highwire_verbs::Gid;
use highwire_wire::Qpn;
use highwire_wire::cm::{CmMad, CmMessage, SidrRep, SidrReq, SidrStatus};

use crate::connection::Connection;
use crate::manager::padded;
use crate::pending::{Answering, Asking};
use crate::table::State;
use crate::{CallError, CommId, ConnectionManager, Event};

impl ConnectionManager {
    /// Asks `to` for the queue pair of a datagram service. The answer is
    /// [`ServiceAnswered`](Event::ServiceAnswered) or [`ServiceUnreachable`](Event::ServiceUnreachable).
    ///
    /// # Errors
    /// Private data longer than 216 bytes.
    pub fn ask_service(
        &mut self,
        now: Instant,
        to: Gid,
        service_id: u64,
        pkey: u16,
        private_data: &[u8],
    ) -> Result<CommId, CallError> {
        let private_data = padded(private_data)?;
        let id = self.fresh_id();
        let message = CmMessage::SidrReq(SidrReq { request_id: id, pkey, service_id, private_data });
        let mad = CmMad { transaction_id: self.fresh_transaction(id), ece_options: 0, message };
        self.send(to, &mad);
        let pause = self.config.repeat_after;
        let deadline = Some(now + pause);
        self.asking.insert(
            id,
            Asking { peer: to, question: Box::new(mad), repeats: 0, pause, refusals: 0, deadline },
        );
        self.set_timer(id, None, deadline);
        Ok(CommId(id))
    }

    /// Answers a request. This end forgets it a while later, and with it its identifier.
    ///
    /// # Errors
    /// Unknown; answered already; private data longer than 136 bytes.
    pub fn answer_service(
        &mut self,
        now: Instant,
        id: CommId,
        status: SidrStatus,
        (qpn, qkey): (Qpn, u32),
        private_data: &[u8],
    ) -> Result<(), CallError> {
        let private_data = padded(private_data)?;
        let question = self.answering.get_mut(&id.0).ok_or(CallError::UnknownId)?;
        if question.answer.is_some() {
            return Err(CallError::WrongState);
        }
        let rep = SidrRep {
            request_id: question.request_id,
            status,
            info_len: 0,
            qpn,
            service_id: question.service_id,
            qkey,
            info: [0; SidrRep::INFO_LEN],
            private_data,
        };
        let (transaction_id, message) = (question.transaction, CmMessage::SidrRep(rep));
        let mad = CmMad { transaction_id, ece_options: 0, message };
        question.answer = Some(Box::new(mad));
        let (peer, deadline) = (question.peer, Some(now + self.config.timewait));
        let old = std::mem::replace(&mut question.deadline, deadline);
        self.set_timer(id.0, old, deadline);
        self.send(peer, &mad);
        Ok(())
    }

    pub(crate) fn handle_sidr_req(&mut self, now: Instant, from: Gid, mad: &CmMad, req: &SidrReq) {
        if let Some(&id) = self.answering_by_remote.get(&(from, req.request_id)) {
            let answer = self.answering.get(&id).and_then(|question| question.answer.clone());
            match answer {
                Some(answer) => {
                    self.counters.repeated += 1;
                    self.send(from, &answer);
                }
                None => self.counters.ignored += 1,
            }
            return;
        }
        if self.is_pausing(now, req.service_id) {
            self.counters.ignored += 1;
            return;
        }
        if !self.services.contains(&req.service_id) {
            return self.refuse_service(from, mad.transaction_id, req);
        }
        if self.answering.len() >= self.config.pending_max {
            self.counters.overflowed += 1;
            return;
        }
        let id = self.fresh_id();
        let question = Answering {
            peer: from,
            request_id: req.request_id,
            service_id: req.service_id,
            transaction: mad.transaction_id,
            answer: None,
            deadline: None,
        };
        self.answering.insert(id, question);
        self.answering_by_remote.insert((from, req.request_id), id);
        self.events.push_back(Event::ServiceRequested { id: CommId(id), from, request: Box::new(*req) });
    }

    /// Refuses a request: the service has no listener here.
    fn refuse_service(&mut self, from: Gid, transaction_id: u64, req: &SidrReq) {
        let rep = SidrRep {
            request_id: req.request_id,
            status: SidrStatus::UNSUPPORTED,
            info_len: 0,
            qpn: Qpn::default(),
            service_id: req.service_id,
            qkey: 0,
            info: [0; SidrRep::INFO_LEN],
            private_data: [0; SidrRep::PRIVATE_LEN],
        };
        self.send(from, &CmMad { transaction_id, ece_options: 0, message: CmMessage::SidrRep(rep) });
    }

    pub(crate) fn handle_sidr_rep(&mut self, now: Instant, from: Gid, mad: &CmMad, rep: &SidrRep) {
        let id = rep.request_id;
        let is_stranger = self
            .asking
            .get(&id)
            .is_none_or(|asking| asking.peer != from || asking.question.transaction_id != mad.transaction_id);
        if is_stranger {
            self.counters.ignored += 1;
            return;
        }
        if rep.status == SidrStatus::UNSUPPORTED
            && self.has_just_left(now, from, rep.service_id)
            && self.asks_service_again(now, id)
        {
            return;
        }
        self.forget_service(id);
        self.events.push_back(Event::ServiceAnswered { id: CommId(id), reply: Box::new(*rep) });
    }

    /// Repeats a refused request soon; false if that was done often enough.
    fn asks_service_again(&mut self, now: Instant, id: u32) -> bool {
        let (again_after, at_most) = (self.config.ask_again_after, self.config.ask_again_max);
        let Some(asking) = self.asking.get_mut(&id).filter(|asking| asking.refusals < at_most) else {
            return false;
        };
        // The peer lives, so counting its silence begins anew.
        (asking.refusals, asking.repeats, asking.pause) = (asking.refusals + 1, 0, again_after);
        let next = Some(now + again_after);
        let old = std::mem::replace(&mut asking.deadline, next);
        self.set_timer(id, old, next);
        self.counters.ignored += 1;
        true
    }

    /// Whether this end was connected to the same port a moment ago, or still is, in any port space: its
    /// server may pause.
    fn has_just_left(&self, now: Instant, peer: Gid, service_id: u64) -> bool {
        let is_same = |service: u64| service as u16 == service_id as u16;
        let is_known = |connection: &Connection| {
            connection.peer == peer
                && connection.asked.is_some_and(is_same)
                && matches!(connection.state, State::Established | State::DreqSent)
        };
        self.left.iter().any(|(&(gid, left), &until)| gid == peer && is_same(left) && until > now)
            || self.connections.values().any(is_known)
    }

    pub(crate) fn on_service_due(&mut self, now: Instant, id: u32) {
        let (retries_max, pause_max) = (self.config.retries_max, self.config.repeat_after_max);
        let Some(asking) = self.asking.get_mut(&id) else { return self.forget_service(id) };
        asking.deadline = None;
        if asking.repeats >= retries_max {
            self.forget_service(id);
            return self.events.push_back(Event::ServiceUnreachable { id: CommId(id) });
        }
        asking.repeats += 1;
        asking.pause = asking.pause.saturating_mul(2).min(pause_max);
        let (peer, question, deadline) = (asking.peer, asking.question.clone(), Some(now + asking.pause));
        asking.deadline = deadline;
        self.counters.repeated += 1;
        self.send(peer, &question);
        self.set_timer(id, None, deadline);
    }

    /// The application releases a request; returns whether `id` was one.
    pub(crate) fn release_service(&mut self, now: Instant, id: u32) -> bool {
        if self.asking.contains_key(&id) {
            self.forget_service(id);
            return true;
        }
        let Some(question) = self.answering.get(&id) else { return false };
        if question.answer.is_none() {
            let refused =
                self.answer_service(now, CommId(id), SidrStatus::REJECTED, (Qpn::default(), 0), &[]);
            debug_assert!(refused.is_ok(), "it was not answered");
        }
        true
    }

    pub(crate) fn forget_service(&mut self, id: u32) {
        if let Some(asking) = self.asking.remove(&id) {
            self.set_timer(id, asking.deadline, None);
        }
        if let Some(question) = self.answering.remove(&id) {
            self.set_timer(id, question.deadline, None);
            self.answering_by_remote.remove(&(question.peer, question.request_id));
        }
    }
}
