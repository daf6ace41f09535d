/* The two threads of service_bounded.c, which wait in the read of a header instead of polling, where reads wait. */
#include "serve.h"

static void behaved(uint64_t context) {
    (void)context;
    serve_blocking(0);
}

static void misbehaving(uint64_t context) {
    (void)context;
    serve_blocking(100);
}

int nanopu_main(uint64_t core) {
    (void)core;
    static const struct nanopu_thread threads[] = {{0, 0, behaved}, {1, 0, misbehaving}};
    nanopu_block_reads();
    nanopu_run_threads(threads, 2);
}
