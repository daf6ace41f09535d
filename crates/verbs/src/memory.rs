//! How the protocol touches memory without knowing what memory is.
//!
//! A received payload is bytes on a host and only a length in a simulation; both are a [`Payload`]. A driver
//! implements [`Memory`] for the payloads it delivers. The protocol checks addresses against the region
//! tables first, so an implementation need not know about keys.

use crate::work_request::{Sge, SgeList};

/// The payload of a packet that arrived.
pub trait Payload: Copy {
    /// Its length in bytes.
    fn len(&self) -> u32;
    /// The `length` bytes that start at `from`; both lie within the payload.
    fn slice(&self, from: u32, length: u32) -> Self;
    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Payload for &[u8] {
    #[inline]
    fn len(&self) -> u32 {
        <[u8]>::len(self) as u32
    }

    #[inline]
    fn slice(&self, from: u32, length: u32) -> Self {
        &self[from as usize..(from + length) as usize]
    }
}

/// A payload with a known length and no bytes, which a simulation delivers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Length(pub u32);

impl Payload for Length {
    fn len(&self) -> u32 {
        self.0
    }

    fn slice(&self, _from: u32, length: u32) -> Self {
        Length(length)
    }
}

/// The memory behind a checked address has gone: its owner has unmapped it without deregistering it. The part
/// of the access that came before the missing memory may have happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryLost;

/// Memory behind checked addresses. From [`NULL_ADDR`](crate::NULL_ADDR) on there is none: data written there
/// is lost.
pub trait Memory<P: Payload> {
    /// Writes a payload at `addr`.
    ///
    /// # Errors
    /// [`MemoryLost`].
    fn place(&mut self, addr: u64, payload: P) -> Result<(), MemoryLost>;
    /// Writes a few bytes that the RNIC itself made (a GRH, the result of an atomic) at `addr`.
    ///
    /// # Errors
    /// [`MemoryLost`].
    fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), MemoryLost>;
    /// Replaces the aligned 64-bit word at `addr` by `swap` if it equals `compare`; returns its former value.
    ///
    /// # Errors
    /// [`MemoryLost`].
    fn compare_swap(&mut self, addr: u64, compare: u64, swap: u64) -> Result<u64, MemoryLost>;
    /// Adds to the aligned 64-bit word at `addr`, wrapping; returns its former value.
    ///
    /// # Errors
    /// [`MemoryLost`].
    fn fetch_add(&mut self, addr: u64, add: u64) -> Result<u64, MemoryLost>;
}

/// Memory behind checked addresses within which messages are moved: a driver provides it for tag matching.
pub trait LocalMemory {
    /// Copies bytes out of local spans to the front of `out`, which is at least as long.
    ///
    /// # Errors
    /// [`MemoryLost`].
    fn copy_out(&self, from: &Gather<'_>, out: &mut [u8]) -> Result<(), MemoryLost>;
    /// Copies as many bytes from one list of local spans to another, which do not overlap.
    ///
    /// # Errors
    /// [`MemoryLost`].
    fn copy_within(&mut self, from: &Gather<'_>, to: &Gather<'_>) -> Result<(), MemoryLost>;
}

/// A run of local memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// Where it starts.
    pub addr: u64,
    /// How many bytes it has.
    pub length: u32,
}

/// The payload of a packet to send: `length` bytes at `offset` of a list of local spans.
#[derive(Clone, Copy, Debug)]
pub struct Gather<'a> {
    sges: &'a [Sge],
    offset: u32,
    length: u32,
}

impl<'a> Gather<'a> {
    /// No payload.
    pub const EMPTY: Gather<'static> = Gather { sges: &[], offset: 0, length: 0 };

    /// `length` bytes that start `offset` bytes into `sges`, whose addresses are local.
    pub fn new(sges: &'a [Sge], offset: u32, length: u32) -> Gather<'a> {
        Gather { sges, offset, length }
    }

    /// How many bytes.
    #[inline]
    pub fn len(&self) -> u32 {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The whole payload as one span, if it is one.
    #[inline]
    pub fn single(&self) -> Option<Span> {
        let first = self.sges.first()?;
        (u64::from(self.offset) + u64::from(self.length) <= u64::from(first.length))
            .then(|| Span { addr: first.addr + u64::from(self.offset), length: self.length })
    }

    /// The spans that make up the payload, in order.
    pub fn spans(&self) -> impl Iterator<Item = Span> + 'a {
        spans(self.sges, self.offset, self.length)
    }
}

fn spans(sges: &[Sge], offset: u32, length: u32) -> impl Iterator<Item = Span> + '_ {
    let (mut skip, mut left) = (offset, length);
    sges.iter().filter_map(move |sge| {
        if left == 0 {
            return None;
        }
        if skip >= sge.length {
            skip -= sge.length;
            return None;
        }
        let take = (sge.length - skip).min(left);
        let span = Span { addr: sge.addr + u64::from(skip), length: take };
        skip = 0;
        left -= take;
        Some(span)
    })
}

