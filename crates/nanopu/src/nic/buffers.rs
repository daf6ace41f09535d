//! The memory for messages of one direction: buffers of two sizes as on the prototype, or segments that a message takes as many of as it
//! needs.
//!
//! A message gets all of its memory with its first packet or word, so two messages never wait for each other's.

use super::{LongMessages, NicConfig};
use crate::packet::{MESSAGE_BYTES_MAX, SEGMENT_BYTES, packets_of};

/// The free part of the memory.
#[derive(Clone, Debug)]
pub(super) struct Buffers {
    free: Free,
    message_bytes_max: usize,
    /// Small messages take large buffers if there are no others.
    overflows: bool,
    /// So many messages fit at once, at the most.
    messages_max: usize,
}

#[derive(Clone, Copy, Debug)]
enum Free {
    /// Buffers of 1 KiB and of 2 KiB.
    Classes([usize; 2]),
    /// Segments of 1 KiB.
    Segments(usize),
}

impl Buffers {
    pub(super) fn new(config: &NicConfig) -> Buffers {
        match config.long_messages {
            None => Buffers {
                free: Free::Classes(config.buffers),
                message_bytes_max: MESSAGE_BYTES_MAX,
                overflows: false,
                messages_max: config.buffers.iter().sum(),
            },
            Some(LongMessages { bytes_max, segments, .. }) => Buffers {
                free: Free::Segments(segments),
                // A message that needs more than all segments could never arrive.
                message_bytes_max: usize::from(bytes_max).min(segments * SEGMENT_BYTES),
                overflows: false,
                messages_max: segments,
            },
        }
    }

    /// The memory of the receiving half.
    pub(super) fn for_receiving(config: &NicConfig) -> Buffers {
        Buffers { overflows: config.overflows && config.long_messages.is_none(), ..Buffers::new(config) }
    }

    /// Takes what an arriving message needs: the length for which it is taken, which may be more than the message's.
    pub(super) fn take_for(&mut self, bytes: u16) -> Option<u16> {
        if self.take(bytes) {
            return Some(bytes);
        }
        let more = MESSAGE_BYTES_MAX as u16;
        (self.overflows && bytes < more && self.take(more)).then_some(more)
    }

    /// The longest message.
    pub(super) fn message_bytes_max(&self) -> usize {
        self.message_bytes_max
    }

    /// So many messages fit at once, at the most.
    pub(super) fn messages_max(&self) -> usize {
        self.messages_max
    }

    /// The size class that packets of such a message name: its segments but one.
    pub(super) fn class(bytes: u16) -> u8 {
        (packets_of(bytes) - 1) as u8
    }

    /// The memory that such a message takes, as quotas count it.
    pub(super) fn cost(&self, bytes: u16) -> usize {
        match self.free {
            Free::Classes(_) => 1,
            Free::Segments(_) => packets_of(bytes),
        }
    }

    /// Whether memory stays in use while words leave it. On the prototype, a message's buffer is free when
    /// its first word leaves.
    pub(super) fn is_held_to_the_end(&self) -> bool {
        matches!(self.free, Free::Segments(_))
    }

    /// Whether messages of `bytes` can use the memory that messages of `other` bytes give back.
    pub(super) fn share(&self, bytes: u16, other: u16) -> bool {
        match self.free {
            Free::Classes(_) => Buffers::class(bytes) == Buffers::class(other),
            Free::Segments(_) => true,
        }
    }

    /// Whether there is enough for such a message.
    pub(super) fn fits(&self, bytes: u16) -> bool {
        match self.free {
            Free::Classes(free) => free[usize::from(Buffers::class(bytes).min(1))] > 0,
            Free::Segments(free) => free >= packets_of(bytes),
        }
    }

    /// Takes what a message needs; false if there is less.
    pub(super) fn take(&mut self, bytes: u16) -> bool {
        let fits = self.fits(bytes);
        if fits {
            let (free, needed) = self.counter(bytes);
            *free -= needed;
        }
        fits
    }

    /// Gives a message's memory back.
    pub(super) fn give(&mut self, bytes: u16) {
        let (free, needed) = self.counter(bytes);
        *free += needed;
    }

    fn counter(&mut self, bytes: u16) -> (&mut usize, usize) {
        match &mut self.free {
            Free::Classes(free) => (&mut free[usize::from(Buffers::class(bytes).min(1))], 1),
            Free::Segments(free) => (free, packets_of(bytes)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prototype_has_two_sizes() {
        let mut buffers = Buffers::new(&NicConfig { buffers: [1, 1], ..NicConfig::default() });
        assert_eq!((buffers.message_bytes_max(), buffers.messages_max()), (2048, 2));
        assert!(buffers.take(1024) && !buffers.take(8));
        assert!(buffers.take(1025) && !buffers.take(2048));
        buffers.give(1025);
        assert!(!buffers.take(0) && buffers.take(2048));
    }

    #[test]
    fn small_messages_overflow_into_large_buffers_where_they_arrive() {
        let config = NicConfig { buffers: [1, 2], ..NicConfig::default() };
        let mut buffers = Buffers::for_receiving(&config);
        assert_eq!(
            [16, 16, 2000, 16].map(|bytes| buffers.take_for(bytes)),
            [Some(16), Some(2048), Some(2000), None]
        );
        buffers.give(2048);
        assert_eq!([2000, 16].map(|bytes| buffers.take_for(bytes)), [Some(2000), None]);
        let mut buffers = Buffers::for_receiving(&NicConfig { overflows: false, ..config });
        assert_eq!([16, 16].map(|bytes| buffers.take_for(bytes)), [Some(16), None]);
    }

    #[test]
    fn long_messages_take_what_they_need() {
        let long_messages = Some(LongMessages { segments: 10, ..LongMessages::default() });
        let mut buffers = Buffers::new(&NicConfig { long_messages, ..NicConfig::default() });
        assert_eq!(buffers.message_bytes_max(), 10_240);
        assert!(buffers.take(8192) && !buffers.take(2049) && buffers.take(2048) && !buffers.take(0));
        buffers.give(8192);
        assert!(buffers.take(1) && buffers.take(7 * 1024) && !buffers.take(1));
        assert_eq!((Buffers::class(0), Buffers::class(1025), Buffers::class(65_535)), (0, 1, 63));
    }
}
