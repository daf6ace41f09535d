//! Devices: an address, lanes, and the background thread that serves them when no application thread does.

mod housekeeping;
mod open;
mod sharing;

pub use sharing::default_shared_address;

use crate::background;
use crate::clock::Clock;
use crate::cm::Running;
use crate::company::Company;
use crate::completion_channel::CompletionChannel;
use crate::completion_queue::{CompletionQueue, CompletionQueueConfig};
use crate::config::{DeviceConfig, Engine};
use crate::counters::CounterSnapshot;
use crate::crowd::Crowd;
use crate::dispatching;
use crate::engine::Sleeper;
use crate::error::{CreateError, OpenError};
use crate::events::{self, EventQueue, Standing};
use crate::helper::Helper;
use crate::lane::Lane;
use crate::region::ProtectionDomain;
use crate::shared_receive_queue::{SharedReceiveQueue, SharedReceiveQueueConfig};
use crate::side_band::SideBand;
use crate::sys;
use crate::waiting::{News, Waiting};
use crate::waker::Waker;
use highwire_broker::Client;
use highwire_link::CaptureFile;
use highwire_link::shm::LocalEngine;
use highwire_link::shm::stats::{ChannelFigures, Channels, StatsFile};
use highwire_shmem::{SharedPool, WholeSegment};
use highwire_stdx::Rng;
use highwire_verbs::{AsyncEvent, Gid, Mtu};
use highwire_wake::duty::Duty;
use highwire_wire::Qpn;
use housekeeping::Housekeeping;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// How long a process that ends waits for threads that run its engines.
const LAST_PATIENCE: highwire_stdx::Duration = highwire_stdx::Duration::from_millis(20);
/// The longest sleep of a thread that runs the lanes while it waits.
const WAIT_MAX: highwire_stdx::Duration = highwire_stdx::Duration::from_millis(20);

/// A software RNIC of this process. Clones are the same device; it closes when the last clone and the last object made
/// from it are gone.
#[derive(Clone)]
pub struct Device {
    owner: Arc<Owner>,
}

/// The state that application threads and the background thread share.
pub(crate) struct Shared {
    pub(crate) gid: Gid,
    pub(crate) engine: Engine,
    pub(crate) mtu: Mtu,
    pub(crate) lanes: Vec<Lane>,
    pub(crate) events: EventQueue,
    pub(crate) waker: Arc<Waker>,
    pub(crate) waiting: Waiting,
    pub(crate) side_band: Option<SideBand>,
    /// Present where peers on this host can reach the device through shared memory.
    pub(crate) local: Option<Arc<LocalEngine>>,
    /// Packets to and from neighbours suffer faults or are recorded, so no operation may bypass packets.
    is_disturbed: bool,
    pub(crate) arenas: Arenas,
    pub(crate) house: Housekeeping,
    pub(crate) capture: Option<CaptureFile>,
    /// What a scenario does to datagrams for queue pair 1, which come by the broker.
    pub(crate) deafness: Option<crate::PacketFaults>,
    /// Where those datagrams are recorded.
    pub(crate) record: Option<highwire_record::Tap>,
    pub(crate) clock: Clock,
    /// The descriptors that become readable when a lane has packets, per lane.
    pub(crate) lane_fds: Vec<Vec<OwnedFd>>,
    pub(crate) guests: Guests,
    pub(crate) rng: Mutex<Rng>,
    /// Connection management, while the application uses it.
    pub(crate) connections: Mutex<Weak<Running>>,
    pub(crate) is_closing: AtomicBool,
    pub(crate) crowd: Crowd,
    pub(crate) company: Company,
    /// The broker's client, which got the device its part of a shared address. Dropped last: afterwards another process may get
    /// that part.
    pub(crate) broker: Option<Client>,
}

/// Memory that objects of the device lie in.
pub(crate) struct Arenas {
    /// Where other processes may map it.
    pub(crate) pool: SharedPool,
    /// Where the rings of the process's own threads lie.
    pub(crate) rings: SharedPool,
}

/// What programs that use the device from outside are given.
pub(crate) struct Guests {
    /// The lanes' doorbells, where other programs ring them.
    pub(crate) boards: Vec<WholeSegment>,
    /// As in the configuration.
    pub(crate) door_share: u32,
}

/// Held by every object of a device; dropping the last one ends the device's threads.
pub(crate) struct Owner {
    shared: ManuallyDrop<Arc<Shared>>,
    threads: Vec<Helper>,
}

