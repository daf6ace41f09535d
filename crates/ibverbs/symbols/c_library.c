/* How this library calls the C library. `cargo xtask libs` links every call of a function F that is listed here to __wrap_F.
 *
 * No call acts on a cancellation, because frames of Rust are active (`crates/ibverbs/src/cancel.rs`). RAW makes the system call itself, which
 * costs nothing, for what the data path calls; SEALED switches cancellation off for the time of the call, for functions that do more
 * than a system call or that preloaded objects define, too.
 *
 * New descriptors get numbers far from those of the program: a program that closes what it has not opened, or everything, as daemons do, and
 * then opens files of its own, gets none of these numbers for them unless it opens hundreds. Descriptors that programs are to know are made without
 * close-on-exec here, or as counters (`crates/host/src/sys/apart.rs`). */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* The names of the functions, for the linker: RAW, SEALED, MAKES, MAKES_OPTIONAL, CONTROLS and this. */
#define WRAPS(name)
WRAPS(recvmsg)

/* Behind the first three quarters of the numbers that the process may have, and not higher than needed: the kernel's table of files grows
 * with the highest. */
static int floor_of_numbers(void)
{
    struct rlimit limit;
    rlim_t most = getrlimit(RLIMIT_NOFILE, &limit) ? 1024 : limit.rlim_cur;
    return (int)((most < 4096 ? most : 4096) / 4 * 3);
}

/* The file of a new descriptor under such a number, or under its own if there is none. */
static int apart(int fd)
{
    int floor = floor_of_numbers();
    if (fd < 0 || fd >= floor)
        return fd;
    int error = errno, moved = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, floor);
    if (moved >= 0)
        syscall(SYS_close, fd);
    errno = error;
    return moved >= 0 ? moved : fd;
}

#define RAW(result, name, parameters, ...)                                                                             \
    HIDDEN result __wrap_##name parameters;                                                                            \
    result __wrap_##name parameters                                                                                    \
    {                                                                                                                  \
        return (result)syscall(SYS_##name, __VA_ARGS__);                                                               \
    }

#define SEALED(result, name, parameters, arguments)                                                                    \
    HIDDEN result __wrap_##name parameters;                                                                            \
    extern result __real_##name parameters;                                                                            \
    result __wrap_##name parameters                                                                                    \
    {                                                                                                                  \
        int before;                                                                                                    \
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);                                                       \
        result value = __real_##name arguments;                                                                        \
        pthread_setcancelstate(before, &before);                                                                       \
        return value;                                                                                                  \
    }


RAW(ssize_t, read, (int fd, void *to, size_t length), fd, to, length)
RAW(ssize_t, write, (int fd, const void *from, size_t length), fd, from, length)
RAW(ssize_t, readv, (int fd, const struct iovec *to, int count), fd, to, count)
RAW(ssize_t, writev, (int fd, const struct iovec *from, int count), fd, from, count)
RAW(int, recvmmsg, (int fd, struct mmsghdr *to, unsigned count, int flags, struct timespec *most), fd, to, count, flags, most)
RAW(int, sendmmsg, (int fd, struct mmsghdr *from, unsigned count, int flags), fd, from, count, flags)
RAW(ssize_t, sendmsg, (int fd, const struct msghdr *from, int flags), fd, from, flags)
SEALED(ssize_t, recv, (int fd, void *to, size_t length, int flags), (fd, to, length, flags))
SEALED(ssize_t, send, (int fd, const void *from, size_t length, int flags), (fd, from, length, flags))
SEALED(ssize_t, recvfrom, (int fd, void *to, size_t length, int flags, struct sockaddr *from, socklen_t *size), (fd, to, length, flags, from, size))
SEALED(ssize_t, sendto, (int fd, const void *from, size_t length, int flags, const struct sockaddr *to, socklen_t size), (fd, from, length, flags, to, size))
SEALED(ssize_t, pread64, (int fd, void *to, size_t length, off64_t at), (fd, to, length, at))
SEALED(ssize_t, pwrite64, (int fd, const void *from, size_t length, off64_t at), (fd, from, length, at))
SEALED(ssize_t, preadv2, (int fd, const struct iovec *to, int count, off_t at, int flags), (fd, to, count, at, flags))
SEALED(ssize_t, preadv64v2, (int fd, const struct iovec *to, int count, off64_t at, int flags), (fd, to, count, at, flags))
SEALED(int, close, (int fd), (fd))
SEALED(int, connect, (int fd, const struct sockaddr *to, socklen_t size), (fd, to, size))
SEALED(int, accept, (int fd, struct sockaddr *from, socklen_t *size), (fd, from, size))
SEALED(int, poll, (struct pollfd *fds, nfds_t count, int timeout), (fds, count, timeout))
SEALED(int, ppoll, (struct pollfd *fds, nfds_t count, const struct timespec *timeout, const sigset_t *mask), (fds, count, timeout, mask))
SEALED(int, select, (int count, fd_set *in, fd_set *out, fd_set *other, struct timeval *timeout), (count, in, out, other, timeout))
SEALED(int, epoll_wait, (int fd, struct epoll_event *events, int count, int timeout), (fd, events, count, timeout))
SEALED(int, nanosleep, (const struct timespec *time, struct timespec *left), (time, left))
SEALED(int, clock_nanosleep, (clockid_t clock, int flags, const struct timespec *time, struct timespec *left), (clock, flags, time, left))
SEALED(int, fsync, (int fd), (fd))
SEALED(int, fdatasync, (int fd), (fd))
SEALED(pid_t, waitpid, (pid_t process, int *status, int options), (process, status, options))
SEALED(int, waitid, (idtype_t kind, id_t id, siginfo_t *info, int options), (kind, id, info, options))
SEALED(int, pthread_join, (pthread_t thread, void **result), (thread, result))
SEALED(int, sigwait, (const sigset_t *set, int *signal), (set, signal))
SEALED(ssize_t, getrandom, (void *to, size_t length, unsigned flags), (to, length, flags))

