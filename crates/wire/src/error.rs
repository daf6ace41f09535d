//! Why bytes are not a packet.

use std::fmt;

/// A malformed packet or capture: its receiver counts and drops it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseError {
    /// The header in which parsing stopped.
    pub header: HeaderName,
    /// The offset of that header's offending field, in bytes from the start of the parsed bytes.
    pub offset: usize,
    /// The error in that field.
    pub kind: ParseErrorKind,
}

/// The error in a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ParseErrorKind {
    /// The bytes end before the header does.
    Truncated,
    /// A length field contradicts the number of bytes.
    BadLength,
    /// An opcode that neither IBTA nor Highwire defines.
    UnknownOpcode,
    /// A version other than the one this crate speaks.
    BadVersion,
    /// Reserved bits are set in a header of Highwire's own.
    ReservedBits,
    /// An AETH syndrome outside IBTA §9.7.5.2.
    UnknownSyndrome,
    /// A field holds a value that its header forbids.
    BadValue,
    /// The pad count does not fit the payload.
    BadPad,
    /// Payload follows an opcode that has none.
    UnexpectedPayload,
    /// The next protocol is not on the way to RoCEv2.
    OtherProtocol,
    /// A header checksum does not match.
    BadChecksum,
    /// An IP fragment; RoCEv2 is never fragmented.
    Fragment,
}

/// The headers of this crate, for messages and counters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HeaderName {
    /// Ethernet II, with or without VLAN tags.
    Ethernet,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// UDP.
    Udp,
    /// Base transport header.
    Bth,
    /// RDMA extended transport header.
    Reth,
    /// Acknowledge extended transport header.
    Aeth,
    /// Atomic extended transport header.
    AtomicEth,
    /// Atomic acknowledge extended transport header.
    AtomicAckEth,
    /// Datagram extended transport header.
    Deth,
    /// Immediate data.
    ImmDt,
    /// Invalidate extended transport header.
    Ieth,
    /// Congestion notification packet.
    Cnp,
    /// XRC's extended transport header.
    XrcEth,
    /// Highwire's IRN header.
    IrnEth,
    /// Highwire's selective acknowledgement.
    SackEth,
    /// Highwire's cumulative acknowledgement that rides on a request.
    CumulativeEth,
    /// A management datagram: its common header and its message.
    Mad,
    /// The payload and its padding.
    Payload,
    /// The invariant CRC.
    Icrc,
    /// A capture file or one of its records.
    Pcap,
}

impl ParseError {
    #[inline]
    pub(crate) fn new(header: HeaderName, offset: usize, kind: ParseErrorKind) -> ParseError {
        ParseError { header, offset, kind }
    }

    /// The same error, with an offset from a place `base` bytes before.
    #[inline]
    pub(crate) fn shifted(self, base: usize) -> ParseError {
        ParseError { offset: self.offset + base, ..self }
    }
}

impl HeaderName {
    /// The name as the specifications spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            HeaderName::Ethernet => "Ethernet",
            HeaderName::Ipv4 => "IPv4",
            HeaderName::Ipv6 => "IPv6",
            HeaderName::Udp => "UDP",
            HeaderName::Bth => "BTH",
            HeaderName::Reth => "RETH",
            HeaderName::Aeth => "AETH",
            HeaderName::AtomicEth => "AtomicETH",
            HeaderName::AtomicAckEth => "AtomicAckETH",
            HeaderName::Deth => "DETH",
            HeaderName::ImmDt => "ImmDt",
            HeaderName::Ieth => "IETH",
            HeaderName::Cnp => "CNP",
            HeaderName::XrcEth => "XRCETH",
            HeaderName::IrnEth => "IrnETH",
            HeaderName::SackEth => "SackETH",
            HeaderName::CumulativeEth => "CumulativeETH",
            HeaderName::Mad => "MAD",
            HeaderName::Payload => "payload",
            HeaderName::Icrc => "ICRC",
            HeaderName::Pcap => "pcap",
        }
    }
}

impl ParseErrorKind {
    /// The kind in words.
    pub fn as_str(self) -> &'static str {
        match self {
            ParseErrorKind::Truncated => "truncated",
            ParseErrorKind::BadLength => "length field contradicts the bytes",
            ParseErrorKind::UnknownOpcode => "unknown opcode",
            ParseErrorKind::BadVersion => "unknown version",
            ParseErrorKind::ReservedBits => "reserved bits set",
            ParseErrorKind::UnknownSyndrome => "unknown syndrome",
            ParseErrorKind::BadValue => "forbidden value",
            ParseErrorKind::BadPad => "pad count does not fit the payload",
            ParseErrorKind::UnexpectedPayload => "payload where the opcode has none",
            ParseErrorKind::OtherProtocol => "not on the way to RoCEv2",
            ParseErrorKind::BadChecksum => "wrong checksum",
            ParseErrorKind::Fragment => "IP fragment",
        }
    }
}

impl fmt::Display for HeaderName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}: {}", self.header, self.offset, self.kind.as_str())
    }
}

impl std::error::Error for ParseError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_header_its_place_and_its_kind() {
        let error = ParseError::new(HeaderName::AtomicEth, 12, ParseErrorKind::BadPad).shifted(30);
        assert_eq!(error.to_string(), "AtomicETH at byte 42: pad count does not fit the payload");
        assert_eq!(HeaderName::Icrc.to_string(), "ICRC");
    }
}