impl Device {
    /// Opens a device.
    ///
    /// # Errors
    /// [`OpenError`], whose text says what to do.
    pub fn open(config: &DeviceConfig) -> Result<Device, OpenError> {
        let shared = Arc::new(open::open(config)?);
        // From here on its end ends the threads that have begun.
        let mut owner = Owner { shared: ManuallyDrop::new(Arc::clone(&shared)), threads: Vec::new() };
        if config.engine != Engine::Inline {
            owner.threads.push(background::spawn(Arc::clone(&shared))?);
        }
        if let Some(dispatcher) = shared.waiting.dispatcher() {
            owner.threads.push(dispatching::spawn(Arc::clone(&shared), Arc::clone(dispatcher))?);
        }
        Ok(Device { owner: Arc::new(owner) })
    }

    /// The device's address.
    pub fn gid(&self) -> Gid {
        self.owner.gid
    }

    /// The largest path MTU it offers.
    pub fn mtu(&self) -> Mtu {
        self.owner.mtu
    }

    pub(crate) fn owner(&self) -> &Arc<Owner> {
        &self.owner
    }

    pub(crate) fn pool(&self) -> &SharedPool {
        &self.owner.arenas.pool
    }

    /// Which part of a shared address is this process's: every number of its queue pairs ends in this byte. `None` for a
    /// device that has its address to itself.
    pub fn shard(&self) -> Option<u8> {
        self.owner.broker.as_ref().map(Client::shard)
    }

    pub(crate) fn inner(&self) -> &Shared {
        &self.owner
    }

    /// How many lanes it has.
    pub fn lanes(&self) -> u32 {
        self.owner.lanes.len() as u32
    }

    /// A new protection domain.
    pub fn protection_domain(&self) -> ProtectionDomain {
        ProtectionDomain::create(&self.owner)
    }

    /// A completion queue for at least `capacity` completions, in lane 0.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn completion_queue(&self, capacity: u32) -> Result<CompletionQueue, CreateError> {
        self.completion_queue_in(0, capacity)
    }

    /// A completion queue in a lane. The queue pairs that complete their sends into it live in that lane, too.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn completion_queue_in(&self, lane: u32, capacity: u32) -> Result<CompletionQueue, CreateError> {
        CompletionQueue::create(
            &self.owner,
            &CompletionQueueConfig { lane, ..CompletionQueueConfig::new(capacity) },
        )
    }

    /// A completion queue with a full configuration.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create_completion_queue(
        &self,
        config: &CompletionQueueConfig<'_>,
    ) -> Result<CompletionQueue, CreateError> {
        CompletionQueue::create(&self.owner, config)
    }

    /// A channel that completion queues can report to.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn completion_channel(&self) -> io::Result<CompletionChannel> {
        CompletionChannel::new(&self.owner)
    }

    /// A queue for the asynchronous events of some objects, apart from the device's own.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn event_queue(&self) -> io::Result<EventQueue> {
        EventQueue::new()
    }

    /// The device's own queue of asynchronous events: of every object that was not given another.
    pub fn events(&self) -> &EventQueue {
        &self.owner.events
    }

    /// A shared receive queue for at least `max_wr` receives of up to `max_sge` SGEs, in lane 0.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn shared_receive_queue(
        &self,
        pd: &ProtectionDomain,
        max_wr: u32,
        max_sge: u32,
    ) -> Result<SharedReceiveQueue, CreateError> {
        SharedReceiveQueue::create(pd, &SharedReceiveQueueConfig::new(max_wr, max_sge))
    }

    /// A shared receive queue with a full configuration.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create_shared_receive_queue(
        &self,
        pd: &ProtectionDomain,
        config: &SharedReceiveQueueConfig<'_>,
    ) -> Result<SharedReceiveQueue, CreateError> {
        SharedReceiveQueue::create(pd, config)
    }

    /// The oldest event that was not asked for yet.
    pub fn async_event(&self) -> Option<AsyncEvent> {
        self.owner.events.try_next().map(|event| event.event)
    }

    /// The same, waiting for one.
    pub fn wait_async_event(&self, timeout: Duration) -> Option<AsyncEvent> {
        self.owner.events.next(Some(timeout)).map(|event| event.event)
    }

    /// Every counter, summed over the lanes.
    pub fn counters(&self) -> CounterSnapshot {
        self.owner.counters()
    }

    /// Sends the acknowledgements that wait for this process's next step. For a process that ends and leaves the device open: it has no next step.
    /// Waits a little for a thread that runs the engine. It is not waited for longer: the end may have stopped it there.
    pub fn send_the_last(&self) {
        if self.owner.is_inherited() {
            return;
        }
        let begun = self.owner.clock.now();
        for lane in &self.owner.lanes {
            let send = || {
                lane.try_run(|engine| {
                    engine.begin_post();
                    engine.finish_control();
                })
            };
            while send().is_none() && self.owner.clock.now().saturating_since(begun) < LAST_PATIENCE {
                std::thread::yield_now();
            }
        }
    }

    /// How it stands, for a report.
    pub fn standing(&self) -> Standing {
        self.owner.standing()
    }

    /// The cost of waiting, for each channel and each completion queue where a thread has waited.
    pub fn channel_figures(&self) -> Vec<ChannelFigures> {
        self.owner.waiting.accounts().by_place()
    }
}

