//! Packets that do not belong to a queue pair are dropped, counted, and leave no trace.

use crate::common::{A, B, Pair, Setup, gid};
use highwire_rnic::Counter;
use highwire_verbs::{
    Access, Gid, Operation, Pd, Recovery, RegionAttr, Remote, RemoteKey, SendFlags, SendWr, Service,
};
use highwire_wire::{Ext, Headers, Opcode, Psn, Qpn, Reth};

/// Injects a packet into B and expects that exactly this counter moves and nothing comes back.
#[track_caller]
fn dropped(pair: &mut Pair, source: Gid, headers: &Headers, payload: &[u8], counter: Counter) {
    let before = (pair.count(B, counter), pair.count(B, Counter::PacketsSent));
    let memory = pair.bytes(B, 0, 4096);
    pair.inject(B, source, headers, payload);
    assert_eq!((pair.count(B, counter), pair.count(B, Counter::PacketsSent)), (before.0 + 1, before.1));
    assert_eq!(pair.bytes(B, 0, 4096), memory);
}

fn write_to(pair: &Pair) -> Headers {
    let remote = pair.buffers[B].remote(0);
    let reth = Reth { va: remote.va, rkey: remote.rkey.0, length: 8 };
    Headers::new(Opcode::RcWriteOnly, pair.ends[B].qpn, Psn::new(0x123), Ext::Reth(reth))
}

#[test]
fn a_stranger_is_not_heard() {
    let mut pair = Pair::new(Setup::default());
    let headers = write_to(&pair);
    dropped(&mut pair, gid(7), &headers, &[0; 8], Counter::DroppedWrongSource);
    pair.inject(B, gid(A), &headers, &[0; 8]);
    assert_eq!(pair.bytes(B, 0, 8), [0; 8], "the peer is");
}

#[test]
fn a_packet_for_nobody_of_another_service_or_partition_is_dropped() {
    let mut pair = Pair::new(Setup::default());
    let good = write_to(&pair);
    let mut headers = good;
    headers.bth.dest_qpn = Qpn::new(good.bth.dest_qpn.value() ^ 1);
    dropped(&mut pair, gid(A), &headers, &[0; 8], Counter::DroppedUnknownQp);
    headers = good;
    headers.bth.opcode = Opcode::UcWriteOnly;
    dropped(&mut pair, gid(A), &headers, &[0; 8], Counter::DroppedWrongService);
    headers = good;
    headers.bth.pkey = 0x8001;
    dropped(&mut pair, gid(A), &headers, &[0; 8], Counter::DroppedMalformed);
    headers = good;
    headers.ext = Ext::None;
    dropped(&mut pair, gid(A), &headers, &[0; 8], Counter::DroppedMalformed);
    let irn = Headers::new(Opcode::IrnReadAck, good.bth.dest_qpn, Psn::new(0x123), Ext::IrnReadAck);
    dropped(&mut pair, gid(A), &irn, &[], Counter::DroppedStale);
}

#[test]
fn acknowledgements_of_what_was_never_sent_are_dropped() {
    for recovery in crate::RECOVERIES {
        let mut pair = Pair::new(Setup::with(recovery));
        let aeth = highwire_wire::Aeth::ack(0);
        let (opcode, ext) = match recovery {
            Recovery::Irn => (Opcode::IrnAck, Ext::IrnAck(aeth)),
            Recovery::GoBackN => (Opcode::RcAck, Ext::Aeth(aeth)),
        };
        for psn in [0x10_0000, 5] {
            let headers = Headers::new(opcode, pair.ends[B].qpn, Psn::new(psn), ext);
            pair.inject(B, gid(A), &headers, &[]);
        }
        pair.post(B, 1, Operation::Write(pair.buffers[A].remote(0)), 0, 3000);
        pair.run();
        assert_eq!(pair.outcomes(B), ["1 Success"]);
        assert_eq!(pair.bytes(A, 0, 3000), pair.bytes(B, 0, 3000));
    }
}

#[test]
fn a_datagram_with_the_wrong_key_is_dropped() {
    let mut pair = Pair::new(Setup::of(Service::Ud));
    pair.receive(B, 1, 0, 2000);
    let mut datagram = pair.datagram_to(B);
    datagram.qkey ^= 1;
    let sges = [pair.buffers[A].sge(0, 8)];
    let wr = SendWr { datagram: Some(datagram), ..SendWr::new(1, Operation::Send, &sges) };
    assert_eq!(pair.post_wr(A, &wr), Ok(()));
    pair.run();
    assert_eq!(pair.count(B, Counter::DroppedWrongKey), 1);
    assert_eq!(pair.completions(B), []);
}

#[test]
fn another_domains_memory_is_out_of_reach() {
    for recovery in crate::RECOVERIES {
        let mut pair = Pair::new(Setup::with(recovery));
        let node = &mut pair.net.nodes[B];
        let other: Pd = node.rnic.alloc_pd();
        let attr = RegionAttr { addr: pair.buffers[B].addr, length: 100, iova: 0, access: Access::ALL };
        let key = node.rnic.regions_mut().register(other, attr).expect("registers");
        let remote = Remote { va: 0, rkey: RemoteKey(key.0) };
        pair.try_post(A, 1, Operation::Write(remote), 0, 8, SendFlags::SIGNALED).expect("posts");
        pair.run();
        assert_eq!(pair.outcomes(A), ["1 RemoteAccess"]);
        assert_eq!(pair.count(B, Counter::RefusedAccess), 1);
    }
}

#[test]
fn a_region_gives_no_more_than_it_was_registered_with() {
    for recovery in crate::RECOVERIES {
        for (access, operation) in [(Access::REMOTE_READ, 0), (Access::LOCAL_WRITE | Access::REMOTE_WRITE, 1)]
        {
            let mut pair = Pair::new(Setup::with(recovery));
            let buffer = pair.net.nodes[B].register(100, access);
            let operation =
                [Operation::Write(buffer.remote(0)), Operation::Read(buffer.remote(0))][operation];
            pair.post(A, 1, operation, 0, 8);
            pair.run();
            assert_eq!(pair.outcomes(A), ["1 RemoteAccess"]);
        }
    }
}
