//! The cost of shared memory on this machine, compared with the machine's limits: `cargo run --release -p
//! highwire-link --example shm_cost`.
//!
//! Two threads pinned to two cores: a cache line that goes to and fro, then a packet through the rings, then one-sided
//! operations. Takes some five seconds. Other work on the machine shows at once, so look at several runs.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use highwire_link::shm::{
    Access, ChannelConfig, EngineConfig, Inbox, LocalEngine, PACKET_MAX_BYTES, PublishedQueuePair,
    PublishedRegion, Received, Registry, ShmSender,
};

const ROUNDS: usize = 200_000;

#[repr(align(128))]
struct Line(AtomicU64);

fn pin(cpu: usize) {
    // SAFETY: an all-zero set is valid, and the call only reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, std::mem::size_of_val(&set), &set);
    }
}

fn report(what: &str, mut nanos: Vec<u64>, floor: Option<u64>) -> u64 {
    nanos.sort_unstable();
    let median = nanos[nanos.len() / 2];
    let ratio =
        floor.map_or(String::new(), |floor| format!("  {:.2} × the line", median as f64 / floor as f64));
    println!("{what:<44} {median:6} ns{ratio}");
    median
}

/// Medians over groups of ten, to keep the clock's own cost out.
fn time(mut round: impl FnMut()) -> Vec<u64> {
    (0..ROUNDS / 10)
        .map(|_| {
            let start = Instant::now();
            (0..10).for_each(|_| round());
            start.elapsed().as_nanos() as u64 / 10
        })
        .collect()
}

fn line_ping_pong() -> u64 {
    let line = Line(AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            for round in 0..ROUNDS as u64 {
                while line.0.load(Ordering::Acquire) != 2 * round + 1 {
                    spin_loop();
                }
                line.0.store(2 * round + 2, Ordering::Release);
            }
        });
        pin(0);
        let mut round = 0;
        let times = time(|| {
            line.0.store(2 * round + 1, Ordering::Release);
            while line.0.load(Ordering::Acquire) != 2 * round + 2 {
                spin_loop();
            }
            round += 1;
        });
        report("shared cache line, round trip", times, None)
    })
}

fn receive_one(inbox: &mut Inbox, buffer: &mut [u8; PACKET_MAX_BYTES]) {
    while inbox.receive(1, |_, packet| _ = std::hint::black_box(packet.copied(buffer)[0])) == 0 {
        spin_loop();
    }
}

fn ring_ping_pong(a: &Arc<LocalEngine>, b: &Arc<LocalEngine>, bytes: usize, floor: u64) {
    let connect = |from: &Arc<LocalEngine>, to: &Arc<LocalEngine>| -> ShmSender {
        let peer = Arc::new(from.registry().lookup(to.gid()).expect("the peer"));
        peer.attach(from, 0, 0, &ChannelConfig::default()).expect("a channel")
    };
    let (mut to_b, mut to_a) = (connect(a, b), connect(b, a));
    let (mut inbox_a, mut inbox_b) = (Inbox::new(a, 0), Inbox::new(b, 0));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            let mut buffer = [0; PACKET_MAX_BYTES];
            for _ in 0..ROUNDS {
                receive_one(&mut inbox_b, &mut buffer);
                to_a.try_send(bytes, |packet| packet[0] = 1).expect("room");
            }
        });
        pin(0);
        let mut buffer = [0; PACKET_MAX_BYTES];
        let times = time(|| {
            to_b.try_send(bytes, |packet| packet[0] = 1).expect("room");
            receive_one(&mut inbox_a, &mut buffer);
        });
        report(&format!("ring, {bytes} B packets, round trip"), times, Some(floor));
    });
}

/// Both ends in one thread: the cost of the instructions, without a second core.
fn one_core(a: &Arc<LocalEngine>, b: &Arc<LocalEngine>, bytes: usize) {
    let peer = Arc::new(a.registry().lookup(b.gid()).expect("the peer"));
    let mut sender = peer.attach(a, 0, 0, &ChannelConfig::default()).expect("a channel");
    let mut inbox = Inbox::new(b, 0);
    let mut buffer = [0; PACKET_MAX_BYTES];
    let times = time(|| {
        sender.try_send(bytes, |packet| packet[0] = 1).expect("room");
        receive_one(&mut inbox, &mut buffer);
    });
    report(&format!("ring, {bytes} B packets, send and receive"), times, None);
    report("look at an empty ring", time(|| _ = inbox.receive(1, |_, _| ())), None);
}

