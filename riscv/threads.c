/* Threads: one per context, run by the scheduler in hardware. threads.S switches between them. */
#include "nanopu.h"

#define AREA_WORDS 32
#define THREADS_MAX 4
#define CORES_MAX 16
#define STACK_BYTES 8192
#define KERNEL_CONTEXT 0xffff
#define SWITCH_INTERRUPT 16
#define TIMER_INTERRUPT 7

uint64_t nanopu_areas[CORES_MAX][THREADS_MAX][AREA_WORDS] __attribute__((aligned(64)));
static uint64_t kernel_areas[CORES_MAX][AREA_WORDS] __attribute__((aligned(64)));
static uint8_t stacks[CORES_MAX][THREADS_MAX][STACK_BYTES] __attribute__((aligned(16)));

extern char nanopu_switch[], nanopu_switch_published[], nanopu_thread_begin[];
void nanopu_resume(uint64_t *area) __attribute__((noreturn));

/* Contexts that share a core must differ in their two lowest bits: those say whose area is whose. */
static void prepare(const struct nanopu_thread *threads, int count) {
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
}

/* Each thread begins in a bank of registers of its own: the core switches, and no interrupt comes. */
static void begin_in_banks(const struct nanopu_thread *threads, int count) {
    for (int i = 0; i < count; i++) {
        nanopu_csr_write(NANOPU_CURRENT_CONTEXT, threads[i].context);
        nanopu_csr_write(NANOPU_THREAD_ENTRY, nanopu_thread_begin);
    }
}

void nanopu_run_threads(const struct nanopu_thread *threads, int count) {
    prepare(threads, count);
    if (nanopu_csr_read(NANOPU_NIC_READY) & NANOPU_HAS_BANKS) begin_in_banks(threads, count);
    nanopu_csr_write(NANOPU_CURRENT_CONTEXT, KERNEL_CONTEXT);
    nanopu_csr_write(NANOPU_CURRENT_PRIORITY, 31);
    __asm__ volatile("csrw mscratch, %0" ::"r"(kernel_areas[nanopu_core()]));
    __asm__ volatile("csrw mtvec, %0" ::"r"(nanopu_switch));
    __asm__ volatile("csrs mie, %0" ::"r"(1UL << SWITCH_INTERRUPT));
    nanopu_csr_write(NANOPU_NIC_COMMAND, 4);
    __asm__ volatile("csrsi mstatus, 8");
    for (;;) {
    }
}

/* For threads_published.S: areas behind one for scratch and before one for whoever has no thread. */
#define NO_CONTEXT THREADS_MAX
#define SLICE_TICKS 5
static uint64_t published_areas[CORES_MAX][THREADS_MAX + 2][AREA_WORDS] __attribute__((aligned(64)));

void nanopu_run_as_published(const struct nanopu_thread *threads, int count, int is_sliced) {
    uint64_t core = nanopu_core();
    volatile uint64_t *alarm = (volatile uint64_t *)0x2004000 + core, *clock = (volatile uint64_t *)0x200bff8;
    prepare(threads, count);
    for (int i = 0; i < count; i++) {
        uint64_t context = threads[i].context;
        if (context >= THREADS_MAX) nanopu_exit(3);
        for (int word = 0; word < AREA_WORDS; word++) {
            published_areas[core][context + 1][word] = nanopu_areas[core][context][word];
        }
    }
    nanopu_csr_write(NANOPU_CURRENT_CONTEXT, NO_CONTEXT);
    nanopu_csr_write(NANOPU_CURRENT_PRIORITY, 31);
    __asm__ volatile("csrw mscratch, %0" ::"r"(published_areas[core]));
    __asm__ volatile("csrw mtvec, %0" ::"r"(nanopu_switch_published));
    *alarm = *clock + SLICE_TICKS;
    __asm__ volatile("csrs mie, %0" ::"r"(1UL << (is_sliced ? TIMER_INTERRUPT : SWITCH_INTERRUPT)));
    nanopu_csr_write(NANOPU_NIC_COMMAND, 4);
    __asm__ volatile("csrsi mstatus, 8");
    for (;;) {
    }
}
