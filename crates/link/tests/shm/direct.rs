//! Direct operations: rights and effects.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use highwire_link::shm::{
    Access, ChannelConfig, DirectError, LocalEngine, PublishedQueuePair, PublishedRegion, RawSlice, ShmSender,
};
use highwire_shmem::SharedBuffer;
use highwire_stdx::Rng;

use crate::support::{House, connect, gid_bytes};

const ALL: Access = Access(2 | 4 | 8);
const LOCAL_QPN: u32 = 0x123;
const PEER_QPN: u32 = 0x456;
const RKEY: u32 = 0xDEAD_BEEF;
const IOVA: u64 = 0x7000_0000_0000;
const LENGTH: usize = 8192;

/// An initiator, a target with one queue pair and one region, and the region's memory.
struct Pair {
    target: Arc<LocalEngine>,
    initiator: Arc<LocalEngine>,
    memory: SharedBuffer,
    sender: ShmSender,
}

impl Pair {
    fn new(house: &House) -> Pair {
        let (initiator, target) = (house.engine("127.1.1.1"), house.engine("127.1.1.2"));
        let memory = target.pool().allocate(LENGTH, 64).unwrap();
        let sender = connect(&initiator, target.gid(), &ChannelConfig { slots: 8, data_bytes: 0 });
        let pair = Pair { target, initiator, memory, sender };
        pair.target.publish_queue_pair(PEER_QPN, &pair.queue_pair()).unwrap();
        pair.target.publish_region(RKEY, &pair.region()).unwrap();
        pair
    }

    fn queue_pair(&self) -> PublishedQueuePair {
        let peer_gid = gid_bytes(self.initiator.gid());
        PublishedQueuePair {
            pd: 3,
            access: ALL,
            peer_qpn: LOCAL_QPN,
            peer_gid,
            ready: true,
            receives: Default::default(),
        }
    }

    fn region(&self) -> PublishedRegion {
        PublishedRegion {
            pd: 3,
            access: ALL,
            iova: IOVA,
            length: LENGTH as u64,
            segment: self.memory.segment_id(),
            offset: self.memory.offset() as u64,
            bound_qpn: 0,
            before: 0,
            behind: 0,
        }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; LENGTH];
        self.memory.read(0, &mut bytes).unwrap();
        bytes
    }
}

type Operation = fn(&mut ShmSender, va: u64, len: usize) -> Result<(), DirectError>;

const WRITE: Operation = |sender, va, len| sender.direct(LOCAL_QPN, PEER_QPN).write(RKEY, va, &vec![9; len]);
const READ: Operation =
    |sender, va, len| sender.direct(LOCAL_QPN, PEER_QPN).read(RKEY, va, &mut vec![0; len]);
const SWAP: Operation =
    |sender, va, _| sender.direct(LOCAL_QPN, PEER_QPN).compare_swap(RKEY, va, 0, 1).map(drop);
const ADD: Operation = |sender, va, _| sender.direct(LOCAL_QPN, PEER_QPN).fetch_add(RKEY, va, 1).map(drop);

