/* Adds one to each word of a message and sends them back. Bytes behind the last whole word come back as they are. */
#include "nanopu.h"

static inline __attribute__((always_inline)) void add_1(void) { __asm__ volatile("addi x31, x30, 1"); }
static inline __attribute__((always_inline)) void add_4(void) { add_1(), add_1(), add_1(), add_1(); }

int nanopu_main(uint64_t core) {
    (void)core;
    nanopu_add_context(0, 0);
    for (;;) {
        nanopu_wait();
        uint64_t header = nanopu_read();
        nanopu_write(header);
        int64_t bytes = (int64_t)nanopu_bytes(header);
        for (; bytes >= 128; bytes -= 128) add_4(), add_4(), add_4(), add_4();
        for (; bytes >= 32; bytes -= 32) add_4();
        for (; bytes >= 8; bytes -= 8) add_1();
        if (bytes > 0) nanopu_copy();
        nanopu_done();
    }
}
