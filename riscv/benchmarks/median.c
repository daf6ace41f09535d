// A median filter of three over pseudo-random numbers: branches that nobody can predict.
#include "benchmark.h"

#define COUNT 500

static int samples[COUNT], smoothed[COUNT];

static int median(int a, int b, int c) {
    if (a < b) return b < c ? b : c < a ? a : c;
    return a < c ? a : c < b ? b : c;
}

int main(void) {
    unsigned random = 7;
    for (int i = 0; i < COUNT; i++) samples[i] = (int)(next(&random) >> 16) % 1000;
    for (int i = 1; i < COUNT - 1; i++) smoothed[i] = median(samples[i - 1], samples[i], samples[i + 1]);
    return sum_of(smoothed, COUNT);
}
