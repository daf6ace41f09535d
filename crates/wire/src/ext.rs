//! The extension headers of a packet as one value: exactly those that its opcode calls for.

use crate::{
    Aeth, AtomicEth, Deth, HeaderName, IrnEth, Layout, ParseError, ParseErrorKind, Psn, Qpn, Reth, SackEth,
};
use crate::{CNP_RESERVED_LEN, atomic_eth, ieth, immdt, irn_eth::cumulative, xrceth};

/// Extension headers. The variant must be the one that [`OpcodeInfo::layout`](crate::OpcodeInfo) names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ext {
    /// No extension header.
    None,
    /// Immediate data.
    Imm(u32),
    /// The remote key to invalidate.
    Invalidate(u32),
    /// WRITE or READ.
    Reth(Reth),
    /// WRITE with immediate data.
    RethImm(Reth, u32),
    /// Acknowledgement, or first, last or only READ response.
    Aeth(Aeth),
    /// Answer to an atomic with the original value.
    AtomicAck(Aeth, u64),
    /// Atomic request.
    Atomic(AtomicEth),
    /// Datagram.
    Deth(Deth),
    /// Datagram with immediate data.
    DethImm(Deth, u32),
    /// Congestion notification: sixteen reserved bytes.
    Cnp,
    /// XRC: the shared receive queue alone, in SEND and WRITE.
    Xrc(Qpn),
    /// XRC with immediate data.
    XrcImm(Qpn, u32),
    /// XRC SEND with the remote key to invalidate.
    XrcInvalidate(Qpn, u32),
    /// XRC WRITE or READ.
    XrcReth(Qpn, Reth),
    /// XRC WRITE with immediate data.
    XrcRethImm(Qpn, Reth, u32),
    /// XRC atomic request.
    XrcAtomic(Qpn, AtomicEth),
    /// IRN SEND.
    IrnSend(IrnEth),
    /// IRN SEND with immediate data.
    IrnSendImm(IrnEth, u32),
    /// IRN SEND with the remote key to invalidate.
    IrnSendInvalidate(IrnEth, u32),
    /// IRN WRITE; the RETH is the message's.
    IrnWrite(IrnEth, Reth),
    /// IRN WRITE with immediate data.
    IrnWriteImm(IrnEth, Reth, u32),
    /// IRN READ request.
    IrnRead(IrnEth, Reth),
    /// IRN atomic request.
    IrnAtomic(IrnEth, AtomicEth),
    /// IRN READ response.
    IrnReadResponse(IrnEth, Aeth),
    /// IRN answer to an atomic with the original value.
    IrnAtomicResponse(IrnEth, Aeth, u64),
    /// IRN acknowledgement of everything before the BTH's PSN, or RNR or error NAK.
    IrnAck(Aeth),
    /// IRN acknowledgement of everything before the BTH's PSN and of a run beyond it.
    IrnNack(Aeth, SackEth),
    /// IRN acknowledgement of every response before the BTH's PSN.
    IrnReadAck,
    /// IRN acknowledgement of every response before the BTH's PSN and of a run beyond it.
    IrnReadNack(SackEth),
    /// IRN SEND with an acknowledgement of everything before the named PSN of the other direction.
    IrnSendAck(IrnEth, Aeth, Psn),
    /// IRN WRITE with such an acknowledgement.
    IrnWriteAck(IrnEth, Reth, Aeth, Psn),
}

