//! XRC: the extended transport header that names a shared receive queue, and the conversion from and to RC
//! (IBTA A14).
//!
//! XRC's packets are RC's with other opcodes; its requests carry this header in front of RC's. So an
//! implementation of RC needs only one step more on the way in and on the way out to speak XRC.

use crate::{Bth, Ext, Headers, Opcode, Operation, Qpn, Service, bytes};

/// Length on the wire.
pub(crate) const LEN: usize = 4;

/// The bits that distinguish XRC's opcodes from RC's.
const XRC_BITS: u8 = 0xA0;

/// Reads the header. The reserved byte is ignored.
#[inline]
pub(crate) fn parse(b: &[u8; LEN]) -> Qpn {
    Qpn::new(bytes::u24(b, 1))
}

/// Writes the header.
#[inline]
pub(crate) fn emit(srqn: Qpn, b: &mut [u8; LEN]) {
    *b = srqn.value().to_be_bytes();
}

impl Headers {
    /// Turns RC's headers into XRC's; `srqn` is the shared receive queue to which a request goes. Other
    /// headers stay as they are.
    pub fn to_xrc(&self, srqn: Qpn) -> Headers {
        let info = self.bth.opcode.info();
        let is_standard_rc = info.service == Some(Service::Rc) && self.bth.opcode.is_standard();
        let Some(opcode) = Opcode::from_u8(self.bth.opcode.to_u8() | XRC_BITS).filter(|_| is_standard_rc)
        else {
            return *self;
        };
        let ext = match self.ext {
            Ext::None if is_request(info.operation) => Ext::Xrc(srqn),
            Ext::Imm(imm) => Ext::XrcImm(srqn, imm),
            Ext::Invalidate(rkey) => Ext::XrcInvalidate(srqn, rkey),
            Ext::Reth(reth) => Ext::XrcReth(srqn, reth),
            Ext::RethImm(reth, imm) => Ext::XrcRethImm(srqn, reth, imm),
            Ext::Atomic(atomic) => Ext::XrcAtomic(srqn, atomic),
            other => other,
        };
        Headers { bth: Bth { opcode, ..self.bth }, ext }
    }

    /// Turns XRC's headers into RC's, and returns the shared receive queue to which a request goes; `None` if
    /// they are not XRC's.
    pub fn from_xrc(&self) -> Option<(Headers, Option<Qpn>)> {
        let is_xrc = self.bth.opcode.info().service == Some(Service::Xrc);
        let opcode = Opcode::from_u8(self.bth.opcode.to_u8() & !XRC_BITS).filter(|_| is_xrc)?;
        let (ext, srqn) = match self.ext {
            Ext::Xrc(srqn) => (Ext::None, Some(srqn)),
            Ext::XrcImm(srqn, imm) => (Ext::Imm(imm), Some(srqn)),
            Ext::XrcInvalidate(srqn, rkey) => (Ext::Invalidate(rkey), Some(srqn)),
            Ext::XrcReth(srqn, reth) => (Ext::Reth(reth), Some(srqn)),
            Ext::XrcRethImm(srqn, reth, imm) => (Ext::RethImm(reth, imm), Some(srqn)),
            Ext::XrcAtomic(srqn, atomic) => (Ext::Atomic(atomic), Some(srqn)),
            other => (other, None),
        };
        Some((Headers { bth: Bth { opcode, ..self.bth }, ext }, srqn))
    }
}

fn is_request(operation: Operation) -> bool {
    use Operation::{CompareSwap, FetchAdd, Read, Send, Write};
    matches!(operation, Send | Write | Read | CompareSwap | FetchAdd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Layout, Psn};

    #[test]
    fn every_packet_of_rc_has_its_counterpart() {
        let srqn = Qpn::new(0x12_3456);
        for &opcode in Opcode::ALL {
            let layout = opcode.info().layout;
            let bytes = [0; 64];
            let Ok(ext) = Ext::parse(layout, &bytes, 0) else { continue };
            let headers = Headers { bth: Bth::new(opcode, Qpn::new(7), Psn::new(8)), ext };
            let xrc = headers.to_xrc(srqn);
            if opcode.info().service == Some(Service::Rc) && opcode.is_standard() {
                assert_eq!(xrc.bth.opcode.info().layout, xrc.ext.layout(), "{opcode}");
                assert_eq!(xrc.bth.opcode.to_u8(), opcode.to_u8() | 0xA0);
                let asks = is_request(opcode.info().operation);
                assert_eq!(xrc.from_xrc(), Some((headers, asks.then_some(srqn))), "{opcode}");
                assert_eq!(layout.len() + usize::from(asks) * LEN, xrc.ext.encoded_len());
            } else {
                assert_eq!(xrc, headers);
            }
        }
        assert_eq!(Layout::Xrc.len(), LEN);
    }
}
