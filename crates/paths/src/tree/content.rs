//! The content of the files: that of a kernel's files for a RoCE device whose port is up.

use crate::identity::Identity;
use highwire_faults::Port;

/// The files of a device, by their path below the folder, with their content.
///
/// `minor` is the device's number among those of the machine.
pub(super) fn files(identity: &Identity, minor: u32) -> Vec<(String, String)> {
    let Identity { name, interface, .. } = identity;
    let mut files = Vec::new();
    let mut file = |path: String, text: &str| files.push((path, format!("{text}\n")));
    let guid = identity.guid().map(|word| format!("{word:04x}")).join(":");

    let device = format!("sys/class/infiniband/{name}");
    for (path, text) in [
        ("node_type", "1: CA"),
        ("node_guid", guid.as_str()),
        ("sys_image_guid", &guid),
        ("node_desc", "highwire"),
        ("fw_ver", env!("CARGO_PKG_VERSION")),
        ("hw_rev", "0x0"),
        ("hca_type", "Highwire"),
        ("board_id", "highwire"),
        ("uevent", &format!("NAME={name}")),
        ("device/vendor", "0x0000"),
        ("device/device", "0x0000"),
        ("device/numa_node", "-1"),
        ("device/local_cpus", "ffffffff,ffffffff"),
        ("device/local_cpulist", &cpus()),
    ] {
        file(format!("{device}/{path}"), text);
    }

    let played = identity.played.as_ref();
    let rate = rate(played.map_or(100, |played| played.gigabits));
    let ports = played.map_or(&[Port::Active][..], |played| &played.ports);
    for (number, state) in (1..).zip(ports) {
        let folder = format!("{device}/ports/{number}");
        let gid = identity.gid_of(number).segments().map(|word| format!("{word:04x}")).join(":");
        port(&mut file, &folder, (*state, rate), (&gid, interface));
    }

    file("sys/class/infiniband_verbs/abi_version".into(), "6");
    let verbs = format!("sys/class/infiniband_verbs/uverbs{minor}");
    file(format!("{verbs}/ibdev"), name);
    file(format!("{verbs}/abi_version"), "1");
    file(format!("{verbs}/dev"), &format!("231:{}", 192 + minor));

    file("sys/class/infiniband_mad/abi_version".into(), "5");
    for (kind, first) in [("umad", 0), ("issm", 64)] {
        let folder = format!("sys/class/infiniband_mad/{kind}{minor}");
        file(format!("{folder}/ibdev"), name);
        file(format!("{folder}/port"), "1");
        file(format!("{folder}/dev"), &format!("231:{}", first + minor));
    }
    files
}

/// The files of a port: its state and rate, its GID and the interface that has the address.
fn port(
    file: &mut impl FnMut(String, &str),
    folder: &str,
    (state, rate): (Port, &str),
    (gid, interface): (&str, &str),
) {
    let (state, physical) = states(state);
    for (path, text) in [
        ("state", state),
        ("phys_state", physical),
        ("link_layer", "Ethernet"),
        ("rate", rate),
        ("lid", "0x0"),
        ("lid_mask_count", "0"),
        ("sm_lid", "0x0"),
        ("sm_sl", "0"),
        ("cap_mask", "0x00010000"),
        ("pkeys/0", "0xffff"),
    ] {
        file(format!("{folder}/{path}"), text);
    }
    // Both are equal, because scripts for the kernel's software RNIC ask for index 1.
    for index in 0..2 {
        file(format!("{folder}/gids/{index}"), gid);
        file(format!("{folder}/gid_attrs/types/{index}"), "RoCE v2");
        file(format!("{folder}/gid_attrs/ndevs/{index}"), interface);
    }
    // The kernel's table has places for more, and an empty one reads as zeros.
    for index in 2..GID_TABLE {
        file(format!("{folder}/gids/{index}"), "0000:0000:0000:0000:0000:0000:0000:0000");
    }
    for counter in COUNTERS {
        file(format!("{folder}/counters/{counter}"), "0");
    }
}

/// A port's logical and physical state.
fn states(port: Port) -> (&'static str, &'static str) {
    match port {
        Port::Down => ("1: DOWN", "3: Disabled"),
        Port::Init => ("2: INIT", "5: LinkUp"),
        Port::Active => ("4: ACTIVE", "5: LinkUp"),
    }
}

/// A link's rate, as the kernel words it.
fn rate(gigabits: u32) -> &'static str {
    match gigabits {
        10 => "10 Gb/sec (1X QDR)",
        25 => "25 Gb/sec (1X EDR)",
        40 => "40 Gb/sec (4X QDR)",
        50 => "50 Gb/sec (1X HDR)",
        200 => "200 Gb/sec (4X HDR)",
        400 => "400 Gb/sec (4X NDR)",
        800 => "800 Gb/sec (8X NDR)",
        _ => "100 Gb/sec (4X EDR)",
    }
}

/// The links of a device: path below the folder, and target.
pub(super) fn links(identity: &Identity, minor: u32) -> Vec<(String, String)> {
    let Identity { name, interface, .. } = identity;
    vec![
        (
            format!("sys/class/infiniband/{name}/device/net/{interface}"),
            format!("/sys/class/net/{interface}"),
        ),
        (
            format!("sys/class/infiniband_verbs/uverbs{minor}/device"),
            format!("../../infiniband/{name}/device"),
        ),
    ]
}

/// The device nodes, which are empty files that `stat` shows as devices.
pub(super) fn nodes(minor: u32) -> Vec<String> {
    let numbered = ["uverbs", "umad", "issm"].map(|kind| format!("dev/infiniband/{kind}{minor}"));
    numbered.into_iter().chain(["dev/infiniband/rdma_cm".into()]).collect()
}

/// Entries of the GID table (`ibv_query_port`).
const GID_TABLE: u32 = 16;

/// The counters that `ibv_devinfo`-like scripts and monitors sum up; `highwire stats` has the true ones.
const COUNTERS: [&str; 8] = [
    "port_xmit_data",
    "port_rcv_data",
    "port_xmit_packets",
    "port_rcv_packets",
    "port_rcv_errors",
    "port_xmit_discards",
    "link_downed",
    "symbol_error",
];

fn cpus() -> String {
    let last = std::thread::available_parallelism().map_or(0, |count| count.get() - 1);
    if last == 0 { "0".into() } else { format!("0-{last}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_in_full() {
        let identity = Identity {
            name: "hw0".into(),
            address: "127.83.20.7".parse().unwrap(),
            interface: "lo".into(),
            played: None,
        };
        let files = files(&identity, 3);
        let check = |path: &str, expected: &str| {
            let found = files.iter().find(|(name, _)| name == path).map(|(_, text)| text.trim_end());
            assert_eq!(found, Some(expected), "{path}");
        };
        check("sys/class/infiniband/hw0/ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:7f53:1407");
        check("sys/class/infiniband/hw0/ports/1/gids/15", "0000:0000:0000:0000:0000:0000:0000:0000");
        check("sys/class/infiniband/hw0/ports/1/state", "4: ACTIVE");
        check("sys/class/infiniband/hw0/ports/1/gid_attrs/ndevs/0", "lo");
        check("sys/class/infiniband_verbs/uverbs3/ibdev", "hw0");
        check("sys/class/infiniband_verbs/uverbs3/dev", "231:195");
        assert!(nodes(3).contains(&"dev/infiniband/uverbs3".to_string()));
    }
}
