/* The two threads of the published measurements and recordings: context 0 has priority 0, context 1 priority 1. */
#include "published.h"

int nanopu_main(uint64_t core) {
    (void)core;
    static const struct nanopu_thread threads[] = {{0, 0, published_work}, {1, 1, published_work}};
    nanopu_run_as_published(threads, 2, 0);
}
