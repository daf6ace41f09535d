//! Completions: how work requests ended.

use crate::{CqId, SrqId};
use highwire_wire::Qpn;

/// How a work request ended; the verbs' own list (IBTA §11.6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum CompletionStatus {
    /// Done.
    Success = 0,
    /// A message did not fit, or was longer than its SGEs.
    LocalLength = 1,
    /// The QP itself failed.
    LocalQpOperation = 2,
    /// A local key did not permit the access.
    LocalProtection = 4,
    /// Flushed: the QP was in error, or entered it.
    Flushed = 5,
    /// A memory window could not be bound.
    WindowBind = 6,
    /// A response that the protocol does not allow.
    BadResponse = 7,
    /// A peer's message broke this side's access rules.
    LocalAccess = 8,
    /// The peer found the request invalid.
    RemoteInvalidRequest = 9,
    /// The peer's key did not permit the access.
    RemoteAccess = 10,
    /// The peer could not complete the request.
    RemoteOperation = 11,
    /// No answer after all retries.
    RetryExceeded = 12,
    /// The peer had no receive after all retries.
    RnrRetryExceeded = 13,
    /// A tagged buffer that the application wants back is no longer in the list.
    Tag = 22,
}

impl CompletionStatus {
    /// The status with this number.
    #[inline]
    pub const fn from_u8(number: u8) -> Option<CompletionStatus> {
        use CompletionStatus::*;
        Some(match number {
            0 => Success,
            1 => LocalLength,
            2 => LocalQpOperation,
            4 => LocalProtection,
            5 => Flushed,
            6 => WindowBind,
            7 => BadResponse,
            8 => LocalAccess,
            9 => RemoteInvalidRequest,
            10 => RemoteAccess,
            11 => RemoteOperation,
            12 => RetryExceeded,
            13 => RnrRetryExceeded,
            22 => Tag,
            _ => return None,
        })
    }
}

/// The operation that completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum CompletionOp {
    /// A SEND of any kind.
    Send = 0,
    /// A WRITE of any kind.
    Write = 1,
    /// A READ.
    Read = 2,
    /// A compare and swap.
    CompareSwap = 3,
    /// A fetch and add.
    FetchAdd = 4,
    /// A window was bound.
    BindWindow = 5,
    /// A key was invalidated.
    LocalInvalidate = 6,
    /// A message arrived.
    Receive = 128,
    /// A WRITE with immediate arrived.
    ReceiveWriteImm = 129,
    /// A tagged buffer was added to the list.
    AddTag = 130,
    /// A tagged buffer was taken back.
    RemoveTag = 131,
    /// The list was told which unexpected messages the application knows of.
    SyncTags = 132,
    /// A message with a tag arrived.
    ReceiveTagged = 133,
    /// A message that takes no part in matching arrived at a queue with tags.
    ReceiveNoTag = 134,
}

impl CompletionOp {
    /// The operation with this number.
    #[inline]
    pub const fn from_u8(number: u8) -> Option<CompletionOp> {
        use CompletionOp::*;
        Some(match number {
            0 => Send,
            1 => Write,
            2 => Read,
            3 => CompareSwap,
            4 => FetchAdd,
            5 => BindWindow,
            6 => LocalInvalidate,
            128 => Receive,
            129 => ReceiveWriteImm,
            130 => AddTag,
            131 => RemoveTag,
            132 => SyncTags,
            133 => ReceiveTagged,
            134 => ReceiveNoTag,
            _ => return None,
        })
    }
}

/// Further properties of a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct CompletionFlags {
    /// 40 bytes of GRH precede the payload (UD).
    pub grh: bool,
    /// `immediate` holds the peer's 32 bits.
    pub with_immediate: bool,
    /// `immediate` holds the key that the peer invalidated.
    pub with_invalidate: bool,
    /// The peer asked for an event.
    pub solicited: bool,
    /// The result of tag matching.
    pub tags: TagFlags,
}

/// The result of tag matching, as bits that `libibverbs` also uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct TagFlags(pub u8);

impl TagFlags {
    /// Nothing.
    pub const NONE: TagFlags = TagFlags(0);
    /// There are unexpected messages of which the application has not reported to know.
    pub const SYNC_NEEDED: TagFlags = TagFlags(1 << 4);
    /// A buffer was waiting for the message.
    pub const MATCHED: TagFlags = TagFlags(1 << 5);
    /// The message lies in that buffer.
    pub const DATA_VALID: TagFlags = TagFlags(1 << 6);
    /// All of them.
    pub const ALL: TagFlags = TagFlags(0b111 << 4);
}

