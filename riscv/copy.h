/* Sends the words of a message on as fast as they can be: a word a cycle. */
#ifndef COPY_H
#define COPY_H

#include "nanopu.h"

#define COPY(words) __asm__ volatile(".rept " #words "\n c.mv x31, x30\n .endr" ::: "memory")

/* By powers of two, so that nothing is a loop; the short ones first. */
static inline __attribute__((always_inline)) void copy_words(uint64_t words) {
    if (words & 2) COPY(2);
    if (words & 1) COPY(1);
    if (words & 4) COPY(4);
    if (words >= 8) {
        if (words & 8) COPY(8);
        if (words & 16) COPY(16);
        if (words & 32) COPY(32);
        if (words & 64) COPY(64);
        if (words & 128) COPY(128);
        for (; words >= 256; words -= 256) COPY(256);
    }
}

#endif
