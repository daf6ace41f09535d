# The thread switch of the published measurements, step by step: what it costs there, about 142 cycles, is part of their results.
# threads.S does the same with less.
#
# A thread's area holds 32 words: x1 to x29 at their own index, the pc at index 30. mscratch holds the core's first area, whose word 1
# is scratch; the area of context n is the one n + 1 behind it. x30 and x31 are the network's.

    .equ CURRENT_CONTEXT, 0x53
    .equ NIC_COMMAND, 0x54
    .equ CURRENT_PRIORITY, 0x55
    .equ TARGET_CONTEXT, 0x58
    .equ TARGET_PRIORITY, 0x59
    .equ RESTART_TIMER, 4

    .equ TIMER_INTERRUPT, 1 << 63 | 7
    .equ SWITCH_INTERRUPT, 1 << 63 | 16
    .equ MTIMECMP, 0x2004000
    .equ MTIME, 0x200bff8
    .equ SLICE_TICKS, 5
    # The previous privilege mode of mstatus.
    .equ MACHINE_MODE, 3 << 11
    # Room on the stack for all registers, which they are then not put into.
    .equ FRAME_BYTES, 272

    .section .text.nanopu_switch_published, "ax"
    .align 2
    .globl nanopu_switch_published
nanopu_switch_published:
    addi sp, sp, -FRAME_BYTES
    # sp holds the first area from here on, ra that of the thread that loses the core.
    csrrw sp, mscratch, sp
    sd ra, 8(sp)
    csrr ra, CURRENT_CONTEXT
    addi ra, ra, 1
    slli ra, ra, 8
    add ra, sp, ra
    sd x3, 24(ra)
    csrr x3, mscratch
    sd x3, 16(ra)
    ld x3, 8(sp)
    sd x3, 8(ra)
    csrw mscratch, sp
    csrr x3, mepc
    sd x3, 240(ra)
    .irp n, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
    sd x\n, 8 * \n(ra)
    .endr
    csrr x3, mcause
    li x4, TIMER_INTERRUPT
    beq x3, x4, 1f
    li x4, SWITCH_INTERRUPT
    beq x3, x4, 1f
    j nanopu_unexpected_trap

1:  csrwi NIC_COMMAND, RESTART_TIMER
    csrr x4, TARGET_PRIORITY
    csrr ra, TARGET_CONTEXT
    csrw CURRENT_CONTEXT, ra
    csrw CURRENT_PRIORITY, x4
    addi ra, ra, 1
    slli ra, ra, 8
    add ra, sp, ra
    .irp n, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
    ld x\n, 8 * \n(ra)
    .endr
    # A slice from now, whichever interrupt it was.
    li x2, MTIMECMP
    csrr x3, mhartid
    slli x3, x3, 3
    add x2, x2, x3
    li x3, MTIME
    ld x3, 0(x3)
    addi x3, x3, SLICE_TICKS
    sd x3, 0(x2)
    ld x3, 240(ra)
    csrw mepc, x3
    li x3, MACHINE_MODE
    csrs mstatus, x3
    ld x3, 24(ra)
    ld x2, 16(ra)
    ld ra, 8(ra)
    addi sp, sp, FRAME_BYTES
    mret
