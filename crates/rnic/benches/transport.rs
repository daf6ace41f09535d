//! Packets per second through two RNICs in memory: the protocol alone, with no link and no bytes.
//!
//! `cargo bench -p highwire-rnic` prints, per operation and recovery, packets per second of this thread's CPU
//! time: every packet is built once and handled once, acknowledgements included. The best of five runs
//! counts, for machines that other users share.

use highwire_rnic::{Arrival, Rnic, RnicConfig};
use highwire_stdx::{Duration, Instant};
use highwire_verbs::{
    Access, Address, Gid, Length, Memory, MemoryLost, Mtu, Operation, QpAttr, QpCaps, QpConfig, QpState,
    Recovery, RecvWr, RegionAttr, Remote, SendFlags, SendWr, Service, Sge,
};
use highwire_wire::{Headers, Psn, Qpn};
use std::net::IpAddr;

/// Memory without bytes.
struct Nowhere;

impl Memory<Length> for Nowhere {
    fn place(&mut self, _addr: u64, _payload: Length) -> Result<(), MemoryLost> {
        Ok(())
    }
    fn write(&mut self, _addr: u64, _bytes: &[u8]) -> Result<(), MemoryLost> {
        Ok(())
    }
    fn compare_swap(&mut self, _addr: u64, compare: u64, _swap: u64) -> Result<u64, MemoryLost> {
        Ok(compare)
    }
    fn fetch_add(&mut self, _addr: u64, _add: u64) -> Result<u64, MemoryLost> {
        Ok(0)
    }
}

struct End {
    rnic: Rnic,
    qpn: Qpn,
    gid: Gid,
    sge: Sge,
}

fn end(last: u8, seed: u64) -> End {
    let gid = Gid::from_ip(IpAddr::from([10, 0, 0, last]));
    let mut config = RnicConfig::new(gid);
    config.egress_quantum = 64;
    let mut rnic = Rnic::new(config, highwire_stdx::Rng::new(seed));
    let pd = rnic.alloc_pd();
    let cq = rnic.create_cq();
    let attr = RegionAttr { addr: 0x10_0000, length: 1 << 30, iova: 0x10_0000, access: Access::ALL };
    let lkey = rnic.regions_mut().register(pd, attr).expect("a region");
    let caps = QpCaps { max_send_wr: 4096, max_recv_wr: 4096, ..QpCaps::default() };
    let config =
        QpConfig { service: Service::Rc, pd, send_cq: cq, recv_cq: cq, srq: None, caps, signal_all: false };
    let qpn = rnic.create_qp(config).expect("a queue pair");
    End { rnic, qpn, gid, sge: Sge { addr: 0x10_0000, length: 32, lkey } }
}

fn connect(a: &mut End, b_gid: Gid, b_qpn: Qpn, recovery: Recovery) {
    let now = Instant::ZERO;
    let attrs = [
        QpAttr { access: Some(Access::ALL), ..QpAttr::to_state(QpState::Init) },
        QpAttr {
            address: Some(Address::new(b_gid)),
            remote_qpn: Some(b_qpn),
            path_mtu: Some(Mtu::B4096),
            rq_psn: Some(Psn::new(77)),
            max_dest_rd_atomic: Some(16),
            min_rnr_timer: Some(1),
            ..QpAttr::to_state(QpState::Rtr)
        },
        QpAttr {
            sq_psn: Some(Psn::new(77)),
            timeout: Some(14),
            retry_count: Some(7),
            rnr_retry: Some(7),
            max_rd_atomic: Some(16),
            recovery: Some(recovery),
            ..QpAttr::to_state(QpState::Rts)
        },
    ];
    for attr in attrs {
        a.rnic.modify_qp(now, a.qpn, &attr).expect("a legal change");
    }
    a.rnic.set_irn_accepted(a.qpn, true);
}

/// Moves all packets that `from` has to send to `to`; returns how many.
fn carry(now: Instant, from: &mut End, to: &mut End, batch: &mut Vec<(Headers, Length)>) -> u64 {
    batch.clear();
    while let Some(out) = from.rnic.poll_transmit(now) {
        batch.push((*out.headers, Length(out.payload.len())));
    }
    let arrival = Arrival { source: from.gid, destination: to.gid, traffic_class: 0 };
    for (headers, payload) in batch.iter() {
        to.rnic.handle_packet(now, &arrival, headers, *payload, &mut Nowhere);
    }
    batch.len() as u64
}

/// Seconds of CPU time that this thread has had.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Packets per second of one run.
fn rate(name: &str, recovery: Recovery, size: u32, chain: u64) -> f64 {
    let (mut a, mut b) = (end(1, 1), end(2, 2));
    let (a_qpn, b_qpn, a_gid, b_gid) = (a.qpn, b.qpn, a.gid, b.gid);
    connect(&mut a, b_gid, b_qpn, recovery);
    connect(&mut b, a_gid, a_qpn, recovery);
    let remote = Remote { va: 0x10_0000, rkey: highwire_verbs::RemoteKey(b.sge.lkey.0) };
    let mut batch = Vec::new();
    let (mut packets, mut now) = (0u64, Instant::ZERO);
    let start = cpu_seconds();
    while packets < 1_000_000 {
        for i in 0..chain {
            let is_send = name == "SEND";
            if is_send {
                b.rnic.post_recv(now, b_qpn, &RecvWr { wr_id: i, sges: &[b.sge] }).expect("room");
            }
            let operation = if is_send { Operation::Send } else { Operation::Write(remote) };
            let flags = SendFlags { signaled: i + 1 == chain, ..SendFlags::default() };
            let sges = [Sge { length: size, ..a.sge }];
            a.rnic
                .post_send(now, a_qpn, &SendWr { wr_id: i, operation, flags, sges: &sges, datagram: None })
                .expect("room");
        }
        loop {
            now += Duration::from_nanos(100);
            let moved = carry(now, &mut a, &mut b, &mut batch) + carry(now, &mut b, &mut a, &mut batch);
            packets += moved;
            while a.rnic.poll_completion().is_some() {}
            while b.rnic.poll_completion().is_some() {}
            if moved == 0 {
                break;
            }
        }
    }
    packets as f64 / (cpu_seconds() - start)
}

fn main() {
    for recovery in [Recovery::GoBackN, Recovery::Irn] {
        for (name, size) in [("SEND", 32), ("WRITE", 32), ("WRITE", 65536)] {
            for chain in [64, 1] {
                let best = (0..5).map(|_| rate(name, recovery, size, chain)).fold(0.0, f64::max);
                println!(
                    "{name:5} {size:6} B  {recovery:?}  chains of {chain:2}: {:6.2} M packets/s",
                    best / 1e6
                );
            }
        }
    }
}
