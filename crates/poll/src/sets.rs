//! The sets of descriptors of `select`: bits, which the result overwrites.

use std::mem::MaybeUninit;
use std::ptr;

use libc::{FD_SETSIZE, c_int, fd_set, pollfd};

use crate::channels::Channels;

/// Descriptors in a set. The C library's have room for no more; calls with larger ones are the C library's.
pub(crate) const MOST: usize = FD_SETSIZE;
const WORDS: usize = MOST / u64::BITS as usize;

/// What a descriptor in each of a call's sets, in their order, is waited for.
const EVENTS: [i16; 3] = [libc::POLLIN, libc::POLLOUT, libc::POLLPRI];

/// The sets of one call: for reading, for writing, and for exceptional conditions.
#[derive(Clone, Copy)]
pub(crate) struct Sets {
    words: [[u64; WORDS]; 3],
    /// The words that the kernel reads, and overwrites.
    used: usize,
    is_given: [bool; 3],
}

impl Sets {
    /// Copies a call's sets; `None` if there are more descriptors than fit, or fewer than none.
    ///
    /// # Safety
    /// Sets that are given hold so many descriptors.
    pub(crate) unsafe fn read(count: c_int, sets: [*mut fd_set; 3]) -> Option<Sets> {
        let count = usize::try_from(count).ok().filter(|count| *count <= MOST)?;
        let used = count.div_ceil(u64::BITS as usize);
        let mut words = [[0; WORDS]; 3];
        for (words, set) in words.iter_mut().zip(sets).filter(|(_, set)| !set.is_null()) {
            // SAFETY: the caller's promise; a set is an array of words.
            unsafe { ptr::copy_nonoverlapping(set.cast::<u64>(), words.as_mut_ptr(), used) };
            // The kernel reads whole words, and heeds only this many bits.
            if count % u64::BITS as usize > 0 {
                words[used - 1] &= (1 << (count % u64::BITS as usize)) - 1;
            }
        }
        Some(Sets { words, used, is_given: sets.map(|set| !set.is_null()) })
    }

    /// The first channel that is waited for. `None`, too, if a descriptor is waited for by its exceptional conditions only: `poll` would tell more of
    /// it than `select`, such as its end, and the wait would turn to polling.
    pub(crate) fn channel(&self, channels: &Channels) -> Option<c_int> {
        let [read, _, except] = &self.words;
        let is_odd = read.iter().zip(except).any(|(read, except)| except & !read != 0);
        if is_odd { None } else { members(read).find_map(|fd| channels.of(fd)) }
    }

    /// The same as `poll` would be asked.
    pub(crate) fn polled<'r>(&self, room: &'r mut [MaybeUninit<pollfd>; MOST]) -> &'r [pollfd] {
        let mut all = [0; WORDS];
        for (word, all) in all.iter_mut().enumerate() {
            *all = self.words.iter().fold(0, |union, set| union | set[word]);
        }
        let mut count = 0;
        for fd in members(&all) {
            let (word, bit) = (fd as usize / u64::BITS as usize, 1 << (fd as u32 % u64::BITS));
            let asked = self.words.iter().zip(EVENTS).filter(|(set, _)| set[word] & bit != 0);
            let events = asked.fold(0, |all, (_, event)| all | event);
            room[count].write(pollfd { fd, events, revents: 0 });
            count += 1;
        }
        // SAFETY: so many were written.
        unsafe { std::slice::from_raw_parts(room.as_ptr().cast(), count) }
    }

    /// Where the C library's function reads and overwrites them.
    pub(crate) fn pointers(&mut self) -> [*mut fd_set; 3] {
        let mut given = self.is_given.into_iter();
        self.words
            .each_mut()
            .map(|words| if given.next() == Some(true) { words.as_mut_ptr().cast() } else { ptr::null_mut() })
    }

    /// Puts them where they were read.
    ///
    /// # Safety
    /// The same sets as for [`read`](Self::read).
    pub(crate) unsafe fn write(&self, sets: [*mut fd_set; 3]) {
        for (words, set) in self.words.iter().zip(sets).filter(|(_, set)| !set.is_null()) {
            // SAFETY: the caller's promise.
            unsafe { ptr::copy_nonoverlapping(words.as_ptr(), set.cast::<u64>(), self.used) };
        }
    }
}

