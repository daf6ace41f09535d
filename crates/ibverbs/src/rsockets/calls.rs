//! Sockets: making, naming, connecting and closing them.

use std::sync::{Arc, Mutex};

use libc::{c_int, c_void, off_t, size_t, sockaddr, socklen_t};

use super::ending::{close, shut_down};
use super::socket::{Patience, Socket, find, keep, lock, wait};
use super::stream::{State, Stream};
use super::{background, c, iomap};
use crate::boundary::{c_api, c_waits, minus_one, set_errno};
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
            Ok(add(Arc::new(Mutex::new(stream))))
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

fn add(stream: Arc<Mutex<Stream>>) -> c_int {
    let fd = lock(&stream).fd();
    keep(fd, Socket::Stream(stream));
    fd
}

/// The stream of a number; `None` for a datagram socket.
fn stream_of(fd: c_int) -> Result<Option<Arc<Mutex<Stream>>>, c_int> {
    Ok(match find(fd)? {
        Socket::Stream(stream) => Some(stream),
        Socket::Datagram => None,
    })
}

/// What a call that connects in parts has done.
#[derive(Default)]
struct Connecting {
    begin_ns: u64,
    has_begun: bool,
}

fn connect(
    stream: &Arc<Mutex<Stream>>,
    address: *const sockaddr,
    kept: &mut Connecting,
) -> Result<(), c_int> {
    let patience = {
        let mut guard = lock(stream);
        guard.progress();
        let (is_nonblocking, timeout) = (guard.options.is_nonblocking, guard.options.send_timeout);
        let patience = Patience::of_parts(is_nonblocking, 0, timeout, &mut kept.begin_ns);
        match guard.state {
            // The background thread has gone on with it between two parts.
            State::Connected | State::Ended if kept.has_begun => return Ok(()),
            // SAFETY: as connect(2) describes the address.
            State::Fresh => unsafe { guard.connect(address) }?,
            State::Connecting if patience == Patience::None => return Err(libc::EALREADY),
            // An earlier call was interrupted: this one waits on, as a kernel's does.
            State::Connecting => {}
            State::Failed(errno) => return Err(errno),
            _ => return Err(libc::EISCONN),
        }
        kept.has_begun = true;
        patience
    };
    let connected = wait(stream, patience, |stream| stream.state != State::Connecting);
    match connected.map(|guard| guard.state) {
        Ok(State::Failed(errno)) => Err(errno),
        Ok(_) => Ok(()),
        Err(errno @ (libc::EAGAIN | libc::EINTR)) => {
            // The connection is made while the program is elsewhere.
            background::serve(stream)?;
            Err(if errno == libc::EAGAIN { libc::EINPROGRESS } else { errno })
        }
        Err(errno) => Err(errno),
    }
}

fn listen(stream: &Arc<Mutex<Stream>>, backlog: c_int) -> Result<(), c_int> {
    {
        let mut guard = lock(stream);
        match guard.state {
            // SAFETY: the identifier lives as long as the stream.
            State::Fresh => c::done(unsafe { c::rdma_listen(guard.id, backlog) })?,
            State::Listening => {}
            _ => return Err(libc::EINVAL),
        }
        guard.listening.set_backlog(backlog);
        guard.state = State::Listening;
    }
    background::serve(stream)
}

fn accept(stream: &Mutex<Stream>, kept: &mut u64) -> Result<Arc<Mutex<Stream>>, c_int> {
    let patience = {
        let guard = lock(stream);
        if guard.state != State::Listening {
            return Err(libc::EINVAL);
        }
        Patience::of_parts(guard.options.is_nonblocking, 0, guard.options.receive_timeout, kept)
    };
    let is_ready = |stream: &Stream| stream.listening.has_ready() || stream.state != State::Listening;
    let mut guard = wait(stream, patience, is_ready)?;
    let accepted = guard.listening.take().ok_or(libc::EINVAL)?;
    // There is room for another request now.
    guard.progress();
    Ok(accepted)
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
            listen(&stream, backlog)
        })())
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
            let mut guard = wait(&stream, Patience::Endless, |stream| stream.state != State::Connecting)?;
            let offset = iomap::map(&mut guard, (buf, len), prot, offset);
            drop(guard);
            background::owe(&stream);
            offset
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

c_waits! {
    fn rconnect(socket: c_int, addr: *const sockaddr, addrlen: socklen_t) -> c_int |kept| {
        minus_one((|| match stream_of(socket)? {
            Some(_) if addr.is_null() => Err(libc::EFAULT),
            Some(stream) => connect(&stream, addr, kept),
            None => c::done(libc::connect(socket, addr, addrlen)),
        })())
    }

    fn rshutdown(socket: c_int, how: c_int) -> c_int |kept| {
        minus_one((|| match stream_of(socket)? {
            Some(stream) => shut_down(&stream, how, kept),
            None => c::done(libc::shutdown(socket, how)),
        })())
    }

    fn rclose(socket: c_int) -> c_int |kept| {
        minus_one(close(socket, kept))
    }

    fn raccept(socket: c_int, addr: *mut sockaddr, addrlen: *mut socklen_t) -> c_int |kept| {
        descriptor((|| {
            let stream = stream_of(socket)?.ok_or(libc::EOPNOTSUPP)?;
            let accepted = accept(&stream, kept)?;
            let fd = add(Arc::clone(&accepted));
            if !addr.is_null() {
                // The connection exists, even if its name cannot be returned.
                let _ = name(&accepted, (addr, addrlen), true);
            }
            Ok(fd)
        })())
    }
}
