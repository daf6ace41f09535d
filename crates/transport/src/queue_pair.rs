//! A queue pair: its state, its requester and its responder, and which of the two sends next.

mod arriving;
mod changing;
mod direct;

pub use direct::DirectOp;

use crate::connection::{Connection, TransportConfig};
use crate::context::Context;
use crate::counters::Counter;
use crate::plan::{Outgoing, Plan, Source};
use crate::receive_queue::ReceiveQueue;
use crate::requester::Requester;
use crate::responder::{Responder, Turn};
use highwire_stdx::Instant;
use highwire_verbs::{
    Access, Address, CqId, Gather, Mtu, Pd, PostError, QpConfig, QpState, Recovery, RecvWr, SEGMENT_GROUP,
    SendWr, Service, SrqId,
};
use highwire_wire::{Psn, Qpn};

/// A queue pair of any service.
#[derive(Clone, Debug)]
pub struct QueuePair {
    conn: Connection,
    recovery: Recovery,
    sq_psn: Psn,
    rq_psn: Psn,
    requester: Requester,
    responder: Responder,
    receives: ReceiveQueue,
    /// The packet that leaves now.
    plan: Plan,
    /// The responder sent last, so the requester goes first.
    replied_last: bool,
    established: bool,
    /// A request that takes a receive of the peer was posted since the last reset.
    has_needed_receive: bool,
}

/// A queue pair's attributes, as it reports them.
#[derive(Clone, Copy, Debug)]
pub struct QpSnapshot {
    /// What it was made with.
    pub config: QpConfig,
    /// Its state.
    pub state: QpState,
    /// What peers may do.
    pub access: Access,
    /// Its Q_Key.
    pub qkey: u32,
    /// The peer.
    pub address: Address,
    /// The peer's queue pair.
    pub remote_qpn: Qpn,
    /// The path MTU.
    pub mtu: Mtu,
    /// The next PSN to send.
    pub sq_psn: Psn,
    /// The next PSN expected.
    pub rq_psn: Psn,
    /// READs and atomics sent at once.
    pub max_rd_atomic: u8,
    /// READs and atomics accepted at once.
    pub max_dest_rd_atomic: u8,
    /// RNR timer code.
    pub min_rnr_timer: u8,
    /// Local ACK timeout code.
    pub timeout: u8,
    /// Retries.
    pub retry_count: u8,
    /// RNR retries.
    pub rnr_retry: u8,
    /// How the requester recovers losses.
    pub recovery: Recovery,
    /// Packets in flight.
    pub in_flight: u32,
    /// Sends posted and not completed.
    pub send_queue_len: u32,
    /// In SQD: requests that had begun have not all ended.
    pub is_draining: bool,
    /// The peer's last answer to a send was that it has no receive.
    pub lacks_receive: bool,
    /// The PSN of a request out of turn, while none in turn has come.
    pub unexpected_psn: Option<Psn>,
}

impl QueuePair {
    /// A queue pair in RESET.
    pub fn new(qpn: Qpn, config: QpConfig, transport: TransportConfig) -> QueuePair {
        let conn = Connection {
            qpn,
            config,
            transport,
            state: QpState::Reset,
            access: Access::NONE,
            qkey: 0,
            address: match config.service {
                Service::Raw => Address::new(SEGMENT_GROUP),
                _ => Address::default(),
            },
            remote_qpn: Qpn::default(),
            mtu: Mtu::B4096,
            max_rd_atomic: 1,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            timeout: 14,
            retry_count: 7,
            rnr_retry: 7,
            notify_drained: true,
            has_no_queue: false,
        };
        let receives = ReceiveQueue::new(config.pd, config.caps.max_recv_wr, config.caps.max_recv_sge);
        QueuePair {
            requester: Requester::new(&conn, Psn::default(), Recovery::GoBackN, Instant::ZERO),
            responder: Responder::new(Psn::default()),
            conn,
            recovery: Recovery::GoBackN,
            sq_psn: Psn::default(),
            rq_psn: Psn::default(),
            receives,
            plan: Plan::new(),
            replied_last: false,
            established: false,
            has_needed_receive: false,
        }
    }

    /// Its number.
    #[inline]
    pub fn qpn(&self) -> Qpn {
        self.conn.qpn
    }

    /// What it was made with.
    pub fn config(&self) -> &QpConfig {
        &self.conn.config
    }

    /// Its state.
    #[inline]
    pub fn state(&self) -> QpState {
        self.conn.state
    }

    /// Whether its requests leave in IRN's format, and whether the peer's arrive in it.
    pub fn is_irn(&self) -> (bool, bool) {
        (self.requester.is_irn(), self.responder.is_irn())
    }

