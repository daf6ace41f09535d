//! Statuses and operations in words: what a log, a report and a record say of a completion.

use crate::{CompletionOp, CompletionStatus};

impl CompletionStatus {
    /// Its name in C.
    pub fn name(self) -> &'static str {
        match self {
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

    /// The usual cause, and what to change.
    pub fn usual_cause(self, operation: CompletionOp) -> &'static str {
        match self {
            CompletionStatus::Success => "",
            CompletionStatus::LocalLength if operation.is_receive() => {
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
            CompletionStatus::RetryExceeded => {
                "nothing has answered in all retries: the peer's number or GID is wrong, the peer is not in RTR or has ended, its rq_psn is not \
             this sq_psn, or packets do not arrive"
            }
            CompletionStatus::RnrRetryExceeded => {
                "the peer had no receive posted, in all retries: post receives before the peer sends, or set rnr_retry to 7 (no end)"
            }
            CompletionStatus::Tag => "the tagged buffer is no longer in the list",
        }
    }
}

impl CompletionOp {
    /// Whether it is one of the receiving side.
    pub fn is_receive(self) -> bool {
        self as u8 >= CompletionOp::Receive as u8
    }

    /// In words, with an article.
    pub fn words(self) -> &'static str {
        match self {
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
}
