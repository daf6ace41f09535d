/* The dot product of the words of a message and as many words of memory, modulo 2^64.
 *
 *   request: up to 256 words     answer: status · sum
 *
 * Word i of memory is 2 i + 1. A message with a part of a word in it is malformed. */
#ifndef DOT_H
#define DOT_H

#include "status.h"

#define DOT_WORDS_MAX 256

static uint64_t dot_weights[DOT_WORDS_MAX];

static inline void dot_answer(uint64_t header, uint64_t sum) {
    nanopu_write(nanopu_answer(header, 2));
    nanopu_write(STATUS_OK);
    nanopu_write(sum);
}

static inline __attribute__((noreturn)) void dot_serve(void (*serve)(uint64_t header, int64_t words)) {
    for (int i = 0; i < DOT_WORDS_MAX; i++) dot_weights[i] = 2 * i + 1;
    nanopu_add_context(0, 0);
    for (;;) {
        nanopu_wait();
        uint64_t header = nanopu_read();
        int64_t words = nanopu_words(header);
        if (nanopu_bytes(header) % 8 || words > DOT_WORDS_MAX) {
            refuse(header, words, STATUS_MALFORMED);
        } else {
            serve(header, words);
        }
        nanopu_done();
    }
}

#endif
