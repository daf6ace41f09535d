/* The dot product of dot.h for a DMA NIC: what a request and its answer are, without the product. */
#ifndef DOT_DMA_H
#define DOT_DMA_H

#include "dma.h"
#include "dot.h"

/* `sum` of a message's words and as many of memory. */
static inline __attribute__((always_inline)) uint64_t dot_dma_answer(uint8_t *frame, uint64_t bytes,
                                                                     uint64_t (*sum)(const uint64_t *words, int64_t count)) {
    int64_t message = dma_message_bytes(frame, bytes);
    if (message < 0) return 0;
    uint64_t *words = dma_payload(frame);
    uint64_t answer_bytes = 8;
    if (message % 8 || message / 8 > DOT_WORDS_MAX) {
        words[0] = dma_word(STATUS_MALFORMED);
    } else {
        words[1] = dma_word(sum(words, message / 8));
        words[0] = dma_word(STATUS_OK);
        answer_bytes = 16;
    }
    dma_turn(frame);
    return dma_resize(frame, answer_bytes);
}

static inline __attribute__((always_inline, noreturn)) void dot_dma_serve(uint64_t (*answer)(uint8_t *, uint64_t)) {
    for (int i = 0; i < DOT_WORDS_MAX; i++) dot_weights[i] = 2 * i + 1;
    dma_serve(answer);
}

#endif