impl Shared {
    #[inline]
    pub(crate) fn lane(&self, lane: u32) -> Option<&Lane> {
        self.lanes.get(lane as usize)
    }

    /// The lane that a queue pair lives in.
    pub(crate) fn lane_of(&self, qpn: Qpn) -> &Lane {
        &self.lanes[qpn.value() as usize % self.lanes.len()]
    }

    /// The rest of an application thread's turn after it ran a lane, if no other thread does this work.
    #[inline]
    pub(crate) fn after_visit(&self) {
        if self.engine == Engine::Inline && self.house.note_visit() {
            self.look_around();
        }
    }

    /// Serves the side band, which belongs to no lane, and does housekeeping if it is due.
    #[cold]
    pub(crate) fn look_around(&self) {
        if let Some(side_band) = &self.side_band {
            side_band.serve(self);
        }
        if self.house.take_due(self.clock.now()) {
            self.keep_house();
        }
    }

    /// Without a background thread, a waiting thread runs the lanes itself: once, and then it sleeps until
    /// there is more to do, unless its wait is over. Of several threads that sleep so,
    /// [`CompletionQueue::wake`](crate::CompletionQueue) wakes one at once; the others look again after
    /// [`WAIT_MAX`].
    pub(crate) fn run_and_sleep(&self, at_most: Duration, is_over: impl Fn() -> bool) {
        let mut at_most = highwire_stdx::Duration::from(at_most).min(WAIT_MAX);
        let mut fds: Vec<_> = self.side_band.iter().map(SideBand::fd).collect();
        for (lane, fds_of_lane) in self.lanes.iter().zip(&self.lane_fds) {
            fds.extend(fds_of_lane.iter().map(AsFd::as_fd));
            let sleep = lane.try_run(|engine| {
                engine.pump();
                engine.prepare_sleep(Sleeper::Thread)
            });
            // If another thread runs a lane, this one need not.
            at_most = at_most.min(sleep.unwrap_or(Some(WAIT_MAX)).unwrap_or(highwire_stdx::Duration::ZERO));
        }
        self.look_around();
        if let Some(side_band) = &self.side_band {
            let left = side_band.deadline().map(|at| at.saturating_since(self.clock.now()));
            at_most = at_most.min(left.unwrap_or(WAIT_MAX));
        }
        // Either a thread that changes something sees that this one sleeps, or this one sees the change.
        fds.insert(0, self.waker.fd());
        // It keeps nothing back that another thread would have to see to, so it says that it looks at once.
        let _ = self.waker.announce(Duty::Checking, highwire_stdx::Instant::ZERO);
        let is_rung = !is_over() && sys::wait_with_bell(&fds, Some(at_most)).1;
        self.waker.awake(is_rung);
        self.lanes.iter().for_each(|lane| {
            lane.try_run(|engine| engine.awake(Sleeper::Thread));
        });
    }

    /// Housekeeping, ten times a second or so: counters for others to read, captures, and peers that are gone.
    fn keep_house(&self) {
        if let Some(stats) = &self.house.stats {
            self.tell(stats);
        }
        if let Some(capture) = &self.capture {
            // A capture that has stopped shows in its counters.
            let _ = capture.flush();
        }
        let neighbours = self.lanes.iter().map(|lane| {
            lane.control(|engine| {
                engine.reap();
                engine.neighbours()
            })
        });
        self.crowd.note(neighbours.max().unwrap_or(0));
        if events::is_logged() {
            self.tell_of_waits();
        }
        events::report(self.gid, &|| self.standing());
        self.house.note_done();
        if let Some(broker) = &self.broker {
            broker.look_after_broker();
        }
    }

