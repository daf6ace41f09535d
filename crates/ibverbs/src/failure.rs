//! Says why a request failed: as a number in `vendor_err`, and with `HIGHWIRE_LOG=1` in one sentence for the first failed completion of each
//! queue pair.

use crate::qp::Qp;
use crate::reach::{self, Reach};
use crate::refusal::say_once;
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
            CompletionStatus::LocalLength => Some(if is_receive(completion.operation) {
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

fn is_receive(operation: CompletionOp) -> bool {
    operation as u8 >= CompletionOp::Receive as u8
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
        say_once(&sentence(&qp, completion));
        // The program may end next.
        report::stands(&qp.context.device);
    }
}

fn sentence(qp: &Arc<Qp>, completion: &Completion) -> String {
    let Completion { wr_id, status, operation, .. } = *completion;
    let what = operation_of(operation);
    let why = reason(qp, status, operation);
    let name = name_of(status);
    format!("queue pair {:#x} ({}): {what}, wr_id {wr_id}, ends with {name}: {why}", qp.number(), qp.service)
}

fn reason(qp: &Qp, status: CompletionStatus, operation: CompletionOp) -> String {
    let words = match status {
        CompletionStatus::Success => "",
        CompletionStatus::LocalLength if is_receive(operation) => {
            "the message is longer than the receive's SGEs together (a datagram's has 40 bytes more, for the GRH)"
        }
        CompletionStatus::LocalLength => "the message is longer than the service or the path carries",
        CompletionStatus::LocalQpOperation => "the request does not fit the queue pair it was posted to",
        CompletionStatus::LocalProtection => {
            "an SGE is not covered: its lkey is unknown or deregistered, belongs to another protection domain, ends before \
             the SGE does, or its region lacks IBV_ACCESS_LOCAL_WRITE for what is written here; the line of the post says which"
        }
        CompletionStatus::Flushed => {
            "the queue pair was in ERR when this request's turn came: an earlier request failed, the peer's request was \
             refused, or the program has moved it there; modify it to RESET, INIT, RTR and RTS to use it again"
        }
        CompletionStatus::WindowBind => {
            "the window cannot be bound: its region lacks IBV_ACCESS_MW_BIND, or the range or the rights are not the region's"
        }
        CompletionStatus::BadResponse => {
            "the peer's answer breaks the protocol: is it a queue pair of this connection?"
        }
        CompletionStatus::LocalAccess => {
            "the peer's request was refused here; the line about the refusal says why"
        }
        CompletionStatus::RemoteInvalidRequest => {
            "the peer refused the request: its queue pair lacks the right (qp_access_flags: IBV_ACCESS_REMOTE_WRITE, READ, \
             ATOMIC), the receive there is too short, or an atomic's address is not a multiple of 8"
        }
        CompletionStatus::RemoteAccess => {
            "the peer's rkey does not permit it: the key is unknown or of another protection domain, the range leaves the \
             region, or the region lacks the right; the peer with HIGHWIRE_LOG=1 says which"
        }
        CompletionStatus::RemoteOperation => {
            "the peer could not complete it: its memory is gone, or its queue pair failed"
        }
        CompletionStatus::RetryExceeded => return no_answer(qp),
        CompletionStatus::RnrRetryExceeded => {
            "the peer had no receive posted, in all retries: post receives before the peer sends, or set rnr_retry to 7 (no end)"
        }
        CompletionStatus::Tag => "the tagged buffer is no longer in the list",
    };
    words.to_string()
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

fn operation_of(operation: CompletionOp) -> &'static str {
    match operation {
        CompletionOp::Send => "a SEND",
        CompletionOp::Write => "an RDMA WRITE",
        CompletionOp::Read => "an RDMA READ",
        CompletionOp::CompareSwap => "a compare and swap",
        CompletionOp::FetchAdd => "a fetch and add",
        CompletionOp::BindWindow => "a window's bind",
        CompletionOp::LocalInvalidate => "a local invalidate",
        CompletionOp::AddTag | CompletionOp::RemoveTag | CompletionOp::SyncTags => {
            "an operation on the list of tags"
        }
        CompletionOp::Receive
        | CompletionOp::ReceiveWriteImm
        | CompletionOp::ReceiveTagged
        | CompletionOp::ReceiveNoTag => "a receive",
    }
}

fn name_of(status: CompletionStatus) -> &'static str {
    match status {
        CompletionStatus::Success => "IBV_WC_SUCCESS",
        CompletionStatus::LocalLength => "IBV_WC_LOC_LEN_ERR",
        CompletionStatus::LocalQpOperation => "IBV_WC_LOC_QP_OP_ERR",
        CompletionStatus::LocalProtection => "IBV_WC_LOC_PROT_ERR",
        CompletionStatus::Flushed => "IBV_WC_WR_FLUSH_ERR",
        CompletionStatus::WindowBind => "IBV_WC_MW_BIND_ERR",
        CompletionStatus::BadResponse => "IBV_WC_BAD_RESP_ERR",
        CompletionStatus::LocalAccess => "IBV_WC_LOC_ACCESS_ERR",
        CompletionStatus::RemoteInvalidRequest => "IBV_WC_REM_INV_REQ_ERR",
        CompletionStatus::RemoteAccess => "IBV_WC_REM_ACCESS_ERR",
        CompletionStatus::RemoteOperation => "IBV_WC_REM_OP_ERR",
        CompletionStatus::RetryExceeded => "IBV_WC_RETRY_EXC_ERR",
        CompletionStatus::RnrRetryExceeded => "IBV_WC_RNR_RETRY_EXC_ERR",
        CompletionStatus::Tag => "IBV_WC_TM_ERR",
    }
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
            statuses.map(|status| (status as u32, format!("`{}`", name_of(status)))).collect();
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
