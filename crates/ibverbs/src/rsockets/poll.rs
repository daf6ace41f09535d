//! `rpoll` and `rselect`, over rsockets and any other descriptors.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use libc::{c_int, c_short, fd_set, nfds_t, pollfd, timeval};

use super::changes::{Counter, sleep_on};
use super::socket::{Socket, find, lock};
use super::stream::{State, Stream};
use crate::boundary::{c_waits, set_errno};
use crate::cancel;

/// How long to look again and again before sleeping.
const SPIN: Duration = Duration::from_micros(10);
/// How long a thread then waits for completions alone, as a thread that blocks on a completion channel, which may do the
/// device's work.
const BLOCK: Duration = Duration::from_millis(1);

/// The requested events for which a stream is ready.
fn readiness(stream: &mut Stream, events: c_short) -> c_short {
    stream.progress();
    let mut ready = 0;
    match stream.state {
        State::Fresh => ready |= libc::POLLOUT | libc::POLLHUP,
        State::Listening if stream.listening.has_ready() => ready |= libc::POLLIN,
        State::Listening | State::Connecting => {}
        State::Connected => {
            if stream.can_read() {
                ready |= libc::POLLIN | libc::POLLRDNORM;
            }
            if stream.can_send() || !stream.is_writable {
                ready |= libc::POLLOUT | libc::POLLWRNORM;
            }
            if !stream.is_readable {
                ready |= libc::POLLRDHUP;
            }
            if !stream.is_readable && !stream.is_writable {
                ready |= libc::POLLHUP;
            }
        }
        State::Ended => ready |= of_ended(stream.has_data(), events),
        State::Failed(_) => ready |= libc::POLLIN | libc::POLLOUT | libc::POLLERR | libc::POLLHUP,
    }
    ready & (events | libc::POLLERR | libc::POLLHUP)
}

/// The readiness of a stream that both ends have ended. A reader is not told of the end while there is data:
/// it may take POLLHUP for the end of the data, and the peer may have sent its last bytes together with the
/// end.
fn of_ended(has_data: bool, events: c_short) -> c_short {
    let ready = libc::POLLIN | libc::POLLRDNORM | libc::POLLOUT | libc::POLLRDHUP;
    let is_reading = events & (libc::POLLIN | libc::POLLRDNORM) != 0;
    if has_data && is_reading { ready } else { ready | libc::POLLHUP }
}

/// One of the descriptors asked about.
enum Watched {
    Stream(Arc<Mutex<Stream>>),
    Other,
}

fn watch(fd: c_int) -> Watched {
    match find(fd) {
        Ok(Socket::Stream(stream)) => Watched::Stream(stream),
        Ok(Socket::Datagram) | Err(_) => Watched::Other,
    }
}

/// Looks at all descriptors once, without waiting.
fn look(fds: &mut [pollfd], watched: &[Watched]) -> usize {
    let mut others: Vec<pollfd> = Vec::new();
    for (fd, watched) in fds.iter_mut().zip(watched) {
        fd.revents = 0;
        match watched {
            Watched::Stream(stream) => fd.revents = readiness(&mut lock(stream), fd.events),
            Watched::Other => others.push(*fd),
        }
    }
    if !others.is_empty() {
        // SAFETY: the array lives through the call.
        unsafe { libc::poll(others.as_mut_ptr(), others.len() as nfds_t, 0) };
        let mut others = others.iter();
        let asked = fds.iter_mut().zip(watched).filter(|(_, watched)| matches!(watched, Watched::Other));
        asked.for_each(|(fd, _)| fd.revents = others.next().map_or(0, |other| other.revents));
    }
    fds.iter().filter(|fd| fd.revents != 0).count()
}

/// Sleeps until a descriptor may be ready.
fn sleep(fds: &[pollfd], watched: &[Watched], left: Option<Duration>) -> Result<(), c_int> {
    let counter = Counter::new()?;
    let entry = |fd| pollfd { fd, events: libc::POLLIN, revents: 0 };
    let mut all = Vec::with_capacity(fds.len() + 1);
    all.push(entry(counter.fd()));
    let changes: Vec<_> = watched
        .iter()
        .filter_map(|watched| match watched {
            Watched::Stream(stream) => Some(Arc::clone(&lock(stream).changes)),
            Watched::Other => None,
        })
        .collect();
    // Before the look: a change that comes after it ends the sleep.
    let enrolled: Vec<_> = changes.iter().map(|changes| counter.enroll(changes)).collect();
    let mut left = left;
    for (fd, watched) in fds.iter().zip(watched) {
        match watched {
            Watched::Stream(stream) => {
                let mut stream = lock(stream);
                stream.arm();
                // A completion from before the queue was armed brings no event.
                if readiness(&mut stream, fd.events) != 0 {
                    left = Some(Duration::ZERO);
                }
                all.extend(stream.changes.channel_fd().map(entry));
            }
            Watched::Other => all.push(pollfd { revents: 0, ..*fd }),
        }
    }
    let slept = sleep_on(&mut all, left);
    drop(enrolled);
    for watched in watched {
        if let Watched::Stream(stream) = watched {
            let mut stream = lock(stream);
            // Other threads may wait for the completions of which these wake-ups tell.
            stream.changes.take_wakeups();
            stream.progress();
        }
    }
    slept
}

pub(super) fn poll(fds: &mut [pollfd], timeout: Option<Duration>) -> Result<usize, c_int> {
    let watched: Vec<Watched> = fds.iter().map(|fd| watch(fd.fd)).collect();
    let begin = Instant::now();
    // A thread that polls one stream for long waits for its completions, which it may do by polling, before it sleeps.
    let mut alone = match &watched[..] {
        [Watched::Stream(stream)] if timeout.is_none_or(|timeout| timeout > BLOCK) => Some(stream),
        _ => None,
    };
    loop {
        let count = look(fds, &watched);
        let passed = begin.elapsed();
        if count > 0 || timeout.is_some_and(|timeout| passed >= timeout) {
            return Ok(count);
        }
        if passed < SPIN {
            continue;
        }
        if let Some(stream) = alone.take() {
            block(stream, fds[0].events)?;
        } else {
            sleep(fds, &watched, timeout.map(|timeout| timeout.saturating_sub(passed)))?;
        }
    }
}

/// Waits for a connected stream that is not ready, for [`BLOCK`] at most.
fn block(stream: &Mutex<Stream>, events: c_short) -> Result<(), c_int> {
    let mut guard = lock(stream);
    let seen = guard.changes.count();
    guard.arm();
    // A completion from before the queue was armed brings no event.
    if guard.pipe.is_none() || readiness(&mut guard, events) != 0 {
        return Ok(());
    }
    let changes = Arc::clone(&guard.changes);
    drop(guard);
    changes.wait(seen, Some(BLOCK))
}

/// # Safety
/// The sets are null or valid.
unsafe fn select(
    count: c_int,
    sets: [*mut fd_set; 3],
    timeout: Option<Duration>,
    passed_ns: &mut u64,
) -> Result<c_int, c_int> {
    const EVENTS: [c_short; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];
    const READY: [c_short; 3] = [
        libc::POLLIN | libc::POLLHUP | libc::POLLERR | libc::POLLRDHUP,
        libc::POLLOUT | libc::POLLERR,
        libc::POLLPRI,
    ];
    if !(0..=libc::FD_SETSIZE as c_int).contains(&count) {
        return Err(libc::EINVAL);
    }
    let mut fds = Vec::new();
    for fd in 0..count {
        let asked = sets.iter().zip(EVENTS).filter(|(set, _)| {
            // SAFETY: the caller's promise, and the number is below the set's size.
            !set.is_null() && unsafe { libc::FD_ISSET(fd, **set) }
        });
        let events = asked.fold(0, |events, (_, event)| events | event);
        if events != 0 {
            fds.push(pollfd { fd, events, revents: 0 });
        }
    }
    in_part(timeout, passed_ns, |part| poll(&mut fds, part))?;
    if cancel::is_part_over() {
        // The sets still say what the program asks for.
        return Ok(0);
    }
    let mut bits = 0;
    for (set, (event, ready)) in sets.into_iter().zip(EVENTS.into_iter().zip(READY)) {
        if set.is_null() {
            continue;
        }
        for fd in &fds {
            // SAFETY: as above.
            unsafe {
                if fd.events & event != 0 && fd.revents & ready != 0 {
                    bits += 1;
                } else {
                    libc::FD_CLR(fd.fd, set);
                }
            }
        }
    }
    Ok(bits)
}

/// Polls for one part of the time, and keeps how much of it has passed. `poll` returns how much is ready.
pub(super) fn in_part(
    timeout: Option<Duration>,
    passed_ns: &mut u64,
    poll: impl FnOnce(Option<Duration>) -> Result<usize, c_int>,
) -> Result<usize, c_int> {
    let begin = Instant::now();
    let left = timeout.map(|timeout| timeout.saturating_sub(Duration::from_nanos(*passed_ns)));
    // With an end in any case: no signal lets `poll` go on.
    let part = cancel::part_of(left.or(Some(Duration::MAX)));
    let count = poll(part)?;
    if count == 0 && part != left {
        *passed_ns += begin.elapsed().as_nanos() as u64;
        cancel::end_part();
    }
    Ok(count)
}

fn answer(result: Result<c_int, c_int>) -> c_int {
    result.unwrap_or_else(|errno| {
        set_errno(errno);
        -1
    })
}

c_waits! {
    fn rselect(
        nfds: c_int,
        readfds: *mut fd_set,
        writefds: *mut fd_set,
        exceptfds: *mut fd_set,
        timeout: *mut timeval,
    ) -> c_int |kept| {
        let timeout = timeout.as_ref().map(|time| {
            Duration::from_secs(time.tv_sec.max(0) as u64) + Duration::from_micros(time.tv_usec.max(0) as u64)
        });
        answer(select(nfds, [readfds, writefds, exceptfds], timeout, kept))
    }

    fn rpoll(fds: *mut pollfd, nfds: nfds_t, timeout: c_int) -> c_int |kept| {
        if fds.is_null() && nfds > 0 {
            return answer(Err(libc::EFAULT));
        }
        let fds = if nfds == 0 { &mut [] } else { std::slice::from_raw_parts_mut(fds, nfds as usize) };
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        answer(in_part(timeout, kept, |part| poll(fds, part)).map(|count| count as c_int))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_hears_of_the_end_after_the_data() {
        let hears_of_it = |has_data, events| of_ended(has_data, events) & libc::POLLHUP != 0;
        assert!(!hears_of_it(true, libc::POLLIN) && !hears_of_it(true, libc::POLLIN | libc::POLLOUT));
        assert!(hears_of_it(false, libc::POLLIN));
        // A program that does not wait for data is told of the end even if there is data; otherwise it would
        // sleep for ever.
        assert!(hears_of_it(true, libc::POLLOUT) && hears_of_it(true, 0));
        assert!(of_ended(true, libc::POLLIN) & libc::POLLIN != 0);
        assert!(of_ended(false, libc::POLLIN) & libc::POLLIN != 0, "the end can be read as well");
    }
}
