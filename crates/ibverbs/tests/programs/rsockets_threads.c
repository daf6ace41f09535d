/* Two threads on one stream, signals, closes and stopped peers: each scene over a kernel's TCP first, then over rsockets. */
#include "sockets.h"

static atomic_int is_done;

struct call {
    int fd, kind;
    long result;
    int error;
    atomic_int thread, is_over;
};
enum { RECV, SEND, ACCEPT, CONNECT, POLL, SELECT };

static void *make_call(void *argument)
{
    static char data[1 << 16];
    struct call *call = argument;
    struct pollfd fd = {call->fd, POLLIN, 0};
    fd_set set;
    FD_ZERO(&set);
    FD_SET(call->fd, &set);
    call->thread = own_thread();
    switch (call->kind) {
    case RECV: call->result = net->recv(call->fd, data, sizeof data, 0); break;
    case SEND:
        /* A signal may end it with a part of the bytes. */
        do
            call->result = net->send(call->fd, data, sizeof data, MSG_NOSIGNAL);
        while (call->result > 0);
        break;
    case ACCEPT: call->result = net->accept(call->fd, NULL, NULL); break;
    case POLL: call->result = net->poll(&fd, 1, -1) < 0 ? -1 : fd.revents; break;
    case SELECT: call->result = net->select(call->fd + 1, &set, NULL, NULL, NULL); break;
    }
    call->error = errno;
    call->is_over = 1;
    return NULL;
}

static pthread_t begin(struct call *call, int kind, int fd)
{
    pthread_t thread;
    *call = (struct call){.fd = fd, .kind = kind};
    CHECK_EQUAL(pthread_create(&thread, NULL, make_call, call), 0);
    while (!call->thread || (!call->is_over && !is_asleep(call->thread)))
        sched_yield();
    return thread;
}

static void sleeps(struct call *call)
{
    while (!call->is_over && !is_asleep(call->thread))
        sched_yield();
}

/* Handlers with SA_RESTART let a call go on, others end it. */
static void signals(void)
{
    int ends[2], port, at = listener(3, &port);
    stream_pair(ends);
    struct call calls[3];
    int kinds[3] = {RECV, ACCEPT, SEND}, fds[3] = {ends[0], at, ends[1]};
    for (int n = 0; n < 3; n++) {
        for (int is_ending = 0; is_ending < 2; is_ending++) {
            pthread_t thread = begin(&calls[n], kinds[n], fds[n]);
            for (int turn = 0; turn < 30; turn++) {
                unsigned long before = restarting_handled;
                sleeps(&calls[n]);
                CHECK_EQUAL(calls[n].is_over, 0);
                CHECK_EQUAL(pthread_kill(thread, SIGUSR1), 0);
                while (restarting_handled == before)
                    sched_yield();
            }
            if (is_ending) {
                while (!calls[n].is_over) {
                    pthread_kill(thread, SIGUSR2);
                    sched_yield();
                }
                pthread_join(thread, NULL);
                CHECK_EQUAL(calls[n].result, -1);
                CHECK_EQUAL(calls[n].error, EINTR);
                continue;
            }
            char data[1 << 16];
            int other = -1;
            if (kinds[n] == RECV)
                CHECK_EQUAL(net->send(ends[1], "x", 1, 0), 1);
            else if (kinds[n] == ACCEPT)
                other = connected(port);
            else
                CHECK_EQUAL(net->shutdown(ends[1], SHUT_RDWR), 0);
            pthread_join(thread, NULL);
            if (kinds[n] == RECV)
                CHECK_EQUAL(calls[n].result, 1);
            if (kinds[n] == ACCEPT) {
                CHECK(calls[n].result >= 0);
                CHECK_EQUAL(net->close(other), 0);
                CHECK_EQUAL(net->close((int)calls[n].result), 0);
            }
            if (kinds[n] == SEND) {
                CHECK_EQUAL(calls[n].error, EPIPE);
                while (net->recv(ends[0], data, sizeof data, 0) > 0)
                    ;
                net->close(ends[0]);
                net->close(ends[1]);
                stream_pair(ends);
                fds[2] = ends[1];
            }
        }
    }
    net->close(ends[0]);
    net->close(ends[1]);
    net->close(at);
}

