//! Places in a program, as people name them.

use highwire_nanopu::{NodeEvent, csr};
use highwire_riscv::Program;

/// The place of an address.
pub(super) fn place(program: &Program, pc: u64) -> String {
    match program.symbol_at(pc) {
        Some(symbol) => format!("{pc:#x} in {}", symbol.name),
        None => format!("{pc:#x}"),
    }
}

/// A core's trap, and its place.
pub(super) fn trap_text(event: &NodeEvent, program: &Program) -> String {
    match event {
        NodeEvent::Trapped { core, cycle, pc, trap } => {
            format!("core {core} trapped at {}, cycle {cycle}: {trap}", place(program, *pc))
        }
        NodeEvent::Sent { .. } => "a packet left".to_string(),
    }
}

/// An instruction with the names that the network's registers have in programs: t5 and t6 are x30 and x31 there.
pub(super) fn network_names(text: &str) -> String {
    let name = |word: &str| match word {
        "t5" => Some("x30"),
        "t6" => Some("x31"),
        _ => {
            let number = u16::from_str_radix(word.strip_prefix("0x")?, 16).ok()?;
            NETWORK_CSRS.iter().find(|(known, _)| *known == number).map(|&(_, name)| name)
        }
    };
    // Only accesses to CSRs name one; elsewhere such a number is an offset.
    let is_csr = text.starts_with("csr");
    let mut named = String::new();
    for piece in text.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric()) {
        let word = piece.trim_end_matches(|letter: char| !letter.is_ascii_alphanumeric());
        match name(word).filter(|_| is_csr || word.starts_with('t')) {
            Some(name) => {
                named.push_str(name);
                named.push_str(&piece[word.len()..]);
            }
            None => named.push_str(piece),
        }
    }
    named
}

/// The CSRs of the network, as `riscv/nanopu.h` calls them without their prefix.
const NETWORK_CSRS: [(u16, &str); 11] = [
    (csr::MESSAGES_READY, "MESSAGES_READY"),
    (csr::CURRENT_CONTEXT, "CURRENT_CONTEXT"),
    (csr::NIC_COMMAND, "NIC_COMMAND"),
    (csr::CURRENT_PRIORITY, "CURRENT_PRIORITY"),
    (csr::THREAD_COMMAND, "THREAD_COMMAND"),
    (csr::NIC_READY, "NIC_READY"),
    (csr::TARGET_CONTEXT, "TARGET_CONTEXT"),
    (csr::TARGET_PRIORITY, "TARGET_PRIORITY"),
    (csr::MESSAGE_CYCLES, "MESSAGE_CYCLES"),
    (csr::IDLE_CYCLES, "IDLE_CYCLES"),
    (csr::THREAD_ENTRY, "THREAD_ENTRY"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_networks_registers_have_their_names() {
        for (text, named) in [
            ("mv t6,t5", "mv x31,x30"),
            ("ld a0,82(t5)", "ld a0,82(x30)"),
            ("csrr a5,0x52", "csrr a5,MESSAGES_READY"),
            ("csrwi 0x56,2", "csrwi THREAD_COMMAND,2"),
            ("lui a0,0x52", "lui a0,0x52"),
            ("sd t5,0(t4)", "sd x30,0(t4)"),
        ] {
            assert_eq!(network_names(text), named);
        }
    }
}
