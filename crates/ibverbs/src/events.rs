//! Events: completion channels, asynchronous events, and the counting of what programs acknowledge.

use crate::abi::*;
use crate::boundary::{answer, c_api, c_waits, code, minus_one};
use crate::cancel;
use crate::context::Context;
use crate::cq::Cq;
use crate::descriptors;
use crate::env;
use crate::limits::PORT;
use crate::qp::Qp;
use crate::registry::{self, Object, Use, Used, Users};
use crate::srq::Srq;
use highwire_host::CompletionChannel;
use highwire_verbs::AsyncEvent;
use std::cell::UnsafeCell;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Events that were handed out and those that were acknowledged. An object is not destroyed before they are as many.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged {
    counts: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Counts {
    missing: u64,
    /// Threads that wait for the last acknowledgement: without one it costs no system call.
    waiting: u32,
    /// When the first of them began.
    since: Option<Instant>,
}

/// A wait that is as long as this is told.
const LONG: Duration = Duration::from_secs(1);

impl Acknowledged {
    pub(crate) fn hand_out(&self) {
        self.lock().missing += 1;
    }

    /// More than were handed out are as good as all.
    pub(crate) fn acknowledge(&self, count: u64) {
        let mut counts = self.lock();
        counts.missing = counts.missing.saturating_sub(count);
        if counts.waiting > 0 {
            self.changed.notify_all();
        }
    }

    /// Waits until all are acknowledged; false if a part of the wait has ended before.
    fn wait(&self) -> bool {
        let mut counts = self.lock();
        counts.waiting += 1;
        counts.since.get_or_insert_with(Instant::now);
        loop {
            let is_missing = |counts: &mut Counts| counts.missing > 0;
            let waited = self.changed.wait_timeout_while(counts, cancel::PART, is_missing);
            let timeout;
            (counts, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if counts.missing > 0 && counts.since.is_some_and(|since| since.elapsed() >= LONG) {
                let missing = counts.missing;
                env::log(|| {
                    format!(
                        "a call that destroys an object waits: {missing} of its events were got and not acknowledged (ibv_ack_cq_events, ibv_ack_async_event)"
                    )
                });
                counts.since = None;
            }
            let is_over = timeout.timed_out() && cancel::end_part();
            if counts.missing == 0 || is_over {
                counts.waiting -= 1;
                if counts.missing == 0 {
                    counts.since = None;
                }
                return counts.missing == 0;
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.lock().missing == 0
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Takes an object back once everything that it has handed out is acknowledged.
///
/// Acknowledgements look the object up, perhaps in another thread, so it stays known while one is missing; an
/// event that is handed out after the last of them has to be acknowledged too.
///
/// # Errors
/// EAGAIN if a [part of the wait](cancel::end_part) has ended: the object is as it was.
pub(crate) fn withdraw<T: Object, const N: usize>(
    pointer: *const T::C,
    counts: [&Acknowledged; N],
) -> Result<(), c_int> {
    let is_complete = || counts.iter().all(|count| count.is_complete());
    loop {
        if !counts.iter().all(|count| count.wait()) {
            return Err(libc::EAGAIN);
        }
        if registry::withdraw_if::<T>(pointer, is_complete) {
            return Ok(());
        }
    }
}

/// What a channel of a device that has failed reports: no queue has this tag.
pub(crate) const NO_QUEUE: u64 = 0;

/// A completion channel.
#[repr(C)]
pub(crate) struct Channel {
    c: UnsafeCell<ibv_comp_channel>,
    pub(crate) host: CompletionChannel,
    pub(crate) context: Use<Context>,
    users: Users,
}

// SAFETY: this side only reads `c`.
unsafe impl Send for Channel {}
// SAFETY: as above.
unsafe impl Sync for Channel {}

impl Object for Channel {
    type C = ibv_comp_channel;
    fn as_c(&self) -> *mut ibv_comp_channel {
        self.c.get()
    }
}

impl Used for Channel {
    fn users(&self) -> &Users {
        &self.users
    }
}

/// Refuses to wait where the descriptor is non-blocking, as `read` would.
fn may_wait(fd: c_int) -> Result<(), c_int> {
    // SAFETY: a call about a number.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
    match flags {
        -1 => Err(libc::EBADF),
        _ if flags & libc::O_NONBLOCK != 0 => Err(libc::EAGAIN),
        _ => Ok(()),
    }
}

/// Waits for an event as `read` on the descriptor would: a signal ends it, or the end of a part.
fn next_event(channel: &CompletionChannel) -> Result<u64, c_int> {
    if !channel.is_open() {
        return Err(libc::EBADF);
    }
    may_wait(channel.fd().as_raw_fd())?;
    loop {
        let part = cancel::part_of(None);
        match channel.event_or_signal(part) {
            Ok(Some(tag)) => return Ok(tag),
            Err(_) if cancel::is_final(part) => return Err(libc::EINTR),
            Ok(None) | Err(_) if cancel::end_part() => return Err(libc::EAGAIN),
            Ok(None) | Err(_) => {}
        }
    }
}

/// The channel behind C's structure.
///
/// # Errors
/// EINVAL for one that is gone.
pub(crate) fn host_channel(channel: *mut ibv_comp_channel) -> Result<CompletionChannel, c_int> {
    Ok(registry::find::<Channel>(channel)?.host.clone())
}

c_api! {
    fn ibv_create_comp_channel(context: *mut ibv_context) -> *mut ibv_comp_channel {
        let run = || {
            let context = Use::<Context>::find(context)?;
            let host = context.device.completion_channel();
            let host = host.map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
            let c = ibv_comp_channel { context: context.as_c(), fd: host.fd().as_raw_fd(), refcnt: 0 };
            let channel = Arc::new(Channel { c: UnsafeCell::new(c), host, context, users: Users::default() });
            let published = registry::publish(Arc::clone(&channel))?;
            descriptors::publish(&channel.host);
            Ok(published)
        };
        answer(run())
    }

    fn ibv_destroy_comp_channel(channel: *mut ibv_comp_channel) -> c_int {
        let run = || {
            let found = registry::find::<Channel>(channel)?;
            found.users.none()?;
            descriptors::withdraw(&found.host);
            registry::withdraw::<Channel>(channel);
            Ok(())
        };
        code(run())
    }

    fn ibv_ack_cq_events(cq: *mut ibv_cq, count: c_uint) {
        if let Ok(cq) = registry::find::<Cq>(cq) {
            cq.events.acknowledge(u64::from(count));
        }
    }

    fn ibv_ack_async_event(event: *mut ibv_async_event) {
        let Ok(event) = crate::boundary::input(event) else { return };
        let element = event.element;
        match event.event_type {
            IBV_EVENT_CQ_ERR => {
                registry::with::<Cq, _>(element.cast(), |cq| cq.async_events.acknowledge(1));
            }
            IBV_EVENT_SRQ_ERR | IBV_EVENT_SRQ_LIMIT_REACHED => {
                registry::with::<Srq, _>(element.cast(), |srq| srq.async_events.acknowledge(1));
            }
            IBV_EVENT_PORT_ACTIVE | IBV_EVENT_PORT_ERR | IBV_EVENT_DEVICE_FATAL | IBV_EVENT_LID_CHANGE
            | IBV_EVENT_PKEY_CHANGE | IBV_EVENT_SM_CHANGE | IBV_EVENT_CLIENT_REREGISTER | IBV_EVENT_GID_CHANGE => {}
            _ => {
                registry::with::<Qp, _>(element.cast(), |qp| qp.async_events.acknowledge(1));
            }
        }
    }
}

c_waits! {
    fn ibv_get_cq_event(
        channel: *mut ibv_comp_channel,
        cq: *mut *mut ibv_cq,
        cq_context: *mut *mut c_void,
    ) -> c_int |_: &mut ()| {
        let run = || {
            let channel = registry::find::<Channel>(channel)?;
            loop {
                let tag = match channel.host.try_event() {
                    Some(tag) => tag,
                    None => next_event(&channel.host)?,
                };
                // As the kernel says of a device that is gone, once its events are read; the descriptor stays readable.
                if tag == NO_QUEUE && channel.context.is_dead() {
                    channel.host.report(NO_QUEUE);
                    return Err(libc::EIO);
                }
                // A queue that was destroyed meanwhile has no events any more.
                let found = registry::with::<Cq, _>(tag as *const ibv_cq, |cq| {
                    cq.events.hand_out();
                    (cq.as_c(), cq.user_context())
                });
                if let Some((found, context)) = found {
                    if !cq.is_null() {
                        unsafe { cq.write(found) };
                    }
                    if !cq_context.is_null() {
                        unsafe { cq_context.write(context) };
                    }
                    return Ok(());
                }
            }
        };
        minus_one(run())
    }

    fn ibv_get_async_event(context: *mut ibv_context, event: *mut ibv_async_event) -> c_int |_: &mut ()| {
        let run = || {
            let context = registry::find::<Context>(context)?;
            loop {
                let next = match context.events.try_next() {
                    Some(next) => Some(next),
                    None if !context.events.is_open() => return Err(libc::EBADF),
                    // As the kernel says of a device that is gone, once its events are read.
                    None if context.is_dead() => return Err(libc::EIO),
                    None => {
                        let next = context.events.next_as_read(cancel::part_of(None));
                        next.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?
                    }
                };
                let Some(next) = next else {
                    if cancel::end_part() {
                        return Err(libc::EAGAIN);
                    }
                    continue;
                };
                if let Some(found) = to_c(next.event, next.tag) {
                    if !event.is_null() {
                        unsafe { event.write(found) };
                    }
                    return Ok(());
                }
            }
        };
        minus_one(run())
    }
}

/// An event of a port, or of the whole device. The element is a union whose member is the port's number.
fn of_port(port: u8, event_type: ibv_event_type) -> ibv_async_event {
    ibv_async_event { element: usize::from(port) as *mut c_void, event_type }
}

/// An event as C sees it, if its object is still there.
fn to_c(event: AsyncEvent, tag: u64) -> Option<ibv_async_event> {
    let of_qp = |event_type| {
        let element = registry::with::<Qp, _>(tag as *const ibv_qp, |qp| {
            qp.async_events.hand_out();
            qp.as_c().cast()
        })?;
        Some(ibv_async_event { element, event_type })
    };
    match event {
        AsyncEvent::CqError(_) => {
            let element = registry::with::<Cq, _>(tag as *const ibv_cq, |cq| {
                cq.async_events.hand_out();
                cq.as_c().cast()
            })?;
            Some(ibv_async_event { element, event_type: IBV_EVENT_CQ_ERR })
        }
        AsyncEvent::SrqLimitReached(_) => {
            let element = registry::with::<Srq, _>(tag as *const ibv_srq, |srq| {
                srq.async_events.hand_out();
                srq.as_c().cast()
            })?;
            Some(ibv_async_event { element, event_type: IBV_EVENT_SRQ_LIMIT_REACHED })
        }
        AsyncEvent::QpFatal(_) => of_qp(IBV_EVENT_QP_FATAL),
        AsyncEvent::QpRequestError(_) => of_qp(IBV_EVENT_QP_REQ_ERR),
        AsyncEvent::QpAccessError(_) => of_qp(IBV_EVENT_QP_ACCESS_ERR),
        AsyncEvent::CommunicationEstablished(_) => of_qp(IBV_EVENT_COMM_EST),
        AsyncEvent::SendQueueDrained(_) => of_qp(IBV_EVENT_SQ_DRAINED),
        AsyncEvent::LastWqeReached(_) => of_qp(IBV_EVENT_QP_LAST_WQE_REACHED),
        AsyncEvent::PortActive(port) => Some(of_port(port, IBV_EVENT_PORT_ACTIVE)),
        AsyncEvent::PortError(port) => Some(of_port(port, IBV_EVENT_PORT_ERR)),
        AsyncEvent::GidChange(port) => Some(of_port(port, IBV_EVENT_GID_CHANGE)),
        AsyncEvent::DeviceFatal => Some(of_port(0, IBV_EVENT_DEVICE_FATAL)),
        // An event that this library does not know has no C form.
        #[allow(unreachable_patterns)]
        _ => {
            let element = usize::from(PORT) as *mut c_void;
            Some(ibv_async_event { element, event_type: IBV_EVENT_DEVICE_FATAL })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A source of events.
    struct Source {
        c: UnsafeCell<u64>,
        events: Acknowledged,
    }

    // SAFETY: no code reads or writes `c`.
    unsafe impl Send for Source {}
    // SAFETY: as above.
    unsafe impl Sync for Source {}

    impl Object for Source {
        type C = u64;
        fn as_c(&self) -> *mut u64 {
            self.c.get()
        }
    }

    /// A thread that serves events acknowledges one while another has begun to destroy its object.
    #[test]
    fn what_is_acknowledged_during_the_end_counts() {
        let source = Arc::new(Source { c: UnsafeCell::new(0), events: Acknowledged::default() });
        let pointer = registry::publish(Arc::clone(&source)).expect("it has no limit") as usize;
        let acknowledge =
            || registry::with::<Source, _>(pointer as *const u64, |it| it.events.acknowledge(1));
        source.events.hand_out();
        source.events.hand_out();
        std::thread::scope(|scope| {
            let end = scope.spawn(|| withdraw::<Source, 1>(pointer as *const u64, [&source.events]));
            assert!(acknowledge().is_some(), "it is known while one is missing");
            assert!(!end.is_finished(), "it waits for the other");
            assert!(acknowledge().is_some(), "and for this one it was known, too");
        });
        assert!(acknowledge().is_none(), "now it is gone");
    }
}
