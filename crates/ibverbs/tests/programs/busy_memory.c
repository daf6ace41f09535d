/* Memory that threads write to, and that system calls read and write, while it is registered and deregistered: nothing is lost.
 * The program handles SIGSEGV itself, one thread blocks all signals, and children are made meanwhile.
 * arguments: any
 * arguments: faults
 * arguments: thread-faults
 * arguments: protection */
#include "rig.h"
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#define THREADS 4
#define PAGES 24
#define ROUNDS 150

static char *pool;
static int stop, system_calls_wait;
static unsigned long counted[THREADS + 2];
static volatile sig_atomic_t faults;
static char *poison;

static void on_fault(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    if ((char *)info->si_addr < poison || (char *)info->si_addr >= poison + 4096)
        _exit(9);
    faults++;
    mprotect(poison, 4096, PROT_READ | PROT_WRITE);
}

static unsigned long *word(long page, long thread)
{
    return (unsigned long *)(pool + page * 4096 + thread * 64);
}

static void *count(void *argument)
{
    long thread = (long)argument;
    if (thread == 1 && system_calls_wait) {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, NULL);
    }
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        volatile unsigned long *at = word(counted[thread] % PAGES, thread);
        *at += 1;
        counted[thread]++;
    }
    return NULL;
}

/* Bytes go through a pipe, from the pages and to them. */
static void *pass(void *argument)
{
    long thread = (long)argument;
    int ends[2];
    CHECK_EQUAL(pipe(ends), 0);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        unsigned long *from = word(counted[thread] % PAGES, thread);
        unsigned long *to = word((counted[thread] + 1) % PAGES, thread);
        *from = counted[thread] * 3 + 1;
        CHECK_EQUAL(write(ends[1], from, 8), 8);
        *to = 0;
        CHECK_EQUAL(read(ends[0], to, 8), 8);
        CHECK_EQUAL(*to, counted[thread] * 3 + 1);
        counted[thread]++;
    }
    return NULL;
}

int main(int arguments_count, char **arguments)
{
    CHECK_EQUAL(arguments_count, 2);
    int any = strcmp(arguments[1], "any") == 0;
    if (!any)
        setenv("HIGHWIRE_REMAP", arguments[1], 1);
    system_calls_wait = strcmp(arguments[1], "faults") == 0;
    struct ibv_context *context = rig_open();
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    CHECK_EQUAL(sigaction(SIGSEGV, &action, NULL), 0);
    poison = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pool = mmap(NULL, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pool != MAP_FAILED && poison != MAP_FAILED);
    struct ibv_pd *pd = ibv_alloc_pd(context);
    CHECK(pd);
    pthread_t threads[THREADS + 1];
    for (long i = 0; i < THREADS; i++)
        CHECK_EQUAL(pthread_create(&threads[i], NULL, count, (void *)i), 0);
    if (system_calls_wait)
        CHECK_EQUAL(pthread_create(&threads[THREADS], NULL, pass, (void *)THREADS), 0);
    unsigned seed = 7;
    for (int round = 0; round < ROUNDS; round++) {
        size_t from = rand_r(&seed) % (PAGES / 2) * 4096 + rand_r(&seed) % 2 * 100;
        struct ibv_mr *one = ibv_reg_mr(pd, pool + from, 8 * 4096, ALL_ACCESS);
        struct ibv_mr *two = ibv_reg_mr(pd, pool + from + 4096, 6000, ALL_ACCESS);
        CHECK(one && two);
        if (round % 30 == 7) {
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0) {
                memset(pool, 0xEE, PAGES * 4096);
                _exit(0);
            }
            int status = 1;
            CHECK_EQUAL(waitpid(child, &status, 0), child);
            CHECK_EQUAL(status, 0);
        }
        CHECK_EQUAL(ibv_dereg_mr(round % 2 ? one : two), 0);
        CHECK_EQUAL(ibv_dereg_mr(round % 2 ? two : one), 0);
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS + system_calls_wait; i++)
        pthread_join(threads[i], NULL);
    for (long thread = 0; thread < THREADS; thread++) {
        unsigned long sum = 0;
        for (long page = 0; page < PAGES; page++)
            sum += *word(page, thread);
        CHECK_EQUAL(sum, counted[thread]);
    }
    CHECK_EQUAL(faults, 0);
    *(volatile char *)poison = 1;
    CHECK_EQUAL(faults, 1);
    return 0;
}
