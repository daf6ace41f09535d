/* Calls every function that the object takes over, with and without a channel among its descriptors, and compares with what the C
 * library would have said. Prints one line when all of them answered as they should. */
#include "verbs.h"

/* The last call that reached the C library was not a look, but the rest of the wait. */
static const struct seen *last_seen(void)
{
    CHECK(seen_count > 0 && seen_count <= SEEN_MAX);
    return &seen[seen_count - 1];
}

/* All that reached the C library were looks. */
static void only_looked(void)
{
    CHECK(seen_count > 0 && seen_count <= SEEN_MAX);
    for (int i = 0; i < seen_count; i++)
        CHECK(seen[i].nanos == 0);
}

static void without_a_channel(enum kind kind)
{
    open_place(false);
    const int64_t times[] = {0, 2 * MS};
    for (int i = 0; i < 2; i++) {
        play("", NULL);
        int64_t begun = now();
        CHECK(wait_for(kind, times[i]) == 0 && errno == UNTOUCHED);
        CHECK(now() - begun >= times[i]);
        CHECK(helped_count == 0 && seen_count == 1 && seen[0].nanos == times[i]);
    }
    fill_pipe();
    ring_channel();
    play("", NULL);
    CHECK(wait_for(kind, -1) == 2 && ready_pipe == POLLIN && ready_channel == POLLIN && errno == UNTOUCHED);
    CHECK(helped_count == 0 && seen_count == 1 && seen[0].nanos == -1);
    close_place();
}

/* `help` was called for the place's channel, with what this kind of call waits for. */
static void was_asked_rightly(enum kind kind, const struct helped *this)
{
    CHECK(this->channel == place.channel);
    if (is_select(kind)) {
        /* In ascending order. */
        int first = place.channel < place.pipe[0] ? place.channel : place.pipe[0];
        int second = place.channel + place.pipe[0] - first;
        CHECK(this->count == 2 && this->fds[0].fd == first && this->fds[0].events == POLLIN);
        CHECK(this->fds[1].fd == second && this->fds[1].events == POLLIN);
    } else if (is_poll(kind)) {
        CHECK(this->count == 3 && this->fds[0].fd == -1);
        CHECK(this->fds[1].fd == place.pipe[0] && this->fds[1].events == POLLIN);
        CHECK(this->fds[2].fd == place.channel && this->fds[2].events == POLLIN);
    } else {
        CHECK(this->count == 1 && this->fds[0].fd == place.set && this->fds[0].events == POLLIN);
    }
}

static void what_a_look_finds_is_returned(enum kind kind)
{
    play("O", fill_pipe);
    CHECK(wait_for(kind, -1) == 1 && ready_pipe == POLLIN && ready_channel == 0 && errno == UNTOUCHED);
    CHECK(helped_count == 1 && helped[0].nanos == PART);
    was_asked_rightly(kind, &helped[0]);
    only_looked();
    play("O", NULL);
    CHECK(wait_for(kind, 3600 * PART) == 1 && ready_pipe == POLLIN && helped_count == 1 && seen_count == 1);
    empty_pipe();
    play("LLO", ring_channel);
    CHECK(wait_for(kind, -1) == 1 && ready_channel == POLLIN && ready_pipe == 0 && errno == UNTOUCHED);
    CHECK(helped_count == 3);
    for (int i = 0; i < 3; i++)
        was_asked_rightly(kind, &helped[i]);
    quiet_channel();
    /* All that is ready. */
    play("O", NULL);
    fill_pipe();
    ring_channel();
    CHECK(wait_for(kind, -1) == 2 && ready_channel == POLLIN && ready_pipe == POLLIN);
    empty_pipe();
    quiet_channel();
}

static void a_call_that_does_not_wait_gets_no_help(enum kind kind)
{
    play("", NULL);
    CHECK(wait_for(kind, 0) == 0 && errno == UNTOUCHED && helped_count == 0 && last_seen()->nanos == 0);
    fill_pipe();
    CHECK(wait_for(kind, 0) == 1 && ready_pipe == POLLIN && helped_count == 0);
    empty_pipe();
}

