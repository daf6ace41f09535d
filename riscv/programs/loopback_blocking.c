/* Sends every message back to where it came from, as loopback.c does, but waits for it in the read of its header. On a node whose reads
 * do not wait it polls. */
#include "copy.h"

static inline __attribute__((always_inline)) void serve(int blocks) {
    for (;;) {
        if (!blocks) nanopu_wait();
        uint64_t header = nanopu_read_blocking();
        nanopu_write(header);
        send_words((uint64_t)nanopu_words(header), 0);
        nanopu_done();
    }
}

int nanopu_main(uint64_t core) {
    (void)core;
    nanopu_add_context(0, 0);
    if (nanopu_block_reads()) serve(1);
    serve(0);
    return 0;
}
