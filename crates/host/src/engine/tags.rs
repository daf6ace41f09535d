//! The tags of shared receive queues, and transfers under way.

use highwire_rnic::Rnic;
use highwire_stdx::Slab;
use highwire_verbs::{CqId, Pd, PostError, RecvWr, SgeList, TagList};
use highwire_wire::Qpn;
use std::collections::BTreeMap;

/// Send requests that a queue pair has room for besides its user's: two for each rendezvous.
pub(crate) const OWN_SENDS: u32 = 128;

/// The tags of a shared receive queue.
pub(crate) struct Tags {
    pub(super) list: TagList,
    /// Where everything about it completes.
    pub(super) cq: CqId,
    pub(super) pd: Pd,
    /// What was posted to the queue, by the number that the RNIC knows it by.
    pub(super) receives: Slab<Receive>,
}

pub(super) struct Receive {
    pub(super) wr_id: u64,
    pub(super) sges: SgeList,
}

/// Rendezvous under way, by the number of the READ.
#[derive(Default)]
pub(super) struct Transfers {
    pub(super) reads: BTreeMap<u64, Transfer>,
    pub(super) begun: u32,
}

pub(super) struct Transfer {
    pub(super) qpn: Qpn,
    pub(super) cq: CqId,
    pub(super) wr_id: u64,
}

/// How a change of a list is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagRequest {
    /// Given back in its completion.
    pub wr_id: u64,
    /// Whether it has one.
    pub signaled: bool,
    /// How many unexpected messages the application has seen, if it says so.
    pub unexpected: Option<u32>,
}

impl Tags {
    pub(crate) fn new(capacity: u32, cq: CqId, pd: Pd) -> Tags {
        Tags { list: TagList::new(capacity), cq, pd, receives: Slab::default() }
    }
}

/// Posts to a shared receive queue, under a number of the engine's own if it has tags.
pub(super) fn post(
    rnic: &mut Rnic,
    srq: highwire_verbs::SrqId,
    tags: Option<&mut Tags>,
    wr: &RecvWr<'_>,
) -> Result<(), PostError> {
    let Some(tags) = tags else { return rnic.post_srq_recv(srq, wr) };
    let number = tags.receives.insert(Receive { wr_id: wr.wr_id, sges: wr.sges.into() });
    let posted = rnic.post_srq_recv(srq, &RecvWr { wr_id: u64::from(number), ..*wr });
    if posted.is_err() {
        tags.receives.remove(number);
    }
    posted
}
