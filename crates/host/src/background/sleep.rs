//! The background thread's sleep: it announces one, asks the lanes, settles, sleeps, and reports how the sleep ended.

use super::Thread;
use crate::config::Engine;
use crate::engine::Sleeper;
use crate::following::follow;
use crate::side_band::SideBand;
use crate::sys;
use highwire_stdx::Duration;
use highwire_wake::duty::{Charge, Ended, Prepared};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

impl<'a> Thread<'a> {
    /// Moves to the core where a thread went to sleep last, from where it is woken soonest, unless this thread is kept waiting there.
    fn follow_sleeper(&mut self) {
        let Some(core) = self.device.waiting.sleeper_to_follow() else { return };
        follow(&mut self.following, core, self.device.clock.now(), &self.account, &self.cores);
    }

    pub(super) fn sleep(&mut self) {
        let (device, waker) = (self.device, &self.device.waker);
        device.company.leave(&self.look);
        self.follow_sleeper();
        sys::be_quick_to_run();
        let begin = device.clock.now();
        let (duty, longest) = self.decisions.choose();
        let announced = waker.announce(duty, begin + longest);
        self.decisions.see_again(device.waiting.sight());
        let fds = self.ask_lanes();
        if let Some(side_band) = &device.side_band {
            let left = side_band.deadline().map(|at| at.saturating_since(device.clock.now()));
            self.decisions.wake_within(left.unwrap_or(Duration::MAX));
        }
        if self.decisions.duty().rules().relies {
            // A thread that has posted and now does something else wakes no other thread, and a leader sleeps long while no
            // packet comes. So this thread tells the leader before it sleeps.
            device.waiting.leave_to_leader(device);
        }
        let settled = self.decisions.settle().filter(|_| !device.is_closing.load(Ordering::SeqCst));
        let settled = settled.filter(|&(duty, timeout)| waker.settle(announced, duty, begin + timeout));
        let (ended, is_rung) = match settled.map(|(_, timeout)| sys::wait_with_bell(&fds, Some(timeout))) {
            Some((sys::Waited::Readable, true)) => (Ended::Rung, true),
            Some((sys::Waited::Readable, false)) => (Ended::Packet, false),
            Some((sys::Waited::TimedOut, _)) => (Ended::Time, false),
            // There is work already, or a signal.
            None | Some((sys::Waited::Interrupted, _)) => (Ended::AtOnce, false),
        };
        self.wake_up(ended, is_rung);
    }

    /// Asks every lane whether it lets this thread sleep; the descriptors to sleep on, this thread's own first.
    fn ask_lanes(&mut self) -> Vec<BorrowedFd<'a>> {
        let device = self.device;
        let mut fds = vec![device.waker.fd()];
        let anybody_waits = device.engine == Engine::Both && device.waiting.any();
        for (index, lane) in device.lanes.iter().enumerate() {
            if self.decisions.charge(index, lane.visits(), anybody_waits) != Charge::Watch {
                continue;
            }
            let prepared = match lane.try_run(|engine| engine.prepare_sleep(Sleeper::Thread)) {
                None => Prepared::Taken,
                Some(None) => Prepared::Ready,
                Some(Some(left)) => Prepared::For(left),
            };
            if self.decisions.note_prepared(index, prepared) {
                fds.extend(device.lane_fds[index].iter().map(AsFd::as_fd));
            }
        }
        fds.extend(device.side_band.iter().map(SideBand::fd));
        fds
    }

    /// The sleep is over.
    fn wake_up(&mut self, ended: Ended, is_rung: bool) {
        let device = self.device;
        let (relied, was_called) = (self.decisions.duty().rules().relies, device.waker.awake(is_rung));
        if relied && ended == Ended::Time && !was_called {
            device.waiting.note_if_forsaken();
        }
        let was_long = self.decisions.on_end(ended);
        for (index, lane) in device.lanes.iter().enumerate() {
            self.decisions.note_end(index, lane.visits(), ended);
            let may_have_overslept = was_long && self.decisions.lane(index).is_slept_on();
            let has_overslept = lane.try_run(|engine| {
                let has_overslept = may_have_overslept && engine.has_overslept();
                engine.awake(Sleeper::Thread);
                has_overslept
            });
            if has_overslept == Some(true) {
                device.waiting.note_rescue();
            }
        }
        device.look_around();
    }
}
