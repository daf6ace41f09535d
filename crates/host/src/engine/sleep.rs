//! The sleeps of a lane's threads, and the bell by which neighbours end them.
//!
//! A lane says in shared memory that it sleeps, and a neighbour that sends rings its bell. Two rules spare a sleeper a wake-up that another
//! thread makes needless; each lies on the side that knows of that thread:
//!
//! | side | a sleeper is not woken | because | until |
//! |---|---|---|---|
//! | sender | by acknowledgements alone ([`Keep::AcksAndBells`](super::ways::Keep)) | this side's answer is near, and rings | the answer, or the time that [`Deferral`](super::deferral::Deferral) gives it |
//! | receiver | for packets that a thread of its own process takes ([`Sleep::is_muffled`]) | that thread polls | a thread relies on the sleeper, or the one that polls has looked in vain for a while |

use super::Engine;
use highwire_stdx::{Duration, Instant};

/// After so many turns in vain, a millisecond or so, a thread that has silenced a bell may be about to go.
const MUFFLED_TURNS_MAX: u32 = 4096;

/// Threads that sleep on what a lane receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sleeper {
    /// The background thread, or a thread that runs the device in its stead.
    Thread,
    /// The waiting thread that leads.
    Leader,
}

/// Which threads sleep, and whether they are to be rung for.
#[derive(Debug, Default)]
pub(super) struct Sleep {
    /// Which of the sleepers sleeps until a peer rings.
    asleep: [bool; 2],
    /// A sleep is over, and the bell was not looked at since.
    may_have_rung: bool,
    /// The bell was silenced although a thread sleeps.
    is_muffled: bool,
    /// Turns since then in a row that have found nothing.
    muffled_turns: u32,
}

impl Engine {
    /// Gets ready for a sleep: from now on, neighbours and threads with work for the lane wake the sleeper.
    /// Returns how long the sleep may last, or `None` if there is work already.
    pub(crate) fn prepare_sleep(&mut self, who: Sleeper) -> Option<Duration> {
        self.sleep.asleep[who as usize] = true;
        self.sleep.is_muffled = false;
        self.time.pass();
        let now = self.now();
        let left = self.deadline().map_or(Duration::MAX, |at| at.saturating_since(now));
        let may_sleep = self.board.prepare_sleep_seqcst()
            && self.ways.shm.as_mut().is_none_or(|shm| {
                // While many packets are held, those in the rings are to stay there.
                self.held.is_full() || shm.rings.inbox.prepare_sleep()
            })
            && self.mailboxes[self.lane as usize].is_empty()
            && left > Duration::ZERO;
        may_sleep.then_some(left)
    }

    /// The sleep is over. While another thread sleeps here, peers go on ringing.
    pub(crate) fn awake(&mut self, who: Sleeper) {
        self.sleep.asleep[who as usize] = false;
        // A packet in the socket may have ended the sleep, or a neighbour's bell.
        (self.sleep.may_have_rung, self.sleep.is_muffled) = (true, false);
        if self.sleep.asleep.contains(&true) {
            return;
        }
        self.board.awake();
        if let Some(shm) = &self.ways.shm {
            shm.rings.inbox.awake();
        }
    }

    /// The same for the leader, which may have been kept from saying so at once.
    #[inline]
    pub(crate) fn awake_from_rest(&mut self) {
        if self.sleep.asleep[Sleeper::Leader as usize] {
            self.awake(Sleeper::Leader);
        }
    }

    /// At the beginning of a turn: if it is the first one after a sleep, the socket will be looked at, unless it was a neighbour's bell that
    /// ended the sleep.
    #[inline]
    pub(super) fn hear_bell(&mut self) {
        if self.sleep.may_have_rung {
            self.silence_after_sleep();
        }
    }

    #[cold]
    fn silence_after_sleep(&mut self) {
        self.sleep.may_have_rung = false;
        let has_rung = self.ways.shm.as_ref().is_some_and(|shm| shm.rings.inbox.silence());
        if !has_rung {
            self.ways.udp.pace.hurry();
        }
    }

