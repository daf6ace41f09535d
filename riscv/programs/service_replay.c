/* The two threads of service.c as careful as the program of the published recordings: each message's sender and length are checked,
 * and a switch of threads sets the timer as well. */
#include "nanopu.h"

#define GENERATOR 0x0a000001

static void work(uint64_t context) {
    (void)context;
    for (;;) {
        nanopu_wait();
        uint64_t header = nanopu_read();
        if (nanopu_peer(header) != GENERATOR) nanopu_exit(1);
        if (nanopu_bytes(header) != 16) nanopu_exit(2);
        uint64_t work = nanopu_read();
        uint64_t stamp = nanopu_read();
        if (work == ~0UL) nanopu_exit(0);
        uint64_t begin = nanopu_cycle();
        while (nanopu_cycle() < begin + work) {
        }
        nanopu_write(header);
        nanopu_write(work);
        nanopu_write(stamp);
        nanopu_done();
    }
}

int nanopu_main(uint64_t core) {
    if (core != 0) return 0;
    static const struct nanopu_thread threads[] = {{0, 0, work}, {1, 1, work}};
    nanopu_run_rearming(threads, 2, 5);
}