static void a_signal_ends_it(enum kind kind)
{
    play("I", NULL);
    CHECK(wait_for(kind, -1) == -1 && errno == EINTR && helped_count == 1 && seen_count == 0);
    play("LLI", NULL);
    CHECK(wait_for(kind, 3600 * PART) == -1 && errno == EINTR && helped_count == 3 && seen_count == 0);
}

static void a_deadline_is_kept_over_all_parts(enum kind kind)
{
    const int64_t asked = 40 * MS;
    int64_t begun;
    /* A machine may be so busy that one part takes all the time. */
    do {
        play("llllS", NULL);
        begun = now();
        CHECK(wait_for(kind, asked) == 0 && errno == UNTOUCHED);
        CHECK(now() - begun >= asked && helped_count <= 5);
    } while (helped_count < 2);
    for (int i = 0; i < helped_count; i++) {
        const struct helped *this = &helped[i];
        CHECK(this->nanos > 0 && this->nanos >= begun + asked - this->begun);
        CHECK(this->nanos <= helped[0].begun + asked - (i ? helped[i - 1].ended : begun));
    }
    CHECK(seen_count == 1);
    int64_t left = helped[0].begun + asked - helped[helped_count - 1].ended;
    /* Milliseconds and microseconds are rounded up. */
    CHECK(seen[0].nanos <= (left > 0 ? left : 0) + (counts_ms(kind) ? MS : kind == SELECT ? 1000 : 0));
    /* Time that a part takes too long is not asked for again. */
    play("llS", NULL);
    CHECK(wait_for(kind, MS) == 0 && helped_count <= 1 && last_seen()->nanos == 0);
}

static void long_waits_are_done_in_parts(enum kind kind)
{
    fill_pipe();
    play("LLS", NULL);
    CHECK(wait_for(kind, -1) == 1 && ready_pipe == POLLIN && errno == UNTOUCHED);
    for (int i = 0; i < 3; i++)
        CHECK(helped[i].nanos == PART);
    CHECK(seen_count == 1 && seen[0].nanos == -1);
    const int64_t asked = INT64_C(2147483647) * MS;
    play("S", NULL);
    CHECK(wait_for(kind, asked) == 1 && helped[0].nanos == PART);
    CHECK(seen_count == 1 && seen[0].nanos <= asked && seen[0].nanos > asked - 3600 * PART);
    empty_pipe();
}

/* Whatever the verbs library says of it, what a look has taken belongs to the caller. */
static void results_are_not_lost(enum kind kind)
{
    const char *const scripts[] = {"s", "i", "tO"};
    for (int i = 0; i < 3; i++) {
        play(scripts[i], NULL);
        fill_pipe();
        CHECK(wait_for(kind, -1) == 1 && ready_pipe == POLLIN && errno == UNTOUCHED);
        only_looked();
        CHECK(seen_count == 1);
        empty_pipe();
    }
}

/* What comes after the last look is for the C library's function to find. */
static void a_look_in_vain_changes_nothing(enum kind kind)
{
    play("v", fill_pipe);
    CHECK(wait_for(kind, -1) == 1 && ready_pipe == POLLIN && ready_channel == 0 && errno == UNTOUCHED);
    CHECK(helped_count == 1 && seen_count == 3 && last_seen()->nanos == -1);
    empty_pipe();
}

static void masks_are_the_kernel_s(enum kind kind)
{
    if (kind == POLL || kind == POLL_CHK || kind == SELECT || kind == EPOLL_WAIT)
        return;
    sigset_t mask;
    sigemptyset(&mask);
    play("", NULL);
    CHECK(wait_with(kind, MS, &mask) == 0 && helped_count == 0 && errno == UNTOUCHED);
    CHECK(seen_count == 1 && seen[0].mask == &mask && seen[0].nanos == MS);
}

static void marks_go_with_the_descriptors(enum kind kind)
{
    int channel = place.channel, set = place.set;
    fill_pipe();
    note(channel, false);
    if (is_poll(kind)) {
        play("", NULL);
        CHECK(wait_for(kind, -1) == 1 && helped_count == 0);
    }
    note(channel, true);
    play("O", NULL);
    CHECK(wait_for(kind, -1) == 1 && helped_count == 1);
    /* Closed, and opened under the same numbers. */
    close_place();
    open_place(false);
    CHECK(place.channel <= channel + 3 && place.set <= set + 3);
    fill_pipe();
    play("", NULL);
    CHECK(wait_for(kind, -1) == 1 && ready_pipe == POLLIN && helped_count == 0);
    close_place();
    open_place(true);
}