/* `poll` and `select` end for any signal; a call with a time-out does, and ends by itself. */
static void times(void)
{
    int ends[2];
    stream_pair(ends);
    for (int kind = POLL; kind <= SELECT; kind++) {
        struct call call;
        pthread_t thread = begin(&call, kind, ends[0]);
        while (!call.is_over) {
            pthread_kill(thread, SIGUSR1);
            sched_yield();
        }
        pthread_join(thread, NULL);
        CHECK_EQUAL(call.result, -1);
        CHECK_EQUAL(call.error, EINTR);
    }
    struct timeval moment = {0, 20000};
    char data[1 << 16];
    CHECK_EQUAL(net->setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof moment), 0);
    CHECK_EQUAL(net->recv(ends[0], data, 1, 0), -1);
    CHECK_EQUAL(errno, EAGAIN);
    CHECK_EQUAL(net->setsockopt(ends[1], SOL_SOCKET, SO_SNDTIMEO, &moment, sizeof moment), 0);
    while (net->send(ends[1], data, sizeof data, 0) > 0)
        ;
    CHECK_EQUAL(errno, EAGAIN);
    net->close(ends[0]);
    net->close(ends[1]);
}

/* A thread that waits learns of the end that another makes. */
static void ended_by_another(void)
{
    for (int kind = 0; kind < 4; kind++) {
        int ends[2], kinds[4] = {RECV, POLL, SELECT, SEND};
        stream_pair(ends);
        struct call call;
        pthread_t thread = begin(&call, kinds[kind], ends[0]);
        CHECK_EQUAL(net->shutdown(ends[0], SHUT_RDWR), 0);
        pthread_join(thread, NULL);
        if (kinds[kind] == RECV)
            CHECK_EQUAL(call.result, 0);
        if (kinds[kind] == POLL)
            CHECK_EQUAL(call.result & (POLLIN | POLLHUP), POLLIN | POLLHUP);
        if (kinds[kind] == SELECT)
            CHECK_EQUAL(call.result, 1);
        if (kinds[kind] == SEND)
            CHECK_EQUAL(call.error, EPIPE);
        net->close(ends[0]);
        net->close(ends[1]);
    }
    int port, at = listener(1, &port);
    struct call call;
    pthread_t thread = begin(&call, ACCEPT, at);
    CHECK_EQUAL(net->shutdown(at, SHUT_RDWR), 0);
    pthread_join(thread, NULL);
    CHECK_EQUAL(call.result, -1);
    CHECK_EQUAL(call.error, EINVAL);
    net->close(at);
}

/* A kernel leaves a thread in a call on what another has closed; here the call ends. The number is gone at once. */
static void closed_by_another(void)
{
    if (net == &NETS[0])
        return;
    for (int kind = RECV; kind <= SELECT; kind++) {
        if (kind == CONNECT)
            continue;
        int ends[2], port, at = listener(1, &port);
        stream_pair(ends);
        struct call call;
        int fd = kind == ACCEPT ? at : ends[0];
        pthread_t thread = begin(&call, kind, fd);
        CHECK_EQUAL(net->close(fd), 0);
        pthread_join(thread, NULL);
        CHECK(kind != RECV || call.result == 0);
        /* After a part of the bytes the next call finds no such number. */
        CHECK(kind != SEND || call.error == EPIPE || call.error == EBADF);
        CHECK(kind != ACCEPT || (call.result == -1 && call.error == EINVAL));
        char byte;
        CHECK_EQUAL(net->recv(fd, &byte, 1, 0), -1);
        CHECK_EQUAL(errno, EBADF);
        CHECK_EQUAL(net->close(fd), -1);
        CHECK_EQUAL(errno, EBADF);
        if (kind != ACCEPT) {
            CHECK_EQUAL(net->recv(ends[1], &byte, 1, MSG_PEEK) < 0, 0);
            net->close(at);
        } else {
            net->close(ends[0]);
        }
        net->close(ends[1]);
    }
}

