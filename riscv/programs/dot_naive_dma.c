/* The dot product for a DMA NIC, a word at a time. See dot.h. */
#include "dot_dma.h"

static inline __attribute__((always_inline)) uint64_t sum(const uint64_t *words, int64_t count) {
    uint64_t sum = 0;
    for (int64_t i = 0; i < count; i++) sum += dma_word(words[i]) * dot_weights[i];
    return sum;
}

static inline __attribute__((always_inline)) uint64_t answer(uint8_t *frame, uint64_t bytes) {
    return dot_dma_answer(frame, bytes, sum);
}

int nanopu_main(uint64_t core) {
    if (core > 0) nanopu_park();
    dot_dma_serve(answer);
}
