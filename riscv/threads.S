# The thread switch: the scheduler's interrupt saves one thread, looks up the one that the scheduler wants, and restores it.
#
# A thread's area holds 32 words: x1 to x29 at their own index, the pc at index 30. mscratch holds the running thread's.
# x30 and x31 are the network's and belong to no thread.

    .equ CURRENT_CONTEXT, 0x53
    .equ CURRENT_PRIORITY, 0x55
    .equ TARGET_CONTEXT, 0x58
    .equ TARGET_PRIORITY, 0x59

    .text
    .align 6
    .globl nanopu_switch
nanopu_switch:
    csrrw a0, mscratch, a0
    sd x1, 8(a0)
    sd x2, 16(a0)
    sd x3, 24(a0)
    sd x4, 32(a0)
    sd x5, 40(a0)
    sd x6, 48(a0)
    sd x7, 56(a0)
    sd x8, 64(a0)
    sd x9, 72(a0)
    sd x11, 88(a0)
    sd x12, 96(a0)
    sd x13, 104(a0)
    sd x14, 112(a0)
    sd x15, 120(a0)
    sd x16, 128(a0)
    sd x17, 136(a0)
    sd x18, 144(a0)
    sd x19, 152(a0)
    sd x20, 160(a0)
    sd x21, 168(a0)
    sd x22, 176(a0)
    sd x23, 184(a0)
    sd x24, 192(a0)
    sd x25, 200(a0)
    sd x26, 208(a0)
    sd x27, 216(a0)
    sd x28, 224(a0)
    sd x29, 232(a0)
    csrr t0, mscratch
    sd t0, 80(a0)
    csrr t1, mepc
    sd t1, 240(a0)
    csrr t2, mcause
    bgez t2, nanopu_unexpected_trap

    csrr t0, TARGET_CONTEXT
    csrr t1, TARGET_PRIORITY
    # nanopu_areas[core][context & 3]: areas of 256 bytes, four to a core.
    csrr t2, mhartid
    la a0, nanopu_areas
    slli t2, t2, 10
    add a0, a0, t2
    andi t2, t0, 3
    slli t2, t2, 8
    add a0, a0, t2
    csrw CURRENT_CONTEXT, t0
    csrw CURRENT_PRIORITY, t1

    .globl nanopu_resume
nanopu_resume:
    ld t0, 240(a0)
    csrw mepc, t0
    csrw mscratch, a0
    ld x1, 8(a0)
    ld x2, 16(a0)
    ld x3, 24(a0)
    ld x4, 32(a0)
    ld x5, 40(a0)
    ld x6, 48(a0)
    ld x7, 56(a0)
    ld x8, 64(a0)
    ld x9, 72(a0)
    ld x11, 88(a0)
    ld x12, 96(a0)
    ld x13, 104(a0)
    ld x14, 112(a0)
    ld x15, 120(a0)
    ld x16, 128(a0)
    ld x17, 136(a0)
    ld x18, 144(a0)
    ld x19, 152(a0)
    ld x20, 160(a0)
    ld x21, 168(a0)
    ld x22, 176(a0)
    ld x23, 184(a0)
    ld x24, 192(a0)
    ld x25, 200(a0)
    ld x26, 208(a0)
    ld x27, 216(a0)
    ld x28, 224(a0)
    ld x29, 232(a0)
    ld x10, 80(a0)
    mret

# The first instructions of a thread with a bank of registers: nothing is in them yet.
    .globl nanopu_thread_begin
nanopu_thread_begin:
    csrr t0, CURRENT_CONTEXT
    csrr t2, mhartid
    la a0, nanopu_areas
    slli t2, t2, 10
    add a0, a0, t2
    andi t2, t0, 3
    slli t2, t2, 8
    add a0, a0, t2
    ld sp, 16(a0)
    ld gp, 24(a0)
    ld tp, 32(a0)
    ld t0, 240(a0)
    ld a0, 80(a0)
    jr t0
