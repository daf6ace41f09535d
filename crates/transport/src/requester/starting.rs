//! Requests start: when they may, with their memory found and their numbers given.

use super::check_start;
use super::common::{Common, Numbers, packets_of};
use super::ending::outcome;
use crate::connection::Connection;
use crate::context::Context;
use crate::responder::local_denial;
use crate::send_queue::Progress;
use highwire_verbs::{Access, CompletionStatus, Operation, QpState};
use highwire_wire::Psn;

/// Whether a request may start now.
pub(super) enum Gate {
    Open,
    Wait,
}

impl Common {
    /// The request whose next packet may be built: the one at the cursor, started if it was not. Requests that never leave
    /// this side are carried out on the way.
    #[inline]
    pub(super) fn admit(
        &mut self,
        numbers: &mut impl Numbers,
        conn: &Connection,
        ctx: &mut Context<'_>,
    ) -> Option<usize> {
        loop {
            let index = self.queue.cursor;
            let wqe = self.queue.wqes.get(index)?;
            match wqe.progress {
                Progress::Done(CompletionStatus::Success) => self.queue.step(),
                Progress::Done(_) => return None,
                Progress::Waiting if wqe.operation.is_local() => {
                    if !self.run_local(numbers, conn, ctx) {
                        return None;
                    }
                }
                Progress::Waiting => {
                    return match self.start(numbers, conn, ctx) {
                        Gate::Open => Some(index),
                        Gate::Wait => None,
                    };
                }
                Progress::Started => return self.is_still_permitted(conn, ctx, index).then_some(index),
            }
        }
    }

    /// A request's keys no longer permit its memory. The request ends with that error when those before it
    /// have ended.
    pub(super) fn lose_memory(&mut self, index: usize) {
        if let Some(wqe) = self.queue.wqes.get_mut(index) {
            wqe.progress = Progress::Done(CompletionStatus::LocalProtection);
            self.poisoned = true;
        }
    }

    /// Whether a request that was started may still read or write its memory; if not, it has failed.
    #[inline]
    pub(super) fn is_still_permitted(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        index: usize,
    ) -> bool {
        if self.queue.wqes[index].operation.is_read_or_atomic() {
            return true;
        }
        let Err(status) = self.translate(conn, ctx, index) else { return true };
        self.queue.wqes[index].progress = Progress::Done(status);
        self.poisoned = true;
        false
    }

    /// Starts the request at the cursor: checks its memory and gives it its numbers.
    fn start(&mut self, numbers: &mut impl Numbers, conn: &Connection, ctx: &mut Context<'_>) -> Gate {
        if self.poisoned || conn.state == QpState::Sqd {
            return Gate::Wait;
        }
        let wqe = &self.queue.wqes[self.queue.cursor];
        let needs_answer = wqe.operation.is_read_or_atomic();
        let limited = wqe.operation.consumes_receive()
            && self.credit_limit.is_some_and(|limit| {
                // One request beyond the limit may go, to find out (IBTA §9.7.7.2.5).
                Psn::new(self.ssn + 1).distance_from(Psn::new(limit)) > 1
            });
        // A READ's data is taken when its answer leaves, an atomic is executed when it arrives; a READ must not see an
        // atomic that was posted after it (IBTA §10.8.3.3).
        let overtakes = wqe.operation.is_atomic() && self.reads_in_flight > 0 && self.awaits_read(numbers);
        if wqe.flags.fence && self.reads_in_flight > 0
            || overtakes
            || needs_answer && self.reads_in_flight >= conn.max_rd_atomic
            || limited
        {
            return Gate::Wait;
        }
        if let Err(status) = check_start(conn, &wqe.operation, wqe.sges.as_slice(), wqe.length) {
            let index = self.queue.cursor;
            self.queue.wqes[index].progress = Progress::Done(status);
            self.poisoned = true;
            return Gate::Wait;
        }
        let packets = packets_of(conn, wqe);
        if !numbers.has_room_for(packets) {
            return Gate::Wait;
        }
        let index = self.queue.cursor;
        let permitted = match self.translate(conn, ctx, index) {
            // The memory for an answer is checked when the answer arrives, as on hardware: the responder's
            // own error comes first, and an atomic has been executed by then.
            Err(_) if needs_answer => Ok(()),
            permitted => permitted,
        };
        if let Err(status) = permitted {
            self.queue.wqes[index].progress = Progress::Done(status);
            self.poisoned = true;
            return Gate::Wait;
        }
        let (ssn, recv_sn, read_sn) = (self.ssn + 1, self.recv_sn, self.read_sn);
        self.ssn = ssn & 0x00FF_FFFF;
        let wqe = &mut self.queue.wqes[index];
        wqe.progress = Progress::Started;
        wqe.ssn = self.ssn;
        wqe.packets = if needs_answer { 1 } else { packets };
        wqe.responses = if needs_answer { packets } else { 0 };
        numbers.number(wqe, packets);
        if needs_answer {
            wqe.wqe_sn = read_sn;
            self.read_sn = (read_sn + 1) & 0x00FF_FFFF;
            self.reads_in_flight += 1;
        } else if wqe.operation.consumes_receive() {
            wqe.wqe_sn = recv_sn;
            self.recv_sn = (recv_sn + 1) & 0x00FF_FFFF;
        }
        Gate::Open
    }

