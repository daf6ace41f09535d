//! Says why a request failed: as a number in `vendor_err`, and with `HIGHWIRE_LOG=1` in one sentence for the first failed completion of each
//! queue pair.

use crate::qp::Qp;
use crate::reach::{self, Reach};
use crate::refusal::{About, say_about};
use crate::{env, registry, report};
use highwire_verbs::{AccessError, Completion, CompletionOp, CompletionStatus, DenialCause};
use std::sync::Arc;

/// A completion is handed to the program.
#[inline]
pub(crate) fn look_at(completion: &Completion) {
    if completion.status != CompletionStatus::Success {
        tell(completion);
    }
}

/// Reasons that say more than a status does. Their numbers go on behind those of the statuses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Reason {
    NoSuchKey = 64,
    BeyondRegion = 65,
    RegionLacksRight = 66,
    OtherDomain = 67,
    QueuePairLacksRight = 68,
    Misaligned = 69,
    ShortReceive = 72,
    LongMessage = 73,
    ZeroGid = 80,
    NoNeighbour = 81,
    NoRoute = 82,
    NoAnswer = 83,
}

impl Reason {
    #[cfg(test)]
    const ALL: [Reason; 12] = [
        Reason::NoSuchKey,
        Reason::BeyondRegion,
        Reason::RegionLacksRight,
        Reason::OtherDomain,
        Reason::QueuePairLacksRight,
        Reason::Misaligned,
        Reason::ShortReceive,
        Reason::LongMessage,
        Reason::ZeroGid,
        Reason::NoNeighbour,
        Reason::NoRoute,
        Reason::NoAnswer,
    ];

    fn of_denial(cause: DenialCause) -> Option<Reason> {
        Some(match cause {
            DenialCause::Key(AccessError::BadKey) => Reason::NoSuchKey,
            DenialCause::Key(AccessError::Bounds) => Reason::BeyondRegion,
            DenialCause::Key(AccessError::Denied) => Reason::RegionLacksRight,
            DenialCause::Key(AccessError::WrongDomain) => Reason::OtherDomain,
            DenialCause::QueuePair => Reason::QueuePairLacksRight,
            DenialCause::Misaligned => Reason::Misaligned,
            DenialCause::QueueKey { .. } | DenialCause::ShortReceive { .. } => return None,
        })
    }

    fn of(completion: &Completion) -> Option<Reason> {
        let qp = || {
            let number = completion.qpn.value();
            registry::first::<Qp>(|qp| qp.number() == number)
        };
        match completion.status {
            CompletionStatus::LocalLength => Some(if completion.operation.is_receive() {
                Reason::ShortReceive
            } else {
                Reason::LongMessage
            }),
            CompletionStatus::LocalProtection | CompletionStatus::LocalAccess => {
                Reason::of_denial(qp()?.host().ok()?.last_denial()?)
            }
            CompletionStatus::RetryExceeded => {
                let now = qp()?.host().ok()?.query();
                Some(match reach::look(now.address.gid, now.remote_qpn.value()) {
                    Reach::Zero => Reason::ZeroGid,
                    Reach::NoNeighbour | Reach::NotHere => Reason::NoNeighbour,
                    Reach::NoRoute(_) => Reason::NoRoute,
                    Reach::Maybe => Reason::NoAnswer,
                })
            }
            _ => None,
        }
    }
}

/// The number of the reason, or of the status where nothing more is known.
#[cold]
pub(crate) fn number_of(completion: &Completion) -> u32 {
    Reason::of(completion).map_or(completion.status as u32, |reason| reason as u32)
}

#[cold]
fn tell(completion: &Completion) {
    if !env::is_loud() {
        return;
    }
    let number = completion.qpn.value();
    // A queue pair that is gone has told what it had to tell.
    let Some(qp) = registry::first::<Qp>(|qp| qp.number() == number) else { return };
    if qp.begin_failing() {
        say_about(About::Failure, number, &sentence(&qp, completion));
        // The program may end next.
        report::stands(&qp.context.device);
    }
}

fn sentence(qp: &Arc<Qp>, completion: &Completion) -> String {
    let Completion { wr_id, status, operation, .. } = *completion;
    let what = operation.words();
    let why = reason(qp, status, operation);
    let name = status.name();
    format!("queue pair {:#x} ({}): {what}, wr_id {wr_id}, ends with {name}: {why}", qp.number(), qp.service)
}

fn reason(qp: &Qp, status: CompletionStatus, operation: CompletionOp) -> String {
    match status {
        CompletionStatus::RetryExceeded => no_answer(qp),
        _ => status.usual_cause(operation).to_string(),
    }
}

fn no_answer(qp: &Qp) -> String {
    let Ok(host) = qp.host() else { return "no answer".to_string() };
    let now = host.query();
    let address = now.address.gid.to_ip();
    let (number, retries, timeout) = (now.remote_qpn.value(), now.retry_count, now.timeout);
    let hint = reach::of_loopback(address).or_else(|| reach::look(now.address.gid, number).words(address));
    let hint = hint.map_or(String::new(), |words| format!("; {words}"));
    format!(
        "nothing has answered at {address}, queue pair {number:#x}, in {retries} retries (retry_cnt, timeout {timeout}): the \
         number or the GID is wrong, the peer is not in RTR or has ended, its rq_psn is not this sq_psn, or packets do not \
         arrive{hint}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every number that `vendor_err` can have is in the table, and the table has no others.
    #[test]
    fn the_table_of_numbers_is_whole() {
        let page = include_str!("../../../docs/errors.md");
        let rows = page.lines().filter_map(|line| {
            let cells: Vec<&str> = line.split('|').map(str::trim).collect();
            let number = cells.get(1)?.parse::<u32>().ok()?;
            Some((number, cells.get(2)?.to_string(), cells.get(3)?.to_string()))
        });
        let rows: Vec<_> = rows.collect();
        let statuses = (1..=u8::MAX).filter_map(CompletionStatus::from_u8);
        let mut wanted: Vec<(u32, String)> =
            statuses.map(|status| (status as u32, format!("`{}`", status.name()))).collect();
        wanted.extend(Reason::ALL.into_iter().map(|reason| (reason as u32, String::new())));
        wanted.sort();
        let numbers: Vec<u32> = rows.iter().map(|(number, ..)| *number).collect();
        assert_eq!(numbers, wanted.iter().map(|(number, _)| *number).collect::<Vec<_>>());
        for ((number, status, words), (_, name)) in rows.iter().zip(&wanted) {
            assert!(name.is_empty() || status == name, "{number}: {status} is {name}");
            assert!(words.len() > 10, "{number} has no words");
        }
    }
}
