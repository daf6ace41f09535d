//! A host on the fabric: its flows, and the engine that carries them.
//!
//! The fabric counts picoseconds, protocols count nanoseconds. A protocol is told the present rounded down, so its clock is
//! never ahead, and what it asks for at a nanosecond happens at the first picosecond of it. Both are functions of the fabric's
//! exact time; nothing is ever added to a rounded value, so nothing drifts.

use highwire_fabric::{Host, Priorities, Time};

use crate::ledger::Ledger;
use crate::parcel::{Body, Parcel};
use crate::rdma::Rdma;

/// A host.
#[derive(Debug)]
pub(crate) struct SimHost {
    pub(crate) ledger: Ledger,
    pub(crate) engine: Engine,
}

/// What carries the flows.
#[derive(Debug)]
pub(crate) enum Engine {
    /// An RNIC.
    Rdma(Box<Rdma>),
}

impl Host<Parcel> for SimHost {
    #[inline]
    fn handle_packet(&mut self, now: Time, packet: Parcel) {
        let Engine::Rdma(rdma) = &mut self.engine;
        let Body::Roce(headers) = &packet.body;
        rdma.handle_packet(&mut self.ledger, now, headers, &packet);
        self.start_due(now);
    }

    fn handle_timeout(&mut self, now: Time) {
        let Engine::Rdma(rdma) = &mut self.engine;
        if rdma.poll_timeout() <= now {
            rdma.handle_timeout(&mut self.ledger, now);
        }
        self.start_due(now);
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time, open: Priorities) -> Option<Parcel> {
        let Engine::Rdma(rdma) = &mut self.engine;
        rdma.poll_transmit(&mut self.ledger, now, open)
    }

    #[inline]
    fn poll_timeout(&self) -> Time {
        let Engine::Rdma(rdma) = &self.engine;
        rdma.poll_timeout().min(self.ledger.next_start())
    }
}

impl SimHost {
    #[inline]
    fn start_due(&mut self, now: Time) {
        while let Some(flow) = self.ledger.take_due(now) {
            let Engine::Rdma(rdma) = &mut self.engine;
            rdma.start(&mut self.ledger, now, flow);
        }
    }
}
