/* Sleeps with its timer set, whose interrupt is not enabled. */
#include "nanopu.h"

int nanopu_main(uint64_t core) {
    (void)core;
    volatile uint64_t *alarm = (volatile uint64_t *)0x2004000, *clock = (volatile uint64_t *)0x200bff8;
    *alarm = *clock + 10;
    __asm__ volatile("wfi" ::: "memory");
    return 0;
}
