//! The frame around a packet, which a socket does not show.

use highwire_wire::{Ethernet, Ip, Ipv4, Ipv6, PathIcrc, Udp};
use std::net::{IpAddr, SocketAddr};

/// The identification that a received packet must have had for its ICRC to be right, or else the likeliest.
pub(super) fn solve_ip_id((source, destination): (SocketAddr, SocketAddr), hint: u16, packet: &[u8]) -> u16 {
    let path = PathIcrc::between((source.ip(), source.port()), (destination.ip(), destination.port()));
    path.and_then(|path| path.verify_unknown_id(hint, packet)).unwrap_or(hint)
}

/// Builds the frame around a packet; false if source and destination are of different families.
pub(super) fn build_frame(
    frame: &mut Vec<u8>,
    (source, destination): (SocketAddr, SocketAddr),
    ip_id: u16,
    traffic_class: u8,
    packet: &[u8],
) -> bool {
    // Both fit: a packet is at most as long as a UDP payload.
    let length = (Udp::LEN + packet.len()) as u16;
    let (ip, ethertype) = match (source.ip(), destination.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let ip = Ipv4 { payload_len: length, id: ip_id, traffic_class, ..Ipv4::new(from, to) };
            (Ip::V4(ip), Ethernet::IPV4)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let ip = Ipv6 { payload_len: length, traffic_class, ..Ipv6::new(from, to) };
            (Ip::V6(ip), Ethernet::IPV6)
        }
        _ => return false,
    };
    frame.clear();
    let ethernet = Ethernet {
        destination: mac_of(destination.ip()),
        source: mac_of(source.ip()),
        vlan: None,
        ethertype,
    };
    ethernet.emit(frame);
    ip.emit(frame);
    let mut udp = [0; Udp::LEN];
    let header =
        Udp { source_port: source.port(), destination_port: destination.port(), length, checksum: 0 };
    header.emit(&mut udp);
    let checksum = udp_checksum(source.ip(), destination.ip(), &udp, packet);
    Udp { checksum, ..header }.emit(&mut udp);
    frame.extend(udp);
    frame.extend(packet);
    true
}

/// A locally administered address that ends as the IP address does.
fn mac_of(ip: IpAddr) -> [u8; 6] {
    let [a, b, c, d] = match ip {
        IpAddr::V4(ip) => ip.octets(),
        IpAddr::V6(ip) => *ip.octets().last_chunk().expect("sixteen bytes end in four"),
    };
    [0x02, 0x00, a, b, c, d]
}

/// The UDP checksum (RFC 768, RFC 8200 §8.1): a ones' complement sum over addresses, protocol, length, header and payload.
pub(super) fn udp_checksum(
    source: IpAddr,
    destination: IpAddr,
    header: &[u8; Udp::LEN],
    payload: &[u8],
) -> u16 {
    let mut sum = 17 + (header.len() + payload.len()) as u64;
    let mut add = |bytes: &[u8]| {
        for pair in bytes.chunks(2) {
            sum += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
        }
    };
    for ip in [source, destination] {
        match ip {
            IpAddr::V4(ip) => add(&ip.octets()),
            IpAddr::V6(ip) => add(&ip.octets()),
        }
    }
    add(header);
    add(payload);
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    // Zero means "no checksum", so a sum that comes out as zero is sent as its other form.
    match !(sum as u16) {
        0 => 0xFFFF,
        checksum => checksum,
    }
}
