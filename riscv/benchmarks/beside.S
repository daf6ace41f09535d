# Data in the lines of the code around it: both caches want one line, one before the other, at the same time, or again and again.

    .include "measure.inc"

    .text
    .option norvc
    .globl main
main:
    li a7, 77

    # Straight into the next line: the access stands so far before its end.
    .macro ahead access
    .irp before, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11
    .align 6
    la a4, 3f
    .rept 13 - \before
    nop
    .endr
    \access
    .rept \before
    addi a3, a3, 1
    .endr
    j 4f
    .align 3
3:  .dword 0x0123456789abcdef
    .dword 0
4:  nop
    .endr
    .endm
    measure load_of_next_line, ahead "ld a2, 0(a4)"
    measure store_to_next_line, ahead "sd a7, 8(a4)"
    measure atomic_on_next_line, ahead "amoadd.d a2, a7, (a4)"
    measure reservation_on_next_line, ahead "lr.d a2, (a4)"

    # The same once the instruction cache has forgotten everything: the data cache has the line, clean or dirty.
    .macro again access
    fence.i
    ahead "\access"
    .endm
    measure load_of_known_line, again "ld a2, 0(a4)"
    measure store_to_known_line, again "sd a7, 8(a4)"
    measure atomic_on_known_line, again "amoadd.w a2, a7, (a4)"

    # Two accesses, one to this line and one to the next: the second waits for the first, fetch for neither.
    .macro both
    ld a2, 0(a4)
    ld a5, -64(a4)
    .endm
    measure loads_of_two_lines, ahead "both"
    .macro upgrade
    ld a2, 0(a4)
    sd a7, 8(a4)
    .endm
    measure load_and_store_to_next_line, ahead "upgrade"
    measure load_and_store_to_known_line, again "upgrade"

    # A jump to a line that the data cache has just asked for, and to one that it asks for just afterwards.
    .macro into access
    .irp between, 0, 1, 2, 3, 4, 5, 6
    .align 6
    la a4, 3f
    la a5, 4f
    \access
    .rept \between
    addi a3, a3, 1
    .endr
    jr a5
    .align 6
    .space 128
3:  .dword 0x0123456789abcdef
    .dword 0
4:  nop
    .endr
    .endm
    measure jump_into_line_of_load, into "ld a2, 0(a4)"
    measure jump_into_line_of_store, into "sd a7, 8(a4)"
    .macro jump_first access
    .irp between, 0, 1, 2, 3, 4, 5, 6, 7, 8
    .align 6
    la a4, 3f
    j 4f
    .align 6
    .space 64
3:  .dword 0x0123456789abcdef
    .dword 0
4:
    .rept \between
    nop
    .endr
    \access
    j 5f
    .align 6
5:  nop
    .endr
    .endm
    measure load_of_own_line, jump_first "ld a2, 0(a4)"
    measure store_to_own_line, jump_first "sd a7, 8(a4)"

    # A branch that is mispredicted at first: fetch asks for the line of the wrong path.
    .macro astray access
    .irp between, 0, 1, 2, 3, 4, 5, 6, 7, 8
    .align 6
    la a4, 3f
    li a5, 1
    .rept 11 - \between
    nop
    .endr
    bnez a5, 5f
    .rept \between
    nop
    .endr
    .align 6
    nop
    nop
3:  .dword 0x0123456789abcdef
    .dword 0
    .align 6
5:  \access
    .endr
    .endm
    measure load_of_line_on_wrong_path, astray "ld a2, 0(a4)"
    measure store_to_line_on_wrong_path, astray "sd a7, 8(a4)"

    li a0, 0
    la ra, finish
    jr ra

    .align 6
    end_of_program

    .bss
    .align 12
chain:
    .space 4096
