//! A batch of one worker to one destination, from its first request to its response.

use crate::error::CallError;
use crate::handler::status;
use crate::parts::{PartsIn, PartsOut};
use crate::wire::HEADER_LEN;
use highwire_stdx::Instant;

/// The stage of a flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Not in use.
    Free,
    /// Requests are being added.
    Open,
    /// It waits for the peer's answer to a greeting, or for a slot.
    Waiting,
    /// It occupies a slot of its peer.
    Sent,
    /// It has its response, or an error.
    Done,
}

/// A message of a response: its status, and where its bytes lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) status: u8,
    pub(crate) start: u32,
    pub(crate) length: u32,
}

/// A response.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) entries: Vec<Entry>,
    /// The responder's configuration id.
    pub(crate) fence: u16,
    pub(crate) failure: Option<CallError>,
}

impl Answer {
    /// The response to the request at this place of the batch.
    ///
    /// # Panics
    /// Beyond the batch.
    #[inline]
    pub(crate) fn get(&self, place: usize) -> Result<&[u8], CallError> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let entry = self.entries[place];
        let bytes = &self.bytes[entry.start as usize..][..entry.length as usize];
        match entry.status {
            status::OK => Ok(bytes),
            status::NO_SUCH_TYPE => Err(CallError::NoSuchType),
            status::FENCED => Err(CallError::Fenced),
            status::OVERLOADED => Err(CallError::Overloaded),
            _ => Err(CallError::HandlerFailed),
        }
    }
}

/// A batch to one destination. Its buffers stay when it is done, for the next one.
#[derive(Debug)]
pub(crate) struct Flight {
    pub(crate) stage: Stage,
    pub(crate) node: u16,
    pub(crate) slot: u8,
    pub(crate) count: u8,
    pub(crate) sequence: u32,
    /// The call to which the flight belongs.
    pub(crate) call: u32,
    /// Room for the header, then the requests.
    pub(crate) request: Vec<u8>,
    pub(crate) answer: Answer,
    pub(crate) parts_out: Option<Box<PartsOut>>,
    pub(crate) parts_in: Option<Box<PartsIn>>,
    pub(crate) sent_at: Instant,
    pub(crate) resend_at: Instant,
    pub(crate) resends: u32,
    /// When its caller gives up.
    pub(crate) deadline: Instant,
    /// It is in the outbox already.
    pub(crate) is_queued: bool,
    /// A report of progress of it is in the outbox already.
    pub(crate) reports: bool,
}

impl Flight {
    pub(crate) fn new() -> Flight {
        Flight {
            stage: Stage::Free,
            node: 0,
            slot: 0,
            count: 0,
            sequence: 0,
            call: 0,
            request: Vec::new(),
            answer: Answer::default(),
            parts_out: None,
            parts_in: None,
            sent_at: Instant::ZERO,
            resend_at: Instant::FAR_FUTURE,
            resends: 0,
            deadline: Instant::FAR_FUTURE,
            is_queued: false,
            reports: false,
        }
    }

    /// Makes a free one ready for requests.
    pub(crate) fn open(&mut self, node: u16, call: u32) {
        debug_assert_eq!(self.stage, Stage::Free);
        (self.stage, self.node, self.call, self.count) = (Stage::Open, node, call, 0);
        self.request.clear();
        self.request.resize(HEADER_LEN, 0);
        (self.parts_out, self.parts_in) = (None, None);
        (self.resends, self.is_queued, self.reports) = (0, false, false);
        (self.resend_at, self.deadline) = (Instant::FAR_FUTURE, Instant::FAR_FUTURE);
    }
}
