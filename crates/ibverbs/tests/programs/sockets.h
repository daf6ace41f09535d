/* The calls of sockets by name, so that one body runs over a kernel's TCP, which is the oracle, and over rsockets. */
#ifndef SOCKETS_H
#define SOCKETS_H
#include "rig.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rsocket.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>

struct net {
    const char *name;
    int (*socket)(int, int, int);
    int (*bind)(int, const struct sockaddr *, socklen_t);
    int (*listen)(int, int);
    int (*accept)(int, struct sockaddr *, socklen_t *);
    int (*connect)(int, const struct sockaddr *, socklen_t);
    int (*shutdown)(int, int);
    int (*close)(int);
    ssize_t (*recv)(int, void *, size_t, int);
    ssize_t (*recvfrom)(int, void *, size_t, int, struct sockaddr *, socklen_t *);
    ssize_t (*recvmsg)(int, struct msghdr *, int);
    ssize_t (*read)(int, void *, size_t);
    ssize_t (*readv)(int, const struct iovec *, int);
    ssize_t (*send)(int, const void *, size_t, int);
    ssize_t (*sendto)(int, const void *, size_t, int, const struct sockaddr *, socklen_t);
    ssize_t (*sendmsg)(int, const struct msghdr *, int);
    ssize_t (*write)(int, const void *, size_t);
    ssize_t (*writev)(int, const struct iovec *, int);
    int (*poll)(struct pollfd *, nfds_t, int);
    int (*select)(int, fd_set *, fd_set *, fd_set *, struct timeval *);
    int (*getpeername)(int, struct sockaddr *, socklen_t *);
    int (*getsockname)(int, struct sockaddr *, socklen_t *);
    int (*getsockopt)(int, int, int, void *, socklen_t *);
    int (*setsockopt)(int, int, int, const void *, socklen_t);
    int (*fcntl)(int, int, ...);
};

static const struct net NETS[2] = {
    {"tcp", socket, (void *)bind, listen, (void *)accept, (void *)connect, shutdown, close, recv, (void *)recvfrom,
        recvmsg, read, readv, send, (void *)sendto, sendmsg, write, writev, (void *)poll, select, (void *)getpeername,
        (void *)getsockname, getsockopt, setsockopt, fcntl},
    {"rsockets", rsocket, rbind, rlisten, raccept, rconnect, rshutdown, rclose, rrecv, rrecvfrom, rrecvmsg, rread,
        rreadv, rsend, rsendto, rsendmsg, rwrite, rwritev, rpoll, rselect, rgetpeername, rgetsockname, rgetsockopt,
        rsetsockopt, rfcntl},
};
static const struct net *net = &NETS[1];

static struct sockaddr_in loopback(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = port};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return to;
}

/* A listening stream on a port of the kernel's choice. */
static int listener(int backlog, int *port)
{
    struct sockaddr_in at = loopback(0);
    socklen_t length = sizeof at;
    int fd = net->socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK_EQUAL(net->bind(fd, (void *)&at, sizeof at), 0);
    CHECK_EQUAL(net->listen(fd, backlog), 0);
    CHECK_EQUAL(net->getsockname(fd, (void *)&at, &length), 0);
    *port = at.sin_port;
    return fd;
}

static int connected(int port)
{
    struct sockaddr_in to = loopback(port);
    int fd = net->socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    CHECK_EQUAL(net->connect(fd, (void *)&to, sizeof to), 0);
    return fd;
}

/* Both ends of a stream in this process; one thread is enough, because a connection does not wait for `accept`. */
static void stream_pair(int ends[2])
{
    int port, at = listener(4, &port);
    ends[0] = connected(port);
    ends[1] = net->accept(at, NULL, NULL);
    CHECK(ends[1] >= 0);
    CHECK_EQUAL(net->close(at), 0);
}

static void set_nonblocking(int fd, int on)
{
    int flags = net->fcntl(fd, F_GETFL, 0);
    CHECK(flags >= 0);
    CHECK_EQUAL(net->fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK), 0);
}

static atomic_ulong restarting_handled, ending_handled;
static void on_restarting(int signal) { (void)signal; restarting_handled++; }
static void on_ending(int signal) { (void)signal; ending_handled++; }

/* SIGUSR1 lets a call go on, SIGUSR2 ends it. */
static void install_handlers(void)
{
    struct sigaction goes_on = {.sa_handler = on_restarting, .sa_flags = SA_RESTART}, ends = {.sa_handler = on_ending};
    CHECK_EQUAL(sigaction(SIGUSR1, &goes_on, NULL), 0);
    CHECK_EQUAL(sigaction(SIGUSR2, &ends, NULL), 0);
    signal(SIGPIPE, SIG_IGN);
}

static pid_t own_thread(void) { return (pid_t)syscall(SYS_gettid); }

/* Whether a thread of this process sleeps in the kernel. */
static int is_asleep(pid_t thread)
{
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", thread);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    size_t got = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    char *end = got ? strrchr(text, ')') : NULL;
    return end && end[1] == ' ' && end[2] == 'S';
}

#endif