#[test]
fn every_check_refuses_what_it_is_there_for_and_nothing_is_touched() {
    use DirectError::{BadKey, Bounds, Misaligned, NotConnected, NotShared};
    const FORBIDDEN: DirectError = DirectError::Access;
    let house = House::new("checks");
    let mut pair = Pair::new(&house);
    let before = pair.bytes();
    let (qp, mr) = (pair.queue_pair(), pair.region());
    let end = IOVA + LENGTH as u64;
    let other_gid = gid_bytes("127.1.1.9".parse().unwrap());
    #[rustfmt::skip]
    let table: &[(&str, PublishedQueuePair, PublishedRegion, Operation, u64, usize, DirectError)] = &[
        ("QP not ready", PublishedQueuePair { ready: false, ..qp }, mr, WRITE, IOVA, 8, NotConnected),
        ("QP of another QP", PublishedQueuePair { peer_qpn: 1, ..qp }, mr, WRITE, IOVA, 8, NotConnected),
        ("QP of another host", PublishedQueuePair { peer_gid: other_gid, ..qp }, mr, READ, IOVA, 8, NotConnected),
        ("QP forbids WRITE", PublishedQueuePair { access: Access(4 | 8), ..qp }, mr, WRITE, IOVA, 8, FORBIDDEN),
        ("QP forbids READ", PublishedQueuePair { access: Access(2 | 8), ..qp }, mr, READ, IOVA, 8, FORBIDDEN),
        ("QP forbids atomics", PublishedQueuePair { access: Access(2 | 4), ..qp }, mr, ADD, IOVA, 8, FORBIDDEN),
        ("MR forbids WRITE", qp, PublishedRegion { access: Access(4 | 8), ..mr }, WRITE, IOVA, 8, FORBIDDEN),
        ("MR forbids READ", qp, PublishedRegion { access: Access(2 | 8), ..mr }, READ, IOVA, 8, FORBIDDEN),
        ("MR forbids atomics", qp, PublishedRegion { access: Access(2 | 4), ..mr }, SWAP, IOVA, 8, FORBIDDEN),
        ("another PD", qp, PublishedRegion { pd: 4, ..mr }, WRITE, IOVA, 8, FORBIDDEN),
        ("window bound to another QP", qp, PublishedRegion { bound_qpn: 1, ..mr }, WRITE, IOVA, 8, FORBIDDEN),
        ("before the region", qp, mr, WRITE, IOVA - 1, 8, Bounds),
        ("one byte beyond", qp, mr, WRITE, end - 7, 8, Bounds),
        ("far beyond", qp, mr, READ, end, 1, Bounds),
        ("wrapping around", qp, mr, READ, u64::MAX - 3, 8, Bounds),
        ("longer than the region", qp, mr, WRITE, IOVA, LENGTH + 1, Bounds),
        ("atomic at an odd address", qp, mr, ADD, IOVA + 4, 8, Misaligned),
        ("atomic beyond", qp, mr, SWAP, end, 8, Bounds),
        ("memory not shared", qp, PublishedRegion { segment: 0, ..mr }, WRITE, IOVA, 8, NotShared),
        ("bytes before the segment", qp, PublishedRegion { before: 1, ..mr }, WRITE, IOVA, 8, NotShared),
        ("bytes behind the segment", qp, PublishedRegion { behind: mr.length as u32 - 7, ..mr }, READ, IOVA, 8, NotShared),
        ("no such segment", qp, PublishedRegion { segment: 99, ..mr }, READ, IOVA, 8, NotShared),
        ("beyond the segment", qp, PublishedRegion { offset: 1 << 40, ..mr }, WRITE, IOVA, 8, NotShared),
        ("offset overflows", qp, PublishedRegion { offset: u64::MAX, ..mr }, WRITE, IOVA + 8, 8, NotShared),
        ("atomic in a region at an odd place", qp, PublishedRegion { offset: mr.offset + 4, length: 64, ..mr }, ADD, IOVA, 8, NotShared),
    ];
    for &(what, queue_pair, region, operation, va, len, expected) in table {
        pair.target.publish_queue_pair(PEER_QPN, &queue_pair).unwrap();
        pair.target.publish_region(RKEY, &region).unwrap();
        assert_eq!(operation(&mut pair.sender, va, len), Err(expected), "{what}");
        assert_eq!(pair.bytes(), before, "{what}");
    }
    pair.target.publish_queue_pair(PEER_QPN, &qp).unwrap();
    pair.target.publish_region(RKEY, &mr).unwrap();
    let unknown =
        |sender: &mut ShmSender, local, peer, rkey| sender.direct(local, peer).write(rkey, IOVA, &[1]);
    assert_eq!(unknown(&mut pair.sender, LOCAL_QPN, 7, RKEY), Err(NotConnected));
    assert_eq!(unknown(&mut pair.sender, 8, PEER_QPN, RKEY), Err(NotConnected));
    assert_eq!(unknown(&mut pair.sender, LOCAL_QPN, PEER_QPN, RKEY + 1), Err(BadKey));
    assert_eq!(WRITE(&mut pair.sender, end, 0), Ok(()), "without bytes, neither key nor bounds matter");
    assert_eq!(WRITE(&mut pair.sender, end - 8, 8), Ok(()), "the last word is inside");
}

#[test]
fn writes_and_reads_of_every_shape_move_exactly_their_bytes() {
    let house = House::new("moves");
    let mut pair = Pair::new(&house);
    let mut model = pair.bytes();
    let mut rng = Rng::new(2);
    for _ in 0..4_000 {
        let longest = *rng.pick(&[8, 64, 600, 4000]);
        let len = rng.between(0, longest) as usize;
        let at = rng.below((LENGTH - len) as u64 + 1) as usize;
        let mut bytes = vec![0; len];
        if rng.chance(0.5) {
            rng.fill(&mut bytes);
            let (front, back) = bytes.split_at(rng.between(0, len as u64) as usize);
            let parts = [front, back, &[]].map(|part| RawSlice { address: part.as_ptr(), len: part.len() });
            let mut direct = pair.sender.direct(LOCAL_QPN, PEER_QPN);
            // SAFETY: the pieces are parts of `bytes`.
            unsafe { direct.write_parts(RKEY, IOVA + at as u64, &parts) }.unwrap();
            model[at..at + len].copy_from_slice(&bytes);
            assert!(pair.bytes() == model, "{len} bytes written at {at}");
        } else {
            pair.sender.direct(LOCAL_QPN, PEER_QPN).read(RKEY, IOVA + at as u64, &mut bytes).unwrap();
            assert!(bytes == model[at..at + len], "{len} bytes read at {at}");
        }
    }
}

