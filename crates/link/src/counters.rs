//! The counters of a socket link: every packet, and every reason for which one was lost or a call failed.

/// Counters of a [`UdpLink`](crate::UdpLink), since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Packets that the kernel took.
    pub tx_packets: u64,
    /// Their bytes, BTH to ICRC.
    pub tx_bytes: u64,
    /// Calls that carried them.
    pub tx_trains: u64,
    /// Times that the socket's send buffer was full (EAGAIN); the packets were kept.
    pub tx_blocked: u64,
    /// Packets lost because the device's queue was full (ENOBUFS, ENOMEM).
    pub tx_no_buffers: u64,
    /// Packets lost because they exceed the path's MTU (EMSGSIZE).
    pub tx_too_big: u64,
    /// Packets lost because a filter forbids them (EPERM, EACCES).
    pub tx_forbidden: u64,
    /// Packets lost because no route leads there (ENETUNREACH, EHOSTUNREACH, ENETDOWN, EADDRNOTAVAIL), or none from
    /// this address (EINVAL: 127.0.0.0/8 never leaves its machine).
    pub tx_unreachable: u64,
    /// Packets lost when the kernel refused a train that it should have divided (EIO, EINVAL); from then on packets leave
    /// one by one.
    pub tx_train_refused: u64,
    /// Packets lost for any other reason.
    pub tx_other: u64,
    /// Packets received.
    pub rx_packets: u64,
    /// Their bytes, BTH to ICRC.
    pub rx_bytes: u64,
    /// Calls that delivered them.
    pub rx_trains: u64,
    /// Packets that arrived with a congestion mark.
    pub rx_congestion_experienced: u64,
    /// Packets that the kernel dropped because the receive buffer was full.
    pub rx_overflow: u64,
    /// Datagrams thrown away because they did not fit the buffer.
    pub rx_truncated: u64,
    /// Empty datagrams: by one a neighbour that sends through shared memory wakes this end.
    pub rx_rings: u64,
    /// Datagrams thrown away because their sender could not be told.
    pub rx_malformed: u64,
    /// Other failures of the receiving call.
    pub rx_other: u64,
    /// Reports that a peer's port is closed (ICMP port unreachable).
    pub icmp_refused: u64,
    /// Other ICMP reports.
    pub icmp_other: u64,
    /// 1 if whole trains are handed to the kernel (UDP GSO).
    pub gso: u64,
    /// 1 if whole trains are taken from the kernel (UDP GRO).
    pub gro: u64,
}

impl Counters {
    /// Reports every counter by name.
    pub fn each(&self, each: &mut dyn FnMut(&'static str, u64)) {
        let Counters {
            tx_packets,
            tx_bytes,
            tx_trains,
            tx_blocked,
            tx_no_buffers,
            tx_too_big,
            tx_forbidden,
            tx_unreachable,
            tx_train_refused,
            tx_other,
            rx_packets,
            rx_bytes,
            rx_trains,
            rx_congestion_experienced,
            rx_overflow,
            rx_truncated,
            rx_rings,
            rx_malformed,
            rx_other,
            icmp_refused,
            icmp_other,
            gso,
            gro,
        } = *self;
        each("udp_tx_packets", tx_packets);
        each("udp_tx_bytes", tx_bytes);
        each("udp_tx_trains", tx_trains);
        each("udp_tx_blocked", tx_blocked);
        each("udp_tx_no_buffers", tx_no_buffers);
        each("udp_tx_too_big", tx_too_big);
        each("udp_tx_forbidden", tx_forbidden);
        each("udp_tx_unreachable", tx_unreachable);
        each("udp_tx_train_refused", tx_train_refused);
        each("udp_tx_other", tx_other);
        each("udp_rx_packets", rx_packets);
        each("udp_rx_bytes", rx_bytes);
        each("udp_rx_trains", rx_trains);
        each("udp_rx_congestion_experienced", rx_congestion_experienced);
        each("udp_rx_overflow", rx_overflow);
        each("udp_rx_truncated", rx_truncated);
        each("udp_rx_rings", rx_rings);
        each("udp_rx_malformed", rx_malformed);
        each("udp_rx_other", rx_other);
        each("udp_icmp_refused", icmp_refused);
        each("udp_icmp_other", icmp_other);
        each("udp_gso", gso);
        each("udp_gro", gro);
    }
}
