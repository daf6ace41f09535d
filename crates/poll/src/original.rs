//! The C library's functions that this object defines again.

use highwire_preload::originals;
use libc::{c_int, epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

originals! {
    poll: c"poll", (*mut pollfd, nfds_t, c_int) -> c_int;
    poll_chk: c"__poll_chk", (*mut pollfd, nfds_t, c_int, size_t) -> c_int;
    ppoll: c"ppoll", (*mut pollfd, nfds_t, *const timespec, *const sigset_t) -> c_int;
    ppoll_chk: c"__ppoll_chk", (*mut pollfd, nfds_t, *const timespec, *const sigset_t, size_t) -> c_int;
    select: c"select", (c_int, *mut fd_set, *mut fd_set, *mut fd_set, *mut timeval) -> c_int;
    pselect: c"pselect", (c_int, *mut fd_set, *mut fd_set, *mut fd_set, *const timespec, *const sigset_t) -> c_int;
    epoll_ctl: c"epoll_ctl", (c_int, c_int, c_int, *mut epoll_event) -> c_int;
    epoll_wait: c"epoll_wait", (c_int, *mut epoll_event, c_int, c_int) -> c_int;
    epoll_pwait: c"epoll_pwait", (c_int, *mut epoll_event, c_int, c_int, *const sigset_t) -> c_int;
    epoll_pwait2: c"epoll_pwait2", (c_int, *mut epoll_event, c_int, *const timespec, *const sigset_t) -> c_int;
    close: c"close", (c_int) -> c_int;
}
