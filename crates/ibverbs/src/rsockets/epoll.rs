//! `repoll_create`, `repoll_ctl`, `repoll_wait`: sets of rsockets and any other descriptors, with the arguments of epoll(7).
//!
//! A set is level-triggered, `EPOLLET` or not: a member that was asked for edges is reported as long as it is ready.
//! `EPOLLONESHOT` is honoured. A set's number is that of an empty epoll descriptor, so that nothing else can have it.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use libc::{c_int, c_short, epoll_event, pollfd};

use super::poll::{in_part, poll};
use super::{c, socket};
use crate::boundary::{c_api, c_waits, minus_one, set_errno};
use crate::rdmacm::eventfd;

/// The events that poll(2) and epoll(7) have in common, under the same numbers.
const EVENTS: u32 = 0x27DF;

/// A set of descriptors.
struct Set {
    number: c_int,
    /// Counts one for every waiter that has to look at the members anew.
    wake: OwnedFd,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    members: BTreeMap<c_int, Member>,
    waiters: u64,
    changes: u64,
    /// Where the next report begins, so that every ready member has its turn.
    next: c_int,
}

/// A descriptor of a set.
#[derive(Clone, Copy)]
struct Member {
    events: u32,
    data: u64,
    /// The change of the set that added it. If the member has changed since, the number differs.
    change: u64,
    /// It was reported once, and is not reported again until it is modified.
    is_spent: bool,
}

static SETS: LazyLock<Mutex<HashMap<c_int, Arc<Set>>>> = LazyLock::new(Mutex::default);

fn sets() -> MutexGuard<'static, HashMap<c_int, Arc<Set>>> {
    SETS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn find(number: c_int) -> Result<Arc<Set>, c_int> {
    sets().get(&number).cloned().ok_or(libc::EBADF)
}

/// A socket that is closed leaves every set.
pub(super) fn forget(fd: c_int) {
    let sets: Vec<Arc<Set>> = sets().values().cloned().collect();
    for set in sets {
        set.lock().members.remove(&fd);
    }
}

/// Closes the set of that number.
///
/// # Errors
/// EBADF if there is none.
pub(super) fn close(number: c_int) -> Result<(), c_int> {
    let set = sets().remove(&number).ok_or(libc::EBADF)?;
    // Its waiters find the number unknown.
    set.wake_waiters(&set.lock());
    // SAFETY: the descriptor was made with the set.
    c::done(unsafe { libc::close(number) })
}

impl Set {
    fn create(flags: c_int) -> Result<c_int, c_int> {
        if flags & !libc::EPOLL_CLOEXEC != 0 {
            return Err(libc::EINVAL);
        }
        let wake = eventfd::new(libc::EFD_SEMAPHORE)?;
        // SAFETY: the call takes no pointers.
        let number = unsafe { libc::epoll_create1(flags) };
        if number < 0 {
            return Err(c::last_errno());
        }
        // A number that was closed without `rclose` may come again: the set that had it is over.
        sets().insert(number, Arc::new(Set { number, wake, inside: Mutex::default() }));
        Ok(number)
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_waiters(&self, inside: &Inside) {
        if inside.waiters > 0 {
            eventfd::add(self.wake.as_raw_fd(), inside.waiters);
        }
    }

    fn change(&self, operation: c_int, fd: c_int, event: Option<epoll_event>) -> Result<(), c_int> {
        if fd == self.number {
            return Err(libc::EINVAL);
        }
        // SAFETY: the command takes no pointers.
        if socket::find(fd).is_err() && unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
            return Err(libc::EBADF);
        }
        let mut inside = self.lock();
        inside.changes += 1;
        let change = inside.changes;
        let is_member = inside.members.contains_key(&fd);
        match operation {
            libc::EPOLL_CTL_ADD if is_member => return Err(libc::EEXIST),
            libc::EPOLL_CTL_MOD | libc::EPOLL_CTL_DEL if !is_member => return Err(libc::ENOENT),
            libc::EPOLL_CTL_DEL => {
                inside.members.remove(&fd);
            }
            libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD => {
                let event = event.ok_or(libc::EFAULT)?;
                let member = Member { events: event.events, data: event.u64, change, is_spent: false };
                inside.members.insert(fd, member);
            }
            _ => return Err(libc::EINVAL),
        }
        self.wake_waiters(&inside);
        Ok(())
    }

