//! Sending and receiving.

use libc::{c_int, c_void, iovec, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use super::attendant;
use super::socket::{Patience, Socket, find, lock, wait};
use super::stream::{State, Stream};
use crate::boundary::{c_api, c_waits, set_errno};

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

/// Sends one stretch. Returns how much of it was sent.
pub(super) fn send(fd: c_int, data: &[u8], flags: c_int) -> Result<usize, c_int> {
    let Socket::Stream(stream) = find(fd)? else {
        // SAFETY: the bytes are alive.
        return of_kernel(unsafe { libc::send(fd, data.as_ptr().cast(), data.len(), flags) });
    };
    let (mut done, patience) = (0, to_send(&lock(&stream), flags));
    while done < data.len() {
        let is_ready = |stream: &Stream| stream.can_send() || is_over(stream);
        let sent = wait(&stream, patience, is_ready).and_then(|mut guard| {
            if !guard.can_send() {
                return Err(refusal(&guard));
            }
            guard.send_some(&data[done..])
        });
        match sent {
            Ok(count) => done += count,
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

fn to_send(stream: &Stream, flags: c_int) -> Patience {
    Patience::of(stream.options.is_nonblocking, flags, stream.options.send_timeout)
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

fn receive(fd: c_int, to: &mut [u8], flags: c_int, kept: &mut u64) -> Result<usize, c_int> {
    let Socket::Stream(stream) = find(fd)? else {
        // SAFETY: the room is alive.
        return of_kernel(unsafe { libc::recv(fd, to.as_mut_ptr().cast(), to.len(), flags) });
    };
    let (mut done, patience) = {
        let guard = lock(&stream);
        if matches!(guard.state, State::Fresh | State::Listening) {
            return Err(libc::ENOTCONN);
        }
        let timeout = guard.options.receive_timeout;
        (0, Patience::of_parts(guard.options.is_nonblocking, flags, timeout, kept))
    };
    loop {
        let is_ready = |stream: &Stream| match stream.state {
            State::Connecting => false,
            // Data that arrived before the failure can still be read; the failure is reported after that.
            State::Failed(_) => stream.pipe.is_some() && stream.has_data(),
            _ => stream.can_read(),
        };
        let received = wait(&stream, patience, is_ready).map(|mut guard| {
            let count = guard.receive_some(&mut to[done..], flags & libc::MSG_PEEK != 0);
            // The program may not come back soon, and the peer may wait for this room.
            guard.give_credits();
            (count, guard.is_owing())
        });
        let received = received.map(|(count, is_owing)| {
            if is_owing {
                attendant::owe(&stream);
            }
            count
        });
        match received {
            Ok(0) => return Ok(done),
            Ok(count) => done += count,
            Err(_) if done > 0 => return Ok(done),
            Err(errno) => return Err(errno),
        }
        if done == to.len() || flags & libc::MSG_WAITALL == 0 || flags & libc::MSG_PEEK != 0 {
            return Ok(done);
        }
    }
}

fn of_kernel(count: ssize_t) -> Result<usize, c_int> {
    usize::try_from(count).map_err(|_| super::c::last_errno())
}

/// Sends vector after vector until one does not go whole.
///
/// # Safety
/// The vectors are of readable memory.
unsafe fn send_vectors(fd: c_int, vectors: &[iovec], flags: c_int) -> Result<usize, c_int> {
    let mut done = 0;
    for vector in vectors {
        // SAFETY: the caller's promise.
        let data = unsafe { bytes(vector.iov_base, vector.iov_len) }?;
        match send(fd, data, flags) {
            Ok(count) if count == data.len() => done += count,
            Ok(count) => return Ok(done + count),
            Err(errno) => return if done > 0 { Ok(done) } else { Err(errno) },
        }
    }
    Ok(done)
}

/// Fills vector after vector with available data; waits for the first byte only.
///
/// # Safety
/// The vectors are of writable memory.
unsafe fn receive_vectors(fd: c_int, vectors: &[iovec], flags: c_int) -> Result<usize, c_int> {
    let mut done = 0;
    for vector in vectors {
        // SAFETY: the caller's promise.
        let to = unsafe { room(vector.iov_base, vector.iov_len) }?;
        let now = if done > 0 && flags & libc::MSG_WAITALL == 0 { libc::MSG_DONTWAIT } else { 0 };
        match receive(fd, to, flags | now, &mut 0) {
            Ok(count) if count == to.len() => done += count,
            Ok(count) => return Ok(done + count),
            Err(errno) => return if done > 0 { Ok(done) } else { Err(errno) },
        }
    }
    Ok(done)
}

fn is_datagram(fd: c_int) -> bool {
    matches!(find(fd), Ok(Socket::Datagram))
}

/// Writes to memory that the peer has mapped.
fn write_mapped(fd: c_int, data: &[u8], offset: u64, flags: c_int) -> Result<usize, c_int> {
    let Socket::Stream(stream) = find(fd)? else { return Err(libc::ENOTSUP) };
    let (mut done, patience) = (0, to_send(&lock(&stream), flags));
    while done < data.len() {
        let at = offset + done as u64;
        let is_ready = |stream: &Stream| stream.can_send() || is_over(stream);
        let written = wait(&stream, patience, is_ready).and_then(|mut guard| {
            if !guard.can_send() {
                return Err(refusal(&guard));
            }
            let to = guard.peer_memory(at).ok_or(libc::EINVAL)?;
            guard.write_some(&data[done..], to)
        });
        match written {
            Ok(count) => done += count,
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

/// Receives as a cancellation point. A call that waits for all of its bytes may have taken some, and is none.
fn receive_in_parts(socket: c_int, to: &mut [u8], flags: c_int, kept: &mut u64) -> Result<usize, c_int> {
    if flags & libc::MSG_WAITALL == 0 {
        receive(socket, to, flags, kept)
    } else {
        crate::cancel::whole(|| receive(socket, to, flags, kept))
    }
}

c_api! {
    fn rsend(socket: c_int, buf: *const c_void, len: size_t, flags: c_int) -> ssize_t {
        answer(bytes(buf, len).and_then(|data| send(socket, data, flags)))
    }

    fn rwrite(socket: c_int, buf: *const c_void, count: size_t) -> ssize_t {
        answer(bytes(buf, count).and_then(|data| send(socket, data, 0)))
    }

    fn rsendto(
        socket: c_int,
        buf: *const c_void,
        len: size_t,
        flags: c_int,
        dest_addr: *const sockaddr,
        addrlen: socklen_t,
    ) -> ssize_t {
        if is_datagram(socket) {
            return libc::sendto(socket, buf, len, flags, dest_addr, addrlen);
        }
        if !dest_addr.is_null() {
            return answer(Err(libc::EISCONN));
        }
        answer(bytes(buf, len).and_then(|data| send(socket, data, flags)))
    }

    fn rwritev(socket: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t {
        let count = usize::try_from(iovcnt).map_err(|_| libc::EINVAL);
        answer(count.and_then(|count| send_vectors(socket, vectors(iov, count)?, 0)))
    }

    fn rsendmsg(socket: c_int, msg: *const msghdr, flags: c_int) -> ssize_t {
        if is_datagram(socket) {
            return libc::sendmsg(socket, msg, flags);
        }
        let Some(message) = msg.as_ref() else { return answer(Err(libc::EFAULT)) };
        if !message.msg_control.is_null() && message.msg_controllen > 0 {
            return answer(Err(libc::ENOTSUP));
        }
        answer(vectors(message.msg_iov, message.msg_iovlen).and_then(|v| send_vectors(socket, v, flags)))
    }

    fn rrecvfrom(
        socket: c_int,
        buf: *mut c_void,
        len: size_t,
        flags: c_int,
        src_addr: *mut sockaddr,
        addrlen: *mut socklen_t,
    ) -> ssize_t {
        if is_datagram(socket) {
            return libc::recvfrom(socket, buf, len, flags, src_addr, addrlen);
        }
        let received = answer(room(buf, len).and_then(|to| receive(socket, to, flags, &mut 0)));
        if received > 0 && !src_addr.is_null() {
            super::calls::rgetpeername(socket, src_addr, addrlen);
        }
        received
    }

    fn rreadv(socket: c_int, iov: *const iovec, iovcnt: c_int) -> ssize_t {
        let count = usize::try_from(iovcnt).map_err(|_| libc::EINVAL);
        answer(count.and_then(|count| receive_vectors(socket, vectors(iov, count)?, 0)))
    }

    fn rrecvmsg(socket: c_int, msg: *mut msghdr, flags: c_int) -> ssize_t {
        if is_datagram(socket) {
            return libc::recvmsg(socket, msg, flags);
        }
        let Some(message) = msg.as_mut() else { return answer(Err(libc::EFAULT)) };
        if !message.msg_control.is_null() && message.msg_controllen > 0 {
            return answer(Err(libc::ENOTSUP));
        }
        answer(vectors(message.msg_iov, message.msg_iovlen).and_then(|v| receive_vectors(socket, v, flags)))
    }

    fn riowrite(socket: c_int, buf: *const c_void, count: size_t, offset: libc::off_t, flags: c_int) -> ssize_t {
        let offset = u64::try_from(offset).map_err(|_| libc::EINVAL);
        answer(offset.and_then(|offset| write_mapped(socket, bytes(buf, count)?, offset, flags)))
    }
}

c_waits! {
    fn rrecv(socket: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> ssize_t |kept| {
        answer(room(buf, len).and_then(|to| receive_in_parts(socket, to, flags, kept)))
    }

    fn rread(socket: c_int, buf: *mut c_void, count: size_t) -> ssize_t |kept| {
        answer(room(buf, count).and_then(|to| receive_in_parts(socket, to, 0, kept)))
    }
}
