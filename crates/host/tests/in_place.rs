//! Memory of the process that the library holds, and that neighbours reach where it lies. Each way to move it depends on the
//! threads that the process has, so the tests run in `main`, one after the other.
#![allow(
    unsafe_code,
    reason = "registering memory of the process is, and so is everything that is tried on it here"
)]

mod common;
#[path = "in_place/moving.rs"]
mod moving;
#[path = "in_place/pages.rs"]
mod pages;

use common::{Setup, next_ok};
use highwire_host::verbs::{Operation, RecvWr, SendWr, Service};
use highwire_host::{Engine, LinkChoice, MovingWay, permit_moving};
use libtest_mimic::{Arguments, Trial};
use pages::{PAGE, Pages, by_every_way, direct, done_alone, pair};
use std::ptr;

fn main() {
    let tests: [(&str, fn()); 15] = [
        (
            "a_peer_works_on_memory_whose_owner_calls_nothing",
            a_peer_works_on_memory_whose_owner_calls_nothing,
        ),
        (
            "what_is_not_a_whole_page_is_reached_with_packets",
            what_is_not_a_whole_page_is_reached_with_packets,
        ),
        ("regions_that_overlap_share_what_was_moved", moving::regions_that_overlap_share_what_was_moved),
        ("the_child_of_a_fork_has_a_copy", moving::the_child_of_a_fork_has_a_copy),
        (
            "memory_that_was_unmapped_too_early_is_left_alone",
            memory_that_was_unmapped_too_early_is_left_alone,
        ),
        (
            "what_is_mapped_in_the_place_of_registered_memory_hears_nothing_of_peers",
            what_is_mapped_in_the_place_of_registered_memory_hears_nothing_of_peers,
        ),
        (
            "pages_that_hold_other_data_move_where_that_is_safe",
            moving::pages_that_hold_other_data_move_where_that_is_safe,
        ),
        ("threads_that_begin_are_waited_for", moving::threads_that_begin_are_waited_for),
        (
            "memory_moves_under_threads_that_use_it_by_every_way",
            moving::memory_moves_under_threads_that_use_it_by_every_way,
        ),
        (
            "without_any_way_memory_is_reached_with_packets",
            moving::without_any_way_memory_is_reached_with_packets,
        ),
        ("what_came_back_is_private_memory_as_before", moving::what_came_back_is_private_memory_as_before),
        (
            "memory_that_the_program_has_moved_comes_back_there",
            moving::memory_that_the_program_has_moved_comes_back_there,
        ),
        ("registrations_leave_no_trace", registrations_leave_no_trace),
        ("whatever_is_held_is_pinned", whatever_is_held_is_pinned),
        ("the_stack_and_the_memory_of_another_device_stay", the_stack_and_the_memory_of_another_device_stay),
    ];
    let trials = tests.map(|(name, test)| {
        Trial::test(name, move || {
            permit_moving(&MovingWay::ALL);
            test();
            Ok(())
        })
    });
    // With one thread, that is the main thread.
    let arguments = Arguments { test_threads: Some(1), ..Arguments::from_args() };
    libtest_mimic::run(&arguments, trials.into()).exit();
}

