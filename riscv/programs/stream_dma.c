/* Adds one to each word of a message and sends them back; for a DMA NIC. Bytes behind the last whole word come back as they are. */
#include "dma.h"

static inline __attribute__((always_inline)) uint64_t answer(uint8_t *frame, uint64_t bytes) {
    int64_t message = dma_message_bytes(frame, bytes);
    if (message < 0) return 0;
    uint64_t *words = dma_payload(frame);
    for (int64_t i = 0; i < message / 8; i++) words[i] = dma_word(dma_word(words[i]) + 1);
    dma_turn(frame);
    return bytes;
}

int nanopu_main(uint64_t core) {
    if (core > 0) nanopu_park();
    dma_serve(answer);
}