static void sets_give_each_event_once(void)
{
    const unsigned flags[] = {EPOLLET, EPOLLONESHOT, EPOLLET | EPOLLONESHOT};
    for (int i = 0; i < 3; i++) {
        int set = epoll_create1(0);
        struct epoll_event event;
        add(set, place.channel, EPOLLET);
        add(set, place.pipe[0], flags[i]);
        const char *const scripts[] = {"O", "s", "tO", "i"};
        for (int j = 0; j < 4; j++) {
            play(scripts[j], fill_pipe);
            CHECK(epoll_wait(set, &event, 1, -1) == 1 && event.data.fd == place.pipe[0] && event.events == EPOLLIN);
            play("", NULL);
            CHECK(epoll_wait(set, &event, 1, 0) == 0);
            struct epoll_event again = {.events = EPOLLIN | flags[i], .data.fd = place.pipe[0]};
            empty_pipe();
            CHECK(epoll_ctl(set, EPOLL_CTL_MOD, place.pipe[0], &again) == 0);
        }
        CHECK(close(set) == 0);
    }
}

static void sets_in_sets(void)
{
    int outer = epoll_create1(0), outermost = epoll_create1(0);
    struct epoll_event event = {0};
    struct pollfd polled = {place.set, POLLIN, 0};
    add(outer, place.set, 0);
    add(outermost, outer, 0);
    fill_pipe();
    play("OO", NULL);
    CHECK(epoll_wait(outer, &event, 1, -1) == 1 && event.data.fd == place.set);
    CHECK(helped_count == 1 && helped[0].channel == place.channel && helped[0].fds[0].fd == outer);
    CHECK(epoll_wait(outermost, &event, 1, -1) == 1 && event.data.fd == outer);
    CHECK(helped_count == 2 && helped[1].channel == place.channel && helped[1].fds[0].fd == outermost);
    /* A set is polled. */
    play("O", NULL);
    CHECK(poll(&polled, 1, -1) == 1 && polled.revents == POLLIN && helped_count == 1);
    empty_pipe();
    /* A set without its channel still finds all that it holds. */
    CHECK(epoll_ctl(place.set, EPOLL_CTL_DEL, place.channel, NULL) == 0);
    ring_channel();
    play("O", fill_pipe);
    CHECK(epoll_wait(place.set, &event, 1, -1) == 1 && event.data.fd == place.pipe[0]);
    quiet_channel();
    empty_pipe();
    CHECK(close(outer) == 0 && close(outermost) == 0);
    close_place();
    open_place(true);
    /* A refused request marks nothing. */
    int other = epoll_create1(0);
    add(other, place.pipe[0], 0);
    event.events = EPOLLIN;
    CHECK(epoll_ctl(other, EPOLL_CTL_MOD, place.channel, &event) == -1 && errno == ENOENT);
    CHECK(epoll_ctl(other, 77, place.channel, &event) == -1 && errno == EINVAL);
    CHECK(epoll_ctl(-1, EPOLL_CTL_ADD, place.channel, &event) == -1 && errno == EBADF);
    play("", NULL);
    CHECK(epoll_wait(other, &event, 1, 1) == 0 && helped_count == 0);
    CHECK(close(other) == 0);
}

