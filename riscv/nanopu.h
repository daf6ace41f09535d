/* The nanoPU's network as a program sees it: two registers and ten CSRs.
 *
 * Compile with -ffixed-x30 -ffixed-x31. Reading x30 takes the next word of the current context's messages; writing x31
 * sends one. The first word of a message, in either direction, is its header:
 *
 *   63..32 the peer's IPv4 address · 31..16 the peer's context · 15..0 bytes that follow
 *
 * Words are eight bytes, most significant byte first on the wire. Reading x30 while nothing is there gives zero, unless the program
 * has asked that reads wait (nanopu_block_reads). */
#ifndef NANOPU_H
#define NANOPU_H

#include <stdint.h>

#define NANOPU_MESSAGES_READY 0x52
#define NANOPU_CURRENT_CONTEXT 0x53
#define NANOPU_NIC_COMMAND 0x54
#define NANOPU_CURRENT_PRIORITY 0x55
#define NANOPU_THREAD_COMMAND 0x56
#define NANOPU_NIC_READY 0x57
#define NANOPU_TARGET_CONTEXT 0x58
#define NANOPU_TARGET_PRIORITY 0x59
#define NANOPU_MESSAGE_CYCLES 0x60
#define NANOPU_IDLE_CYCLES 0x61
/* Where the current context's thread begins, in a bank of registers of its own; only where NANOPU_NIC_READY shows NANOPU_HAS_BANKS. */
#define NANOPU_THREAD_ENTRY 0x62

/* Bits of NANOPU_NIC_READY beyond the first: reads of x30 can wait on this core; threads have banks of registers; reads do wait. */
#define NANOPU_CAN_BLOCK 2
#define NANOPU_HAS_BANKS 4
#define NANOPU_BLOCKS 8

#define nanopu_csr_write(number, value) __asm__ volatile("csrw %0, %1" ::"i"(number), "rK"(value) : "memory")
#define nanopu_csr_read(number)                                              \
    ({                                                                       \
        uint64_t value_;                                                     \
        __asm__ volatile("csrr %0, %1" : "=r"(value_) : "i"(number) : "memory"); \
        value_;                                                              \
    })

/* The next word. */
static inline __attribute__((always_inline)) uint64_t nanopu_read(void) {
    uint64_t word;
    __asm__ volatile("mv %0, x30" : "=r"(word)::"memory");
    return word;
}

/* From now on a read of x30 on this core waits until there is a word, and the thread counts as idle meanwhile: it needs neither
 * nanopu_wait nor a look at NANOPU_MESSAGES_READY. An interrupt is taken in the middle of the wait, and the read comes again behind it.
 * Only where the node has it (NodeConfig::blocking_reads); says whether. */
static inline int nanopu_block_reads(void) {
    uint64_t state;
    /* The dependent instruction keeps the next read behind the command. */
    __asm__ volatile("csrwi %1, 8\n\tcsrr %0, %2\n\tandi %0, %0, %3"
                     : "=r"(state)
                     : "i"(NANOPU_NIC_COMMAND), "i"(NANOPU_NIC_READY), "i"(NANOPU_BLOCKS)
                     : "memory");
    return state != 0;
}

/* Whether reads wait. */
static inline int nanopu_reads_block(void) { return (nanopu_csr_read(NANOPU_NIC_READY) & NANOPU_BLOCKS) != 0; }

/* The next word, as soon as there is one; behind nanopu_block_reads. */
static inline __attribute__((always_inline)) uint64_t nanopu_read_blocking(void) { return nanopu_read(); }

/* Sends a word. */
static inline __attribute__((always_inline)) void nanopu_write(uint64_t word) {
    __asm__ volatile("mv x31, %0" ::"r"(word) : "memory");
}

/* Sends the next word on, without a stop in a register. */
static inline __attribute__((always_inline)) void nanopu_copy(void) {
    __asm__ volatile("mv x31, x30" ::: "memory");
}

/* Takes the next word into memory. */
static inline __attribute__((always_inline)) void nanopu_store(uint64_t *to) {
    __asm__ volatile("sd x30, %0" : "=m"(*to));
}

/* Sends a word from memory. */
static inline __attribute__((always_inline)) void nanopu_load(const uint64_t *from) {
    __asm__ volatile("ld x31, %0" ::"m"(*from));
}

/* Makes a context known to the NIC and runs as it. Priority 0 is the most urgent. */
static inline void nanopu_add_context(uint64_t context, uint64_t priority) {
    nanopu_csr_write(NANOPU_CURRENT_CONTEXT, context);
    nanopu_csr_write(NANOPU_CURRENT_PRIORITY, priority);
    nanopu_csr_write(NANOPU_NIC_COMMAND, 1);
}

