//! The descriptors of completion channels, and the sets of descriptors that hold one.

use std::sync::atomic::{AtomicU32, Ordering};

use libc::{c_int, pollfd};

/// Descriptors from this number on are the C library's business alone.
const DESCRIPTORS: usize = 1 << 16;

/// For each descriptor the channel's descriptor that makes a wait for it ours, plus one; zero for all others. A set keeps its mark until it is
/// closed by `close`: a mark that is too old costs a turn of polling.
pub(crate) struct Channels {
    via: [AtomicU32; DESCRIPTORS],
}

impl Channels {
    pub(crate) const fn new() -> Channels {
        Channels { via: [const { AtomicU32::new(0) }; DESCRIPTORS] }
    }

    /// A channel's descriptor came to be, or is about to go.
    pub(crate) fn note(&self, fd: c_int, is_open: bool) {
        self.set(fd, if is_open { Some(fd) } else { None });
    }

    /// The channel for whose events a wait on this descriptor is.
    #[inline]
    pub(crate) fn of(&self, fd: c_int) -> Option<c_int> {
        let via = self.via.get(usize::try_from(fd).ok()?)?.load(Ordering::Relaxed);
        c_int::try_from(via.checked_sub(1)?).ok()
    }

    /// The first of the descriptors' channels.
    #[inline]
    pub(crate) fn among(&self, fds: &[pollfd]) -> Option<c_int> {
        fds.iter().find_map(|polled| self.of(polled.fd))
    }

    /// A descriptor was added to a set.
    pub(crate) fn note_added(&self, set: c_int, fd: c_int) {
        if let Some(channel) = self.of(fd) {
            self.set(set, Some(channel));
        }
    }

    /// A descriptor is about to be closed.
    #[inline]
    pub(crate) fn note_closed(&self, fd: c_int) {
        if self.of(fd).is_some() {
            self.set(fd, None);
        }
    }

    /// No descriptor has to do with a channel any more.
    pub(crate) fn forget(&self) {
        // Most of the pages were never touched, and stay so.
        for via in self.via.iter().filter(|via| via.load(Ordering::Relaxed) != 0) {
            via.store(0, Ordering::Relaxed);
        }
    }

    fn set(&self, fd: c_int, channel: Option<c_int>) {
        let Some(via) = usize::try_from(fd).ok().and_then(|fd| self.via.get(fd)) else { return };
        via.store(channel.map_or(0, |channel| channel as u32 + 1), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polled(fd: c_int) -> pollfd {
        pollfd { fd, events: libc::POLLIN, revents: 0 }
    }

    #[test]
    fn a_wait_is_ours_if_a_channel_is_among_what_it_waits_for() {
        let channels = Box::new(Channels::new());
        let fds = [polled(-1), polled(0), polled(7), polled(c_int::MAX)];
        assert_eq!(channels.among(&fds), None);
        channels.note(7, true);
        assert_eq!((channels.among(&fds), channels.of(7), channels.of(8)), (Some(7), Some(7), None));
        channels.note(7, false);
        assert_eq!(channels.among(&fds), None, "it is gone");
    }

    #[test]
    fn sets_that_hold_a_channel_are_known_and_sets_of_these() {
        let channels = Box::new(Channels::new());
        channels.note(7, true);
        channels.note_added(9, 8);
        assert_eq!(channels.of(9), None, "8 is no channel");
        channels.note_added(9, 7);
        channels.note_added(11, 9);
        assert_eq!((channels.of(9), channels.of(11)), (Some(7), Some(7)));
        channels.note_closed(9);
        channels.note_closed(12);
        assert_eq!((channels.of(9), channels.of(11), channels.of(7)), (None, Some(7), Some(7)));
        channels.forget();
        assert_eq!((channels.of(11), channels.of(7)), (None, None));
    }

    #[test]
    fn numbers_that_are_too_large_or_negative_are_not_ours() {
        let channels = Box::new(Channels::new());
        for fd in [-1, c_int::MIN, DESCRIPTORS as c_int, c_int::MAX] {
            channels.note(fd, true);
            channels.note_added(fd, fd);
            channels.note_closed(fd);
            assert_eq!(channels.of(fd), None, "{fd}");
        }
        channels.note(DESCRIPTORS as c_int - 1, true);
        assert_eq!(channels.of(DESCRIPTORS as c_int - 1), Some(DESCRIPTORS as c_int - 1));
    }
}