static void errors_are_the_c_library_s(void)
{
    struct epoll_event event;
    struct pollfd fds[2] = {{place.channel, POLLIN, 0}, {place.channel, POLLIN, 0}};
    struct timespec wrong = {0, 1000000000}, negative = {-1, 0};
    for (int max = 0; max >= -1; max--) {
        play("OOO", NULL);
        CHECK(epoll_wait(place.set, &event, max, -1) == -1 && errno == EINVAL);
        CHECK(epoll_pwait(place.set, &event, max, -1, NULL) == -1 && errno == EINVAL);
        CHECK(epoll_pwait2(place.set, &event, max, NULL, NULL) == -1 && errno == EINVAL && helped_count == 3);
    }
    play("", NULL);
    CHECK(ppoll(fds, 1, &wrong, NULL) == -1 && errno == EINVAL);
    CHECK(ppoll(fds, 1, &negative, NULL) == -1 && errno == EINVAL);
    CHECK(epoll_pwait2(place.set, &event, 1, &wrong, NULL) == -1 && errno == EINVAL);
    CHECK(helped_count == 0);
    /* The mark is left, but not the set: a descriptor that was closed behind the object's back. */
    int set = epoll_create1(0);
    add(set, place.channel, 0);
    int (*real_close)(int) = (int (*)(int))dlsym(dlopen("libc.so.6", RTLD_LAZY | RTLD_NOLOAD), "close");
    CHECK(real_close && real_close(set) == 0);
    play("OO", NULL);
    CHECK(epoll_wait(set, &event, 1, -1) == -1 && errno == EBADF);
    CHECK(epoll_pwait2(set, &event, 1, NULL, NULL) == -1 && errno == EBADF);
    CHECK(close(set) == -1 && errno == EBADF);
    play("", NULL);
    CHECK(epoll_wait(set, &event, 1, -1) == -1 && errno == EBADF && helped_count == 0);
    CHECK(epoll_wait(-1, &event, 1, -1) == -1 && errno == EBADF);
    CHECK(close(-1) == -1 && errno == EBADF);
    /* Descriptors that are not open, and none. */
    struct pollfd closed[3] = {{place.channel, POLLIN, 0}, {set, POLLIN, 0}, {-place.channel, POLLIN, 7}};
    play("O", NULL);
    CHECK(poll(closed, 3, -1) == 1 && closed[1].revents == POLLNVAL && !closed[0].revents && !closed[2].revents);
    CHECK(errno == UNTOUCHED && helped_count == 1);
    play("", NULL);
    CHECK(poll(NULL, 0, 1) == 0 && poll(fds, 0, 1) == 0 && errno == UNTOUCHED);
    nfds_t one = 1;
    struct pollfd *volatile none = NULL;
    CHECK(FUNCTION(poll)(none, one, 1) == -1 && errno == EFAULT);
    CHECK(FUNCTION(ppoll)(none, one, NULL, NULL) == -1 && errno == EFAULT);
    /* More than a process may have open is refused before the array is read. */
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0);
    const nfds_t counts[] = {limit.rlim_cur + 1, (nfds_t)1 << 30, (nfds_t)UINT32_MAX, ~(nfds_t)0};
    for (int i = 0; i < 4; i++) {
        errno = 0;
        CHECK(FUNCTION(poll)(fds, counts[i], 1) == -1 && errno == EINVAL);
        errno = 0;
        CHECK(FUNCTION(ppoll)(fds, counts[i], NULL, NULL) == -1 && errno == EINVAL);
    }
    CHECK(helped_count == 0);
}

