//! Finds out, beside the queue pair and before its first packet, whether a peer speaks IRN (`docs/wire-irn.md`).
//!
//! An opcode outside the standard may crash a peer that does not know it, so none leaves before the peer has proved,
//! for this very queue pair, that it is Highwire. A requester that wants IRN waits while its question is under way. No
//! answer, a refusal or a closed port all mean standard RoCEv2. A peer whose queue pair is not connected yet says so,
//! and answers by itself once it is.
//!
//! Sans-IO like the protocol: messages and time come in, [`Action`]s go out, in the order in which they must happen.

mod message;

pub(crate) use message::{Kind, MESSAGE_LEN, Message};

use highwire_stdx::{Duration, Instant, Rng};
use highwire_verbs::{Gid, Recovery};
use highwire_wire::{IRN_VERSION, Psn, Qpn};
use std::collections::VecDeque;

/// How often a silent peer is asked.
const TRIES: u32 = 3;
/// How long one try waits. A host that is alive answers within a scheduler's time slice or two.
const TRY_WAIT: Duration = Duration::from_millis(20);
/// A peer that is Highwire but not connected yet is asked again soon at first, then rarely.
const NOT_YET_WAIT_FIRST: Duration = Duration::from_millis(1);
const NOT_YET_WAIT_MAX: Duration = Duration::from_millis(20);
/// When a peer that keeps saying "not yet" is given up on.
const NOT_YET_LIMIT: Duration = Duration::from_secs(2);
/// How long a host counts as not Highwire after it did not answer.
const STRANGER_MEMORY: Duration = Duration::from_secs(30);
const STRANGERS_MAX: usize = 64;
/// Questions kept for queue pairs that are not connected yet.
const EARLY_MAX: usize = 256;
/// Connections remembered after they have ended.
const ACCEPTED_MAX: usize = 1024;

/// The connection that a question is about: a local queue pair and its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Connection {
    pub(crate) qpn: Qpn,
    pub(crate) peer: Gid,
    pub(crate) peer_qpn: Qpn,
    pub(crate) rq_psn: Psn,
    /// Known from RTS on.
    pub(crate) sq_psn: Option<Psn>,
}

impl Connection {
    /// Whether the peer means the same when it names its end: the answer to its question does not change then.
    fn is_same(&self, other: &Connection) -> bool {
        let identity = |c: &Connection| (c.qpn, c.peer, c.peer_qpn, c.rq_psn);
        identity(self) == identity(other)
    }
}

/// An action that the driver must carry out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// The responder of this queue pair takes IRN requests from now on. Comes before the answer that says so.
    AcceptIrn(Qpn),
    /// Send a message to the peer's side-band port.
    Send(Gid, [u8; MESSAGE_LEN]),
    /// The requester of this queue pair may begin, with this recovery.
    Release(Qpn, Recovery),
}

#[derive(Debug)]
struct Question {
    connection: Connection,
    nonce: u64,
    asked: Instant,
    next: Instant,
    silent_tries: u32,
    not_yet_wait: Duration,
    /// The peer said "not yet": it is Highwire.
    proven: bool,
}

/// Asks and answers for all queue pairs of a device.
#[derive(Debug)]
pub(crate) struct Negotiator {
    gid: Gid,
    rng: Rng,
    connections: Vec<Connection>,
    questions: Vec<Question>,
    early: VecDeque<Message>,
    /// Connections whose peers were told that IRN is welcome, for as long as they may act on it.
    accepted: VecDeque<Connection>,
    strangers: VecDeque<(Gid, Instant)>,
    actions: VecDeque<Action>,
}

impl Negotiator {
    pub(crate) fn new(gid: Gid, rng: Rng) -> Negotiator {
        Negotiator {
            gid,
            rng,
            connections: Vec::new(),
            questions: Vec::new(),
            early: VecDeque::new(),
            accepted: VecDeque::new(),
            strangers: VecDeque::new(),
            actions: VecDeque::new(),
        }
    }

