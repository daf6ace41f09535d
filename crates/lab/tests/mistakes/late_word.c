/* Ends its answer with a quotient, and declares it done at once, which is right. For the first word 1 it also takes another thread's
 * name while the divider still works. */
#include "nanopu.h"

__attribute__((noinline)) void divide(uint64_t a, uint64_t b) { asm volatile("divu x31, %0, %1" ::"r"(a), "r"(b)); }

int nanopu_main(uint64_t core) {
    (void)core;
    nanopu_add_context(1, 0);
    nanopu_add_context(0, 0);
    for (;;) {
        nanopu_wait();
        uint64_t header = nanopu_read();
        uint64_t kind = nanopu_read();
        nanopu_skip(nanopu_words(header) - 1);
        uint64_t peer = header & ~0xffffUL;
        nanopu_write(peer | 8);
        /* A program that takes the quotient for a header finds a peer and eight bytes. */
        divide((peer | 8) * 3, 3);
        if (kind == 1) {
            nanopu_csr_write(NANOPU_CURRENT_CONTEXT, 1);
            /* Reading x31 waits for what is on its way there. */
            asm volatile("mv x0, x31");
            nanopu_csr_write(NANOPU_CURRENT_CONTEXT, 0);
        }
        nanopu_done();
    }
}
