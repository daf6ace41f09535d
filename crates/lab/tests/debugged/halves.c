/* Adds up, halves a number five times, and on core 0 stores to where there is no memory. The other cores only count. */
#include "nanopu.h"

volatile uint64_t counters[4];
volatile double number = 10;

__attribute__((noinline)) double half(double x) { return x / 2; }

int nanopu_main(uint64_t core) {
    for (uint64_t i = 0; i < 5; i++) {
        counters[core] += i;
        if (core == 0) number = half(number);
    }
    while (core != 0) counters[core]++;
    asm volatile("sd zero, 16(zero)");
    return 0;
}
