//! What waits at a UDP socket of this machine, whose ever it is: from the kernel's table of them (`proc_net(5)`), which everybody may
//! read.

use std::net::{IpAddr, SocketAddr};

/// How often the table is read before a socket that is not in it counts as gone. The kernel hands the table out piece by piece, and a
/// socket that another process opens or closes meanwhile can make it leave a line out, or give one twice.
const READS_MAX: u32 = 4;

/// Whether datagrams wait at the one socket that is bound to `address`. False where there is none, or where several share the
/// address and it cannot be told which of them is meant.
pub(crate) fn has_unread(address: SocketAddr) -> bool {
    let path = match address {
        SocketAddr::V4(_) => "/proc/self/net/udp",
        SocketAddr::V6(_) => "/proc/self/net/udp6",
    };
    for _ in 0..READS_MAX {
        let Ok(table) = std::fs::read_to_string(path) else { return false };
        match sockets_of(&table, address)[..] {
            [] => {}
            [socket] => return socket.unread_bytes > 0,
            _ => return false,
        }
    }
    false
}

/// A socket of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Socket {
    inode: u64,
    /// By the kernel's account, which is more than the datagrams' bytes.
    unread_bytes: u64,
}

/// The sockets that have an address, each once.
fn sockets_of(table: &str, address: SocketAddr) -> Vec<Socket> {
    let name = name_of(address);
    let mut sockets: Vec<Socket> = Vec::new();
    for line in table.lines() {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        // Its place in the table, its address, the peer's, its state, what waits to be sent and to be received, three fields of
        // timers, the owner, and another timer's come before the inode.
        let [_, local, _, _, queues, _, _, _, _, inode, ..] = fields[..] else { continue };
        let (Some((_, received)), Ok(inode)) = (queues.split_once(':'), inode.parse()) else { continue };
        let Ok(unread_bytes) = u64::from_str_radix(received, 16) else { continue };
        if local == name && sockets.iter().all(|socket| socket.inode != inode) {
            sockets.push(Socket { inode, unread_bytes });
        }
    }
    sockets
}

/// An address as the table has it: words of four bytes as they lie in memory, read as numbers of this machine.
fn name_of(address: SocketAddr) -> String {
    let word = |bytes: &[u8]| format!("{:08X}", bytes.try_into().map_or(0, u32::from_ne_bytes));
    let ip: String = match address.ip() {
        IpAddr::V4(ip) => word(&ip.octets()),
        IpAddr::V6(ip) => ip.octets().chunks(4).map(word).collect(),
    };
    format!("{ip}:{:04X}", address.port())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

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

    #[test]
    fn a_socket_counts_once_and_several_are_told_apart() {
        let address: SocketAddr = "127.0.0.1:4791".parse().expect("an address");
        let name = name_of(address);
        let line = |inode: u64, unread: &str| {
            format!(
                "  7: {name} 00000000:0000 07 00000000:{unread} 00:00000000 00000000     0        0 {inode} 2 0 0\n"
            )
        };
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n";
        let found = |lines: &[String]| sockets_of(&(head.to_string() + &lines.concat()), address);
        let socket = |inode, unread_bytes| Socket { inode, unread_bytes };
        assert_eq!(found(&[line(4711, "00000300")]), [socket(4711, 768)]);
        // Given twice, because the table changed while it was read.
        assert_eq!(found(&[line(4711, "00000300"), line(4711, "00000500")]), [socket(4711, 768)]);
        assert_eq!(found(&[line(1, "00000000"), line(2, "00000300")]), [socket(1, 0), socket(2, 768)]);
        for nonsense in ["", "1: 2 3", "a b c d e f g h i j", &line(1, "xyz"), &line(1, "").replace(':', "")]
        {
            assert_eq!(found(&[nonsense.to_string() + "\n"]), [], "{nonsense}");
        }
    }
}
