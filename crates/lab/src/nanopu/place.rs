//! Places in a program, as people name them.

use highwire_nanopu::NodeEvent;
use highwire_riscv::Program;

/// The place of an address.
pub(super) fn place(program: &Program, pc: u64) -> String {
    match program.symbol_at(pc) {
        Some(symbol) => format!("{pc:#x} in {}", symbol.name),
        None => format!("{pc:#x}"),
    }
}

/// A core's trap, and its place.
pub(super) fn trap_text(event: &NodeEvent, program: &Program, cycle: u64) -> String {
    match event {
        NodeEvent::Trapped { core, pc, trap } => {
            format!("core {core} trapped at {}, cycle {cycle}: {trap}", place(program, *pc))
        }
        NodeEvent::Sent { .. } => "a packet left".to_string(),
    }
}
