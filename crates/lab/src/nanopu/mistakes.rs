//! A program's mistakes with the network, for people: how often, and where first.

use highwire_nanopu::{CONTEXTS_MAX, Mistake, Misuse, Occurrence};
use highwire_riscv::Program;
use serde::Serialize;

use super::place::place;

/// A kind of mistake, in the report for programs.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    core: usize,
    kind: &'static str,
    count: u64,
    first_cycle: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pc: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function: Option<String>,
    context: u16,
}

/// The mistakes of one core.
pub(super) fn reports(core: usize, misuse: &Misuse, program: &Program) -> Vec<Report> {
    let report = |(mistake, count, first): (Mistake, u64, Occurrence)| Report {
        core,
        kind: name(mistake),
        count,
        first_cycle: first.cycle,
        pc: first.pc.map(|pc| format!("{pc:#x}")),
        function: first.pc.and_then(|pc| program.symbol_at(pc)).map(|symbol| symbol.name.clone()),
        context: first.context,
    };
    misuse.all().map(report).collect()
}

/// The same in sentences. An empty message counts as no mistake if `may_be_empty`: some programs send back
/// the messages that they get.
pub(super) fn sentences(core: usize, misuse: &Misuse, program: &Program, may_be_empty: bool) -> Vec<String> {
    let counts =
        |&(mistake, ..): &(Mistake, u64, Occurrence)| mistake != Mistake::MessageEmpty || !may_be_empty;
    misuse
        .all()
        .filter(counts)
        .map(|(mistake, count, first)| sentence(core, mistake, count, first, program))
        .collect()
}

fn name(mistake: Mistake) -> &'static str {
    match mistake {
        Mistake::EmptyRead => "empty-read",
        Mistake::ReadWithoutContext => "read-without-context",
        Mistake::WordForUnknownContext => "word-for-unknown-context",
        Mistake::RefusedContext => "too-many-contexts",
        Mistake::MessageTooLong => "message-too-long",
        Mistake::MessageEmpty => "message-empty",
        Mistake::MessageUnfinished => "message-unfinished",
        Mistake::SurplusWord => "surplus-word",
        Mistake::WordInOtherName => "word-in-other-name",
        Mistake::TransmitOverrun => "transmit-queue-overrun",
        Mistake::ReceiveOverrun => "receive-queue-overrun",
    }
}

fn sentence(core: usize, mistake: Mistake, count: u64, first: Occurrence, program: &Program) -> String {
    let Occurrence { cycle, pc, context, detail } = first;
    let times = match count {
        1 => "once".to_string(),
        count => format!("{count} times"),
    };
    let what = match mistake {
        Mistake::EmptyRead => format!("read x30 {times} with nothing there"),
        Mistake::ReadWithoutContext => {
            format!("read x30 {times} as a context that it never made known (nanopu_add_context)")
        }
        Mistake::WordForUnknownContext => {
            format!("got words for a context that it never made known (nanopu_add_context), {times}")
        }
        Mistake::RefusedContext => {
            format!("has room for {CONTEXTS_MAX} contexts, and was given more, {times}")
        }
        Mistake::MessageTooLong => format!(
            "began messages longer than the NIC takes, which were thrown away, {times}: the first header says {detail} bytes"
        ),
        Mistake::MessageEmpty => format!("wrote headers of messages without a byte, {times}"),
        Mistake::MessageUnfinished => format!(
            "declared messages done before their answer was written, {times}: the first lacks {detail} of the words that its header declares"
        ),
        Mistake::SurplusWord => format!(
            "wrote more words than headers declare, {times}: the first, {detail:#x}, was taken for a message's header"
        ),
        Mistake::WordInOtherName => format!(
            "switched threads while a unit still computed a word for x31, {times}: the first left in the name of context {detail}"
        ),
        Mistake::TransmitOverrun => {
            format!("wrote to x31 while {detail} words waited there, all that the queue holds, {times}")
        }
        Mistake::ReceiveOverrun => {
            format!(
                "left {detail} words of one context unread, all that the queue holds, and got more, {times}"
            )
        }
    };
    let at = pc.map_or(String::new(), |pc| format!(" at {},", place(program, pc)));
    format!("core {core} {what}; first{at} cycle {cycle}, context {context}")
}
