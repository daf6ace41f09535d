//! The accesses in machine code, and their addresses.

use super::Lost;
use std::ops::Range;

// Only these accesses lie between `begin` and `end`, and none of them touches the stack: so the handler can
// end any of them by jumping to `lost`. Copies from 384 bytes on use a string instruction, whose speed beats
// a loop (Zen 4). Stores of x86 become visible in order, those of one string instruction before any that
// follows it, so the tail, which goes last, is a Release.
std::arch::global_asm!(
    ".pushsection .text",
    ".p2align 6",
    ".globl highwire_guarded_begin",
    ".hidden highwire_guarded_begin",
    ".globl highwire_guarded_copy",
    ".hidden highwire_guarded_copy",
    ".type highwire_guarded_copy, @function",
    "highwire_guarded_begin:",
    // rdi target, rsi source, rdx bytes, rcx bytes of the tail
    "highwire_guarded_copy:",
    "mov r8, rcx",
    "cmp rdx, 384",
    "jae 50f",
    "mov rcx, rdx",
    "shr rcx, 5",
    "jz 30f",
    "20:",
    "mov rax, [rsi]",
    "mov r9, [rsi + 8]",
    "mov r10, [rsi + 16]",
    "mov r11, [rsi + 24]",
    "mov [rdi], rax",
    "mov [rdi + 8], r9",
    "mov [rdi + 16], r10",
    "mov [rdi + 24], r11",
    "add rsi, 32",
    "add rdi, 32",
    "dec rcx",
    "jnz 20b",
    "and edx, 31",
    "30:",
    "cmp edx, 8",
    "jb 40f",
    "31:",
    "mov rax, [rsi]",
    "mov [rdi], rax",
    "add rsi, 8",
    "add rdi, 8",
    "sub edx, 8",
    "cmp edx, 8",
    "jae 31b",
    "40:",
    "test edx, edx",
    "jz 60f",
    "test dl, 4",
    "jz 41f",
    "mov eax, [rsi]",
    "mov [rdi], eax",
    "add rsi, 4",
    "add rdi, 4",
    "41:",
    "test dl, 2",
    "jz 42f",
    "movzx eax, word ptr [rsi]",
    "mov [rdi], ax",
    "add rsi, 2",
    "add rdi, 2",
    "42:",
    "test dl, 1",
    "jz 60f",
    "movzx eax, byte ptr [rsi]",
    "mov [rdi], al",
    "inc rsi",
    "inc rdi",
    "jmp 60f",
    "50:",
    "mov rcx, rdx",
    "rep movsb",
    "60:",
    "test r8d, r8d",
    "jz 70f",
    "test r8b, 8",
    "jz 61f",
    "mov rax, [rsi]",
    "mov [rdi], rax",
    "jmp 70f",
    "61:",
    "test r8b, 4",
    "jz 62f",
    "mov eax, [rsi]",
    "mov [rdi], eax",
    "add rsi, 4",
    "add rdi, 4",
    "62:",
    "test r8b, 2",
    "jz 63f",
    "movzx eax, word ptr [rsi]",
    "mov [rdi], ax",
    "add rsi, 2",
    "add rdi, 2",
    "63:",
    "test r8b, 1",
    "jz 70f",
    "movzx eax, byte ptr [rsi]",
    "mov [rdi], al",
    "70:",
    "xor eax, eax",
    "ret",
    ".p2align 4",
    ".globl highwire_guarded_swap",
    ".hidden highwire_guarded_swap",
    ".type highwire_guarded_swap, @function",
    // rdi word, rsi compare, rdx swap
    "highwire_guarded_swap:",
    "mov rax, rsi",
    "lock cmpxchg [rdi], rdx",
    "xor edx, edx",
    "ret",
    ".p2align 4",
    ".globl highwire_guarded_add",
    ".hidden highwire_guarded_add",
    ".type highwire_guarded_add, @function",
    // rdi word, rsi add
    "highwire_guarded_add:",
    "lock xadd [rdi], rsi",
    "mov rax, rsi",
    "xor edx, edx",
    "ret",
    ".globl highwire_guarded_end",
    ".hidden highwire_guarded_end",
    "highwire_guarded_end:",
    ".globl highwire_guarded_lost",
    ".hidden highwire_guarded_lost",
    ".type highwire_guarded_lost, @function",
    "highwire_guarded_lost:",
    "mov eax, 1",
    "mov edx, 1",
    "ret",
    ".popsection",
);

/// A word, and whether its memory was missing: two registers.
#[repr(C)]
struct Was {
    value: u64,
    is_lost: u64,
}

unsafe extern "C" {
    fn highwire_guarded_copy(target: *mut u8, source: *const u8, bulk: usize, tail: usize) -> u64;
    fn highwire_guarded_swap(word: *mut u64, compare: u64, swap: u64) -> Was;
    fn highwire_guarded_add(word: *mut u64, add: u64) -> Was;
    fn highwire_guarded_lost();
    static highwire_guarded_begin: u8;
    static highwire_guarded_end: u8;
}

#[inline]
pub(super) unsafe fn copy(source: *const u8, target: *mut u8, bulk: usize, tail: usize) -> Result<(), Lost> {
    // SAFETY: the caller's promise; the code keeps to the calling convention.
    if unsafe { highwire_guarded_copy(target, source, bulk, tail) } == 0 { Ok(()) } else { Err(Lost) }
}

pub(super) unsafe fn compare_swap(word: *mut u64, compare: u64, swap: u64) -> Result<u64, Lost> {
    // SAFETY: as above.
    let was = unsafe { highwire_guarded_swap(word, compare, swap) };
    if was.is_lost == 0 { Ok(was.value) } else { Err(Lost) }
}

pub(super) unsafe fn fetch_add(word: *mut u64, add: u64) -> Result<u64, Lost> {
    // SAFETY: as above.
    let was = unsafe { highwire_guarded_add(word, add) };
    if was.is_lost == 0 { Ok(was.value) } else { Err(Lost) }
}

/// The addresses of the accesses.
fn code() -> Range<usize> {
    (&raw const highwire_guarded_begin).addr()..(&raw const highwire_guarded_end).addr()
}

/// Ends the access in which a thread was interrupted, if it was in one.
///
/// # Safety
/// `context` is that of a signal that is being handled.
pub(super) unsafe fn give_up(context: *mut libc::c_void) -> bool {
    // SAFETY: the kernel hands handlers a context of this type.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let at = &mut registers[libc::REG_RIP as usize];
    let is_ours = code().contains(&(*at as usize));
    if is_ours {
        *at = (highwire_guarded_lost as *const ()).addr() as i64;
    }
    is_ours
}
