/* Two threads serve requests of two words, how long to work and a time stamp, and send both back.
 *
 * The work is a spin on the cycle counter, so a thread that loses the core keeps "working": wall-clock time counts. Context 0 has
 * priority 0, context 1 priority 1. */
#include "nanopu.h"

static void serve(uint64_t context) {
    (void)context;
    for (;;) {
        nanopu_wait();
        uint64_t header = nanopu_read();
        uint64_t work = nanopu_read();
        uint64_t end = nanopu_cycle() + work;
        uint64_t stamp = nanopu_read();
        while (nanopu_cycle() < end) {
        }
        nanopu_write(header);
        nanopu_write(work);
        nanopu_write(stamp);
        nanopu_done();
    }
}

int nanopu_main(uint64_t core) {
    (void)core;
    static const struct nanopu_thread threads[] = {{0, 0, serve}, {1, 1, serve}};
    nanopu_run_threads(threads, 2);
}
