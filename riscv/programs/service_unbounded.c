/* The same as service_bounded, at priority 1, which has no bound: context 0 waits behind the long messages. */
#include "serve.h"

static void behaved(uint64_t context) {
    (void)context;
    serve(0);
}

static void misbehaving(uint64_t context) {
    (void)context;
    serve(100);
}

int nanopu_main(uint64_t core) {
    (void)core;
    static const struct nanopu_thread threads[] = {{0, 1, behaved}, {1, 1, misbehaving}};
    nanopu_run_threads(threads, 2);
}
