//! Timers: they repeat, give up, or forget.

use highwire_stdx::Instant;
use highwire_wire::cm::{RejectReason, Rejected};

use crate::table::State;
use crate::{CommId, ConnectionManager, DisconnectCause, Event};

impl ConnectionManager {
    /// Runs the timers that are due at `now`. Early and late calls are harmless.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, id)) = self.timers.first()
            && at <= now
        {
            self.timers.remove(&(at, id));
            if self.connections.contains_key(&id) {
                self.on_connection_due(now, id);
            } else {
                self.on_service_due(now, id);
            }
        }
    }

    fn on_connection_due(&mut self, now: Instant, id: u32) {
        let (retries_max, pause_max) = (self.config.retries_max, self.config.repeat_after_max);
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.deadline = None;
        if matches!(connection.state, State::Timewait | State::Closed) {
            self.tell(id, Event::TimewaitExited { id: CommId(id) });
            return self.forget(id);
        }
        let next = if let Some(patience) = connection.patience {
            if now >= patience {
                return self.give_up(now, id);
            }
            (now + pause_max).min(patience)
        } else {
            if connection.repeats >= retries_max {
                return self.give_up(now, id);
            }
            connection.repeats += 1;
            connection.pause = connection.pause.saturating_mul(2).min(pause_max);
            now + connection.pause
        };
        self.say_again(id);
        self.set_deadline(id, Some(next));
    }

    /// Gives up a peer that counts as gone.
    fn give_up(&mut self, now: Instant, id: u32) {
        match self.connections.get(&id).map(|connection| connection.state) {
            Some(State::DreqSent) => self.depart(now, id, DisconnectCause::Silence),
            Some(State::ReqSent) => self.fail(id, Rejected::Req),
            Some(State::RepSent) => self.fail(id, Rejected::Rep),
            _ => {}
        }
    }

    fn fail(&mut self, id: u32, rejected: Rejected) {
        self.say_no(id, rejected, RejectReason::TIMEOUT);
        self.close(id);
        self.end(id, Event::Unreachable { id: CommId(id) });
    }
}
