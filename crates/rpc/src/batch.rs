//! A worker's batch: requests to any nodes, sent together, and their responses.
//!
//! A worker is resumed once, when every response is there (FaSST §4.2). A batch that is dropped before that is cancelled: its
//! requests may be executed, and their responses are ignored.

use crate::config::{Node, RequestType};
use crate::core::Call;
use crate::error::CallError;
use crate::flight::Answer;
use crate::wire::MESSAGES_MAX;
use crate::worker::Worker;
use highwire_stdx::{Duration, Instant};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Where a request of the batch went.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// Message `index` of the flight at `flight`.
    In { flight: u16, index: u8 },
    /// The request was refused before it was sent.
    Failed(CallError),
}

/// Requests that are sent together.
#[derive(Debug)]
pub struct Batch {
    worker: Worker,
    /// Each flight, after its node, in the order of their first requests.
    flights: Vec<(u16, u32)>,
    places: Vec<Place>,
    call: Option<u32>,
    timeout: Option<Duration>,
}

impl Batch {
    pub(crate) fn new(worker: Worker) -> Batch {
        Batch { worker, flights: Vec::new(), places: Vec::new(), call: None, timeout: None }
    }

    /// Gives up requests without a response after this time, which counts from when the batch is sent.
    pub fn timeout(&mut self, timeout: Duration) {
        self.timeout = Some(timeout);
    }

    /// Adds a request; returns its place among the replies. An error is reported there.
    #[inline]
    pub fn add(&mut self, node: Node, request: RequestType, bytes: &[u8]) -> usize {
        self.add_pieces(node, request, &[bytes])
    }

    /// Adds a request whose bytes are `pieces`, one behind the other.
    pub fn add_pieces(&mut self, node: Node, request: RequestType, pieces: &[&[u8]]) -> usize {
        let mut core = self.worker.core.borrow_mut();
        let core = &mut *core;
        let call = *self.call.get_or_insert_with(|| core.calls.insert(Call::default()));
        let coalesces = core.config.optimisations.coalescing;
        let open = self.flights.iter().rposition(|&(to, flight)| {
            coalesces && to == node.0 && usize::from(core.flights[flight as usize].count) < MESSAGES_MAX
        });
        let at = open.unwrap_or_else(|| {
            self.flights.push((node.0, core.open_flight(node.0, call)));
            self.flights.len() - 1
        });
        let place = match core.add_request(self.flights[at].1, request.0, pieces) {
            Ok(index) => Place::In { flight: at as u16, index },
            Err(error) => Place::Failed(error),
        };
        self.places.push(place);
        self.places.len() - 1
    }

    /// The number of requests.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no request.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Sends the batch when the result is awaited; gives the replies when all are there.
    pub fn send(self) -> SendBatch {
        SendBatch { batch: self, is_sent: false }
    }

    /// The responses that have arrived.
    fn take_replies(&mut self) -> Replies {
        let mut core = self.worker.core.borrow_mut();
        let answers = self.flights.drain(..).map(|(_, flight)| core.close_flight(flight)).collect();
        if let Some(call) = self.call.take() {
            core.close_call(call);
        }
        drop(core);
        Replies { worker: self.worker.clone(), answers, places: std::mem::take(&mut self.places) }
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let Some(call) = self.call else { return };
        let mut core = self.worker.core.borrow_mut();
        core.close_call(call);
        for (_, flight) in self.flights.drain(..) {
            use crate::flight::Stage;
            if matches!(core.flights[flight as usize].stage, Stage::Waiting | Stage::Sent) {
                core.give_up(flight, CallError::DeadlineExceeded);
            }
            let answer = core.close_flight(flight);
            core.recycle(answer);
        }
    }
}

/// A batch on its way. Dropping it cancels the batch.
#[derive(Debug)]
#[must_use = "a batch is sent when it is awaited"]
pub struct SendBatch {
    batch: Batch,
    is_sent: bool,
}

impl Future for SendBatch {
    type Output = Replies;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Replies> {
        let this = &mut *self;
        let Some(call) = this.batch.call else { return Poll::Ready(this.batch.take_replies()) };
        let mut core = this.batch.worker.core.borrow_mut();
        if !std::mem::replace(&mut this.is_sent, true) {
            let waits = this.batch.flights.len() as u32;
            if let Some(state) = core.calls.get_mut(call) {
                state.remaining = waits;
            }
            let deadline = this.batch.timeout.map_or(Instant::FAR_FUTURE, |timeout| core.now + timeout);
            for &(_, flight) in &this.batch.flights {
                // A flight whose only request was refused has nothing to send.
                if core.flights[flight as usize].count == 0 {
                    core.finish_flight(flight, Ok(()));
                } else {
                    core.submit(flight, deadline);
                }
            }
        }
        let Some(state) = core.calls.get_mut(call) else { return Poll::Pending };
        if state.remaining > 0 {
            match &mut state.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                None => state.waker = Some(cx.waker().clone()),
            }
            return Poll::Pending;
        }
        drop(core);
        Poll::Ready(this.batch.take_replies())
    }
}

/// The replies to a batch, in the order of its requests.
pub struct Replies {
    worker: Worker,
    answers: Vec<Answer>,
    places: Vec<Place>,
}

impl Replies {
    /// The response to request `index`.
    ///
    /// # Errors
    /// Why there is no response.
    ///
    /// # Panics
    /// Beyond the batch.
    #[inline]
    pub fn get(&self, index: usize) -> Result<&[u8], CallError> {
        match self.places[index] {
            Place::Failed(error) => Err(error),
            Place::In { flight, index } => self.answers[usize::from(flight)].get(usize::from(index)),
        }
    }

    /// The configuration id that a node had when it answered request `index`; `None` if it did not answer.
    pub fn fence(&self, index: usize) -> Option<u16> {
        let &Place::In { flight, .. } = self.places.get(index)? else { return None };
        let answer = &self.answers[usize::from(flight)];
        answer.failure.is_none().then_some(answer.fence)
    }

    /// The number of replies.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there is no reply.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Each reply in turn.
    pub fn iter(&self) -> impl Iterator<Item = Result<&[u8], CallError>> {
        (0..self.len()).map(|index| self.get(index))
    }

    /// The reply to a batch of one.
    pub(crate) fn into_only(self) -> Result<Reply, CallError> {
        self.get(0)?;
        Ok(Reply { replies: self })
    }
}

impl fmt::Debug for Replies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        let mut core = self.worker.core.borrow_mut();
        self.answers.drain(..).for_each(|answer| core.recycle(answer));
    }
}

/// The response to one call; its bytes are those of a slice.
#[derive(Debug)]
pub struct Reply {
    replies: Replies,
}

impl Reply {
    /// The configuration id of the node that answered.
    pub fn fence(&self) -> u16 {
        self.replies.fence(0).unwrap_or_default()
    }
}

impl std::ops::Deref for Reply {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.replies.get(0).unwrap_or_default()
    }
}
