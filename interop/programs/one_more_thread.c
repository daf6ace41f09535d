/* A shared object for LD_PRELOAD: the program has one more thread, which sleeps, before its main function begins. Most programs
 * have one when they register memory, and small benchmarks have none. */
#include <pthread.h>
#include <unistd.h>

static void *sleep_for_ever(void *nothing)
{
    while (1)
        pause();
    return nothing;
}

static void __attribute__((constructor)) begin(void)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, sleep_for_ever, NULL) == 0)
        pthread_detach(thread);
}
