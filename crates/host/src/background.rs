//! The thread that runs a device's lanes while no application thread does.
//!
//! It asks [`Background`] what to do, makes turns, sleeps, and reports; `docs/wake-duties.md` has its states. A leader (see the wake crate)
//! is a waiting thread that polls and takes packets for all waiting threads.

mod sleep;

use crate::company::Look;
use crate::config::Engine;
use crate::device::Shared;
use crate::engine::{By, Pumped};
use crate::error::OpenError;
use crate::following::{Account, Following, allowed_cores};
use crate::helper::Helper;
use crate::sys;
use highwire_link::shm::Life;
use highwire_stdx::Duration;
use highwire_wake::Core;
use highwire_wake::duty::{Background, Found, Next};
use highwire_wake::world;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A thread too busy to sleep looks after the side band and housekeeping once in so many turns.
const BUSY_TURNS_PER_LOOK: u32 = 256;

pub(crate) fn spawn(device: Arc<Shared>) -> Result<Helper, OpenError> {
    Helper::spawn("highwire", move || {
        sys::be_quick_to_run();
        sys::be_punctual();
        // Neighbours that reach into this process's memory learn of its end from this thread's. A model's process has no such thread.
        let _life = device.local.as_ref().filter(|_| world::time().is_none()).and_then(Life::begin);
        Thread::new(&device).run();
    })
    .map_err(|error| OpenError::System("start the device's thread", error))
}

struct Thread<'a> {
    device: &'a Shared,
    decisions: Background,
    following: Following,
    account: Account,
    /// What it knows of others that poll on its core.
    look: Look,
    /// The cores that this process may use.
    cores: Vec<Core>,
}

impl<'a> Thread<'a> {
    fn new(device: &'a Shared) -> Thread<'a> {
        let lanes = device.lanes.len();
        let mut decisions = match device.engine {
            Engine::Background => Background::alone(lanes),
            Engine::Both | Engine::Inline => Background::beside_others(lanes, device.waiting.saves_power()),
        };
        if device.broker.is_some() {
            // A broker that is gone is noticed as soon as ever.
            decisions.sleep_short();
        }
        let (following, account, look) = (Following::default(), Account::of_this_thread(), Look::default());
        Thread { device, decisions, following, account, look, cores: allowed_cores() }
    }

    fn run(mut self) {
        let (device, mut turns) = (self.device, 0u32);
        while !device.is_closing.load(Ordering::SeqCst) {
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(BUSY_TURNS_PER_LOOK) {
                device.look_around();
            }
            let worked = self.turn();
            if worked {
                device.house.note_work();
            }
            // Another thread that polls on this core makes way for this one, too.
            let others_poll = || device.company.shares_core(&self.look, device.clock.now());
            match self.decisions.on_turn(worked, others_poll, || device.clock.now()) {
                Next::Turn => {}
                Next::MakeWay => {
                    sys::be_patient();
                    highwire_wake::yield_core();
                }
                Next::Sleep => self.sleep(),
            }
        }
    }

    /// Runs every lane that no other thread looks after, and after a sleep all lanes; true if there was anything to do.
    fn turn(&mut self) -> bool {
        let (device, decisions) = (self.device, &mut self.decisions);
        decisions.see(device.waiting.take_sight(), || is_readable(device));
        let mut worked = false;
        // A sleeper came by just before it slept.
        let may_be_visited = device.engine == Engine::Both && !device.waiting.any();
        for (index, lane) in device.lanes.iter().enumerate() {
            decisions.note_visits(index, lane.visits(), may_be_visited);
            if decisions.is_led() {
                continue;
            }
            let has_slept = decisions.has_slept();
            let watch = decisions.lane(index);
            if watch.is_attended() {
                // A turn of this thread would only keep the visitors waiting, unless they do not look after the lane at all.
                let finds = if has_slept { lane.try_run(|engine| engine.visitors_finds()) } else { None };
                if finds.is_none_or(|finds| watch.note_finds(finds)) {
                    continue;
                }
            }
            let by = By::Background { visitors_are_near: watch.visitors_are_near() };
            let found = lane.try_run(|engine| engine.pump_by(by)).map(found);
            decisions.note_turn(index, found);
            worked |= found.is_some_and(|found| found.work);
        }
        worked
    }
}

fn found(pumped: Pumped) -> Found {
    let Pumped { work, packets, completions, visitors_finds } = pumped;
    let completions = completions > 0;
    Found { work: work > 0 || completions, packets: packets > 0, completions, visitors_finds }
}

/// Whether a lane has packets.
fn is_readable(device: &Shared) -> bool {
    let fds: Vec<_> = device.lane_fds.iter().flatten().map(AsFd::as_fd).collect();
    sys::wait_readable(&fds, Some(Duration::ZERO))
}

#[cfg(test)]
mod tests;
