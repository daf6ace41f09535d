//! Waits that last: who waits for what, in one line each.
//!
//! A program that waits for what never comes gets no error from verbs. So housekeeping looks at the queues, and a condition that
//! has held for a second without progress is told once. Nothing here runs on the data path, and nothing runs at all unless lines
//! are wanted.
//!
//! Invariant: what is remembered belongs to objects that were there at the last look, so it is bounded by their number.

use super::{Engine, Waiters};
use highwire_rnic::QpSnapshot;
use highwire_stdx::words::{counted, verb};
use highwire_stdx::{Duration, Instant};
use highwire_verbs::{CqId, Denial, DenialCause, QpState, Service};
use highwire_wire::Qpn;
use std::collections::BTreeMap;

/// A wait that is as long as this is told.
const LONG: Duration = Duration::from_secs(1);

/// The time between two looks at least: a look at thousands of queue pairs holds the lane.
const LOOK_INTERVAL: Duration = Duration::from_millis(400);

/// What a thread waits for in vain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Wait {
    /// A receive at the peer, for ever.
    Receive,
    /// An acknowledgement.
    Answer,
    /// The first packet, which comes under another PSN.
    FirstPacket,
    /// A completion that was not asked for.
    Signal,
    /// An event that was not asked for.
    Event,
}

/// A wait that was seen.
#[derive(Clone, Copy, Debug)]
struct Seen {
    since: Instant,
    /// Another number after any progress.
    progress: [u64; 2],
    /// The polls at the last look.
    polls: u32,
    is_told: bool,
}

/// What the last looks have seen.
#[derive(Debug, Default)]
pub(super) struct Watch {
    looked: Instant,
    /// By queue pair or completion queue, and by what is waited for.
    seen: BTreeMap<(u32, Wait), Seen>,
    /// Why the last request of a queue pair was refused.
    denials: BTreeMap<u32, DenialCause>,
}

/// A wait as one look finds it.
#[derive(Debug)]
struct Found {
    number: u32,
    wait: Wait,
    progress: [u64; 2],
    /// Of the queue whose polls must go on meanwhile.
    polls: Option<u32>,
    line: String,
}

impl Watch {
    pub(super) fn note_denial(&mut self, denial: &Denial) {
        match denial.cause {
            DenialCause::Key(_) | DenialCause::QueuePair | DenialCause::Misaligned => {
                self.denials.insert(denial.qpn.value(), denial.cause);
            }
            DenialCause::QueueKey { .. } | DenialCause::ShortReceive { .. } => {}
        }
    }

    /// The queue pair was destroyed or reset: another may have its number, and waits anew.
    pub(super) fn forget(&mut self, qpn: Qpn) {
        self.denials.remove(&qpn.value());
        self.seen.retain(|&(number, wait), _| number != qpn.value() || wait == Wait::Event);
    }

    /// Takes note of the waits of one look; returns the lines of those that have become long.
    fn note(&mut self, now: Instant, found: Vec<Found>) -> Vec<String> {
        let before = std::mem::take(&mut self.seen);
        let mut lines = Vec::new();
        for Found { number, wait, progress, polls, line } in found {
            let new = Seen { since: now, progress, polls: polls.unwrap_or(0), is_told: false };
            let earlier = before.get(&(number, wait)).filter(|seen| seen.progress == progress);
            let mut seen = *earlier.unwrap_or(&new);
            // Polls that have stopped are no wait.
            if polls.is_some_and(|polls| earlier.is_some() && polls == seen.polls) {
                seen.since = now;
            }
            seen.polls = new.polls;
            if !seen.is_told && now.saturating_since(seen.since) >= LONG {
                seen.is_told = true;
                lines.push(line);
            }
            self.seen.insert((number, wait), seen);
        }
        lines
    }
}

impl Engine {
    /// Why a request of the queue pair was refused last.
    pub(crate) fn last_denial(&self, qpn: Qpn) -> Option<DenialCause> {
        self.witnesses.watch.denials.get(&qpn.value()).copied()
    }

