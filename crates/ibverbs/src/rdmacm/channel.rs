//! Event channels: a descriptor that counts the events that wait, and the events that applications hold.
//!
//! A program that ends destroys its channel while its event thread waits on the channel, or is about to wait
//! again. A waiting thread sleeps on, as in the kernel. A thread that comes late, to a channel that was
//! destroyed a moment ago, sleeps for [`PATIENCE_WITH_THE_GONE_MS`], by which time the program has usually
//! ended; otherwise the call returns an error.

use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use highwire_host::EventFd;
use libc::{c_char, c_int, c_void};

use super::abi::{EventParam, rdma_cm_event, rdma_cm_event_type, rdma_cm_id, rdma_event_channel};
use super::deliver::{self, What};
use super::hub::{Hub, World, hub};
use crate::boundary::{c_api, c_waits, minus_one};
use crate::cancel;

/// How many destroyed channels are remembered. Their memory is kept as long, so that no other object has their address.
const GONE_MAX: usize = 64;
/// How long a thread sleeps that comes to wait on a channel which has been destroyed.
const PATIENCE_WITH_THE_GONE_MS: c_int = 5_000;

/// A channel.
pub(super) struct Channel {
    /// Shared with the threads that wait, so that no other file gets its number before the last of them has
    /// returned.
    fd: Arc<EventFd>,
    queue: VecDeque<Pending>,
    /// Called for each event, with connection management locked.
    observer: Option<Observer>,
}

/// What is told of each event of a channel.
pub(crate) type Observer = Box<dyn Fn() + Send>;

/// A channel that was destroyed.
pub(super) struct Gone {
    channel: Box<rdma_event_channel>,
    /// Whether its descriptor was in nonblocking mode.
    is_nonblocking: bool,
}

/// An event that waits to be taken.
pub(super) struct Pending {
    /// The identifier that it is about; for requests, the listening one.
    pub(super) id: usize,
    pub(super) what: What,
    pub(super) status: c_int,
}

/// An event that an application holds: C's structure, and the data that it points to.
#[repr(C)]
pub(super) struct Held {
    pub(super) event: rdma_cm_event,
    pub(super) private_data: [u8; 256],
}

impl Held {
    /// An event without parameters.
    pub(super) fn new(id: *mut rdma_cm_id, event: rdma_cm_event_type, status: c_int) -> Box<Held> {
        // SAFETY: zeros are valid parameters.
        let param: EventParam = unsafe { std::mem::zeroed() };
        let event = rdma_cm_event { id, listen_id: std::ptr::null_mut(), event, status, param };
        Box::new(Held { event, private_data: [0; 256] })
    }

    /// Puts private data behind the event, and says where it is.
    pub(super) fn keep(&mut self, data: &[u8]) -> (*const c_void, u8) {
        let length = data.len().min(255);
        self.private_data[..length].copy_from_slice(&data[..length]);
        (self.private_data.as_ptr().cast(), length as u8)
    }
}

impl Channel {
    /// Takes out the events for which `is_meant` is true.
    fn extract(&mut self, is_meant: impl Fn(&Pending) -> bool) -> Vec<Pending> {
        let (gone, kept): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.queue).into_iter().partition(is_meant);
        self.queue = kept;
        for _ in &gone {
            // Another thread may be about to take the event: then it finds nothing and waits again.
            self.fd.take_one();
        }
        gone.into()
    }

    /// A new channel; its number is the address of C's structure.
    pub(super) fn create(world: &mut World) -> Result<usize, c_int> {
        let fd = EventFd::counting().map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
        let c = Box::into_raw(Box::new(rdma_event_channel { fd: fd.fd().as_raw_fd() })) as usize;
        world.channels.insert(c, Channel { fd: Arc::new(fd), queue: VecDeque::new(), observer: None });
        Ok(c)
    }

    /// Closes a channel. Requests in it that the program has not taken are refused.
    pub(super) fn destroy(world: &mut World, channel: usize) {
        let Some(removed) = world.channels.remove(&channel) else { return };
        for pending in &removed.queue {
            deliver::give_up(world, &pending.what);
        }
        // SAFETY: the descriptor is open.
        let flags = unsafe { libc::fcntl(removed.fd.fd().as_raw_fd(), libc::F_GETFL) };
        // SAFETY: it was made by `create` and is in no table of living channels any more.
        let channel = unsafe { Box::from_raw(channel as *mut rdma_event_channel) };
        if world.gone.len() == GONE_MAX {
            world.gone.pop_front();
        }
        world.gone.push_back(Gone { channel, is_nonblocking: flags & libc::O_NONBLOCK != 0 });
    }

    fn add(&mut self, pending: Pending) {
        self.queue.push_back(pending);
        self.fd.signal();
        if let Some(observer) = &self.observer {
            observer();
        }
    }
}

/// Has `observer` told of each event that comes to a channel from now on.
///
/// # Errors
/// EINVAL if there is no such channel.
pub(crate) fn observe(channel: *mut rdma_event_channel, observer: Observer) -> Result<(), c_int> {
    let mut world = hub()?.lock();
    world.channels.get_mut(&(channel as usize)).ok_or(libc::EINVAL)?.observer = Some(observer);
    Ok(())
}

