//! The thread that runs a device's lanes while no application thread does.
//!
//! It serves peers whose target program makes no calls, and it serves timers. While application threads take a lane's packets,
//! it leaves that lane alone and only checks now and then whether they still do. Once they stop, or sleep until a completion
//! comes, it takes over, and sleeps until a socket has a packet. A leader (see the wake crate) is a waiting thread that polls
//! and takes packets for all waiting threads; while there is one, the background thread only checks that the leader still runs.

mod attendance;
mod following;
mod vigil;

use attendance::Attendance;
use following::{Account, Following, Move};
use vigil::Vigil;

use crate::company::Look;
use crate::config::Engine;
use crate::device::Shared;
use crate::engine::{By, Pumped, Sleeper};
use crate::error::OpenError;
use crate::in_place::OwnThread;
use crate::sys;
use highwire_link::shm::Life;
use highwire_stdx::Duration;
use highwire_wake::Core;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;

/// How often this thread looks at a lane that application threads run. Each look costs them a few microseconds on a machine of
/// two cores.
const BACK_OFF: Duration = Duration::from_micros(400);
/// How long it sleeps while another thread is in the middle of a turn of a lane that this one looks after.
const TAKEN_LANE: Duration = Duration::from_micros(50);
/// Turns without work before the thread sleeps: a packet that comes back at once finds it awake.
const IDLE_TURNS_MAX: u32 = 64;
/// A thread too busy to sleep looks after the side band and housekeeping once in so many turns.
const BUSY_TURNS_PER_LOOK: u32 = 256;
/// So many visits during a turn or two of idleness show that a thread polls. A thread that waits for an event makes only a few
/// visits before it sleeps.
const POLLING_VISITS: u64 = 32;
/// The longest sleep: counters are written and dead peers noticed at least this often.
const SLEEP_MAX: Duration = Duration::from_millis(100);
/// After so many of the longest sleeps with no work in between, a sleep lasts `SLUMBER_MAX`. Then the thread sleeps on the sockets even if
/// a leader rests on them: the first packet wakes both, and from then on this thread checks on that leader as before.
const QUIET_SLEEPS: u32 = 10;
/// A leader that has reported more often during one of these sleeps has had work: it did not just look by itself.
const HEARTBEATS_MAX: u64 = 2;
const SLUMBER_MAX: Duration = Duration::from_secs(1);

pub(crate) fn spawn(device: Arc<Shared>) -> Result<JoinHandle<()>, OpenError> {
    OwnThread::spawn("highwire", move || {
        sys::be_quick_to_run();
        sys::be_punctual();
        // Neighbours that reach into this process's memory learn of its end from this thread's.
        let _life = device.local.as_ref().and_then(Life::begin);
        Thread::new(&device).run();
    })
    .map_err(|error| OpenError::System("start the device's thread", error))
}

struct Thread<'a> {
    device: &'a Shared,
    lanes: Vec<Watched>,
    /// How often leaders had said that they run when it last looked, and whether they did since the look before.
    beats: u64,
    is_led: bool,
    /// The leader sleeps on the sockets, and did so at the look before.
    rests: bool,
    has_rested: bool,
    /// It need not look in before the leader goes.
    is_relieved: bool,
    /// Sleeps in a row that nothing has ended.
    quiet_sleeps: u32,
    following: Following,
    account: Account,
    /// What it knows of others that poll on its core.
    look: Look,
    /// The cores that this process may use.
    cores: Vec<Core>,
}

/// The thread's account of a lane.
struct Watched {
    /// The count of visits when it last looked, and whether that had moved.
    visits: u64,
    visitors_are_near: bool,
    attendance: Attendance,
    /// The count of visits when the lane last had work for this thread.
    visits_at_work: u64,
    /// A packet ended the last sleep.
    was_woken: bool,
    /// It did, and this thread has not run the lane since.
    is_unserved: bool,
}

impl Watched {
    fn new() -> Watched {
        let attendance = Attendance::default();
        Watched {
            visits: 0,
            visitors_are_near: false,
            attendance,
            visits_at_work: 0,
            was_woken: false,
            is_unserved: false,
        }
    }