#[test]
fn atomics_return_what_was_there() {
    let house = House::new("atomics");
    let mut pair = Pair::new(&house);
    let mut direct = pair.sender.direct(LOCAL_QPN, PEER_QPN);
    assert_eq!(direct.fetch_add(RKEY, IOVA + 8, 5), Ok(0));
    assert_eq!(direct.fetch_add(RKEY, IOVA + 8, u64::MAX), Ok(5));
    assert_eq!(direct.compare_swap(RKEY, IOVA + 8, 9, 1), Ok(4));
    assert_eq!(direct.compare_swap(RKEY, IOVA + 8, 4, 77), Ok(4));
    assert_eq!(pair.memory.window().u64_at(8).load(Ordering::Relaxed), 77);
}

#[test]
fn whoever_sees_the_last_byte_sees_the_whole_write() {
    let house = House::new("last-byte");
    let mut pair = Pair::new(&house);
    let lengths = [9usize, 32, 100, 1000];
    const ROUNDS: u64 = 4_000;
    let acknowledged = AtomicU64::new(0);
    let (memory, acknowledged) = (&pair.memory, &acknowledged);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for round in 1..=ROUNDS {
                let len = lengths[round as usize % 4];
                let word = memory.window().u64_at(len.next_multiple_of(8) - 8);
                let last_byte = |word: u64| word.to_le_bytes()[(len - 1) % 8];
                while last_byte(word.load(Ordering::Acquire)) != round as u8 {
                    std::thread::yield_now();
                }
                let mut seen = vec![0; len];
                memory.read(0, &mut seen).unwrap();
                assert!(seen.iter().all(|&byte| byte == round as u8), "round {round}: torn");
                acknowledged.store(round, Ordering::Release);
            }
        });
        for round in 1..=ROUNDS {
            let len = lengths[round as usize % 4];
            pair.sender.direct(LOCAL_QPN, PEER_QPN).write(RKEY, IOVA, &vec![round as u8; len]).unwrap();
            while acknowledged.load(Ordering::Acquire) != round {
                std::thread::yield_now();
            }
        }
    });
}

#[test]
fn memory_that_was_withdrawn_is_never_written_again() {
    let house = House::new("withdrawn");
    for round in 0..30u64 {
        let mut pair = Pair::new(&house);
        let started = AtomicBool::new(false);
        let by_key = round % 2 == 0;
        std::thread::scope(|scope| {
            let (sender, started) = (&mut pair.sender, &started);
            scope.spawn(move || {
                let bytes = vec![0xEE; LENGTH];
                let mut direct = sender.direct(LOCAL_QPN, PEER_QPN);
                loop {
                    match direct.write(RKEY, IOVA, &bytes) {
                        Ok(()) => started.store(true, Ordering::Release),
                        Err(error) => {
                            let expected =
                                if by_key { DirectError::BadKey } else { DirectError::NotConnected };
                            assert_eq!(error, expected);
                            break;
                        }
                    }
                }
            });
            while !started.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            let patience = Duration::from_secs(30);
            if by_key {
                pair.target.withdraw_region(RKEY, patience).unwrap();
                assert!(!pair.target.has_region(RKEY));
            } else {
                pair.target.withdraw_queue_pair(PEER_QPN, patience).unwrap();
            }
            // Another owner of the memory may write to it now, and its bytes must stay.
            pair.memory.write(0, &[0x11; LENGTH]).unwrap();
        });
        assert!(pair.bytes().iter().all(|&byte| byte == 0x11), "round {round}");
    }
}

#[test]
fn a_peer_that_closed_is_gone() {
    let house = House::new("closed");
    let mut pair = Pair::new(&house);
    assert_eq!(WRITE(&mut pair.sender, IOVA, 8), Ok(()));
    let Pair { target, memory, mut sender, .. } = pair;
    drop((target, memory));
    assert_eq!(WRITE(&mut sender, IOVA, 8), Err(DirectError::PeerGone));
}
