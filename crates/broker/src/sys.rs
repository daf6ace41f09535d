//! Local sockets that keep records apart and carry descriptors (`unix(7)`, SOCK_SEQPACKET).
#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Descriptors that one record carries at most.
pub(super) const FDS_MAX: usize = 6;
const KIND: i32 = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
/// Connections that may wait to be accepted.
const BACKLOG: i32 = 256;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: every caller passes a descriptor that a system call has just made for it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A socket address holds 108 bytes, but paths may be longer: the directory is opened and named by its
/// descriptor.
fn with_address<R>(
    path: &Path,
    call: impl FnOnce(*const libc::sockaddr, libc::socklen_t) -> io::Result<R>,
) -> io::Result<R> {
    let (directory, name) = (path.parent(), path.file_name());
    let (Some(directory), Some(name)) = (directory, name) else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let directory = std::fs::File::open(directory)?;
    let short = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    let bytes = short.as_os_str().as_bytes();
    // SAFETY: all-zero bytes are a valid `sockaddr_un`.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    if bytes.len() >= address.sun_path.len() {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    for (to, from) in address.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    call((&raw const address).cast(), size_of::<libc::sockaddr_un>() as libc::socklen_t)
}

fn socket() -> io::Result<OwnedFd> {
    // SAFETY: `socket` takes no pointers.
    check(unsafe { libc::socket(libc::AF_UNIX, KIND, 0) }).map(owned)
}

/// A socket at `path` that takes connections, without waiting for them.
pub(super) fn listen(path: &Path) -> io::Result<OwnedFd> {
    let fd = socket()?;
    // SAFETY: the address is live during the call and as long as its length says.
    with_address(path, |a, len| check(unsafe { libc::bind(fd.as_raw_fd(), a, len) }))?;
    // SAFETY: no pointers.
    check(unsafe { libc::listen(fd.as_raw_fd(), BACKLOG) })?;
    set_nonblocking(&fd)?;
    Ok(fd)
}

/// A connection to `path`.
pub(super) fn connect(path: &Path) -> io::Result<OwnedFd> {
    let fd = socket()?;
    // SAFETY: as in `listen`.
    with_address(path, |a, len| check(unsafe { libc::connect(fd.as_raw_fd(), a, len) }))?;
    Ok(fd)
}

/// The next connection, which does not block; `WouldBlock` if none waits.
pub(super) fn accept(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: the peer's address is not asked for.
    check(unsafe { libc::accept4(fd.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags) })
        .map(owned)
}

/// Two connected ends, neither of which blocks.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: there is room for two descriptors.
    check(unsafe { libc::socketpair(libc::AF_UNIX, KIND | libc::SOCK_NONBLOCK, 0, fds.as_mut_ptr()) })?;
    Ok((owned(fds[0]), owned(fds[1])))
}

fn set_nonblocking(fd: &OwnedFd) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }).map(drop)
}

/// Whether a socket can be read or has reached its end.
pub(super) fn is_readable(fd: BorrowedFd<'_>) -> bool {
    let mut polled = [libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    poll(&mut polled, 0).is_ok() && polled[0].revents != 0
}

/// Lets a socket hold this many bytes that were sent and not received, as far as the system allows.
pub(super) fn set_send_buffer(fd: BorrowedFd<'_>, bytes: libc::c_int) {
    // SAFETY: the option's value is live and has the length that is given. Without success, less fits in.
    unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_SNDBUF,
            (&raw const bytes).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        );
    }
}

/// Lets a blocking socket wait no longer than this for a record.
pub(super) fn set_patience(fd: BorrowedFd<'_>, seconds: i64) -> io::Result<()> {
    let patience = libc::timeval { tv_sec: seconds as libc::time_t, tv_usec: 0 };
    for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        // SAFETY: the option's value is live and has the length that is given.
        check(unsafe {
            libc::setsockopt(
                fd.as_raw_fd(),
                libc::SOL_SOCKET,
                name,
                (&raw const patience).cast(),
                size_of::<libc::timeval>() as libc::socklen_t,
            )
        })?;
    }
    Ok(())
}

/// The process at the other end, as it was when it connected or began to listen.
pub(super) fn peer_pid(fd: BorrowedFd<'_>) -> io::Result<u32> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers are to live locals, and `len` says how long the first one is.
    check(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut len,
        )
    })?;
    Ok(credentials.pid as u32)
}

