//! The places of a scenario's devices among the PCI devices, as the kernel lays them out:
//!
//! ```text
//! sys/devices/pci0000:00/0000:00:01.0/0000:41:00.0/          the device, behind a port of its own
//!   numa_node, class, max_link_speed …
//!   infiniband/mlx5_0/device                                 a link to ../../../0000:41:00.0
//!   infiniband_verbs/uverbs0
//! sys/class/infiniband/mlx5_0                                a link there
//! sys/bus/pci/devices/0000:41:00.0, sys/class/pci_bus/0000:41
//! ```

use crate::identity::{Identity, Played};

/// The folders in which the machine's own PCI devices are shown as well.
pub(super) const FOLDERS: [&str; 2] = ["/sys/bus/pci/devices", "/sys/class/pci_bus"];

/// The port of the root complex, and the device's folder behind it.
fn folders(played: &Played) -> (String, String) {
    let bus = &played.pci[5..7];
    let port = format!("sys/devices/pci{}:00/{}:00:{bus}.0", &played.pci[..4], &played.pci[..4]);
    let device = format!("{port}/{}", played.pci);
    (port, device)
}

/// Where a file of a device lies: at its path, or in its PCI folder.
pub(super) fn place(identity: &Identity, minor: u32, path: &str) -> String {
    let Some(played) = &identity.played else { return path.into() };
    let (_, device) = folders(played);
    let class = format!("sys/class/infiniband/{}", identity.name);
    let verbs = format!("sys/class/infiniband_verbs/uverbs{minor}");
    let below = |folder: &str| path.strip_prefix(folder).and_then(|rest| rest.strip_prefix('/'));
    match (below(&class).map(|rest| (rest.strip_prefix("device/"), rest)), below(&verbs)) {
        (Some((Some(of_device), _)), _) => format!("{device}/{of_device}"),
        (Some((None, rest)), _) => format!("{device}/infiniband/{}/{rest}", identity.name),
        (_, Some("device")) => format!("{device}/infiniband_verbs/uverbs{minor}/device"),
        (_, Some(rest)) => format!("{device}/infiniband_verbs/uverbs{minor}/{rest}"),
        _ => path.into(),
    }
}

/// What a PCI folder has besides, and its port. It is written after the files of every device, over those that are alike.
pub(super) fn files(identity: &Identity) -> Vec<(String, String)> {
    let Some(played) = &identity.played else { return Vec::new() };
    let (port, device) = folders(played);
    let numa = played.numa.to_string();
    let mut files = vec![(format!("{device}/numa_node"), format!("{numa}\n"))];
    let bus = &played.pci[..7];
    files.push((format!("{port}/pci_bus/{bus}/cpuaffinity"), "ffffffff\n".into()));
    for (folder, class) in [(&device, "0x020000"), (&port, "0x060400")] {
        for (name, text) in [
            ("class", class),
            ("vendor", "0x0000"),
            ("device", "0x0000"),
            ("subsystem_vendor", "0x0000"),
            ("subsystem_device", "0x0000"),
            ("max_link_speed", "32.0 GT/s PCIe"),
            ("max_link_width", "16"),
            ("current_link_speed", "32.0 GT/s PCIe"),
            ("current_link_width", "16"),
        ] {
            files.push((format!("{folder}/{name}"), format!("{text}\n")));
        }
    }
    files.push((format!("{port}/numa_node"), format!("{numa}\n")));
    // The library of `lspci`, which perftest uses, ends its program if one of these is not there.
    let no_regions = "0x0000000000000000 0x0000000000000000 0x0000000000000000\n".repeat(13);
    for (name, text) in [("resource", no_regions), ("irq", "0\n".into()), ("config", config())] {
        files.push((format!("{device}/{name}"), text));
    }
    files
}

/// The configuration space of an Ethernet controller without a vendor: its class, and zeros.
fn config() -> String {
    let mut bytes = vec![0_u8; 256];
    bytes[0x0B] = 0x02;
    String::from_utf8(bytes).expect("all of them are ASCII")
}

/// The links that lead to a PCI folder and back.
pub(super) fn links(identity: &Identity, minor: u32) -> Vec<(String, String)> {
    let Some(played) = &identity.played else { return Vec::new() };
    let (port, device) = folders(played);
    let Identity { name, .. } = identity;
    let from_sys = |path: &str| path["sys/".len()..].to_string();
    let (device_at, port_at) = (from_sys(&device), from_sys(&port));
    let pci = &played.pci;
    let bus = &pci[..7];
    vec![
        (format!("sys/class/infiniband/{name}"), format!("../../{device_at}/infiniband/{name}")),
        (format!("{device}/infiniband/{name}/device"), format!("../../../{pci}")),
        (
            format!("sys/class/infiniband_verbs/uverbs{minor}"),
            format!("../../{device_at}/infiniband_verbs/uverbs{minor}"),
        ),
        (format!("{device}/infiniband_verbs/uverbs{minor}/device"), format!("../../../{pci}")),
        (format!("sys/bus/pci/devices/{pci}"), format!("../../../{device_at}")),
        (format!("sys/class/pci_bus/{bus}"), format!("../../{port_at}/pci_bus/{bus}")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwire_faults::Port;

    #[test]
    fn a_file_lies_where_the_kernel_would_put_it() {
        let played = Played { pci: "0000:c1:00.0".into(), numa: 1, gigabits: 400, ports: vec![Port::Active] };
        let address = "127.1.1.1".parse().expect("an address");
        let identity =
            Identity { name: "mlx5_0".into(), address, interface: "lo".into(), played: Some(played) };
        let check = |path: &str, expected: &str| assert_eq!(place(&identity, 2, path), expected);
        let device = "sys/devices/pci0000:00/0000:00:c1.0/0000:c1:00.0";
        check(
            "sys/class/infiniband/mlx5_0/ports/1/state",
            &format!("{device}/infiniband/mlx5_0/ports/1/state"),
        );
        check("sys/class/infiniband/mlx5_0/device/vendor", &format!("{device}/vendor"));
        check("sys/class/infiniband_verbs/uverbs2/dev", &format!("{device}/infiniband_verbs/uverbs2/dev"));
        check("sys/class/infiniband/abi_version", "sys/class/infiniband/abi_version");
        let plain = Identity { played: None, ..identity.clone() };
        assert_eq!(
            place(&plain, 2, "sys/class/infiniband/mlx5_0/node_type"),
            "sys/class/infiniband/mlx5_0/node_type"
        );
    }
}
