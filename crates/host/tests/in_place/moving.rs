//! How memory moves to where neighbours reach it, and back, beside the program that uses it.

use highwire_host::verbs::Operation;
use highwire_host::{MovingWay, moved_by, permit_moving};

use crate::common::next_ok;
use crate::pages::{PAGE, Pages, Stops, by_every_way, direct, done_alone, pair, with_another_thread};

pub(crate) fn regions_that_overlap_share_what_was_moved() {
    let [a, b] = &pair();
    let pages = Pages::new(32);
    let whole = pages.register(b, 0, 16 * PAGE);
    let same = pages.register(b, 0, 16 * PAGE);
    let inner = pages.register(b, 3 * PAGE + 5, 9 * PAGE);
    let wider = pages.register(b, 8 * PAGE, 32 * PAGE);
    for (region, offset) in
        [(&whole, 0), (&same, 15 * PAGE), (&inner, PAGE), (&wider, 8 * PAGE), (&wider, 23 * PAGE)]
    {
        done_alone(a, Operation::Write(region.remote(offset as u64)), 0, 8);
    }
    drop(whole);
    drop(wider);
    assert_eq!([0, 15, 16, 31].map(|page| pages.is_moved(page * PAGE)), [true, true, false, false]);
    done_alone(a, Operation::Read(inner.remote(PAGE as u64)), 0, 8);
    drop((same, inner));
    assert!((0..32).all(|page| !pages.is_moved(page * PAGE)));
    // And once more, from the beginning.
    let again = pages.register(b, 0, pages.length);
    done_alone(a, Operation::Write(again.remote(5)), 0, 8);
}

pub(crate) fn the_child_of_a_fork_has_a_copy() {
    let [a, b] = &pair();
    let pages = Pages::new(16);
    let region = pages.register(b, 0, pages.length);
    done_alone(a, Operation::Write(region.remote(0)), 0, 8);
    let expected = pages.word(PAGE);
    // SAFETY: the child looks at memory and exits without running anything else.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let same = pages.word(PAGE) == expected;
        (0..pages.length).for_each(|at| pages.set(at, 0xEE));
        // SAFETY: ends this process and runs nothing.
        unsafe { libc::_exit(i32::from(!(same && pages.get(3) == 0xEE))) };
    }
    let mut status = -1;
    // SAFETY: waits for the child just made.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child saw what its parent had");
    assert_eq!(pages.word(PAGE), expected, "and the parent nothing of what the child wrote");
    done_alone(a, Operation::Read(region.remote(PAGE as u64)), 0, 8);
}

pub(crate) fn pages_that_hold_other_data_move_where_that_is_safe() {
    let [a, b] = &pair();
    let pages = Pages::new(3);
    let before = moved_by(MovingWay::Alone) + moved_by(MovingWay::Faults);
    let region = pages.register(b, PAGE + 8, PAGE + 72);
    if moved_by(MovingWay::Alone) + moved_by(MovingWay::Faults) == before {
        println!("skipped: the device has a thread, and userfaultfd(2) is not permitted");
        return;
    }
    assert_eq!([0, 1, 2].map(|page| pages.is_moved(page * PAGE)), [false, true, false]);
    let bytes = a.fill(0, 64, 9);
    done_alone(a, Operation::Write(region.remote(0)), 0, 64);
    assert!((0..64).all(|at| pages.get(PAGE + 8 + at) == bytes[at]));
    assert_eq!((pages.get(PAGE + 7), pages.get(PAGE + 72)), ((PAGE + 7) as u8, (PAGE + 72) as u8));
    // A second region of the same page finds it moved.
    let second = pages.register(b, PAGE + 100, PAGE + 200);
    drop(region);
    done_alone(a, Operation::Write(second.remote(8)), 0, 8);
    drop(second);
    assert!(!pages.is_moved(PAGE));
    assert_eq!((pages.get(PAGE + 8), pages.get(PAGE + 108)), (bytes[0], bytes[0]));
}

/// A thread that is about to run, or to end, blocks every signal. It gets a core late where others compute.
pub(crate) fn threads_that_begin_are_waited_for() {
    permit_moving(&[MovingWay::Protection]);
    let [a, b] = &pair();
    let pages = Pages::new(16);
    let (blocked, is_blocked) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let mask = |how: libc::c_int, set: u64| {
            // SAFETY: a system call that reads eight bytes. The C library would leave out its own signals.
            unsafe { libc::syscall(libc::SYS_rt_sigprocmask, how, &raw const set, 0usize, 8usize) }
        };
        assert_eq!(mask(libc::SIG_SETMASK, u64::MAX), 0);
        blocked.send(()).expect("somebody waits");
        // Longer than many looks at it take.
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert_eq!(mask(libc::SIG_SETMASK, 0), 0);
    });
    is_blocked.recv().expect("it begins");
    let before = moved_by(MovingWay::Protection);
    let region = pages.register(b, 0, pages.length);
    if cfg!(target_arch = "x86_64") {
        assert_eq!(moved_by(MovingWay::Protection), before + 1);
        done_alone(a, Operation::Write(region.remote(0)), 0, 8);
        assert_eq!(direct(a), 1);
    } else {
        println!("skipped: memory is not protected here");
    }
    thread.join().expect("no panic");
}