/// Queues an event about `id` on its channel.
pub(super) fn push(world: &mut World, id: usize, what: What, status: c_int) {
    let Some(channel) = world.ids.get(&id).map(|id| id.channel) else {
        return deliver::give_up(world, &what);
    };
    if let Some(channel) = world.channels.get_mut(&channel) {
        channel.add(Pending { id, what, status });
    }
}

/// Forgets the events about `id` that the program has not taken.
pub(super) fn discard(world: &mut World, id: usize) {
    let Some(channel) = world.ids.get(&id).map(|id| id.channel) else { return };
    for pending in extract(world, id, channel) {
        deliver::give_up(world, &pending.what);
    }
}

/// Moves the events about `id` that the program has not taken from one channel to another.
pub(super) fn hand_over(world: &mut World, id: usize, from: usize, to: usize) {
    let moved = extract(world, id, from);
    if let Some(channel) = world.channels.get_mut(&to) {
        moved.into_iter().for_each(|pending| channel.add(pending));
    }
}

fn extract(world: &mut World, id: usize, channel: usize) -> Vec<Pending> {
    let channel = world.channels.get_mut(&channel);
    channel.map(|channel| channel.extract(|pending| pending.id == id)).unwrap_or_default()
}

/// Forgets all requests for connections that the program has not taken: the device by which they came is gone.
pub(super) fn void_requests(world: &mut World) {
    let comm_of = |pending: &Pending| match pending.what {
        What::Request { comm, .. } | What::Service { comm, .. } => Some(comm),
        _ => None,
    };
    let of_channel = |channel: &mut Channel| channel.extract(|pending| comm_of(pending).is_some());
    let void: Vec<_> = world.channels.values_mut().flat_map(of_channel).collect();
    for comm in void.iter().filter_map(comm_of) {
        world.cm.abandon(comm);
    }
}

/// Takes the next event of a channel; waits for it unless the descriptor says not to.
///
/// A thread that has waited before sleeps on if the channel is gone.
pub(super) fn next_event(
    hub: &Hub,
    channel: usize,
    has_waited: &mut bool,
) -> Result<*mut rdma_cm_event, c_int> {
    loop {
        let known = hub.lock().channels.get(&channel).map(|channel| Arc::clone(&channel.fd));
        let Some(fd) = known else {
            if *has_waited {
                return Err(sleep_on());
            }
            return Err(late(hub, channel));
        };
        *has_waited = true;
        if !fd.take_one() {
            if !fd.is_open() {
                return Err(libc::EBADF);
            }
            let taken = fd.take(cancel::part_of(None));
            if !taken.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))? {
                if cancel::end_part() {
                    return Err(libc::EAGAIN);
                }
                continue;
            }
        }
        let pending = {
            let mut world = hub.lock();
            let Some(pending) =
                world.channels.get_mut(&channel).and_then(|channel| channel.queue.pop_front())
            else {
                continue;
            };
            // A thread that destroys the identifier now waits until the event is given back.
            if let Some(id) = world.ids.get_mut(&pending.id) {
                id.events.reported += 1;
            }
            pending
        };
        let owner = pending.id;
        let held = deliver::prepare(hub, pending);
        let mut world = hub.lock();
        let Some(held) = held else {
            if let Some(id) = world.ids.get_mut(&owner) {
                id.events.acknowledged += 1;
            }
            hub.acknowledged.notify_all();
            continue;
        };
        let event = Box::into_raw(held);
        world.held.insert(event as usize, owner);
        return Ok(event.cast());
    }
}

/// Lets a thread sleep on whose channel was destroyed while it waited. Returns an errno that the thread does not see if its wait has parts.
fn sleep_on() -> c_int {
    loop {
        let most = cancel::part_of(None).map_or(-1, |part| part.as_millis() as c_int);
        // SAFETY: no descriptors are given, so no memory is used.
        let slept = unsafe { libc::poll(std::ptr::null_mut(), 0, most) };
        if slept < 0 && highwire_host::signal_ends_waits() {
            return libc::EINTR;
        }
        if cancel::end_part() {
            return libc::EAGAIN;
        }
    }
}

/// Handles a thread that waits on a channel which does not exist or no longer does. Returns the errno, if the
/// program goes on.
fn late(hub: &Hub, channel: usize) -> c_int {
    let was_there = hub
        .lock()
        .gone
        .iter()
        .any(|gone| std::ptr::from_ref(&*gone.channel) as usize == channel && !gone.is_nonblocking);
    if was_there {
        // SAFETY: no descriptors are given, so no memory is used.
        let slept = unsafe { libc::poll(std::ptr::null_mut(), 0, PATIENCE_WITH_THE_GONE_MS) };
        if slept < 0 {
            return super::verbs::last_errno();
        }
    }
    libc::EINVAL
}

