# Accesses to a device, the core's timer, alone and among others: what they cost, and what waits for them.

    .include "measure.inc"

    .text
    .option norvc
    .globl main
main:
    # The timer's alarm keeps what is written to it; nobody lets its interrupt through.
    li s5, 0x2004000

    measure device_load, ld a2, 0(s5)
    .macro device_load_use
    ld a2, 0(s5)
    addi a2, a2, 1
    .endm
    measure device_load_and_use, device_load_use
    .macro device_load_gap
    ld a2, 0(s5)
    .rept 40
    addi a3, a3, 1
    .endr
    addi a2, a2, 1
    .endm
    measure device_load_and_later_use, device_load_gap
    measure device_loads, many 10, ld a2, 0(s5)
    .macro two_device_loads
    ld a2, 0(s5)
    ld a3, 0(s5)
    add a2, a2, a3
    .endm
    measure device_loads_of_two_registers, many 10, two_device_loads
    measure device_store, sd a2, 0(s5)
    measure device_stores, many 10, sd a2, 0(s5)
    measure device_half_stores, many 10, sw a2, 0(s5)
    .macro device_store_load
    sd a2, 0(s5)
    ld a3, 0(s5)
    .endm
    measure device_store_and_load, many 10, device_store_load
    .macro device_load_store
    ld a3, 0(s5)
    sd a3, 0(s5)
    .endm
    measure device_load_and_store, many 10, device_load_store
    .macro device_load_fence
    ld a3, 0(s5)
    fence
    .endm
    measure device_load_and_fence, many 5, device_load_fence
    .macro device_store_fence
    sd a3, 0(s5)
    fence
    .endm
    measure device_store_and_fence, many 5, device_store_fence
    .macro device_then_memory
    ld a3, 0(s5)
    .rept 30
    ld a2, 0(s10)
    addi a4, a4, 1
    .endr
    .endm
    measure device_load_then_hits, many 3, device_then_memory
    .macro device_then_stores
    ld a3, 0(s5)
    .rept 30
    sd a2, 0(s10)
    ld a4, 8(s10)
    .endr
    .endm
    measure device_load_then_stores, many 3, device_then_stores
    .macro device_store_then_hits
    sd a3, 0(s5)
    .rept 20
    ld a2, 0(s10)
    .endr
    .endm
    measure device_store_then_loads, many 3, device_store_then_hits
    .macro device_then_products
    ld a3, 0(s5)
    .rept 10
    mul a2, a0, a1
    .endr
    .endm
    measure device_load_then_products, many 3, device_then_products
    .macro device_then_miss
    la a4, far
    ld a3, 0(s5)
    ld a2, 0(a4)
    li a2, 4160
    add a4, a4, a2
    ld a2, 0(a4)
    ld a3, 0(s5)
    add a3, a3, a2
    li a2, 4160
    add a4, a4, a2
    ld a2, 0(a4)
    li a2, 4160
    add a4, a4, a2
    ld a2, 0(a4)
    sd a3, 0(s5)
    li a2, 4160
    add a4, a4, a2
    ld a2, 0(a4)
    li a2, 4160
    add a4, a4, a2
    sd a2, 0(a4)
    .endm
    measure device_load_then_misses, device_then_miss
    .macro device_atomic
    ld a3, 0(s5)
    amoadd.d a2, a0, (s10)
    .endm
    measure device_load_then_atomic, many 4, device_atomic
    .macro device_jumps
    ld a3, 0(s5)
    j 3f
    nop
3:  jal ra, callee
    bnez a0, 4f
    nop
4:
    .endm
    measure device_load_then_jumps, many 4, device_jumps
    .macro device_csr
    ld a3, 0(s5)
    csrr a2, mscratch
    csrw mscratch, a2
    csrs mstatus, x0
    .endm
    measure device_load_then_csr, many 4, device_csr
    .macro device_branch
    ld a3, 0(s5)
    bnez a3, 3f
    nop
3:
    .endm
    measure device_load_then_branch, many 4, device_branch
    .macro device_bytes
    lb a3, 0(s5)
    add a3, a3, a3
    lw a4, 4(s5)
    add a3, a3, a4
    lhu a4, 6(s5)
    add a3, a3, a4
    .endm
    measure device_bytes_and_halves, many 4, device_bytes
    li a0, 0
    la ra, finish
    jr ra
    .align 6
callee:
    ret
    .align 6
    end_of_program

    .bss
    .align 12
chain:
    .space 4096
far:
    .space 66 * 4160