    /// A thread has looked for packets from neighbours while another one may sleep. If it has taken some, and that one has not woken yet, that one
    /// need not. It is not rung for again in this sleep, until a thread [relies](Self::listen_again) on it, or this one has looked in vain
    /// for a while.
    #[inline]
    pub(super) fn spare_sleeper(&mut self, has_taken: bool) {
        if has_taken && self.sleep.asleep.contains(&true) {
            self.muffle_bell();
        } else if self.sleep.is_muffled {
            self.sleep.muffled_turns += 1;
            if self.sleep.muffled_turns == MUFFLED_TURNS_MAX {
                self.listen_again();
            }
        }
    }

    fn muffle_bell(&mut self) {
        self.sleep.muffled_turns = 0;
        let Some(shm) = &self.ways.shm else { return };
        if !self.sleep.is_muffled && shm.rings.inbox.is_rung_for() {
            self.sleep.is_muffled = true;
            shm.rings.inbox.silence();
        }
    }

    /// A thread is about to rely on the sleeper: neighbours ring again. False if packets wait already.
    fn listen_again(&mut self) -> bool {
        let is_muffled = std::mem::take(&mut self.sleep.is_muffled);
        !is_muffled || self.ways.shm.as_mut().is_none_or(|shm| shm.rings.inbox.prepare_sleep())
    }

    /// When the engine wants to be run again after the step of a thread that relies on the sleeper from now on: as
    /// [`due_after`](Self::due_after), or at once.
    pub(crate) fn due_for_sleeper(&mut self, is_last_step: bool) -> Option<Instant> {
        let due = self.due_after(is_last_step);
        if self.listen_again() { due } else { Some(Instant::ZERO) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys;
    use crate::{Device, DeviceConfig, LinkChoice, QueuePairConfig};
    use highwire_verbs::{Operation, SendWr, Service};
    use std::os::fd::AsFd;

    #[test]
    fn a_bell_that_a_polling_thread_has_answered_rings_again_once_a_thread_relies_on_the_sleeper() {
        let config =
            DeviceConfig { link: LinkChoice::Auto, engine: crate::Engine::Inline, ..DeviceConfig::default() };
        let ends = [(); 2].map(|()| {
            let device = Device::open(&config).expect("a device");
            let (pd, cq) = (device.protection_domain(), device.completion_queue(64).expect("a queue"));
            let qp = pd.queue_pair(&QueuePairConfig::new(Service::Ud, &cq)).expect("a queue pair");
            qp.activate(1).expect("activates");
            (device, pd, cq, qp)
        });
        let [(device, .., qp), (.., sender)] = &ends;
        let handle = highwire_verbs::Datagram {
            address: highwire_verbs::Address::new(device.gid()),
            qpn: qp.qpn(),
            qkey: 1,
        };
        let request = SendWr { datagram: Some(handle), ..SendWr::new(1, Operation::Send, &[]) };
        let send = || sender.post_send(&[request]).expect("posts");
        let shared = device.inner();
        let lane = &shared.lanes[0];
        let is_rung = || {
            let fds: Vec<_> = shared.lane_fds[0].iter().map(AsFd::as_fd).collect();
            sys::wait_readable(&fds, Some(Duration::ZERO))
        };
        let sleep = |who| assert!(lane.control(|engine| engine.prepare_sleep(who)).is_some());
        send();
        lane.control(|engine| engine.pump());
        sleep(Sleeper::Thread);
        assert!(!is_rung());
        send();
        assert!(is_rung(), "it sleeps");
        lane.control(|engine| engine.pump());
        assert!(!is_rung(), "its packet was taken");
        send();
        assert!(!is_rung(), "a thread polls, and the next packet is that one's, too");
        lane.control(|engine| engine.pump());
        lane.control(|engine| engine.due_for_sleeper(false));
        send();
        assert!(is_rung(), "now a thread relies on the sleeper");
        lane.control(|engine| engine.pump());
        send();
        let due = lane.control(|engine| engine.due_for_sleeper(false));
        assert_eq!(due, Some(Instant::ZERO), "a packet waits, so that the sleeper is to be woken");
        lane.control(|engine| engine.awake(Sleeper::Thread));
        lane.control(|engine| engine.pump());
        sleep(Sleeper::Leader);
        send();
        lane.control(|engine| engine.pump());
        for vain in [MUFFLED_TURNS_MAX - 1, MUFFLED_TURNS_MAX] {
            send();
            assert!(!is_rung(), "a thread polls");
            for _ in 0..=vain {
                lane.control(|engine| engine.pump());
            }
        }
        send();
        assert!(is_rung(), "that thread has looked in vain for a while");
    }
}
