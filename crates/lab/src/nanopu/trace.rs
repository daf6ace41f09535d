//! The events of each cycle, for people: a page of its own, or a trace for Chrome and Perfetto.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use highwire_nanopu::{Commit, StallRun, Stamp};
use highwire_riscv::{Located, Program};
use serde_json::{Value, json};

use super::place::network_names;
use crate::failure::usage;

/// The most instructions in a trace: the page must stay quick.
pub(super) const COMMITS_MAX: usize = 20_000;
/// The most runs of stalls of a core.
pub(super) const STALLS_MAX: usize = 40_000;

const PAGE: &str = include_str!("trace.html");
const PLACEHOLDER: &str = "/*DATA*/null";

/// The recorded events.
pub(super) struct Recording {
    pub(super) stamps: Vec<Stamp>,
    /// Instructions by core.
    pub(super) commits: Vec<(usize, Commit)>,
    /// The cycles without a commit, by core.
    pub(super) stalls: Vec<(usize, StallRun)>,
    /// The first cycle of interest.
    pub(super) start: u64,
    /// Each message: the cycles in which its first word and that of its answer are on the node's wire, and its context.
    pub(super) messages: Vec<(u64, Option<u64>, u16)>,
}

/// Writes the recording in the form of the file's ending.
pub(super) fn write(path: &Path, recording: &Recording, program: &Program) -> Result<()> {
    let text = match path.extension().and_then(|ending| ending.to_str()) {
        Some("html") => PAGE.replace(PLACEHOLDER, &page_data(recording, program).to_string()),
        Some("json") => chrome(recording, program).to_string(),
        _ => return Err(usage(format!("--trace {}: the name ends in .html or .json", path.display()))),
    };
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn relevant(recording: &Recording) -> impl Iterator<Item = &Stamp> {
    recording.stamps.iter().filter(|stamp| stamp.cycle >= recording.start)
}

fn stalls(recording: &Recording) -> impl Iterator<Item = &(usize, StallRun)> {
    recording.stalls.iter().filter(|(_, run)| run.from + run.cycles > recording.start)
}

fn text_of(commit: &Commit) -> String {
    let retired = commit.retired;
    network_names(&Located { pc: retired.pc, instruction: retired.instruction }.to_string())
}

fn function_of(program: &Program, pc: u64) -> &str {
    program.symbol_at(pc).map_or("", |symbol| symbol.name.as_str())
}

fn page_data(recording: &Recording, program: &Program) -> Value {
    let stamps: Vec<Value> = relevant(recording)
        .map(|stamp| {
            let value = format!("{:#x}", stamp.value);
            json!([stamp.cycle, stamp.stage.name(), stamp.core, value, stamp.message])
        })
        .collect();
    let commits: Vec<Value> = recording
        .commits
        .iter()
        .map(|(core, commit)| {
            let pc = commit.retired.pc;
            json!([commit.cycle, core, format!("{pc:x}"), text_of(commit), function_of(program, pc)])
        })
        .collect();
    let stalls: Vec<Value> =
        stalls(recording).map(|(core, run)| json!([run.from, core, run.cycles, run.stall.name()])).collect();
    json!({ "stamps": stamps, "commits": commits, "stalls": stalls, "messages": recording.messages, "cycles_per_ns": super::CYCLES_PER_NANOSECOND })
}

/// Chrome's trace event format: one event of one cycle each. A cycle is shown as a microsecond.
fn chrome(recording: &Recording, program: &Program) -> Value {
    let nic = relevant(recording).map(|stamp| {
        let lane = stamp.core.map_or(0, |core| u64::from(core) + 1);
        json!({
            "name": stamp.stage.name(), "ph": "X", "ts": stamp.cycle, "dur": 1, "pid": 0, "tid": lane,
            "args": { "value": format!("{:#x}", stamp.value), "message": stamp.message },
        })
    });
    let cores = recording.commits.iter().map(|(core, commit)| {
        let pc = commit.retired.pc;
        json!({
            "name": text_of(commit), "cat": function_of(program, pc), "ph": "X", "ts": commit.cycle, "dur": 1,
            "pid": 1, "tid": core, "args": { "pc": format!("{pc:#x}") },
        })
    });
    let stalls = stalls(recording).map(|(core, run)| {
        json!({
            "name": run.stall.name(), "ph": "X", "ts": run.from, "dur": run.cycles, "pid": 2, "tid": core,
        })
    });
    let names = [(0, "NIC and queues"), (1, "cores"), (2, "stalls")].map(
        |(pid, name)| json!({ "name": "process_name", "ph": "M", "pid": pid, "args": { "name": name } }),
    );
    json!({ "traceEvents": names.into_iter().chain(nic).chain(cores).chain(stalls).collect::<Vec<_>>() })
}
