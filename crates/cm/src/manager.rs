//! The connection manager: its memory, its outputs, and some of the application's calls.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use highwire_stdx::{Instant, Rng};
use highwire_verbs::Gid;
use highwire_wire::Qpn;
use highwire_wire::cm::{CmMad, CmMessage, MAD_LEN, Rej, RejectReason, Rejected};

use crate::connection::Connection;
use crate::pending::{Answering, Asking};
use crate::{Config, Event};

/// This end's identifier of a connection, or of a request for a datagram service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommId(pub u32);

/// A MAD to be sent to queue pair 1 of `to`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// The destination.
    pub to: Gid,
    /// The MAD.
    pub mad: [u8; MAD_LEN],
}

/// Counts of messages, for diagnosis.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Messages that came in and parsed.
    pub received: u64,
    /// Messages that did not parse.
    pub malformed: u64,
    /// Messages about an unknown conversation, from another address than the peer's, or too late.
    pub ignored: u64,
    /// Messages that went out, repetitions included.
    pub sent: u64,
    /// Repetitions among them, by the clock or because the peer repeated itself.
    pub repeated: u64,
    /// Requests dropped because too many were waiting.
    pub overflowed: u64,
}

/// Why a call of the application was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallError {
    /// The identifier is not, or no longer, known.
    UnknownId,
    /// The conversation's state does not allow the call.
    WrongState,
    /// The application listens for that service already.
    ServiceInUse,
    /// Private data or additional information longer than its message has room for.
    TooLong,
}

/// One end's conversations. See the crate's documentation.
#[derive(Debug)]
pub struct ConnectionManager {
    pub(crate) config: Config,
    pub(crate) rng: Rng,
    pub(crate) services: BTreeSet<u64>,
    /// Services that have lost their listener, and until when a request for them is ignored.
    pub(crate) given_up: BTreeMap<u64, Instant>,
    /// Services of peers to which this end was connected a moment ago, and until when they may pause.
    pub(crate) left: BTreeMap<(Gid, u64), Instant>,
    pub(crate) connections: BTreeMap<u32, Connection>,
    /// Connections that peers began, by peer and its identifier: finds the connection of a repeated REQ.
    pub(crate) by_remote_id: BTreeMap<(Gid, u32), u32>,
    /// Connections by peer and its queue pair, of which there can be only one.
    pub(crate) by_remote_qpn: BTreeMap<(Gid, Qpn), u32>,
    pub(crate) asking: BTreeMap<u32, Asking>,
    pub(crate) answering: BTreeMap<u32, Answering>,
    pub(crate) answering_by_remote: BTreeMap<(Gid, u32), u32>,
    pub(crate) timers: BTreeSet<(Instant, u32)>,
    pub(crate) outbox: VecDeque<Transmit>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) counters: Counters,
}

impl ConnectionManager {
    /// A manager without conversations. `rng` chooses its identifiers; it should be secret if peers are
    /// strangers.
    pub fn new(config: Config, rng: Rng) -> ConnectionManager {
        ConnectionManager {
            config,
            rng,
            services: BTreeSet::new(),
            given_up: BTreeMap::new(),
            left: BTreeMap::new(),
            connections: BTreeMap::new(),
            by_remote_id: BTreeMap::new(),
            by_remote_qpn: BTreeMap::new(),
            asking: BTreeMap::new(),
            answering: BTreeMap::new(),
            answering_by_remote: BTreeMap::new(),
            timers: BTreeSet::new(),
            outbox: VecDeque::new(),
            events: VecDeque::new(),
            counters: Counters::default(),
        }
    }

    /// Accepts requests for `service_id` from now on, of connections and of datagram services alike.
    ///
    /// # Errors
    /// [`CallError::ServiceInUse`].
    pub fn listen(&mut self, service_id: u64) -> Result<(), CallError> {
        self.services.insert(service_id).then_some(()).ok_or(CallError::ServiceInUse)
    }

