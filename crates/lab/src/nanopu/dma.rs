//! `highwire nanopu run --nic dma`: the same messages to a core with a DMA NIC.

use std::process::ExitCode;

use anyhow::{Context, Result};
use highwire_nanopu::Event;
use highwire_nanopu::client::{Answer, Request};
use highwire_nanopu::dma::{DmaAnswer, DmaCounters, DmaEvent, DmaLink, DmaNode, DmaNodeConfig};
use highwire_nanopu::packet::SEGMENT_BYTES;
use highwire_riscv::Program;
use serde::Serialize;

use super::answers::{self, Answered};
use super::commits::CommitLog;
use super::options::Args;
use super::outcome::{End, Played, print};
use super::place::place;
use super::{CLIENT, NODE, stalls};
use crate::failure::usage;

/// The report for programs.
#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    played: Played,
    frames: Frames,
    refused: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    answers: Option<Vec<Answered>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    stalls: Vec<stalls::Account>,
    #[serde(flatten)]
    end: End,
}

#[derive(Debug, Serialize)]
struct Frames {
    received: u64,
    delivered: u64,
    without_room: u64,
    too_long: u64,
    malformed: u64,
    sent: u64,
    strays: u64,
}

pub(super) fn run(args: &Args, program: &Program, requests: &[Request]) -> Result<ExitCode> {
    if let Some(long) =
        requests.iter().map(|request| request.payload.len()).find(|&bytes| bytes > SEGMENT_BYTES)
    {
        return Err(usage(format!(
            "{long} bytes: without a transport a message is one frame, of at most {SEGMENT_BYTES}"
        )));
    }
    if requests.len() > usize::from(u16::MAX) {
        return Err(usage(format!(
            "{} messages: at most {} have numbers of their own",
            requests.len(),
            u16::MAX
        )));
    }
    let name = args.program.display();
    let mut node = DmaNode::new(
        program,
        &DmaNodeConfig {
            core: super::run::core(args),
            memory: super::run::memory(args),
            ..DmaNodeConfig::default()
        },
    )
    .with_context(|| name.to_string())?;
    let arriving: Vec<Request> = requests
        .iter()
        .map(|request| Request { sent: request.sent + args.link, ..request.clone() })
        .collect();
    let mut link = DmaLink::new(CLIENT, NODE, &arriving);
    let mut instructions = 0;
    let mut log = CommitLog::new(args.commits.as_deref())?;
    let played = link.play(&mut node, args.patience, |event| {
        if let Event::Commit(commit) = event {
            instructions += 1;
            log.note(0, &commit);
        }
    });
    log.finish()?;
    let mut problems = Vec::new();
    let answers = match played {
        Ok(answers) => answers,
        Err(event) => {
            problems.push(text_of(&event, program));
            vec![None; requests.len()]
        }
    };
    let response = |(request, answer): (&Request, &Option<DmaAnswer>)| {
        Some(answer.as_ref()?.first + args.link - request.sent)
    };
    let times: Vec<u64> = requests.iter().zip(&answers).filter_map(response).collect();
    problems.extend(problems_of(&node, &link, program, requests.len() - times.len()));
    let DmaCounters { received, delivered, without_room, too_long, malformed, sent, refused, .. } =
        node.counters();
    let answered = answers.iter().map(|answer| {
        answer
            .as_ref()
            .map(|answer| Answer { received: answer.first + args.link, payload: answer.payload.clone() })
    });
    let answered = answers::of(requests, &answered.collect::<Vec<_>>());
    if let Some(path) = &args.times {
        answers::write(path, &answered)?;
    }
    let answered = args.answers.then_some(answered);
    let stalls = stalls::of(std::iter::once(node.core()));
    let more = answered.iter().flat_map(|answers| answers::lines(answers));
    let more: Vec<String> = more.chain(stalls::lines(&stalls)).collect();
    let report = Report {
        answers: answered,
        stalls,
        played: Played::new(requests.len(), &times, node.cycle(), instructions),
        frames: Frames { received, delivered, without_room, too_long, malformed, sent, strays: link.strays },
        refused,
        end: End::new(node.platform(), problems),
    };
    print(args, &report, &report.played, &more, &report.end)?;
    Ok(report.end.exit_code())
}

fn text_of(event: &DmaEvent, program: &Program) -> String {
    match event {
        DmaEvent::Trapped { cycle, pc, trap } => {
            format!("the core trapped at {}, cycle {cycle}: {trap}", place(program, *pc))
        }
        DmaEvent::Refused { pc, error } => {
            format!("the NIC refused what {} asked for: {error}", place(program, *pc))
        }
        DmaEvent::Sent(_) => "a frame left".to_string(),
    }
}

/// The number of refusals that are reported.
const REFUSALS_TOLD: usize = 4;

fn problems_of(node: &DmaNode, link: &DmaLink<'_>, program: &Program, unanswered: usize) -> Vec<String> {
    let mut problems = Vec::new();
    if unanswered > 0 {
        problems.push(format!(
            "{unanswered} messages have no answer; the core is at {}, cycle {}",
            place(program, node.core().hart.pc),
            node.cycle()
        ));
        let open = node.open_trap();
        problems.extend(
            open.map(|trap| format!("{}, and its handler has not returned", text_of(&trap, program))),
        );
    }
    let DmaCounters { without_room, too_long, malformed, refused, .. } = node.counters();
    let losses = [
        (without_room, "found the NIC full: no receive buffer was posted in time"),
        (too_long, "were longer than the receive buffer posted for them"),
        (malformed, "were empty or too long for any buffer"),
    ];
    let losses = losses.iter().filter(|&&(frames, _)| frames > 0);
    problems.extend(losses.map(|(frames, why)| format!("{frames} frames {why}")));
    problems.extend(link.refused.iter().take(REFUSALS_TOLD).map(|event| text_of(event, program)));
    if refused > REFUSALS_TOLD as u64 {
        problems.push(format!("and {} more were refused", refused - REFUSALS_TOLD as u64));
    }
    if link.strays > 0 {
        problems.push(format!("{} frames answered nothing that was asked", link.strays));
    }
    problems
}