    /// Everything about it.
    pub fn snapshot(&self) -> QpSnapshot {
        let conn = &self.conn;
        QpSnapshot {
            config: conn.config,
            state: conn.state,
            access: conn.access,
            qkey: conn.qkey,
            address: conn.address,
            remote_qpn: conn.remote_qpn,
            mtu: conn.mtu,
            sq_psn: self.requester.next_psn(),
            rq_psn: self.responder.expected(),
            max_rd_atomic: conn.max_rd_atomic as u8,
            max_dest_rd_atomic: conn.max_dest_rd_atomic as u8,
            min_rnr_timer: conn.min_rnr_timer,
            timeout: conn.timeout,
            retry_count: conn.retry_count,
            rnr_retry: conn.rnr_retry,
            recovery: self.recovery,
            in_flight: self.requester.in_flight(),
            send_queue_len: self.requester.queue().len() as u32,
            is_draining: conn.state == QpState::Sqd && self.requester.has_begun_requests(),
            lacks_receive: self.requester.lacks_receive(conn),
            unexpected_psn: self.responder.unexpected().filter(|_| self.responder.expected() == self.rq_psn),
        }
    }

    /// Whether the peer's requests may come in IRN's format: the peer has proved to understand it.
    pub fn set_irn_accepted(&mut self, accepted: bool) {
        self.responder.accepts_irn = accepted;
    }

    /// XRC: the next packet is for this shared receive queue, whose domain, completion queue and protection domain count; `None` if
    /// there is none with its number in the queue pair's domain, and it is refused.
    pub fn aim_at(&mut self, queue: Option<(SrqId, Pd, CqId)>) {
        self.conn.has_no_queue = queue.is_none();
        if let Some((srq, pd, cq)) = queue {
            let config = &mut self.conn.config;
            (config.srq, config.pd, config.recv_cq) = (Some(srq), pd, cq);
        }
    }

    /// Keeps requests back, or lets them go. The driver keeps them back until it knows which formats the peer
    /// understands.
    pub fn hold_transmit(&mut self, held: bool) {
        self.requester.hold(held);
    }

    /// Whether requests are being kept back.
    pub fn is_held(&self) -> bool {
        self.requester.is_held()
    }

    /// Takes a send request.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued then.
    #[inline]
    pub fn post_send(&mut self, ctx: &mut Context<'_>, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.requester.post(&self.conn, wr)?;
        self.has_needed_receive |= wr.operation.consumes_receive();
        if matches!(self.conn.state, QpState::Error | QpState::Sqe) {
            self.flush_sends(ctx);
        }
        Ok(())
    }

    /// Whether [`post_send`](Self::post_send) would take a request behind `ahead` others that are about to be posted.
    ///
    /// # Errors
    /// Why not.
    pub fn check_send(&self, wr: &SendWr<'_>, ahead: usize) -> Result<(), PostError> {
        self.requester.check_post(&self.conn, wr, ahead)
    }

    /// Takes a receive request.
    ///
    /// # Errors
    /// [`PostError`]; nothing was queued then.
    #[inline]
    pub fn post_recv(&mut self, ctx: &mut Context<'_>, wr: &RecvWr<'_>) -> Result<(), PostError> {
        if self.conn.config.srq.is_some() || self.conn.config.service.is_xrc() {
            return Err(PostError::NoSuchQueue);
        }
        if self.conn.state == QpState::Reset {
            return Err(PostError::WrongState);
        }
        self.receives.post(wr)?;
        if self.conn.state == QpState::Error {
            self.flush_receives(ctx);
        }
        Ok(())
    }

    /// The connected peer: its address and its queue pair.
    pub fn peer(&self) -> (highwire_verbs::Gid, Qpn) {
        (self.conn.address.gid, self.conn.remote_qpn)
    }

    /// Says whether the peer has yet to look at the packets that it was sent. A driver may know this, if its
    /// link keeps packets until the peer looks. Time that passes meanwhile does not count against the peer.
    pub fn set_unheard(&mut self, is_unheard: bool) {
        self.requester.set_unheard(is_unheard);
    }

    /// Whether a timer that is due at `now` makes the queue pair give its peer up.
    pub fn gives_up(&self, now: Instant) -> bool {
        self.requester.gives_up(&self.conn, now)
    }

    /// Handles the passing of time; early and late calls are harmless.
    pub fn handle_timeout(&mut self, ctx: &mut Context<'_>) {
        if self.conn.state.receives() {
            self.requester.handle_timeout(&self.conn, ctx);
            self.responder.handle_timeout(&self.conn, ctx);
            self.settle(ctx);
        }
    }

