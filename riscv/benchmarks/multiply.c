// Multiplication by shifts and additions: a branch on every bit.
#include "benchmark.h"

static int __attribute__((noinline)) product(unsigned a, int b) {
    int sum = 0;
    for (int bit = 0; bit < 32; bit++, a >>= 1, b <<= 1)
        if (a & 1) sum += b;
    return sum;
}

int main(void) {
    int sum = 0;
    for (int i = 0; i < 60; i++) sum += product((unsigned)i * 37, i * 91 + 5);
    return sum;
}
