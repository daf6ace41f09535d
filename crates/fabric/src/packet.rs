//! What the fabric carries, and where packets are while it carries them.
//!
//! The fabric copies of a packet only what its path needs into a 32-byte record; the packet itself lies beside it and is
//! touched when it enters, leaves, is marked or trimmed. Every queue is a list through those records, so moving a packet
//! moves an index, and a queue costs eight bytes.

use crate::prefetch::prefetch_at;
use crate::{HostId, Rate, Time};

/// What a switch knows as a packet leaves it: in-band telemetry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    /// Bytes that wait for the same output, of all priorities.
    pub queue_bytes: u64,
    /// Bytes that the output has sent since the beginning, this packet among them.
    pub sent_bytes: u64,
    /// The rate of the output's link.
    pub rate: Rate,
    /// When the packet's first bit leaves.
    pub at: Time,
}

/// A packet as the fabric sees it. Anything small and plain can be one.
pub trait Packet: Copy {
    /// Bytes that it occupies on a link, everything included that the caller wants counted (preamble, gap).
    fn wire_bytes(&self) -> u32;

    /// Where it goes.
    fn destination(&self) -> HostId;

    /// What ECMP hashes: equal for the packets of one flow, as a 5-tuple is. Need not be well mixed.
    fn flow_hash(&self) -> u64;

    /// Its priority, 0 (lowest) to the configured number of priorities exclusive.
    fn priority(&self) -> u8 {
        0
    }

    /// Whether a congested switch may mark it instead of leaving it alone.
    fn is_ecn_capable(&self) -> bool {
        false
    }

    /// A switch marks it: congestion experienced.
    fn mark_congestion(&mut self) {}

    /// Whether [`Packet::stamp`] does something; without, no switch looks for what it would be told.
    const IS_STAMPED: bool = false;

    /// A switch sends it on.
    fn stamp(&mut self, _stamp: Stamp) {}

    /// A switch without room keeps the headers only. Returns false if that is not possible and the packet must be dropped;
    /// otherwise [`Packet::wire_bytes`] is smaller from now on.
    fn trim(&mut self) -> bool {
        false
    }
}

pub(crate) const NONE: u32 = u32::MAX;

/// The packet may be marked by ECN.
pub(crate) const ECN_CAPABLE: u8 = 1;
/// A pause frame; `hash` holds the priorities that shall pause.
pub(crate) const CONTROL: u8 = 2;
/// Cut down to its headers already.
pub(crate) const TRIMMED: u8 = 4;
/// A switch that cuts through stores this packet whole, because the port by which it may leave is faster.
pub(crate) const WHOLE: u8 = 8;

/// What a packet's path needs of it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Record {
    /// When its last bit reaches the end of its link; or, if the receiver cuts through, when its header does.
    pub(crate) arrival: Time,
    /// The next in the same list.
    pub(crate) next: u32,
    pub(crate) bytes: u32,
    /// Destination in the form that the topology's arithmetic wants.
    pub(crate) address: u32,
    /// The mixed flow hash.
    pub(crate) hash: u32,
    pub(crate) destination: u32,
    /// The switch port through which it came in.
    pub(crate) input: u16,
    pub(crate) priority: u8,
    pub(crate) flags: u8,
}

/// A first-in, first-out list of packets.
#[derive(Clone, Copy)]
pub(crate) struct Fifo {
    pub(crate) head: u32,
    tail: u32,
}

impl Fifo {
    pub(crate) const EMPTY: Fifo = Fifo { head: NONE, tail: NONE };

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head == NONE
    }
}

/// All packets that are in the fabric.
pub(crate) struct Store<P> {
    pub(crate) records: Vec<Record>,
    packets: Vec<Option<P>>,
    free: u32,
    live: usize,
}

impl<P: Packet> Store<P> {
    pub(crate) fn new() -> Store<P> {
        Store { records: Vec::new(), packets: Vec::new(), free: NONE, live: 0 }
    }

    /// Packets in the fabric now.
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// Bytes of memory that one packet in flight occupies here.
    pub(crate) const fn bytes_per_packet() -> usize {
        size_of::<Record>() + size_of::<Option<P>>()
    }

    #[inline]
    pub(crate) fn insert(&mut self, record: Record, packet: Option<P>) -> u32 {
        self.live += 1;
        if self.free == NONE {
            self.records.push(record);
            self.packets.push(packet);
            return u32::try_from(self.records.len() - 1).expect("fewer than 2^32 packets in flight");
        }
        let index = self.free;
        let place = &mut self.records[index as usize];
        self.free = place.next;
        *place = record;
        self.packets[index as usize] = packet;
        index
    }

    /// Takes a packet out; a pause frame has none.
    #[inline]
    pub(crate) fn remove(&mut self, index: u32) -> Option<P> {
        self.live -= 1;
        self.records[index as usize].next = self.free;
        self.free = index;
        self.packets[index as usize].take()
    }

    /// Asks for a packet's record, and for the packet itself if it `arrives`.
    #[inline]
    pub(crate) fn prefetch(&self, index: u32, arrives: bool) {
        prefetch_at(&self.records, index as usize);
        if arrives {
            prefetch_at(&self.packets, index as usize);
        }
    }

    /// The packet at `index`, if there is one.
    #[inline]
    pub(crate) fn get(&self, index: u32) -> Option<&P> {
        self.packets.get(index as usize)?.as_ref()
    }

    pub(crate) fn packet(&self, index: u32) -> Option<&P> {
        self.packets[index as usize].as_ref()
    }

    pub(crate) fn packet_mut(&mut self, index: u32) -> Option<&mut P> {
        self.packets[index as usize].as_mut()
    }

    #[inline]
    pub(crate) fn push_back(&mut self, list: &mut Fifo, index: u32) {
        self.records[index as usize].next = NONE;
        if list.head == NONE {
            list.head = index;
        } else {
            self.records[list.tail as usize].next = index;
        }
        list.tail = index;
    }

    #[inline]
    pub(crate) fn pop_front(&self, list: &mut Fifo) -> Option<u32> {
        let index = list.head;
        if index == NONE {
            return None;
        }
        list.head = self.records[index as usize].next;
        Some(index)
    }

    /// The packets of a list, first to last.
    pub(crate) fn iter(&self, list: &Fifo) -> impl Iterator<Item = &Record> {
        let mut at = list.head;
        std::iter::from_fn(move || {
            let record = self.records.get(at as usize)?;
            at = record.next;
            Some(record)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    struct Bare;

    impl Packet for Bare {
        fn wire_bytes(&self) -> u32 {
            64
        }
        fn destination(&self) -> HostId {
            HostId(0)
        }
        fn flow_hash(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_record_is_half_a_cache_line() {
        assert_eq!(size_of::<Record>(), 32);
        assert_eq!(size_of::<Fifo>(), 8);
    }

    #[test]
    fn lists_keep_their_order_and_places_are_used_again() {
        let mut store = Store::new();
        let mut list = Fifo::EMPTY;
        for bytes in [1, 2, 3] {
            let index = store.insert(Record { bytes, ..Record::default() }, Some(Bare));
            store.push_back(&mut list, index);
        }
        assert_eq!(store.iter(&list).map(|r| r.bytes).collect::<Vec<_>>(), [1, 2, 3]);
        let first = store.pop_front(&mut list).expect("three are in it");
        assert!(store.remove(first).is_some());
        assert_eq!((store.len(), store.insert(Record::default(), None)), (2, first));
        assert_eq!((store.pop_front(&mut list), store.pop_front(&mut list)), (Some(1), Some(2)));
        assert!(store.pop_front(&mut list).is_none() && list.is_empty());
    }
}
