/* Two threads of priority 0, of which context 1 takes ten times as long once in a hundred messages: the bound on processing time
 * demotes it, and context 0 goes on. */
#include "published.h"

int nanopu_main(uint64_t core) {
    (void)core;
    static const struct nanopu_thread threads[] = {{0, 0, published_work}, {1, 0, published_work}};
    published_stalls = 1;
    nanopu_run_as_published(threads, 2, 0);
}
