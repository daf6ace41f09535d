//! Requests end, in the order in which they were posted, each with its status.

use super::common::{Common, Numbers};
use super::complete;
use crate::connection::Connection;
use crate::context::Context;
use crate::send_queue::{Progress, SendWqe};
use highwire_verbs::{CompletionStatus, QpState};

/// Whether a request has ended, according to the acknowledgements.
#[inline]
pub(super) fn outcome(numbers: &impl Numbers, wqe: &SendWqe) -> Option<CompletionStatus> {
    match wqe.progress {
        Progress::Done(status) => Some(status),
        Progress::Waiting => None,
        Progress::Started => numbers.is_complete(wqe).then_some(CompletionStatus::Success),
    }
}

impl Common {
    /// Completes the requests that have ended, from the oldest on.
    #[inline]
    pub(super) fn retire(&mut self, numbers: &impl Numbers, conn: &Connection, ctx: &mut Context<'_>) {
        while let Some(status) = self.queue.wqes.front().and_then(|wqe| outcome(numbers, wqe)) {
            let Some(wqe) = self.queue.pop() else { return };
            if wqe.responses > 0 && wqe.is_started() && wqe.psns > 0 {
                self.reads_in_flight -= 1;
            }
            complete(conn, ctx, &wqe, status);
            if status != CompletionStatus::Success {
                self.failed = true;
                return;
            }
        }
    }

    /// The oldest request ends in error, and with it the connection.
    pub(super) fn fail_front(
        &mut self,
        numbers: &impl Numbers,
        conn: &Connection,
        ctx: &mut Context<'_>,
        status: CompletionStatus,
    ) {
        if let Some(wqe) = self.queue.wqes.front_mut() {
            wqe.progress = Progress::Done(status);
            self.retire(numbers, conn, ctx);
        }
        self.failed = true;
    }

    /// Gives every request back.
    pub(super) fn flush(&mut self, conn: &Connection, ctx: &mut Context<'_>) {
        for wqe in std::mem::take(&mut self.queue).wqes {
            complete(conn, ctx, &wqe, CompletionStatus::Flushed);
        }
        self.reads_in_flight = 0;
        self.deadline = None;
        self.rnr_until = None;
    }

    /// Reports, once per visit to SQD, that all started requests have ended (IBTA §10.3.1.5).
    pub(super) fn report_drained(&mut self, conn: &Connection, ctx: &mut Context<'_>) {
        let started = self.queue.wqes.front().is_some_and(SendWqe::is_started);
        if conn.state != QpState::Sqd {
            self.drained_reported = false;
        } else if !started && !self.drained_reported {
            self.drained_reported = true;
            if !conn.notify_drained {
                return;
            }
            ctx.events.push_back(highwire_verbs::AsyncEvent::SendQueueDrained(conn.qpn));
        }
    }
}
