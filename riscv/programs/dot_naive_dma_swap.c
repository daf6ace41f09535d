/* dot_naive_dma for words in the network's order. */
#define DMA_NETWORK_ORDER
#include "dot_naive_dma.c"