    /// Whether a READ that was sent lacks its answer.
    fn awaits_read(&self, numbers: &impl Numbers) -> bool {
        self.queue
            .wqes
            .iter()
            .take(self.queue.cursor)
            .any(|wqe| matches!(wqe.operation, Operation::Read(_)) && outcome(numbers, wqe).is_none())
    }

    /// How many credits are left; `None` while the responder gives none.
    #[inline]
    pub(super) fn credits_left(&self) -> Option<u32> {
        self.credit_limit.map(|limit| Psn::new(limit).distance_from(Psn::new(self.ssn)).max(0) as u32)
    }

    /// Turns local keys into addresses, once; later calls only check that the keys still live.
    pub(super) fn translate(
        &mut self,
        conn: &Connection,
        ctx: &mut Context<'_>,
        index: usize,
    ) -> Result<(), CompletionStatus> {
        let wqe = &mut self.queue.wqes[index];
        let generation = ctx.regions.generation();
        if wqe.flags.inline || wqe.checked == generation {
            return Ok(());
        }
        if wqe.checked != 0 {
            let alive =
                wqe.sges.as_slice().iter().all(|s| s.length == 0 || ctx.regions.region(s.lkey).is_some());
            if !alive {
                return Err(CompletionStatus::LocalProtection);
            }
            wqe.checked = generation;
            return Ok(());
        }
        let write = wqe.operation.is_read_or_atomic();
        for sge in wqe.sges.as_mut_slice() {
            // An empty element needs no key: there is nothing to protect.
            if sge.length > 0 {
                let pd = conn.config.pd;
                let addr = ctx.regions.check_local(pd, sge.lkey, sge.addr, sge.length, write);
                sge.addr = addr.map_err(|error| {
                    let needed = if write { Access::LOCAL_WRITE } else { Access::NONE };
                    ctx.deny(local_denial(conn, pd, sge, needed, error));
                    CompletionStatus::LocalProtection
                })?;
            }
        }
        wqe.checked = generation;
        Ok(())
    }

    /// Carries out a request that never leaves this side; false while it has to wait, or if it failed.
    fn run_local(&mut self, numbers: &impl Numbers, conn: &Connection, ctx: &mut Context<'_>) -> bool {
        // Keys change only when nothing that was posted before can still use them.
        if self.queue.cursor > 0 || self.poisoned || conn.state == QpState::Sqd {
            return false;
        }
        let wqe = &mut self.queue.wqes[0];
        let status = match wqe.operation {
            Operation::LocalInvalidate(key) => match ctx.regions.invalidate(conn.config.pd, conn.qpn, key) {
                Ok(()) => CompletionStatus::Success,
                Err(_) => CompletionStatus::LocalProtection,
            },
            Operation::BindWindow(bind) => match ctx.regions.bind(conn.config.pd, conn.qpn, &bind) {
                Ok(()) => CompletionStatus::Success,
                Err(_) => CompletionStatus::WindowBind,
            },
            _ => unreachable!("only local operations come here"),
        };
        wqe.progress = Progress::Done(status);
        self.queue.step();
        self.retire(numbers, conn, ctx);
        !self.failed
    }
}
