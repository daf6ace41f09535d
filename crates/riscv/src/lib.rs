//! RV64IMAFDC with Zicsr and Zifencei, in machine and user mode: decode and execute, without time.
//!
//! A [`Hart`] executes from a [`Bus`]; [`Machine`] is one hart with memory, a clock and a console, enough to run a bare-metal
//! ELF program to its exit. Timing models drive [`Hart::step`] and read the [`Retired`] record of each instruction.
//!
//! Invariants: decoding and encoding are one table read in two directions; no input, however wrong, makes
//! this crate panic; the same program and the same calls always give the same results.
#![forbid(unsafe_code)]

mod arithmetic;
mod bus;
mod compressed;
pub mod csr;
mod decode;
mod disassemble;
mod elf;
mod execute;
mod fetch;
mod float;
mod hart;
mod host_float;
mod instruction;
mod machine;
mod op;
mod register;
mod retired;
mod shape;
mod thread;
mod trap;

pub use bus::{AccessFault, Bus, Ram};
pub use csr::{Csrs, Privilege};
pub use disassemble::Located;
pub use elf::{LoadError, Program, Segment, Symbol};
pub use hart::{Hart, Next, RESERVATION_BYTES, RunEnd};
pub use instruction::{IllegalInstruction, Instruction, is_compressed};
pub use machine::{Exit, Machine, MachineConfig, Outcome, Platform};
pub use op::{Class, Op};
pub use register::{Bank, Register};
pub use retired::{AccessKind, MemoryAccess, RegisterWrite, Retired, Step};
pub use thread::Thread;
pub use trap::{Cause, Exception, Interrupt, Trap};
