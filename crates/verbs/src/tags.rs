//! The matching list of a queue with tags: buffers that wait for a message with a tag of their own.
//!
//! A message that no buffer waits for is unexpected: it goes to the application, which looks for it among
//! receives that it has not posted yet. Meanwhile the application may post the very buffer, and then neither
//! side would match the two. So buffers that come before the application has reported that it knows of every
//! unexpected message take no part in matching until it has.

use crate::work_request::SgeList;

/// A buffer for a message with a tag.
#[derive(Clone, Debug)]
pub struct TaggedBuffer {
    /// Given back when a message has matched.
    pub wr_id: u64,
    /// The tag.
    pub tag: u64,
    /// The bits of the tag that count.
    pub mask: u64,
    /// The buffer, in order.
    pub sges: SgeList,
}

/// A request to change a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagRequest {
    /// Given back in its completion.
    pub wr_id: u64,
    /// Whether it has a completion.
    pub signaled: bool,
    /// How many unexpected messages the application has seen, if it reports that.
    pub unexpected: Option<u32>,
}

/// Names a buffer of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct TagHandle(pub u32);

/// Tagged buffers in the order in which they were posted.
#[derive(Clone, Debug)]
pub struct TagList {
    waiting: Vec<Waiting>,
    capacity: usize,
    next: u32,
    /// Messages that no buffer waited for.
    unexpected: u32,
    is_synced: bool,
}

#[derive(Clone, Debug)]
struct Waiting {
    handle: TagHandle,
    buffer: TaggedBuffer,
    is_armed: bool,
}

impl TagList {
    /// An empty list with room for this many buffers.
    pub fn new(capacity: u32) -> TagList {
        TagList { waiting: Vec::new(), capacity: capacity as usize, next: 0, unexpected: 0, is_synced: true }
    }

    /// Adds a buffer; `None` if the list is full.
    pub fn add(&mut self, buffer: TaggedBuffer) -> Option<TagHandle> {
        if self.waiting.len() >= self.capacity {
            return None;
        }
        let handle = TagHandle(self.next);
        self.next = self.next.wrapping_add(1);
        self.waiting.push(Waiting { handle, buffer, is_armed: self.is_synced });
        Some(handle)
    }

    /// Takes a buffer back; `None` if a message took it first.
    pub fn remove(&mut self, handle: TagHandle) -> Option<TaggedBuffer> {
        let at = self.waiting.iter().position(|waiting| waiting.handle == handle)?;
        Some(self.waiting.remove(at).buffer)
    }

    /// The application knows of this many unexpected messages. If that is all of them, every buffer takes
    /// part again.
    pub fn sync(&mut self, unexpected: u32) {
        self.is_synced = unexpected == self.unexpected;
        if self.is_synced {
            self.waiting.iter_mut().for_each(|waiting| waiting.is_armed = true);
        }
    }

    /// Whether the application knows of every unexpected message.
    pub fn is_synced(&self) -> bool {
        self.is_synced
    }

    /// Takes the oldest buffer that waits for this tag out of the list.
    pub fn take(&mut self, tag: u64) -> Option<TaggedBuffer> {
        let is_it =
            |waiting: &Waiting| waiting.is_armed && (waiting.buffer.tag ^ tag) & waiting.buffer.mask == 0;
        let at = self.waiting.iter().position(is_it)?;
        Some(self.waiting.remove(at).buffer)
    }

    /// A message has come that no buffer waits for.
    pub fn note_unexpected(&mut self) {
        self.unexpected = self.unexpected.wrapping_add(1);
        self.is_synced = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(wr_id: u64, tag: u64, mask: u64) -> TaggedBuffer {
        TaggedBuffer { wr_id, tag, mask, sges: SgeList::default() }
    }

    #[test]
    fn the_oldest_that_matches_is_taken() {
        let mut list = TagList::new(3);
        list.add(buffer(1, 0x11, 0xFF)).expect("room");
        let second = list.add(buffer(2, 0x22, 0)).expect("room");
        list.add(buffer(3, 0x11, 0xFF)).expect("room");
        assert!(list.add(buffer(4, 0, 0)).is_none(), "it holds three");
        let take = |list: &mut TagList, tag| list.take(tag).map(|buffer| buffer.wr_id);
        assert_eq!(take(&mut list, 0xAB11), Some(1));
        assert_eq!(take(&mut list, 0x77), Some(2));
        assert!(list.remove(second).is_none(), "a message was quicker");
        assert_eq!((take(&mut list, 0x77), take(&mut list, 0x11)), (None, Some(3)));
    }

    #[test]
    fn buffers_wait_until_every_unexpected_message_is_known() {
        let mut list = TagList::new(8);
        list.add(buffer(1, 5, u64::MAX)).expect("room");
        list.note_unexpected();
        let late = list.add(buffer(2, 6, u64::MAX)).expect("room");
        assert!(!list.is_synced() && list.take(6).is_none());
        assert!(list.take(5).is_some(), "it was there before");
        list.sync(0);
        assert!(list.take(6).is_none());
        list.sync(1);
        assert!(list.is_synced() && list.take(6).is_some() && list.remove(late).is_none());
    }
}