    /// A queue pair reached RTR or RTS: questions about it can be answered from now on.
    pub(crate) fn on_connected(&mut self, connection: Connection) {
        match self.connections.iter_mut().find(|c| c.qpn == connection.qpn) {
            // The expected PSN has moved on if the peer was quick; only the first PSN counts.
            Some(known) => known.sq_psn = connection.sq_psn.or(known.sq_psn),
            None => {
                self.connections.push(connection);
                // A program may connect both ends again with the same numbers, one after the other. Then the peer has asked
                // this end while it was still the old connection, and will not ask again.
                if self.accepted.iter().any(|known| known.is_same(&connection)) {
                    self.actions.push_back(Action::AcceptIrn(connection.qpn));
                }
            }
        }
        let mut waiting = std::mem::take(&mut self.early);
        waiting.retain(|hello| {
            let ours = hello.to_qpn == connection.qpn;
            if ours {
                self.answer(hello);
            }
            !ours
        });
        self.early = waiting;
    }

    /// A queue pair left its connection: reset, destroyed, or in error.
    pub(crate) fn on_disconnected(&mut self, qpn: Qpn) {
        self.connections.retain(|c| c.qpn != qpn);
        self.questions.retain(|q| q.connection.qpn != qpn);
        self.early.retain(|hello| hello.to_qpn != qpn);
    }

    /// Begins to ask for a queue pair that is connected; the requester waits until [`Action::Release`].
    pub(crate) fn ask(&mut self, now: Instant, qpn: Qpn) {
        self.questions.retain(|q| q.connection.qpn != qpn);
        let Some(connection) = self.connections.iter().find(|c| c.qpn == qpn).copied() else {
            return self.actions.push_back(Action::Release(qpn, Recovery::GoBackN));
        };
        self.strangers.retain(|(_, until)| *until > now);
        if self.strangers.iter().any(|(gid, _)| *gid == connection.peer) {
            self.actions.push_back(Action::Release(connection.qpn, Recovery::GoBackN));
            return;
        }
        let mut question = Question {
            connection,
            nonce: self.rng.next_u64(),
            asked: now,
            next: now,
            silent_tries: 0,
            not_yet_wait: NOT_YET_WAIT_FIRST,
            proven: false,
        };
        self.send_hello(now, &mut question);
        self.questions.push(question);
    }

    /// A message arrived on the side-band socket. Anything that is not exactly right is ignored.
    pub(crate) fn handle_message(&mut self, now: Instant, source: Gid, bytes: &[u8]) {
        let Some(message) = Message::parse(bytes) else { return };
        if message.from != source {
            return;
        }
        match message.kind {
            // This end would not understand its packets: both ends understand standard RoCEv2.
            Kind::Hello if message.irn_version != IRN_VERSION => self.reply(&message, Kind::Refuse),
            Kind::Hello => self.handle_hello(&message),
            Kind::Accept | Kind::Refuse | Kind::NotYet => self.handle_answer(now, &message),
        }
    }

    /// The network reports that the peer's side-band port is closed.
    pub(crate) fn handle_unreachable(&mut self, now: Instant, peer: Gid) {
        if self.questions.iter().any(|q| q.connection.peer == peer && !q.proven) {
            self.remember_stranger(now, peer);
        }
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let mut questions = std::mem::take(&mut self.questions);
        let mut silent = Vec::new();
        questions.retain_mut(|question| {
            if question.next > now {
                return true;
            }
            if question.proven && now.saturating_since(question.asked) >= NOT_YET_LIMIT {
                self.actions.push_back(Action::Release(question.connection.qpn, Recovery::GoBackN));
                return false;
            }
            if question.silent_tries >= TRIES {
                silent.push(question.connection.peer);
                // Stays for now: `remember_stranger` releases every question to this peer.
                return true;
            }
            self.send_hello(now, question);
            true
        });
        self.questions = questions;
        for peer in silent {
            self.remember_stranger(now, peer);
        }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.questions.iter().map(|q| q.next).min()
    }

