//! Completion queues. Threads poll them and then run the engine themselves, sleep until a completion comes,
//! or await one.

mod next;

pub(crate) use next::DueTasks;
pub use next::Next;

use self::next::Tasks;
use crate::completion_channel::{ChannelEnd, ChannelTarget};
use crate::config::Engine;
use crate::crowd::EmptyPolls;
use crate::device::Owner;
use crate::door::Bell;
use crate::engine::{CqSink, Notify, Waiters};
use crate::error::{CreateError, NoChannel};
use crate::events::{EventTarget, Reporter};
use crate::lane::Lane;
use crate::rings::{self, Home, Ring, RingFile};
use crate::waiting::{Place, Sleepers};
use highwire_rings::{Arm, COMPLETION_RING, CompletionQueueConsumer, CompletionQueueProducer, Cqe};
use highwire_shmem::{RingLayout, WholeSegment};
use highwire_verbs::{AsyncEvent, Completion, CqId};
use highwire_wake::{Outcome, world};
use highwire_wire::Qpn;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::Duration;

/// Bytes of a slot.
const CQE_SLOT_BYTES: u32 = highwire_rings::CQE_BYTES;

/// A completion queue of one lane. Clones are the same queue; it lives until the last clone and the last queue pair that
/// completes into it are gone.
#[derive(Clone)]
pub struct CompletionQueue {
    pub(crate) inner: Arc<CqInner>,
}

pub(crate) struct CqInner {
    pub(crate) device: Arc<Owner>,
    pub(crate) lane: u32,
    pub(crate) id: CqId,
    consumer: Mutex<CompletionQueueConsumer>,
    notifier: Arc<Notifier>,
    reporter: Reporter,
    /// The engine looks for sleepers of this queue.
    uses_events: AtomicBool,
    capacity: AtomicU32,
    empty_polls: Arc<EmptyPolls>,
    /// Completions lost in rings that were replaced.
    overruns: AtomicU64,
    /// The ring's file, if another program maps it.
    pub(crate) file: Option<WholeSegment>,
}

/// The threads and tasks that the engine wakes when it finds something for the queue.
#[derive(Debug)]
pub(crate) struct Notifier {
    sleepers: Sleepers,
    tasks: Tasks,
    channel: Option<ChannelEnd>,
    /// Wakes the program that maps the ring, if another one does.
    bell: Option<Bell>,
    told: Told,
    /// The queue's, for a look at who waits.
    empty_polls: Arc<EmptyPolls>,
}

/// Up to which completion events have reported, counted from when the ring was made.
///
/// Cards also report completions that came before the queue was armed and have not been polled, and programs
/// rely on that: a program polls until it finds nothing, arms the queue and sleeps. A completion is reported
/// only once: otherwise a program that arms the queue before it polls would be woken twice for each.
#[derive(Debug, Default)]
struct Told {
    /// Completions that events have reported.
    all: AtomicU64,
    /// Completions up to the last one that wakes a program which asked for solicited messages alone.
    urgent: AtomicU64,
}

impl Told {
    /// Whether a queue that has just been armed owes an event for earlier completions, if `taken` of the
    /// `shown` completions were polled.
    fn owes(&self, what: WaitFor, taken: u64, shown: u64) -> bool {
        let last = match what {
            WaitFor::Any => shown,
            WaitFor::Solicited => self.urgent.load(Ordering::Relaxed).min(shown),
        };
        last > taken.max(self.all.load(Ordering::Relaxed))
    }
}

impl Notify for Notifier {
    fn note_urgent(&self, urgent: u64) {
        self.told.urgent.store(urgent, Ordering::Relaxed);
    }

    fn notify(&self, shown: u64) -> bool {
        self.told.all.fetch_max(shown, Ordering::Relaxed);
        self.tasks.notify();
        if let Some(bell) = &self.bell {
            bell.ring();
        }
        self.channel.as_ref().is_some_and(ChannelEnd::report)
    }

    fn look(&self) -> Waiters {
        let channel = self.channel.as_ref().map(ChannelEnd::look);
        Waiters { empty_polls: self.empty_polls.count(), channel }
    }

