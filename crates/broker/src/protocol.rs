//! The protocol between client and broker: one record per request, one per answer.
//!
//! A record is a byte that tells its kind, then its fields, little-endian and without padding; addresses take
//! 16 bytes, IPv4 mapped into IPv6. Both ends belong to one user and one release: a broker of another version
//! refuses.

use std::net::{IpAddr, Ipv6Addr};

/// Sent with the first record; both ends must agree.
pub(super) const VERSION: u32 = 3;
/// The longest record.
pub(super) const RECORD_BYTES_MAX: usize = 4096;

/// A management datagram (IBTA §13.4.2).
pub type Mad = [u8; highwire_wire::cm::MAD_LEN];

/// Service ids that agree with `id` in the bits of `mask`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServiceIds {
    /// The required value of the masked bits.
    pub id: u64,
    /// The bits that count.
    pub mask: u64,
}

impl ServiceIds {
    /// One service id and no other.
    pub const fn one(id: u64) -> ServiceIds {
        ServiceIds { id, mask: u64::MAX }
    }

    /// Whether `id` is among them.
    pub const fn contains(self, id: u64) -> bool {
        (self.id ^ id) & self.mask == 0
    }

    /// Whether some service id is in both.
    pub const fn overlaps(self, other: ServiceIds) -> bool {
        (self.id ^ other.id) & self.mask & other.mask == 0
    }
}

/// A port space of the connection manager, as bits 16 to 31 of its service ids spell it (IBTA A11.2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct PortSpace(pub u16);

impl PortSpace {
    /// IP over InfiniBand.
    pub const IPOIB: PortSpace = PortSpace(0x0002);
    /// Reliable connections.
    pub const TCP: PortSpace = PortSpace(0x0106);
    /// Datagrams.
    pub const UDP: PortSpace = PortSpace(0x0111);
    /// Native InfiniBand.
    pub const IB: PortSpace = PortSpace(0x013F);
}

/// A request of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Request {
    /// Asks for a shard.
    Join { version: u32 },
    /// Keeps a shard that a former broker gave; the far end of the client's socket for datagrams comes along.
    Rejoin { version: u32, shard: u8 },
    /// Asks for the requests to these services.
    Listen(ServiceIds),
    /// Revokes `Listen`.
    Unlisten(ServiceIds),
    /// Asks for a port, with 0 for any.
    Bind { space: PortSpace, port: u16 },
    /// Gives a port back.
    Release { space: PortSpace, port: u16 },
    /// Leaves a datagram that the broker sends to a peer when the client ends.
    LeaveLastMessage { id: u32, to: IpAddr, mad: Box<Mad> },
    /// Revokes `LeaveLastMessage`.
    RevokeLastMessage { id: u32 },
    /// Asks which processes share the address. Any process of the user may ask.
    Status,
    /// Asks for the socket on which a shard receives packets, to see how full it is. Any process of the user
    /// may ask.
    Socket { shard: u8 },
}

/// The broker's answer.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Reply {
    /// The request succeeded.
    Done,
    /// The client's shard; the descriptors come along.
    Shard(u8),
    /// The port that was bound.
    Port(u16),
    /// The shards and their processes.
    Sharers(Vec<(u8, u32)>),
    /// Another client has it.
    InUse,
    /// None is left.
    Full,
    /// The broker is of another release.
    NotUnderstood,
    /// The broker got an error from the system.
    Failed(i32),
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Request::Join { version } => record(1, &[&version.to_le_bytes()]),
            Request::Listen(services) => record(2, &[&service_bytes(services)]),
            Request::Unlisten(services) => record(3, &[&service_bytes(services)]),
            Request::Bind { space, port } => record(4, &[&space.0.to_le_bytes(), &port.to_le_bytes()]),
            Request::Release { space, port } => record(5, &[&space.0.to_le_bytes(), &port.to_le_bytes()]),
            Request::LeaveLastMessage { id, to, mad } => {
                record(6, &[&id.to_le_bytes(), &ip_bytes(*to), mad.as_slice()])
            }
            Request::RevokeLastMessage { id } => record(7, &[&id.to_le_bytes()]),
            Request::Status => record(8, &[]),
            Request::Socket { shard } => record(9, &[&[*shard]]),
            Request::Rejoin { version, shard } => record(10, &[&version.to_le_bytes(), &[*shard]]),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Request> {
        let mut fields = Fields(bytes);
        let request = match fields.take::<1>()? {
            [1] => Request::Join { version: fields.u32()? },
            [2] => Request::Listen(fields.services()?),
            [3] => Request::Unlisten(fields.services()?),
            [4] => Request::Bind { space: PortSpace(fields.u16()?), port: fields.u16()? },
            [5] => Request::Release { space: PortSpace(fields.u16()?), port: fields.u16()? },
            [6] => Request::LeaveLastMessage {
                id: fields.u32()?,
                to: fields.ip()?,
                mad: Box::new(fields.take::<256>()?),
            },
            [7] => Request::RevokeLastMessage { id: fields.u32()? },
            [8] => Request::Status,
            [9] => Request::Socket { shard: fields.take::<1>()?[0] },
            [10] => Request::Rejoin { version: fields.u32()?, shard: fields.take::<1>()?[0] },
            _ => return None,
        };
        fields.0.is_empty().then_some(request)
    }
}