    pub(crate) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn send_hello(&mut self, now: Instant, question: &mut Question) {
        question.silent_tries += 1;
        question.next = now + TRY_WAIT;
        let c = question.connection;
        let hello = Message {
            kind: Kind::Hello,
            irn_version: IRN_VERSION,
            nonce: question.nonce,
            from: self.gid,
            from_qpn: c.qpn,
            to_qpn: c.peer_qpn,
            sq_psn: c.sq_psn.unwrap_or_default(),
            rq_psn: c.rq_psn,
        };
        self.actions.push_back(Action::Send(c.peer, hello.emit()));
    }

    fn handle_hello(&mut self, hello: &Message) {
        if self.connections.iter().any(|c| c.qpn == hello.to_qpn) {
            return self.answer(hello);
        }
        self.early.retain(|h| (h.from, h.from_qpn) != (hello.from, hello.from_qpn));
        if self.early.len() == EARLY_MAX {
            self.early.pop_front();
        }
        self.early.push_back(*hello);
        self.reply(hello, Kind::NotYet);
    }

    /// Answers a question about a queue pair that is connected.
    fn answer(&mut self, hello: &Message) {
        let Some(c) = self.connections.iter().find(|c| c.qpn == hello.to_qpn).copied() else { return };
        let ours = c.peer == hello.from
            && c.peer_qpn == hello.from_qpn
            && c.rq_psn == hello.sq_psn
            && c.sq_psn.is_none_or(|psn| psn == hello.rq_psn);
        if ours {
            self.accept(c);
        }
        self.reply(hello, if ours { Kind::Accept } else { Kind::Refuse });
    }

    fn accept(&mut self, connection: Connection) {
        self.actions.push_back(Action::AcceptIrn(connection.qpn));
        self.accepted.retain(|known| known.qpn != connection.qpn);
        if self.accepted.len() == ACCEPTED_MAX {
            self.accepted.pop_front();
        }
        self.accepted.push_back(connection);
    }

    fn reply(&mut self, hello: &Message, kind: Kind) {
        let reply = Message {
            kind,
            irn_version: hello.irn_version,
            nonce: hello.nonce,
            from: self.gid,
            from_qpn: hello.to_qpn,
            to_qpn: hello.from_qpn,
            sq_psn: hello.rq_psn,
            rq_psn: hello.sq_psn,
        };
        self.actions.push_back(Action::Send(hello.from, reply.emit()));
    }

    fn handle_answer(&mut self, now: Instant, answer: &Message) {
        let asked = |q: &Question| {
            let c = &q.connection;
            answer.irn_version == IRN_VERSION
                && q.nonce == answer.nonce
                && (c.peer, c.peer_qpn, c.qpn) == (answer.from, answer.from_qpn, answer.to_qpn)
        };
        let Some(index) = self.questions.iter().position(asked) else { return };
        let qpn = self.questions[index].connection.qpn;
        let release = match answer.kind {
            Kind::Accept => Recovery::Irn,
            Kind::Refuse => Recovery::GoBackN,
            Kind::Hello | Kind::NotYet => {
                let question = &mut self.questions[index];
                question.proven = true;
                question.silent_tries = 0;
                question.next = now + question.not_yet_wait;
                question.not_yet_wait = question.not_yet_wait.saturating_mul(2).min(NOT_YET_WAIT_MAX);
                return;
            }
        };
        self.questions.swap_remove(index);
        self.actions.push_back(Action::Release(qpn, release));
    }

    fn remember_stranger(&mut self, now: Instant, peer: Gid) {
        let actions = &mut self.actions;
        self.questions.retain(|q| {
            let released = q.connection.peer == peer;
            if released {
                actions.push_back(Action::Release(q.connection.qpn, Recovery::GoBackN));
            }
            !released
        });
        if peer == self.gid {
            // Processes share the address: one of them did not answer, which says nothing about the others.
            return;
        }
        if self.strangers.len() == STRANGERS_MAX {
            self.strangers.pop_front();
        }
        self.strangers.push_back((peer, now + STRANGER_MEMORY));
    }
}

#[cfg(test)]
mod tests;
