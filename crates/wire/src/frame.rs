//! A whole RoCEv2 frame, from its link header to its ICRC.

use crate::icrc::icrc_of_ip_packet;
use crate::{
    Ethernet, HeaderName, Headers, ICRC_LEN, Ip, MAX_HEADERS_LEN, ParseError, ParseErrorKind, UDP_PORT, Udp,
    pad_count, parse_packet_with_icrc,
};

/// The first header of a captured frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkType {
    /// An Ethernet header.
    Ethernet,
    /// An IP header of either version.
    RawIp,
}

/// A RoCEv2 frame, its payload borrowed.
///
/// Lengths within the headers are computed when it is emitted, so callers need not fill them in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// The link header; none in a capture of bare IP packets.
    pub ethernet: Option<Ethernet>,
    /// The IP header.
    pub ip: Ip,
    /// The UDP header.
    pub udp: Udp,
    /// BTH and extension headers.
    pub headers: Headers,
    /// Payload without padding.
    pub payload: &'a [u8],
    /// Padding, as many bytes as the BTH says.
    pub padding: &'a [u8],
    /// The ICRC that the frame carries, right or wrong.
    pub icrc: u32,
    /// Bytes behind the IP packet, as Ethernet adds to short ones.
    pub trailer: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Reads a frame.
    ///
    /// # Errors
    /// The error of the first header that is malformed or does not lead to RoCEv2; the offset is into
    /// `bytes`.
    pub fn parse(link: LinkType, bytes: &'a [u8]) -> Result<Frame<'a>, ParseError> {
        let (ethernet, ip_start) = match link {
            LinkType::RawIp => (None, 0),
            LinkType::Ethernet => {
                let (ethernet, len) = Ethernet::parse(bytes)?;
                if !matches!(ethernet.ethertype, Ethernet::IPV4 | Ethernet::IPV6) {
                    return Err(ParseError::new(
                        HeaderName::Ethernet,
                        len - 2,
                        ParseErrorKind::OtherProtocol,
                    ));
                }
                (Some(ethernet), len)
            }
        };
        let (ip, ip_len) = Ip::parse(&bytes[ip_start..]).map_err(|e| e.shifted(ip_start))?;
        let udp_start = ip_start + ip_len;
        let Some((datagram, trailer)) = bytes[udp_start..].split_at_checked(usize::from(ip.payload_len()))
        else {
            return Err(ParseError::new(HeaderName::Udp, udp_start, ParseErrorKind::Truncated));
        };
        let Some((head, packet)) = datagram.split_first_chunk::<{ Udp::LEN }>() else {
            return Err(ParseError::new(HeaderName::Udp, udp_start, ParseErrorKind::Truncated));
        };
        let udp = Udp::parse(head).map_err(|e| e.shifted(udp_start))?;
        if usize::from(udp.length) != datagram.len() {
            return Err(ParseError::new(HeaderName::Udp, udp_start + 4, ParseErrorKind::BadLength));
        }
        if udp.destination_port != UDP_PORT {
            return Err(ParseError::new(HeaderName::Udp, udp_start + 2, ParseErrorKind::OtherProtocol));
        }
        let (headers, payload, icrc) =
            parse_packet_with_icrc(packet).map_err(|e| e.shifted(udp_start + Udp::LEN))?;
        let padding = payload.end..packet.len() - ICRC_LEN;
        Ok(Frame {
            ethernet,
            ip,
            udp,
            headers,
            payload: &packet[payload],
            padding: &packet[padding],
            icrc,
            trailer,
        })
    }

    /// A frame with the right padding, lengths and ICRC for `payload`.
    ///
    /// The BTH's pad count is set; the UDP checksum stays as given.
    #[must_use]
    pub fn sealed(mut self, payload: &'a [u8]) -> Frame<'a> {
        const ZEROS: [u8; 3] = [0; 3];
        self.headers.bth.pad_count = pad_count(payload.len());
        self.payload = payload;
        self.padding = &ZEROS[..usize::from(self.headers.bth.pad_count)];
        let mut bytes = Vec::new();
        let packet = self.emit_ip(&mut bytes);
        self.ip.set_payload_len((packet - self.ip.header_len()) as u16);
        self.udp.length = self.ip.payload_len();
        self.icrc =
            icrc_of_ip_packet(&bytes[..packet - ICRC_LEN]).expect("an emitted packet has all its headers");
        self
    }

    /// Appends the frame's bytes to `out`. A parsed frame is emitted as it was, except reserved bytes (crate
    /// docs).
    pub fn emit(&self, out: &mut Vec<u8>) {
        if let Some(ethernet) = &self.ethernet {
            ethernet.emit(out);
        }
        self.emit_ip(out);
        out.extend(self.trailer);
    }

    /// Appends the IP packet and returns its length.
    fn emit_ip(&self, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        let mut headers = [0; MAX_HEADERS_LEN];
        let headers_len = self.headers.emit(&mut headers);
        let headers = &headers[..headers_len];
        let body = headers.len() + self.payload.len() + self.padding.len();
        let length = (Udp::LEN + body + ICRC_LEN) as u16;
        let mut ip = self.ip;
        ip.set_payload_len(length);
        ip.emit(out);
        let mut udp = [0; Udp::LEN];
        Udp { length, ..self.udp }.emit(&mut udp);
        out.extend(udp);
        out.extend(headers);
        out.extend(self.payload);
        out.extend(self.padding);
        out.extend(self.icrc.to_le_bytes());
        out.len() - start
    }
}
