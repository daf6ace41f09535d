//! UD: one packet, one receive, no answer (IBTA §9.8.3); and frames of the Ethernet segment, which are received alike.

use super::deliver::Ending;
use super::{Common, Refusal, Request, Turn};
use crate::counters::Counter;
use crate::plan::Arrival;
use highwire_verbs::{
    Access, CompletionOp, CompletionStatus, Denial, DenialCause, Gid, Memory, Payload, scatter,
};
use highwire_wire::{Deth, Ext, Qpn};

/// The bytes in front of every datagram's payload (RoCEv2 A17.4.5.1).
const GRH_LEN: u32 = 40;

impl Common {
    pub(super) fn handle_ud<P: Payload>(
        &mut self,
        turn: &mut Turn<'_, '_>,
        request: Request<'_, P>,
        memory: &mut impl Memory<P>,
    ) {
        let Request { arrival, headers, payload } = request;
        let (deth, immediate) = match headers.ext {
            Ext::Deth(deth) => (deth, None),
            Ext::DethImm(deth, imm) => (deth, Some(imm)),
            _ => return turn.ctx.counters.count(Counter::DroppedMalformed),
        };
        if let Err(refusal) = self.take_datagram(turn, deth, payload) {
            self.explain_drop(turn, refusal, deth, payload.len());
            // A datagram is never refused aloud.
            let counter = match refusal {
                Refusal::Drop(counter) => counter,
                Refusal::NotReady => Counter::DroppedNoReceive,
                Refusal::BadReceive => {
                    self.fail_receive(turn, CompletionStatus::LocalProtection);
                    Counter::DroppedNoReceive
                }
                Refusal::Nak(_) | Refusal::Silence(_) => Counter::RefusedAccess,
            };
            return turn.ctx.counters.count(counter);
        }
        let sges = self.claimed[0].sges.clone();
        let mut grh = [0; GRH_LEN as usize];
        write_grh(&mut grh, arrival, payload.len());
        let mut at = 0;
        let mut placed = Ok(());
        for span in highwire_verbs::Gather::new(sges.as_slice(), 0, GRH_LEN).spans() {
            placed = placed.and_then(|()| memory.write(span.addr, &grh[at..at + span.length as usize]));
            at += span.length as usize;
        }
        if placed.and_then(|()| scatter(memory, &sges, GRH_LEN, payload)).is_err() {
            self.fail_receive(turn, CompletionStatus::LocalProtection);
            return turn.ctx.counters.count(Counter::DroppedNoReceive);
        }
        let ending = Ending {
            operation: CompletionOp::Receive,
            byte_len: payload.len() + GRH_LEN,
            immediate,
            invalidate: None,
            solicited: headers.bth.solicited,
            source_qpn: deth.source_qpn,
        };
        self.complete_receive(turn, &ending);
    }

    /// Says why a datagram is dropped, if that is a mistake of its sender's or of this side's.
    #[cold]
    fn explain_drop(&mut self, turn: &mut Turn<'_, '_>, refusal: Refusal, deth: Deth, payload: u32) {
        let (conn, length) = (turn.conn, payload + GRH_LEN);
        let capacity = self.claimed.front().map_or(u64::MAX, |receive| receive.capacity);
        let cause = match refusal {
            Refusal::Drop(Counter::DroppedWrongKey) if !self.explained.key => {
                self.explained.key = true;
                DenialCause::QueueKey { expected: conn.qkey, source: deth.source_qpn }
            }
            Refusal::Drop(Counter::DroppedTooLong)
                if capacity < u64::from(length) && !self.explained.length =>
            {
                self.explained.length = true;
                DenialCause::ShortReceive { capacity, source: deth.source_qpn }
            }
            _ => return,
        };
        let (qpn, pd, key, needed) = (conn.qpn, conn.config.pd, deth.qkey, Access::NONE);
        turn.ctx.deny(Denial { qpn, is_remote: true, pd, key, va: 0, length: payload, needed, cause });
    }

