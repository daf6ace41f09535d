# Where two things meet that seldom do: accesses that trap behind others, stores that reach the array late, lines that leave,
# units that end in the same cycle, and decode's own reasons to wait.

    .include "measure.inc"

    .equ PAUSE, 0x0100000f
    .equ NO_ROUNDING_MODE, 0x06007053

    .text
    .option norvc
    .globl main
main:
    la t0, one
    fld fa0, 0(t0)
    fld fa1, 8(t0)
    flw fa2, 16(t0)
    flw fa3, 20(t0)
    la t0, skip
    csrw mtvec, t0
    # The timer's alarm keeps what is written to it; nobody lets its interrupt through.
    li s5, 0x2004000
    # Sequences that need lines which are not in the cache take one after the other from here, and lines that meet from there.
    la s11, fresh
    li a7, 4096

    .macro trap_on_store
    sd a2, 8(s10)
    ld a3, 9(s10)
    ld a3, 16(s10)
    .endm
    measure trap_behind_store, many 4, trap_on_store
    .macro trap_on_first_store
    ld a3, 0(s11)
    sd a3, 0(s11)
    lh a2, 1(s11)
    ld a4, 8(s11)
    addi s11, s11, 64
    .endm
    measure trap_behind_first_store, many 4, trap_on_first_store
    .macro trap_on_miss
    ld a3, 0(s11)
    lw a2, 2(s11)
    ld a2, 8(s10)
    addi s11, s11, 64
    .endm
    measure trap_behind_miss, many 4, trap_on_miss
    .macro trap_of_store
    sd a2, 8(s10)
    sd a2, 16(s10)
    ld a3, 24(s10)
    sd a2, 33(s10)
    ld a4, 32(s10)
    .endm
    measure trap_of_store_behind_stores, many 4, trap_of_store
    .macro trap_of_atomic
    addi a4, s10, 4
    sd a2, 8(s10)
    amoadd.d.aq a2, a0, (a4)
    lr.d a3, (a4)
    ld a3, 8(s10)
    sc.d a3, a0, (a4)
    .endm
    measure trap_of_atomics, many 2, trap_of_atomic
    .macro trap_on_division
    fdiv.d fa4, fa0, fa1
    fld fa5, 1(s10)
    fsd fa5, 3(s10)
    fadd.d fa4, fa4, fa4
    .endm
    measure trap_behind_float_division, many 2, trap_on_division
    .macro trap_on_device gap
    ld a3, 0(s5)
    .rept \gap
    nop
    .endr
    ld a4, 4(s5)
    addi a3, a3, 1
    .endm
    .macro traps_on_device
    .irp gap, 0, 1, 2, 3
    trap_on_device \gap
    .endr
    .endm
    measure trap_behind_device_load, traps_on_device

    .macro late_store
    ld a3, 0(s11)
    fence
    sd a3, 0(s11)
    lw a3, 8(s10)
    lw a4, 0(s11)
    ld a5, 16(s10)
    ld a6, 24(s10)
    add a5, a5, a3
    addi s11, s11, 64
    .endm
    measure loads_beside_first_store, many 4, late_store
    .macro atomic_on_store
    ld a3, 0(s11)
    fence
    sd a3, 0(s11)
    amoadd.w a4, a0, (s10)
    ld a5, 16(s10)
    ld a6, 24(s10)
    addi s11, s11, 64
    .endm
    measure atomic_beside_first_store, many 4, atomic_on_store
    .macro reserve_on_atomic
    amomin.w a3, a0, (s10)
    lr.d a4, (s10)
    sc.d a5, a4, (s10)
    sc.d a6, a4, (s10)
    .endm
    measure reservation_behind_atomic, many 4, reserve_on_atomic
    .macro store_on_victim
    la a4, meeting
    .rept 8
    sd a2, 8(s10)
    sd a3, 0(a4)
    ld a5, 16(s10)
    ld a6, 24(s10)
    add a4, a4, a7
    .endr
    .endm
    measure stores_before_lines_that_leave, store_on_victim
    # Half of each reservation stands in another fetch packet, and the line behind it is missing.
    .macro reserve_on_victim
    la a4, meeting
    .rept 8
    .align 6
    fence.i
    add a4, a4, a7
    .rept 9
    nop
    .endr
    .option rvc
    c.nop
    .option norvc
    lr.d.aqrl a3, (a4)
    sc.d.aqrl a5, a3, (a4)
    .option rvc
    c.nop
    .option norvc
    nop
    .endr
    .endm
    measure reservations_beside_lines_that_leave, reserve_on_victim

    .macro acquire_on_trap
    ld a2, 0(s11)
    ebreak
    lr.d.aq a3, (s10)
    ld a4, 8(s10)
    addi s11, s11, 64
    .endm
    measure acquire_behind_trap, many 4, acquire_on_trap
    .macro fence_i_on_line
    .irp before, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14
    .align 6
    .rept \before
    nop
    .endr
    fence.i
    .endr
    .endm
    measure fence_i_beside_missing_line, fence_i_on_line

    .macro behind_division gap
    fdiv.s fa4, fa2, fa3
    .rept \gap
    nop
    .endr
    fadd.d fa5, fa0, fa1
    fsqrt.d fa6, fa1
    frflags a3
    .endm
    .macro behind_divisions
    .irp gap, 0, 1, 2, 3, 4
    behind_division \gap
    .endr
    .endm
    measure floats_behind_division, behind_divisions
    .macro dropped gap
    mulh a3, a0, s6
    .rept \gap
    nop
    .endr
    ld zero, 0(s5)
    addi a3, a3, 1
    .endm
    .macro all_dropped
    .irp gap, 0, 1, 2, 3, 4, 5
    dropped \gap
    .endr
    .endm
    measure device_word_for_nobody, all_dropped
    .macro meets_word gap
    mulh a3, a0, s6
    .rept \gap
    nop
    .endr
    ld a4, 0(s5)
    addi a2, a2, 1
    mul a5, a2, a0
    addi a4, a4, 1
    .endm
    .macro all_meet_word
    .irp gap, 0, 1, 2, 3, 4, 5
    meets_word \gap
    .endr
    .endm
    measure products_beside_device_word, all_meet_word
    .macro half_of_csr
    fmv.x.d a3, fa0
    j 3f
    nop
    .option rvc
    c.nop
    .option norvc