/// Takes an event back.
pub(super) fn acknowledge(hub: &Hub, event: *mut rdma_cm_event) -> Result<(), c_int> {
    let mut world = hub.lock();
    let owner = world.held.remove(&(event as usize)).ok_or(libc::EINVAL)?;
    if let Some(id) = world.ids.get_mut(&owner) {
        id.events.acknowledged += 1;
    }
    drop(world);
    hub.acknowledged.notify_all();
    // SAFETY: it was made by `next_event` and is in no table any more.
    drop(unsafe { Box::from_raw(event.cast::<Held>()) });
    Ok(())
}

/// A call that begins something, and for a synchronous identifier waits for its end: `kept` tells whether it has begun already, and `begin`
/// returns whether an event will come.
pub(super) fn in_steps(
    hub: &Hub,
    c: *mut rdma_cm_id,
    kept: &mut u64,
    begin: impl FnOnce() -> Result<bool, c_int>,
) -> Result<(), c_int> {
    if *kept == 0 {
        if !begin()? {
            return Ok(());
        }
        *kept = 1;
    }
    complete(hub, c)
}

/// For a synchronous identifier: waits for the event that ends a call, keeps it, and returns its status.
pub(super) fn complete(hub: &Hub, c: *mut rdma_cm_id) -> Result<(), c_int> {
    let (is_synchronous, channel) = {
        let mut world = hub.lock();
        let id = world.id(c)?;
        (id.is_synchronous, id.channel)
    };
    if !is_synchronous {
        return Ok(());
    }
    // SAFETY: the identifier is alive, and this call is the application's on it.
    let old = unsafe { std::mem::replace(&mut (*c).event, std::ptr::null_mut()) };
    if !old.is_null() {
        acknowledge(hub, old)?;
    }
    let event = next_event(hub, channel, &mut false)?;
    // SAFETY: as above; the event is ours until it is acknowledged.
    let (kind, status) = unsafe {
        (*c).event = event;
        ((*event).event, (*event).status)
    };
    match status {
        0 => Ok(()),
        _ if kind == super::abi::RDMA_CM_EVENT_REJECTED => Err(libc::ECONNREFUSED),
        negative if negative < 0 => Err(-negative),
        positive => Err(positive),
    }
}

/// Names as `rdma_event_str` gives them: those of the enumeration.
const NAMES: [&std::ffi::CStr; 20] = [
    c"RDMA_CM_EVENT_ADDR_RESOLVED",
    c"RDMA_CM_EVENT_ADDR_ERROR",
    c"RDMA_CM_EVENT_ROUTE_RESOLVED",
    c"RDMA_CM_EVENT_ROUTE_ERROR",
    c"RDMA_CM_EVENT_CONNECT_REQUEST",
    c"RDMA_CM_EVENT_CONNECT_RESPONSE",
    c"RDMA_CM_EVENT_CONNECT_ERROR",
    c"RDMA_CM_EVENT_UNREACHABLE",
    c"RDMA_CM_EVENT_REJECTED",
    c"RDMA_CM_EVENT_ESTABLISHED",
    c"RDMA_CM_EVENT_DISCONNECTED",
    c"RDMA_CM_EVENT_DEVICE_REMOVAL",
    c"RDMA_CM_EVENT_MULTICAST_JOIN",
    c"RDMA_CM_EVENT_MULTICAST_ERROR",
    c"RDMA_CM_EVENT_ADDR_CHANGE",
    c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
    c"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
    c"RDMA_CM_EVENT_ADDRINFO_ERROR",
    c"RDMA_CM_EVENT_USER",
    c"RDMA_CM_EVENT_INTERNAL",
];

c_api! {
    fn rdma_create_event_channel() -> *mut rdma_event_channel {
        crate::boundary::answer(hub().and_then(|hub| {
            Channel::create(&mut hub.lock()).map(|channel| channel as *mut rdma_event_channel)
        }))
    }

    fn rdma_destroy_event_channel(channel: *mut rdma_event_channel) {
        if let Ok(hub) = hub() {
            let mut world = hub.lock();
            Channel::destroy(&mut world, channel as usize);
            hub.flush(&mut world);
        }
    }

    fn rdma_ack_cm_event(event: *mut rdma_cm_event) -> c_int {
        minus_one(hub().and_then(|hub| acknowledge(hub, event)))
    }

    fn rdma_event_str(event: rdma_cm_event_type) -> *const c_char {
        NAMES.get(event as usize).unwrap_or(&c"UNKNOWN EVENT").as_ptr()
    }
}

c_waits! {
    fn rdma_get_cm_event(channel: *mut rdma_event_channel, event: *mut *mut rdma_cm_event) -> c_int |kept| {
        minus_one((|| {
            if event.is_null() {
                return Err(libc::EINVAL);
            }
            let mut has_waited = *kept != 0;
            let next = next_event(hub()?, channel as usize, &mut has_waited);
            *kept = u64::from(has_waited);
            *event = next?;
            Ok(())
        })())
    }
}

#[cfg(test)]
mod tests;