/* Functions that make descriptors. OWN says which of them are the library's own. */
#define MAKES(name, parameters, own, ...)                                                                              \
    HIDDEN int __wrap_##name parameters;                                                                               \
    extern int __real_##name parameters;                                                                               \
    int __wrap_##name parameters                                                                                       \
    {                                                                                                                  \
        int before;                                                                                                    \
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);                                                       \
        int fd = __real_##name(__VA_ARGS__);                                                                           \
        if (own)                                                                                                       \
            fd = apart(fd);                                                                                            \
        pthread_setcancelstate(before, &before);                                                                       \
        return fd;                                                                                                     \
    }

MAKES(socket, (int domain, int type, int protocol), type & SOCK_CLOEXEC, domain, type, protocol)
MAKES(accept4, (int listener, struct sockaddr *from, socklen_t *size, int flags), flags & SOCK_CLOEXEC, listener, from, size, flags)
MAKES(epoll_create1, (int flags), flags & EPOLL_CLOEXEC, flags)
MAKES(memfd_create, (const char *name, unsigned flags), flags & MFD_CLOEXEC, name, flags)

/* Descriptors come in messages as well. */
HIDDEN ssize_t __wrap_recvmsg(int fd, struct msghdr *to, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *to, int flags)
{
    ssize_t got = syscall(SYS_recvmsg, fd, to, flags);
    if (got < 0 || !(flags & MSG_CMSG_CLOEXEC))
        return got;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(to); part; part = CMSG_NXTHDR(to, part))
        if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS)
            for (int *own = (int *)CMSG_DATA(part); (char *)(own + 1) <= (char *)part + part->cmsg_len; own++)
                *own = apart(*own);
    return got;
}

/* Functions with a last argument that is not always there: it is read in any case, as the C library does. */
#define MAKES_OPTIONAL(name, parameters, flags, ...)                                                                   \
    HIDDEN int __wrap_##name parameters;                                                                               \
    extern int __real_##name parameters;                                                                               \
    int __wrap_##name parameters                                                                                       \
    {                                                                                                                  \
        va_list more;                                                                                                  \
        va_start(more, flags);                                                                                         \
        unsigned mode = va_arg(more, unsigned);                                                                        \
        va_end(more);                                                                                                  \
        int before;                                                                                                    \
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);                                                       \
        int fd = __real_##name(__VA_ARGS__, mode);                                                                     \
        if (flags & O_CLOEXEC)                                                                                         \
            fd = apart(fd);                                                                                            \
        pthread_setcancelstate(before, &before);                                                                       \
        return fd;                                                                                                     \
    }

MAKES_OPTIONAL(open, (const char *path, int flags, ...), flags, path, flags)
MAKES_OPTIONAL(open64, (const char *path, int flags, ...), flags, path, flags)
MAKES_OPTIONAL(openat, (int folder, const char *path, int flags, ...), flags, folder, path, flags)
MAKES_OPTIONAL(openat64, (int folder, const char *path, int flags, ...), flags, folder, path, flags)

#define CONTROLS(name)                                                                                                 \
    HIDDEN int __wrap_##name(int fd, int command, ...);                                                                \
    extern int __real_##name(int fd, int command, ...);                                                                \
    int __wrap_##name(int fd, int command, ...)                                                                        \
    {                                                                                                                  \
        va_list more;                                                                                                  \
        va_start(more, command);                                                                                       \
        void *argument = va_arg(more, void *);                                                                         \
        va_end(more);                                                                                                  \
        int before;                                                                                                    \
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);                                                       \
        int value = __real_##name(fd, command, argument);                                                              \
        if (command == F_DUPFD_CLOEXEC)                                                                                \
            value = apart(value);                                                                                      \
        pthread_setcancelstate(before, &before);                                                                       \
        return value;                                                                                                  \
    }

CONTROLS(fcntl)
CONTROLS(fcntl64)