/// Writes `payload` into the list `sges`, starting `offset` bytes into it. The caller has checked that it fits.
///
/// # Errors
/// [`MemoryLost`].
#[inline]
pub fn scatter<P: Payload>(
    memory: &mut impl Memory<P>,
    sges: &SgeList,
    offset: u32,
    payload: P,
) -> Result<(), MemoryLost> {
    let list = sges.as_slice();
    if let [only] = list {
        return memory.place(only.addr + u64::from(offset), payload);
    }
    let mut from = 0;
    for span in spans(list, offset, payload.len()) {
        memory.place(span.addr, payload.slice(from, span.length))?;
        from += span.length;
    }
    debug_assert_eq!(from, payload.len(), "the caller checks that a payload fits");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LocalKey;

    fn sge(addr: u64, length: u32) -> Sge {
        Sge { addr, length, lkey: LocalKey(0) }
    }

    #[test]
    fn a_packet_gathers_across_span_borders() {
        let list = [sge(100, 3), sge(200, 0), sge(300, 5), sge(400, 4)];
        let check = |offset, length, expected: &[(u64, u32)]| {
            let got: Vec<_> =
                Gather::new(&list, offset, length).spans().map(|s| (s.addr, s.length)).collect();
            assert_eq!(got, expected);
        };
        check(0, 3, &[(100, 3)]);
        check(2, 5, &[(102, 1), (300, 4)]);
        check(3, 9, &[(300, 5), (400, 4)]);
        check(12, 0, &[]);
        assert_eq!(Gather::new(&list, 1, 2).single(), Some(Span { addr: 101, length: 2 }));
        assert_eq!(Gather::new(&list, 1, 3).single(), None);
    }

    #[test]
    fn a_payload_is_cut_where_it_is_told() {
        let bytes: &[u8] = &[10, 11, 12, 13, 14, 15];
        assert_eq!(Payload::slice(&bytes, 2, 3), &[12, 13, 14]);
        assert_eq!((Payload::len(&bytes), Payload::is_empty(&bytes)), (6, false));
        assert!(Payload::is_empty(&Payload::slice(&bytes, 6, 0)));
        assert_eq!(
            (Length(9).slice(2, 3), Length(9).is_empty(), Length(0).is_empty()),
            (Length(3), false, true)
        );
    }

    /// Takes note of where it is written to.
    struct Notes(Vec<(u64, Vec<u8>)>);

    impl Memory<&[u8]> for Notes {
        fn place(&mut self, addr: u64, payload: &[u8]) -> Result<(), MemoryLost> {
            self.0.push((addr, payload.to_vec()));
            if addr == 666 { Err(MemoryLost) } else { Ok(()) }
        }
        fn write(&mut self, addr: u64, bytes: &[u8]) -> Result<(), MemoryLost> {
            self.place(addr, bytes)
        }
        fn compare_swap(&mut self, _: u64, _: u64, _: u64) -> Result<u64, MemoryLost> {
            Err(MemoryLost)
        }
        fn fetch_add(&mut self, _: u64, _: u64) -> Result<u64, MemoryLost> {
            Err(MemoryLost)
        }
    }

    #[test]
    fn a_payload_is_scattered_in_order() {
        let check = |sges: &[Sge], offset, payload: &[u8], expected: &[(u64, &[u8])]| {
            let mut notes = Notes(Vec::new());
            let result = scatter(&mut notes, &SgeList::from(sges), offset, payload);
            let got: Vec<_> = notes.0.iter().map(|(addr, bytes)| (*addr, &bytes[..])).collect();
            assert_eq!(got, expected);
            result
        };
        let one = check(&[sge(100, 8)], 3, &[1, 2], &[(103, &[1, 2])]);
        let three = [sge(100, 3), sge(200, 2), sge(300, 4)];
        let many = check(&three, 2, &[1, 2, 3, 4], &[(102, &[1]), (200, &[2, 3]), (300, &[4])]);
        let lost = check(&[sge(100, 1), sge(666, 1), sge(1, 1)], 0, &[1, 2, 3], &[(100, &[1]), (666, &[2])]);
        assert_eq!((one, many, lost), (Ok(()), Ok(()), Err(MemoryLost)));
    }
}
