/* Sends every message back to where it came from. */
#include "nanopu.h"

int nanopu_main(uint64_t core) {
    (void)core;
    nanopu_add_context(0, 0);
    for (;;) {
        nanopu_wait();
        uint64_t header = nanopu_read();
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
