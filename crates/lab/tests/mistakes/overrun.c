/* Sends messages to a peer that never answers, until the NIC has no buffer for more, and then goes on. */
#include "nanopu.h"

__attribute__((noinline)) void send(uint64_t header) {
    nanopu_write(header);
    nanopu_write(header);
}

int nanopu_main(uint64_t core) {
    (void)core;
    nanopu_add_context(0, 0);
    for (int message = 0; message < 400; message++) send(nanopu_header(0x0a000063, 9, 8));
    for (;;) nanopu_wait();
}
