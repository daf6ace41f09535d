//! Which lane or process a packet belongs to, decided in the kernel.
//!
//! The sockets of a device share one address; a classic BPF program of four instructions picks one by the destination QP.
//! The sockets of processes that share an address use such a program as well, which picks by the number's
//! last byte.

use crate::sys;
use std::io;
use std::os::fd::BorrowedFd;

/// The lane of a packet: its destination QPN (BTH bytes 5 to 7, IBTA §9.2.6) modulo the number of lanes. Packets too short
/// to name a QP belong to lane 0.
pub fn lane_of(packet: &[u8], lanes: usize) -> usize {
    match packet.get(5..8) {
        Some(&[a, b, c]) if lanes > 0 => u32::from_be_bytes([0, a, b, c]) as usize % lanes,
        _ => 0,
    }
}

/// Attaches the same rule to the group of sockets that `fd` belongs to; they count in the order in which they were bound.
pub(super) fn attach(fd: BorrowedFd<'_>, lanes: usize) -> io::Result<()> {
    let lanes = u32::try_from(lanes).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // Offsets count from the UDP payload, and a load past its end returns 0: lane 0.
    let mut program = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 4),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0x00FF_FFFF),
        step(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, lanes),
        step(libc::BPF_RET | libc::BPF_A, 0),
    ];
    sys::attach_steering(fd, &mut program)
}

/// The queue pair number by which the kernel picks a socket of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SteerBy {
    /// The BTH's destination QPN.
    DestinationQpn,
    /// The receiver's QPN in a message of the side band (`docs/wire-irn.md`).
    ReceiverQpn,
}

/// Gives each datagram to the socket whose number is the last byte of its queue pair number, and to the first
/// socket if there is none of that number or the datagram is too short. A later call replaces the rule of an
/// earlier one.
pub(super) fn attach_shards(fd: BorrowedFd<'_>, by: SteerBy, sockets: usize) -> io::Result<()> {
    let sockets = u32::try_from(sockets).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let word = match by {
        SteerBy::DestinationQpn => 4,
        SteerBy::ReceiverQpn => 36,
    };
    let in_range = libc::sock_filter { jt: 1, ..step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, sockets) };
    let mut program = [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, word),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0xFF),
        in_range,
        step(libc::BPF_RET | libc::BPF_A, 0),
        step(libc::BPF_RET | libc::BPF_K, 0),
    ];
    sys::attach_steering(fd, &mut program)
}

fn step(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_follow_the_destination_qp() {
        let bth = [0x04, 0, 0xFF, 0xFF, 0xAA, 0x12, 0x34, 0x57, 0, 0, 0, 0];
        assert_eq!(lane_of(&bth, 1), 0);
        assert_eq!(lane_of(&bth, 4), 0x12_3457 % 4);
        assert_eq!(lane_of(&bth[..7], 4), 0);
        assert_eq!(lane_of(&bth, 0), 0);
    }
}
