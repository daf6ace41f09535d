/* Every core serves requests of context 0: how long to work, in cycles, and a time stamp; both come back. */
#include "nanopu.h"

int nanopu_main(uint64_t core) {
    (void)core;
    nanopu_add_context(0, 0);
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
