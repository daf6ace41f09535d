//! Real conversations, damaged: the packets of a capture arrive at an RNIC as if they had been sent to it.
//!
//! Queue pair numbers, first PSNs and keys are rewritten to the RNIC's own, in the order in which they appear, so that an
//! undamaged capture is executed and every mutation begins deep inside a conversation.

use std::collections::BTreeMap;

use highwire_verbs::{Mtu, QpState, RecvWr, Service, Sge};
use highwire_wire::{Ext, Headers, Psn, Service as WireService, parse_packet_with_icrc};

use super::bench::{Bench, FIRST_PSN, QKEY, QPS, REGION_ADDR};
use super::{Run, forge};

const RECEIVE_BYTES: u32 = 8192;

/// Feeds the packets of a capture to an RNIC.
pub(crate) fn captured(input: &[u8]) {
    replay_all(input);
}

fn replay_all(input: &[u8]) -> Run {
    let mut run = Run::new(Bench::new(Mtu::B1024));
    let mut first_psns = BTreeMap::new();
    let mut rest = input;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        let (packet, after) = after.split_at(length);
        rest = after;
        if let Ok((headers, payload, _)) = parse_packet_with_icrc(packet) {
            run.replay(headers, &packet[payload], &mut first_psns);
        }
    }
    run
}

impl Run {
    fn replay(&mut self, mut headers: Headers, payload: &[u8], first_psns: &mut BTreeMap<u32, u32>) {
        let bth = &mut headers.bth;
        let service = match bth.opcode.info().service {
            Some(WireService::Uc) => Service::Uc,
            Some(WireService::Ud) => Service::Ud,
            // No capture has extended connections; such a packet meets a pair that must refuse it.
            Some(WireService::Rc | WireService::Xrc) | None => Service::Rc,
        };
        // Both ends of a conversation meet both ends of a pair that speaks its format.
        let side = (bth.dest_qpn.value() & 1) as usize;
        let is_pair =
            |pair: &usize| self.bench.service(2 * pair) == service && (*pair == 1) == bth.opcode.is_irn();
        let index = 2 * (0..QPS / 2).find(is_pair).unwrap_or(0) + side;
        let first = *first_psns.entry(bth.dest_qpn.value()).or_insert(bth.psn.value());
        bth.dest_qpn = self.bench.qpns[index];
        bth.psn = Psn::new(bth.psn.value().wrapping_sub(first).wrapping_add(FIRST_PSN));
        if let Ext::Deth(deth) | Ext::DethImm(deth, _) = &mut headers.ext {
            deth.qkey = QKEY;
        }
        forge::steer(&mut headers.ext, &self.bench, 0);
        if self.bench.rnic.qp(self.bench.qpns[index]).is_some_and(|qp| qp.state() == QpState::Error) {
            self.bench.reconnect(index);
            let qpn = self.bench.qpns[index].value();
            self.pending.retain(|(owner, ..), ()| *owner != qpn);
        }
        self.keep_receiving(index);
        self.handle(self.bench.gid, &headers, payload);
        self.drain();
    }

    /// Posts a receive; a queue that is full has enough.
    fn keep_receiving(&mut self, index: usize) {
        let qpn = self.bench.qpns[index];
        let wr_id = self.take_id();
        let sges = [Sge { addr: REGION_ADDR, length: RECEIVE_BYTES, lkey: self.bench.key }];
        if self.bench.rnic.post_recv(self.bench.now, qpn, &RecvWr { wr_id, sges: &sges }).is_ok() {
            self.pending.insert((qpn.value(), true, wr_id), ());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{corpus, target};
    use highwire_rnic::Counter;

    #[test]
    fn undamaged_captures_are_executed() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../vectors/roce");
        let target = target("rnic_captures").expect("it is in the table");
        let seeds = corpus::seeds(target, &folder).expect("the captures are in the repository");
        let mut answered = 0;
        for seed in seeds {
            let run = replay_all(&seed);
            let counters = run.bench.rnic.counters();
            assert_eq!(counters.value(Counter::DroppedUnknownQp), 0);
            assert_eq!(counters.value(Counter::DroppedWrongService), 0);
            answered += u64::from(counters.value(Counter::PacketsSent) > 0);
        }
        assert!(answered > 15, "only {answered} conversations got an answer");
    }
}
