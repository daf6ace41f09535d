//! Packets as text: one line each.

use std::fmt;

use highwire_stdx::{Duration, Instant};

use crate::icrc::icrc_of_ip_packet;
use crate::{Ext, Frame, Headers, ICRC_LEN, IrnEth, IrnFlags, LinkType, ParseError, Reth, pcap};

/// A captured frame, for display: time, addresses, headers, payload length, whether the ICRC is right.
///
/// ```text
/// 12.3µs 10.77.0.2 > 10.77.0.3 RC_SEND_ONLY qpn 0x000011 psn 0x4a2b31 ackreq len 64 icrc ok
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Since the reader's origin, such as the first frame.
    pub time: Duration,
    /// The frame, or why the bytes are none.
    pub frame: Result<Frame<'a>, ParseError>,
    /// The ICRC computed from the frame's bytes, which its own should equal.
    pub icrc: u32,
    /// The frame's length in bytes.
    pub len: usize,
}

impl<'a> Line<'a> {
    /// Decodes one captured frame.
    pub fn new(origin: Instant, link: LinkType, record: &pcap::Record<'a>) -> Line<'a> {
        let bytes = record.bytes;
        let frame = Frame::parse(link, bytes);
        let icrc = frame.and_then(|frame| {
            let start = frame.ethernet.map_or(0, |ethernet| ethernet.encoded_len());
            icrc_of_ip_packet(&bytes[start..bytes.len() - frame.trailer.len() - ICRC_LEN])
        });
        Line { time: record.time.saturating_since(origin), frame, icrc: icrc.unwrap_or(0), len: bytes.len() }
    }

    /// Whether the frame is RoCEv2 and carries the right ICRC.
    pub fn is_sound(&self) -> bool {
        self.frame.is_ok_and(|frame| frame.icrc == self.icrc)
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ", std::time::Duration::from(self.time))?;
        match &self.frame {
            Err(error) => write!(f, "not RoCEv2: {error}, len {}", self.len),
            Ok(frame) => {
                write!(f, "{frame}")?;
                if frame.icrc == self.icrc {
                    f.write_str(" icrc ok")
                } else {
                    write!(f, " icrc {:#010x} should be {:#010x}", frame.icrc, self.icrc)
                }
            }
        }
    }
}

impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {} {}", self.ip.source(), self.ip.destination(), self.headers)?;
        if self.ip.is_congestion_marked() {
            f.write_str(" ce")?;
        }
        if self.headers.bth.opcode.info().has_payload {
            write!(f, " len {}", self.payload.len())?;
        }
        Ok(())
    }
}

impl fmt::Display for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bth = &self.bth;
        write!(f, "{} qpn {} psn {}", bth.opcode, bth.dest_qpn, bth.psn)?;
        for (set, name) in [
            (bth.solicited, " se"),
            (bth.mig_req, " migreq"),
            (bth.fecn, " fecn"),
            (bth.becn, " becn"),
            (bth.ack_request, " ackreq"),
        ] {
            if set {
                f.write_str(name)?;
            }
        }
        write!(f, "{}", self.ext)
    }
}

/// Each header with a space before it, so that a packet without any adds nothing.
impl fmt::Display for Ext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Ext::None | Ext::Cnp | Ext::IrnReadAck => Ok(()),
            Ext::Imm(imm) => write!(f, " imm {imm:#010x}"),
            Ext::Invalidate(rkey) => write!(f, " invalidate {rkey:#010x}"),
            Ext::Reth(reth) => write!(f, " {reth}"),
            Ext::RethImm(reth, imm) => write!(f, " {reth} imm {imm:#010x}"),
            Ext::Aeth(aeth) | Ext::IrnAck(aeth) => write!(f, " {} msn {}", aeth.syndrome, aeth.msn),
            Ext::AtomicAck(aeth, original) => {
                write!(f, " {} msn {} original {original:#x}", aeth.syndrome, aeth.msn)
            }
            Ext::Atomic(atomic) => write!(f, " {atomic}"),
            Ext::Deth(deth) => write!(f, " {deth}"),
            Ext::DethImm(deth, imm) => write!(f, " {deth} imm {imm:#010x}"),
            Ext::Xrc(srqn) => write!(f, " srq {srqn}"),
            Ext::XrcImm(srqn, imm) => write!(f, " srq {srqn} imm {imm:#010x}"),
            Ext::XrcInvalidate(srqn, rkey) => write!(f, " srq {srqn} invalidate {rkey:#010x}"),
            Ext::XrcReth(srqn, reth) => write!(f, " srq {srqn} {reth}"),
            Ext::XrcRethImm(srqn, reth, imm) => write!(f, " srq {srqn} {reth} imm {imm:#010x}"),
            Ext::XrcAtomic(srqn, atomic) => write!(f, " srq {srqn} {atomic}"),
            Ext::IrnSend(irn) => write!(f, " {irn}"),
            Ext::IrnSendImm(irn, imm) => write!(f, " {irn} imm {imm:#010x}"),
            Ext::IrnSendInvalidate(irn, rkey) => write!(f, " {irn} invalidate {rkey:#010x}"),
            Ext::IrnWrite(irn, reth) | Ext::IrnRead(irn, reth) => write!(f, " {irn} {reth}"),
            Ext::IrnWriteImm(irn, reth, imm) => write!(f, " {irn} {reth} imm {imm:#010x}"),
            Ext::IrnAtomic(irn, atomic) => write!(f, " {irn} {atomic}"),
            Ext::IrnReadResponse(irn, aeth) => write!(f, " {irn} {} msn {}", aeth.syndrome, aeth.msn),
            Ext::IrnAtomicResponse(irn, aeth, original) => {
                write!(f, " {irn} {} msn {} original {original:#x}", aeth.syndrome, aeth.msn)
            }
            Ext::IrnNack(aeth, sack) => write!(f, " {} msn {} {sack}", aeth.syndrome, aeth.msn),
            Ext::IrnReadNack(sack) => write!(f, " {sack}"),
            Ext::IrnSendAck(irn, aeth, psn) => {
                write!(f, " {irn} {} msn {} up to {psn}", aeth.syndrome, aeth.msn)
            }
            Ext::IrnWriteAck(irn, reth, aeth, psn) => {
                write!(f, " {irn} {reth} {} msn {} up to {psn}", aeth.syndrome, aeth.msn)
            }
        }
    }
}

impl fmt::Display for Reth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "va {:#x} rkey {:#010x} dmalen {}", self.va, self.rkey, self.length)
    }
}

impl fmt::Display for crate::AtomicEth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let crate::AtomicEth { va, rkey, swap_or_add, compare } = *self;
        write!(f, "va {va:#x} rkey {rkey:#010x} swap-or-add {swap_or_add:#x} compare {compare:#x}")
    }
}

impl fmt::Display for crate::Deth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "qkey {:#010x} from {}", self.qkey, self.source_qpn)
    }
}

impl fmt::Display for IrnEth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wqe {} offset {}", self.wqe_sn(), self.offset())?;
        for (flag, name) in [(IrnFlags::LAST, " last"), (IrnFlags::RETRANSMITTED, " again")] {
            if self.flags().has(flag) {
                f.write_str(name)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for crate::SackEth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sack {}", self.psn)?;
        if self.count > 1 { write!(f, " and {} before", self.count - 1) } else { Ok(()) }
    }
}
