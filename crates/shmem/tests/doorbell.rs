//! Bells are neither lost nor invented.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use highwire_shmem::{DoorbellBoard, LayoutError, Segment, Window};
use highwire_stdx::Rng;

fn board(bits: u32) -> (DoorbellBoard, Window) {
    let window = Window::whole(&Arc::new(Segment::heap(DoorbellBoard::bytes(bits).unwrap())));
    (DoorbellBoard::create(&window, bits).unwrap(), window)
}

#[test]
fn a_board_agrees_with_a_set() {
    for bits in [1, 63, 64, 65, 1000, 4096] {
        let (board, window) = board(bits);
        let other = DoorbellBoard::attach(&window).unwrap();
        assert_eq!(other.bits(), bits);
        let mut model = BTreeSet::new();
        let mut rng = Rng::new(u64::from(bits));
        for _ in 0..if cfg!(miri) { 50 } else { 2_000 } {
            if rng.chance(0.7) {
                let bit = rng.below(u64::from(bits)) as u32;
                other.ring_seqcst(bit);
                model.insert(bit);
            } else if rng.chance(0.5) {
                // An engine that stops half-way leaves the rest ringing.
                for bit in board.take_acquire().take(rng.below(4) as usize) {
                    assert!(model.remove(&bit));
                }
            } else {
                assert!(board.take_acquire().eq(std::mem::take(&mut model)));
            }
        }
    }
}

#[test]
fn bells_beyond_the_board_ring_nothing() {
    let (board, window) = board(70);
    assert!(!board.ring_seqcst(70) && !board.ring_seqcst(u32::MAX));
    // Stray bits, in the words and in the summary.
    window.u64_at(384 + 8).store(u64::MAX, Ordering::Relaxed);
    window.u64_at(128).store(u64::MAX, Ordering::Relaxed);
    assert!(board.take_acquire().eq(64..70));
}

#[test]
fn a_sleeping_engine_is_woken_by_one_ringer() {
    let (board, _) = board(64);
    board.ring_seqcst(1);
    assert!(!board.prepare_sleep_seqcst(), "a bell has rung already");
    assert!(board.take_acquire().eq([1]));
    assert!(board.prepare_sleep_seqcst());
    assert!(board.ring_seqcst(2), "must wake");
    assert!(!board.ring_seqcst(3), "was woken already");
    assert!(board.take_acquire().eq([2, 3]));
    assert!(board.prepare_sleep_seqcst());
    board.awake();
    assert!(!board.ring_seqcst(2), "is awake");
}

#[test]
fn foreign_memory_is_no_board() {
    let window = Window::whole(&Arc::new(Segment::heap(4096)));
    assert!(matches!(DoorbellBoard::attach(&window), Err(LayoutError::Magic { .. })));
    DoorbellBoard::create(&window, 64).unwrap();
    window.u64_at(8).store(1 << 20, Ordering::Relaxed);
    assert!(matches!(DoorbellBoard::attach(&window), Err(LayoutError::SlotCount { .. })));
    assert!(DoorbellBoard::bytes(0).is_err() && DoorbellBoard::bytes(4097).is_err());
}

#[test]
fn no_bell_is_lost_between_threads() {
    const ROUNDS: u64 = if cfg!(miri) { 50 } else { 20_000 };
    let (board, _) = board(130);
    // One counter per queue stands for its cursor: a thread that rings has published it before.
    let published: Vec<AtomicU64> = (0..130).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..2u32 {
            let (board, published) = (&board, &published);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let bit = (thread * 65 + (round % 65) as u32) as usize;
                    published[bit].fetch_add(1, Ordering::Release);
                    board.ring_seqcst(bit as u32);
                }
            });
        }
        let mut consumed = vec![0; 130];
        while consumed.iter().sum::<u64>() < 2 * ROUNDS {
            for bit in board.take_acquire() {
                consumed[bit as usize] = published[bit as usize].load(Ordering::Acquire);
            }
            std::thread::yield_now();
        }
    });
}

/// The two sides of a sleep: who rings sees that the engine sleeps, or the engine sees the bell. Both look once, at the same time.
#[test]
fn either_the_ringer_sees_the_sleeper_or_the_sleeper_the_bell() {
    const ROUNDS: u64 = if cfg!(miri) { 50 } else { 50_000 };
    let (board, _) = board(64);
    let (begun, ended) = (AtomicU64::new(0), AtomicU64::new(0));
    let (wakes, mut lost) = (AtomicU64::new(0), 0);
    std::thread::scope(|scope| {
        let (board, begun, ended, wakes) = (&board, &begun, &ended, &wakes);
        scope.spawn(move || {
            for round in 1..=ROUNDS {
                let mut looks = 0u32;
                while begun.load(Ordering::Acquire) < round {
                    looks += 1;
                    if looks.is_multiple_of(1 << 10) {
                        std::thread::yield_now()
                    } else {
                        std::hint::spin_loop()
                    }
                }
                wakes.store(u64::from(board.ring_seqcst(7)), Ordering::Relaxed);
                ended.store(round, Ordering::Release);
            }
        });
        for round in 1..=ROUNDS {
            begun.store(round, Ordering::Release);
            let may_sleep = board.prepare_sleep_seqcst();
            let mut looks = 0u32;
            while ended.load(Ordering::Acquire) < round {
                looks += 1;
                if looks.is_multiple_of(1 << 10) { std::thread::yield_now() } else { std::hint::spin_loop() }
            }
            let is_woken = wakes.load(Ordering::Relaxed) == 1;
            lost += u64::from(may_sleep && !is_woken);
            board.awake();
            board.take_acquire().for_each(drop);
        }
    });
    assert_eq!(lost, 0, "it sleeps, and nobody wakes it");
}