static void selected_sets_are_the_caller_s(void)
{
    fd_set reads, writes, excepts;
    const int channel = place.channel, end = place.pipe[1], most = end + 1;
    CHECK(channel < end && most <= 64);
    /* All three, and what each of them brings. */
    FD_ZERO(&reads);
    FD_ZERO(&writes);
    FD_ZERO(&excepts);
    FD_SET(channel, &reads);
    FD_SET(channel, &excepts);
    FD_SET(end, &writes);
    play("O", NULL);
    CHECK(select(most, &reads, &writes, &excepts, NULL) == 1 && errno == UNTOUCHED);
    CHECK(!FD_ISSET(channel, &reads) && FD_ISSET(end, &writes) && !FD_ISSET(channel, &excepts));
    CHECK(helped_count == 1 && helped[0].count == 2 && helped[0].fds[0].fd == channel);
    CHECK(helped[0].fds[0].events == (POLLIN | POLLPRI) && helped[0].fds[1].events == POLLOUT);
    only_looked();
    /* A look that finds nothing leaves them for the next one, and a wait in vain clears them. */
    FD_ZERO(&reads);
    FD_SET(channel, &reads);
    play("LO", ring_channel);
    CHECK(select(most, &reads, NULL, NULL, NULL) == 1 && FD_ISSET(channel, &reads) && helped_count == 2);
    quiet_channel();
    play("S", NULL);
    CHECK(select(most, &reads, NULL, NULL, &(struct timeval){0, 1000}) == 0 && !FD_ISSET(channel, &reads));
    /* The call's descriptors end before the channel, or poll would say more than select. */
    FD_SET(channel, &reads);
    FD_SET(place.pipe[0], &excepts);
    play("", NULL);
    CHECK(select(channel, &reads, NULL, NULL, &(struct timeval){0, 0}) == 0 && helped_count == 0);
    FD_SET(channel, &reads);
    CHECK(select(most, &reads, NULL, &excepts, &(struct timeval){0, 1000}) == 0 && helped_count == 0);
    /* A program's sets may be as short as its descriptors allow. */
    uint64_t *words = malloc(2 * sizeof *words);
    CHECK(words);
    words[0] = UINT64_C(1) << channel;
    words[1] = UINT64_MAX;
    ring_channel();
    play("O", NULL);
    CHECK(FUNCTION(select)(most, (fd_set *)words, NULL, NULL, NULL) == 1 && words[0] == UINT64_C(1) << channel);
    quiet_channel();
    play("S", NULL);
    CHECK(FUNCTION(pselect)(most, (fd_set *)words, NULL, NULL, &(struct timespec){0, MS}, NULL) == 0 && words[0] == 0);
    CHECK(words[1] == UINT64_MAX && helped_count == 1);
    free(words);
    /* Errors. */
    FD_ZERO(&reads);
    FD_SET(channel, &reads);
    play("", NULL);
    CHECK(select(-1, &reads, NULL, NULL, NULL) == -1 && errno == EINVAL);
    CHECK(pselect(-1, &reads, NULL, NULL, NULL, NULL) == -1 && errno == EINVAL);
    CHECK(select(most, &reads, NULL, NULL, &(struct timeval){-1, 0}) == -1 && errno == EINVAL);
    CHECK(pselect(most, &reads, NULL, NULL, &(struct timespec){0, 1000000000}, NULL) == -1 && errno == EINVAL);
    CHECK(helped_count == 0);
    int closed = dup(channel);
    CHECK(closed >= 0 && closed < 64 && close(closed) == 0);
    FD_SET(closed, &reads);
    play("O", NULL);
    CHECK(select(closed + 1, &reads, NULL, NULL, NULL) == -1 && errno == EBADF && helped_count == 1);
    CHECK(FD_ISSET(channel, &reads) && FD_ISSET(closed, &reads));
}

static void arrays_that_are_too_short_abort(void)
{
    for (int is_ppoll = 0; is_ppoll < 2; is_ppoll++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            struct pollfd fds[1] = {{place.channel, POLLIN, 0}};
            /* The compiler must not see it. */
            volatile nfds_t count = 2;
            setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
            CHECK(freopen("/dev/null", "w", stderr));
            if (is_ppoll)
                FUNCTION(__ppoll_chk)(fds, count, &(struct timespec){0, 0}, NULL, sizeof fds);
            else
                FUNCTION(__poll_chk)(fds, count, 0, sizeof fds);
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    }
}

int main(void)
{
    /* A wait that never ends fails, too. */
    alarm(PATIENCE);
    for (enum kind kind = 0; kind < KINDS; kind++) {
        kind_name = names[kind];
        without_a_channel(kind);
        open_place(true);
        results_are_not_lost(kind);
        a_look_in_vain_changes_nothing(kind);
        what_a_look_finds_is_returned(kind);
        a_call_that_does_not_wait_gets_no_help(kind);
        a_signal_ends_it(kind);
        a_deadline_is_kept_over_all_parts(kind);
        long_waits_are_done_in_parts(kind);
        masks_are_the_kernel_s(kind);
        marks_go_with_the_descriptors(kind);
        close_place();
    }
    kind_name = "-";
    open_place(true);
    sets_give_each_event_once();
    sets_in_sets();
    errors_are_the_c_library_s();
    selected_sets_are_the_caller_s();
    arrays_that_are_too_short_abort();
    puts("every call answered");
    return 0;
}