3:  csrr a1, mtval
    .option rvc
    c.nop
    .option norvc
    .endm
    measure half_of_csr_behind_floats, many 4, half_of_csr
    .macro no_rounding_mode
    .align 5
    j 3f
    nop
    .option rvc
    c.nop
    .option norvc
3:  remw a3, a0, a1
    .word NO_ROUNDING_MODE
    csrrwi a3, frm, 2
    .option rvc
    c.addi a2, 1
    .option norvc
    srai a4, a4, 2
    j 4f
    nop
    nop
    .option rvc
    c.nop
    .option norvc
4:  nop
    .option rvc
    c.nop
    .option norvc
    csrwi frm, 0
    .endm
    measure rounding_mode_behind_trap, many 4, no_rounding_mode

    .macro pauses
    .rept 5
    .word PAUSE
    addi a2, a2, 1
    .endr
    .endm
    measure pauses, pauses
    .macro pause_on_branch
    li a2, 5
3:  .word PAUSE
    addi a2, a2, -1
    andi a3, a2, 1
    bnez a3, 4f
    .word PAUSE
    nop
4:  bnez a2, 3b
    .endm
    measure pauses_behind_branches, pause_on_branch
    .macro pause_on_victim
    la a4, meeting
    .rept 8
    sd a3, 0(a4)
    .word PAUSE
    add a4, a4, a7
    .endr
    .endm
    measure pauses_beside_lines_that_leave, pause_on_victim
    .macro pause_on_code
    .irp before, 6, 8, 10, 12
    .align 6
    la a4, 3f
    lw a2, 0(a4)
    sw a2, 0(a4)
    .rept \before
    nop
    .endr
    .word PAUSE
    .align 6
3:  nop
    .endr
    fence.i
    .endm
    measure pauses_beside_missing_line, pause_on_code
    li a0, 0
    la ra, finish
    jr ra

    .align 6
    skipping_handler
    .align 6
    end_of_program

    .section .rodata
    .align 3
one:
    .double 1.5, 1.25
    .float 1.0, 3.0

    .bss
    .align 12
chain:
    .space 4096
meeting:
    .space 9 * 4096
fresh:
    .space 80 * 64
