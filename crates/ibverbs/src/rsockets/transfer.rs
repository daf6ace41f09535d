//! Sending and receiving.

use libc::{c_int, c_void, iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::background;
use super::changes::sleep_on;
use super::socket::{Patience, Socket, find, lock, wait};
use super::stream::{State, Stream};
use crate::boundary::{c_waits, set_errno};
use crate::cancel;

/// -1 and errno, or how much it was.
fn answer(result: Result<usize, c_int>) -> ssize_t {
    match result {
        Ok(count) => count as ssize_t,
        Err(errno) => {
            set_errno(errno);
            -1
        }
    }
}

/// Bytes of the application.
///
/// # Safety
/// `start` is `length` bytes long.
unsafe fn bytes<'a>(start: *const c_void, length: usize) -> Result<&'a [u8], c_int> {
    match length {
        0 => Ok(&[]),
        _ if start.is_null() => Err(libc::EFAULT),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts(start.cast(), length) }),
    }
}

/// Room of the application.
///
/// # Safety
/// `start` is `length` bytes long, and no other code uses them.
unsafe fn room<'a>(start: *mut c_void, length: usize) -> Result<&'a mut [u8], c_int> {
    match length {
        0 => Ok(&mut []),
        _ if start.is_null() => Err(libc::EFAULT),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(start.cast(), length) }),
    }
}

/// # Safety
/// `start` is `count` vectors long.
unsafe fn vectors<'a>(start: *const iovec, count: usize) -> Result<&'a [iovec], c_int> {
    if start.is_null() && count > 0 || count > 1024 {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    Ok(if count == 0 { &[] } else { unsafe { std::slice::from_raw_parts(start, count) } })
}

/// What a call that [waits in parts](cancel::in_parts) has done. A cancelled thread's bytes are not taken back: the stream goes on behind them.
#[derive(Default)]
pub(super) struct Progress {
    begin_ns: u64,
    done: usize,
}

impl Progress {
    /// The result of a call that cannot go on: what it has done, or else why. Without a meaning at the end of a part.
    fn end(&self, errno: c_int) -> Result<usize, c_int> {
        if self.done == 0 || cancel::is_part_over() { Err(errno) } else { Ok(self.done) }
    }
}

/// Sends the rest of one stretch. Returns how much of it was sent.
pub(super) fn send(fd: c_int, data: &[u8], flags: c_int, progress: &mut Progress) -> Result<usize, c_int> {
    let Socket::Stream(stream) = find(fd)? else {
        // SAFETY: the bytes are alive.
        return of_kernel(unsafe { libc::send(fd, data.as_ptr().cast(), data.len(), flags) });
    };
    let patience = to_send(&lock(&stream), flags, progress);
    while progress.done < data.len() {
        let is_ready = |stream: &Stream| stream.can_send() || is_over(stream);
        let sent = wait(&stream, patience, is_ready).and_then(|mut guard| {
            if !guard.can_send() {
                return Err(refusal(&guard));
            }
            guard.send_some(&data[progress.done..])
        });
        match sent {
            Ok(count) => progress.done += count,
            Err(errno) => return progress.end(errno),
        }
    }
    Ok(progress.done)
}

fn to_send(stream: &Stream, flags: c_int, progress: &mut Progress) -> Patience {
    let options = &stream.options;
    Patience::of_parts(options.is_nonblocking, flags, options.send_timeout, &mut progress.begin_ns)
}

/// Whether the stream can send nothing: no longer, or not yet because no connection was asked for.
fn is_over(stream: &Stream) -> bool {
    match stream.state {
        State::Connected => !stream.is_writable,
        State::Connecting => false,
        _ => true,
    }
}

fn refusal(stream: &Stream) -> c_int {
    match stream.state {
        State::Fresh | State::Listening => libc::ENOTCONN,
        State::Failed(errno) => errno,
        _ => libc::EPIPE,
    }
}

fn receive(fd: c_int, to: &mut [u8], flags: c_int, progress: &mut Progress) -> Result<usize, c_int> {
    let Socket::Stream(stream) = find(fd)? else {
        await_datagram(fd, flags)?;
        // SAFETY: the room is alive.
        return of_kernel(unsafe { libc::recv(fd, to.as_mut_ptr().cast(), to.len(), flags) });
    };
    let patience = {
        let guard = lock(&stream);
        if matches!(guard.state, State::Fresh | State::Listening) {
            return Err(libc::ENOTCONN);
        }
        let timeout = guard.options.receive_timeout;
        Patience::of_parts(guard.options.is_nonblocking, flags, timeout, &mut progress.begin_ns)
    };
    loop {
        let is_ready = |stream: &Stream| match stream.state {
            State::Connecting => false,
            // Data that arrived before the failure can still be read; the failure is reported after that.
            State::Failed(_) => stream.pipe.is_some() && stream.has_data(),
            _ => stream.can_read(),
        };
        let received = wait(&stream, patience, is_ready).map(|mut guard| {
            let count = guard.receive_some(&mut to[progress.done..], flags & libc::MSG_PEEK != 0);
            // The program may not come back soon, and the peer may wait for this room.
            guard.give_credits();
            (count, guard.is_owing())
        });
        let received = received.map(|(count, is_owing)| {
            if is_owing {
                background::owe(&stream);
            }
            count
        });
        match received {
            Ok(0) => return Ok(progress.done),
            Ok(count) => progress.done += count,
            Err(errno) => return progress.end(errno),
        }
        if progress.done == to.len() || flags & libc::MSG_WAITALL == 0 || flags & libc::MSG_PEEK != 0 {
            return Ok(progress.done);
        }
    }
}

/// Waits for a kernel's datagram in parts, where the kernel's own call would wait for ever.
///
/// # Errors
/// EINTR for a signal whose handler ends a call, or the [end of a part](cancel::end_part).
fn await_datagram(fd: c_int, flags: c_int) -> Result<(), c_int> {
    // SAFETY: the command takes no pointers.
    let status = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    let (mut timeout, mut size) =
        (libc::timeval { tv_sec: 0, tv_usec: 0 }, size_of::<libc::timeval>() as socklen_t);
    // SAFETY: the option is a `timeval`, and the size says so.
    unsafe {
        libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw mut timeout).cast(), &raw mut size);
    }
    let has_end = status & libc::O_NONBLOCK != 0
        || flags & libc::MSG_DONTWAIT != 0
        || timeout.tv_sec != 0
        || timeout.tv_usec != 0;
    if status < 0 || has_end {
        return Ok(());
    }
    while let Some(part) = cancel::part_of(None) {
        let mut fd = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        match sleep_on(std::slice::from_mut(&mut fd), Some(part)) {
            Err(libc::EINTR) if !cancel::is_final(Some(part)) => {}
            slept => slept?,
        }
        if fd.revents != 0 {
            break;
        }
        if cancel::end_part() {
            return Err(libc::EINTR);
        }
    }
    Ok(())
}

