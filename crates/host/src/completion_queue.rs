//! Completion queues: polled by threads that then run the engine themselves, waited for, or awaited.

mod next;

pub(crate) use next::DueTasks;
pub use next::Next;

use self::next::Tasks;
use crate::completion_channel::{ChannelEnd, ChannelTarget};
use crate::config::Engine;
use crate::crowd::EmptyPolls;
use crate::device::Owner;
use crate::door::Bell;
use crate::engine::{CqSink, Notify};
use crate::error::{CreateError, NoChannel};
use crate::events::{EventTarget, Reporter};
use crate::lane::Lane;
use crate::rings::{self, Home, Ring, RingFile};
use crate::waiting::{Place, Sleepers};
use highwire_rings::{Arm, COMPLETION_RING, CompletionQueueConsumer, CompletionQueueProducer, Cqe};
use highwire_shmem::{RingLayout, WholeSegment};
use highwire_verbs::{AsyncEvent, Completion, CqId};
use highwire_wake::Outcome;
use highwire_wire::Qpn;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

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
    empty_polls: EmptyPolls,
    /// Completions lost in rings that were replaced.
    overruns: AtomicU64,
    /// Its ring, if another program maps that.
    pub(crate) file: Option<WholeSegment>,
}

/// The threads and tasks that the engine wakes when it finds something for the queue.
#[derive(Debug)]
pub(crate) struct Notifier {
    sleepers: Sleepers,
    tasks: Tasks,
    channel: Option<ChannelEnd>,
    /// Where the program that has the ring waits, if another one has.
    bell: Option<Bell>,
    told: Told,
}

/// How far events have told of the completions of a ring, counted from when it was made.
///
/// Cards tell of completions that came before the queue was armed and have not been polled, and programs rely on that: one that polls
/// until it finds nothing, arms the queue and sleeps. What an event has told of, or could have, is not told again: a program that
/// arms the queue before it polls would be woken twice for each completion.
#[derive(Debug, Default)]
struct Told {
    /// Completions that events have told of.
    all: AtomicU64,
    /// Completions up to the last one that wakes a program which asked for solicited messages alone.
    urgent: AtomicU64,
}

impl Told {
    /// Whether a queue that has just been armed owes an event for what was there before, if `taken` completions of `shown` were taken.
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

    fn notify(&self, shown: u64) {
        self.told.all.fetch_max(shown, Ordering::Relaxed);
        self.sleepers.wake_all();
        self.tasks.notify();
        if let Some(channel) = &self.channel {
            channel.fire();
        }
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }
}

/// What a wait is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WaitFor {
    /// Any completion.
    #[default]
    Any,
    /// A message whose sender asked for an event, or a failure.
    Solicited,
}

