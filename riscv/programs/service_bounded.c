/* Two threads of priority 0, of which context 1 takes ten times as long once in a hundred messages: the bound on processing time
 * demotes it, and context 0 goes on. */
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
    static const struct nanopu_thread threads[] = {{0, 0, behaved}, {1, 0, misbehaving}};
    nanopu_run_threads(threads, 2);
}