    /// Says which threads wait for what will not come.
    #[cold]
    fn tell_of_waits(&self) {
        for lane in &self.lanes {
            // Printed without the lane: a terminal that stands still holds up this thread only.
            let lines = lane.control(|engine| engine.watch());
            lines.into_iter().for_each(|line| events::log(|| line));
        }
    }

    fn standing(&self) -> Standing {
        let (mut queue_pairs, mut left_out) = (Vec::new(), 0);
        for lane in &self.lanes {
            lane.control(|engine| {
                engine.each_queue_pair(&mut |qpn, snapshot| match queue_pairs.len() {
                    0..Standing::QUEUE_PAIRS_MAX => queue_pairs.push((qpn, snapshot())),
                    _ => left_out += 1,
                });
            });
        }
        Standing { counters: self.counters(), queue_pairs, left_out }
    }

    /// Writes the counters for others to read, if they may have changed, and now and then in any case: calls that set things up count, too.
    fn tell(&self, stats: &StatsFile) {
        let visits = self.lanes.iter().fold(0, |sum: u64, lane| sum.wrapping_add(lane.visits()));
        let has_news = self.house.has_news(visits);
        let News { sum, busiest } = self.waiting.news(self.clock.now().as_nanos(), StatsFile::CHANNELS_MAX);
        let channels = match &busiest {
            Some((channels, others)) => Channels::Busiest(channels, *others),
            None if has_news => Channels::Unchanged,
            None => return,
        };
        stats.write_all(self.counters_with(|each| sum.each(each)).iter(), channels);
    }

    /// The table of memory that peers may reach without packets, if they may.
    pub(crate) fn directly_reached(&self) -> Option<&LocalEngine> {
        self.local.as_deref().filter(|_| !self.is_disturbed)
    }

    /// Whether this is a forked child's copy of the parent's device.
    pub(crate) fn is_inherited(&self) -> bool {
        self.lanes.iter().any(Lane::is_inherited)
    }

    /// Runs something while no lane touches memory.
    pub(crate) fn quietly(&self, act: &mut dyn FnMut()) {
        fn hold(lanes: &[Lane], act: &mut dyn FnMut()) {
            match lanes.split_first() {
                Some((lane, rest)) => lane.control(|_| hold(rest, act)),
                None => act(),
            }
        }
        hold(&self.lanes, act);
    }

    /// Tells the device from others of this process.
    pub(crate) fn number(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// A random 24-bit number.
    pub(crate) fn random_psn(&self) -> highwire_wire::Psn {
        highwire_wire::Psn::new(self.rng.lock().unwrap_or_else(PoisonError::into_inner).next_u32())
    }

    pub(crate) fn counters(&self) -> CounterSnapshot {
        self.counters_with(|each| self.waiting.accounts().each(each))
    }

    /// The lanes' counters, and those of waiting from `waits`.
    fn counters_with(&self, waits: impl FnOnce(&mut dyn FnMut(&'static str, u64))) -> CounterSnapshot {
        let mut snapshot = CounterSnapshot::default();
        for lane in &self.lanes {
            lane.control(|engine| engine.each_counter(&mut |name, value| snapshot.add(name, value)));
        }
        waits(&mut |name, value| snapshot.add(name, value));
        snapshot.add("segments_lost", highwire_shmem::guard::lost_segments());
        snapshot.add("gave_way", self.crowd.turns());
        snapshot.add("housekeeping", self.house.times());
        snapshot.add("met_pollers", self.company.met());
        snapshot.add("pollers", self.company.pollers());
        snapshot
    }
}

impl std::ops::Deref for Owner {
    type Target = Shared;
    #[inline]
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        if self.shared.is_inherited() {
            // A forked child has copies of everything and no threads; it must not tear down its parent's
            // objects.
            return;
        }
        self.shared.is_closing.store(true, Ordering::SeqCst);
        self.shared.waker.wake();
        if let Some(dispatcher) = self.shared.waiting.dispatcher() {
            dispatcher.close();
        }
        for thread in self.threads.drain(..) {
            // The thread ends after its present turn.
            thread.join();
        }
        // Sends acknowledgements that were kept back, the device's last packets.
        self.shared.lanes.iter().for_each(|lane| lane.control(|engine| engine.finish_control()));
        if let Some(capture) = &self.shared.capture {
            let _ = capture.flush();
        }
        self.let_go();
    }
}

impl Owner {
    #[allow(unsafe_code)]
    fn let_go(&mut self) {
        // SAFETY: called once, at the end of `drop`; nothing uses it afterwards.
        unsafe { ManuallyDrop::drop(&mut self.shared) };
    }
}
