/* Makes five contexts known on a core that has room for four. */
#include "nanopu.h"

__attribute__((noinline)) void add(uint64_t context) { nanopu_add_context(context, 0); }

int nanopu_main(uint64_t core) {
    (void)core;
    for (uint64_t context = 5; context-- > 0;) add(context);
    nanopu_csr_write(NANOPU_CURRENT_CONTEXT, 4);
    for (;;) {
        nanopu_wait();
        uint64_t header = nanopu_read();
        nanopu_write(header);
        for (int64_t left = nanopu_words(header); left > 0; left--) nanopu_copy();
        nanopu_done();
    }
}