    fn wake(&self, has_reported: bool) {
        self.sleepers.wake_all();
        if let Some(channel) = self.channel.as_ref().filter(|_| has_reported) {
            channel.wake();
        }
    }
}

/// The kind of completion that a wait is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WaitFor {
    /// Any completion.
    #[default]
    Any,
    /// A message whose sender asked for an event, or a failure.
    Solicited,
}

/// The configuration of a completion queue.
#[derive(Clone, Copy, Debug)]
pub struct CompletionQueueConfig<'a> {
    /// The lane that it and its queue pairs live in.
    pub lane: u32,
    /// Completions that it holds at least.
    pub capacity: u32,
    /// The channel that it reports to when armed.
    pub channel: Option<ChannelTarget<'a>>,
    /// Where its asynchronous events go, if not to the device's own queue.
    pub events: Option<EventTarget<'a>>,
}

impl CompletionQueueConfig<'_> {
    /// A queue in lane 0 without a channel.
    pub fn new(capacity: u32) -> CompletionQueueConfig<'static> {
        CompletionQueueConfig { lane: 0, capacity, channel: None, events: None }
    }
}

impl From<WaitFor> for Arm {
    fn from(what: WaitFor) -> Arm {
        match what {
            WaitFor::Any => Arm::Next,
            WaitFor::Solicited => Arm::Solicited,
        }
    }
}

impl CompletionQueue {
    pub(crate) fn create(
        device: &Arc<Owner>,
        config: &CompletionQueueConfig<'_>,
    ) -> Result<CompletionQueue, CreateError> {
        CompletionQueue::create_in(device, config, Home::Arena(&device.arenas.rings), None)
    }

    /// The same, with the ring in a place of the caller's choice. If another program maps the ring, `bell`
    /// wakes that program.
    pub(crate) fn create_in(
        device: &Arc<Owner>,
        config: &CompletionQueueConfig<'_>,
        home: Home<'_>,
        bell: Option<Bell>,
    ) -> Result<CompletionQueue, CreateError> {
        let &CompletionQueueConfig { lane, capacity, channel, events } = config;
        let layout = RingLayout::new(COMPLETION_RING, capacity.max(1), CQE_SLOT_BYTES)?;
        let Ring { window, file } = home.create(&layout)?;
        let consumer = Mutex::new(CompletionQueueConsumer::attach(&window)?);
        let ring = CompletionQueueProducer::attach(&window)?;
        let channel = channel.map(|target| ChannelEnd::new(target, device.waiting.count()));
        let has_events = channel.is_some() || bell.is_some();
        let lane_of_queue = device.lane(lane).ok_or(CreateError::NoSuchLane(lane))?;
        let tasks = Tasks::new(&lane_of_queue.due, device.waiting.count());
        let empty_polls = Arc::<EmptyPolls>::default();
        let notifier = Arc::new(Notifier {
            sleepers: device.waiting.sleepers(Place::Queue),
            tasks,
            channel,
            bell,
            told: Told::default(),
            empty_polls: Arc::clone(&empty_polls),
        });
        let reporter = Reporter::new(events, &device.events);
        let sink = CqSink {
            ring,
            notifier: Arc::<Notifier>::clone(&notifier),
            reporter: reporter.clone(),
            has_events,
            is_touched: false,
            is_overrun: false,
        };
        let id = lane_of_queue.control(|engine| {
            let id = engine.rnic.create_cq();
            engine.add_cq(id, sink);
            id
        });
        let device = Arc::clone(device);
        let capacity = AtomicU32::new(layout.slot_count() as u32);
        let overruns = AtomicU64::new(0);
        let uses_events = AtomicBool::new(has_events);
        let inner = CqInner {
            device,
            lane,
            id,
            consumer,
            notifier,
            reporter,
            uses_events,
            capacity,
            empty_polls,
            overruns,
            file,
        };
        Ok(CompletionQueue { inner: Arc::new(inner) })
    }