/// What a completion queue is made with.
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
        CompletionQueue::create_in(device, config, Home::Arena(&device.rings), None)
    }

    /// The same, with the ring in a place of the caller's choice. Where another program has it, that is told by `bell`.
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
        let notifier = Arc::new(Notifier {
            sleepers: device.waiting.sleepers(Place::Queue),
            tasks,
            channel,
            bell,
            told: Told::default(),
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
        let empty_polls = EmptyPolls::default();
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
        let mut consumer = match inner.consumer.try_lock() {
            Ok(consumer) => consumer,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread polls this queue right now, and runs the engine if need be.
            Err(TryLockError::WouldBlock) => return 0,
        };
        let taken = take(&mut consumer, completions, &read);
        if taken > 0 || inner.device.engine == Engine::Background {
            inner.note_poll(taken);
            return taken;
        }
        // If another thread runs the engine, what it finds for this queue shows in the ring.
        let pumped = inner.lane().visit(|engine| engine.pump());
        let taken = take(&mut consumer, completions, &read);
        drop(consumer);
        if taken == 0 && pumped.is_some_and(|pumped| pumped.completions > 0) && inner.device.waiting.any() {
            // It found something for others, and may sleep now: what it kept for an answer is not to wait for theirs.
            inner.lane().visit(|engine| engine.due_after(true));
        }
        inner.device.after_visit();
        inner.note_poll(taken);
        taken
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

    /// The same; over as well when `also` says so, which is asked whenever a thread calls [`wake`](Self::wake).
    pub(crate) fn wait_or(&self, what: WaitFor, timeout: Duration, also: &dyn Fn() -> bool) -> bool {
        let inner = &*self.inner;
        let deadline = Instant::now() + timeout;
        let arm = what.into();
        inner.use_events();
        // A corrupt ring cannot be waited for; polling it finds nothing either.
        let is_over = || also() || inner.consumer().arm(arm).unwrap_or(false);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
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
                Outcome::Interrupted => {}
            }
        }
    }

    /// Asks for one event on the queue's channel, at the next completion that `what` describes. Of completions that wait already
    /// it comes at once, as with cards, but for those that an earlier event has told of: the queue is polled once more afterwards
    /// (IBTA §11.4.2.2). Asking again before the event is no more than asking once; for any completion outweighs for
    /// solicited ones.
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
            channel.fire();
            return Ok(());
        }
        drop(consumer);
        if inner.device.engine != Engine::Inline {
            inner.device.waiting.note_armed(&inner.device, channel.is_blocked_on());
        }
        Ok(())
    }

    /// Where another program finds its ring.
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

    /// Makes the queue hold at least `capacity` completions. Those that wait stay, and so does what it is armed for.
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

    /// Moves what is to be kept to a new ring.
    fn rebuild(&self, capacity: u32, keep: impl Fn(&Cqe) -> bool) -> Result<(), CreateError> {
        let layout = RingLayout::new(COMPLETION_RING, capacity.max(1), CQE_SLOT_BYTES)?;
        let window = rings::create(&self.inner.device.rings, &layout)?;
        let mut producer = CompletionQueueProducer::attach(&window)?;
        let mut fresh = CompletionQueueConsumer::attach(&window)?;
        let inner = &*self.inner;
        let mut consumer = inner.consumer();
        inner.lane().control(|engine| {
            // Requests that were sent count as completed, even if no thread has pumped since.
            engine.pump();
            let sink = engine.cq(inner.id).expect("the queue lives as long as this value");
            sink.ring.publish_release();
            if consumer.observe_available_acquire().unwrap_or(0) > layout.slot_count() as u64 {
                return Err(CreateError::CompletionsWait);
            }
            while let Ok(Some(cqe)) = consumer.poll() {
                if keep(&cqe) {
                    let _ = producer.push(&cqe);
                }
            }
            producer.publish_release();
            // The application was told of these completions already, if it had asked for an event.
            producer.take_notification();
            if let Some(what) = consumer.armed() {
                let _ = fresh.arm(what);
            }
            inner.overruns.fetch_add(consumer.overruns(), Ordering::Relaxed);
            inner.capacity.store(layout.slot_count() as u32, Ordering::Relaxed);
            // They are counted anew, and no event is owed for them.
            inner.notifier.told.all.store(producer.pushed(), Ordering::Relaxed);
            inner.notifier.told.urgent.store(producer.urgent(), Ordering::Relaxed);
            (sink.ring, *consumer) = (producer, fresh);
            engine.forget_numbers(inner.id);
            Ok(())
        })
    }

    /// How many completions it holds; at least what was asked for.
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
        self.consumer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn note_poll(&self, taken: usize) {
        if self.empty_polls.note(taken > 0) {
            self.device.crowd.give_way();
        }
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
            // Refused only while a queue pair uses it, and those keep it alive.
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

/// What an array for `poll` is filled with.
pub const EMPTY: Completion = Completion::new(
    0,
    highwire_verbs::CompletionStatus::Success,
    highwire_verbs::CompletionOp::Send,
    highwire_wire::Qpn::new(0),
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, DeviceConfig, sys};

    #[test]
    fn a_thread_that_runs_the_device_itself_is_woken_in_its_sleep() {
        let config = DeviceConfig { engine: Engine::Inline, ..DeviceConfig::default() };
        let device = Device::open(&config).expect("a device");
        let queue = device.completion_queue(8).expect("a queue");
        let waker = &queue.inner.device.waker;
        let is_rung = || sys::wait_readable(&[waker.fd()], Some(highwire_stdx::Duration::ZERO));
        queue.wake();
        assert!(!is_rung(), "a thread that is awake looks anyway");
        waker.prepare_sleep();
        queue.wake();
        assert!(is_rung());
        waker.awake();
        assert!(!is_rung());
    }
}
