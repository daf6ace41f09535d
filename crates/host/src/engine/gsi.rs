//! Management datagrams on their way out: packets of queue pair 1, which belongs to the broker and not to an
//! RNIC.

use super::Engine;
use super::ways::Keep;
use highwire_broker::gsi_packet;
use highwire_link::ReserveError;
use highwire_verbs::Gid;
use std::net::IpAddr;

impl Engine {
    /// Sends a datagram from queue pair 1 to queue pair 1 at an address; false if the link takes nothing more now.
    pub(crate) fn send_mad(&mut self, to: IpAddr, mad: &[u8; 256]) -> bool {
        self.begin_post();
        let now = self.now();
        self.gsi_psn = self.gsi_psn.next();
        let packet = gsi_packet(self.gsi_psn, mad);
        if let Some(record) = &self.witnesses.record {
            record.management_sent(now, Gid::from_ip(to), &packet);
        }
        let mut taken = self.ways.offer_mad(now, Gid::from_ip(to), &packet);
        if taken == Err(ReserveError::Full) {
            self.flush(Keep::Nothing);
            taken = self.ways.offer_mad(now, Gid::from_ip(to), &packet);
        }
        self.finish_control();
        self.flush(Keep::Nothing);
        taken.is_ok()
    }
}
