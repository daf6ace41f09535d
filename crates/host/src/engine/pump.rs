//! The engine's turns: requests from the application, packets that arrived, timers that are due, and then everything that
//! the RNIC wants to send or report.

use super::Engine;
use super::deferral::Found;
use super::turn::{By, Pumped};
use super::ways::Keep;
use highwire_stdx::Instant;

/// Turns between two looks at the clock while nothing happens.
const IDLE_TURNS_PER_CLOCK: u32 = 8;
/// Packets taken from the RNIC in one turn, so that the engine also gets round to receiving.
const PACKETS_PER_TURN: u32 = 512;

impl Engine {
    /// A whole turn of a thread that came by.
    #[inline]
    pub(crate) fn pump(&mut self) -> Pumped {
        self.pump_by(By::Visitor)
    }

    /// A whole turn.
    pub(crate) fn pump_by(&mut self, by: By) -> Pumped {
        self.time.pass();
        self.hear_bell();
        let overdue = self.deferral.is_overdue(by, || self.time.now());
        let requests = self.take_bells();
        let by = match self.objects.on_demand.is_empty() {
            true => by,
            false => self.deferral.on_bells(by, requests > 0, || self.time.now()),
        };
        let mut packets =
            if self.leaves_packets(by, requests) { 0 } else { self.release_held() + self.receive() };
        let expired = self.expire(requests + packets > 0, &mut packets);
        let work = requests + packets;
        self.turn.has_received = false;
        self.turn.visitors_finds += u64::from(packets > 0 && by.is_visitor());
        let mut pumped = Pumped { work, packets, completions: 0, visitors_finds: self.turn.visitors_finds };
        let posted = std::mem::take(&mut self.turn.posted);
        let were_kept = self.deferral.keeps_in_rnic();
        let mut keeps = false;
        if work > 0 || expired || posted || self.turn.more_to_send || (were_kept && overdue) {
            pumped.completions = self.deliver();
            let found = Found { packets: packets > 0, completions: pumped.completions > 0 };
            let now = self.now();
            // Whether another thread sees soon to what this one leaves behind.
            let said = self.wakers.background.said();
            let may_wait = !by.is_visitor() || said.is_near(now, by == By::Leader);
            keeps = self.deferral.expects_answer(by, found) && may_wait;
            // Through shared memory, a packet of its own costs less than the time that the peer gains by an early acknowledgement of a
            // message. A WRITE is another matter: its peer may poll for the acknowledgement alone and look at its memory then, as
            // this side does. With the answer it has both at once, and no thread has to be woken for the answer.
            let may_ride =
                self.turn.came_by_udp || (!self.turn.has_received && self.objects.on_demand.is_empty());
            let may_keep = (keeps || were_kept) && !overdue && may_ride;
            if !self.deferral.leaves_in_rnic(may_keep, || self.rnic.owes_only_acks(now)) {
                // Sending completes requests as well: those of unreliable services, and those with a bad local key.
                self.drain_transmit();
                pumped.completions += self.deliver();
                keeps |= pumped.completions > 0 && may_wait;
            }
            if pumped.completions > 0 && !may_wait && by == By::Leader && self.wakers.misses.note(said) {
                self.wakers.background.wake();
            }
        }
        self.flush(match keeps && !overdue {
            false => Keep::Nothing,
            // A thread that waits for an event answers it. The answer of one that polls, or looks at its memory, is less certain, and its
            // peer had better be awake by then.
            true if pumped.completions > 0 && by != By::Visitor => Keep::AcksAndBells,
            true => Keep::Acks,
        });
        self.deferral.end_turn(by, overdue, requests > 0, || self.time.now());
        pumped
    }

    /// Whether packets are left for the next turn: a request of a program behind the door is to leave before a look at the socket, which is most often in
    /// vain. Never twice in a row.
    #[inline]
    fn leaves_packets(&mut self, by: By, requests: u32) -> bool {
        let may_leave = requests > 0 && !by.is_visitor() && !self.objects.on_demand.is_empty();
        self.turn.left_packets = may_leave && !self.turn.left_packets;
        self.turn.left_packets
    }

