/* The baseline: the two threads of service_replay.c under a scheduler that a timer calls every five microseconds. */
#include "published.h"

int nanopu_main(uint64_t core) {
    (void)core;
    static const struct nanopu_thread threads[] = {{0, 0, published_work}, {1, 1, published_work}};
    nanopu_run_as_published(threads, 2, 1);
}