    /// Fills in ready members, and returns how many.
    fn wait(&self, events: &mut [epoll_event], timeout: Option<Duration>) -> Result<usize, c_int> {
        let begin = Instant::now();
        loop {
            let (mut fds, changes) = self.begin_wait();
            let polled = poll(&mut fds, timeout.map(|timeout| timeout.saturating_sub(begin.elapsed())));
            let mut inside = self.lock();
            inside.waiters -= 1;
            polled?;
            let Some(wake) = fds.pop() else { return Err(libc::EBADF) };
            if !find(self.number).is_ok_and(|set| std::ptr::eq(&raw const *set, self)) {
                return Err(libc::EBADF);
            }
            if wake.revents != 0 {
                eventfd::try_take(self.wake.as_raw_fd());
            }
            let found = inside.report(&fds, &changes, events);
            if found > 0 || timeout.is_some_and(|timeout| begin.elapsed() >= timeout) {
                return Ok(found);
            }
        }
    }

    /// The descriptors to look at: the members', and last the one that signals changes.
    fn begin_wait(&self) -> (Vec<pollfd>, Vec<u64>) {
        let mut inside = self.lock();
        inside.waiters += 1;
        let next = inside.next;
        let (after, before): (Vec<_>, Vec<_>) =
            inside.members.iter().filter(|(_, member)| !member.is_spent).partition(|(fd, _)| **fd >= next);
        let turns = || after.iter().chain(&before);
        let mut fds: Vec<pollfd> = turns()
            .map(|(fd, member)| pollfd { fd: **fd, events: (member.events & EVENTS) as c_short, revents: 0 })
            .collect();
        fds.push(pollfd { fd: self.wake.as_raw_fd(), events: libc::POLLIN, revents: 0 });
        (fds, turns().map(|(_, member)| member.change).collect())
    }
}

impl Inside {
    /// Hands out the events found, as far as the set still wants them and there is room.
    fn report(&mut self, fds: &[pollfd], changes: &[u64], events: &mut [epoll_event]) -> usize {
        let mut found = 0;
        for (fd, change) in fds.iter().zip(changes).filter(|(fd, _)| fd.revents != 0) {
            if found == events.len() {
                self.next = fd.fd;
                break;
            }
            let Some(member) = self.members.get_mut(&fd.fd) else { continue };
            if member.change != *change || member.is_spent {
                continue;
            }
            if fd.revents & libc::POLLNVAL != 0 {
                // Closed without a word: epoll forgets such a member as well.
                self.members.remove(&fd.fd);
                continue;
            }
            member.is_spent = member.events & libc::EPOLLONESHOT as u32 != 0;
            events[found] = epoll_event { events: fd.revents as u16 as u32, u64: member.data };
            found += 1;
        }
        found
    }
}

c_api! {
    fn repoll_create(flags: c_int) -> c_int {
        Set::create(flags).unwrap_or_else(|errno| {
            set_errno(errno);
            -1
        })
    }

    fn repoll_ctl(epfd: c_int, op: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        let event = if event.is_null() { None } else { Some(event.read_unaligned()) };
        minus_one(find(epfd).and_then(|set| set.change(op, fd, event)))
    }
}

