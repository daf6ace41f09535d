//! Work requests, which users post.

use crate::address::Address;
use crate::region::{LocalKey, RemoteKey, WindowBind};
use highwire_wire::Qpn;

/// A scatter/gather element: a run of registered local memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sge {
    /// The local address, as the region's key translates it.
    pub addr: u64,
    /// How many bytes.
    pub length: u32,
    /// The key that permits the access.
    pub lkey: LocalKey,
}

/// A short list of SGEs; up to two need no allocation.
#[derive(Clone, Debug)]
pub struct SgeList(Repr);

#[derive(Clone, Debug)]
enum Repr {
    Short(u8, [Sge; 2]),
    Long(Box<[Sge]>),
}

impl Default for SgeList {
    fn default() -> Self {
        SgeList(Repr::Short(0, [Sge::default(); 2]))
    }
}

impl From<&[Sge]> for SgeList {
    #[inline]
    fn from(sges: &[Sge]) -> SgeList {
        match *sges {
            [] => SgeList::default(),
            [a] => SgeList(Repr::Short(1, [a, Sge::default()])),
            [a, b] => SgeList(Repr::Short(2, [a, b])),
            _ => SgeList(Repr::Long(sges.into())),
        }
    }
}

impl SgeList {
    /// No elements.
    pub const EMPTY: SgeList = SgeList(Repr::Short(0, [Sge { addr: 0, length: 0, lkey: LocalKey(0) }; 2]));

    /// Replaces the elements in place: moving a list that was made elsewhere costs several times as much.
    #[inline]
    pub fn set(&mut self, sges: &[Sge]) {
        match (&mut self.0, sges) {
            (Repr::Short(n, _), []) => *n = 0,
            (Repr::Short(n, list), [a]) => (*n, list[0]) = (1, *a),
            (Repr::Short(n, list), [a, b]) => (*n, list[0], list[1]) = (2, *a, *b),
            _ => *self = SgeList::from(sges),
        }
    }

    /// The elements.
    #[inline]
    pub fn as_slice(&self) -> &[Sge] {
        match &self.0 {
            Repr::Short(n, sges) => &sges[..usize::from(*n).min(2)],
            Repr::Long(sges) => sges,
        }
    }

    /// The elements, to translate their addresses.
    #[inline]
    pub fn as_mut_slice(&mut self) -> &mut [Sge] {
        match &mut self.0 {
            Repr::Short(n, sges) => &mut sges[..usize::from(*n).min(2)],
            Repr::Long(sges) => sges,
        }
    }

    /// The sum of the lengths, in bytes.
    #[inline]
    pub fn total(&self) -> u64 {
        self.as_slice().iter().map(|s| u64::from(s.length)).sum()
    }
}

/// An address in a peer's memory, and the key to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Remote {
    /// The address, as the peer registered it.
    pub va: u64,
    /// The peer's key.
    pub rkey: RemoteKey,
}

/// The operation of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// A message into the peer's next receive buffer.
    Send,
    /// The same as `Send`, with 32 bits for the completion.
    SendImm(u32),
    /// The same as `Send`, and invalidates one of the peer's keys.
    SendInvalidate(RemoteKey),
    /// Into the peer's memory.
    Write(Remote),
    /// The same as `Write`, and consumes a receive to signal it, with 32 bits for its completion.
    WriteImm(Remote, u32),
    /// From the peer's memory.
    Read(Remote),
    /// 64-bit compare and swap in the peer's memory.
    CompareSwap {
        /// Where.
        remote: Remote,
        /// The value that the word must have.
        compare: u64,
        /// The new value of the word.
        swap: u64,
    },
    /// 64-bit fetch and add in the peer's memory.
    FetchAdd {
        /// Where.
        remote: Remote,
        /// The value to add.
        add: u64,
    },
    /// Invalidate a local key (a type 2 memory window).
    LocalInvalidate(RemoteKey),
    /// Bind a type 2 memory window.
    BindWindow(WindowBind),
}

impl Operation {
    /// Whether the responder answers with data (READ, atomics).
    pub const fn is_read_or_atomic(&self) -> bool {
        matches!(self, Operation::Read(_) | Operation::CompareSwap { .. } | Operation::FetchAdd { .. })
    }

    /// Whether the operation is an atomic.
    pub const fn is_atomic(&self) -> bool {
        matches!(self, Operation::CompareSwap { .. } | Operation::FetchAdd { .. })
    }

    /// Whether the operation consumes a receive of the peer.
    pub const fn consumes_receive(&self) -> bool {
        matches!(
            self,
            Operation::Send | Operation::SendImm(_) | Operation::SendInvalidate(_) | Operation::WriteImm(..)
        )
    }

    /// Whether the operation stays on this side.
    pub const fn is_local(&self) -> bool {
        matches!(self, Operation::LocalInvalidate(_) | Operation::BindWindow(_))
    }
}

/// How a send request is carried out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendFlags {
    /// The request completes visibly also on success.
    pub signaled: bool,
    /// Ask for an event at the peer.
    pub solicited: bool,
    /// Wait for all earlier READs and atomics.
    pub fence: bool,
    /// The spans are copies that the driver keeps with the work request; no key is needed.
    pub inline: bool,
}

impl SendFlags {
    /// Signaled and nothing else.
    pub const SIGNALED: SendFlags =
        SendFlags { signaled: true, solicited: false, fence: false, inline: false };
}

/// The destination of a datagram (UD), or the peer's shared receive queue for a request (XRC).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// The peer; of no meaning on XRC.
    pub address: Address,
    /// Its queue pair, or its shared receive queue.
    pub qpn: Qpn,
    /// Its Q_Key; with the high bit set, the QP's own is used instead (IBTA §10.2.5).
    pub qkey: u32,
}

