//! Memory that a program has taken away while it was registered: requests that use it end with an error, and nothing worse
//! happens.
#![allow(unsafe_code, reason = "registering memory of the process is, and so is taking it away")]

mod common;

use common::{End, Setup, next, next_ok};
use highwire_host::verbs::{
    Access, AsyncEvent, CompletionStatus, Operation, QpState, Recovery, RecvWr, SendWr, Service,
};
use highwire_host::{LinkChoice, MemoryRegion};
use std::ptr;

const PAGE: usize = 4096;

/// Two pages of the process, registered, of which the second can be taken away.
struct Pages {
    start: *mut u8,
    region: MemoryRegion,
}

impl Pages {
    fn new(end: &End) -> Pages {
        // SAFETY: new memory at a place of the kernel's choice.
        let start = unsafe {
            let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            libc::mmap(ptr::null_mut(), 2 * PAGE, prot, flags, -1, 0)
        };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the test breaks the promise that it stays mapped on purpose.
        let region = unsafe { end.pd.register(start.cast(), 2 * PAGE, Access::ALL) }.expect("registers");
        Pages { start: start.cast(), region }
    }

    /// The second page goes. No other mapping gets its place: it stays reserved.
    fn lose(&self) {
        // SAFETY: the page is ours.
        let gone = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            libc::mmap(self.start.add(PAGE).cast(), PAGE, libc::PROT_NONE, flags, -1, 0)
        };
        assert_ne!(gone, libc::MAP_FAILED);
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the pages are ours, and only what is tried here still names them.
        unsafe { libc::munmap(self.start.cast(), 2 * PAGE) };
    }
}

fn setups() -> Vec<Setup> {
    let mut setups = Vec::new();
    for link in [LinkChoice::Udp, LinkChoice::Shm] {
        for recovery in [Recovery::GoBackN, Recovery::Irn] {
            setups.push(Setup::new(Service::Rc, link).recovery(recovery));
        }
    }
    setups
}

/// Both ends have seen each other, so that IRN has been agreed on.
fn warm_up([a, b]: &[End; 2]) {
    b.receive(1, 0, 64);
    a.post(2, Operation::Send, 0, 64);
    next_ok(a, b);
    next_ok(b, a);
}

#[test]
fn a_peer_is_told_that_the_memory_it_asks_for_has_gone() {
    for setup in setups() {
        for which in 0..4 {
            let ends = setup.pair();
            warm_up(&ends);
            let [a, b] = &ends;
            let pages = Pages::new(b);
            pages.lose();
            let remote = pages.region.remote(PAGE as u64 - 8);
            let word = pages.region.remote(PAGE as u64);
            let (operation, length) = match which {
                0 => (Operation::Write(remote), 3000),
                1 => (Operation::Read(remote), 3000),
                2 => (Operation::FetchAdd { remote: word, add: 1 }, 8),
                _ => (Operation::CompareSwap { remote: word, compare: 0, swap: 1 }, 8),
            };
            a.post(3, operation, 0, length);
            let completion = next(a, b);
            assert_eq!(
                completion.status,
                CompletionStatus::RemoteOperation,
                "{}: {operation:?}",
                setup.label()
            );
            common::until("the responder's own verdict", || {
                b.cq.poll_one();
                (b.qp.state() == QpState::Error).then_some(())
            });
            assert_eq!(b.device.async_event(), Some(AsyncEvent::QpFatal(b.qp.qpn())));
        }
    }
}

#[test]
fn a_receive_whose_memory_has_gone_ends_in_error() {
    for setup in setups() {
        let ends = setup.pair();
        warm_up(&ends);
        let [a, b] = &ends;
        let pages = Pages::new(b);
        let sges = [pages.region.sge(PAGE as u64 - 8, 4000)];
        b.qp.post_recv(&RecvWr { wr_id: 7, sges: &sges }).expect("posts");
        pages.lose();
        a.post(3, Operation::Send, 0, 4000);
        assert_eq!(next(a, b).status, CompletionStatus::RemoteOperation, "{}", setup.label());
        let received = next(b, a);
        let expected = (7, CompletionStatus::LocalProtection);
        assert_eq!((received.wr_id, received.status), expected, "{}", setup.label());
    }
}

