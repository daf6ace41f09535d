//! Memory of the process that neighbours reach where it lies. Pages move only while the process has one thread, so the tests
//! run in `main`, one after the other.
#![allow(
    unsafe_code,
    reason = "registering memory of the process is, and so is everything that is tried on it here"
)]

mod common;

use common::{End, Setup, next_ok};
use highwire_host::verbs::{Access, CompletionStatus, Operation, Service};
use highwire_host::{Engine, LinkChoice, MemoryRegion, RegisterOptions};
use std::ptr;

const PAGE: usize = 4096;

fn main() {
    let tests: [(&str, fn()); 9] = [
        (
            "a_peer_works_on_memory_whose_owner_calls_nothing",
            a_peer_works_on_memory_whose_owner_calls_nothing,
        ),
        (
            "what_is_not_a_whole_page_is_reached_with_packets",
            what_is_not_a_whole_page_is_reached_with_packets,
        ),
        ("regions_that_overlap_share_what_was_moved", regions_that_overlap_share_what_was_moved),
        ("the_child_of_a_fork_has_a_copy", the_child_of_a_fork_has_a_copy),
        (
            "memory_that_was_unmapped_too_early_is_left_alone",
            memory_that_was_unmapped_too_early_is_left_alone,
        ),
        (
            "what_is_mapped_in_the_place_of_registered_memory_hears_nothing_of_peers",
            what_is_mapped_in_the_place_of_registered_memory_hears_nothing_of_peers,
        ),
        ("nothing_moves_under_another_thread", nothing_moves_under_another_thread),
        ("memory_comes_back_under_another_thread", memory_comes_back_under_another_thread),
        ("the_stack_and_the_memory_of_another_device_stay", the_stack_and_the_memory_of_another_device_stay),
    ];
    println!("running {} tests", tests.len());
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
    println!(
        "test result: ok. {} passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; in one thread",
        tests.len()
    );
}

/// Pages of the process, as `malloc` gives large blocks.
struct Pages {
    start: *mut u8,
    length: usize,
}

impl Pages {
    fn new(pages: usize) -> Pages {
        let length = pages * PAGE;
        // SAFETY: new memory at a place of the kernel's choice.
        let start = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        let pages = Pages { start: start.cast(), length };
        (0..length).for_each(|at| pages.set(at, at as u8));
        pages
    }

    fn set(&self, at: usize, byte: u8) {
        assert!(at < self.length);
        // SAFETY: within the pages; volatile, because peers write there, too.
        unsafe { self.start.add(at).write_volatile(byte) }
    }

    fn get(&self, at: usize) -> u8 {
        assert!(at < self.length);
        // SAFETY: as above.
        unsafe { self.start.add(at).read_volatile() }
    }

    fn word(&self, at: usize) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|i| self.get(at + i)))
    }

    fn register(&self, end: &End, from: usize, to: usize) -> MemoryRegion {
        let options = RegisterOptions { in_place: true, ..RegisterOptions::default() };
        // SAFETY: the pages outlive every region of the tests below, or the test says so.
        let region = unsafe { end.pd.register_with(self.start.add(from), to - from, Access::ALL, &options) };
        region.expect("registers")
    }

    /// Whether the kernel shows a file at this place.
    fn is_moved(&self, at: usize) -> bool {
        let address = self.start as usize + at;
        let maps = std::fs::read_to_string("/proc/self/maps").expect("the kernel tells");
        maps.lines().any(|line| {
            let (range, rest) = line.split_once(' ').expect("a range and more");
            let (start, end) = range.split_once('-').expect("two ends");
            let hex = |text| usize::from_str_radix(text, 16).expect("an address");
            (hex(start)..hex(end)).contains(&address) && rest.starts_with("rw-s")
        })
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages are ours and no longer used.
        unsafe { libc::munmap(self.start.cast(), self.length) };
    }
}

fn pair() -> [End; 2] {
    Setup::new(Service::Rc, LinkChoice::Auto).pair()
}

fn direct(end: &End) -> u64 {
    end.device.counters().value("direct")
}

/// Posts, and finds the request done without the peer's help.
#[track_caller]
fn done_alone(end: &End, operation: Operation, offset: u64, length: u32) {
    end.post(7, operation, offset, length);
    let completion = end.cq.poll_one().expect("nobody else is needed");
    assert_eq!(completion.status, CompletionStatus::Success);
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

fn regions_that_overlap_share_what_was_moved() {
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

fn the_child_of_a_fork_has_a_copy() {
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

/// Runs `act` while another thread lives.
fn with_another_thread<R>(act: impl FnOnce() -> R) -> R {
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || stopped.recv().is_err());
    let result = act();
    drop(stop);
    assert!(thread.join().expect("no panic"));
    // It is gone for the library once it is gone for the kernel, which comes a little later.
    while std::fs::read_dir("/proc/self/task").expect("the kernel tells").count() > 1 {
        std::thread::yield_now();
    }
    result
}

fn nothing_moves_under_another_thread() {
    let [a, b] = &pair();
    let pages = Pages::new(16);
    let region = with_another_thread(|| pages.register(b, 0, pages.length));
    assert!(!pages.is_moved(0));
    a.post(1, Operation::Write(region.remote(0)), 0, 64);
    next_ok(a, b);
    assert_eq!(direct(a), 0);
}

fn memory_comes_back_under_another_thread() {
    let [a, b] = &pair();
    let pages = Pages::new(16);
    let region = pages.register(b, 0, pages.length);
    let bytes = a.fill(0, 64, 1);
    done_alone(a, Operation::Write(region.remote(70)), 0, 64);
    with_another_thread(|| drop(region));
    assert!(!pages.is_moved(0));
    assert!((0..64).all(|i| pages.get(70 + i) == bytes[i]) && pages.get(69) == 69);
    pages.set(70, 1);
    assert_eq!(pages.get(70), 1);
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
    b.post(2, Operation::Write(theirs.remote(0)), 0, 64);
    assert!(b.cq.poll_one().is_some(), "it was moved for the first device");
}