/// Takes headers off the front of a packet and knows its position.
struct Reader<'a> {
    rest: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    #[inline]
    fn take<const N: usize>(&mut self, header: HeaderName) -> Result<&'a [u8; N], ParseError> {
        let Some((head, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(ParseError::new(header, self.offset, ParseErrorKind::Truncated));
        };
        self.rest = rest;
        self.offset += N;
        Ok(head)
    }

    #[inline]
    fn imm(&mut self) -> Result<u32, ParseError> {
        Ok(immdt::parse(self.take(HeaderName::ImmDt)?))
    }

    #[inline]
    fn ieth(&mut self) -> Result<u32, ParseError> {
        Ok(ieth::parse(self.take(HeaderName::Ieth)?))
    }

    #[inline]
    fn reth(&mut self) -> Result<Reth, ParseError> {
        Ok(Reth::parse(self.take(HeaderName::Reth)?))
    }

    #[inline]
    fn aeth(&mut self) -> Result<Aeth, ParseError> {
        let base = self.offset;
        Aeth::parse(self.take(HeaderName::Aeth)?).map_err(|e| e.shifted(base))
    }

    #[inline]
    fn original(&mut self) -> Result<u64, ParseError> {
        Ok(atomic_eth::ack::parse(self.take(HeaderName::AtomicAckEth)?))
    }

    #[inline]
    fn atomic(&mut self) -> Result<AtomicEth, ParseError> {
        Ok(AtomicEth::parse(self.take(HeaderName::AtomicEth)?))
    }

    #[inline]
    fn deth(&mut self) -> Result<Deth, ParseError> {
        Ok(Deth::parse(self.take(HeaderName::Deth)?))
    }

    #[inline]
    fn xrc(&mut self) -> Result<Qpn, ParseError> {
        Ok(xrceth::parse(self.take(HeaderName::XrcEth)?))
    }

    #[inline]
    fn irn(&mut self) -> Result<IrnEth, ParseError> {
        let base = self.offset;
        IrnEth::parse(self.take(HeaderName::IrnEth)?).map_err(|e| e.shifted(base))
    }

    #[inline]
    fn cumulative(&mut self) -> Result<Psn, ParseError> {
        let base = self.offset;
        cumulative::parse(self.take(HeaderName::CumulativeEth)?).map_err(|e| e.shifted(base))
    }

    #[inline]
    fn sack(&mut self) -> Result<SackEth, ParseError> {
        let base = self.offset;
        SackEth::parse(self.take(HeaderName::SackEth)?).map_err(|e| e.shifted(base))
    }
}

impl Ext {
    /// Reads the headers that `layout` names from the front of `bytes`, which begin `base` bytes into the packet.
    ///
    /// # Errors
    /// The bytes end too early, or a header has a forbidden value.
    #[inline(always)]
    pub fn parse(layout: Layout, bytes: &[u8], base: usize) -> Result<Ext, ParseError> {
        let mut r = Reader { rest: bytes, offset: base };
        // Operands of a tuple variant are read from left to right, which is their order on the wire.
        Ok(match layout {
            Layout::None => Ext::None,
            Layout::Imm => Ext::Imm(r.imm()?),
            Layout::Invalidate => Ext::Invalidate(r.ieth()?),
            Layout::Reth => Ext::Reth(r.reth()?),
            Layout::RethImm => Ext::RethImm(r.reth()?, r.imm()?),
            Layout::Aeth => Ext::Aeth(r.aeth()?),
            Layout::AtomicAck => Ext::AtomicAck(r.aeth()?, r.original()?),
            Layout::Atomic => Ext::Atomic(r.atomic()?),
            Layout::Deth => Ext::Deth(r.deth()?),
            Layout::DethImm => Ext::DethImm(r.deth()?, r.imm()?),
            Layout::Cnp => {
                r.take::<CNP_RESERVED_LEN>(HeaderName::Cnp)?;
                Ext::Cnp
            }
            Layout::Xrc => Ext::Xrc(r.xrc()?),
            Layout::XrcImm => Ext::XrcImm(r.xrc()?, r.imm()?),
            Layout::XrcInvalidate => Ext::XrcInvalidate(r.xrc()?, r.ieth()?),
            Layout::XrcReth => Ext::XrcReth(r.xrc()?, r.reth()?),
            Layout::XrcRethImm => Ext::XrcRethImm(r.xrc()?, r.reth()?, r.imm()?),
            Layout::XrcAtomic => Ext::XrcAtomic(r.xrc()?, r.atomic()?),
            Layout::IrnSend => Ext::IrnSend(r.irn()?),
            Layout::IrnSendImm => Ext::IrnSendImm(r.irn()?, r.imm()?),
            Layout::IrnSendInvalidate => Ext::IrnSendInvalidate(r.irn()?, r.ieth()?),
            Layout::IrnWrite => Ext::IrnWrite(r.irn()?, r.reth()?),
            Layout::IrnWriteImm => Ext::IrnWriteImm(r.irn()?, r.reth()?, r.imm()?),
            Layout::IrnRead => Ext::IrnRead(r.irn()?, r.reth()?),
            Layout::IrnAtomic => Ext::IrnAtomic(r.irn()?, r.atomic()?),
            Layout::IrnReadResponse => Ext::IrnReadResponse(r.irn()?, r.aeth()?),
            Layout::IrnAtomicResponse => Ext::IrnAtomicResponse(r.irn()?, r.aeth()?, r.original()?),
            Layout::IrnAck => Ext::IrnAck(r.aeth()?),
            Layout::IrnNack => Ext::IrnNack(r.aeth()?, r.sack()?),
            Layout::IrnReadAck => Ext::IrnReadAck,
            Layout::IrnReadNack => Ext::IrnReadNack(r.sack()?),
            Layout::IrnSendAck => Ext::IrnSendAck(r.irn()?, r.aeth()?, r.cumulative()?),
            Layout::IrnWriteAck => Ext::IrnWriteAck(r.irn()?, r.reth()?, r.aeth()?, r.cumulative()?),
        })
    }