c_waits! {
    fn repoll_wait(epfd: c_int, events: *mut epoll_event, maxevents: c_int, timeout: c_int) -> c_int |kept| {
        let mut run = || {
            let set = find(epfd)?;
            let room = usize::try_from(maxevents).ok().filter(|room| *room > 0).ok_or(libc::EINVAL)?;
            if events.is_null() {
                return Err(libc::EFAULT);
            }
            let events = std::slice::from_raw_parts_mut(events, room);
            let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
            in_part(timeout, kept, |part| set.wait(events, part)).map(|found| found as c_int)
        };
        run().unwrap_or_else(|errno| {
            set_errno(errno);
            -1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errno() -> c_int {
        std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
    }

    fn pipe() -> [c_int; 2] {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors.
        assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
        ends
    }

    fn put(fd: c_int) {
        // SAFETY: one byte is there.
        assert_eq!(unsafe { libc::write(fd, b"x".as_ptr().cast(), 1) }, 1);
    }

    fn event(events: c_int, data: u64) -> epoll_event {
        epoll_event { events: events as u32, u64: data }
    }

    /// A set's immediate report, as data and events.
    fn ready(set: c_int, room: usize) -> Vec<(u64, u32)> {
        let mut events = vec![event(0, 0); room];
        // SAFETY: as many events as it says.
        let found = unsafe { repoll_wait(set, events.as_mut_ptr(), room as c_int, 0) };
        events[..usize::try_from(found).expect("no error")].iter().map(|e| (e.u64, e.events)).collect()
    }

    #[test]
    fn a_set_reports_what_is_ready_until_it_is_taken_away() {
        // SAFETY: descriptors and events of this function.
        unsafe {
            let set = repoll_create(libc::EPOLL_CLOEXEC);
            assert!(set >= 0);
            let (one, two) = (pipe(), pipe());
            for (end, data) in [(one[0], 11), (two[0], 22)] {
                assert_eq!(repoll_ctl(set, libc::EPOLL_CTL_ADD, end, &mut event(libc::EPOLLIN, data)), 0);
            }
            assert_eq!(ready(set, 4), []);
            put(one[1]);
            put(two[1]);
            let is_in = libc::EPOLLIN as u32;
            assert_eq!(ready(set, 4), [(11, is_in), (22, is_in)]);
            // With room for one, each has its turn.
            let mut turns = [ready(set, 1)[0].0, ready(set, 1)[0].0];
            turns.sort_unstable();
            assert_eq!(turns, [11, 22]);
            assert_eq!(repoll_ctl(set, libc::EPOLL_CTL_DEL, one[0], std::ptr::null_mut()), 0);
            assert_eq!(ready(set, 4), [(22, is_in)]);
            let once = &mut event(libc::EPOLLIN | libc::EPOLLONESHOT, 33);
            assert_eq!(repoll_ctl(set, libc::EPOLL_CTL_MOD, two[0], once), 0);
            assert_eq!((ready(set, 4), ready(set, 4)), (vec![(33, is_in)], vec![]));
            assert_eq!(repoll_ctl(set, libc::EPOLL_CTL_MOD, two[0], once), 0);
            assert_eq!(ready(set, 4), [(33, is_in)]);
            // The writer closes: the reader is told, whether it asked or not.
            libc::close(one[1]);
            assert_eq!(repoll_ctl(set, libc::EPOLL_CTL_ADD, one[0], &mut event(0, 44)), 0);
            assert_eq!(ready(set, 4), [(44, libc::EPOLLHUP as u32)]);
            libc::close(one[0]);
            assert_eq!(ready(set, 4), [], "a closed descriptor is in no set");
            assert_eq!(super::super::calls::rclose(set), 0);
            assert_eq!((repoll_wait(set, &mut event(0, 0), 1, 0), errno()), (-1, libc::EBADF));
        }
    }

    #[test]
    fn a_set_refuses_what_epoll_refuses() {
        // SAFETY: descriptors and events of this function.
        unsafe {
            assert_eq!((repoll_create(1), errno()), (-1, libc::EINVAL));
            let (set, ends) = (repoll_create(0), pipe());
            let mut wish = event(libc::EPOLLIN, 1);
            let refused = |op, fd, wish: *mut epoll_event| (repoll_ctl(set, op, fd, wish), errno());
            assert_eq!(refused(libc::EPOLL_CTL_MOD, ends[0], &mut wish), (-1, libc::ENOENT));
            assert_eq!(refused(libc::EPOLL_CTL_DEL, ends[0], &mut wish), (-1, libc::ENOENT));
            assert_eq!(refused(libc::EPOLL_CTL_ADD, set, &mut wish), (-1, libc::EINVAL));
            assert_eq!(refused(libc::EPOLL_CTL_ADD, 1 << 20, &mut wish), (-1, libc::EBADF));
            assert_eq!(refused(libc::EPOLL_CTL_ADD, ends[0], std::ptr::null_mut()), (-1, libc::EFAULT));
            assert_eq!(refused(9, ends[0], &mut wish), (-1, libc::EINVAL));
            assert_eq!(refused(libc::EPOLL_CTL_ADD, ends[0], &mut wish).0, 0);
            assert_eq!(refused(libc::EPOLL_CTL_ADD, ends[0], &mut wish), (-1, libc::EEXIST));
            assert_eq!(
                (repoll_ctl(ends[0], libc::EPOLL_CTL_ADD, ends[1], &mut wish), errno()),
                (-1, libc::EBADF)
            );
            assert_eq!((repoll_wait(set, &mut wish, 0, 0), errno()), (-1, libc::EINVAL));
            assert_eq!((repoll_wait(set, std::ptr::null_mut(), 1, 0), errno()), (-1, libc::EFAULT));
            assert_eq!((repoll_wait(ends[0], &mut wish, 1, 0), errno()), (-1, libc::EBADF));
            assert_eq!(super::super::calls::rclose(set), 0);
        }
    }

    #[test]
    fn a_waiter_hears_of_a_descriptor_that_is_added_while_it_sleeps() {
        // SAFETY: a descriptor of this function.
        let (set, ends) = (unsafe { repoll_create(0) }, pipe());
        put(ends[1]);
        let waiter = std::thread::spawn(move || {
            let mut found = [event(0, 0)];
            // SAFETY: room for one event.
            (unsafe { repoll_wait(set, found.as_mut_ptr(), 1, 60_000) }, found[0].u64)
        });
        while find(set).expect("a set").lock().waiters == 0 {
            std::thread::yield_now();
        }
        // SAFETY: an event of this function.
        assert_eq!(unsafe { repoll_ctl(set, libc::EPOLL_CTL_ADD, ends[0], &mut event(libc::EPOLLIN, 7)) }, 0);
        assert_eq!(waiter.join().expect("it ends"), (1, 7));
        // SAFETY: the set's number.
        assert_eq!(unsafe { super::super::calls::rclose(set) }, 0);
    }
}
