/* Stands between the object and the C library, and notes with which time and mask the C library's functions are called. */
#define _GNU_SOURCE
#include "spy.h"
#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

__thread struct seen seen[SEEN_MAX];
__thread int seen_count;

static void see(const char *name, int64_t nanos, const void *mask)
{
    if (seen_count < SEEN_MAX)
        seen[seen_count] = (struct seen){name, nanos, mask};
    seen_count++;
}

static int64_t of_ms(int ms)
{
    return ms < 0 ? -1 : ms * INT64_C(1000000);
}

static int64_t of_time(const struct timespec *time)
{
    return time ? time->tv_sec * INT64_C(1000000000) + time->tv_nsec : -1;
}

#define NEXT(name) ((__typeof__(&name))next(#name))

static void *next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found)
        abort();
    return found;
}

int poll(struct pollfd *fds, nfds_t count, int ms)
{
    see("poll", of_ms(ms), NULL);
    return NEXT(poll)(fds, count, ms);
}

int ppoll(struct pollfd *fds, nfds_t count, const struct timespec *time, const sigset_t *mask)
{
    see("ppoll", of_time(time), mask);
    return NEXT(ppoll)(fds, count, time, mask);
}

int select(int count, fd_set *read, fd_set *write, fd_set *except, struct timeval *time)
{
    see("select", time ? time->tv_sec * INT64_C(1000000000) + time->tv_usec * INT64_C(1000) : -1, NULL);
    return NEXT(select)(count, read, write, except, time);
}

int pselect(int count, fd_set *read, fd_set *write, fd_set *except, const struct timespec *time, const sigset_t *mask)
{
    see("pselect", of_time(time), mask);
    return NEXT(pselect)(count, read, write, except, time, mask);
}

int epoll_wait(int set, struct epoll_event *events, int max, int ms)
{
    see("epoll_wait", of_ms(ms), NULL);
    return NEXT(epoll_wait)(set, events, max, ms);
}

int epoll_pwait(int set, struct epoll_event *events, int max, int ms, const sigset_t *mask)
{
    see("epoll_pwait", of_ms(ms), mask);
    return NEXT(epoll_pwait)(set, events, max, ms, mask);
}

int epoll_pwait2(int set, struct epoll_event *events, int max, const struct timespec *time, const sigset_t *mask)
{
    see("epoll_pwait2", of_time(time), mask);
    return NEXT(epoll_pwait2)(set, events, max, time, mask);
}