/// Room for the control message that carries descriptors, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Sends one record, with descriptors.
pub(super) fn send(fd: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    assert!(fds.len() <= FDS_MAX, "{} descriptors", fds.len());
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = Control([0; 64]);
    // SAFETY: all-zero bytes are a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    if !fds.is_empty() {
        let payload = size_of_val(fds) / size_of::<BorrowedFd<'_>>() * size_of::<RawFd>();
        message.msg_control = (&raw mut control).cast();
        // SAFETY: plain arithmetic; `Control` has room for FDS_MAX descriptors: 16 + 6 × 4 bytes.
        message.msg_controllen = unsafe { libc::CMSG_SPACE(payload as u32) } as usize;
        // SAFETY: the control buffer is live, aligned, zeroed and as long as was said, so that the first header and the
        // descriptors behind it lie inside it.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(payload as u32) as usize;
            let data = libc::CMSG_DATA(header).cast::<RawFd>();
            for (index, fd) in fds.iter().enumerate() {
                data.add(index).write_unaligned(fd.as_raw_fd());
            }
        }
    }
    loop {
        // SAFETY: everything that the message points at is live.
        let sent = unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
        match sent {
            0.. => return Ok(()),
            _ => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// Receives one record into `bytes`, and the descriptors that came with it. A length of zero is the end.
pub(super) fn receive(fd: BorrowedFd<'_>, bytes: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    receive_with(fd, bytes, 0)
}

/// Every record that waits, with copies of its descriptors; all of them stay there. One caller at a time.
pub(super) fn peek_all(fd: BorrowedFd<'_>) -> io::Result<Vec<(u8, Vec<OwnedFd>)>> {
    let from_the_start: libc::c_int = 0;
    // SAFETY: the option's value is live and has the length that is given.
    check(unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEEK_OFF,
            (&raw const from_the_start).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    })?;
    let mut records = Vec::new();
    loop {
        let mut first = [0];
        match receive_with(fd, &mut first, libc::MSG_PEEK | libc::MSG_DONTWAIT) {
            Ok((0, _)) => return Ok(records),
            Ok((_, fds)) => records.push((first[0], fds)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(records),
            Err(error) => return Err(error),
        }
    }
}

fn receive_with(
    fd: BorrowedFd<'_>,
    bytes: &mut [u8],
    flags: libc::c_int,
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = Control([0; 64]);
    // SAFETY: all-zero bytes are a valid `msghdr`.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>();
    let got = loop {
        // SAFETY: everything that the message points at is live and as long as was said.
        let got = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, flags | libc::MSG_CMSG_CLOEXEC) };
        if got >= 0 {
            break got as usize;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    };
    let mut fds = Vec::new();
    // SAFETY: the kernel filled the control buffer and reported its length; the macros stay inside that. Each
    // descriptor in it is new and belongs to this function.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let payload = (*header).cmsg_len - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for index in 0..payload / size_of::<RawFd>() {
                    fds.push(owned(data.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok((got, fds))
}

/// Which descriptors are readable or at their end, after at most `timeout_ms` milliseconds.
pub(super) fn poll(polled: &mut [libc::pollfd], timeout_ms: i32) -> io::Result<()> {
    // SAFETY: a live array of the length given.
    match check(unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout_ms) }) {
        Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
        _ => Ok(()),
    }
}

/// Lets this process have as many descriptors as it is allowed to ask for.
pub(super) fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live local. Without success, fewer processes can share the address.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max.min(65_536);
            libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit);
        }
    }
}

/// The file that this code was loaded from: a program, or the library that it is part of.
pub(super) fn own_file() -> Option<PathBuf> {
    // SAFETY: all-zero bytes are a valid `Dl_info`.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    let inside = own_file as fn() -> Option<PathBuf> as *const libc::c_void;
    // SAFETY: the address is a function's of this crate; `info` is live.
    if unsafe { libc::dladdr(inside, &raw mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own string, which lives as long as this code.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    let path = PathBuf::from(std::ffi::OsStr::from_bytes(name.to_bytes()));
    // A program started by its bare name is listed under it.
    if path.is_absolute() { Some(path) } else { std::env::current_exe().ok() }
}

/// Ends the present session, so that a terminal's signals no longer reach this process, and goes on in a child, for which no
/// process has to wait. Only for a process of one thread.
pub(super) fn detach() -> io::Result<()> {
    // SAFETY: this process has one thread (the caller's promise), so the child is whole. `_exit` runs nothing.
    unsafe {
        if check(libc::fork())? > 0 {
            libc::_exit(0);
        }
        check(libc::setsid())?;
    }
    Ok(())
}

/// What a process that has gone to the background owes to the one that its user started, which waits for it.
#[derive(Debug)]
pub struct Background(io::PipeWriter);

impl Background {
    /// Goes on in a child, as `detach` does. The process that the user started ends successfully as soon as the child is
    /// [`Background::ready`], and with failure if that ends before. Only for a process of one thread.
    ///
    /// # Errors
    /// Those of `pipe`, `fork` and `setsid`.
    pub fn enter() -> io::Result<Background> {
        let (mut reader, writer) = io::pipe()?;
        // SAFETY: this process has one thread (the caller's promise), so the child is whole. `_exit` runs nothing.
        unsafe {
            if check(libc::fork())? > 0 {
                drop(writer);
                let is_ready = io::Read::read_exact(&mut reader, &mut [0]).is_ok();
                libc::_exit(if is_ready { libc::EXIT_SUCCESS } else { libc::EXIT_FAILURE });
            }
            check(libc::setsid())?;
        }
        Ok(Background(writer))
    }

    /// Leaves the standard files, and lets the process that the user started end.
    ///
    /// # Errors
    /// Those of opening `/dev/null`.
    pub fn ready(mut self) -> io::Result<()> {
        leave_standard_files()?;
        // That process may have been killed meanwhile.
        let _ = io::Write::write_all(&mut self.0, &[1]);
        Ok(())
    }
}

/// Redirects standard input, output and error to `/dev/null`.
pub(super) fn leave_standard_files() -> io::Result<()> {
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    for fd in 0..3 {
        // SAFETY: no pointers; this process no longer uses the files behind the three numbers.
        check(unsafe { libc::dup2(null.as_raw_fd(), fd) })?;
    }
    Ok(())
}

/// For a child that is about to become another program: it gets only standard input, output and error.
/// Async-signal-safe.
pub(super) fn close_others_on_exec() {
    // SAFETY: no pointers. Kernels before 5.11 know no such flag; then the child keeps more descriptors than
    // it needs.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}
