/* Threads that are cancelled or signalled while they wait with help, and children of a fork. */
#include "verbs.h"

static enum kind current;
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static int waiting, cleaned;
static const char *thread_script;

static void arrive(int *at)
{
    pthread_mutex_lock(&gate);
    (*at)++;
    pthread_cond_broadcast(&moved);
    pthread_mutex_unlock(&gate);
}

static void clean(void *at)
{
    arrive(at);
}

/* Waits until it is cancelled. In parts: `help` is called again and again, and answers late each time. */
static int help_until_cancelled(int channel, const struct pollfd *fds, nfds_t count, int64_t nanos, look_fn *look,
                                void *call)
{
    (void)channel, (void)fds, (void)count, (void)nanos;
    int state;
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state) == 0 && state == PTHREAD_CANCEL_DISABLE);
    CHECK(pthread_setcancelstate(state, NULL) == 0);
    arrive(&waiting);
    if (*thread_script == 'S')
        return SLEEP;
    if (*thread_script == 'O') {
        CHECK(look(call));
        return OVER;
    }
    /* A cancellation point, at which nothing may happen here. */
    nanosleep(&(struct timespec){0, MS}, NULL);
    return LATE;
}

static void *cancelled_thread(void *none)
{
    pthread_cleanup_push(clean, &cleaned);
    while (wait_for(current, -1) >= 0)
        ;
    pthread_cleanup_pop(0);
    return none;
}

static void cancels(const char *how)
{
    pthread_t thread;
    void *result;
    waiting = cleaned = 0;
    thread_script = how;
    note_fn *note = (note_fn *)dlsym(RTLD_DEFAULT, "highwire_channel");
    note(place.channel, true, help_until_cancelled);
    CHECK(pthread_create(&thread, NULL, cancelled_thread, NULL) == 0);
    pthread_mutex_lock(&gate);
    while (!waiting)
        pthread_cond_wait(&moved, &gate);
    pthread_mutex_unlock(&gate);
    CHECK(pthread_cancel(thread) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED && cleaned == 1);
    note(place.channel, true, help);
}

/* As with the C library: a call is not begun if the thread is to end. */
static void *pending_thread(void *none)
{
    pthread_cleanup_push(clean, &cleaned);
    CHECK(pthread_cancel(pthread_self()) == 0);
    play("", NULL);
    wait_for(current, -1);
    pthread_cleanup_pop(0);
    return none;
}

static void a_thread_that_is_to_end_does_not_wait(void)
{
    pthread_t thread;
    void *result;
    cleaned = 0;
    fill_pipe();
    CHECK(pthread_create(&thread, NULL, pending_thread, NULL) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED && cleaned == 1);
    empty_pipe();
}

/* A thread that must not be cancelled is not. */
static void *steadfast_thread(void *none)
{
    int state;
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL) == 0);
    CHECK(pthread_cancel(pthread_self()) == 0);
    play("LLO", fill_pipe);
    CHECK(wait_for(current, -1) == 1 && ready_pipe == POLLIN && helped_count == 3);
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state) == 0 && state == PTHREAD_CANCEL_DISABLE);
    empty_pipe();
    return none;
}

static void a_thread_that_must_not_be_cancelled_waits(void)
{
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, steadfast_thread, NULL) == 0);
    CHECK(pthread_join(thread, &result) == 0 && result == NULL);
}

static int handled;

static void on_signal(int number)
{
    (void)number;
    handled++;
}

static void interrupt(void)
{
    CHECK(raise(SIGUSR1) == 0);
    fill_pipe();
}

/* A handler that runs while `help` looks changes nothing; one that runs in the C library's sleep ends the call. */
static void signals(void)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    handled = 0;
    play("O", interrupt);
    CHECK(wait_for(current, -1) == 1 && ready_pipe == POLLIN && errno == UNTOUCHED && handled == 1);
    empty_pipe();
    CHECK(sigaction(SIGUSR2, &action, NULL) == 0);
    struct itimerspec often = {{0, 20 * MS}, {0, 20 * MS}};
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0 && timer_settime(timer, 0, &often, NULL) == 0);
    play("S", NULL);
    CHECK(wait_for(current, -1) == -1 && errno == EINTR && handled > 1);
    CHECK(timer_delete(timer) == 0);
}

/* The verbs library's state is its parent's: a child waits as the C library does, until it opens a channel of its own. */
static void children(void)
{
    fill_pipe();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        play("", NULL);
        CHECK(wait_for(current, -1) == 1 && ready_pipe == POLLIN && errno == UNTOUCHED && helped_count == 0);
        struct place inherited = place;
        open_place(true);
        fill_pipe();
        play("O", NULL);
        CHECK(wait_for(current, -1) == 1 && helped_count == 1 && helped[0].channel == place.channel);
        place = inherited;
        play("", NULL);
        CHECK(wait_for(current, -1) == 1 && helped_count == 0);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    play("O", NULL);
    CHECK(wait_for(current, -1) == 1 && helped_count == 1);
    empty_pipe();
}

int main(void)
{
    /* A wait that never ends fails, too. */
    alarm(PATIENCE);
    open_place(true);
    for (current = 0; current < KINDS; current++) {
        kind_name = names[current];
        cancels("L");
        cancels("S");
        a_thread_that_is_to_end_does_not_wait();
        a_thread_that_must_not_be_cancelled_waits();
        signals();
        children();
        fill_pipe();
        cancels("O");
        empty_pipe();
    }
    puts("every thread answered");
    return 0;
}