/// The descriptors of a set, in ascending order.
fn members(words: &[u64; WORDS]) -> impl Iterator<Item = c_int> {
    words.iter().zip(0..).flat_map(|(word, index)| {
        let mut left = *word;
        std::iter::from_fn(move || {
            let bit = (left != 0).then(|| left.trailing_zeros())?;
            left &= left - 1;
            Some(index * u64::BITS as c_int + bit as c_int)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Words = [u64; WORDS];

    fn words(fds: &[usize]) -> Words {
        let mut words = [0; WORDS];
        fds.iter().for_each(|fd| words[fd / 64] |= 1 << (fd % 64));
        words
    }

    fn read(count: c_int, sets: &mut [Option<Words>; 3]) -> Option<Sets> {
        let pointers =
            sets.each_mut().map(|set| set.as_mut().map_or(ptr::null_mut(), |set| set.as_mut_ptr().cast()));
        // SAFETY: each has room for all.
        unsafe { Sets::read(count, pointers) }
    }

    fn polled(sets: &Sets) -> Vec<(c_int, i16)> {
        let mut room = [const { MaybeUninit::uninit() }; MOST];
        sets.polled(&mut room).iter().map(|polled| (polled.fd, polled.events)).collect()
    }

    #[test]
    fn what_is_polled_is_what_is_selected() {
        let (read_events, both) = (libc::POLLIN, libc::POLLIN | libc::POLLOUT);
        let mut sets = [Some(words(&[0, 63, 64, 1023])), Some(words(&[63, 65])), None];
        let all = read(1024, &mut sets).expect("they fit");
        let expected =
            [(0, read_events), (63, both), (64, read_events), (65, libc::POLLOUT), (1023, read_events)];
        assert_eq!(polled(&all), expected);
        let some = read(64, &mut sets).expect("they fit");
        assert_eq!(polled(&some), [(0, read_events), (63, both)]);
        let some = read(63, &mut sets).expect("they fit");
        assert_eq!(polled(&some), [(0, read_events)], "of the last word not all bits count");
        assert_eq!(polled(&read(0, &mut sets).expect("they fit")), []);
        assert!(read(1025, &mut sets).is_none() && read(-1, &mut sets).is_none());
    }

    #[test]
    fn a_wait_is_ours_if_a_channel_is_to_be_read() {
        let channels = Box::new(Channels::new());
        channels.note(70, true);
        let channel = |read_fds: &[usize], write_fds: &[usize], except_fds: &[usize]| {
            let mut sets = [read_fds, write_fds, except_fds].map(|fds| Some(words(fds)));
            read(1024, &mut sets).and_then(|sets| sets.channel(&channels))
        };
        assert_eq!(channel(&[3, 70], &[], &[]), Some(70));
        assert_eq!(channel(&[3, 70], &[4], &[3, 70]), Some(70));
        assert_eq!(channel(&[3], &[70], &[]), None);
        assert_eq!(channel(&[70], &[], &[3]), None, "poll would tell of the end of 3");
    }

    #[test]
    fn words_beyond_the_last_descriptor_are_neither_read_nor_written() {
        let mut sets = [Some(words(&[5, 64, 127, 128])), None, None];
        let mut copy = read(65, &mut sets).expect("they fit");
        let [first, second, third] = copy.pointers();
        assert!(!first.is_null() && second.is_null() && third.is_null());
        // SAFETY: it is an array of words.
        unsafe { ptr::write_bytes(first.cast::<u64>(), 0, WORDS) };
        let target = sets[0].as_mut().map_or(ptr::null_mut(), |set| set.as_mut_ptr().cast());
        // SAFETY: the same sets.
        unsafe { copy.write([target, ptr::null_mut(), ptr::null_mut()]) };
        assert_eq!(sets[0], Some(words(&[128])), "two words are the call's, and the third is not");
    }
}