    /// Writes the headers to the front of `out` and returns their length.
    ///
    /// # Panics
    /// If `out` is shorter than [`Ext::encoded_len`].
    #[inline]
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut w = Writer { rest: out };
        match *self {
            Ext::None | Ext::IrnReadAck => {}
            Ext::Imm(imm) => immdt::emit(imm, w.next()),
            Ext::Invalidate(rkey) => ieth::emit(rkey, w.next()),
            Ext::Reth(reth) => reth.emit(w.next()),
            Ext::RethImm(reth, imm) => {
                reth.emit(w.next());
                immdt::emit(imm, w.next());
            }
            Ext::Aeth(aeth) | Ext::IrnAck(aeth) => aeth.emit(w.next()),
            Ext::AtomicAck(aeth, original) => {
                aeth.emit(w.next());
                atomic_eth::ack::emit(original, w.next());
            }
            Ext::Atomic(atomic) => atomic.emit(w.next()),
            Ext::Deth(deth) => deth.emit(w.next()),
            Ext::DethImm(deth, imm) => {
                deth.emit(w.next());
                immdt::emit(imm, w.next());
            }
            Ext::Cnp => *w.next() = [0; CNP_RESERVED_LEN],
            Ext::Xrc(srqn) => xrceth::emit(srqn, w.next()),
            Ext::XrcImm(srqn, imm) => {
                xrceth::emit(srqn, w.next());
                immdt::emit(imm, w.next());
            }
            Ext::XrcInvalidate(srqn, rkey) => {
                xrceth::emit(srqn, w.next());
                ieth::emit(rkey, w.next());
            }
            Ext::XrcReth(srqn, reth) => {
                xrceth::emit(srqn, w.next());
                reth.emit(w.next());
            }
            Ext::XrcRethImm(srqn, reth, imm) => {
                xrceth::emit(srqn, w.next());
                reth.emit(w.next());
                immdt::emit(imm, w.next());
            }
            Ext::XrcAtomic(srqn, atomic) => {
                xrceth::emit(srqn, w.next());
                atomic.emit(w.next());
            }
            Ext::IrnSend(irn) => irn.emit(w.next()),
            Ext::IrnSendImm(irn, imm) => {
                irn.emit(w.next());
                immdt::emit(imm, w.next());
            }
            Ext::IrnSendInvalidate(irn, rkey) => {
                irn.emit(w.next());
                ieth::emit(rkey, w.next());
            }
            Ext::IrnWrite(irn, reth) | Ext::IrnRead(irn, reth) => {
                irn.emit(w.next());
                reth.emit(w.next());
            }
            Ext::IrnWriteImm(irn, reth, imm) => {
                irn.emit(w.next());
                reth.emit(w.next());
                immdt::emit(imm, w.next());
            }
            Ext::IrnAtomic(irn, atomic) => {
                irn.emit(w.next());
                atomic.emit(w.next());
            }
            Ext::IrnReadResponse(irn, aeth) => {
                irn.emit(w.next());
                aeth.emit(w.next());
            }
            Ext::IrnAtomicResponse(irn, aeth, original) => {
                irn.emit(w.next());
                aeth.emit(w.next());
                atomic_eth::ack::emit(original, w.next());
            }
            Ext::IrnNack(aeth, sack) => {
                aeth.emit(w.next());
                sack.emit(w.next());
            }
            Ext::IrnReadNack(sack) => sack.emit(w.next()),
            Ext::IrnSendAck(irn, aeth, psn) => {
                irn.emit(w.next());
                aeth.emit(w.next());
                cumulative::emit(psn, w.next());
            }
            Ext::IrnWriteAck(irn, reth, aeth, psn) => {
                irn.emit(w.next());
                reth.emit(w.next());
                aeth.emit(w.next());
                cumulative::emit(psn, w.next());
            }
        }
        self.encoded_len()
    }

    /// The acknowledgement that rides on a request, of everything before the PSN.
    #[inline]
    pub const fn riding_ack(&self) -> Option<(Aeth, Psn)> {
        match *self {
            Ext::IrnSendAck(_, aeth, psn) | Ext::IrnWriteAck(_, _, aeth, psn) => Some((aeth, psn)),
            _ => None,
        }
    }

    /// Length of the headers in bytes.
    #[inline]
    pub const fn encoded_len(&self) -> usize {
        self.layout().len()
    }

    /// The layout that this is an instance of.
    #[inline]
    pub const fn layout(&self) -> Layout {
        match self {
            Ext::None => Layout::None,
            Ext::Imm(..) => Layout::Imm,
            Ext::Invalidate(..) => Layout::Invalidate,
            Ext::Reth(..) => Layout::Reth,
            Ext::RethImm(..) => Layout::RethImm,
            Ext::Aeth(..) => Layout::Aeth,
            Ext::AtomicAck(..) => Layout::AtomicAck,
            Ext::Atomic(..) => Layout::Atomic,
            Ext::Deth(..) => Layout::Deth,
            Ext::DethImm(..) => Layout::DethImm,
            Ext::Cnp => Layout::Cnp,
            Ext::Xrc(..) => Layout::Xrc,
            Ext::XrcImm(..) => Layout::XrcImm,
            Ext::XrcInvalidate(..) => Layout::XrcInvalidate,
            Ext::XrcReth(..) => Layout::XrcReth,
            Ext::XrcRethImm(..) => Layout::XrcRethImm,
            Ext::XrcAtomic(..) => Layout::XrcAtomic,
            Ext::IrnSend(..) => Layout::IrnSend,
            Ext::IrnSendImm(..) => Layout::IrnSendImm,
            Ext::IrnSendInvalidate(..) => Layout::IrnSendInvalidate,
            Ext::IrnWrite(..) => Layout::IrnWrite,
            Ext::IrnWriteImm(..) => Layout::IrnWriteImm,
            Ext::IrnRead(..) => Layout::IrnRead,
            Ext::IrnAtomic(..) => Layout::IrnAtomic,
            Ext::IrnReadResponse(..) => Layout::IrnReadResponse,
            Ext::IrnAtomicResponse(..) => Layout::IrnAtomicResponse,
            Ext::IrnAck(..) => Layout::IrnAck,
            Ext::IrnNack(..) => Layout::IrnNack,
            Ext::IrnReadAck => Layout::IrnReadAck,
            Ext::IrnReadNack(..) => Layout::IrnReadNack,
            Ext::IrnSendAck(..) => Layout::IrnSendAck,
            Ext::IrnWriteAck(..) => Layout::IrnWriteAck,
        }
    }
}

/// Hands out the places of consecutive headers.
struct Writer<'a> {
    rest: &'a mut [u8],
}

impl<'a> Writer<'a> {
    #[inline]
    fn next<const N: usize>(&mut self) -> &'a mut [u8; N] {
        let (head, rest) = std::mem::take(&mut self.rest)
            .split_first_chunk_mut::<N>()
            .expect("the caller's buffer holds the encoded length");
        self.rest = rest;
        head
    }
}
