//! What waits at a UDP socket of this machine, whose ever it is: from the kernel's table of them (`proc_net(5)`), which everybody may
//! read.

use std::net::{IpAddr, SocketAddr};

/// Whether datagrams wait at the one socket that is bound to `address`. False where there is none, or where several share the
/// address and it cannot be told which of them is meant.
pub(crate) fn has_unread(address: SocketAddr) -> bool {
    let table = match address {
        SocketAddr::V4(_) => "/proc/self/net/udp",
        SocketAddr::V6(_) => "/proc/self/net/udp6",
    };
    std::fs::read_to_string(table)
        .is_ok_and(|table| unread_in(&table, address).is_some_and(|bytes| bytes > 0))
}

/// The bytes that wait, by the kernel's account, at the only socket of an address.
fn unread_in(table: &str, address: SocketAddr) -> Option<u64> {
    let name = name_of(address);
    let mut found = table.lines().filter_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        if fields.next()? != name {
            return None;
        }
        // The peer's address and the state stand between.
        let (_, received) = fields.nth(2)?.split_once(':')?;
        u64::from_str_radix(received, 16).ok()
    });
    let bytes = found.next()?;
    found.next().is_none().then_some(bytes)
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
    fn of_several_sockets_with_one_address_none_is_meant() {
        let line = |number, unread| {
            format!(
                "  {number}: 0100007F:12B7 00000000:0000 07 00000000:{unread} 00:00000000 00000000     0        0 4711 2 0 0\n"
            )
        };
        let address = "127.0.0.1:4791".parse().expect("an address");
        if cfg!(target_endian = "little") {
            assert_eq!(unread_in(&line(1, "00000300"), address), Some(768));
            assert_eq!(unread_in(&(line(1, "00000300") + &line(2, "00000300")), address), None);
        }
        assert_eq!(
            unread_in("  sl  local_address rem_address   st tx_queue rx_queue\n\n 1: 2 3\n", address),
            None
        );
    }
}
