/* The baseline: the two threads of service.c under a scheduler in software, which a timer calls every five microseconds.
 *
 * The timer's handler is the same as the scheduler's (threads.S): it runs the context that should run, but looks only when the slice
 * is over. */
#include "serve.h"

#define SLICE_TICKS 5

static void work(uint64_t context) {
    (void)context;
    serve(0);
}

int nanopu_main(uint64_t core) {
    (void)core;
    static const struct nanopu_thread threads[] = {{0, 0, work}, {1, 1, work}};
    nanopu_run_sliced(threads, 2, SLICE_TICKS);
}
