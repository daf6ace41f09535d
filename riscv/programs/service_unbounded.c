/* The same as service_bounded, at priority 1, which has no bound: context 0 waits behind the long messages. */
#include "published.h"

int nanopu_main(uint64_t core) {
    (void)core;
    static const struct nanopu_thread threads[] = {{0, 1, published_work}, {1, 1, published_work}};
    published_stalls = 1;
    nanopu_run_as_published(threads, 2, 0);
}