    /// Takes packets from the RNIC until it has none, or the ways take no more.
    fn drain_transmit(&mut self) {
        let now = self.now();
        self.turn.more_to_send = true;
        for _ in 0..PACKETS_PER_TURN {
            if !self.ways.takes_more(now, &mut self.counters) {
                return;
            }
            let Some(outgoing) = self.rnic.poll_transmit(now) else {
                self.turn.more_to_send = false;
                return;
            };
            let own_qpn = outgoing.qpn;
            if let Some(record) = &self.witnesses.record {
                record.sent(now, &outgoing);
            }
            if self.ways.offer(now, &outgoing, &self.memory, &mut self.counters).is_err() {
                self.rnic.fail_transmit(now, own_qpn);
            }
        }
    }

    /// Sends waiting packets, but for what is to be kept for the next step.
    #[inline]
    pub(super) fn flush(&mut self, keep: Keep) {
        let keeps = self.ways.flush(|| self.time.now(), keep, &mut self.counters);
        self.deferral.on_flush(keeps);
    }

    /// Turns of visitors that found packets, so far.
    pub(crate) fn visitors_finds(&self) -> u64 {
        self.turn.visitors_finds
    }

    /// Before the first of several posts by one thread.
    #[inline]
    pub(crate) fn begin_post(&mut self) {
        self.time.pass();
    }

    /// After the last of several posts: their packets leave at once. Nothing is received.
    #[inline]
    pub(crate) fn finish_post(&mut self) {
        self.deliver();
        if std::mem::take(&mut self.turn.posted) || self.deferral.keeps_any() {
            self.deferral.release();
            self.drain_transmit();
            self.deliver();
            self.flush(Keep::Nothing);
            self.deferral.end_turn(By::Visitor, false, true, || self.time.now());
        } else if let Some(shm) = self.ways.shm.as_mut().filter(|shm| shm.rings.is_unflushed()) {
            // Datagrams that went past the queue.
            shm.rings.flush(true);
        }
    }

    /// After a control call: sends and reports what the RNIC has ready.
    pub(crate) fn finish_control(&mut self) {
        self.turn.posted = true;
        self.finish_post();
    }

    /// When the engine wants to be run again after a step of a thread that came by. If it is the last step
    /// for now, kept acknowledgements leave at once; otherwise the next step sends them.
    pub(crate) fn due_after(&mut self, is_last_step: bool) -> Option<Instant> {
        if is_last_step && (self.deferral.keeps_any() || self.turn.posted) {
            self.begin_post();
            self.finish_post();
        }
        self.deadline_but_for_kept()
    }

    /// When the engine wants to be run again, even if nothing arrives until then.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        [self.deadline_but_for_kept(), self.deferral.deadline()].into_iter().flatten().min()
    }

    /// The same without acknowledgements that were kept back.
    fn deadline_but_for_kept(&self) -> Option<Instant> {
        let at_once = (self.turn.more_to_send || self.ways.are_blocked()).then_some(Instant::ZERO);
        [self.rnic.poll_timeout(), self.ways.deadline(), self.arrivals.held.deadline(), at_once]
            .into_iter()
            .flatten()
            .min()
    }

    /// Lets timers expire that are due; true if any was. Unread packets are taken first, because a timer may
    /// be waiting for one of them.
    fn expire(&mut self, has_worked: bool, packets: &mut u32) -> bool {
        self.turn.idle += 1;
        if !has_worked && self.turn.idle < IDLE_TURNS_PER_CLOCK {
            return false;
        }
        self.turn.idle = 0;
        let Some(deadline) = self.rnic.poll_timeout() else { return false };
        if deadline > self.now() {
            return false;
        }
        *packets += self.receive_all();
        let now = self.now();
        let ways = &self.ways;
        self.rnic.handle_timeout_unless(now, |gid, qpn, gives_up| ways.is_unread(gid, qpn, gives_up));
        true
    }
}
