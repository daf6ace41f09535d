/* Random threads, operations and signals on streams, over a kernel's TCP and over rsockets: what arrives is the same.
 *
 * A seed gives each thread its script. Two processes make streams between them; on each end of each one thread writes, one
 * reads, and perhaps one meddles (it polls, peeks, asks for options), while signals arrive and the parent stops and
 * continues both processes. What must hold over either: every byte that is sent before a shutdown arrives once and in
 * order; every call ends; a call that sleeps goes on after a handler with SA_RESTART; what `poll` says can be done.
 *
 * Arguments: a seed, how many rounds, and the net (`tcp`, `rsockets`; both without it). With `soak` in front and seconds for
 * rounds, the mappings, descriptors, files and bytes of both processes are printed and must not have grown at the end.
 *
 * arguments: 1 4
 * arguments: 77 4
 * arguments: 4242 4
 * arguments: soak 5 8
 */
#include "sockets.h"

enum { STREAMS_MAX = 3, SIDES = 2, BYTES_MAX = 400000, CHUNK_MAX = 70000, THREADS_MAX = 3 * STREAMS_MAX };

/* What the processes share. */
struct shared {
    atomic_ulong moved;               /* anything done: the guard against hangs looks at it */
    atomic_int port[2];               /* of the round's listener, and its datagram socket, by network order */
    atomic_uint arrived;              /* a barrier's count */
    atomic_int failed, is_over;
    struct {
        atomic_ulong bytes, sum;
    } got[2][STREAMS_MAX][SIDES];     /* by net: of the last round, what each end has read */
};
static struct shared *shared;
static unsigned long seed;
static int side, which, is_soak;

struct rng {
    uint64_t state;
};
static uint64_t draw(struct rng *rng)
{
    uint64_t z = rng->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}
static unsigned below(struct rng *rng, unsigned end) { return (unsigned)(draw(rng) % end); }
static struct rng rng_of(unsigned long round, int stream, int of_side, int role)
{
    struct rng rng = {seed * 1000003 + round * 10007 + (unsigned)stream * 101 + (unsigned)of_side * 11 + (unsigned)role};
    draw(&rng);
    return rng;
}

static void fail(const char *what, long value, int error)
{
    fprintf(stderr, "%s, side %d: %s: %ld, %s\nrepeat: rsockets_stress %lu %s\n", net->name, side, what, value,
        strerror(error), seed, is_soak ? "(soak)" : "4");
    shared->failed = 1;
    _exit(1);
}

/* What a round is like; both sides draw the same. */
struct round {
    unsigned long number;
    int streams, has_ending_signals, has_signals;
};
struct half {
    struct round *round;
    int fd, stream;
    int is_nonblocking, has_timeout, has_meddler;
    unsigned total, expected; /* bytes to write, and to read */
    atomic_int threads;       /* that still write or read */
};
static struct half ends[STREAMS_MAX];
static pthread_t threads[THREADS_MAX];
static atomic_int thread_count, meddling;

static unsigned char byte_at(int stream, int from, unsigned at) { return (unsigned char)(at * 31 + (at >> 9) + (unsigned)stream * 7 + (unsigned)from * 3); }

/* Whether the call is to be made again. */
static int is_passing(struct half *end, const char *what, int is_wait)
{
    int error = errno;
    if (error == EAGAIN && (end->is_nonblocking || end->has_timeout || is_wait))
        return 1;
    /* `poll` ends for any signal, and so does a call with a time-out. */
    if (error == EINTR && (end->round->has_ending_signals || (end->round->has_signals && (is_wait || end->has_timeout))))
        return 1;
    fail(what, -1, error);
    return 0;
}

/* Waits until `events` are there; what it says must then be so. */
static int poll_for(struct half *end, struct rng *rng, short events)
{
    for (;;) {
        int count;
        if (below(rng, 3) == 0 && end->fd < FD_SETSIZE) {
            fd_set set;
            FD_ZERO(&set);
            FD_SET(end->fd, &set);
            count = events == POLLIN ? net->select(end->fd + 1, &set, NULL, NULL, NULL)
                                     : net->select(end->fd + 1, NULL, &set, NULL, NULL);
        } else {
            struct pollfd fd = {end->fd, events, 0};
            count = net->poll(&fd, 1, below(rng, 2) ? -1 : (int)below(rng, 20));
        }
        if (count > 0)
            return 1;
        if (count < 0)
            is_passing(end, "poll", 1);
    }
}

