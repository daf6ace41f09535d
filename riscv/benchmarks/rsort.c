// Radix sort by bytes: tables of counters, and stores that scatter.
#include "benchmark.h"

#define COUNT 1024
#define DIGITS 256

static unsigned keys[COUNT], spare[COUNT];
static unsigned starts[DIGITS];

static void sort_by(const unsigned *from, unsigned *to, int shift) {
    for (int digit = 0; digit < DIGITS; digit++) starts[digit] = 0;
    for (int i = 0; i < COUNT; i++) starts[from[i] >> shift & 255]++;
    unsigned before = 0;
    for (int digit = 0; digit < DIGITS; digit++) {
        unsigned here = starts[digit];
        starts[digit] = before;
        before += here;
    }
    for (int i = 0; i < COUNT; i++) to[starts[from[i] >> shift & 255]++] = from[i];
}

int main(void) {
    unsigned random = 3;
    for (int i = 0; i < COUNT; i++) keys[i] = next(&random);
    for (int shift = 0; shift < 32; shift += 16) {
        sort_by(keys, spare, shift);
        sort_by(spare, keys, shift + 8);
    }
    return sum_of((const int *)keys, COUNT);
}
