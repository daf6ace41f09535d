/* Sleeps until its timer wakes it, three times; longer than any instruction takes. */
#include "nanopu.h"

int nanopu_main(uint64_t core) {
    (void)core;
    volatile uint64_t *alarm = (volatile uint64_t *)0x2004000, *clock = (volatile uint64_t *)0x200bff8;
    __asm__ volatile("csrs mie, %0" ::"r"(1UL << 7));
    for (int times = 0; times < 3; times++) {
        uint64_t due = *clock + 2000;
        *alarm = due;
        __asm__ volatile("wfi" ::: "memory");
        if (*clock < due) return 1;
        *alarm = ~0UL;
    }
    return 0;
}
