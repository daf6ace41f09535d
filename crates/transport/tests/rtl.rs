//! IRN's blocks in `rtl/`, verilated, against the state machines: every output and the whole state, event by event, on random
//! flows and on the authors' trace.
//!
//! The bench and the comparison are those of the nanoPU's blocks. `HIGHWIRE_RTL_CYCLES` sets how long the random runs are.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test starts programs, and is told how long to run"
)]

#[allow(dead_code, reason = "these blocks have no port of several numbers")]
#[path = "../../nanopu/tests/rtl/bench.rs"]
mod bench;
#[path = "rtl/blocks.rs"]
mod blocks;
#[path = "../../nanopu/tests/rtl/compare.rs"]
mod compare;
#[path = "rtl/flow.rs"]
mod flow;
#[path = "rtl/many.rs"]
mod many;
#[path = "rtl/mutants.rs"]
mod mutants;
#[path = "rtl/ports.rs"]
mod ports;
#[path = "rtl/trace.rs"]
mod trace;
