//! The thread that runs a device's lanes while nobody else does.
//!
//! It serves passive targets and timers. While application threads come by a lane, it leaves that lane alone and only
//! looks every now and then whether they still do; once they stop, or sleep until a completion comes, it takes over, and
//! sleeps itself until a socket has something.

use crate::config::Engine;
use crate::device::Shared;
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
    /// The count of visits when each lane was last looked at.
    visits: Vec<u64>,
    /// Which lanes application threads run at present.
    visited: Vec<bool>,
    /// The count of visits when each lane last had work for this thread.
    visits_at_work: Vec<u64>,
}

impl Thread<'_> {
    fn new(device: &Shared) -> Thread<'_> {
        let lanes = device.lanes.len();
        Thread { device, visits: vec![0; lanes], visited: vec![false; lanes], visits_at_work: vec![0; lanes] }
    }

    fn run(mut self) {
        let (mut idle, mut turns) = (0, 0u32);
        while !self.device.is_closing.load(Ordering::SeqCst) {
            turns += 1;
            if turns % BUSY_TURNS_PER_LOOK == 0 {
                self.device.look_around();
            }
            self.observe();
            let worked = self.turn();
            idle = if worked { 0 } else { idle + 1 };
            if idle > IDLE_TURNS_MAX || (!worked && self.visited.iter().any(|&visited| visited)) {
                self.sleep();
            }
        }
    }

    /// Finds out which lanes application threads run.
    fn observe(&mut self) {
        // A sleeper came by just before it slept.
        let anybody_waits = self.device.waiting.any();
        for (lane, shared) in self.device.lanes.iter().enumerate() {
            let visits = shared.visits();
            self.visited[lane] =
                self.device.engine == Engine::Both && visits != self.visits[lane] && !anybody_waits;
            self.visits[lane] = visits;
        }
    }

    /// Runs every lane that nobody else runs; true if there was anything to do.
    fn turn(&mut self) -> bool {
        let mut worked = false;
        for (lane, shared) in self.device.lanes.iter().enumerate() {
            if !self.visited[lane] {
                let pumped = shared.try_run(|engine| engine.pump());
                let has_worked = pumped.is_some_and(|pumped| pumped.work > 0 || pumped.completions > 0);
                if has_worked {
                    self.visits_at_work[lane] = shared.visits();
                }
                worked |= has_worked;
            }
        }
        worked
    }

    fn sleep(&mut self) {
        let device = self.device;
        device.waker.prepare_sleep();
        let mut timeout = SLEEP_MAX;
        let mut is_ready = device.is_closing.load(Ordering::SeqCst);
        let mut fds = vec![device.waker.fd()];
        for (lane, shared) in device.lanes.iter().enumerate() {
            let polled = device.engine == Engine::Both
                && shared.visits().wrapping_sub(self.visits_at_work[lane]) > POLLING_VISITS;
            if self.visited[lane] || polled {
                timeout = timeout.min(BACK_OFF);
                continue;
            }
            fds.extend(device.lane_fds[lane].iter().map(AsFd::as_fd));
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
        if !is_ready {
            sys::wait_readable(&fds, Some(timeout));
        }
        device.waker.awake();
        for (lane, shared) in device.lanes.iter().enumerate() {
            self.visits_at_work[lane] = shared.visits();
        }
        device.lanes.iter().for_each(|lane| {
            lane.try_run(|engine| engine.awake());
        });
        device.look_around();
    }
}