    /// Every queue pair, with what takes a look at it.
    pub(crate) fn each_queue_pair(&self, each: &mut dyn FnMut(Qpn, &dyn Fn() -> QpSnapshot)) {
        for (_, ends) in self.objects.qps.iter() {
            if let Some(qp) = self.rnic.qp(ends.qpn) {
                each(ends.qpn, &|| qp.snapshot());
            }
        }
    }

    /// Looks at every queue; returns what is to be told.
    pub(crate) fn watch(&mut self) -> Vec<String> {
        self.begin_post();
        let now = self.now();
        if now.saturating_since(self.witnesses.watch.looked) < LOOK_INTERVAL {
            return Vec::new();
        }
        self.witnesses.watch.looked = now;
        let mut found = Vec::new();
        for (_, qp) in self.objects.qps.iter() {
            let Some(snapshot) = self.rnic.query_qp(qp.qpn) else { continue };
            let polls = self.objects.cqs.get(qp.send_cq).map(|sink| sink.notifier.look().empty_polls);
            let unsignaled = qp.places.as_ref().and_then(|places| places.posted_without_signal());
            found.extend(of_queue_pair(qp.qpn.value(), &snapshot, unsignaled.zip(polls)));
        }
        for (id, sink) in self.objects.cqs.iter_mut() {
            let taken = sink.ring.observe_taken_acquire();
            let waiting = sink.ring.pushed().saturating_sub(taken);
            found.extend(of_completion_queue(id, taken, waiting, &sink.notifier.look()));
        }
        self.witnesses.watch.note(now, found)
    }
}

/// The waits of a queue pair; `unsignaled` is how many requests were posted, if none of them was signaled, and the polls of their
/// completion queue.
fn of_queue_pair(number: u32, now: &QpSnapshot, unsignaled: Option<(u64, u32)>) -> Vec<Found> {
    let service = now.config.service;
    let peer = || format!("queue pair {:#x} at {}", now.remote_qpn.value(), now.address.gid.to_ip());
    let acknowledged = now.sq_psn.sub(now.in_flight).value();
    let progress = [u64::from(acknowledged), u64::from(now.send_queue_len)];
    let found = |wait, progress, polls, line| Found { number, wait, progress, polls, line };
    let mut waits = Vec::new();
    let is_connected = matches!(service, Service::Rc | Service::XrcInitiator | Service::XrcTarget);
    if now.state == QpState::Rts && is_connected && now.send_queue_len > 0 {
        let requests = now.send_queue_len as u64;
        let peer = peer();
        if now.lacks_receive {
            let (requests, need) = (counted(requests, "request"), verb(requests, "needs", "need"));
            let line = format!(
                "queue pair {number:#x} ({service}) waits: {requests} {need} a receive at {peer}, which has posted none for a \
                 second; with rnr_retry 7 the wait has no end: the peer posts receives (ibv_post_recv), or rnr_retry is below 7"
            );
            waits.push(found(Wait::Receive, progress, None, line));
        } else if now.in_flight > 0 {
            let (timeout, retries) = (now.timeout, now.retry_count);
            let until = match timeout {
                0 => "timeout 0 means that the wait has no end".to_string(),
                _ => format!("timeout {timeout} and retry_cnt {retries} say how long the wait may be"),
            };
            let line = format!(
                "queue pair {number:#x} ({service}) waits: {peer} has acknowledged nothing for a second, and {} from PSN \
                 {acknowledged:#x} on {} in flight; {until}. Its number, its GID or its rq_psn is wrong, it is not in RTR, or packets do not arrive",
                counted(now.in_flight.into(), "packet"),
                verb(now.in_flight.into(), "is", "are")
            );
            waits.push(found(Wait::Answer, progress, None, line));
        }
    }
    if let Some(psn) = now.unexpected_psn.filter(|_| is_connected && now.state.receives()) {
        let (psn, expected, peer) = (psn.value(), now.rq_psn.value(), peer());
        let line = format!(
            "queue pair {number:#x} ({service}) waits for its first packet, PSN {expected:#x}, and {peer} sends PSN {psn:#x}: this \
             side's rq_psn must be the peer's sq_psn (both are given to ibv_modify_qp, to RTR and to RTS)"
        );
        waits.push(found(Wait::FirstPacket, [u64::from(expected), 0], None, line));
    }
    if let Some((posted, polls)) = unsignaled.filter(|_| now.state == QpState::Rts && now.send_queue_len == 0)
    {
        let line = format!(
            "queue pair {number:#x} ({service}): its completion queue is polled, and none of its requests, {posted} so far, was posted with \
             IBV_SEND_SIGNALED: all have ended, and no completion of theirs will come; set the flag, or sq_sig_all"
        );
        waits.push(found(Wait::Signal, [posted, 0], Some(polls), line));
    }
    waits
}

