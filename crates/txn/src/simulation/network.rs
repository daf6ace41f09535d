//! What stands for the RPC layer: requests are repeated until they are answered, and executed at most once.

use std::collections::{BTreeMap, BTreeSet};

use crate::id::NodeId;

/// A datagram.
#[derive(Clone, Debug)]
pub(super) enum Frame {
    /// `oldest` is the oldest request that the sender still waits for: older ones need no answer any more.
    Request {
        process: u64,
        ticket: u64,
        oldest: u64,
        is_reliable: bool,
        bytes: Vec<u8>,
    },
    Response {
        process: u64,
        ticket: u64,
        bytes: Vec<u8>,
    },
}

/// Requests of one process that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Sender {
    pub(super) outstanding: BTreeMap<u64, (NodeId, Vec<u8>)>,
}

impl Sender {
    pub(super) fn oldest(&self, to: NodeId, ticket: u64) -> u64 {
        let mut to_it = self.outstanding.iter().filter(|(_, (node, _))| *node == to);
        to_it.next().map_or(ticket, |(&oldest, _)| oldest.min(ticket))
    }
}

/// What a process remembers of requests from one other process.
#[derive(Debug, Default)]
pub(super) struct Receiver {
    oldest: u64,
    replies: BTreeMap<u64, Vec<u8>>,
    /// Executed; the answer is to come.
    executing: BTreeSet<u64>,
}

/// What is to be done with a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Execute,
    Answer(Vec<u8>),
    Drop,
}

impl Receiver {
    pub(super) fn admit(&mut self, ticket: u64, oldest: u64) -> Admission {
        self.oldest = self.oldest.max(oldest);
        self.replies = self.replies.split_off(&self.oldest);
        match self.replies.get(&ticket) {
            Some(reply) => Admission::Answer(reply.clone()),
            None if ticket < self.oldest || self.executing.contains(&ticket) => Admission::Drop,
            None => Admission::Execute,
        }
    }

    pub(super) fn begin(&mut self, ticket: u64) {
        self.executing.insert(ticket);
    }

    pub(super) fn remember(&mut self, ticket: u64, reply: &[u8]) {
        self.executing.remove(&ticket);
        self.replies.insert(ticket, reply.to_vec());
    }
}
