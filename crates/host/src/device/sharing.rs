//! Opening a device at an address that all processes of the user share.

use super::open::{Place, registry, udp_config, wanted_address};
use crate::config::{DeviceConfig, LinkChoice};
use crate::error::OpenError;
use crate::in_place::OwnThread;
use highwire_broker::{Client, Sockets};
use highwire_link::shm::stats;
use highwire_link::shm::{EngineConfig, EngineName, Registry};
use highwire_link::{UdpConfig, UdpLink};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// The address that this user's processes share unless `HIGHWIRE_ADDR` or the configuration names another: one of
/// 127.83.0.0/16 that depends on the user alone.
pub fn default_shared_address() -> IpAddr {
    address_of_user(crate::sys::effective_uid())
}

fn address_of_user(uid: u32) -> IpAddr {
    // Its last byte is neither 0 nor 255, which look like networks and broadcasts.
    let (d, c) = (uid % 254 + 1, uid / 254 % 256);
    Ipv4Addr::new(127, 83, c as u8, d as u8).into()
}

/// Joins the processes that share the address.
pub(super) fn join(config: &DeviceConfig) -> Result<Place, OpenError> {
    if config.lanes != 1 {
        return Err(OpenError::SharedLanes(config.lanes));
    }
    let ip = wanted_address(config)?.unwrap_or_else(default_shared_address).to_canonical();
    // The device finds the broker through the registry, even if it does not use shared memory.
    let root = Registry::open()?;
    // The files of killed processes would fill the machine's shared memory. If removing them fails, the next
    // process tries again.
    let _ = root.reap_stale();
    let _ = stats::running_in(&root);
    let (client, Sockets { packets, side_band }) = Client::join(&root, ip, OwnThread::spawn)
        .map_err(|source| OpenError::Broker { address: ip, source })?;
    // The network's receive offload would merge packets of several processes into a train, which one process
    // would get. On the machine itself trains are as the senders made them.
    let udp = UdpConfig { gro: ip.is_loopback(), ..udp_config(config, ip) };
    let socket = UdpLink::adopt(packets, &udp)?;
    let local = match registry(config)? {
        None => None,
        Some(registry) => {
            let name = EngineName::shared(ip, client.shard());
            match registry.claim(name, &EngineConfig::default()) {
                Ok(local) => Some(Arc::new(local)),
                // All peers are reached over UDP then.
                Err(_) if config.link == LinkChoice::Auto => None,
                Err(error) => return Err(error.into()),
            }
        }
    };
    Ok(Place { ip, local, sockets: vec![socket], side_band: Some(side_band), broker: Some(client) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_user_has_an_address() {
        for (uid, expected) in [
            (0, [127, 83, 0, 1]),
            (1, [127, 83, 0, 2]),
            (253, [127, 83, 0, 254]),
            (254, [127, 83, 1, 1]),
            (1000, [127, 83, 3, 239]),
            (u32::MAX, [127, 83, 2, 4]),
        ] {
            let address = address_of_user(uid);
            let IpAddr::V4(v4) = address else { panic!("{address}") };
            assert!((1..=254).contains(&v4.octets()[3]), "{address}");
            if uid < 2000 {
                assert_eq!(v4.octets(), expected, "{uid}");
            }
        }
    }
}
