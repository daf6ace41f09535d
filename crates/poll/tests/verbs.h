/* The verbs library's part, played by the test: its `help` notes how it is called, and answers as a script says.
 * And every function that waits, called in the same way. */
#define _GNU_SOURCE
#include "spy.h"
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS INT64_C(1000000)
#define PART INT64_C(1000000000)
#define UNTOUCHED 4711
#ifndef PATIENCE
#define PATIENCE 300
#endif

static const char *kind_name = "-";

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d (%s): %s: %s\n", __FILE__, __LINE__, kind_name, #condition, strerror(errno));       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

enum { SLEEP, OVER, LATE, INTERRUPTED };

typedef bool look_fn(void *call);
typedef int help_fn(int channel, const struct pollfd *fds, nfds_t count, int64_t nanos, look_fn *look, void *call);
typedef void note_fn(int channel, bool is_open, help_fn *help);

struct helped {
    int channel;
    struct pollfd fds[8];
    nfds_t count;
    int64_t nanos;
    int64_t begun, ended;
};

/* One letter for each call of `help`: S, L, I answer at once (sleep, late, interrupted); l is late after a millisecond;
 * O looks until the call is over; s, t, i look until it is over, and answer sleep, late, interrupted all the same; v looks in vain,
 * and then answers sleep. */
static __thread const char *script;
static __thread void (*before_looks)(void);
static __thread struct helped helped[16];
static __thread int helped_count;

static int64_t now(void)
{
    struct timespec time;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &time) == 0);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

static int answer(char letter, look_fn *look, void *call)
{
    if (strchr("Osti", letter)) {
        if (before_looks) {
            CHECK(!look(call));
            before_looks();
            before_looks = NULL;
        }
        while (!look(call))
            sched_yield();
        /* What it has found stays. */
        CHECK(look(call) && look(call));
    }
    if (letter == 'v') {
        CHECK(!look(call) && !look(call));
        if (before_looks)
            before_looks();
    }
    if (letter == 'l')
        nanosleep(&(struct timespec){0, MS}, NULL);
    /* The object must not rely on what the verbs library leaves there. */
    errno = EXDEV;
    switch (letter) {
    case 'O':
        return OVER;
    case 'L':
    case 'l':
    case 't':
        return LATE;
    case 'I':
    case 'i':
        return INTERRUPTED;
    default:
        return SLEEP;
    }
}

static int help(int channel, const struct pollfd *fds, nfds_t count, int64_t nanos, look_fn *look, void *call)
{
    CHECK(helped_count < 16 && count <= 8);
    struct helped *this = &helped[helped_count++];
    *this = (struct helped){.channel = channel, .count = count, .nanos = nanos, .begun = now()};
    memcpy(this->fds, fds, count * sizeof *fds);
    CHECK(script && *script);
    int result = answer(*script++, look, call);
    this->ended = now();
    return result;
}

static void play(const char *answers, void (*before)(void))
{
    script = answers;
    before_looks = before;
    helped_count = seen_count = 0;
    errno = UNTOUCHED;
}

static void note(int channel, bool is_open)
{
    note_fn *note = (note_fn *)dlsym(RTLD_DEFAULT, "highwire_channel");
    CHECK(note);
    note(channel, is_open, help);
}

/* A channel, a pipe beside it, and a set that holds both. */
struct place {
    int channel, pipe[2], set;
};

static struct place place;

enum kind { POLL, POLL_CHK, PPOLL, PPOLL_CHK, SELECT, PSELECT, EPOLL_WAIT, EPOLL_PWAIT, EPOLL_PWAIT2, KINDS };

static const char *const names[KINDS] = {"poll",    "__poll_chk", "ppoll",       "__ppoll_chk", "select",
                                         "pselect", "epoll_wait", "epoll_pwait", "epoll_pwait2"};

/* The names as the C library knows them. */
int __poll_chk(struct pollfd *fds, nfds_t count, int ms, size_t size);
int __ppoll_chk(struct pollfd *fds, nfds_t count, const struct timespec *time, const sigset_t *mask, size_t size);
#define FUNCTION(name) ((__typeof__(&name))dlsym(RTLD_DEFAULT, #name))

static bool is_poll(enum kind kind)
{
    return kind < EPOLL_WAIT;
}

static bool is_select(enum kind kind)
{
    return kind == SELECT || kind == PSELECT;
}

static bool counts_ms(enum kind kind)
{
    return kind == POLL || kind == POLL_CHK || kind == EPOLL_WAIT || kind == EPOLL_PWAIT;
}

static int ready_channel, ready_pipe;

