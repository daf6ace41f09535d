//! The problems of a run, in sentences.

use std::collections::BTreeSet;

use highwire_nanopu::client::Request;
use highwire_nanopu::{Event, Node};
use highwire_riscv::Program;

use super::mistakes;
use super::place::{place, trap_text};
use super::transport::AnyTransport;

/// How long a core is watched to see whether it makes progress.
const WATCH_CYCLES: u64 = 4000;

/// Where each core is, and whether it only repeats a few instructions.
fn whereabouts(node: &mut Node<AnyTransport>, program: &Program, cores: usize) -> Vec<String> {
    let start = node.cycle();
    let mut seen = vec![BTreeSet::new(); cores];
    while node.cycle() < start + WATCH_CYCLES {
        node.tick(|core, event| {
            if let Event::Commit(commit) = event {
                seen[core].insert(commit.retired.pc);
            }
        });
    }
    let say = |(core, seen): (usize, BTreeSet<u64>)| match (seen.first(), seen.last()) {
        (Some(&first), Some(&last)) if seen.len() <= 64 => format!(
            "core {core} spins: since cycle {start} at the latest between {} and {last:#x}",
            place(program, first)
        ),
        (None, _) => match node.waiting_since(core) {
            Some(since) => format!(
                "core {core} waits for a word: it reads x30 at {} since cycle {since}, context {}",
                place(program, node.core(core).hart.pc),
                node.current_context(core)
            ),
            None => format!(
                "core {core} does nothing: at {} since cycle {start} at the latest",
                place(program, node.core(core).hart.pc)
            ),
        },
        _ => format!("core {core} is at {}, cycle {}", place(program, node.core(core).hart.pc), node.cycle()),
    };
    seen.into_iter().enumerate().map(say).collect()
}

/// All problems; `unanswered` messages have no answer.
pub(super) fn problems_of(
    node: &mut Node<AnyTransport>,
    program: &Program,
    requests: &[Request],
    unanswered: usize,
    cores: usize,
) -> Vec<String> {
    let mut problems = Vec::new();
    let received = node.nic().received();
    if unanswered > 0 {
        problems.push(format!("{unanswered} messages have no answer"));
        problems.extend(whereabouts(node, program, cores));
        let open = (0..cores).filter_map(|core| node.open_trap(core));
        problems.extend(
            open.map(|trap| format!("{}, and its handler has not returned", trap_text(&trap, program))),
        );
    }
    if received.unknown_context > 0 {
        let first = node
            .nic()
            .first_stranger()
            .map_or(String::new(), |(cycle, context)| format!("; first in cycle {cycle}, context {context}"));
        problems.push(format!(
            "{} packets were for a context that no thread has made known (nanopu_add_context){first}",
            received.unknown_context
        ));
    }
    if received.oversized > 0 {
        problems.push(format!(
            "{} packets were of messages longer than {} bytes (--message-bytes-max)",
            received.oversized,
            node.nic().message_bytes_max()
        ));
    }
    let deadlocked = node.deadlocked();
    if !deadlocked.is_empty() {
        let cores: Vec<_> = deadlocked.iter().map(usize::to_string).collect();
        problems.push(format!(
            "deadlock: each of cores {} waits for a send buffer, and all of those are held by messages that they have half written, \
             the rest of which stands behind what waits (--send-by-context)",
            cores.join(", ")
        ));
    }
    if received.without_buffer > 0 {
        problems.push(format!("{} packets found no free message buffer", received.without_buffer));
    }
    let may_be_empty = requests.iter().any(|request| request.payload.is_empty());
    for core in 0..cores {
        problems.extend(mistakes::sentences(core, &node.misuse(core), program, may_be_empty));
    }
    problems
}