static void *writer(void *argument)
{
    struct half *end = argument;
    struct rng rng = rng_of(end->round->number, end->stream, side, 1);
    static _Thread_local unsigned char data[CHUNK_MAX];
    for (unsigned at = 0; at < end->total;) {
        unsigned length = 1 + (below(&rng, 3) ? below(&rng, 900) : below(&rng, CHUNK_MAX - 1)), kind = below(&rng, 7);
        if (length > end->total - at)
            length = end->total - at;
        for (unsigned n = 0; n < length; n++)
            data[n] = byte_at(end->stream, side, at + n);
        struct iovec parts[2] = {{data, length / 3}, {data + length / 3, length - length / 3}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        int is_promised = (end->is_nonblocking || kind == 5) && poll_for(end, &rng, POLLOUT);
        ssize_t sent;
        switch (kind) {
        case 0: sent = net->write(end->fd, data, length); break;
        case 1: sent = net->writev(end->fd, parts, 2); break;
        case 2: sent = net->sendmsg(end->fd, &message, MSG_NOSIGNAL); break;
        case 3: sent = net->sendto(end->fd, data, length, MSG_NOSIGNAL, NULL, 0); break;
        case 4:
        case 5: sent = net->send(end->fd, data, length, MSG_NOSIGNAL | MSG_DONTWAIT); break;
        default: sent = net->send(end->fd, data, length, MSG_NOSIGNAL);
        }
        if (sent < 0 && errno == EAGAIN && kind == 4 && !is_promised)
            poll_for(end, &rng, POLLOUT);
        else if (sent < 0 && errno == EAGAIN && is_promised)
            fail("nothing could be sent after poll", (long)at, errno);
        else if (sent < 0)
            is_passing(end, "send", 0);
        else if (sent == 0 || sent > (ssize_t)length)
            fail("send returned", sent, 0);
        if (sent > 0)
            at += (unsigned)sent, shared->moved++;
    }
    if (net->shutdown(end->fd, SHUT_WR) != 0)
        fail("shutdown", -1, errno);
    end->threads--;
    return NULL;
}

static void *reader(void *argument)
{
    struct half *end = argument;
    struct rng rng = rng_of(end->round->number, end->stream, side, 2);
    static _Thread_local unsigned char data[CHUNK_MAX];
    unsigned at = 0;
    unsigned long sum = 0;
    for (;;) {
        unsigned length = 1 + (below(&rng, 3) ? below(&rng, 900) : below(&rng, CHUNK_MAX - 1)), kind = below(&rng, 8);
        struct iovec parts[2] = {{data, length / 3}, {data + length / 3, length - length / 3}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        struct sockaddr_in from;
        socklen_t from_length = sizeof from;
        int is_promised = (end->is_nonblocking || kind == 5) && poll_for(end, &rng, POLLIN), is_peek = kind == 7;
        ssize_t got;
        switch (kind) {
        case 0: got = net->read(end->fd, data, length); break;
        case 1: got = net->readv(end->fd, parts, 2); break;
        case 2: got = net->recvmsg(end->fd, &message, 0); break;
        case 3: got = net->recvfrom(end->fd, data, length, 0, (void *)&from, &from_length); break;
        case 4:
        case 5: got = net->recv(end->fd, data, length, MSG_DONTWAIT); break;
        case 6: got = net->recv(end->fd, data, length, MSG_WAITALL); break;
        default: got = net->recv(end->fd, data, length, MSG_PEEK);
        }
        if (got < 0 && errno == EAGAIN && kind == 4 && !is_promised)
            poll_for(end, &rng, POLLIN);
        else if (got < 0 && errno == EAGAIN && is_promised)
            fail("nothing was there after poll", (long)at, errno);
        else if (got < 0)
            is_passing(end, "recv", 0);
        else if (got > (ssize_t)length)
            fail("recv returned", got, 0);
        if (got == 0)
            break;
        for (ssize_t n = 0; n < got; n++) {
            if (data[n] != byte_at(end->stream, !side, at + (unsigned)n))
                fail("a wrong byte", (long)at + n, 0);
            if (!is_peek)
                sum = sum * 131 + data[n];
        }
        if (got > 0 && !is_peek)
            at += (unsigned)got, shared->moved++;
    }
    if (at != end->expected)
        fail("bytes before the end", at, 0);
    shared->got[which][end->stream][side].bytes = at;
    shared->got[which][end->stream][side].sum = sum;
    end->threads--;
    return NULL;
}

/* Takes what others wait for, and changes nothing. */
static void *meddler(void *argument)
{
    struct half *end = argument;
    struct rng rng = rng_of(end->round->number, end->stream, side, 3);
    char data[256];
    while (end->threads > 0) {
        struct pollfd fd = {end->fd, (short)(below(&rng, 2) ? POLLIN : POLLIN | POLLOUT), 0};
        struct sockaddr_in name;
        socklen_t length = sizeof name;
        int value = 1;
        socklen_t value_length = sizeof value;
        switch (below(&rng, 6)) {
        case 0: net->poll(&fd, 1, (int)below(&rng, 3)); break;
        case 1: net->recv(end->fd, data, sizeof data, MSG_PEEK | MSG_DONTWAIT); break;
        case 2: net->getsockopt(end->fd, SOL_SOCKET, SO_ERROR, &value, &value_length); break;
        case 3: net->setsockopt(end->fd, IPPROTO_TCP, TCP_NODELAY, &value, sizeof value); break;
        case 4: net->getsockname(end->fd, (void *)&name, &length); break;
        default:
            if (net->fcntl(end->fd, F_GETFL, 0) < 0)
                fail("fcntl", -1, errno);
            sched_yield();
        }
    }
    return NULL;
}

static void *signaller(void *argument)
{
    struct round *round = argument;
    struct rng rng = rng_of(round->number, 99, side, 4);
    while (meddling) {
        int count = thread_count;
        if (count > 0)
            pthread_kill(threads[below(&rng, (unsigned)count)],
                round->has_ending_signals && below(&rng, 2) ? SIGUSR2 : SIGUSR1);
        usleep(below(&rng, 2000));
    }
    return NULL;
}

static void start(void *(*body)(void *), struct half *end)
{
    pthread_t thread;
    CHECK_EQUAL(pthread_create(&thread, NULL, body, end), 0);
    threads[thread_count] = thread;
    thread_count++;
}

static unsigned long meetings;
/* Both processes come here before either goes on. */
static void meet(void)
{
    meetings += 2;
    shared->arrived++;
    while (shared->arrived < meetings && !shared->failed)
        usleep(200);
    if (shared->failed)
        _exit(1);
}

static int begin_connect(struct rng *rng, struct round *round)
{
    struct sockaddr_in to = loopback(shared->port[0]);
    struct half end = {.round = round, .is_nonblocking = (int)below(rng, 2)};
    int fd = end.fd = net->socket(AF_INET, SOCK_STREAM | (end.is_nonblocking ? SOCK_NONBLOCK : 0), 0), error = 0;
    CHECK(fd >= 0);
    socklen_t length = sizeof error;
    if (net->connect(fd, (void *)&to, sizeof to) != 0) {
        if (errno != EINPROGRESS)
            fail("connect", -1, errno);
        poll_for(&end, rng, POLLOUT);
        CHECK_EQUAL(net->getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length), 0);
        CHECK_EQUAL(error, 0);
        set_nonblocking(fd, 0);
    } else {
        set_nonblocking(fd, 0);
    }
    return fd;
}

static void play_round(unsigned long number)
{
    struct rng rng = rng_of(number, 98, 0, 5), own = rng_of(number, 97, side, 6);
    struct round round = {number, 1 + (int)below(&rng, STREAMS_MAX), 0, 0};
    round.has_signals = below(&rng, 4) > 0;
    round.has_ending_signals = round.has_signals && below(&rng, 2);
    int at = -1, port, fds[STREAMS_MAX];
    if (side == 1) {
        at = listener((int)below(&own, 4), &port);
        shared->port[0] = port;
    }
    meet();
    for (int n = 0; n < round.streams; n++) {
        unsigned char name = (unsigned char)n;
        if (side == 0) {
            fds[n] = begin_connect(&own, &round);
            CHECK_EQUAL(net->send(fds[n], &name, 1, 0), 1);
        } else {
            int is_nonblocking = (int)below(&own, 2), fd;
            struct half end = {.round = &round, .fd = at, .is_nonblocking = is_nonblocking};
            set_nonblocking(at, is_nonblocking);
            if (is_nonblocking)
                poll_for(&end, &own, POLLIN);
            CHECK((fd = net->accept(at, NULL, NULL)) >= 0);
            if (net->fcntl(fd, F_GETFL, 0) & O_NONBLOCK)
                fail("an accepted socket is non-blocking", fd, 0);
            CHECK_EQUAL(net->recv(fd, &name, 1, 0), 1);
            fds[name] = fd;
        }
        shared->moved++;
    }
    thread_count = 0;
    meddling = 1;
    for (int n = 0; n < round.streams; n++) {
        unsigned totals[SIDES];
        struct rng of_stream = rng_of(number, n, 0, 7), of_end = rng_of(number, n, side, 8);
        for (int s = 0; s < SIDES; s++)
            totals[s] = below(&of_stream, 5) ? below(&of_stream, BYTES_MAX) : below(&of_stream, 100);
        ends[n] = (struct half){.round = &round, .fd = fds[n], .stream = n, .is_nonblocking = below(&of_end, 3) == 0,
            .has_timeout = below(&of_end, 4) == 0, .has_meddler = below(&of_end, 2) == 0, .total = totals[side],
            .expected = totals[!side], .threads = 2};
        set_nonblocking(fds[n], ends[n].is_nonblocking);
        struct timeval moment = {0, 1 + (int)below(&of_end, 5000)};
        if (ends[n].has_timeout) {
            CHECK_EQUAL(net->setsockopt(fds[n], SOL_SOCKET, SO_RCVTIMEO, &moment, sizeof moment), 0);
            CHECK_EQUAL(net->setsockopt(fds[n], SOL_SOCKET, SO_SNDTIMEO, &moment, sizeof moment), 0);
        }
        start(writer, &ends[n]);
        start(reader, &ends[n]);
        if (ends[n].has_meddler)
            start(meddler, &ends[n]);
    }
    pthread_t signals;
    if (round.has_signals)
        CHECK_EQUAL(pthread_create(&signals, NULL, signaller, &round), 0);
    for (int n = 0; n < round.streams; n++)
        while (ends[n].threads > 0 && !shared->failed)
            usleep(500);
    /* No thread is joined while it may be sent signals. */
    meddling = 0;
    if (round.has_signals)
        pthread_join(signals, NULL);
    for (int n = 0; n < thread_count; n++)
        pthread_join(threads[n], NULL);
    for (int n = 0; n < round.streams; n++)
        CHECK_EQUAL(net->close(fds[n]), 0);
    if (at >= 0)
        CHECK_EQUAL(net->close(at), 0);
    meet();
}

/* What a process has: mappings, descriptors, and bytes of memory; files are those of the registry. */
struct usage {
    long mappings, descriptors, kilobytes, files;
};
static long entries(const char *path)
{
    long count = 0;
    DIR *folder = opendir(path);
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}
static struct usage usage(void)
{
    const char *registry = getenv("HIGHWIRE_SHM_DIR");
    struct usage now = {0, entries("/proc/self/fd"), 0, entries(registry ? registry : "/dev/shm")};
    char line[512];
    FILE *file = fopen("/proc/self/maps", "r");
    while (file && fgets(line, sizeof line, file))
        now.mappings++;
    if (file)
        fclose(file);
    file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        sscanf(line, "VmRSS: %ld", &now.kilobytes);
    if (file)
        fclose(file);
    return now;
}
static void print_usage(const char *when, struct usage now)
{
    printf("%s, side %d, %s: %ld mappings, %ld descriptors, %ld files, %ld KiB\n", net->name, side, when, now.mappings,
        now.descriptors, now.files, now.kilobytes);
    fflush(stdout);
}

/* The first rounds make threads' stacks and the allocator's arenas. */
enum { WARM_UP = 30, MAPPINGS_MORE = 40, DESCRIPTORS_MORE = 4, FILES_MORE = 4, KILOBYTES_MORE = 24 << 10 };

static void process(unsigned long rounds)
{
    struct usage before = {0}, now;
    install_handlers();
    for (unsigned long n = 0;; n++) {
        if (is_soak ? shared->is_over && n >= WARM_UP && n % 10 == 0 : n == rounds)
            break;
        play_round(n);
        if (is_soak && n + 1 == WARM_UP)
            print_usage("before", before = usage());
        if (is_soak && side == 0 && n % 500 == 499)
            print_usage("meanwhile", usage()), printf("%lu rounds\n", n + 1);
        /* Both see the same word: it changes only between two meetings of the parent's own. */
        if (is_soak && n % 10 == 9) {
            meet();
            if (side == 0)
                shared->is_over = shared->is_over || shared->port[1];
            meet();
        }
    }
    if (!is_soak)
        _exit(0);
    now = usage();
    print_usage("after", now);
    if (now.mappings > before.mappings + MAPPINGS_MORE || now.descriptors > before.descriptors + DESCRIPTORS_MORE ||
        now.files > before.files + FILES_MORE || now.kilobytes > before.kilobytes + KILOBYTES_MORE)
        fail("this process has grown", now.mappings, 0);
    _exit(0);
}

/* Both processes over one net. The parent opens no device, stops and continues its children, and watches that they get on. */
static int play(int of, unsigned long rounds)
{
    enum { STILL_MAX_S = 90 };
    which = of;
    net = &NETS[of];
    shared->moved = 0;
    shared->arrived = 0;
    shared->is_over = shared->port[1] = 0;
    meetings = 0;
    pid_t children[SIDES];
    fflush(stdout);
    for (side = 0; side < SIDES; side++) {
        CHECK((children[side] = fork()) >= 0);
        if (children[side] == 0)
            process(rounds);
    }
    struct rng rng = {seed};
    unsigned long before = 0;
    time_t since = time(NULL), begin = since;
    int left = SIDES, status, is_good = 1;
    while (left > 0) {
        pid_t ended;
        while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
            left--;
            is_good &= WIFEXITED(status) && WEXITSTATUS(status) == 0;
            children[children[1] == ended] = 0;
            if (!is_good)
                shared->failed = 1;
        }
        unsigned victim = below(&rng, SIDES);
        if (below(&rng, 4) == 0 && children[victim] > 0) {
            kill(children[victim], SIGSTOP);
            usleep(below(&rng, 20000));
            kill(children[victim], SIGCONT);
        }
        usleep(5000);
        if (shared->moved != before)
            before = shared->moved, since = time(NULL);
        if (is_soak && (unsigned long)(time(NULL) - begin) >= rounds)
            shared->port[1] = 1;
        if (left > 0 && (time(NULL) - since > STILL_MAX_S || (!is_good && time(NULL) - since > 5))) {
            if (is_good)
                fprintf(stderr, "%s: nothing has moved for %d s\nrepeat: rsockets_stress %lu\n", net->name, STILL_MAX_S,
                    seed);
            if (getenv("STRESS_KEEP"))
                pause();
            for (int n = 0; n < SIDES; n++)
                if (children[n] > 0)
                    kill(children[n], SIGKILL);
            is_good = 0;
        }
    }
    return is_good;
}

int main(int count, char **arguments)
{
    is_soak = count > 1 && strcmp(arguments[1], "soak") == 0;
    arguments += is_soak, count -= is_soak;
    seed = count > 1 ? strtoul(arguments[1], NULL, 0) : 1;
    unsigned long rounds = count > 2 ? strtoul(arguments[2], NULL, 0) : 4;
    const char *only = count > 3 ? arguments[3] : is_soak ? "rsockets" : "";
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(shared != MAP_FAILED);
    for (int of = 0; of < 2; of++)
        if ((!*only || strcmp(only, NETS[of].name) == 0) && !play(of, rounds))
            return 1;
    if (*only)
        return 0;
    for (int n = 0; n < STREAMS_MAX; n++)
        for (int s = 0; s < SIDES; s++) {
            CHECK_EQUAL(shared->got[0][n][s].bytes, shared->got[1][n][s].bytes);
            CHECK_EQUAL(shared->got[0][n][s].sum, shared->got[1][n][s].sum);
        }
    return 0;
}
