/* Work of every kind on request, a thread per context: numbers whole and broken, long operations, memory beyond the cache, calls, atomic
 * operations. A message is a seed and how many rounds; the answer is the seed and a sum that depends on every step, so a register that
 * one thread loses to another shows. */
#include "nanopu.h"

#define THREADS 4
#define WORDS 8192

static uint64_t tables[THREADS][WORDS];
static uint64_t shared;

static __attribute__((noinline)) uint64_t turn(uint64_t value, uint64_t depth) {
    return depth == 0 ? value << 7 | value >> 57 : turn(value ^ depth, depth - 1) + depth;
}

/* Not the library's, which there is none of here. */
static inline double root(double value) {
    __asm__("fsqrt.d %0, %0" : "+f"(value));
    return value;
}

static __attribute__((noinline)) uint64_t mix(uint64_t *table, uint64_t seed, uint64_t rounds) {
    uint64_t sum = seed;
    double broken = 1.0 + (double)(seed & 0xffff);
    for (uint64_t i = 0; i < rounds; i++) {
        seed = seed * 6364136223846793005UL + 1442695040888963407UL;
        uint64_t place = seed >> 51;
        table[place] += seed ^ i;
        sum += table[place * 7 % WORDS] / ((seed >> 20 & 0xff) | 1);
        broken = root(broken + 1.0 / (1.0 + (double)(seed >> 40 & 1023)));
        if (seed >> 33 & 1) sum = turn(sum, seed >> 34 & 3);
        if ((seed >> 44 & 7) == 0) __atomic_fetch_add(&shared, 1, __ATOMIC_RELAXED);
        sum = sum * 3 ^ (uint64_t)(broken * 1e9);
    }
    return sum;
}

static void work(uint64_t context) {
    for (;;) {
        nanopu_wait();
        uint64_t header = nanopu_read();
        uint64_t seed = nanopu_read(), rounds = nanopu_read();
        uint64_t sum = mix(tables[context], seed, rounds);
        nanopu_write(nanopu_answer(header, 2));
        /* A product goes straight to the network, some cycles after the instruction. */
        __asm__ volatile("mul x31, %0, %1" ::"r"(seed), "r"(1UL));
        nanopu_write(sum);
        nanopu_done();
    }
}

int nanopu_main(uint64_t core) {
    (void)core;
    static const struct nanopu_thread threads[THREADS] = {{0, 0, work}, {1, 1, work}, {2, 2, work}, {3, 3, work}};
    nanopu_run_threads(threads, THREADS);
}