    /// Accepts no more requests for `service_id`. Those that wait for an answer remain; for a moment, further
    /// requests are neither reported nor refused, as the service may only pause.
    pub fn unlisten(&mut self, now: Instant, service_id: u64) {
        if self.services.remove(&service_id) {
            self.given_up.retain(|_, until| *until > now);
            self.given_up.insert(service_id, now + self.config.grace);
        }
    }

    /// Whether a service without a listener may have one again at any moment.
    pub(crate) fn is_pausing(&self, now: Instant, service_id: u64) -> bool {
        !self.services.contains(&service_id)
            && self.given_up.get(&service_id).is_some_and(|&until| until > now)
    }

    /// The next MAD to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.outbox.pop_front()
    }

    /// The next event for the application.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// When the driver must call `handle_timeout`.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Counts of messages so far.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// The number of remembered conversations, including those that linger.
    pub fn len(&self) -> usize {
        self.connections.len() + self.asking.len() + self.answering.len()
    }

    /// Whether there is no conversation.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An identifier that is not in use: 24 random bits and the shard.
    pub(crate) fn fresh_id(&mut self) -> u32 {
        loop {
            let id = self.rng.next_u32() << 8 | u32::from(self.config.shard);
            let is_taken = self.connections.contains_key(&id)
                || self.asking.contains_key(&id)
                || self.answering.contains_key(&id);
            if !is_taken && id >> 8 != 0 {
                return id;
            }
        }
    }

    /// A transaction of this end: as in the kernel, the identifier with random bits above.
    pub(crate) fn fresh_transaction(&mut self, id: u32) -> u64 {
        u64::from(self.rng.next_u32()) << 32 | u64::from(id)
    }

    pub(crate) fn send(&mut self, to: Gid, mad: &CmMad) {
        self.counters.sent += 1;
        self.outbox.push_back(Transmit { to, mad: mad.emit() });
    }

    /// Refuses a message without keeping any state.
    pub(crate) fn refuse(&mut self, to: Gid, transaction_id: u64, rej: Rej) {
        self.send(to, &CmMad { transaction_id, ece_options: 0, message: CmMessage::Rej(rej) });
    }

    /// Replaces the deadline of `id` by `at`.
    pub(crate) fn set_timer(&mut self, id: u32, old: Option<Instant>, at: Option<Instant>) {
        if let Some(old) = old {
            self.timers.remove(&(old, id));
        }
        if let Some(at) = at {
            self.timers.insert((at, id));
        }
    }

    /// Sets when the timer looks at connection `id` again.
    pub(crate) fn set_deadline(&mut self, id: u32, at: Option<Instant>) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        let old = std::mem::replace(&mut connection.deadline, at);
        self.set_timer(id, old, at);
    }
}

/// A REJ without additional information or private data.
pub(crate) fn plain_rej(local_id: u32, remote_id: u32, rejected: Rejected, reason: RejectReason) -> Rej {
    Rej {
        local_id,
        remote_id,
        rejected,
        reason,
        info_len: 0,
        info: [0; Rej::INFO_LEN],
        private_data: [0; Rej::PRIVATE_LEN],
    }
}

/// `bytes` with zeros up to `N`.
pub(crate) fn padded<const N: usize>(bytes: &[u8]) -> Result<[u8; N], CallError> {
    let mut padded = [0; N];
    padded.get_mut(..bytes.len()).ok_or(CallError::TooLong)?.copy_from_slice(bytes);
    Ok(padded)
}

impl fmt::Debug for CommId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "id {:#010x}", self.0)
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CallError::UnknownId => "no such conversation",
            CallError::WrongState => "the conversation is not at that point",
            CallError::ServiceInUse => "somebody listens for that service already",
            CallError::TooLong => "more private data than the message has room for",
        })
    }
}

impl std::error::Error for CallError {}
