/* Leaves words between the two symbols of a signature; one of them is written last of all. */
#include "nanopu.h"

__asm__(".section .data\n"
        ".balign 16\n"
        ".globl begin_signature\n"
        "begin_signature: .word 0xdeadbeef, 0, 0, 0\n"
        ".globl end_signature\n"
        "end_signature: .word 0x0badf00d\n"
        ".text\n");

extern volatile uint32_t begin_signature[];

int nanopu_main(uint64_t core) {
    (void)core;
    begin_signature[1] = 0x12345678;
    ((volatile uint8_t *)begin_signature)[8] = 0xab;
    begin_signature[3] = begin_signature[0] + 1;
    return 0;
}
