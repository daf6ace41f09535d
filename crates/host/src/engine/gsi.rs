//! Management datagrams on their way out: packets of queue pair 1, which no RNIC of ours has.

use super::Engine;
use highwire_broker::gsi_packet;
use highwire_link::{Order, Path, ReserveError};
use highwire_verbs::Gid;
use highwire_wire::{Qpn, UDP_PORT};
use std::net::{IpAddr, SocketAddr};

impl Engine {
    /// Sends a datagram from queue pair 1 to queue pair 1 at an address; false if the link takes nothing more now.
    pub(crate) fn send_mad(&mut self, to: IpAddr, mad: &[u8; 256]) -> bool {
        self.begin_post();
        let now = self.now();
        self.gsi_psn = self.gsi_psn.next();
        let packet = gsi_packet(self.gsi_psn, mad);
        let peer = SocketAddr::new(to, UDP_PORT);
        let path = Path { class: self.sharing.class_of(now, Gid::from_ip(to), Qpn::GSI), ..peer.into() };
        let mut taken = self.take_laid_out(path, &packet);
        if taken == Err(ReserveError::Full) {
            self.flush(true);
            taken = self.take_laid_out(path, &packet);
        }
        self.finish_control();
        self.flush(true);
        taken.is_ok()
    }

    fn take_laid_out(&mut self, path: Path, packet: &[u8]) -> Result<(), ReserveError> {
        match &mut self.disturbed {
            Some(disturbed) => disturbed.take_laid_out(path, packet),
            None => self.tx.push(path, packet, Order::Strict),
        }
    }
}
