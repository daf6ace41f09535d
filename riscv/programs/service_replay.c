/* The two threads of service.c as careful as the program of the published recordings, under its thread switch: each message's sender
 * and length are checked, and whether it ends the run, or one in so many takes longer. */
#include "nanopu.h"

#define GENERATOR 0x0a000001
#define WRONG_SENDER 1
#define WRONG_LENGTH 2

/* Switched off in the recordings; the program that made them could stall context 1. */
static volatile uint64_t stall_is_on, stall_factor = 10, stall_after = 100;

/* nanopu_wait as the published programs have it, four instructions and six cycles a turn: compilers find a shorter loop. */
static inline __attribute__((always_inline)) void wait(void) {
    uint64_t ready;
    __asm__ volatile("1: csrr %0, %1\n"
                     "   bnez %0, 2f\n"
                     "   csrw %2, 2\n"
                     "   j 1b\n"
                     "2:"
                     : "=&r"(ready)
                     : "i"(NANOPU_MESSAGES_READY), "i"(NANOPU_THREAD_COMMAND)
                     : "memory");
}

static void work(uint64_t context) {
    const uint64_t stalls = stall_is_on, factor = stall_factor, after = stall_after;
    uint64_t since_stall = 0;
    for (;;) {
        wait();
        uint64_t header = nanopu_read();
        if (nanopu_peer(header) != GENERATOR) nanopu_exit(WRONG_SENDER);
        if (nanopu_bytes(header) != 16) nanopu_exit(WRONG_LENGTH);
        uint64_t work = nanopu_read();
        uint64_t stamp = nanopu_read();
        if (work == ~0UL) nanopu_exit(0);
        if (stalls && context == 1) {
            if (since_stall >= after) {
                since_stall = 0;
                work *= factor;
            } else {
                since_stall++;
            }
        }
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
    nanopu_run_as_published(threads, 2);
}
