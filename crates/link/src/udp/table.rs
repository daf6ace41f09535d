//! The UDP sockets of this machine, those of other processes as well: the kernel's table of them
//! (`proc_net(5)`), which every process may read.

use std::net::{IpAddr, SocketAddr};

/// How often the table is read before a socket that is not in it counts as gone. The kernel hands the table out piece by piece, and a
/// socket that another process opens or closes meanwhile can make it leave a line out, or give one twice.
const READS_MAX: u32 = 4;

/// A line of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Socket {
    pub(super) address: SocketAddr,
    pub(super) uid: u32,
    pub(super) inode: u64,
    /// The bytes that wait to be received, by the kernel's account, which is more than the datagrams' own.
    unread_bytes: u64,
}

/// All of them.
pub(super) fn sockets() -> Vec<Socket> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (v4, v6) = (read("/proc/self/net/udp"), read("/proc/self/net/udp6"));
    v4.lines().chain(v6.lines()).filter_map(parse).collect()
}

/// Whether datagrams wait unread at the one socket that is bound to `address`, whichever process has it.
/// False if there is none, or if several share the address, because then it is unknown which one is meant.
pub fn has_unread(address: SocketAddr) -> bool {
    if let Some(network) = crate::simulated::network() {
        return network.has_unread(address);
    }
    for _ in 0..READS_MAX {
        match at(address, &sockets())[..] {
            [] => {}
            [socket] => return socket.unread_bytes > 0,
            _ => return false,
        }
    }
    false
}

/// The sockets that have an address, each once.
fn at(address: SocketAddr, sockets: &[Socket]) -> Vec<Socket> {
    let mut found: Vec<Socket> = sockets.iter().copied().filter(|socket| socket.address == address).collect();
    found.sort_by_key(|socket| socket.inode);
    found.dedup_by_key(|socket| socket.inode);
    found
}

fn parse(line: &str) -> Option<Socket> {
    let mut fields = line.split_ascii_whitespace();
    let (ip, port) = fields.nth(1)?.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    // The peer and the state lie between, and behind the queues timer and retransmissions.
    let (_, unread) = fields.nth(2)?.split_once(':')?;
    let unread_bytes = u64::from_str_radix(unread, 16).ok()?;
    let uid = fields.nth(2)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    Some(Socket { address: SocketAddr::new(parse_ip(ip)?, port), uid, inode, unread_bytes })
}

/// The kernel prints addresses as machine words of eight hexadecimal digits.
fn parse_ip(hex: &str) -> Option<IpAddr> {
    let word = |text: &str| u32::from_str_radix(text, 16).ok().map(u32::to_ne_bytes);
    match hex.len() {
        8 => Some(IpAddr::from(word(hex)?)),
        32 => {
            let mut octets = [0; 16];
            for (index, octets) in octets.chunks_exact_mut(4).enumerate() {
                octets.copy_from_slice(&word(hex.get(8 * index..8 * index + 8)?)?);
            }
            Some(IpAddr::from(octets))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    fn check(line: &str, expected: Option<(&str, u32, u64, u64)>) {
        let found = parse(line).map(|s| (s.address.to_string(), s.uid, s.inode, s.unread_bytes));
        assert_eq!(found, expected.map(|(a, uid, inode, unread)| (a.to_owned(), uid, inode, unread)));
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn the_kernels_socket_table_is_understood() {
        check(
            "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
            None,
        );
        check(
            " 2114: 0714537F:12B7 00000000:0000 07 00000000:00000300 00:00000000 00000000  1000        0 13579 2 00000000 0",
            Some(("127.83.20.7:4791", 1000, 13_579, 768)),
        );
        check(
            "  77: 00000000000000000000000001000000:12B7 00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 22 2 00000000 0",
            Some(("[::1]:4791", 0, 22, 0)),
        );
        check("77: 0714537F:zz x x x x x 0 0 1", None);
        check("77: 0714537F:12B7 x x 0:zz x x 0 0 1", None);
        check("", None);
    }

    #[test]
    fn a_socket_counts_once_and_several_are_told_apart() {
        let socket = |address: &str, inode, unread_bytes| Socket {
            address: address.parse().expect("an address"),
            uid: 0,
            inode,
            unread_bytes,
        };
        let here = "127.0.0.1:4791";
        // One is given twice, because the table changed while it was read.
        let table = [socket(here, 7, 3), socket("127.0.0.2:4791", 8, 5), socket(here, 7, 4)];
        assert_eq!(at(table[0].address, &table), [table[0]]);
        assert_eq!(at(table[1].address, &[table[0], table[1], socket("127.0.0.2:4791", 9, 0)]).len(), 2);
        assert_eq!(at("127.0.0.1:1".parse().expect("an address"), &table), []);
    }

    #[test]
    fn a_datagram_is_unread_until_it_is_read() {
        for ip in ["127.0.0.1", "::1"] {
            let Ok(socket) = UdpSocket::bind((ip, 0)) else {
                assert_eq!(ip, "::1", "this machine has IPv4");
                continue;
            };
            let address = socket.local_addr().expect("an address");
            assert!(!has_unread(address));
            socket.send_to(&[1], address).expect("sends");
            assert!(has_unread(address), "{address}");
            socket.recv(&mut [0; 8]).expect("receives");
            assert!(!has_unread(address));
            socket.send_to(&[1], address).expect("sends");
            drop(socket);
            assert!(!has_unread(address), "its owner has gone");
        }
    }
}
