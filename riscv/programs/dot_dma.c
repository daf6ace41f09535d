/* The dot product for a DMA NIC, four words of a message at a time, as dot.c takes them. See dot.h. */
#include "dot_dma.h"

static inline __attribute__((always_inline)) uint64_t sum(const uint64_t *words, int64_t count) {
    const uint64_t *weight = dot_weights;
    uint64_t sum = 0;
    for (; count >= 4; count -= 4, weight += 4, words += 4) {
        uint64_t a = dma_word(words[0]) * weight[0], b = dma_word(words[1]) * weight[1];
        uint64_t c = dma_word(words[2]) * weight[2], d = dma_word(words[3]) * weight[3];
        sum += a + b + c + d;
    }
    for (; count > 0; count--) sum += dma_word(*words++) * *weight++;
    return sum;
}

static inline __attribute__((always_inline)) uint64_t answer(uint8_t *frame, uint64_t bytes) {
    return dot_dma_answer(frame, bytes, sum);
}

int nanopu_main(uint64_t core) {
    if (core > 0) nanopu_park();
    dot_dma_serve(answer);
}
