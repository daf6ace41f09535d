/* Sends every frame back to where it came from; for a DMA NIC. What is too short to have all three headers is not answered. */
#include "dma.h"

static inline __attribute__((always_inline)) uint64_t answer(uint8_t *frame, uint64_t bytes) {
    if (bytes < DMA_HEADER_BYTES) return 0;
    dma_turn(frame);
    return bytes;
}

int nanopu_main(uint64_t core) {
    if (core > 0) nanopu_park();
    dma_serve(answer);
}
