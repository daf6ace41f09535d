/* Sends one message, of a kibibyte unless BYTES says otherwise, to 10.0.0.1 at a cycle on which all clients agree. */
#include "nanopu.h"

#define SERVER 0x0a000001
#define BEGIN_CYCLE 20000
#ifndef BYTES
#define BYTES 1024
#endif

int nanopu_main(uint64_t core) {
    if (core == 0) {
        nanopu_add_context(0, 0);
        while (nanopu_cycle() < BEGIN_CYCLE) {
        }
        nanopu_write(nanopu_header(SERVER, 0, BYTES));
        for (uint64_t word = 0; word < BYTES / 8; word++) nanopu_write(word);
    }
    for (;;) {
    }
}