    /// Whether visitors look after the lane.
    fn is_attended(&self) -> bool {
        self.visitors_are_near && self.attendance.is_attended()
    }
}

fn allowed_cores() -> Vec<Core> {
    let cores = highwire_link::floor::allowed_cores().unwrap_or_default();
    cores.into_iter().filter_map(|core| Core::try_from(core).ok()).collect()
}

impl Thread<'_> {
    fn new(device: &Shared) -> Thread<'_> {
        let lanes = device.lanes.iter().map(|_| Watched::new()).collect();
        Thread {
            device,
            lanes,
            beats: 0,
            is_led: false,
            rests: false,
            has_rested: false,
            is_relieved: false,
            quiet_sleeps: 0,
            following: Following::default(),
            account: Account::of_this_thread(),
            look: Look::default(),
            cores: allowed_cores(),
        }
    }

    fn run(mut self) {
        let (mut idle, mut turns) = (0, 0u32);
        let mut has_slept = true;
        let idle_turns_max = if self.device.waiting.saves_power() { 0 } else { IDLE_TURNS_MAX };
        // Where no other thread runs the lanes, each wait is a sleep or a vigil of this one.
        let mut vigil = (self.device.engine == Engine::Background).then(Vigil::default);
        while !self.device.is_closing.load(Ordering::SeqCst) {
            turns += 1;
            if turns % BUSY_TURNS_PER_LOOK == 0 {
                self.device.look_around();
            }
            let worked = self.turn(has_slept);
            if worked {
                self.device.has_worked.store(true, Ordering::Relaxed);
            }
            idle = if worked { 0 } else { idle + 1 };
            // Where others spin, this thread's spinning is at their cost.
            let others_spin = self.is_led || self.lanes.iter().any(|lane| lane.visitors_are_near);
            // Only a thread that would go on polling says that it does.
            let others_spin = others_spin || (!worked && idle_turns_max > 0 && self.shares_core());
            has_slept = match &mut vigil {
                Some(vigil) => !vigil.goes_on(worked, self.device.clock.now()),
                None => idle > idle_turns_max || (!worked && others_spin),
            };
            if has_slept {
                self.sleep();
            } else if !worked && vigil.is_some() {
                sys::be_patient();
                highwire_wake::yield_core();
            }
        }
    }

    /// Whether another thread polls on this core; such a thread makes way for this one, too.
    fn shares_core(&self) -> bool {
        self.device.company.shares_core(&self.look, self.device.clock.now())
    }

    /// Runs every lane that no other thread looks after, and after a sleep all lanes; true if there was anything to do.
    fn turn(&mut self, has_slept: bool) -> bool {
        let mut worked = false;
        self.look_for_leader(has_slept);
        if self.is_led {
            for (shared, lane) in self.device.lanes.iter().zip(&mut self.lanes) {
                (lane.visits, lane.visitors_are_near) = (shared.visits(), false);
            }
            return false;
        }
        // A sleeper came by just before it slept.
        let anybody_waits = self.device.waiting.any();
        let may_be_visited = self.device.engine == Engine::Both && !anybody_waits;
        for (shared, lane) in self.device.lanes.iter().zip(&mut self.lanes) {
            let visits = shared.visits();
            // A visitor that came by before this thread woke counts as near until this thread has slept again.
            let has_come = visits != lane.visits || (lane.visitors_are_near && !has_slept);
            lane.visitors_are_near = may_be_visited && has_come;
            lane.visits = visits;
            if lane.is_attended() {
                // A turn of this thread would only keep the visitors waiting, unless they do not look after the lane at all.
                let finds = if has_slept { shared.try_run(|engine| engine.visitors_finds()) } else { None };
                if finds.is_none_or(|finds| lane.attendance.note_finds(finds)) {
                    continue;
                }
            }
            let by = By::Background { visitors_are_near: lane.visitors_are_near };
            let pumped = shared.try_run(|engine| engine.pump_by(by));
            lane.is_unserved &= pumped.is_none();
            // A long visit may still be going on, so that no new visit was counted: a missing visit changes no judgement.
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

    /// Takes note of whether a leader takes the packets that arrive. A leader that has not said so since the last sleep began,
    /// and does not rest on the sockets either, may be waiting for a core; packets must not wait for it.
    fn look_for_leader(&mut self, has_slept: bool) {
        let is_left = self.device.waiting.take_left();
        if has_slept {
            let station = self.device.waiting.station();
            let beats = station.seat.beats();
            let since = beats.wrapping_sub(std::mem::replace(&mut self.beats, beats));
            let is_awake = since > 0;
            if since > HEARTBEATS_MAX {
                self.quiet_sleeps = 0;
            }
            self.rests = !is_awake && station.rest.is_taken();
            // Packets that lie in a socket although a leader sleeps on it have waited for that leader since the last look.
            let is_starved =
                self.rests && std::mem::replace(&mut self.has_rested, self.rests) && self.is_readable();
            self.has_rested &= self.rests;
            self.is_led = (is_awake || self.rests) && !is_left && !is_starved;
        } else if is_left {
            self.is_led = false;
        }
    }

    /// Whether a lane has packets.
    fn is_readable(&self) -> bool {
        let fds: Vec<_> = self.device.lane_fds.iter().flatten().map(AsFd::as_fd).collect();
        sys::wait_readable(&fds, Some(Duration::ZERO))
    }

    /// After `prepare_sleep`, looks again whether a leader takes packets.
    fn look_for_leader_again(&mut self) {
        let waiting = &self.device.waiting;
        let seat = &waiting.station().seat;
        self.is_led = !waiting.is_left() && (self.is_led || (seat.is_taken() && seat.beats() != self.beats));
        // The leader is woken by what arrives, and says when it goes.
        self.is_relieved = self.is_led && self.rests && waiting.relieve();
    }

    /// Moves to the core where a thread went to sleep last, from where it is woken soonest, unless this thread is kept waiting there.
    fn follow_sleeper(&mut self) {
        let Some(core) = self.device.waiting.sleeper_to_follow() else { return };
        let account = &self.account;
        // If this process may not use the core, the thread stays where it is.
        let _ = match self.following.follow(core, self.device.clock.now(), || account.waits()) {
            Some(Move::To(core)) => highwire_wake::pin(&[core]),
            Some(Move::Anywhere) => highwire_wake::pin(&self.cores),
            None => return,
        };
    }

    fn sleep(&mut self) {
        let device = self.device;
        device.company.leave(&self.look);
        self.follow_sleeper();
        sys::be_quick_to_run();
        device.waker.prepare_sleep();
        self.look_for_leader_again();
        // A broker that is gone is noticed as soon as ever.
        let is_quiet = self.quiet_sleeps >= QUIET_SLEEPS && device.broker.is_none();
        let (longest, mut watches_all) = (if is_quiet { SLUMBER_MAX } else { SLEEP_MAX }, true);
        let mut timeout = longest;
        if is_quiet {
            device.slumber.begin();
        }
        let begin = device.clock.now();
        device.waiting.absence.begin(begin + longest, self.is_relieved);
        let mut is_ready = device.is_closing.load(Ordering::SeqCst);
        let mut fds = vec![device.waker.fd()];
        let mut slept = vec![false; self.lanes.len()];
        for (index, (shared, lane)) in device.lanes.iter().zip(&self.lanes).enumerate() {
            let polled = device.engine == Engine::Both
                && shared.visits().wrapping_sub(lane.visits_at_work) > POLLING_VISITS
                && device.waiting.any();
            if self.is_relieved && !is_quiet {
                watches_all = false;
                continue;
            }
            if lane.is_attended() || polled || (self.is_led && !self.is_relieved) {
                (timeout, watches_all) = (timeout.min(BACK_OFF), false);
                continue;
            }
            match shared.try_run(|engine| engine.prepare_sleep(Sleeper::Thread)) {
                // Another thread runs this lane, so it is looked after, though perhaps not for long.
                None => {
                    (timeout, watches_all) = (timeout.min(TAKEN_LANE), false);
                    // It has run it since a packet woke this thread, and may have lost its core to this one: if that packet ended this
                    // sleep, too, this thread would go on looking in vain until its time slice ends.
                    if lane.is_unserved {
                        continue;
                    }
                }
                Some(None) => is_ready = true,
                Some(Some(at_most)) => timeout = timeout.min(at_most),
            }
            slept[index] = true;
            fds.extend(device.lane_fds[index].iter().map(AsFd::as_fd));
        }
        if let Some(side_band) = &device.side_band {
            fds.push(side_band.fd());
            let left = side_band.deadline().map(|at| at.saturating_since(device.clock.now()));
            timeout = timeout.min(left.unwrap_or(Duration::MAX));
        }
        if self.is_relieved {
            // A thread that has posted and now does something else wakes no other thread, and a leader sleeps long while no
            // packet comes. So this thread tells the leader before it sleeps.
            device.waiting.leave_to_leader(device);
        }
        if !is_ready {
            device.waiting.absence.begin(begin + timeout, self.is_relieved);
            let until_ns = (begin + timeout).as_nanos();
            if watches_all {
                device.waiting.watching.begin(until_ns);
            } else if timeout <= BACK_OFF {
                device.waiting.dozing.begin(until_ns);
            }
        }
        let was_woken = !is_ready && sys::wait_readable(&fds, Some(timeout));
        device.slumber.end();
        if was_woken || is_ready {
            self.quiet_sleeps = 0;
            // The leader that rests may have just been woken, too, and gets time to run.
            self.has_rested &= !is_quiet;
        } else if timeout == longest {
            self.quiet_sleeps = self.quiet_sleeps.saturating_add(1);
        }
        device.waker.awake();
        device.waiting.resume();
        for ((shared, lane), slept) in device.lanes.iter().zip(&mut self.lanes).zip(slept) {
            lane.was_woken = was_woken && slept;
            lane.is_unserved = lane.was_woken;
            lane.visits_at_work = shared.visits();
            let may_have_overslept = slept && !was_woken && !is_ready && timeout == longest;
            let has_overslept = shared.try_run(|engine| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, DeviceConfig, LinkChoice};
    use std::net::{SocketAddr, UdpSocket};
    use std::sync::mpsc;

    /// Sleeps beside a packet that lies in the socket, makes a turn and sleeps again; returns which of the two sleeps the packet ended.
    fn sleeps_ended_by_a_packet(is_lane_taken: bool) -> [bool; 2] {
        let config =
            DeviceConfig { link: LinkChoice::Udp, engine: Engine::Inline, ..DeviceConfig::default() };
        let device = Device::open(&config).expect("opens");
        let address = device.gid().to_ip();
        let socket = UdpSocket::bind((address, 0)).expect("a socket");
        let shared = device.inner();
        let mut thread = Thread::new(shared);
        // Housekeeping takes the lanes, and comes ten times a second.
        shared.look_around();
        std::thread::scope(|threads| {
            let (taken, is_taken) = mpsc::channel();
            let (done, is_done) = mpsc::channel::<()>();
            threads.spawn(move || {
                let hold = || {
                    taken.send(()).expect("the test waits");
                    let _ = is_done.recv_timeout(std::time::Duration::from_secs(1));
                };
                if is_lane_taken { shared.lanes[0].control(|_| hold()) } else { hold() }
            });
            is_taken.recv().expect("no panic");
            let to = SocketAddr::new(address, highwire_link::ROCE_PORT);
            socket.send_to(&[0; 64], to).expect("a datagram");
            assert!(thread.is_readable());
            let sleeps = [(); 2].map(|()| {
                thread.sleep();
                let was_woken = thread.lanes[0].was_woken;
                thread.turn(true);
                was_woken
            });
            drop(done);
            sleeps
        })
    }

    #[test]
    fn a_packet_in_a_lane_that_another_thread_runs_does_not_keep_the_thread_awake() {
        assert_eq!(sleeps_ended_by_a_packet(false), [true, false], "it is served after the first");
        assert_eq!(sleeps_ended_by_a_packet(true), [true, false], "that thread may wait for this one's core");
    }
}
