/* The baseline: a NIC that moves frames between the wire and memory. For nodes with a DMA NIC instead of the nanoPU's network;
 * x30 and x31 are ordinary registers there.
 *
 * A program posts receive buffers, polls counts of completions, and posts frames to send. There is no transport: a frame that the
 * NIC has no room for is lost. Each access to a queue looks at its count first, as drivers of the public IceNIC do.
 *
 *   Ethernet 14 · IPv4 20, protocol 0x99 · LNIC 30 · payload from byte 64 on */
#ifndef DMA_H
#define DMA_H

#include "nanopu.h"

#define DMA_BASE 0x10016000UL
#define DMA_SEND_REQUEST (DMA_BASE + 0x00)
#define DMA_RECEIVE_REQUEST (DMA_BASE + 0x08)
#define DMA_SEND_COMPLETION (DMA_BASE + 0x10)
#define DMA_RECEIVE_COMPLETION (DMA_BASE + 0x12)
#define DMA_COUNTS (DMA_BASE + 0x14)

#define DMA_HEADER_BYTES 64
/* A frame with a message of 2,048 bytes: whole lines. */
#define DMA_FRAME_BYTES 2112
/* A power of two. */
#define DMA_BUFFERS 32

#define dma_register(bits, address) (*(volatile uint##bits##_t *)(address))

static inline __attribute__((always_inline)) uint32_t dma_counts(void) { return dma_register(32, DMA_COUNTS); }
static inline uint32_t dma_send_room(uint32_t counts) { return counts & 0xff; }
static inline uint32_t dma_receive_room(uint32_t counts) { return counts >> 8 & 0xff; }
static inline uint32_t dma_sent(uint32_t counts) { return counts >> 16 & 0xff; }
static inline uint32_t dma_received(uint32_t counts) { return counts >> 24; }

/* Posts a receive buffer of DMA_FRAME_BYTES, as soon as there is room. */
static inline __attribute__((always_inline)) void dma_post_receive(void *buffer) {
    while (dma_receive_room(dma_counts()) == 0) {}
    dma_register(64, DMA_RECEIVE_REQUEST) = (uint64_t)DMA_FRAME_BYTES << 48 | (uint64_t)buffer;
}

/* Posts a frame to send, as soon as there is room. */
static inline __attribute__((always_inline)) void dma_post_send(const void *frame, uint64_t bytes) {
    while (dma_send_room(dma_counts()) == 0) {}
    __asm__ volatile("fence w, o" ::: "memory");
    dma_register(64, DMA_SEND_REQUEST) = bytes << 48 | (uint64_t)frame;
}

/* Takes the completion of a receive that is there. The frame's bytes. */
static inline __attribute__((always_inline)) uint64_t dma_take_received(void) {
    uint64_t bytes = dma_register(16, DMA_RECEIVE_COMPLETION);
    __asm__ volatile("fence i, r" ::: "memory");
    return bytes;
}

/* Takes the completion of a send that is there. */
static inline __attribute__((always_inline)) void dma_take_sent(void) { (void)dma_register(16, DMA_SEND_COMPLETION); }

/* Exchanges sender and receiver in all three headers. */
static inline __attribute__((always_inline)) void dma_turn(uint8_t *frame) {
    uint16_t *half = (uint16_t *)frame;
    for (int i = 0; i < 3; i++) {
        uint16_t destination = half[i];
        half[i] = half[i + 3];
        half[i + 3] = destination;
    }
    for (int i = 13; i < 15; i++) {
        uint16_t source = half[i];
        half[i] = half[i + 2];
        half[i + 2] = source;
    }
    for (int i = 35; i < 37; i++) {
        uint8_t source = frame[i];
        frame[i] = frame[i + 2];
        frame[i + 2] = source;
    }
}

/* Bytes of the message in a frame of `bytes`, all of it in this frame; -1 if it is none of ours, or not whole. */
static inline __attribute__((always_inline)) int64_t dma_message_bytes(const uint8_t *frame, uint64_t bytes) {
    if (bytes < DMA_HEADER_BYTES) return -1;
    int64_t message = frame[39] << 8 | frame[40];
    int is_data = frame[23] == 0x99 && frame[34] == 1;
    return is_data && bytes == (uint64_t)message + DMA_HEADER_BYTES ? message : -1;
}

/* Makes the message in a frame so many bytes long. The bytes of the frame. */
static inline __attribute__((always_inline)) uint64_t dma_resize(uint8_t *frame, uint64_t message) {
    uint64_t ip = message + DMA_HEADER_BYTES - 14;
    frame[16] = (uint8_t)(ip >> 8), frame[17] = (uint8_t)ip;
    frame[39] = (uint8_t)(message >> 8), frame[40] = (uint8_t)message;
    return message + DMA_HEADER_BYTES;
}

/* Words of the payload. */
static inline __attribute__((always_inline)) uint64_t *dma_payload(uint8_t *frame) {
    return (uint64_t *)(frame + DMA_HEADER_BYTES);
}

/* The words of messages are most significant byte first, and a core of this kind least significant byte first. The prototype's core
 * has an instruction that exchanges a word's bytes, in one cycle; this one has none. So programs come in two kinds: for words in the
 * core's order, which need nothing, and with DMA_NETWORK_ORDER for words in the network's, exchanged here. */
static inline __attribute__((always_inline)) uint64_t dma_word(uint64_t word) {
#ifdef DMA_NETWORK_ORDER
    const uint64_t bytes = 0x00ff00ff00ff00ffUL, halves = 0x0000ffff0000ffffUL;
    word = (word & bytes) << 8 | (word >> 8 & bytes);
    word = (word & halves) << 16 | (word >> 16 & halves);
    word = word << 32 | word >> 32;
#endif
    return word;
}

static uint8_t dma_buffers[DMA_BUFFERS][DMA_FRAME_BYTES] __attribute__((aligned(64)));

/* Serves frames for ever. `answer` turns a frame of so many bytes into its answer, and says how many bytes that has, or zero if there is
 * none. Buffers go back to the NIC when their frames are sent. */
static inline __attribute__((always_inline, noreturn)) void dma_serve(uint64_t (*answer)(uint8_t *frame, uint64_t bytes)) {
    uint8_t *posted[DMA_BUFFERS], *sending[DMA_BUFFERS];
    uint64_t first_posted = 0, end_posted = 0, first_sending = 0, end_sending = 0;
    for (int i = 0; i < DMA_BUFFERS; i++) {
        dma_post_receive(dma_buffers[i]);
        posted[end_posted++ % DMA_BUFFERS] = dma_buffers[i];
    }
    for (;;) {
        uint32_t counts = dma_counts();
        uint8_t *free = 0;
        if (dma_received(counts)) {
            uint64_t bytes = dma_take_received();
            uint8_t *frame = posted[first_posted++ % DMA_BUFFERS];
            uint64_t answer_bytes = answer(frame, bytes);
            if (answer_bytes) {
                dma_post_send(frame, answer_bytes);
                sending[end_sending++ % DMA_BUFFERS] = frame;
            } else {
                free = frame;
            }
        }
        if (free == 0 && dma_sent(counts)) {
            dma_take_sent();
            free = sending[first_sending++ % DMA_BUFFERS];
        }
        if (free) {
            dma_post_receive(free);
            posted[end_posted++ % DMA_BUFFERS] = free;
        }
    }
}

#endif
