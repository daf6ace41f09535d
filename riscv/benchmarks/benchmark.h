// What the benchmarks share. They run without a library, and end when main returns.
#pragma once

// A linear congruential generator: the same numbers on every machine.
static inline unsigned next(unsigned *random) { return *random = *random * 1664525u + 1013904223u; }

// Depends on every number, so that none of them can be optimised away.
static inline int sum_of(const int *numbers, int count) {
    int sum = 0;
    for (int i = 0; i < count; i++) sum += numbers[i] ^ i;
    return sum;
}
