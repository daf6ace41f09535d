/* Work on request: messages of two words, how long to work, in cycles, and a time stamp; both come back. Any other length gets a status.
 *
 * The work is a spin on the cycle counter, so a thread that loses the core keeps "working": wall-clock time counts, as in the
 * programs of the published measurements, which published.h has step by step. */
#ifndef SERVE_H
#define SERVE_H

#include "status.h"

/* Serves the current context for ever; after `stall_after` messages one takes ten times as long, none if that is 0. `blocks` says that
 * reads wait. */
static inline __attribute__((always_inline)) void serve_as(uint64_t stall_after, int blocks) {
    uint64_t count = 0;
    for (;;) {
        if (!blocks) nanopu_wait();
        uint64_t header = nanopu_read();
        if (nanopu_bytes(header) != 16) {
            refuse(header, nanopu_words(header), STATUS_MALFORMED);
            nanopu_done();
            continue;
        }
        uint64_t work = nanopu_read();
        uint64_t cycles = work;
        if (stall_after != 0 && count++ == stall_after) {
            count = 0;
            cycles = 10 * work;
        }
        uint64_t end = nanopu_cycle() + cycles;
        uint64_t stamp = nanopu_read();
        while (nanopu_cycle() < end) {
        }
        nanopu_write(header);
        nanopu_write(work);
        nanopu_write(stamp);
        nanopu_done();
    }
}

/* The same, polling. */
static inline __attribute__((always_inline)) void serve(uint64_t stall_after) { serve_as(stall_after, 0); }

/* The same, waiting in the read of the header where reads wait. */
static inline __attribute__((always_inline)) void serve_blocking(uint64_t stall_after) {
    if (nanopu_reads_block()) serve_as(stall_after, 1);
    serve_as(stall_after, 0);
}

#endif
