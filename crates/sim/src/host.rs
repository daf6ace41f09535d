//! A host on the fabric: its flows, and the engine that carries them.
//!
//! The fabric counts picoseconds, protocols count nanoseconds. The host rounds the time down for a protocol,
//! so the protocol's clock is never ahead; an action that the protocol asks for at a nanosecond happens at
//! the first picosecond of it. Both are functions of the fabric's exact time; nothing is ever added to a
//! rounded value, so nothing drifts.

use highwire_fabric::{Host, Nearness, Priorities, Time};
use std::sync::Arc;

use crate::iwarp::Iwarp;
use crate::ledger::Ledger;
use crate::parcel::Body;
use crate::rdma::Rdma;
use crate::scenario::Transport;
use crate::stamped::{Trail, Wire};
use crate::world::{Share, World};

/// A host.
#[derive(Debug)]
pub(crate) struct SimHost {
    pub(crate) ledger: Ledger,
    pub(crate) engine: Engine,
}

/// The transport that carries the flows.
#[derive(Debug)]
pub(crate) enum Engine {
    /// An RNIC.
    Rdma(Box<Rdma>),
    /// A card that speaks TCP.
    Iwarp(Box<Iwarp>),
}

impl<W: Wire> Host<W> for SimHost {
    #[inline]
    fn handle_packet(&mut self, now: Time, packet: W) {
        let (ledger, trail, packet) = (&mut self.ledger, packet.trail(), packet.parcel());
        match (&mut self.engine, &packet.body) {
            (Engine::Rdma(rdma), Body::Roce(headers)) => {
                rdma.handle_packet(ledger, now, headers, packet, trail);
            }
            (Engine::Iwarp(iwarp), &Body::Segment { connection, segment }) => {
                iwarp.handle_segment(ledger, now, connection, segment);
            }
            (Engine::Iwarp(iwarp), Body::Ack { connection, ack }) => {
                iwarp.handle_ack(ledger, now, *connection, ack);
            }
            _ => unreachable!("all hosts of a run speak one transport"),
        }
        self.start_due(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        if self.engine.poll_timeout() <= now {
            match &mut self.engine {
                Engine::Rdma(rdma) => rdma.handle_timeout(&mut self.ledger, now),
                Engine::Iwarp(iwarp) => iwarp.handle_timeout(now),
            }
        }
        self.start_due(now);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time, open: Priorities) -> Option<W> {
        match &mut self.engine {
            Engine::Rdma(rdma) => {
                let parcel = rdma.poll_transmit(&mut self.ledger, now, open)?;
                Some(W::of(parcel, if W::IS_STAMPED { rdma.trail_of(&parcel) } else { Trail::EMPTY }))
            }
            Engine::Iwarp(iwarp) => {
                let parcel = iwarp.poll_transmit(&mut self.ledger, now, open)?;
                Some(W::of(parcel, Trail::EMPTY))
            }
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Time {
        self.engine.poll_timeout().min(self.ledger.next_start())
    }

    #[inline]
    fn look_ahead(&self, nearness: Nearness<'_, W>) {
        if let Engine::Rdma(rdma) = &self.engine {
            rdma.look_ahead(match nearness {
                Nearness::Near => Nearness::Near,
                Nearness::Next(packet) => Nearness::Next(packet.map(W::parcel)),
            });
        }
    }
}

impl Engine {
    #[inline]
    fn poll_timeout(&self) -> Time {
        match self {
            Engine::Rdma(rdma) => rdma.poll_timeout(),
            Engine::Iwarp(iwarp) => iwarp.poll_timeout(),
        }
    }
}

impl SimHost {
    /// Host `host` with its share of the world's flows.
    pub(crate) fn new(host: u32, world: &Arc<World>, share: &Share) -> SimHost {
        let engine = match world.scheme.transport {
            Transport::Tcp(_) => Engine::Iwarp(Box::new(Iwarp::new(world, share))),
            _ => Engine::Rdma(Box::new(Rdma::new(host, world, share))),
        };
        SimHost { ledger: Ledger::new(host, Arc::clone(world), share), engine }
    }

    #[inline]
    fn start_due(&mut self, now: Time) {
        while let Some(flow) = self.ledger.take_due(now) {
            match &mut self.engine {
                Engine::Rdma(rdma) => rdma.start(&mut self.ledger, now, flow),
                Engine::Iwarp(iwarp) => iwarp.start(&mut self.ledger, now, flow),
            }
        }
    }
}