impl Datagram {
    /// The destination of a request on XRC: the peer's shared receive queue with this number.
    pub fn to_shared_queue(srqn: Qpn) -> Datagram {
        Datagram { address: Address::default(), qpn: srqn, qkey: 0 }
    }
}

/// A request for a send queue.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// Given back in the completion.
    pub wr_id: u64,
    /// The operation.
    pub operation: Operation,
    /// How it is carried out.
    pub flags: SendFlags,
    /// The local memory, in order.
    pub sges: &'a [Sge],
    /// The destination, on UD and XRC.
    pub datagram: Option<Datagram>,
}

impl<'a> SendWr<'a> {
    /// A signaled request on a connected service.
    pub fn new(wr_id: u64, operation: Operation, sges: &'a [Sge]) -> SendWr<'a> {
        SendWr { wr_id, operation, flags: SendFlags::SIGNALED, sges, datagram: None }
    }
}

/// A request for a receive queue.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// Given back in the completion.
    pub wr_id: u64,
    /// The buffer, in order.
    pub sges: &'a [Sge],
}

/// Why a request was refused. Nothing of it was queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PostError {
    /// There is no such queue.
    NoSuchQueue,
    /// The queue pair's state does not take this kind of request (IBTA §10.3.1).
    WrongState,
    /// The queue is full.
    QueueFull,
    /// More SGEs than the queue was made for.
    TooManySges,
    /// Longer than the service carries (2^31 bytes; on UD one MTU, a frame one MTU and its header), or longer than the inline limit.
    TooLong,
    /// Shorter than a frame's header.
    TooShort,
    /// The service does not have this operation.
    Unsupported,
    /// An atomic on a result buffer that is not 8 bytes, or on a misaligned address.
    BadAtomic,
    /// A datagram or an XRC request without a destination, or a destination on another connected service.
    BadDestination,
    /// The queue belongs to the process that this one was forked from.
    Inherited,
    /// The calling thread is in the middle of a post to this very queue: it is a signal handler that posts.
    Reentered,
}

impl std::fmt::Display for PostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PostError::NoSuchQueue => "there is no such queue",
            PostError::WrongState => "the queue pair's state does not take this request",
            PostError::QueueFull => "the queue is full",
            PostError::TooManySges => "more scatter/gather elements than the queue was made for",
            PostError::TooLong => "the message is longer than the service carries",
            PostError::TooShort => "a frame has a header",
            PostError::Unsupported => "the service does not have this operation",
            PostError::BadAtomic => "an atomic needs 8 bytes at an aligned address",
            PostError::BadDestination => "a datagram needs a destination, a connection none",
            PostError::Inherited => "the queue belongs to the parent process",
            PostError::Reentered => "a signal handler may not post while its thread does",
        })
    }
}

impl std::error::Error for PostError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_any_length_keep_their_elements() {
        for n in 0..6u32 {
            let sges: Vec<_> =
                (0..n).map(|i| Sge { addr: u64::from(i), length: i + 1, lkey: LocalKey(i) }).collect();
            let list = SgeList::from(&sges[..]);
            assert_eq!(list.as_slice(), &sges[..]);
            assert_eq!(list.total(), u64::from(n * (n + 1) / 2));
            let mut set = SgeList::from(&[Sge::default(); 2][..]);
            set.set(&sges);
            assert_eq!(set.as_slice(), &sges[..]);
            set.as_mut_slice().iter_mut().for_each(|sge| sge.addr += 1);
            assert!(set.as_slice().iter().zip(&sges).all(|(now, before)| now.addr == before.addr + 1));
        }
    }

    #[test]
    fn operations_are_of_the_kinds_that_the_specification_names() {
        let (remote, key) = (Remote::default(), RemoteKey(7));
        let bind = WindowBind {
            window: key,
            new_key: key,
            region: LocalKey(1),
            va: 0,
            length: 0,
            access: crate::Access::NONE,
        };
        let check = |operation: Operation, expected: [bool; 4]| {
            let kinds = [
                operation.is_read_or_atomic(),
                operation.is_atomic(),
                operation.consumes_receive(),
                operation.is_local(),
            ];
            assert_eq!(kinds, expected, "{operation:?}");
        };
        let (message, one_sided, local) =
            ([false, false, true, false], [false; 4], [false, false, false, true]);
        check(Operation::Send, message);
        check(Operation::SendImm(1), message);
        check(Operation::SendInvalidate(key), message);
        check(Operation::WriteImm(remote, 1), message);
        check(Operation::Write(remote), one_sided);
        check(Operation::Read(remote), [true, false, false, false]);
        check(Operation::CompareSwap { remote, compare: 1, swap: 2 }, [true, true, false, false]);
        check(Operation::FetchAdd { remote, add: 1 }, [true, true, false, false]);
        check(Operation::LocalInvalidate(key), local);
        check(Operation::BindWindow(bind), local);
        assert_eq!(crate::MESSAGE_LENGTH_MAX, 0x8000_0000);
    }

    #[test]
    fn each_refusal_has_words_of_its_own() {
        use PostError::*;
        let all = [
            NoSuchQueue,
            WrongState,
            QueueFull,
            TooManySges,
            TooLong,
            TooShort,
            Unsupported,
            BadAtomic,
            BadDestination,
            Inherited,
            Reentered,
        ];
        let texts: std::collections::BTreeSet<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), all.len());
        assert!(texts.iter().all(|text| text.len() > 10), "{texts:?}");
    }
}