/// The wait at the channel of a completion queue, of which `taken` completions were taken and `waiting` wait.
fn of_completion_queue(id: CqId, taken: u64, waiting: u64, waiters: &Waiters) -> Option<Found> {
    let channel = waiters.channel.filter(|channel| !channel.is_armed && !channel.has_event)?;
    // A program that takes its events elsewhere may be at work for a second.
    if waiting == 0 || (channel.was_armed && !channel.is_waited_at) {
        return None;
    }
    let fd = channel.fd;
    let never = if channel.was_armed { "since the last event" } else { "yet" };
    let line = format!(
        "{} {} in a completion queue, and its channel (descriptor {fd}) will not tell: no event was asked for \
         {never}. ibv_req_notify_cq comes before each wait, and one more ibv_poll_cq after it",
        counted(waiting, "completion"),
        verb(waiting, "waits", "wait")
    );
    Some(Found { number: id.0, wait: Wait::Event, progress: [taken, 0], polls: None, line })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ChannelLook;

    fn at(millis: u64) -> Instant {
        Instant::ZERO + Duration::from_millis(millis)
    }

    fn wait(progress: u64, polls: Option<u32>) -> Vec<Found> {
        let line = format!("at {progress}");
        vec![Found { number: 7, wait: Wait::Answer, progress: [progress, 0], polls, line }]
    }

    #[test]
    fn a_wait_is_told_once_after_a_second_without_progress() {
        let mut watch = Watch::default();
        assert!(watch.note(at(0), wait(1, None)).is_empty());
        assert!(watch.note(at(900), wait(2, None)).is_empty(), "there was progress");
        assert!(watch.note(at(1_800), wait(2, None)).is_empty());
        assert_eq!(watch.note(at(1_900), wait(2, None)), ["at 2"]);
        assert!(watch.note(at(9_000), wait(2, None)).is_empty(), "once");
        assert!(watch.note(at(9_100), Vec::new()).is_empty());
        assert!(watch.seen.is_empty(), "nothing is kept of what is over");
        assert!(watch.note(at(20_000), wait(2, None)).is_empty(), "a new wait is a second long again");
    }

    #[test]
    fn a_queue_that_is_not_polled_any_more_is_not_waited_for() {
        let mut watch = Watch::default();
        for (millis, polls) in [(0, 1), (600, 1), (1_200, 1), (1_500, 9), (2_100, 20)] {
            assert!(watch.note(at(millis), wait(1, Some(polls))).is_empty(), "{millis}");
        }
        assert_eq!(watch.note(at(2_300), wait(1, Some(30))).len(), 1);
    }

    #[test]
    fn a_channel_is_told_of_where_no_event_can_come() {
        let look = |is_armed, was_armed, has_event, is_waited_at| {
            let channel = Some(ChannelLook { fd: 5, is_armed, was_armed, has_event, is_waited_at });
            of_completion_queue(CqId(0), 3, 2, &Waiters { empty_polls: 0, channel }).is_some()
        };
        assert!(look(false, false, false, false), "never armed, perhaps polled at its descriptor");
        assert!(look(false, true, false, true), "not armed again, and a thread waits");
        assert!(!look(false, true, false, false), "the program is at work");
        assert!(!look(true, true, false, true) && !look(false, true, true, true), "an event comes");
        assert!(of_completion_queue(CqId(0), 3, 2, &Waiters::default()).is_none(), "there is no channel");
    }
}