/// Threads count in words of the pages, each in its own, in every page and across registrations: no count may be lost.
pub(crate) fn memory_moves_under_threads_that_use_it_by_every_way() {
    const THREADS: usize = 8;
    const ROUNDS: usize = 60;
    by_every_way(|way| {
        let [a, b] = &pair();
        let pages = Pages::new(40);
        (0..pages.length).for_each(|at| pages.set(at, 0));
        let stop = std::sync::atomic::AtomicBool::new(false);
        let counted: Vec<u64> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (start, stop) = (pages.start.addr(), &stop);
                    scope.spawn(move || {
                        let mut count = 0u64;
                        // Every thread has been everywhere at least once in the end.
                        while !stop.load(std::sync::atomic::Ordering::Relaxed) || !count.is_multiple_of(40) {
                            let at = count as usize % 40 * PAGE + thread * 8;
                            let word = std::ptr::with_exposed_provenance_mut::<u64>(start + at);
                            // SAFETY: the word is this thread's; peers write elsewhere in the page.
                            unsafe { word.write_volatile(word.read_volatile() + 1) };
                            count += 1;
                        }
                        count
                    })
                })
                .collect();
            let stops = Stops(&stop);
            for round in 0..ROUNDS {
                let from = round % 7 * PAGE;
                let region = pages.register(b, from, pages.length - round % 5 * PAGE);
                let other = pages.register(b, from + 2 * PAGE, from + 9 * PAGE);
                assert!(pages.is_moved(from), "{way:?}");
                let before = direct(a);
                done_alone(a, Operation::Write(region.remote(2048)), 0, 64);
                done_alone(a, Operation::Read(other.remote(2048)), 0, 64);
                assert_eq!(direct(a), before + 2, "{way:?}");
                drop(region);
                drop(other);
                assert!(!pages.is_moved(from), "{way:?}");
            }
            drop(stops);
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        for (thread, count) in counted.iter().enumerate() {
            let found: u64 = (0..40).map(|page| pages.word(page * PAGE + thread * 8)).sum();
            assert_eq!(found, *count, "{way:?}: counts of thread {thread} were lost");
        }
    });
}

pub(crate) fn without_any_way_memory_is_reached_with_packets() {
    permit_moving(&[]);
    let [a, b] = &pair();
    let pages = Pages::new(16);
    let region = with_another_thread(|| pages.register(b, 0, pages.length));
    assert!(!pages.is_moved(0));
    a.post(1, Operation::Write(region.remote(0)), 0, 64);
    next_ok(a, b);
    assert_eq!(direct(a), 0);
}

pub(crate) fn what_came_back_is_private_memory_as_before() {
    by_every_way(|way| {
        let [a, b] = &pair();
        let pages = Pages::new(16);
        let region = pages.register(b, 0, pages.length);
        let bytes = a.fill(0, 64, 1);
        done_alone(a, Operation::Write(region.remote(70)), 0, 64);
        with_another_thread(|| drop(region));
        assert!((0..64).all(|i| pages.get(70 + i) == bytes[i]) && pages.get(69) == 69);
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the kernel tells");
        let line = maps.lines().find(|line| {
            let (start, end) = line.split_once(' ').expect("a range").0.split_once('-').expect("two ends");
            let hex = |text| usize::from_str_radix(text, 16).expect("an address");
            (hex(start)..hex(end)).contains(&pages.start.addr())
        });
        let line = line.expect("it is mapped");
        assert!(line.contains(" rw-p 00000000 00:00 0"), "{way:?}: no file is behind it: {line}");
        // SAFETY: the pages are ours.
        assert_eq!(unsafe { libc::madvise(pages.start.cast(), pages.length, libc::MADV_DONTNEED) }, 0);
        assert!((0..pages.length).all(|at| pages.get(at) == 0), "{way:?}");
    });
}

pub(crate) fn memory_that_the_program_has_moved_comes_back_there() {
    by_every_way(|way| {
        let [_, b] = &pair();
        let pages = Pages::new(16);
        let region = pages.register(b, 0, pages.length);
        // SAFETY: the pages are ours; that they are registered is what is tried here. As `realloc` moves a large block.
        let moved =
            unsafe { libc::mremap(pages.start.cast(), pages.length, 2 * pages.length, libc::MREMAP_MAYMOVE) };
        if moved == libc::MAP_FAILED {
            println!("skipped: the kernel does not enlarge a mapping of a file");
            return;
        }
        let elsewhere = Pages { start: moved.cast(), length: pages.length };
        drop(region);
        assert!(!elsewhere.is_moved(0) && (0..16).all(|page| elsewhere.get(page * PAGE + 7) == 7), "{way:?}");
        // SAFETY: the pages are ours; the rest of the larger mapping goes with it.
        unsafe { libc::munmap(moved.wrapping_add(pages.length), pages.length) };
        std::mem::forget(pages);
    });
}
