/* Traps where no handler is. */
#include "nanopu.h"

__attribute__((noinline)) void fault(volatile uint64_t *nowhere) { *nowhere = 1; }

int nanopu_main(uint64_t core) {
    (void)core;
    __asm__ volatile("csrw mtvec, zero");
    fault((uint64_t *)0x10);
    return 0;
}
