/* stream_dma for words in the network's order. */
#define DMA_NETWORK_ORDER
#include "stream_dma.c"
