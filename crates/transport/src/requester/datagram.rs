//! Datagrams that the driver sends past the queue: when no request waits there, a datagram need not wait
//! either, and it is complete as soon as it has left.

use super::packets::ud_headers;
use super::{Mode, Requester, check_post, check_start};
use crate::connection::Connection;
use crate::context::Context;
use crate::plan::{Order, Plan};
use highwire_verbs::{QpState, SendWr, Service, SgeList};
use highwire_wire::{Qpn, pad_count};

impl Requester {
    /// Plans the packet of a datagram that is not in the queue, finds its memory, and returns its length.
    /// `None` if the datagram has to go through the queue, which also reports any error.
    #[inline]
    pub(crate) fn plan_datagram(
        &mut self,
        conn: &Connection,
        ctx: &Context<'_>,
        wr: &SendWr<'_>,
        sges: &mut SgeList,
        plan: &mut Plan,
    ) -> Option<u32> {
        let is_possible = conn.config.service == Service::Ud
            && conn.state == QpState::Rts
            && self.is_idle()
            && !self.common.failed
            && !self.common.has_listeners;
        let to = wr.datagram.as_ref().filter(|to| is_possible && to.qpn != Qpn::MULTICAST)?;
        check_post(conn, wr, 0).ok()?;
        sges.set(wr.sges);
        let length = u32::try_from(sges.total()).ok()?;
        check_start(conn, &wr.operation, wr.sges, length).ok()?;
        if !wr.flags.inline {
            for sge in sges.as_mut_slice().iter_mut().filter(|sge| sge.length > 0) {
                sge.addr =
                    ctx.regions.check_local(conn.config.pd, sge.lkey, sge.addr, sge.length, false).ok()?;
            }
        }
        let (opcode, ext) = ud_headers(conn, &wr.operation, Some(to));
        plan.bare(opcode, to.qpn, self.mode.numbers().frontier(), ext, Order::Strict);
        plan.headers.bth.solicited = wr.flags.solicited;
        plan.headers.bth.pad_count = pad_count(length as usize);
        Some(length)
    }

    /// The datagram has left.
    #[inline]
    pub(crate) fn pass_datagram(&mut self) {
        if let Mode::Standard(standard) = &mut self.mode {
            standard.pass();
        }
    }
}
