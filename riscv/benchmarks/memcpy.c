// A copy of more than the data cache holds: misses and lines written back.
#include "benchmark.h"

#define WORDS 4000

static long from[WORDS], to[WORDS];

int main(void) {
    for (int i = 0; i < WORDS; i++) from[i] = i;
    for (int i = 0; i < WORDS; i++) to[i] = from[i];
    long sum = 0;
    for (int i = 0; i < WORDS; i++) sum += to[i];
    return (int)sum;
}