impl Reply {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Reply::Done => record(1, &[]),
            Reply::Shard(shard) => record(2, &[&[*shard]]),
            Reply::Port(port) => record(3, &[&port.to_le_bytes()]),
            Reply::Sharers(sharers) => {
                let mut bytes = record(4, &[]);
                for (shard, pid) in sharers {
                    bytes.push(*shard);
                    bytes.extend_from_slice(&pid.to_le_bytes());
                }
                bytes
            }
            Reply::InUse => record(5, &[]),
            Reply::Full => record(6, &[]),
            Reply::NotUnderstood => record(7, &[]),
            Reply::Failed(errno) => record(8, &[&errno.to_le_bytes()]),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Reply> {
        let mut fields = Fields(bytes);
        let reply = match fields.take::<1>()? {
            [1] => Reply::Done,
            [2] => Reply::Shard(fields.take::<1>()?[0]),
            [3] => Reply::Port(fields.u16()?),
            [4] => {
                let mut sharers = Vec::new();
                while !fields.0.is_empty() {
                    sharers.push((fields.take::<1>()?[0], fields.u32()?));
                }
                Reply::Sharers(sharers)
            }
            [5] => Reply::InUse,
            [6] => Reply::Full,
            [7] => Reply::NotUnderstood,
            [8] => Reply::Failed(fields.u32()? as i32),
            _ => return None,
        };
        fields.0.is_empty().then_some(reply)
    }
}

fn record(kind: u8, fields: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![kind];
    fields.iter().for_each(|field| bytes.extend_from_slice(field));
    bytes
}

fn service_bytes(services: &ServiceIds) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&services.id.to_le_bytes());
    bytes[8..].copy_from_slice(&services.mask.to_le_bytes());
    bytes
}

pub(super) fn ip_bytes(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

pub(super) fn ip_from(bytes: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(bytes).to_canonical()
}

/// The rest of a record.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn services(&mut self) -> Option<ServiceIds> {
        let id = u64::from_le_bytes(self.take()?);
        Some(ServiceIds { id, mask: u64::from_le_bytes(self.take()?) })
    }

    fn ip(&mut self) -> Option<IpAddr> {
        self.take().map(ip_from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_survives_the_way() {
        let services = ServiceIds { id: 0x0106_1D2F, mask: !0xFFFF };
        let requests = [
            Request::Join { version: 7 },
            Request::Listen(services),
            Request::Unlisten(services),
            Request::Bind { space: PortSpace::TCP, port: 7471 },
            Request::Release { space: PortSpace::UDP, port: 1 },
            Request::LeaveLastMessage { id: 9, to: IpAddr::from([127, 1, 2, 3]), mad: Box::new([5; 256]) },
            Request::RevokeLastMessage { id: u32::MAX },
            Request::Status,
            Request::Socket { shard: 254 },
            Request::Rejoin { version: 7, shard: 2 },
        ];
        for request in requests {
            let bytes = request.encode();
            assert_eq!(Request::decode(&bytes), Some(request.clone()));
            assert_eq!(Request::decode(&bytes[..bytes.len() - 1]), None, "{request:?} cut short");
            assert_eq!(Request::decode(&[&bytes[..], &[0]].concat()), None, "{request:?} and more");
        }
        let sharers = (2..=254).map(|shard| (shard, 70_000 + u32::from(shard))).collect();
        let replies = [
            Reply::Done,
            Reply::Shard(254),
            Reply::Port(40_000),
            Reply::Sharers(sharers),
            Reply::InUse,
            Reply::Full,
            Reply::NotUnderstood,
            Reply::Failed(-13),
        ];
        for reply in replies {
            let bytes = reply.encode();
            assert!(bytes.len() <= RECORD_BYTES_MAX);
            assert_eq!(Reply::decode(&bytes), Some(reply));
        }
        assert_eq!((Request::decode(&[]), Reply::decode(&[99])), (None, None));
    }

    #[test]
    fn services_with_a_mask_are_many() {
        let port = ServiceIds::one(0x0106_0050);
        let all_of_tcp = ServiceIds { id: 0x0106_0000, mask: !0xFFFF };
        assert!(all_of_tcp.contains(port.id) && all_of_tcp.overlaps(port) && port.overlaps(all_of_tcp));
        assert!(!all_of_tcp.contains(0x0111_0050) && !port.overlaps(ServiceIds::one(0x0106_0051)));
    }
}
