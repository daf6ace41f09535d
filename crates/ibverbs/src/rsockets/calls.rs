//! Sockets: making, naming, connecting and closing them.

use std::sync::{Arc, Mutex};

use libc::{c_int, c_void, off_t, size_t, sockaddr, socklen_t};

use super::socket::{Socket, find, forget, keep, lock, wait};
use super::stream::{State, Stream};
use super::wire::Message;
use super::{c, epoll, iomap};
use crate::boundary::{c_api, minus_one, set_errno};
use crate::rdmacm::abi::{RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, rdma_cm_id};

/// -1 and errno, or a descriptor.
fn descriptor(result: Result<c_int, c_int>) -> c_int {
    result.unwrap_or_else(|errno| {
        set_errno(errno);
        -1
    })
}

fn open(domain: c_int, kind: c_int, protocol: c_int) -> Result<c_int, c_int> {
    if !matches!(domain, libc::AF_INET | libc::AF_INET6) {
        return Err(libc::EAFNOSUPPORT);
    }
    let flags = kind & (libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    match kind & !flags {
        libc::SOCK_STREAM if matches!(protocol, 0 | libc::IPPROTO_TCP) => {
            let mut stream = Stream::new()?;
            stream.options.is_nonblocking = flags & libc::SOCK_NONBLOCK != 0;
            Ok(add(stream))
        }
        libc::SOCK_DGRAM if matches!(protocol, 0 | libc::IPPROTO_UDP) => {
            // SAFETY: the call has no preconditions.
            let fd = unsafe { libc::socket(domain, kind, protocol) };
            if fd < 0 {
                return Err(c::last_errno());
            }
            keep(fd, Socket::Datagram);
            Ok(fd)
        }
        libc::SOCK_STREAM | libc::SOCK_DGRAM => Err(libc::EPROTONOSUPPORT),
        _ => Err(libc::ENOTSUP),
    }
}

fn add(stream: Stream) -> c_int {
    let fd = stream.fd();
    keep(fd, Socket::Stream(Arc::new(Mutex::new(stream))));
    fd
}

/// The stream of a number; `None` for a datagram socket.
fn stream_of(fd: c_int) -> Result<Option<Arc<Mutex<Stream>>>, c_int> {
    Ok(match find(fd)? {
        Socket::Stream(stream) => Some(stream),
        Socket::Datagram => None,
    })
}

fn connect(fd: c_int, stream: &Mutex<Stream>, address: *const sockaddr) -> Result<(), c_int> {
    let may_wait = {
        let mut guard = lock(stream);
        guard.progress();
        match guard.state {
            // SAFETY: as connect(2) describes the address.
            State::Fresh => unsafe { guard.connect(address) }?,
            State::Connecting => return Err(libc::EALREADY),
            State::Failed(errno) => return Err(errno),
            _ => return Err(libc::EISCONN),
        }
        !guard.options.is_nonblocking
    };
    debug_assert!(fd >= 0, "it was found");
    match wait(stream, may_wait, |stream| stream.state != State::Connecting) {
        Ok(guard) => match guard.state {
            State::Failed(errno) => Err(errno),
            _ => Ok(()),
        },
        Err(libc::EAGAIN) => Err(libc::EINPROGRESS),
        Err(errno) => Err(errno),
    }
}

fn accept(stream: &Mutex<Stream>) -> Result<Stream, c_int> {
    let may_wait = {
        let guard = lock(stream);
        if guard.state != State::Listening {
            return Err(libc::EINVAL);
        }
        !guard.options.is_nonblocking
    };
    wait(stream, may_wait, |stream| !stream.requests.is_empty())?.accept()
}

/// Ends one direction or both, as shutdown(2) has it, and waits until the peer has all.
fn shut_down(stream: &Mutex<Stream>, how: c_int) -> Result<(), c_int> {
    let message = {
        let mut guard = lock(stream);
        guard.progress();
        if guard.state != State::Connected {
            return if matches!(guard.state, State::Ended) { Ok(()) } else { Err(libc::ENOTCONN) };
        }
        match how {
            libc::SHUT_RDWR => {
                (guard.is_readable, guard.is_writable) = (false, false);
                Some(Message::Disconnect)
            }
            libc::SHUT_WR => {
                guard.is_writable = false;
                Some(if guard.is_readable { Message::Shutdown } else { Message::Disconnect })
            }
            libc::SHUT_RD => {
                guard.is_readable = false;
                (!guard.is_writable).then_some(Message::Disconnect)
            }
            _ => return Err(libc::EINVAL),
        }
    };
    if let Some(message) = message {
        let is_over = |stream: &Stream| stream.state != State::Connected;
        wait(stream, true, |stream| is_over(stream) || stream.has_control())?.send_end(message);
        drop(wait(stream, true, |stream| is_over(stream) || stream.is_drained())?);
    }
    Ok(())
}

fn close(fd: c_int) -> Result<(), c_int> {
    epoll::forget(fd);
    match forget(fd) {
        Some(Socket::Stream(stream)) => {
            // Sent data arrives before the connection ends; on a broken one there is nothing to wait for.
            let _ = shut_down(&stream, libc::SHUT_RDWR);
            Ok(())
        }
        // SAFETY: the descriptor is the socket's, which other calls no longer find.
        Some(Socket::Datagram) => c::done(unsafe { libc::close(fd) }),
        None => epoll::close(fd),
    }
}

/// An address of the identifier, as getsockname(2) hands it out.
///
/// # Safety
/// `address` has as many bytes as `length` says.
unsafe fn name(
    stream: &Mutex<Stream>,
    (address, length): (*mut sockaddr, *mut socklen_t),
    is_peer: bool,
) -> Result<(), c_int> {
    if address.is_null() || length.is_null() {
        return Err(libc::EFAULT);
    }
    let guard = lock(stream);
    if is_peer && !matches!(guard.state, State::Connected | State::Connecting | State::Ended) {
        return Err(libc::ENOTCONN);
    }
    // SAFETY: the identifier lives as long as the stream, and the caller's promise.
    unsafe {
        let id: &rdma_cm_id = &*guard.id;
        let storage = if is_peer { &id.route.addr.dst } else { &id.route.addr.src };
        let known = match c_int::from(storage.ss_family) {
            libc::AF_INET6 => size_of::<libc::sockaddr_in6>(),
            _ => size_of::<libc::sockaddr_in>(),
        };
        let copied = known.min(*length as usize);
        std::ptr::copy_nonoverlapping(std::ptr::from_ref(storage).cast::<u8>(), address.cast::<u8>(), copied);
        if storage.ss_family == 0 && copied >= 2 {
            address.cast::<libc::sa_family_t>().write_unaligned(libc::AF_INET as libc::sa_family_t);
        }
        *length = known as socklen_t;
    }
    Ok(())
}

fn set_option(fd: c_int, level: c_int, name: c_int, value: &[u8]) -> Result<(), c_int> {
    let Some(stream) = stream_of(fd)? else {
        // SAFETY: the value is alive.
        return c::done(unsafe {
            libc::setsockopt(fd, level, name, value.as_ptr().cast(), value.len() as socklen_t)
        });
    };
    let mut guard = lock(&stream);
    if guard.options.set(level, name, value)? {
        let mut one: c_int = 1;
        // SAFETY: the identifier is alive, and the option an integer.
        let reused = unsafe {
            c::rdma_set_option(
                guard.id,
                RDMA_OPTION_ID,
                RDMA_OPTION_ID_REUSEADDR,
                (&raw mut one).cast(),
                size_of::<c_int>(),
            )
        };
        c::done(reused)?;
    }
    Ok(())
}

fn option(stream: &Mutex<Stream>, level: c_int, name: c_int) -> Result<Vec<u8>, c_int> {
    let mut guard = lock(stream);
    if (level, name) == (libc::SOL_SOCKET, libc::SO_ERROR) {
        guard.progress();
        let errno = if let State::Failed(errno) = guard.state { errno } else { 0 };
        return Ok(errno.to_ne_bytes().to_vec());
    }
    guard.options.value(level, name)
}

fn control(stream: &Mutex<Stream>, command: c_int, argument: c_int) -> Result<c_int, c_int> {
    let mut guard = lock(stream);
    match command {
        libc::F_GETFL => Ok(libc::O_RDWR | if guard.options.is_nonblocking { libc::O_NONBLOCK } else { 0 }),
        libc::F_SETFL => {
            guard.options.is_nonblocking = argument & libc::O_NONBLOCK != 0;
            Ok(0)
        }
        libc::F_GETFD => Ok(libc::FD_CLOEXEC),
        libc::F_SETFD => Ok(0),
        _ => Err(libc::ENOTSUP),
    }
}

c_api! {
    fn rsocket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        descriptor(open(domain, kind, protocol))
    }

    fn rbind(socket: c_int, addr: *const sockaddr, addrlen: socklen_t) -> c_int {
        minus_one((|| match stream_of(socket)? {
            Some(stream) => c::done(c::rdma_bind_addr(lock(&stream).id, addr.cast_mut())),
            None => c::done(libc::bind(socket, addr, addrlen)),
        })())
    }

    fn rlisten(socket: c_int, backlog: c_int) -> c_int {
        minus_one((|| {
            let stream = stream_of(socket)?.ok_or(libc::EOPNOTSUPP)?;
            let mut guard = lock(&stream);
            if guard.state == State::Listening {
                return Ok(());
            }
            c::done(c::rdma_listen(guard.id, backlog))?;
            guard.state = State::Listening;
            Ok(())
        })())
    }

    fn raccept(socket: c_int, addr: *mut sockaddr, addrlen: *mut socklen_t) -> c_int {
        descriptor((|| {
            let stream = stream_of(socket)?.ok_or(libc::EOPNOTSUPP)?;
            let fd = add(accept(&stream)?);
            if !addr.is_null() && let Some(accepted) = stream_of(fd)? {
                // The connection exists, even if its name cannot be returned.
                let _ = name(&accepted, (addr, addrlen), true);
            }
            Ok(fd)
        })())
    }

    fn rconnect(socket: c_int, addr: *const sockaddr, addrlen: socklen_t) -> c_int {
        minus_one((|| match stream_of(socket)? {
            Some(_) if addr.is_null() => Err(libc::EFAULT),
            Some(stream) => connect(socket, &stream, addr),
            None => c::done(libc::connect(socket, addr, addrlen)),
        })())
    }

    fn rshutdown(socket: c_int, how: c_int) -> c_int {
        minus_one((|| match stream_of(socket)? {
            Some(stream) => shut_down(&stream, how),
            None => c::done(libc::shutdown(socket, how)),
        })())
    }

    fn rclose(socket: c_int) -> c_int {
        minus_one(close(socket))
    }

    fn rgetpeername(socket: c_int, addr: *mut sockaddr, addrlen: *mut socklen_t) -> c_int {
        minus_one((|| match stream_of(socket)? {
            Some(stream) => name(&stream, (addr, addrlen), true),
            None => c::done(libc::getpeername(socket, addr, addrlen)),
        })())
    }

    fn rgetsockname(socket: c_int, addr: *mut sockaddr, addrlen: *mut socklen_t) -> c_int {
        minus_one((|| match stream_of(socket)? {
            Some(stream) => name(&stream, (addr, addrlen), false),
            None => c::done(libc::getsockname(socket, addr, addrlen)),
        })())
    }

    fn rsetsockopt(
        socket: c_int,
        level: c_int,
        optname: c_int,
        optval: *const c_void,
        optlen: socklen_t,
    ) -> c_int {
        if optval.is_null() || optlen > 4096 {
            return minus_one(Err(libc::EINVAL));
        }
        let value = std::slice::from_raw_parts(optval.cast::<u8>(), optlen as usize);
        minus_one(set_option(socket, level, optname, value))
    }

    fn rgetsockopt(
        socket: c_int,
        level: c_int,
        optname: c_int,
        optval: *mut c_void,
        optlen: *mut socklen_t,
    ) -> c_int {
        minus_one((|| {
            let Some(stream) = stream_of(socket)? else {
                return c::done(libc::getsockopt(socket, level, optname, optval, optlen));
            };
            if optval.is_null() || optlen.is_null() {
                return Err(libc::EFAULT);
            }
            let value = option(&stream, level, optname)?;
            let length = value.len().min(*optlen as usize);
            std::ptr::copy_nonoverlapping(value.as_ptr(), optval.cast::<u8>(), length);
            *optlen = length as socklen_t;
            Ok(())
        })())
    }

    // In C the last argument is variable; in this ABI it comes as any third argument does.
    fn rfcntl(socket: c_int, cmd: c_int, arg: c_int) -> c_int {
        descriptor((|| match stream_of(socket)? {
            Some(stream) => control(&stream, cmd, arg),
            None => match libc::fcntl(socket, cmd, arg) {
                -1 => Err(c::last_errno()),
                value => Ok(value),
            },
        })())
    }

    fn riomap(
        socket: c_int,
        buf: *mut c_void,
        len: size_t,
        prot: c_int,
        _flags: c_int,
        offset: off_t,
    ) -> isize {
        let mapped = (|| {
            let stream = stream_of(socket)?.ok_or(libc::ENOTSUP)?;
            // The peer must have said how many mappings it has room for.
            let mut guard = wait(&stream, true, |stream| stream.state != State::Connecting)?;
            iomap::map(&mut guard, (buf, len), prot, offset)
        })();
        match mapped {
            Ok(offset) => offset as isize,
            Err(errno) => {
                set_errno(errno);
                -1
            }
        }
    }

    fn riounmap(socket: c_int, buf: *mut c_void, len: size_t) -> c_int {
        minus_one((|| {
            let stream = stream_of(socket)?.ok_or(libc::ENOTSUP)?;
            iomap::unmap(&mut lock(&stream), buf, len)
        })())
    }
}
