//! Places in a program, as people name them.

use highwire_nanopu::NodeEvent;
use highwire_riscv::Program;

/// Where an address lies.
pub(super) fn place(program: &Program, pc: u64) -> String {
    match program.symbol_at(pc) {
        Some(symbol) => format!("{pc:#x} in {}", symbol.name),
        None => format!("{pc:#x}"),
    }
}

/// That a core trapped, and where.
pub(super) fn trap_text(event: &NodeEvent, program: &Program, cycle: u64) -> String {
    match event {
        NodeEvent::Trapped { core, pc, trap } => {
            format!("core {core} trapped at {}, cycle {cycle}: {trap}", place(program, *pc))
        }
        NodeEvent::Sent { .. } => "a packet left".to_string(),
    }
}
