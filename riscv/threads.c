/* Threads: one per context, run by the scheduler in hardware. threads.S switches between them. */
#include "nanopu.h"

#define AREA_WORDS 32
#define THREADS_MAX 4
#define CORES_MAX 16
#define STACK_BYTES 8192
#define KERNEL_CONTEXT 0xffff
#define SWITCH_INTERRUPT 16

uint64_t nanopu_areas[CORES_MAX][THREADS_MAX][AREA_WORDS] __attribute__((aligned(64)));
static uint64_t kernel_areas[CORES_MAX][AREA_WORDS] __attribute__((aligned(64)));
static uint8_t stacks[CORES_MAX][THREADS_MAX][STACK_BYTES] __attribute__((aligned(16)));

extern char nanopu_switch[];

/* Contexts that share a core must differ in their two lowest bits: those say whose area is whose. */
void nanopu_run_threads(const struct nanopu_thread *threads, int count) {
    uint64_t core = nanopu_core();
    uint64_t gp, tp;
    __asm__ volatile("mv %0, gp" : "=r"(gp));
    __asm__ volatile("mv %0, tp" : "=r"(tp));
    for (int i = 0; i < count; i++) {
        uint64_t slot = threads[i].context & (THREADS_MAX - 1);
        uint64_t *area = nanopu_areas[core][slot];
        area[2] = (uint64_t)(stacks[core][slot] + STACK_BYTES);
        area[3] = gp;
        area[4] = tp;
        area[10] = threads[i].context;
        area[30] = (uint64_t)threads[i].run;
        nanopu_add_context(threads[i].context, threads[i].priority);
    }
    nanopu_csr_write(NANOPU_CURRENT_CONTEXT, KERNEL_CONTEXT);
    nanopu_csr_write(NANOPU_CURRENT_PRIORITY, 31);
    __asm__ volatile("csrw mscratch, %0" ::"r"(kernel_areas[core]));
    __asm__ volatile("csrw mtvec, %0" ::"r"(nanopu_switch));
    __asm__ volatile("csrs mie, %0" ::"r"(1UL << SWITCH_INTERRUPT));
    nanopu_csr_write(NANOPU_NIC_COMMAND, 4);
    __asm__ volatile("csrsi mstatus, 8");
    for (;;) {
    }
}