fn of_kernel(count: ssize_t) -> Result<usize, c_int> {
    usize::try_from(count).map_err(|_| super::c::last_errno())
}

/// Makes calls for vector after vector until one does not go whole. `call` is told whether it may wait for the vector's first byte.
fn each(
    vectors: &[iovec],
    progress: &mut Progress,
    mut call: impl FnMut(&iovec, &mut Progress, bool) -> Result<usize, c_int>,
) -> Result<usize, c_int> {
    let mut before = 0;
    for vector in vectors {
        let length = vector.iov_len;
        if length > 0 && progress.done < before + length {
            let mut own = Progress { begin_ns: progress.begin_ns, done: progress.done - before };
            let result = call(vector, &mut own, progress.done == 0);
            (progress.begin_ns, progress.done) = (own.begin_ns, before + result.unwrap_or(own.done));
            match result {
                Ok(count) if count == length => {}
                Ok(_) => return Ok(progress.done),
                Err(errno) => return progress.end(errno),
            }
        }
        before += length;
    }
    Ok(progress.done)
}

/// Sends vector after vector until one does not go whole.
///
/// # Safety
/// The vectors are of readable memory.
unsafe fn send_vectors(
    fd: c_int,
    vectors: &[iovec],
    flags: c_int,
    progress: &mut Progress,
) -> Result<usize, c_int> {
    each(vectors, progress, |vector, progress, _| {
        // SAFETY: the caller's promise.
        send(fd, unsafe { bytes(vector.iov_base, vector.iov_len) }?, flags, progress)
    })
}

/// Fills vector after vector with available data; waits for the first byte only.
///
/// # Safety
/// The vectors are of writable memory.
unsafe fn receive_vectors(
    fd: c_int,
    vectors: &[iovec],
    flags: c_int,
    progress: &mut Progress,
) -> Result<usize, c_int> {
    each(vectors, progress, |vector, progress, is_first| {
        // SAFETY: the caller's promise.
        let to = unsafe { room(vector.iov_base, vector.iov_len) }?;
        let now = if !is_first && flags & libc::MSG_WAITALL == 0 { libc::MSG_DONTWAIT } else { 0 };
        receive(fd, to, flags | now, progress)
    })
}

fn is_datagram(fd: c_int) -> bool {
    matches!(find(fd), Ok(Socket::Datagram))
}

