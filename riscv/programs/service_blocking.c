/* The two threads of service.c, which wait in the read of a header instead of polling, where reads wait. */
#include "serve.h"

static void work(uint64_t context) {
    (void)context;
    serve_blocking(0);
}

int nanopu_main(uint64_t core) {
    (void)core;
    static const struct nanopu_thread threads[] = {{0, 0, work}, {1, 1, work}};
    nanopu_block_reads();
    nanopu_run_threads(threads, 2);
}
