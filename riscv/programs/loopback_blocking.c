/* Sends every message back to where it came from, as loopback.c does, but waits for it in the read of its header. On a node whose reads
 * do not wait it polls. */
#include "nanopu.h"

static inline __attribute__((always_inline)) void serve(int blocks) {
    for (;;) {
        if (!blocks) nanopu_wait();
        uint64_t header = nanopu_read_blocking();
        nanopu_write(header);
        int64_t bytes = (int64_t)nanopu_bytes(header);
        for (; bytes > 128; bytes -= 128) nanopu_copy_16();
        for (; bytes >= 32; bytes -= 32) nanopu_copy_4();
        if (bytes >= 16) {
            nanopu_copy_2();
            bytes -= 16;
        }
        if (bytes > 0) nanopu_copy();
        if (bytes > 8) nanopu_copy();
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
