//! Changes of attributes and state, and their effect on posted requests.

use super::QueuePair;
use crate::context::Context;
use crate::requester::Requester;
use crate::responder::{self, Responder};
use highwire_stdx::Instant;
use highwire_verbs::{AsyncEvent, CompletionOp, CompletionStatus, ModifyError, QpAttr, QpState, Recovery};
use highwire_wire::Psn;

impl QueuePair {
    /// Changes attributes and state.
    ///
    /// # Errors
    /// [`ModifyError`]; nothing has changed then.
    pub fn modify(&mut self, ctx: &mut Context<'_>, attr: &QpAttr) -> Result<(), ModifyError> {
        let from = self.conn.state;
        let to = attr.check(self.conn.config.service, from)?;
        if let Some(recovery) = attr.recovery {
            let before_sending = matches!(from, QpState::Reset | QpState::Init | QpState::Rtr);
            if !before_sending && !self.requester.set_recovery(&self.conn, recovery, ctx.now) {
                return Err(ModifyError::NotApplicable("recovery"));
            }
            self.recovery = recovery;
        }
        self.assign(attr);
        match (from, to) {
            (_, QpState::Reset) => self.reset(),
            (_, QpState::Error) => self.enter_error(ctx),
            (QpState::Init, QpState::Rtr) => {
                let accepts = self.responder.accepts_irn;
                self.responder = Responder::new(self.rq_psn);
                self.responder.accepts_irn = accepts;
                self.conn.state = to;
            }
            (QpState::Rtr, QpState::Rts) => {
                self.conn.state = to;
                self.requester.restart(&self.conn, self.sq_psn, self.recovery, ctx.now);
            }
            (QpState::Sqe, QpState::Rts) => {
                self.conn.state = to;
                let next = self.requester.next_psn();
                self.requester.restart(&self.conn, next, self.recovery, ctx.now);
            }
            _ => self.conn.state = to,
        }
        self.requester.report_drained(&self.conn, ctx);
        Ok(())
    }

    pub(super) fn assign(&mut self, attr: &QpAttr) {
        fn set<T>(field: &mut T, value: Option<T>) {
            if let Some(value) = value {
                *field = value;
            }
        }
        let conn = &mut self.conn;
        set(&mut conn.access, attr.access);
        set(&mut conn.qkey, attr.qkey);
        set(&mut conn.address, attr.address);
        set(&mut conn.remote_qpn, attr.remote_qpn);
        set(&mut conn.mtu, attr.path_mtu);
        set(&mut self.rq_psn, attr.rq_psn);
        set(&mut self.sq_psn, attr.sq_psn);
        set(&mut conn.max_rd_atomic, attr.max_rd_atomic.map(u32::from));
        set(&mut conn.max_dest_rd_atomic, attr.max_dest_rd_atomic.map(u32::from));
        set(&mut conn.min_rnr_timer, attr.min_rnr_timer);
        set(&mut conn.timeout, attr.timeout);
        set(&mut conn.retry_count, attr.retry_count);
        set(&mut conn.rnr_retry, attr.rnr_retry);
        set(&mut conn.notify_drained, attr.notify_drained);
    }

    pub(super) fn reset(&mut self) {
        self.conn.state = QpState::Reset;
        self.requester = Requester::new(&self.conn, Psn::default(), Recovery::GoBackN, Instant::ZERO);
        self.responder = Responder::new(Psn::default());
        self.has_needed_receive = false;
        self.receives.clear();
        self.established = false;
    }

    /// Goes into the error state: everything posted is flushed (IBTA §10.3.1.7).
    pub fn enter_error(&mut self, ctx: &mut Context<'_>) {
        if self.conn.state == QpState::Error {
            return;
        }
        self.conn.state = QpState::Error;
        self.flush_sends(ctx);
        self.flush_receives(ctx);
        if self.conn.config.srq.is_some() {
            ctx.events.push_back(AsyncEvent::LastWqeReached(self.conn.qpn));
        }
    }

    pub(super) fn flush_sends(&mut self, ctx: &mut Context<'_>) {
        self.requester.flush(&self.conn, ctx);
    }

    pub(super) fn flush_receives(&mut self, ctx: &mut Context<'_>) {
        let mut wqes = self.responder.flush();
        while self.receives.take_into(&mut wqes).is_some() {}
        for wqe in wqes {
            let mut completion = responder::ended(&self.conn, &wqe, CompletionStatus::Flushed);
            completion.operation = CompletionOp::Receive;
            ctx.completions.push_back((self.conn.config.recv_cq, completion));
        }
    }
}