/* The same as `poll` with these descriptors, which are read. */
static int select_instead(enum kind kind, struct pollfd *fds, int count, int64_t nanos, const sigset_t *mask)
{
    fd_set reads, asked;
    FD_ZERO(&reads);
    int most = 0;
    for (int i = 0; i < count; i++) {
        fds[i].revents = 0;
        if (fds[i].fd >= 0)
            FD_SET(fds[i].fd, &reads);
        most = fds[i].fd >= most ? fds[i].fd + 1 : most;
    }
    asked = reads;
    struct timeval limit = {nanos / 1000000000, nanos % 1000000000 / 1000};
    struct timespec time = {nanos / 1000000000, nanos % 1000000000};
    int64_t before = nanos;
    int result = kind == SELECT ? select(most, &reads, NULL, NULL, nanos < 0 ? NULL : &limit)
                                : pselect(most, &reads, NULL, NULL, nanos < 0 ? NULL : &time, mask);
    int kept = errno;
    if (kind == SELECT && nanos >= 0) {
        int64_t left = limit.tv_sec * INT64_C(1000000000) + limit.tv_usec * INT64_C(1000);
        CHECK(left >= 0 && left <= before && (result != 0 || left == 0));
    }
    CHECK(result >= 0 || memcmp(&reads, &asked, sizeof asked) == 0);
    int ready = 0;
    for (int fd = 0; fd < FD_SETSIZE && result >= 0; fd++)
        ready += FD_ISSET(fd, &reads) != 0;
    CHECK(result < 0 || ready == result);
    for (int i = 0; i < count; i++)
        fds[i].revents = result > 0 && fds[i].fd >= 0 && FD_ISSET(fds[i].fd, &reads) ? POLLIN : 0;
    errno = kept;
    return result;
}

/* Waits on the place for a time; negative: for ever. What was ready is in `ready_channel` and `ready_pipe`. */
static int wait_with(enum kind kind, int64_t nanos, const sigset_t *mask)
{
    struct timespec limit = {nanos / 1000000000, nanos % 1000000000};
    const struct timespec *time = nanos < 0 ? NULL : &limit;
    int ms = nanos < 0 ? -1 : (int)(nanos / MS);
    struct pollfd fds[3] = {{-1, POLLIN, 99}, {place.pipe[0], POLLIN, 99}, {place.channel, POLLIN, 99}};
    struct epoll_event events[4];
    int result = -2;
    switch (kind) {
    case POLL:
        result = FUNCTION(poll)(fds, 3, ms);
        break;
    case POLL_CHK:
        result = FUNCTION(__poll_chk)(fds, 3, ms, sizeof fds);
        break;
    case PPOLL:
        result = FUNCTION(ppoll)(fds, 3, time, mask);
        break;
    case PPOLL_CHK:
        result = FUNCTION(__ppoll_chk)(fds, 3, time, mask, sizeof fds);
        break;
    case SELECT:
    case PSELECT:
        result = select_instead(kind, fds, 3, nanos, mask);
        break;
    case EPOLL_WAIT:
        result = epoll_wait(place.set, events, 4, ms);
        break;
    case EPOLL_PWAIT:
        result = epoll_pwait(place.set, events, 4, ms, mask);
        break;
    case EPOLL_PWAIT2:
        result = epoll_pwait2(place.set, events, 4, time, mask);
        break;
    default:
        break;
    }
    int kept = errno;
    ready_channel = ready_pipe = 0;
    if (is_poll(kind) && result >= 0) {
        CHECK(fds[0].revents == 0);
        ready_pipe = fds[1].revents;
        ready_channel = fds[2].revents;
    } else {
        for (int i = 0; i < result; i++) {
            CHECK((int)events[i].data.fd == place.channel || (int)events[i].data.fd == place.pipe[0]);
            *((int)events[i].data.fd == place.channel ? &ready_channel : &ready_pipe) = (int)events[i].events;
        }
    }
    errno = kept;
    return result;
}

static int wait_for(enum kind kind, int64_t nanos)
{
    return wait_with(kind, nanos, NULL);
}

static void add(int set, int fd, unsigned flags)
{
    struct epoll_event event = {.events = EPOLLIN | flags, .data.fd = fd};
    CHECK(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void open_place(bool is_channel)
{
    place.channel = eventfd(0, EFD_NONBLOCK);
    place.set = epoll_create1(0);
    CHECK(place.channel >= 0 && place.set >= 0 && pipe(place.pipe) == 0);
    if (is_channel)
        note(place.channel, true);
    add(place.set, place.channel, 0);
    add(place.set, place.pipe[0], 0);
}

static void close_place(void)
{
    CHECK(close(place.channel) == 0 && close(place.set) == 0);
    CHECK(close(place.pipe[0]) == 0 && close(place.pipe[1]) == 0);
}

static void fill_pipe(void)
{
    CHECK(write(place.pipe[1], "x", 1) == 1);
}

static void empty_pipe(void)
{
    char byte;
    CHECK(read(place.pipe[0], &byte, 1) == 1);
}

static void ring_channel(void)
{
    CHECK(eventfd_write(place.channel, 1) == 0);
}

static void quiet_channel(void)
{
    eventfd_t value;
    CHECK(eventfd_read(place.channel, &value) == 0);
}
