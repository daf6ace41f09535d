/* Work on request: messages of two words, how long to work, in cycles, and a time stamp; both come back. Any other length gets a status.
 *
 * The work is a spin on the cycle counter, so a thread that loses the core keeps "working": wall-clock time counts, as in the
 * programs of the published measurements. */
#ifndef SERVE_H
#define SERVE_H

#include "status.h"

/* Serves the current context for ever; after `stall_after` messages one takes ten times as long, none if that is 0. */
static inline __attribute__((always_inline)) void serve(uint64_t stall_after) {
    uint64_t count = 0;
    for (;;) {
        nanopu_wait();
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

#endif
