/* A handler that does not return. */
#include "nanopu.h"

__attribute__((aligned(4))) static void handler(void) {
    for (;;) {
    }
}

__attribute__((noinline)) void fault(volatile uint64_t *nowhere) { *nowhere = 1; }

int nanopu_main(uint64_t core) {
    (void)core;
    __asm__ volatile("csrw mtvec, %0" ::"r"(handler));
    nanopu_add_context(0, 0);
    nanopu_wait();
    fault((uint64_t *)0x10);
    return 0;
}
