/* Sends every message back to where it came from. */
#include "copy.h"

int nanopu_main(uint64_t core) {
    (void)core;
    nanopu_add_context(0, 0);
    for (;;) {
        nanopu_wait();
        uint64_t header = nanopu_read();
        nanopu_write(header);
        send_words((uint64_t)nanopu_words(header), 0);
        nanopu_done();
    }
}
