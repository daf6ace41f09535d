//! The blocks in `rtl/`, verilated, against the model: every output port in every cycle, on random and on recorded input.
//!
//! A test drives the model, writes down what goes in and what must come out, and hands the former to a program that Verilator has
//! made of the block (`rtl/bench/bench.cpp`). `HIGHWIRE_RTL_CYCLES` sets how long the random runs are.
#![allow(clippy::disallowed_methods, reason = "a test starts programs, and is told how long to run")]

mod support;

#[path = "rtl/bench.rs"]
mod bench;
#[path = "rtl/compare.rs"]
mod compare;
#[path = "rtl/core.rs"]
mod core;
#[path = "rtl/receive.rs"]
mod receive;
#[path = "rtl/recorded.rs"]
mod recorded;
#[path = "rtl/selector.rs"]
mod selector;
#[path = "rtl/send.rs"]
mod send;
