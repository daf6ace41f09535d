//! Handlers: the functions with which a node executes requests.
//!
//! A plain handler runs in the call that receives its request and answers at once. A handler that must call
//! other nodes runs as a worker of its own, so that only its requester waits for it.

use crate::config::{Node, RequestType};
use crate::worker::Worker;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// How a request ended: the first byte of its response.
pub(crate) mod status {
    pub(crate) const OK: u8 = 0;
    pub(crate) const NO_SUCH_TYPE: u8 = 1;
    pub(crate) const FENCED: u8 = 2;
    pub(crate) const HANDLER_FAILED: u8 = 3;
    pub(crate) const OVERLOADED: u8 = 4;
}

/// A request, as its handler sees it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The requester's node.
    pub node: Node,
    /// The requester's configuration id.
    pub fence: u16,
    /// The request's bytes.
    pub bytes: &'a [u8],
}

/// Where a handler writes its response. Writing nothing is an empty response.
#[derive(Debug)]
pub struct Response<'a> {
    batch: &'a mut Vec<u8>,
    start: usize,
    failed: bool,
}

impl<'a> Response<'a> {
    pub(crate) fn new(batch: &'a mut Vec<u8>) -> Response<'a> {
        let start = batch.len();
        Response { batch, start, failed: false }
    }

    /// Adds bytes to the response.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) {
        self.batch.extend_from_slice(bytes);
    }

    /// Adds `length` bytes of zero and gives them, to be filled in place.
    pub fn reserve(&mut self, length: usize) -> &mut [u8] {
        let at = self.batch.len();
        self.batch.resize(at + length, 0);
        &mut self.batch[at..]
    }

    /// The bytes written so far.
    pub fn bytes(&self) -> &[u8] {
        &self.batch[self.start..]
    }

    /// Discards the bytes written so far.
    pub fn clear(&mut self) {
        self.batch.truncate(self.start);
    }

    /// Marks the request as failed: the caller gets [`HandlerFailed`](crate::CallError::HandlerFailed).
    pub fn fail(&mut self) {
        self.clear();
        self.failed = true;
    }

    /// The request's status, and the length of its response.
    pub(crate) fn finish(mut self, bytes_max: usize) -> (u8, usize) {
        if self.bytes().len() > bytes_max {
            self.fail();
        }
        let status = if self.failed { status::HANDLER_FAILED } else { status::OK };
        (status, self.bytes().len())
    }
}

/// A request that a worker handles.
#[derive(Clone, Debug)]
pub struct NestedRequest {
    /// The requester's node.
    pub node: Node,
    /// The requester's configuration id.
    pub fence: u16,
    /// The request's bytes.
    pub bytes: Vec<u8>,
}

/// The future of a nested handler, whose output is the response.
pub(crate) type NestedFuture = Pin<Box<dyn Future<Output = Vec<u8>>>>;

type PlainFn = dyn FnMut(&Request<'_>, &mut Response<'_>);
pub(crate) type AheadFn = dyn FnMut(&[u8]);
type NestedFn = dyn FnMut(Worker, NestedRequest) -> NestedFuture;

pub(crate) enum Action {
    Plain(Box<PlainFn>),
    Nested(Box<NestedFn>),
}

pub(crate) struct Handler {
    pub(crate) action: Action,
    /// It runs only for requests of this node's own configuration.
    pub(crate) is_fenced: bool,
    /// Sees all requests of a batch before the first is executed.
    pub(crate) ahead: Option<Box<AheadFn>>,
}

/// The handlers of an endpoint, by type.
pub(crate) struct Handlers {
    by_type: [Option<Handler>; 256],
}

impl fmt::Debug for Handlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let types = (0..256).filter(|&i| self.by_type[i].is_some());
        f.debug_set().entries(types).finish()
    }
}

impl Handlers {
    pub(crate) fn new() -> Handlers {
        Handlers { by_type: [const { None }; 256] }
    }

    pub(crate) fn set(&mut self, request_type: RequestType, action: Action) {
        let is_fenced = self.by_type[usize::from(request_type.0)].as_ref().is_some_and(|h| h.is_fenced);
        self.by_type[usize::from(request_type.0)] = Some(Handler { action, is_fenced, ahead: None });
    }

    /// Whether requests of a type run as workers.
    #[inline]
    pub(crate) fn is_nested(&self, tag: u8) -> bool {
        matches!(&self.by_type[usize::from(tag)], Some(Handler { action: Action::Nested(_), .. }))
    }

    /// Whether requests of a type run as workers, and the fence lets this one run.
    pub(crate) fn may_run_nested(&self, tag: u8, is_own_fence: bool) -> bool {
        self.is_nested(tag)
            && self.by_type[usize::from(tag)].as_ref().is_some_and(|h| is_own_fence || !h.is_fenced)
    }

    #[inline]
    pub(crate) fn get(&mut self, tag: u8) -> Option<&mut Handler> {
        self.by_type[usize::from(tag)].as_mut()
    }
}
