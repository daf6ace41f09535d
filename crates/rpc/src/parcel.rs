//! Parcels: batches to one node that no worker waits for.
//!
//! A worker that waits costs a future, a wake-up and the bookkeeping of both. Drivers that carry messages of
//! a state machine avoid these: they send a [`Parcel`], and ask the endpoint now and then which have come
//! back ([`Endpoint::take_parcel`]). Repair, execution at most once and failure are those of
//! [batches](crate::Batch).

use crate::config::{Node, RequestType};
use crate::core::{Core, PARCEL};
use crate::endpoint::Endpoint;
use crate::error::CallError;
use crate::flight::Stage;
use crate::wire::{HEADER_LEN, MESSAGES_MAX, Messages};
use highwire_stdx::{Duration, Instant};
use std::cell::RefCell;
use std::rc::Rc;

/// Names a parcel from when it is sent until it is taken; a small number, which is then used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ParcelId(pub u32);

/// A parcel to which requests are added. Dropped, it is not sent.
#[derive(Debug)]
pub struct Parcel {
    core: Rc<RefCell<Core>>,
    flight: u32,
    is_sent: bool,
}

impl Endpoint {
    /// An empty parcel for a node.
    pub fn parcel(&self, node: Node) -> Parcel {
        let flight = self.core.borrow_mut().open_flight(node.0, PARCEL);
        Parcel { core: Rc::clone(&self.core), flight, is_sent: false }
    }

    /// The next parcel that has come back, or has failed.
    #[inline]
    pub fn take_parcel(&mut self) -> Option<ReturnedParcel> {
        let flight = self.core.borrow_mut().returned.pop_front()?;
        Some(ReturnedParcel { core: Rc::clone(&self.core), flight })
    }

    /// Cancels a parcel: it comes back at once. The peer may have executed its requests.
    pub fn cancel_parcel(&mut self, parcel: ParcelId) {
        let mut core = self.core.borrow_mut();
        let is_under_way = |flight: &crate::flight::Flight| {
            flight.call == PARCEL && matches!(flight.stage, Stage::Waiting | Stage::Sent)
        };
        if core.flights.get(parcel.0 as usize).is_some_and(is_under_way) {
            core.give_up(parcel.0, CallError::DeadlineExceeded);
        }
    }
}

impl Parcel {
    /// Adds a request; returns its place.
    ///
    /// # Errors
    /// [`CallError::TooLong`]: the request is too long, or does not fit beside the others.
    #[inline]
    pub fn add(&mut self, request: RequestType, bytes: &[u8]) -> Result<usize, CallError> {
        if self.is_full() {
            return Err(CallError::TooLong);
        }
        self.core.borrow_mut().add_request(self.flight, request.0, &[bytes]).map(usize::from)
    }

    /// The number of requests.
    pub fn len(&self) -> usize {
        usize::from(self.core.borrow().flights[self.flight as usize].count)
    }

    /// Whether there is no request.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it has room for no further request.
    pub fn is_full(&self) -> bool {
        self.len() == MESSAGES_MAX
    }

    /// Sends the parcel as soon as its destination has a free slot. With a timeout, the endpoint gives it up
    /// after that. An empty parcel comes back at once.
    pub fn send(mut self, timeout: Option<Duration>) -> ParcelId {
        self.is_sent = true;
        let mut core = self.core.borrow_mut();
        let deadline = timeout.map_or(Instant::FAR_FUTURE, |timeout| core.now + timeout);
        if core.flights[self.flight as usize].count == 0 {
            core.finish_flight(self.flight, Ok(()));
        } else {
            core.submit(self.flight, deadline);
        }
        ParcelId(self.flight)
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        if !self.is_sent {
            close(&mut self.core.borrow_mut(), self.flight);
        }
    }
}

fn close(core: &mut Core, flight: u32) {
    let answer = core.close_flight(flight);
    core.recycle(answer);
}

/// A parcel that has come back. Dropped, it is forgotten.
#[derive(Debug)]
pub struct ReturnedParcel {
    core: Rc<RefCell<Core>>,
    flight: u32,
}

impl ReturnedParcel {
    /// The name under which it was sent.
    pub fn id(&self) -> ParcelId {
        ParcelId(self.flight)
    }

    /// Shows each request, by its place, and its response, or why there is none. The endpoint must not be
    /// used meanwhile.
    pub fn each(self, mut show: impl FnMut(usize, &[u8], Result<&[u8], CallError>)) {
        let core = self.core.borrow();
        let flight = &core.flights[self.flight as usize];
        let requests = flight.request.get(HEADER_LEN..).unwrap_or_default();
        // The requests lie as `add` wrote them.
        for (place, request) in Messages::parse(requests, flight.count).into_iter().flatten().enumerate() {
            show(place, request.bytes, flight.answer.get(place));
        }
    }
}

impl Drop for ReturnedParcel {
    fn drop(&mut self) {
        close(&mut self.core.borrow_mut(), self.flight);
    }
}
