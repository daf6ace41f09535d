//! The thread that runs a device's lanes while nobody else does.
//!
//! It serves passive targets and timers. While application threads take a lane's packets, it leaves that lane alone and
//! only looks every now and then whether they still do; once they stop, or sleep until a completion comes, it takes over,
//! and sleeps itself until a socket has something.

mod attendance;

use attendance::Attendance;

use crate::config::Engine;
use crate::device::Shared;
use crate::engine::{By, Pumped};
use crate::error::OpenError;
use crate::in_place::OwnThread;
use crate::sys;
use highwire_stdx::Duration;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{Builder, JoinHandle};

/// How often a lane that others run is looked at. Each look costs them a few microseconds on a machine of two cores.
const BACK_OFF: Duration = Duration::from_micros(400);
/// Turns without work before the thread sleeps: what comes back at once is met awake.
const IDLE_TURNS_MAX: u32 = 64;
/// Turns of a thread that is too busy to sleep between two looks at what is not a lane's.
const BUSY_TURNS_PER_LOOK: u32 = 256;
/// Visits during a turn or two of idleness that tell of a thread that polls, where another waits for an event: whoever waits
/// has come by a few times before.
const POLLING_VISITS: u64 = 32;
/// The longest sleep: counters are written and dead peers noticed at least this often.
const SLEEP_MAX: Duration = Duration::from_millis(100);

pub(crate) fn spawn(device: Arc<Shared>) -> Result<JoinHandle<()>, OpenError> {
    let (ready, is_ready) = std::sync::mpsc::channel();
    let masked = sys::SignalMask::all();
    let thread = Builder::new()
        .name("highwire".into())
        .spawn(move || {
            let _own = OwnThread::mark();
            sys::be_quick_to_run();
            // Refused only if nobody waits for it.
            let _ = ready.send(());
            Thread::new(&device).run();
        })
        .map_err(|error| OpenError::System("start the device's thread", error))?;
    drop(masked);
    // Until it is marked it counts as the application's, under which no memory moves.
    let _ = is_ready.recv();
    Ok(thread)
}

struct Thread<'a> {
    device: &'a Shared,
    lanes: Vec<Watched>,
}

/// What the thread knows about a lane.
struct Watched {
    /// The count of visits when it last looked, and whether that had moved.
    visits: u64,
    visitors_are_near: bool,
    attendance: Attendance,
    /// The count of visits when the lane last had work for this thread.
    visits_at_work: u64,
    /// A packet ended the last sleep.
    was_woken: bool,
}

impl Watched {
    fn new() -> Watched {
        let attendance = Attendance::default();
        Watched { visits: 0, visitors_are_near: false, attendance, visits_at_work: 0, was_woken: false }
    }

    /// Whether visitors look after the lane.
    fn is_attended(&self) -> bool {
        self.visitors_are_near && self.attendance.is_attended()
    }
}

impl Thread<'_> {
    fn new(device: &Shared) -> Thread<'_> {
        Thread { device, lanes: device.lanes.iter().map(|_| Watched::new()).collect() }
    }

    fn run(mut self) {
        let (mut idle, mut turns) = (0, 0u32);
        let mut has_slept = true;
        while !self.device.is_closing.load(Ordering::SeqCst) {
            turns += 1;
            if turns % BUSY_TURNS_PER_LOOK == 0 {
                self.device.look_around();
            }
            let worked = self.turn(has_slept);
            idle = if worked { 0 } else { idle + 1 };
            // Where others spin, this thread's spinning is at their cost.
            has_slept =
                idle > IDLE_TURNS_MAX || (!worked && self.lanes.iter().any(|lane| lane.visitors_are_near));
            if has_slept {
                self.sleep();
            }
        }
    }

    /// Runs every lane that nobody else looks after, and after a sleep those as well; true if there was anything to do.
    fn turn(&mut self, has_slept: bool) -> bool {
        let mut worked = false;
        // A sleeper came by just before it slept.
        let anybody_waits = self.device.waiting.any();
        let may_be_visited = self.device.engine == Engine::Both && !anybody_waits;
        for (shared, lane) in self.device.lanes.iter().zip(&mut self.lanes) {
            let visits = shared.visits();
            // Whoever came by before this thread woke is near until it has slept again.
            let has_come = visits != lane.visits || (lane.visitors_are_near && !has_slept);
            lane.visitors_are_near = may_be_visited && has_come;
            lane.visits = visits;
            if lane.is_attended() {
                // A turn of its own would only keep them waiting, unless they do not look after the lane at all.
                let finds = if has_slept { shared.try_run(|engine| engine.visitors_finds()) } else { None };
                if finds.is_none_or(|finds| lane.attendance.note_finds(finds)) {
                    continue;
                }
            }
            let by = By::Background { visitors_are_near: lane.visitors_are_near };
            let pumped = shared.try_run(|engine| engine.pump_by(by));
            // Nobody may have come because somebody is still at it, so absence changes no opinion.
            if has_slept && lane.visitors_are_near {
                lane.attendance.on_turn(pumped, visits, lane.was_woken);
            }
            let has_worked = pumped.is_some_and(|pumped: Pumped| pumped.work > 0 || pumped.completions > 0);
            if has_worked {
                lane.visits_at_work = visits;
            }
            worked |= has_worked;
        }
        worked
    }

    fn sleep(&mut self) {
        let device = self.device;
        device.waker.prepare_sleep();
        let mut timeout = SLEEP_MAX;
        let mut is_ready = device.is_closing.load(Ordering::SeqCst);
        let mut fds = vec![device.waker.fd()];
        let mut slept = vec![false; self.lanes.len()];
        for (index, (shared, lane)) in device.lanes.iter().zip(&self.lanes).enumerate() {
            let polled = device.engine == Engine::Both
                && shared.visits().wrapping_sub(lane.visits_at_work) > POLLING_VISITS
                && device.waiting.any();
            if lane.is_attended() || polled {
                timeout = timeout.min(BACK_OFF);
                continue;
            }
            fds.extend(device.lane_fds[index].iter().map(AsFd::as_fd));
            slept[index] = true;
            match shared.try_run(|engine| engine.prepare_sleep()) {
                // Somebody else runs it, so it is looked after; not for long, perhaps.
                None => timeout = timeout.min(BACK_OFF),
                Some(None) => is_ready = true,
                Some(Some(at_most)) => timeout = timeout.min(at_most),
            }
        }
        if let Some(side_band) = &device.side_band {
            fds.push(side_band.fd());
            let left = side_band.deadline().map(|at| at.saturating_since(device.clock.now()));
            timeout = timeout.min(left.unwrap_or(Duration::MAX));
        }
        let was_woken = !is_ready && sys::wait_readable(&fds, Some(timeout));
        device.waker.awake();
        for ((shared, lane), slept) in device.lanes.iter().zip(&mut self.lanes).zip(slept) {
            lane.was_woken = was_woken && slept;
            lane.visits_at_work = shared.visits();
            shared.try_run(|engine| engine.awake());
        }
        device.look_around();
    }
}
