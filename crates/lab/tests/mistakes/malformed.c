/* Answers the first words of requests with what is wrong: 0 nothing, 1 a header that says too much, 2 a message of no bytes, 3 a word
 * too few, 4 a word too many, 5 more words than the queue behind x31 holds. */
#include "nanopu.h"

__attribute__((noinline)) void answer(uint64_t header, uint64_t kind) {
    uint64_t peer = header & ~0xffffUL;
    switch (kind) {
    case 1:
        nanopu_write(peer | 4096);
        break;
    case 2:
        nanopu_write(peer);
        break;
    case 3:
        nanopu_write(peer | 16);
        nanopu_write(kind);
        break;
    case 4:
        nanopu_write(peer | 8);
        nanopu_write(kind);
        nanopu_write(kind);
        break;
    default:
        nanopu_write(peer | 8);
        nanopu_write(kind);
    }
}

int nanopu_main(uint64_t core) {
    (void)core;
    nanopu_add_context(0, 0);
    for (;;) {
        nanopu_wait();
        uint64_t header = nanopu_read();
        uint64_t kind = nanopu_read();
        nanopu_skip(nanopu_words(header) - 1);
        answer(header, kind);
        nanopu_done();
    }
}