    /// A frame of the segment that was steered here: the receive gets it as it is.
    pub(super) fn handle_frame<P: Payload>(
        &mut self,
        turn: &mut Turn<'_, '_>,
        payload: P,
        memory: &mut impl Memory<P>,
    ) {
        match self.claim(turn, 0) {
            Ok(()) => {}
            Err(Refusal::BadReceive) => {
                self.fail_receive(turn, CompletionStatus::LocalProtection);
                return turn.ctx.counters.count(Counter::DroppedNoReceive);
            }
            Err(_) => return turn.ctx.counters.count(Counter::DroppedNoReceive),
        }
        if self.claimed[0].capacity < u64::from(payload.len()) {
            self.fail_receive(turn, CompletionStatus::LocalLength);
            return turn.ctx.counters.count(Counter::DroppedTooLong);
        }
        let sges = self.claimed[0].sges.clone();
        if scatter(memory, &sges, 0, payload).is_err() {
            self.fail_receive(turn, CompletionStatus::LocalProtection);
            return turn.ctx.counters.count(Counter::DroppedNoReceive);
        }
        let ending = Ending {
            operation: CompletionOp::Receive,
            byte_len: payload.len(),
            immediate: None,
            invalidate: None,
            solicited: false,
            source_qpn: Qpn::default(),
        };
        self.complete_receive(turn, &ending);
    }

    fn take_datagram<P: Payload>(
        &mut self,
        turn: &mut Turn<'_, '_>,
        deth: Deth,
        payload: P,
    ) -> Result<(), Refusal> {
        if deth.qkey != turn.conn.qkey {
            return Err(Refusal::Drop(Counter::DroppedWrongKey));
        }
        if payload.len() > turn.conn.mtu.bytes() {
            return Err(Refusal::Drop(Counter::DroppedTooLong));
        }
        self.claim(turn, 0)?;
        // The receive stays for one that fits: a stranger must not be able to use it up (IBTA §9.9.6.3, responder class D).
        if self.claimed[0].capacity < u64::from(payload.len() + GRH_LEN) {
            return Err(Refusal::Drop(Counter::DroppedTooLong));
        }
        Ok(())
    }
}

/// The GRH, or the IPv4 header in its last 20 bytes, as far as it is known here.
fn write_grh(grh: &mut [u8; GRH_LEN as usize], arrival: &Arrival, payload_len: u32) {
    let (source, destination): (Gid, Gid) = (arrival.source, arrival.destination);
    // BTH, DETH and ICRC: 24 bytes around the payload; UDP adds 8.
    let length = (payload_len + 24 + 8) as u16;
    match (source.to_ipv4(), destination.to_ipv4()) {
        (Some(source), Some(destination)) => {
            let ip = &mut grh[20..];
            ip[0] = 0x45;
            ip[1] = arrival.traffic_class;
            ip[2..4].copy_from_slice(&(length + 20).to_be_bytes());
            ip[6] = 0x40;
            ip[8] = 64;
            ip[9] = 17;
            ip[12..16].copy_from_slice(&source.octets());
            ip[16..20].copy_from_slice(&destination.octets());
            let sum: u32 = ip.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
            let folded = (sum & 0xFFFF) + (sum >> 16);
            let folded = (folded & 0xFFFF) + (folded >> 16);
            ip[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
        }
        _ => {
            grh[0] = 0x60 | arrival.traffic_class >> 4;
            grh[1] = arrival.traffic_class << 4;
            grh[4..6].copy_from_slice(&length.to_be_bytes());
            grh[6] = 17;
            grh[7] = 64;
            grh[8..24].copy_from_slice(&source.0);
            grh[24..40].copy_from_slice(&destination.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    #[test]
    fn an_ipv4_header_lies_in_the_last_twenty_bytes_and_sums_to_zero() {
        let gid = |text: &str| Gid::from_ip(text.parse::<IpAddr>().expect("an address"));
        let arrival = Arrival { source: gid("10.0.0.1"), destination: gid("10.0.0.2"), traffic_class: 0xB8 };
        let mut grh = [0xAA; GRH_LEN as usize];
        grh[20..].fill(0);
        write_grh(&mut grh, &arrival, 100);
        let sum: u32 = grh[20..].chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
        assert_eq!((sum & 0xFFFF) + (sum >> 16), 0xFFFF);
        assert_eq!(&grh[32..], &[10, 0, 0, 1, 10, 0, 0, 2]);
        assert_eq!(grh[21], 0xB8);
    }

    #[test]
    fn a_grh_has_the_traffic_class_between_version_and_flow_label() {
        let gid = |text: &str| Gid::from_ip(text.parse::<IpAddr>().expect("an address"));
        let arrival = Arrival { source: gid("fd00::1"), destination: gid("fd00::2"), traffic_class: 0xB8 };
        let mut grh = [0; GRH_LEN as usize];
        write_grh(&mut grh, &arrival, 100);
        assert_eq!(grh[..4], [0x6B, 0x80, 0, 0]);
    }
}