fn throughput(a: &Arc<LocalEngine>, b: &Arc<LocalEngine>, bytes: usize) {
    let count = if bytes > 1000 { 400_000 } else { 4_000_000usize };
    let peer = Arc::new(a.registry().lookup(b.gid()).expect("the peer"));
    let mut sender = peer.attach(a, 0, 0, &ChannelConfig::default()).expect("a channel");
    let mut inbox = Inbox::new(b, 0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            pin(1);
            let mut buffer = [0; PACKET_MAX_BYTES];
            let (mut received, mut before, mut spins) = (0, 0, 0);
            while received < count {
                received += inbox.receive(64, |_, packet: Received<'_>| {
                    std::hint::black_box(packet.copied(&mut buffer)[0]);
                });
                spins = if received == before { spins + 1 } else { 0 };
                before = received;
                if spins > 1000 {
                    // The sender has lost its core, perhaps to this thread.
                    std::thread::yield_now();
                }
            }
        });
        pin(0);
        let payload = vec![7u8; bytes];
        let part = highwire_link::shm::RawSlice { address: payload.as_ptr(), len: bytes };
        let start = Instant::now();
        for _ in 0..count {
            // SAFETY: the payload lives.
            while unsafe { sender.try_send_parts(&[part]) }.is_err() {
                std::thread::yield_now();
            }
        }
        let per_packet = start.elapsed().as_nanos() as f64 / count as f64;
        println!(
            "ring, {bytes} B packets, one way {per_packet:22.1} ns each  {:.1} M/s  {:.1} Gb/s",
            1e3 / per_packet,
            bytes as f64 * 8.0 / per_packet
        );
    });
}

fn direct(a: &Arc<LocalEngine>, b: &Arc<LocalEngine>, floor: u64) {
    let buffer = b.pool().allocate(1 << 16, 64).expect("shared memory");
    let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let std::net::IpAddr::V4(gid) = a.gid() else { unreachable!("loopback") };
    let peer_gid = gid.to_ipv6_mapped().octets();
    let qp = PublishedQueuePair {
        pd: 1,
        access,
        peer_qpn: 5,
        peer_gid,
        ready: true,
        receives: Default::default(),
    };
    b.publish_queue_pair(9, &qp).expect("room");
    let region = PublishedRegion {
        pd: 1,
        access,
        iova: 0x1000,
        length: 1 << 16,
        segment: buffer.segment_id(),
        offset: buffer.offset() as u64,
        bound_qpn: 0,
        before: 0,
        behind: 0,
    };
    b.publish_region(77, &region).expect("room");
    let peer = Arc::new(a.registry().lookup(b.gid()).expect("the peer"));
    let mut sender = peer.attach(a, 0, 0, &ChannelConfig::default()).expect("a channel");
    for bytes in [8, 32, 256, 4096] {
        let mut data = vec![3u8; bytes];
        let mut direct = sender.direct(5, 9);
        report(
            &format!("direct WRITE {bytes} B"),
            time(|| direct.write(77, 0x1000, &data).expect("a write")),
            None,
        );
        report(
            &format!("direct READ {bytes} B"),
            time(|| direct.read(77, 0x1000, &mut data).expect("a read")),
            None,
        );
    }
    let mut direct = sender.direct(5, 9);
    report("direct fetch-and-add", time(|| _ = direct.fetch_add(77, 0x1000, 1).expect("an atomic")), None);

    // Two words on two lines: one for each direction; the peer polls its memory, as ib_write_lat does.
    let stop = AtomicBool::new(false);
    buffer.window().u64_at(0).store(0, Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(1);
            let mut seen = 0;
            while !stop.load(Ordering::Relaxed) {
                let now = buffer.window().u64_at(24).load(Ordering::Acquire);
                if now != seen {
                    seen = now;
                    buffer.window().u64_at(1024).store(now, Ordering::Release);
                }
                spin_loop();
            }
        });
        pin(0);
        let mut round = 0u64;
        let mut data = [0u8; 32];
        let times = time(|| {
            round += 1;
            data[24..].copy_from_slice(&round.to_le_bytes());
            direct.write(77, 0x1000, &data).expect("a write");
            while buffer.window().u64_at(1024).load(Ordering::Acquire) != round {
                spin_loop();
            }
        });
        stop.store(true, Ordering::Relaxed);
        report("direct WRITE 32 B, answered by a store", times, Some(floor));
    });
}

fn main() {
    let root = std::path::PathBuf::from(format!("/dev/shm/highwire-cost-{}", std::process::id()));
    let registry = Registry::open_at(&root).expect("a registry");
    let claim =
        |seed| Arc::new(registry.claim_unused_loopback(seed, &EngineConfig::default()).expect("a GID"));
    let (a, b) = (claim(1), claim(2));
    let floor = line_ping_pong();
    one_core(&a, &b, 44);
    for bytes in [8, 44, 56, 128, 224, 1064, 4140] {
        ring_ping_pong(&a, &b, bytes, floor);
    }
    for bytes in [44, 224, 1064, 4140] {
        throughput(&a, &b, bytes);
    }
    direct(&a, &b, floor);
    drop((a, b));
    std::fs::remove_dir_all(&root).expect("our own directory");
}