/* One thread connects to its own listener, sends and closes; then it accepts, and everything is there. */
static void accepted_later(void)
{
    int port, at = listener(2, &port), fds[3], error = 0;
    char data[64];
    set_nonblocking(at, 1);
    CHECK_EQUAL(net->accept(at, NULL, NULL), -1);
    CHECK_EQUAL(errno, EAGAIN);
    for (int n = 0; n < 3; n++) {
        fds[n] = connected(port);
        CHECK_EQUAL(net->send(fds[n], "early", 5, 0), 5);
    }
    CHECK_EQUAL(net->close(fds[0]), 0);
    /* The backlog is full: a fourth waits until there is room. */
    struct sockaddr_in to = loopback(port);
    int fourth = net->socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK_EQUAL(net->connect(fourth, (void *)&to, sizeof to), -1);
    CHECK_EQUAL(errno, EINPROGRESS);
    struct pollfd fd = {fourth, POLLOUT, 0};
    CHECK_EQUAL(net->poll(&fd, 1, 50), 0);
    for (int n = 0; n < 4; n++) {
        struct pollfd ready = {at, POLLIN, 0};
        CHECK_EQUAL(net->poll(&ready, 1, -1), 1);
        int accepted = net->accept(at, NULL, NULL);
        CHECK(accepted >= 0);
        CHECK_EQUAL(net->fcntl(accepted, F_GETFL, 0) & O_NONBLOCK, 0);
        if (n == 3) {
            CHECK_EQUAL(net->poll(&fd, 1, -1), 1);
            socklen_t length = sizeof error;
            CHECK_EQUAL(net->getsockopt(fourth, SOL_SOCKET, SO_ERROR, &error, &length), 0);
            CHECK_EQUAL(error, 0);
            CHECK_EQUAL(net->send(fourth, "early", 5, 0), 5);
        }
        memset(data, 0, sizeof data);
        CHECK_EQUAL(net->recv(accepted, data, 5, MSG_WAITALL), 5);
        CHECK_EQUAL(memcmp(data, "early", 5), 0);
        if (n == 0)
            CHECK_EQUAL(net->recv(accepted, data, 5, 0), 0);
        CHECK_EQUAL(net->close(accepted), 0);
    }
    net->close(fds[1]);
    net->close(fds[2]);
    net->close(fourth);
    net->close(at);
    /* Who waits at a listener that is closed learns of it, and nobody is there any more. */
    at = listener(1, &port);
    int waiting = connected(port);
    CHECK_EQUAL(net->close(at), 0);
    CHECK(net->recv(waiting, data, 1, 0) <= 0);
    net->close(waiting);
    to = loopback(port);
    waiting = net->socket(AF_INET, SOCK_STREAM, 0);
    CHECK_EQUAL(net->connect(waiting, (void *)&to, sizeof to), -1);
    CHECK_EQUAL(errno, ECONNREFUSED);
    net->close(waiting);
}

/* The program goes elsewhere while a connection is made, and never comes back to it. */
static void connected_elsewhere(void)
{
    int port, at = listener(1, &port);
    struct sockaddr_in to = loopback(port);
    int fd = net->socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    CHECK(net->connect(fd, (void *)&to, sizeof to) == 0 || errno == EINPROGRESS);
    int accepted = net->accept(at, NULL, NULL);
    CHECK(accepted >= 0);
    CHECK_EQUAL(net->send(accepted, "x", 1, 0), 1);
    net->close(accepted);
    net->close(fd);
    net->close(at);
}

