# From reset to nanopu_main, on every core with a stack of its own.

    .section .init, "ax"
    .globl _start
_start:
    li t0, 0x6000
    csrs mstatus, t0
    la t0, nanopu_unexpected_trap
    csrw mtvec, t0
    .option push
    .option norelax
    la gp, __global_pointer$
    .option pop
    csrr a0, mhartid
    la sp, __stacks
    addi t1, a0, 1
    slli t1, t1, 16
    add sp, sp, t1
    call nanopu_main
    call nanopu_exit

    .globl nanopu_exit
nanopu_exit:
    slli a0, a0, 1
    ori a0, a0, 1
    la t0, tohost
    sd a0, 0(t0)
1:  j 1b

# A trap that no program has asked for ends it, with 128 plus the cause.
    .align 2
    .globl nanopu_unexpected_trap
nanopu_unexpected_trap:
    csrr a0, mcause
    andi a0, a0, 63
    addi a0, a0, 128
    j nanopu_exit

    .section .tohost, "aw", @progbits
    .align 6
    .globl tohost
tohost: .dword 0
    .align 6
    .globl fromhost
fromhost: .dword 0