    /// When [`Self::handle_timeout`] is wanted next; [`Instant::FAR_FUTURE`] for never.
    #[inline]
    pub fn next_deadline(&self) -> Instant {
        if !self.conn.state.receives() {
            return Instant::FAR_FUTURE;
        }
        self.requester.next_deadline(&self.conn).min(self.responder.next_deadline())
    }

    /// Whether [`Self::poll_transmit`] is worth a call.
    #[inline]
    pub fn wants_transmit(&mut self, now: Instant) -> bool {
        self.responder.wants_transmit()
            || self.requester.wants_read_ack()
            || self.requester.wants_transmit(&self.conn, now)
    }

    /// Whether all it wants to send is an acknowledgement that may ride on a request.
    #[inline]
    pub fn owes_only_an_ack(&mut self, now: Instant) -> bool {
        self.conn.transport.acks_ride
            && self.responder.owes_only_an_ack()
            && self.requester.is_irn()
            && !self.requester.wants_read_ack()
            && !self.requester.wants_transmit(&self.conn, now)
    }

    /// Decides on the next packet to send; if there is one, [`Self::outgoing`] shows it.
    #[inline]
    pub fn poll_transmit(&mut self, ctx: &mut Context<'_>) -> bool {
        self.plan.path = 0;
        let planned = self.choose(ctx);
        if self.conn.config.service == Service::XrcTarget {
            // Answers name no queue.
            self.plan.headers = self.plan.headers.to_xrc(Qpn::default());
        }
        if planned {
            ctx.counters.count(Counter::PacketsSent);
            ctx.counters.add(Counter::BytesSent, u64::from(self.plan.length));
        }
        planned
    }

    #[inline]
    fn choose(&mut self, ctx: &mut Context<'_>) -> bool {
        let QueuePair { conn, requester, responder, receives, plan, .. } = self;
        let conn = &*conn;
        let turn = &mut Turn { conn, receives, ctx };
        if conn.transport.acks_ride
            && responder.has_ack_to_ride()
            && requester.is_about_to_send_one(conn)
            && requester.poll_transmit(conn, turn.ctx, plan)
        {
            responder.let_ack_ride(turn, plan);
            self.settle(ctx);
            return true;
        }
        if responder.poll_acknowledge(turn, plan) {
            // A refusal that leaves breaks the connection.
            self.settle(ctx);
            return true;
        }
        if !conn.state.receives() {
            return false;
        }
        if requester.poll_read_ack(conn, plan) {
            return true;
        }
        // Answers and requests take turns, so that neither starves the other.
        self.replied_last = !self.replied_last;
        #[allow(clippy::if_same_then_else, reason = "their order is the difference")]
        let planned = if self.replied_last {
            responder.poll_reply(turn, plan) || requester.poll_transmit(conn, turn.ctx, plan)
        } else {
            requester.poll_transmit(conn, turn.ctx, plan) || responder.poll_reply(turn, plan)
        };
        // An answer that cannot be given any more has become a refusal.
        let planned = planned || responder.is_refusing() && responder.poll_acknowledge(turn, plan);
        self.settle(ctx);
        planned
    }

    /// The driver could not read the payload of the planned packet, because its memory has gone. The packet
    /// counts as lost, and the request, or the peer's READ, ends in error.
    pub fn fail_transmit(&mut self, ctx: &mut Context<'_>) {
        match self.plan.payload {
            Source::Nothing => {}
            Source::Request(index) => self.requester.fail_transmit(&self.conn, ctx, index),
            Source::Read => {
                let mut turn = Turn { conn: &self.conn, receives: &mut self.receives, ctx };
                self.responder.fail_transmit(&mut turn, self.plan.headers.bth.psn);
            }
        }
        self.settle(ctx);
    }

    /// The packet that was planned. The driver copies its payload before it does anything else with the queue pair.
    #[inline]
    pub fn outgoing(&self) -> Outgoing<'_> {
        let plan = &self.plan;
        let mut address = &self.conn.address;
        let payload = match plan.payload {
            Source::Nothing => Gather::EMPTY,
            Source::Read => Gather::new(self.responder.read_span(), 0, plan.length),
            Source::Request(index) => {
                let wqe = &self.requester.queue().wqes[index as usize];
                if self.conn.config.service == Service::Ud {
                    address = wqe.datagram.as_ref().map_or(address, |datagram| &datagram.address);
                }
                Gather::new(wqe.sges.as_slice(), plan.offset, plan.length)
            }
        };
        let Plan { headers, order, path, .. } = plan;
        Outgoing { qpn: self.conn.qpn, address, headers, payload, order: *order, path: *path }
    }
}