fn a_peer_works_on_memory_whose_owner_calls_nothing() {
    for engine in [Engine::Inline, Engine::Both] {
        let setup = Setup::new(Service::Rc, LinkChoice::Auto).engine(engine);
        let [a, b] = &setup.pair();
        let pages = Pages::new(64);
        let region = pages.register(b, 0, pages.length);
        assert!(pages.is_moved(0) && pages.is_moved(63 * PAGE));
        assert!((0..pages.length).all(|at| pages.get(at) == at as u8), "the contents stay");
        let bytes = a.fill(0, 3 * PAGE, 9);
        done_alone(a, Operation::Write(region.remote(100)), 0, 3 * PAGE as u32);
        assert!(bytes.iter().enumerate().all(|(i, byte)| pages.get(100 + i) == *byte));
        done_alone(a, Operation::Read(region.remote(50 * PAGE as u64 + 3)), 65_536, 1000);
        assert!((0..1000).all(|i| a.buffer.to_vec(65_536 + i, 1) == [pages.get(50 * PAGE + 3 + i)]));
        let was = pages.word(40 * PAGE - 8);
        let remote = region.remote(40 * PAGE as u64 - 8);
        done_alone(a, Operation::FetchAdd { remote, add: 5 }, 0, 8);
        assert_eq!((pages.word(40 * PAGE - 8), a.buffer.to_vec(0, 8)), (was + 5, was.to_le_bytes().to_vec()));
        done_alone(a, Operation::CompareSwap { remote, compare: was + 5, swap: 1 }, 0, 8);
        assert_eq!(pages.word(40 * PAGE - 8), 1);
        assert_eq!(direct(a), 4);
        drop(region);
        assert!(!pages.is_moved(0) && !pages.is_moved(63 * PAGE));
        assert!(bytes.iter().enumerate().all(|(i, byte)| pages.get(100 + i) == *byte), "the contents stay");
    }
}

fn what_is_not_a_whole_page_is_reached_with_packets() {
    // System calls of other threads would not wait, so pages with other data stay.
    permit_moving(&[MovingWay::Protection]);
    let [a, b] = &pair();
    let pages = Pages::new(8);
    let (from, to) = (PAGE - 24, 5 * PAGE + 24);
    let region = pages.register(b, from, to);
    assert_eq!(
        [PAGE - 1, PAGE, 5 * PAGE - 1, 5 * PAGE].map(|at| pages.is_moved(at)),
        [false, true, true, false]
    );
    done_alone(a, Operation::Write(region.remote(24)), 0, 64);
    let bytes = a.fill(0, 4 * PAGE + 48, 3);
    // Over both ends, in one request and in several.
    for (offset, length) in [(0, 4 * PAGE + 48), (16, 16), (4 * PAGE as u64 + 16, 16)] {
        a.post(1, Operation::Write(region.remote(offset)), offset, length as u32);
        assert!(a.cq.poll_one().is_none(), "the owner's engine is needed");
        next_ok(a, b);
    }
    assert!((from..to).all(|at| pages.get(at) == bytes[at - from]));
    for offset in [16, 4 * PAGE as u64 + 32] {
        a.post(2, Operation::FetchAdd { remote: region.remote(offset), add: 1 }, 65_536, 8);
        next_ok(a, b);
        let was = u64::from_le_bytes(a.buffer.to_vec(65_536, 8).try_into().expect("eight bytes"));
        assert_eq!(pages.word(from + offset as usize), was + 1);
    }
    a.post(3, Operation::Read(region.remote(0)), 65_536, (to - from) as u32);
    next_ok(a, b);
    let read = a.buffer.to_vec(65_536, to - from);
    assert!((from..to).all(|at| pages.get(at) == read[at - from]));
    assert_eq!(direct(a), 1);
}