#[test]
fn a_request_whose_own_memory_has_gone_ends_in_error() {
    for setup in setups() {
        for which in 0..4 {
            let ends = setup.pair();
            warm_up(&ends);
            let [a, b] = &ends;
            let pages = Pages::new(a);
            b.receive(1, 0, 8192);
            let remote = b.buffer.remote(0);
            let (operation, at, length) = match which {
                0 => (Operation::Send, PAGE - 8, 4000),
                1 => (Operation::Write(remote), PAGE - 8, 4000),
                2 => (Operation::Read(remote), PAGE - 8, 4000),
                _ => (Operation::FetchAdd { remote, add: 1 }, PAGE, 8),
            };
            pages.lose();
            let sges = [pages.region.sge(at as u64, length)];
            a.qp.post_send(&[SendWr::new(3, operation, &sges)]).expect("posts");
            let completion = next(a, b);
            let expected = (3, CompletionStatus::LocalProtection);
            assert_eq!((completion.wr_id, completion.status), expected, "{}: {operation:?}", setup.label());
            assert_eq!(a.qp.state(), QpState::Error);
        }
    }
}

#[test]
fn a_datagram_for_memory_that_has_gone_costs_its_receive() {
    for link in [LinkChoice::Udp, LinkChoice::Shm] {
        let ends = Setup::new(Service::Ud, link).pair();
        let [a, b] = &ends;
        let pages = Pages::new(b);
        let sges = [pages.region.sge(PAGE as u64 - 20, 1000)];
        b.qp.post_recv(&RecvWr { wr_id: 7, sges: &sges }).expect("posts");
        b.receive(8, 0, 1000);
        pages.lose();
        for wr_id in 0..2 {
            let to = highwire_host::verbs::Datagram {
                address: highwire_host::verbs::Address::new(b.device.gid()),
                qpn: b.qp.qpn(),
                qkey: common::QKEY,
            };
            let sges = [a.buffer.sge(0, 100)];
            a.qp.post_send(&[SendWr { datagram: Some(to), ..SendWr::new(wr_id, Operation::Send, &sges) }])
                .expect("posts");
        }
        let lost = next(b, a);
        assert_eq!((lost.wr_id, lost.status), (7, CompletionStatus::LocalProtection), "{link:?}");
        assert_eq!(next_ok(b, a).wr_id, 8, "{link:?}");
    }
}

#[test]
fn a_programs_own_faults_still_go_to_its_own_handler() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn mend(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
        // SAFETY: the kernel's own argument; the page becomes accessible, so that the instruction succeeds.
        unsafe {
            let page = (*info).si_addr().addr() & !(PAGE - 1);
            libc::mprotect(page as *mut libc::c_void, PAGE, libc::PROT_READ | libc::PROT_WRITE);
        }
        SEEN.fetch_add(1, Ordering::SeqCst);
    }
    // In a process of its own: handlers are the whole process's.
    // SAFETY: the child does nothing that needs its parent's other threads but allocate, which libc takes care of.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let judge = || {
            let before = Setup::new(Service::Rc, LinkChoice::Udp).end();
            let pages = Pages::new(&before);
            // Installed after the library's handler, which the next region installs on top of it. SAFETY:
            // plain values and a handler that lives as long as the process.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = mend as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO;
                libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut());
            }
            let again = Pages::new(&before);
            for (pages, expected) in [(&pages, 1), (&again, 2)] {
                pages.lose();
                // SAFETY: the handler makes it so that it can be written to.
                unsafe { pages.start.add(PAGE).write_volatile(1) };
                if SEEN.load(Ordering::SeqCst) != expected {
                    return 1;
                }
            }
            // SAFETY: the page was lost and found; the address is ours.
            unsafe { libc::mprotect(again.start.add(PAGE).cast(), PAGE, libc::PROT_NONE) };
            // SAFETY: guarded.
            let copied = unsafe { highwire_shmem::copy_guarded([1u8; 8].as_ptr(), again.start.add(PAGE), 8) };
            i32::from(copied.is_ok() || SEEN.load(Ordering::SeqCst) != 2)
        };
        let verdict = std::panic::catch_unwind(judge).unwrap_or(2);
        // SAFETY: ends the child at once: nothing of the test harness may run in it.
        unsafe { libc::_exit(verdict) };
    }
    let mut status = 1;
    // SAFETY: the pointer is to a live local.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child ends in order");
}