/* A reader that has drained the buffer has made room, though it makes no call any more. */
static void *send_all(void *argument)
{
    enum { BYTES = 1 << 18 };
    static char data[BYTES];
    for (int sent = 0; sent < BYTES;) {
        ssize_t now = net->send(*(int *)argument, data + sent, BYTES - (size_t)sent, 0);
        CHECK(now > 0);
        sent += (int)now;
    }
    return NULL;
}
static void room_after_reading(void)
{
    static char data[1 << 17];
    int ends[2];
    pthread_t thread;
    stream_pair(ends);
    CHECK_EQUAL(pthread_create(&thread, NULL, send_all, &ends[0]), 0);
    CHECK_EQUAL(net->recv(ends[1], data, sizeof data, MSG_WAITALL), sizeof data);
    pthread_join(thread, NULL);
    net->close(ends[0]);
    net->close(ends[1]);
}

static int tell[2], ask[2];
static void say(int fd, int value) { CHECK_EQUAL(write(fd, &value, sizeof value), sizeof value); }
static int hear(int fd)
{
    int value = -1;
    CHECK_EQUAL(read(fd, &value, sizeof value), sizeof value);
    return value;
}

/* A peer that reads everything: until it is told to stop, and then whatever there is. Its status is whether all came. */
static pid_t peer(void)
{
    CHECK_EQUAL(pipe(tell), 0);
    CHECK_EQUAL(pipe(ask), 0);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child)
        return child;
    static char data[1 << 16];
    int port, at = listener(1, &port);
    say(ask[1], port);
    int fd = net->accept(at, NULL, NULL), total = 0;
    CHECK(fd >= 0);
    CHECK_EQUAL(net->send(fd, "y", 1, 0), 1);
    /* Told how many bytes there are to come. */
    int expected = hear(tell[0]);
    for (ssize_t got; (got = net->recv(fd, data, sizeof data, 0)) > 0;)
        total += (int)got;
    CHECK_EQUAL(total, expected);
    net->close(fd);
    net->close(at);
    _exit(0);
}

/* `close` returns beside a stopped peer, which gets everything when it goes on. */
static void stopped_peer(void)
{
    static char data[1 << 16];
    pid_t child = peer();
    int fd = connected(hear(ask[0])), total = 0, status;
    CHECK_EQUAL(net->recv(fd, data, 1, 0), 1);
    CHECK_EQUAL(kill(child, SIGSTOP), 0);
    CHECK_EQUAL(waitpid(child, &status, WUNTRACED), child);
    for (ssize_t sent; (sent = net->send(fd, data, sizeof data, MSG_DONTWAIT)) > 0;)
        total += (int)sent;
    CHECK_EQUAL(errno, EAGAIN);
    CHECK_EQUAL(net->close(fd), 0);
    say(tell[1], total);
    CHECK_EQUAL(kill(child, SIGCONT), 0);
    CHECK_EQUAL(waitpid(child, &status, 0), child);
    CHECK_EQUAL(status, 0);
}

/* Calls end when the peer is killed. */
static void killed_peer(void)
{
    for (int kind = 0; kind < 3; kind++) {
        int kinds[3] = {RECV, POLL, SEND};
        char byte;
        pid_t child = peer();
        int fd = connected(hear(ask[0])), status;
        CHECK_EQUAL(net->recv(fd, &byte, 1, 0), 1);
        struct call call;
        pthread_t thread = begin(&call, kinds[kind], fd);
        CHECK_EQUAL(kill(child, SIGKILL), 0);
        CHECK_EQUAL(waitpid(child, &status, 0), child);
        pthread_join(thread, NULL);
        if (kinds[kind] == RECV)
            CHECK(call.result == 0 || call.error == ECONNRESET);
        if (kinds[kind] == POLL)
            CHECK(call.result & POLLIN);
        if (kinds[kind] == SEND)
            CHECK(call.error == EPIPE || call.error == ECONNRESET);
        net->close(fd);
    }
}

