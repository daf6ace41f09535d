/* Sends the words of a message on as fast as they can be: a word a cycle, and little before the first. */
#ifndef COPY_H
#define COPY_H

#include "nanopu.h"

/* So many words, with the constant `addend` added to each: as many instructions, of four bytes each. */
#define SEND(words, addend)                                       \
    __asm__ volatile(".option push\n .option norvc\n"             \
                     ".rept " #words "\n addi x31, x30, %0\n .endr\n" \
                     ".option pop" ::"i"(addend)                  \
                     : "memory")

/* Sends the next `words` words on, with `addend` added to each. Up to four by branches, which cost a cycle each where the predictor knows
 * them. Beyond, behind as many whole rows of 64 as there are, by a jump into such a row: its address takes five instructions, and three
 * cycles more where the last message had another length. */
static inline __attribute__((always_inline)) void send_words(uint64_t words, const int addend) {
    if (words <= 4) {
        if (words > 1) {
            SEND(2, addend);
            if (words > 2) SEND(1, addend);
            if (words > 3) SEND(1, addend);
        } else if (words > 0) {
            SEND(1, addend);
        }
        return;
    }
    for (; words > 64; words -= 64) SEND(64, addend);
    uint64_t place;
    __asm__ volatile("la %0, 1f\n\t"
                     "sub %0, %0, %1\n\t"
                     "jr %0\n\t"
                     ".option push\n\t"
                     ".option norvc\n\t"
                     ".rept 64\n\t"
                     "addi x31, x30, %2\n\t"
                     ".endr\n\t"
                     ".option pop\n"
                     "1:"
                     : "=&r"(place)
                     : "r"(words * 4), "i"(addend)
                     : "memory");
}

#endif
