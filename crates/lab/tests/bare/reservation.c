/* Reserves a device's register, which no cache can hold: each attempt traps, and the program's handler skips it. An atomic operation on the
 * same register is carried out. */
#include "nanopu.h"

static volatile uint64_t causes[4], values[4], taken;

__attribute__((interrupt, aligned(4))) static void handler(void) {
    uint64_t cause, value, pc;
    __asm__ volatile("csrr %0, mcause\n\tcsrr %1, mtval\n\tcsrr %2, mepc" : "=r"(cause), "=r"(value), "=r"(pc));
    causes[taken & 3] = cause;
    values[taken & 3] = value;
    taken++;
    __asm__ volatile("csrw mepc, %0" ::"r"(pc + 4));
}

int nanopu_main(uint64_t core) {
    (void)core;
    volatile uint64_t *alarm = (volatile uint64_t *)0x2004000;
    uint64_t word = 7, failed = 9;
    __asm__ volatile("csrw mtvec, %0" ::"r"(handler));
    *alarm = 40;
    __asm__ volatile("lr.d %0, (%1)" : "+r"(word) : "r"(alarm) : "memory");
    __asm__ volatile("sc.d %0, %2, (%1)" : "+r"(failed) : "r"(alarm), "r"(word) : "memory");
    __asm__ volatile("lr.w %0, (%1)" : "+r"(word) : "r"(alarm) : "memory");
    if (taken != 3 || word != 7 || failed != 9) return 1;
    if (causes[0] != 5 || causes[1] != 7 || causes[2] != 5) return 2;
    for (int i = 0; i < 3; i++) {
        if (values[i] != (uint64_t)alarm) return 3;
    }
    uint64_t old;
    __asm__ volatile("amoadd.d %0, %2, (%1)" : "=r"(old) : "r"(alarm), "r"(2UL) : "memory");
    return taken == 3 && old == 40 && *alarm == 42 ? 0 : 4;
}
