# Forty short sequences: what one instruction costs, and what two cost that meet.

    .include "measure.inc"

    .text
    .option norvc
    .globl main
main:
    la t0, one
    fld fa0, 0(t0)
    fld fa1, 8(t0)
    flw fa2, 16(t0)
    la t0, skip
    csrw mtvec, t0
    # Every load of the chain finds its own address, every page of the far one the next.
    la t0, chain
    sd t0, 0(t0)
    la t0, far
    li t1, 64
1:  li t2, 4160
    add t2, t0, t2
    sd t2, 0(t0)
    mv t0, t2
    addi t1, t1, -1
    bnez t1, 1b

    measure empty, nop
    measure dependent_adds, many 100, add a2, a2, a2
    measure dependent_loads, many 100, ld s4, 0(s4)
    measure independent_loads, many 100, ld a2, 0(s10)
    .macro load_use
    lw a2, 0(s10)
    add a3, a2, a3
    .endm
    measure load_and_use, many 50, load_use
    .macro load_gap
    lw a2, 0(s10)
    addi a4, a4, 1
    add a3, a2, a3
    .endm
    measure load_gap_use, many 50, load_gap
    .macro load_gaps
    lw a2, 0(s10)
    addi a4, a4, 1
    addi a5, a5, 1
    add a3, a2, a3
    .endm
    measure load_two_gaps_use, many 50, load_gaps
    .macro byte_use
    lb a2, 0(s10)
    add a3, a2, a3
    .endm
    measure load_byte_and_use, many 50, byte_use
    measure stores, many 100, sd a2, 8(s10)
    .macro store_load
    sd a2, 8(s10)
    ld a3, 8(s10)
    .endm
    measure store_and_load, many 50, store_load
    measure dependent_products, many 100, mul s6, s6, a1
    measure independent_products, many 100, mul a2, a0, a1
    measure dependent_word_products, many 100, mulw a0, a0, a1
    measure long_divisions, many 20, div a2, s6, a1
    measure short_divisions, many 20, div a2, a0, a1
    measure word_remainders, many 20, remw a2, a0, a1
    measure dependent_double_sums, many 100, fadd.d fa0, fa0, fa1
    measure independent_double_sums, many 100, fadd.d fa3, fa0, fa1
    measure dependent_double_products, many 100, fmul.d fa0, fa0, fa1
    measure fused_doubles, many 100, fmadd.d fa0, fa0, fa1, fa0
    measure dependent_single_sums, many 100, fadd.s fa2, fa2, fa2
    measure double_divisions, many 20, fdiv.d fa0, fa0, fa1
    measure double_roots, many 20, fsqrt.d fa0, fa0
    .macro move_use
    fmv.x.d a2, fa1
    addi a3, a2, 1
    .endm
    measure move_and_use, many 50, move_use
    .macro float_load
    fld fa3, 0(s10)
    fadd.d fa4, fa3, fa3
    .endm
    measure float_load_and_use, many 50, float_load
    .macro scratch_use
    csrr a2, mscratch
    add a3, a2, a3
    .endm
    measure read_csr_and_use, many 50, scratch_use
    measure write_mscratch, many 50, csrw mscratch, a2
    measure write_mstatus, many 50, csrs mstatus, x0
    .macro same_vector
    csrr t0, mtvec
    csrw mtvec, t0
    .endm
    measure write_mtvec, many 50, same_vector
    measure read_cycle, many 50, csrr a2, mcycle
    measure atomic_sums, many 50, amoadd.d a2, a0, (s10)
    measure fences, many 20, fence
    measure fence_i, many 2, fence.i
    measure branches_not_taken, many 100, bne x0, x0, 2f
2:
    .macro taken
    beq x0, x0, 3f
    nop
3:
    .endm
    measure branches_taken, many 20, taken
    .macro jump
    j 3f
    nop
3:
    .endm
    measure jumps, many 20, jump
    measure calls, many 10, jal ra, callee
    .macro counting
    li a2, 100
3:  addi a3, a3, 1
    addi a2, a2, -1
    bnez a2, 3b
    .endm
    measure counted_loop, counting
    .macro unpredictable
    li a2, 256
    li a3, 0xace1
3:  andi a4, a3, 1
    srli a3, a3, 1
    beqz a4, 4f
    li a5, 0xb400
    xor a3, a3, a5
4:  addi a2, a2, -1
    bnez a2, 3b
    .endm
    measure unpredictable_branches, unpredictable
    .macro indirect
    li a2, 100
    la a3, first
    la a4, second
3:  jalr ra, 0(a3)
    mv a5, a3
    mv a3, a4
    mv a4, a5
    addi a2, a2, -1
    bnez a2, 3b
    .endm
    measure alternating_targets, indirect
    .macro far_chain
    la a2, far
    .rept 64
    ld a2, 0(a2)
    .endr
    .endm
    measure far_loads, far_chain
    .option rvc
    .macro short_nops
    .rept 100
    c.nop
    .endr
    .endm
    measure compressed_nops, short_nops
    .option norvc
    measure calls_of_the_machine, many 1, ecall
    li a0, 0
    la ra, finish
    jr ra
    .align 6
callee:
    ret
first:
    ret
second:
    ret
    .align 6
    skipping_handler
    .align 6
    end_of_program

    .section .rodata
    .align 3
one:
    .double 1.5, 1.25
    .float 1.0, 0

    .bss
    .align 12
chain:
    .space 4096
far:
    .space 66 * 4160