/// Writes to memory that the peer has mapped.
fn write_mapped(
    fd: c_int,
    data: &[u8],
    offset: u64,
    flags: c_int,
    progress: &mut Progress,
) -> Result<usize, c_int> {
    let Socket::Stream(stream) = find(fd)? else { return Err(libc::ENOTSUP) };
    let patience = to_send(&lock(&stream), flags, progress);
    while progress.done < data.len() {
        let at = offset + progress.done as u64;
        let is_ready = |stream: &Stream| stream.can_send() || is_over(stream);
        let written = wait(&stream, patience, is_ready).and_then(|mut guard| {
            if !guard.can_send() {
                return Err(refusal(&guard));
            }
            let to = guard.peer_memory(at).ok_or(libc::EINVAL)?;
            guard.write_some(&data[progress.done..], to)
        });
        match written {
            Ok(count) => progress.done += count,
            Err(errno) => return progress.end(errno),
        }
    }
    Ok(progress.done)
}

c_waits! {
    fn rsend(socket: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t |progress| {
        answer(bytes(buf, len).and_then(|data| send(socket, data, flags, progress)))
    }

    fn rwrite(socket: c_int, buf: *const c_void, count: size_t) -> ssize_t |progress| {
        answer(bytes(buf, count).and_then(|data| send(socket, data, 0, progress)))
    }

    fn rsendto(
        socket: c_int,
        buf: *const c_void,
        len: size_t,
        flags: c_int,
        dest_addr: *const sockaddr,
        addrlen: socklen_t,
    ) -> ssize_t |progress| {
        if is_datagram(socket) {
            return libc::sendto(socket, buf, len, flags, dest_addr, addrlen);
        }
        if !dest_addr.is_null() {
            return answer(Err(libc::EISCONN));
        }
        answer(bytes(buf, len).and_then(|data| send(socket, data, flags, progress)))
    }

    fn rwritev(socket: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t |progress| {
        let count = usize::try_from(iovcnt).map_err(|_| libc::EINVAL);
        answer(count.and_then(|count| send_vectors(socket, vectors(iov, count)?, 0, progress)))
    }

    fn rsendmsg(socket: c_int, msg: *const msghdr, flags: c_int) -> ssize_t |progress| {
        if is_datagram(socket) {
            return libc::sendmsg(socket, msg, flags);
        }
        let Some(message) = msg.as_ref() else { return answer(Err(libc::EFAULT)) };
        if !message.msg_control.is_null() && message.msg_controllen > 0 {
            return answer(Err(libc::ENOTSUP));
        }
        answer(vectors(message.msg_iov, message.msg_iovlen).and_then(|v| send_vectors(socket, v, flags, progress)))
    }

    fn rrecvfrom(
        socket: c_int,
        buf: *mut c_void,
        len: size_t,
        flags: c_int,
        src_addr: *mut sockaddr,
        addrlen: *mut socklen_t,
    ) -> ssize_t |progress| {
        if is_datagram(socket) {
            if let Err(errno) = await_datagram(socket, flags) {
                return answer(Err(errno));
            }
            return libc::recvfrom(socket, buf, len, flags, src_addr, addrlen);
        }
        let received = answer(room(buf, len).and_then(|to| receive(socket, to, flags, progress)));
        if received > 0 && !src_addr.is_null() {
            super::calls::rgetpeername(socket, src_addr, addrlen);
        }
        received
    }

    fn rreadv(socket: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t |progress| {
        let count = usize::try_from(iovcnt).map_err(|_| libc::EINVAL);
        answer(count.and_then(|count| receive_vectors(socket, vectors(iov, count)?, 0, progress)))
    }

    fn rrecvmsg(socket: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t |progress| {
        if is_datagram(socket) {
            if let Err(errno) = await_datagram(socket, flags) {
                return answer(Err(errno));
            }
            return libc::recvmsg(socket, msg, flags);
        }
        let Some(message) = msg.as_mut() else { return answer(Err(libc::EFAULT)) };
        if !message.msg_control.is_null() && message.msg_controllen > 0 {
            return answer(Err(libc::ENOTSUP));
        }
        answer(vectors(message.msg_iov, message.msg_iovlen).and_then(|v| receive_vectors(socket, v, flags, progress)))
    }

    fn riowrite(socket: c_int, buf: *const c_void, count: size_t, offset: libc::off_t, flags: c_int) -> ssize_t |progress| {
        let offset = u64::try_from(offset).map_err(|_| libc::EINVAL);
        answer(offset.and_then(|offset| write_mapped(socket, bytes(buf, count)?, offset, flags, progress)))
    }

    fn rrecv(socket: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t |progress| {
        answer(room(buf, len).and_then(|to| receive(socket, to, flags, progress)))
    }

    fn rread(socket: c_int, buf: *mut c_void, count: size_t) -> ssize_t |progress| {
        answer(room(buf, count).and_then(|to| receive(socket, to, 0, progress)))
    }
}