    /// Takes up to `completions.len()` completions, oldest first; returns how many. If none waits, runs the engine once,
    /// as far as the device's [`Engine`] choice lets this thread. A child of `fork` gets none: they are its parent's.
    #[inline]
    pub fn poll(&self, completions: &mut [Completion]) -> usize {
        self.poll_into(completions, |cqe| cqe.completion)
    }

    #[inline]
    fn poll_into<T>(&self, completions: &mut [T], read: impl Fn(&Cqe) -> T) -> usize {
        let inner = &*self.inner;
        if inner.lane().is_inherited() {
            return 0;
        }
        let Some(taken) = self.look(completions, &read) else { return 0 };
        if inner.note_poll(taken) { self.look(completions, &read).unwrap_or(0) } else { taken }
    }

    /// Takes what is there, or runs the engine once. `None` if another thread polls this queue right now: it runs the engine if need be.
    #[inline]
    fn look<T>(&self, completions: &mut [T], read: &impl Fn(&Cqe) -> T) -> Option<usize> {
        let inner = &*self.inner;
        let mut consumer = match inner.consumer.try_lock() {
            Ok(consumer) => consumer,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let taken = take(&mut consumer, completions, read);
        if taken > 0 || inner.device.engine == Engine::Background {
            return Some(taken);
        }
        // If another thread runs the engine, completions that it finds for this queue show in the ring.
        let pumped = inner.lane().visit(|engine| engine.pump());
        let taken = take(&mut consumer, completions, read);
        drop(consumer);
        if taken == 0 && pumped.is_some_and(|pumped| pumped.completions > 0) && inner.device.waiting.any() {
            // This thread found completions only for others, and may sleep now, so acknowledgements kept for
            // its answer must leave.
            inner.lane().visit(|engine| engine.due_after(true));
        }
        inner.device.after_visit();
        Some(taken)
    }

    /// Takes one completion, as [`poll`](Self::poll) does, and the tag that comes with it: of a message that a tagged buffer was
    /// waiting for, with what its sender put beside it.
    #[inline]
    pub fn poll_tagged(&self) -> Option<(Completion, u64, u32)> {
        let mut one = [(EMPTY, 0, 0)];
        let found = self.poll_into(&mut one, |cqe| (cqe.completion, cqe.tag, cqe.tag_context));
        (found == 1).then_some(one[0])
    }

    /// Takes one completion, as [`poll`](Self::poll) does.
    #[inline]
    pub fn poll_one(&self) -> Option<Completion> {
        let mut one = [EMPTY];
        (self.poll(&mut one) == 1).then_some(one[0])
    }

    /// Sleeps until a completion waits; false when `timeout` passes first. Afterwards `poll` finds it, unless another
    /// thread was faster.
    pub fn wait(&self, what: WaitFor, timeout: Duration) -> bool {
        self.wait_or(what, timeout, &|| false)
    }

    /// Lets the threads that wait for the queue look again.
    pub(crate) fn wake(&self) {
        let inner = &*self.inner;
        match inner.device.engine {
            Engine::Inline => inner.device.waker.wake(),
            Engine::Both | Engine::Background => inner.notifier.sleepers.wake_all(),
        }
    }

    /// Whether a completion waits. If none does, the next one ends the sleep of a thread that runs the lanes.
    pub(crate) fn is_waiting(&self, what: WaitFor) -> bool {
        self.inner.use_events();
        self.inner.consumer().arm(what.into()).unwrap_or(false)
    }

    /// The same as `wait`, but also ends when `also` returns true. `also` is called whenever a thread calls
    /// [`wake`](Self::wake).
    pub(crate) fn wait_or(&self, what: WaitFor, timeout: Duration, also: &dyn Fn() -> bool) -> bool {
        let inner = &*self.inner;
        let deadline = world::now() + timeout;
        let arm = what.into();
        inner.use_events();
        // A thread cannot wait for a corrupt ring, and polling it finds nothing either.
        let is_over = || also() || inner.consumer().arm(arm).unwrap_or(false);
        loop {
            let left = deadline.saturating_duration_since(world::now());
            if inner.device.engine == Engine::Inline {
                if is_over() {
                    return true;
                }
                if left.is_zero() {
                    return false;
                }
                // This thread runs the lanes itself and sees completions by looking: arming the queue again costs nothing.
                inner.device.run_and_sleep(left, is_over);
                continue;
            }
            match inner.device.waiting.wait(&inner.device, &inner.notifier.sleepers, &is_over, Some(left)) {
                Outcome::Over => return true,
                Outcome::TimedOut => return false,
                Outcome::Interrupted | Outcome::Elsewhere => {}
            }
        }
    }

    /// Asks for one event on the queue's channel, at the next completion that `what` describes. If such a
    /// completion waits already, the event comes at once, as with cards, unless an earlier event has reported
    /// it: programs poll the queue once more after arming it (IBTA §11.4.2.2). Asking twice before the event
    /// is the same as asking once; "any completion" outweighs "solicited".
    ///
    /// # Errors
    /// The queue has no channel.
    pub fn request_notify(&self, what: WaitFor) -> Result<(), NoChannel> {
        let inner = &*self.inner;
        let channel = inner.notifier.channel.as_ref().ok_or(NoChannel)?;
        channel.arm();
        let mut consumer = inner.consumer();
        // A corrupt ring brings no event, and no completion either.
        let waiting = consumer.available_after_arm(what.into()).unwrap_or(0);
        let shown = consumer.observed();
        if waiting > 0 && inner.notifier.told.owes(what, shown - waiting, shown) && consumer.disarm() {
            inner.notifier.told.all.fetch_max(shown, Ordering::Relaxed);
            if channel.report() {
                channel.wake();
            }
            return Ok(());
        }
        drop(consumer);
        if inner.device.engine != Engine::Inline {
            inner.device.waiting.note_armed(&inner.device, channel.is_blocked_on());
        }
        Ok(())
    }

    /// The file of its ring, for another program.
    pub(crate) fn ring_file(&self) -> RingFile {
        Ring::place(self.inner.file.as_ref())
    }

    /// Whether it belongs to the process that this one was forked from.
    #[inline]
    pub fn is_inherited(&self) -> bool {
        self.inner.lane().is_inherited()
    }

    /// The lane it belongs to.
    pub fn lane(&self) -> u32 {
        self.inner.lane
    }

    /// Makes the queue hold at least `capacity` completions. Waiting completions stay, and the queue stays
    /// armed.
    ///
    /// # Errors
    /// [`CreateError`]: more completions wait than would fit, among other reasons. The queue is as it was then.
    pub fn resize(&self, capacity: u32) -> Result<(), CreateError> {
        self.rebuild(capacity, |_| true)
    }

    /// Forgets the completions of a queue pair that wait here: it is being reset, and the application must not see completions
    /// from before.
    ///
    /// # Errors
    /// No memory; the queue is as it was then.
    pub fn forget(&self, qpn: Qpn) -> Result<(), CreateError> {
        if self.inner.consumer().observe_available_acquire().unwrap_or(0) == 0 {
            return Ok(());
        }
        self.rebuild(self.capacity(), |cqe| cqe.completion.qpn != qpn)
    }

    /// Moves the completions for which `keep` returns true to a new ring.
    fn rebuild(&self, capacity: u32, keep: impl Fn(&Cqe) -> bool) -> Result<(), CreateError> {
        let layout = RingLayout::new(COMPLETION_RING, capacity.max(1), CQE_SLOT_BYTES)?;
        let window = rings::create(&self.inner.device.arenas.rings, &layout)?;
        let mut producer = CompletionQueueProducer::attach(&window)?;
        let mut fresh = CompletionQueueConsumer::attach(&window)?;
        let inner = &*self.inner;
        let mut consumer = inner.consumer();
        inner.lane().control(|engine| {
            // Requests that were sent count as completed, even if no thread has pumped since.
            engine.pump();
            let sink = engine.cq(inner.id).expect("the queue lives as long as this value");
            sink.ring.publish_release();
            let waiting = consumer.observe_available_acquire().unwrap_or(0);
            if waiting > layout.slot_count() as u64 {
                return Err(CreateError::CompletionsWait);
            }
            // Completions are counted anew. An event is still owed for those that none has reported.
            let (told_before, urgent_before) =
                (inner.notifier.told.all.load(Ordering::Relaxed), sink.ring.urgent());
            let (mut number, mut told) = (consumer.observed() - waiting, 0);
            while let Ok(Some(cqe)) = consumer.poll() {
                number += 1;
                if !keep(&cqe) {
                    continue;
                }
                let _ = producer.push(&cqe);
                if number <= told_before {
                    told = producer.pushed();
                }
                if number <= urgent_before {
                    producer.note_urgent();
                }
            }
            producer.publish_release();
            // Where the queue was armed, the engine has just told of what came.
            producer.take_notification();
            if let Some(what) = consumer.armed() {
                let _ = fresh.arm(what);
            }
            inner.overruns.fetch_add(consumer.overruns(), Ordering::Relaxed);
            inner.capacity.store(layout.slot_count() as u32, Ordering::Relaxed);
            inner.notifier.told.all.store(told, Ordering::Relaxed);
            inner.notifier.told.urgent.store(producer.urgent(), Ordering::Relaxed);
            (sink.ring, *consumer) = (producer, fresh);
            engine.forget_numbers(inner.id);
            Ok(())
        })
    }

    /// How many completions it holds; at least as many as were asked for.
    pub fn capacity(&self) -> u32 {
        self.inner.capacity.load(Ordering::Relaxed)
    }

    /// Completions lost because the queue was full. The device reports it as an event, too.
    pub fn overruns(&self) -> u64 {
        self.inner.consumer().overruns() + self.inner.overruns.load(Ordering::Relaxed)
    }
}

impl CqInner {
    #[inline]
    pub(crate) fn lane(&self) -> &Lane {
        self.device.lane(self.lane).expect("checked when the queue was made")
    }

