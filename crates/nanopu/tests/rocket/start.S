.section .init,"ax"
.globl _start
_start:
  li t0, 0x6000
  csrs mstatus, t0
  li a0,-1
  li a1,3
  .rept 12
  divu a2,a0,a1
  .endr
  add a2,a2,a2
  la sp, stack_top
  call main
  fence
  li t0, 0x10001000
  sd a0, 0(t0)
1: j 1b
.bss
.align 4
.space 8192
.globl stack_top
stack_top:
