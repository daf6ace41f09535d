# From reset to main. A dozen long divisions let the history table be cleared, as it is after reset, before the first
# branch. A store to 0x10001000 ends the run on Rocket's bench and on ours.

    .section .init, "ax"
    .globl _start
_start:
    li t0, 0x6000
    csrs mstatus, t0
    la t0, trapped
    csrw mtvec, t0
    li a0, -1
    li a1, 3
    .rept 12
    divu a2, a0, a1
    .endr
    add a2, a2, a2
    # What a function saves is the same on every machine.
    .irp register, s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, ra, gp, tp, t1, t2, t3, t4, t5, t6
    mv \register, zero
    .endr
    la sp, stack_top
    call main
    li t0, 0x10001000
    sd a0, 0(t0)
1:  j 1b

    .align 2
trapped:
    li a0, -1
    li t0, 0x10001000
    sd a0, 0(t0)
1:  j 1b

    .bss
    .align 4
    .space 8192
    .globl stack_top
stack_top:
