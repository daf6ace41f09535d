/* Reads every message to its end and says nothing. */
#include "nanopu.h"

int nanopu_main(uint64_t core) {
    (void)core;
    nanopu_add_context(0, 0);
    for (;;) {
        nanopu_wait();
        for (int64_t left = (int64_t)nanopu_bytes(nanopu_read()); left > 0; left -= 8) nanopu_read();
        nanopu_done();
    }
}