    fn consumer(&self) -> MutexGuard<'_, CompletionQueueConsumer> {
        world::lock(&self.consumer)
    }

    /// Notes a poll. True if its thread gave its core away: then an empty queue is old news, and a program that hears of it may
    /// already find the end of the connection, whose last completion it has not seen.
    #[inline]
    fn note_poll(&self, taken: usize) -> bool {
        let device = &self.device;
        self.empty_polls.note(taken > 0)
            && device.crowd.give_way(&self.empty_polls, &device.company, device.clock.now())
    }

    /// From now on the engine looks for sleepers of this queue, which costs it a fence per delivery.
    fn use_events(&self) {
        if self.uses_events.swap(true, Ordering::Relaxed) {
            return;
        }
        self.lane().control(|engine| {
            if let Some(sink) = engine.cq(self.id) {
                sink.has_events = true;
            }
        });
    }
}

impl Drop for CqInner {
    fn drop(&mut self) {
        let lane = self.lane();
        if lane.is_inherited() {
            return;
        }
        lane.control(|engine| {
            engine.remove_cq(self.id);
            // Refused only while a queue pair uses the queue, but then the queue would still be alive.
            let _ = engine.rnic.destroy_cq(self.id);
        });
        if let Some(channel) = &self.notifier.channel {
            channel.close();
        }
        self.reporter.forget(|event| *event == AsyncEvent::CqError(self.id));
    }
}

#[inline]
fn take<T>(
    consumer: &mut CompletionQueueConsumer,
    completions: &mut [T],
    read: &impl Fn(&Cqe) -> T,
) -> usize {
    let mut taken = 0;
    for completion in completions {
        let Ok(Some(cqe)) = consumer.poll() else { break };
        *completion = read(&cqe);
        taken += 1;
    }
    taken
}

/// Fills an array for `poll`.
pub const EMPTY: Completion = Completion::new(
    0,
    highwire_verbs::CompletionStatus::Success,
    highwire_verbs::CompletionOp::Send,
    highwire_wire::Qpn::new(0),
);

#[cfg(test)]
mod tests;
