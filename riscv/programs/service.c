/* Two threads serve requests to work: context 0 has priority 0, context 1 priority 1. */
#include "serve.h"

static void work(uint64_t context) {
    (void)context;
    serve(0);
}

int nanopu_main(uint64_t core) {
    (void)core;
    static const struct nanopu_thread threads[] = {{0, 0, work}, {1, 1, work}};
    nanopu_run_threads(threads, 2);
}
