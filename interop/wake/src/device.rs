//! `/dev/highwire-wake`, as `module/highwire_wake.h` describes it.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Where the module makes it.
pub(crate) const PATH: &str = "/dev/highwire-wake";

/// A request without a size: `_IO('H', number)`.
const fn plain(number: u32) -> u32 {
    ((b'H' as u32) << 8) | number
}

pub(crate) const SLOTS: u32 = plain(0x81);
pub(crate) const WAIT: u32 = plain(0x82);
pub(crate) const SWITCH: u32 = plain(0x83);
pub(crate) const POST: u32 = plain(0x84);
pub(crate) const CLOSE: u32 = plain(0x85);
/// `_IOR('H', 0x86, struct hww_counts)`.
pub(crate) const COUNTS: u32 = (2 << 30) | ((size_of::<Counts>() as u32) << 16) | plain(0x86);
/// `HWW_SLOTS_MAX`.
pub(crate) const SLOTS_MAX: u32 = 4096;
/// `HWW_PATIENCE_US_MAX`.
pub(crate) const PATIENCE_US_MAX: u32 = 1_000_000;

/// A dispatcher and the threads that wait for it.
#[derive(Debug)]
pub(crate) struct Group {
    device: File,
}

/// The result of a dispatcher's switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Switched {
    /// No thread slept there.
    Nobody,
    /// The core came back when a thread waited again.
    Returned,
    /// The core came back when the patience was over.
    Late,
}

/// `struct hww_counts`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub(crate) struct Counts {
    pub(crate) posts: u64,
    pub(crate) taken: u64,
    pub(crate) sleeps: u64,
    pub(crate) switches: u64,
    pub(crate) late: u64,
}

impl Group {
    /// A group without slots.
    pub(crate) fn open() -> io::Result<Group> {
        let device = OpenOptions::new().read(true).write(true).open(Path::new(PATH))?;
        Ok(Group { device })
    }

    pub(crate) fn with_slots(slots: u32) -> io::Result<Group> {
        let group = Group::open()?;
        group.call(SLOTS, slots.into())?;
        Ok(group)
    }

    /// Sleeps until the slot is posted to; returns how often it was.
    pub(crate) fn wait(&self, slot: u32) -> io::Result<u32> {
        self.call(WAIT, slot.into())
    }

    /// Posts, and gives the core to the thread that sleeps there.
    pub(crate) fn switch(&self, slot: u32, patience_us: u32) -> io::Result<Switched> {
        Ok(match self.call(SWITCH, u64::from(slot) | u64::from(patience_us) << 32)? {
            0 => Switched::Nobody,
            1 => Switched::Returned,
            _ => Switched::Late,
        })
    }

    /// Posts, and goes on.
    pub(crate) fn post(&self, slot: u32) -> io::Result<bool> {
        Ok(self.call(POST, slot.into())? == 1)
    }

    /// Ends every wait.
    pub(crate) fn close(&self) -> io::Result<()> {
        self.call(CLOSE, 0).map(drop)
    }

    pub(crate) fn counts(&self) -> io::Result<Counts> {
        let mut counts = Counts::default();
        self.call(COUNTS, (&raw mut counts).addr() as u64)?;
        Ok(counts)
    }

    /// Any request with any argument, for tests of what the device refuses.
    pub(crate) fn call(&self, request: u32, argument: u64) -> io::Result<u32> {
        // SAFETY: the module writes to user memory for `COUNTS` alone, and only if that is mapped and
        // writable: `counts` passes a structure of its size, and tests of wrong addresses pass an unmapped
        // one.
        let result = unsafe { libc::ioctl(self.device.as_raw_fd(), request.into(), argument) };
        u32::try_from(result).map_err(|_| io::Error::last_os_error())
    }
}