/* Sends the next two, four, or sixteen words on. */
static inline __attribute__((always_inline)) void nanopu_copy_2(void) { nanopu_copy(); nanopu_copy(); }
static inline __attribute__((always_inline)) void nanopu_copy_4(void) { nanopu_copy_2(); nanopu_copy_2(); }
static inline __attribute__((always_inline)) void nanopu_copy_16(void) {
    nanopu_copy_4(); nanopu_copy_4(); nanopu_copy_4(); nanopu_copy_4();
}

/* Takes the next words into memory, or throws them away. */
static inline void nanopu_take(uint64_t *to, int64_t words) {
    for (; words >= 8; words -= 8, to += 8) {
        nanopu_store(to), nanopu_store(to + 1), nanopu_store(to + 2), nanopu_store(to + 3);
        nanopu_store(to + 4), nanopu_store(to + 5), nanopu_store(to + 6), nanopu_store(to + 7);
    }
    for (; words > 0; words--) nanopu_store(to++);
}
static inline void nanopu_skip(int64_t words) {
    for (; words > 0; words--) nanopu_read();
}

/* Sends words from memory. */
static inline void nanopu_give(const uint64_t *from, int64_t words) {
    for (; words >= 8; words -= 8, from += 8) {
        nanopu_load(from), nanopu_load(from + 1), nanopu_load(from + 2), nanopu_load(from + 3);
        nanopu_load(from + 4), nanopu_load(from + 5), nanopu_load(from + 6), nanopu_load(from + 7);
    }
    for (; words > 0; words--) nanopu_load(from++);
}

/* Waits until words are there for the current context, and says each time round that there is nothing to do. */
static inline __attribute__((always_inline)) void nanopu_wait(void) {
    while (nanopu_csr_read(NANOPU_MESSAGES_READY) == 0) nanopu_csr_write(NANOPU_THREAD_COMMAND, 2);
}

/* The message is done: the NIC may give this core the next one. */
static inline __attribute__((always_inline)) void nanopu_done(void) { nanopu_csr_write(NANOPU_THREAD_COMMAND, 1); }

static inline uint64_t nanopu_header(uint32_t peer, uint16_t context, uint16_t bytes) {
    return (uint64_t)peer << 32 | (uint64_t)context << 16 | bytes;
}
static inline __attribute__((always_inline)) uint64_t nanopu_bytes(uint64_t header) { return header & 0xffff; }
/* Words of payload that follow the header; the last may be filled up. */
static inline __attribute__((always_inline)) int64_t nanopu_words(uint64_t header) {
    return (int64_t)((nanopu_bytes(header) + 7) / 8);
}
/* The header of an answer of so many words to a message with `header`. */
static inline __attribute__((always_inline)) uint64_t nanopu_answer(uint64_t header, uint64_t words) {
    return (header & ~0xffffUL) | words * 8;
}
static inline uint16_t nanopu_context(uint64_t header) { return (uint16_t)(header >> 16); }
static inline uint32_t nanopu_peer(uint64_t header) { return (uint32_t)(header >> 32); }

static inline uint64_t nanopu_cycle(void) {
    uint64_t cycle;
    __asm__ volatile("csrr %0, mcycle" : "=r"(cycle)::"memory");
    return cycle;
}

/* This core's number. */
static inline uint64_t nanopu_core(void) {
    uint64_t core;
    __asm__ volatile("csrr %0, mhartid" : "=r"(core));
    return core;
}

/* Stops this core. The others go on. */
static inline __attribute__((noreturn)) void nanopu_park(void) {
    for (;;) __asm__ volatile("wfi");
}

/* Ends the program of all cores. */
void nanopu_exit(int code) __attribute__((noreturn));

/* What each core runs. */
int nanopu_main(uint64_t core);

/* Runs `thread(context)` as a thread of this core; see threads.c. Returns nowhere: the scheduler takes over. Where threads have banks of
 * registers the core switches between them by itself, otherwise the scheduler's interrupt does. */
struct nanopu_thread {
    uint64_t context;
    uint64_t priority;
    void (*run)(uint64_t context);
};
void nanopu_run_threads(const struct nanopu_thread *threads, int count) __attribute__((noreturn));

/* The same with the switch of the published measurements, which does more; see threads_published.S. Contexts are 0 to 3. If
 * `is_sliced`, threads change places only when a slice of the timer, five ticks, is over: the baseline of those measurements. */
void nanopu_run_as_published(const struct nanopu_thread *threads, int count, int is_sliced) __attribute__((noreturn));

#endif
