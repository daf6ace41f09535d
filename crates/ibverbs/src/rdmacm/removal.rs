//! A scenario takes the device out: identifiers are told by `RDMA_CM_EVENT_DEVICE_REMOVAL`.
//!
//! As in Linux' `rdma_cm`: each identifier that has the device gets the event, in the order in which they got the device. It is the last
//! event of an identifier. Its conversation ends without a word to the peer. Requests for connections that wait in a channel are void. An
//! identifier that listens on every address has no device: it is told nothing, and listens on the device that comes back.
//!
//! A device is taken out by whichever thread plays the scenario, which may be in the middle of a call about connections. So that thread
//! only leaves a note, and the driver's thread tells the identifiers.

use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use highwire_host::Gsi;
use highwire_host::cm::Driver;

use super::abi::RDMA_CM_EVENT_DEVICE_REMOVAL;
use super::channel::{self, push};
use super::deliver::What;
use super::gsi::say;
use super::hub::World;
use super::id::Id;

/// How often the removal of a device was announced.
static ANNOUNCED: AtomicU32 = AtomicU32::new(0);
/// The driver of this process, which is never freed.
static DRIVER: AtomicPtr<Driver<World>> = AtomicPtr::new(std::ptr::null_mut());

/// The driver is there, and is told from now on.
pub(super) fn expect(driver: &std::sync::Arc<Driver<World>>) {
    // The hub keeps the driver for as long as the process lives.
    DRIVER.store(std::sync::Arc::as_ptr(driver).cast_mut(), Ordering::Release);
}

/// The removal of a device is announced to its users.
pub(crate) fn announce() {
    ANNOUNCED.fetch_add(1, Ordering::Release);
    // SAFETY: it is null, or the driver of a hub, which is never freed. A child of `fork` wakes its parent's thread, which finds nothing new.
    if let Some(driver) = unsafe { DRIVER.load(Ordering::Acquire).as_ref() } {
        driver.look_again();
    }
}

/// Whether the device at a place was taken out after it had come back so often.
pub(super) fn has_left((index, generation): (usize, u32)) -> bool {
    crate::faults::may_refuse() && crate::faults::has_left(index, generation)
}

impl Id {
    /// Whether nothing can be done with it any more, but to destroy it.
    pub(super) fn has_lost_its_device(&self) -> bool {
        self.attached.is_some_and(|attached| has_left(attached.place))
    }
}

/// Tells the identifiers whose device is gone, once each.
pub(super) fn tell(world: &mut World, gsi: &Gsi) {
    let announced = ANNOUNCED.load(Ordering::Acquire);
    if std::mem::replace(&mut world.told, announced) == announced {
        return;
    }
    channel::void_requests(world);
    let mut bereft = Vec::new();
    for (&c, id) in &mut world.ids {
        if let Some(attached) = id.attached.filter(|_| !id.is_told && id.has_lost_its_device()) {
            id.is_told = true;
            bereft.push((attached.order, c));
        }
    }
    bereft.sort_unstable();
    for (_, c) in bereft {
        if let Some(comm) = world.ids.get_mut(&c).and_then(|id| id.exchange.comm.take()) {
            world.by_comm.remove(&comm);
            say(gsi.revoke_last_message(comm.0));
            world.cm.abandon(comm);
        }
        push(world, c, What::Plain(RDMA_CM_EVENT_DEVICE_REMOVAL), 0);
    }
}
