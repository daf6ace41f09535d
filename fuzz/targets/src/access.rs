//! What keeps strangers out: the users' file is read without a panic, and an endpoint with a key does nothing for datagrams of an attacker.

use highwire_rpc::{ClusterKey, Config, Endpoint, Node, Received, RequestType};
use highwire_stdx::Instant;
use highwire_store::Users;
use highwire_verbs::{Address, Datagram, Gid};
use highwire_wire::Qpn;
use std::net::{IpAddr, Ipv4Addr};

pub(crate) fn access(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(users) = Users::parse(&text) {
        assert!(users.iter().all(|user| !user.name().is_empty()));
    }
    let Some((immediate, bytes)) = input.split_first_chunk() else { return };
    let mut config = Config::new(Node(1), 0x1_0000_0001);
    config.key = Some(ClusterKey([7; 32]));
    let mut endpoint = Endpoint::new(config);
    endpoint.register(RequestType(1), |request, response| response.write(request.bytes));
    let gid = Gid::from_ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let to = Datagram { address: Address::new(gid), qpn: Qpn::new(77), qkey: 0 };
    endpoint.add_peer(Node(9), to).expect("another node");
    let received =
        Received { immediate: u32::from_be_bytes(*immediate), source_qpn: to.qpn, grh: None, bytes };
    let now = Instant::from_nanos(1);
    endpoint.handle_receive(now, &received);
    endpoint.run(now);
    endpoint.transmit(|_| true);
    let counters = endpoint.counters();
    assert_eq!((counters.handled, counters.challenged, counters.malformed), (0, 0, 0));
    assert_eq!(counters.forged + counters.replayed + counters.refused + counters.strangers, 1);
}