fn memory_that_was_unmapped_too_early_is_left_alone() {
    let [_, b] = &pair();
    let pages = Pages::new(16);
    let region = pages.register(b, 0, pages.length);
    let hole = pages.start.wrapping_add(4 * PAGE).cast();
    // SAFETY: the pages are ours; that they are registered is what is tried here.
    let guard = unsafe {
        libc::munmap(hole, 8 * PAGE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        libc::mmap(hole, 4 * PAGE, libc::PROT_NONE, flags, -1, 0)
    };
    assert_eq!(guard, hole);
    drop(region);
    assert!(!pages.is_moved(0) && !pages.is_moved(13 * PAGE));
    assert_eq!((pages.get(5), pages.get(13 * PAGE + 7)), (5, 7));
}

fn what_is_mapped_in_the_place_of_registered_memory_hears_nothing_of_peers() {
    let [a, b] = &pair();
    let pages = Pages::new(16);
    // Its ends are no whole pages, and did not move.
    let region = pages.register(b, 100, pages.length - 100);
    let at = |page: usize| (page * PAGE - 100) as u64;
    // SAFETY: the pages are ours; that they are registered is what is tried here.
    let other = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let place = pages.start.add(2 * PAGE).cast();
        libc::munmap(place, 8 * PAGE);
        libc::mmap(place, 8 * PAGE, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    assert_ne!(other, libc::MAP_FAILED);
    let bytes = a.fill(0, 6000, 9);
    // With immediate data it goes as packets, which the owner's own engine takes.
    for _ in 0..2 {
        b.receive(1, 0, 0);
        a.post(2, Operation::WriteImm(region.remote(at(3)), 7), 0, 6000);
        next_ok(a, b);
        next_ok(b, a);
    }
    assert!((2 * PAGE..10 * PAGE).all(|at| pages.get(at) == 0), "another mapping was written to");
    // The region's own pages have the bytes, as with a card: peers still find them there, by direct operation or by packets.
    for (to, length) in [(0, 6000), (8192, 64)] {
        a.post(4, Operation::Read(region.remote(at(3))), to, length);
        next_ok(a, b);
        assert_eq!(a.buffer.to_vec(to as usize, length as usize), bytes[..length as usize]);
    }
    // And the pieces that could not move are where the program has them.
    b.receive(5, 0, 0);
    a.post(6, Operation::WriteImm(region.remote(0), 7), 0, 6000);
    next_ok(a, b);
    next_ok(b, a);
    assert_eq!((pages.get(100), pages.get(PAGE + 10)), (bytes[0], bytes[PAGE + 10 - 100]));
    assert_eq!((pages.get(99), pages.get(2 * PAGE)), (99, 0));
    drop(region);
    assert!((2 * PAGE..10 * PAGE).all(|at| pages.get(at) == 0), "and not when it is deregistered");
    assert_eq!(pages.get(13 * PAGE + 7), 7);
}

fn registrations_leave_no_trace() {
    let count = |file: &str| std::fs::read_to_string(file).expect("the kernel tells").lines().count();
    let files = |folder: &str| std::fs::read_dir(folder).expect("a folder").count();
    by_every_way(|way| {
        let [_, b] = &pair();
        let pages = Pages::new(512);
        let mut before = (0, 0);
        let mut place = 1usize;
        for round in 0..400 {
            // Different places and lengths, and two regions at once that overlap now and then.
            place = (place * 75 + 74) % 65_537;
            let (from, length) = (place % 400 * PAGE, (1 + place % 20) * PAGE);
            let region = pages.register(b, from, from + length);
            let second = pages.register(b, from + PAGE * (place % 3), from + length + 3 * PAGE);
            if round % 2 == 0 {
                drop(region);
                drop(second);
            } else {
                drop(second);
                drop(region);
            }
            if round == 20 {
                before = (count("/proc/self/maps"), files("/proc/self/fd"));
            }
        }
        let after = (count("/proc/self/maps"), files("/proc/self/fd"));
        assert!(after.0 <= before.0 + 4, "{way:?}: mappings {before:?} became {after:?}");
        assert_eq!(after.1, before.1, "{way:?}: descriptors");
        assert!((0..pages.length).all(|at| pages.get(at) == at as u8), "{way:?}");
    });
}

/// What a program may register.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Private,
    Shared,
    File,
    PrivateFile,
}

fn memory_of(kind: Kind, file: &std::fs::File) -> Pages {
    use std::os::fd::AsRawFd;
    let (fd, flags) = match kind {
        Kind::Private => (-1, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS),
        Kind::Shared => (-1, libc::MAP_SHARED | libc::MAP_ANONYMOUS),
        Kind::File => (file.as_raw_fd(), libc::MAP_SHARED),
        Kind::PrivateFile => (file.as_raw_fd(), libc::MAP_PRIVATE),
    };
    let length = 4 * PAGE;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: new memory at a place of the kernel's choice.
    let start = unsafe { libc::mmap(ptr::null_mut(), length, rights, flags, fd, 0) };
    assert_ne!(start, libc::MAP_FAILED);
    let pages = Pages { start: start.cast(), length };
    (0..length).for_each(|at| pages.set(at, b'o'));
    pages
}

/// Something else takes the place of registered memory: no operation of a peer's or of this side's reads or writes it.
fn whatever_is_held_is_pinned() {
    let file = std::fs::File::from({
        // SAFETY: a new memory file.
        let fd = unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0);
        // SAFETY: the descriptor is new and ours.
        unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) }
    });
    file.set_len(4 * PAGE as u64).expect("a length");
    for link in [LinkChoice::Auto, LinkChoice::Udp] {
        for kind in [Kind::Private, Kind::Shared, Kind::File, Kind::PrivateFile] {
            by_every_way(|way| {
                let [a, b] = &Setup::new(Service::Rc, link).pair();
                let pages = memory_of(kind, &file);
                let region = pages.register(b, 0, pages.length);
                let (place, length) = (pages.start.cast(), pages.length);
                // SAFETY: the pages are ours; that they are registered is what is tried here.
                let other = unsafe {
                    libc::munmap(place, length);
                    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
                    libc::mmap(place, length, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
                };
                assert_eq!(other, place);
                (0..length).for_each(|at| pages.set(at, b'N'));
                let what = format!("{link:?} {kind:?} {way:?}");
                let untouched = |step: &str| {
                    assert!((0..length).all(|at| pages.get(at) == b'N'), "{what}: {step} wrote there");
                };
                let old = |bytes: Vec<u8>, step: &str| {
                    assert!(bytes.iter().all(|byte| *byte == b'o'), "{what}: {step} took foreign bytes");
                };
                a.buffer.fill(b'E');
                a.post(1, Operation::Read(region.remote(5000)), 0, 3000);
                next_ok(a, b);
                old(a.buffer.to_vec(0, 3000), "READ");
                // This side sends from there, and a peer's bytes arrive there.
                a.receive(2, 0, 3000);
                let sges = [region.sge(5000, 3000)];
                b.qp.post_send(&[SendWr::new(3, Operation::Send, &sges)]).expect("posts");
                next_ok(b, a);
                next_ok(a, b);
                old(a.buffer.to_vec(0, 3000), "SEND");
                b.qp.post_send(&[SendWr::new(3, Operation::Write(a.buffer.remote(0)), &sges)])
                    .expect("posts");
                next_ok(b, a);
                old(a.buffer.to_vec(0, 3000), "a WRITE from there");
                a.buffer.fill(b'E');
                b.qp.post_recv(&RecvWr { wr_id: 4, sges: &sges }).expect("posts");
                a.post(5, Operation::Send, 0, 3000);
                next_ok(a, b);
                next_ok(b, a);
                untouched("a receive");
                a.post(6, Operation::Write(region.remote(100)), 0, 9000);
                next_ok(a, b);
                untouched("WRITE");
                a.post(7, Operation::FetchAdd { remote: region.remote(64), add: 1 }, 0, 8);
                next_ok(a, b);
                a.post(8, Operation::CompareSwap { remote: region.remote(72), compare: 0, swap: 1 }, 0, 8);
                next_ok(a, b);
                untouched("an atomic");
                b.qp.post_send(&[SendWr::new(9, Operation::Read(a.buffer.remote(0)), &sges)]).expect("posts");
                next_ok(b, a);
                untouched("a READ to there");
                drop(region);
                untouched("the end of the registration");
            });
        }
    }
}

fn the_stack_and_the_memory_of_another_device_stay() {
    let [a, b] = &pair();
    let mut on_stack = [0u8; 16 * PAGE];
    let stack = Pages { start: on_stack.as_mut_ptr(), length: on_stack.len() };
    let region = stack.register(b, 0, stack.length);
    assert!(!stack.is_moved(8 * PAGE));
    drop(region);
    std::mem::forget(stack);
    let pages = Pages::new(16);
    let theirs = pages.register(a, 0, pages.length);
    let ours = pages.register(b, 0, pages.length);
    a.post(1, Operation::Write(ours.remote(0)), 0, 64);
    next_ok(a, b);
    assert_eq!(direct(a), 0);
    done_alone(b, Operation::Write(theirs.remote(0)), 0, 64);
    assert_eq!(direct(b), 1, "it was moved for the first device");
}
