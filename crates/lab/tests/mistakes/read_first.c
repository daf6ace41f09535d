/* Reads before it has made any context known. */
#include "nanopu.h"

__attribute__((noinline)) uint64_t too_early(void) { return nanopu_read(); }

int nanopu_main(uint64_t core) {
    (void)core;
    if (too_early() != 0) return 3;
    nanopu_add_context(0, 0);
    for (;;) {
        nanopu_wait();
        uint64_t header = nanopu_read();
        nanopu_write(header);
        for (int64_t left = nanopu_words(header); left > 0; left--) nanopu_copy();
        nanopu_done();
    }
}
