/* Work on request as the program of the published measurements does it, step by step, so that what it takes is what theirs takes. serve.h
 * does the same with less.
 *
 * Messages have two words, how long to work, in cycles, and a time stamp; both come back. The work is a spin on the cycle counter, so
 * a thread that loses the core keeps "working": wall-clock time counts. Each message's sender and length are checked, and whether it
 * ends the run; anything else ends it with a code. */
#ifndef PUBLISHED_H
#define PUBLISHED_H

#include "nanopu.h"

#define PUBLISHED_GENERATOR 0x0a000001
#define PUBLISHED_WRONG_SENDER 1
#define PUBLISHED_WRONG_LENGTH 2

/* nanopu_wait in four instructions and six cycles a turn: compilers find a shorter loop. */
static inline __attribute__((always_inline)) void published_wait(void) {
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

/* Serves `context` for ever. After `stall_after` messages, one of context 1 takes ten times as long, if `stalls`. */
static inline __attribute__((always_inline)) void published_serve(uint64_t context, uint64_t stalls, uint64_t stall_after) {
    uint64_t since_stall = 0;
    for (;;) {
        published_wait();
        uint64_t header = nanopu_read();
        if (nanopu_peer(header) != PUBLISHED_GENERATOR) nanopu_exit(PUBLISHED_WRONG_SENDER);
        if (nanopu_bytes(header) != 16) nanopu_exit(PUBLISHED_WRONG_LENGTH);
        uint64_t work = nanopu_read();
        uint64_t stamp = nanopu_read();
        if (work == ~0UL) nanopu_exit(0);
        if (stalls && context == 1) {
            if (since_stall >= stall_after) {
                since_stall = 0;
                work *= 10;
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

/* The same where the compiler does not know whether there are stalls: theirs is one program for every measurement. */
static volatile uint64_t published_stalls, published_stall_after = 100;
static __attribute__((noinline)) void published_work(uint64_t context) {
    published_serve(context, published_stalls, published_stall_after);
}

#endif