/// An entry of a completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// As posted.
    pub wr_id: u64,
    /// How it ended; on anything but success only `wr_id`, `status` and `qpn` mean something.
    pub status: CompletionStatus,
    /// The operation that ended.
    pub operation: CompletionOp,
    /// Bytes received, read or returned.
    pub byte_len: u32,
    /// Immediate data or an invalidated key, as `flags` say.
    pub immediate: u32,
    /// The local queue pair.
    pub qpn: Qpn,
    /// The sender's queue pair (UD).
    pub source_qpn: Qpn,
    /// Further properties.
    pub flags: CompletionFlags,
}

impl Completion {
    /// The completion of a request of `qpn` that moved no data.
    pub const fn new(wr_id: u64, status: CompletionStatus, operation: CompletionOp, qpn: Qpn) -> Completion {
        let flags = CompletionFlags {
            grh: false,
            with_immediate: false,
            with_invalidate: false,
            solicited: false,
            tags: TagFlags::NONE,
        };
        Completion {
            wr_id,
            status,
            operation,
            byte_len: 0,
            immediate: 0,
            qpn,
            source_qpn: Qpn::new(0),
            flags,
        }
    }
}

/// An event of an object rather than of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsyncEvent {
    /// A completion queue overflowed.
    CqError(CqId),
    /// A QP went to the error state for a reason that none of its work requests reports.
    QpFatal(Qpn),
    /// The peer's request was invalid.
    QpRequestError(Qpn),
    /// The peer's request violated access rights.
    QpAccessError(Qpn),
    /// A packet arrived on a QP that is still in RTR.
    CommunicationEstablished(Qpn),
    /// The send queue has drained on the way to SQD.
    SendQueueDrained(Qpn),
    /// A QP on a shared receive queue took its last receive, and is in error.
    LastWqeReached(Qpn),
    /// A shared receive queue fell below its limit.
    SrqLimitReached(SrqId),
    /// A port carries packets now.
    PortActive(u8),
    /// A port carries packets no more.
    PortError(u8),
    /// The GID table of a port changed.
    GidChange(u8),
    /// The device has failed.
    DeviceFatal,
}

impl AsyncEvent {
    /// The queue pair that the event is about, if it is about one.
    pub fn qpn(&self) -> Option<Qpn> {
        match *self {
            AsyncEvent::QpFatal(qpn)
            | AsyncEvent::QpRequestError(qpn)
            | AsyncEvent::QpAccessError(qpn)
            | AsyncEvent::CommunicationEstablished(qpn)
            | AsyncEvent::SendQueueDrained(qpn)
            | AsyncEvent::LastWqeReached(qpn) => Some(qpn),
            AsyncEvent::CqError(_)
            | AsyncEvent::SrqLimitReached(_)
            | AsyncEvent::PortActive(_)
            | AsyncEvent::PortError(_)
            | AsyncEvent::GidChange(_)
            | AsyncEvent::DeviceFatal => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_lead_back_to_their_names() {
        let statuses = (0..=u8::MAX).filter_map(|n| Some((n, CompletionStatus::from_u8(n)? as u8)));
        let operations = (0..=u8::MAX).filter_map(|n| Some((n, CompletionOp::from_u8(n)? as u8)));
        let (mut known_statuses, mut known_operations) = (0, 0);
        statuses.for_each(|(number, back)| (known_statuses += 1, assert_eq!(number, back)).1);
        operations.for_each(|(number, back)| (known_operations += 1, assert_eq!(number, back)).1);
        assert_eq!((known_statuses, known_operations), (14, 14));
    }

    #[test]
    fn an_event_of_a_queue_pair_names_it() {
        let qpn = Qpn::new(0x1234);
        use AsyncEvent::*;
        for event in [
            QpFatal(qpn),
            QpRequestError(qpn),
            QpAccessError(qpn),
            CommunicationEstablished(qpn),
            SendQueueDrained(qpn),
            LastWqeReached(qpn),
        ] {
            assert_eq!(event.qpn(), Some(qpn), "{event:?}");
        }
        assert_eq!((CqError(CqId(7)).qpn(), SrqLimitReached(SrqId(8)).qpn()), (None, None));
    }
}
