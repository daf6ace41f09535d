//! The state of a device's conversations: the driver's thread writes it, application threads that wait read it.

use super::driver::{Application, now};
use crate::gsi::Gsi;
use highwire_cm::{CommId, ConnectionManager, DisconnectCause, Event};
use highwire_verbs::Gid;
use highwire_wire::cm::{Rej, RejectReason, Rep, Req, SidrStatus};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The manager, and all its events so far.
pub(crate) struct Books {
    pub(super) manager: ConnectionManager,
    /// By service: requests that the application has not taken yet.
    pub(super) listeners: BTreeMap<u64, VecDeque<Incoming>>,
    /// Conversations for which the application holds a value.
    pub(super) conversations: HashMap<CommId, Progress>,
}

/// A peer's request.
pub(super) struct Incoming {
    pub(super) comm: CommId,
    pub(super) from: Gid,
    pub(super) request: Box<Req>,
}

/// How far a conversation is.
pub(super) enum Progress {
    /// This end's request, or its acceptance, is not answered yet; or the peer's request is not answered by this end.
    Waiting,
    Replied(Box<Rep>),
    Refused(Box<Rej>),
    Unanswered,
    Established,
    Ended(DisconnectCause),
}

impl Books {
    pub(super) fn new(manager: ConnectionManager) -> Books {
        Books { manager, listeners: BTreeMap::new(), conversations: HashMap::new() }
    }

    pub(super) fn is_waiting(&self, comm: CommId) -> bool {
        matches!(self.conversations.get(&comm), Some(Progress::Waiting))
    }

    /// The connection is in use: if this process ends without disconnecting, the broker tells the peer.
    pub(super) fn on_established(&mut self, gsi: &Gsi, comm: CommId) {
        self.conversations.insert(comm, Progress::Established);
        if let Some(farewell) = self.manager.farewell(comm) {
            // Without the broker's message a peer finds out by its own retries.
            let _ = gsi.leave_last_message(comm.0, farewell.to.to_ip(), &farewell.mad);
        }
    }

    /// The application has dropped its value: it will not ask about the conversation again.
    pub(super) fn release(&mut self, gsi: &Gsi, comm: CommId) {
        if let Some(Progress::Ended(_)) = self.conversations.remove(&comm) {
            let _ = gsi.revoke_last_message(comm.0);
        }
        self.manager.release(now(), comm);
    }

    fn on_request(&mut self, incoming: Incoming) {
        let comm = incoming.comm;
        match self.listeners.get_mut(&incoming.request.service_id) {
            Some(waiting) => {
                waiting.push_back(incoming);
                self.conversations.insert(comm, Progress::Waiting);
            }
            None => {
                // The listener went a moment ago.
                let _ = self.manager.reject(comm, RejectReason::INVALID_SERVICE_ID, &[], &[]);
                self.manager.release(now(), comm);
            }
        }
    }
}

impl Application for Books {
    fn manager(&mut self) -> &mut ConnectionManager {
        &mut self.manager
    }

    fn on_event(&mut self, gsi: &Gsi, event: Event) {
        let comm = event.id();
        let progress = match event {
            Event::Requested { id: comm, from, request, .. } => {
                return self.on_request(Incoming { comm, from, request });
            }
            Event::ServiceRequested { id, .. } => {
                let nobody = (Default::default(), 0);
                let _ = self.manager.answer_service(now(), id, SidrStatus::UNSUPPORTED, nobody, &[]);
                return;
            }
            Event::Established { .. } => return self.on_established(gsi, comm),
            Event::Replied { reply, .. } => Progress::Replied(reply),
            Event::Rejected { reject, .. } => Progress::Refused(reject),
            Event::Unreachable { .. } => Progress::Unanswered,
            Event::Disconnected { cause, .. } => {
                let _ = gsi.revoke_last_message(comm.0);
                Progress::Ended(cause)
            }
            Event::TimewaitExited { .. }
            | Event::ServiceAnswered { .. }
            | Event::ServiceUnreachable { .. } => return,
        };
        // The application has released some conversations: it is not told of those.
        if let Some(noted) = self.conversations.get_mut(&comm) {
            *noted = progress;
        }
    }
}