/* Datagrams: one thread waits in `poll` and takes, the other sends. */
static void *datagram_sender(void *argument)
{
    struct sockaddr_in to = loopback(*(int *)argument);
    int fd = net->socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(fd >= 0);
    while (!is_done) {
        CHECK_EQUAL(net->sendto(fd, "datagram", 8, 0, (void *)&to, sizeof to), 8);
        sched_yield();
    }
    CHECK_EQUAL(net->close(fd), 0);
    return NULL;
}
static void datagrams(void)
{
    struct sockaddr_in at = loopback(0), from;
    socklen_t length = sizeof at, from_length = sizeof from;
    int fd = net->socket(AF_INET, SOCK_DGRAM, 0), port;
    CHECK(fd >= 0);
    CHECK_EQUAL(net->bind(fd, (void *)&at, sizeof at), 0);
    CHECK_EQUAL(net->getsockname(fd, (void *)&at, &length), 0);
    port = at.sin_port;
    is_done = 0;
    pthread_t thread;
    CHECK_EQUAL(pthread_create(&thread, NULL, datagram_sender, &port), 0);
    for (int n = 0; n < 200; n++) {
        char data[16];
        struct pollfd ready = {fd, POLLIN, 0};
        CHECK_EQUAL(net->poll(&ready, 1, -1), 1);
        CHECK_EQUAL(net->recvfrom(fd, data, sizeof data, 0, (void *)&from, &from_length), 8);
        CHECK_EQUAL(ntohl(from.sin_addr.s_addr), INADDR_LOOPBACK);
    }
    is_done = 1;
    pthread_join(thread, NULL);
    CHECK_EQUAL(net->close(fd), 0);
    CHECK_EQUAL(net->close(fd), -1);
    CHECK_EQUAL(errno, EBADF);
}

/* An event that never comes: handlers with SA_RESTART let `ibv_get_async_event` go on. */
static void *wait_for_event(void *argument)
{
    struct call *call = argument;
    struct ibv_context *context = rig_open();
    struct ibv_async_event event;
    call->thread = own_thread();
    call->result = ibv_get_async_event(context, &event);
    call->error = errno;
    call->is_over = 1;
    CHECK_EQUAL(ibv_close_device(context), 0);
    return NULL;
}
static void asynchronous_events(void)
{
    if (net == &NETS[0])
        return;
    struct call call = {0};
    pthread_t thread;
    CHECK_EQUAL(pthread_create(&thread, NULL, wait_for_event, &call), 0);
    while (!call.thread)
        sched_yield();
    for (int turn = 0; turn < 30; turn++) {
        unsigned long before = restarting_handled;
        sleeps(&call);
        CHECK_EQUAL(call.is_over, 0);
        CHECK_EQUAL(pthread_kill(thread, SIGUSR1), 0);
        while (restarting_handled == before)
            sched_yield();
    }
    while (!call.is_over) {
        pthread_kill(thread, SIGUSR2);
        sched_yield();
    }
    pthread_join(thread, NULL);
    CHECK_EQUAL(call.result, -1);
    CHECK_EQUAL(call.error, EINTR);
}

int main(int count, char **arguments)
{
    static const struct {
        const char *name;
        void (*play)(void);
    } SCENES[] = {
        /* First those that fork, before a device is open. */
        {"stopped_peer", stopped_peer}, {"killed_peer", killed_peer}, {"signals", signals}, {"times", times},
        {"ended_by_another", ended_by_another}, {"closed_by_another", closed_by_another},
        {"accepted_later", accepted_later}, {"connected_elsewhere", connected_elsewhere},
        {"room_after_reading", room_after_reading}, {"datagrams", datagrams},
        {"asynchronous_events", asynchronous_events},
    };
    for (size_t scene = 0; scene < sizeof SCENES / sizeof *SCENES; scene++)
        for (int of = 0; of < 2; of++) {
            int status;
            if (count > 1 && strcmp(arguments[1], SCENES[scene].name) != 0)
                continue;
            net = &NETS[of];
            fflush(stdout);
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0) {
                install_handlers();
                alarm(120);
                SCENES[scene].play();
                exit(0);
            }
            CHECK_EQUAL(waitpid(child, &status, 0), child);
            if (status != 0) {
                fprintf(stderr, "%s over %s: status 0x%x\n", SCENES[scene].name, net->name, status);
                return 1;
            }
        }
    return 0;
}
