//! Why a link did not open, with advice what to do next.

use super::{UdpConfig, table};
use crate::{LocalAddress, local_addresses};
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// Why a [`UdpLink`](super::UdpLink) could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum OpenError {
    /// Another process receives at that address and port.
    PortTaken {
        /// What was asked for.
        address: SocketAddr,
        /// The processes that have it, as far as this process can see.
        holders: Vec<Holder>,
    },
    /// The address belongs to another machine, or to none.
    NotLocal {
        /// What was asked for.
        ip: IpAddr,
        /// The addresses that this machine has.
        local: Vec<LocalAddress>,
    },
    /// The machine has no such family of addresses.
    NoFamily {
        /// What was asked for.
        ip: IpAddr,
    },
    /// Anything else.
    Io {
        /// What was asked for.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

/// A socket that keeps the address from being bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The address and port that it has; an unspecified address means all of them.
    pub address: SocketAddr,
    /// The user it belongs to.
    pub uid: u32,
    /// Number and name of the process, if this process may see it.
    pub process: Option<(u32, String)>,
}

impl OpenError {
    pub(super) fn new(config: &UdpConfig, source: io::Error) -> OpenError {
        let address = SocketAddr::new(config.ip, config.port);
        match source.raw_os_error() {
            Some(libc::EADDRINUSE) => OpenError::PortTaken { address, holders: holders_of(address) },
            Some(libc::EADDRNOTAVAIL) => {
                OpenError::NotLocal { ip: config.ip, local: local_addresses().unwrap_or_default() }
            }
            Some(libc::EAFNOSUPPORT) => OpenError::NoFamily { ip: config.ip },
            _ => OpenError::Io { address, source },
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OpenError::PortTaken { address, holders } => explain_taken(f, address, holders),
            OpenError::NotLocal { ip, local } => {
                write!(f, "{ip} is not an address of this machine; it has")?;
                for (index, address) in local.iter().filter(|a| a.is_up).enumerate() {
                    write!(f, "{} {} ({})", if index > 0 { "," } else { "" }, address.ip, address.interface)?;
                }
                f.write_str(", and any address in 127.0.0.0/8")
            }
            OpenError::NoFamily { ip } => {
                write!(f, "{ip} cannot be used: this machine has no IPv{}", if ip.is_ipv6() { 6 } else { 4 })
            }
            OpenError::Io { address, source } => write!(f, "cannot open UDP {address}: {source}"),
        }
    }
}

impl std::error::Error for OpenError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OpenError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

fn explain_taken(f: &mut fmt::Formatter<'_>, address: &SocketAddr, holders: &[Holder]) -> fmt::Result {
    write!(f, "UDP {address} is taken")?;
    for holder in holders {
        match &holder.process {
            Some((pid, name)) => write!(f, ", by process {pid} ({name}) of user {}", holder.uid)?,
            // The kernel's RNIC takes every address of the machine.
            None if holder.uid == 0 && holder.address.ip().is_unspecified() => {
                f.write_str(
                    ", by a socket of root that no visible process owns: most likely the kernel's rdma_rxe",
                )?;
            }
            None => write!(
                f,
                ", by a process of user {} that cannot be seen from here: most likely another Highwire in another container or pid \
                 namespace with this network",
                holder.uid
            )?,
        }
        if holder.address.ip().is_unspecified() {
            f.write_str(" (on every address of this machine)")?;
        }
    }
    let is_everywhere = holders.iter().any(|holder| holder.address.ip().is_unspecified());
    // Highwires of one user find each other's broker in /dev/shm, whatever their address; one that does not find it stands before its port.
    let is_stranger = holders.iter().any(|holder| match &holder.process {
        Some((_, name)) => name.starts_with("highwire"),
        None => !is_everywhere,
    });
    f.write_str(match (is_stranger, is_everywhere) {
        (true, _) => {
            ". Two ways out: give both the same /dev/shm and pid namespace, so that they share the address (containers: \
             --ipc=container:… --pid=container:…), or give this one an address of its own: HIGHWIRE_ADDR, any in 127.0.0.0/8 \
             will do on one machine"
        }
        (false, true) => {
            ". Two ways out: end that process (for rdma_rxe: `rdma link delete <name>` as root), or work in a network of your \
             own: `unshare -rn`, then `ip link set lo up`"
        }
        (false, false) => {
            ". Two ways out: end that process, or choose another address: HIGHWIRE_ADDR, any in 127.0.0.0/8 will do on one machine"
        }
    })
}

/// The sockets that keep `wanted` from being bound.
fn holders_of(wanted: SocketAddr) -> Vec<Holder> {
    let sockets = table::sockets().into_iter().filter(|socket| conflicts(socket.address, wanted));
    let holder = |socket: table::Socket| Holder { address: socket.address, uid: socket.uid, process: None };
    let mut found: Vec<(Holder, u64)> = sockets.map(|socket| (holder(socket), socket.inode)).collect();
    // Several lanes of one process are one answer.
    name_processes(&mut found);
    // Some sockets of a shared port lie in a socket pair, and no process has them open. The processes that have the others
    // matter.
    if found.iter().any(|(holder, _)| holder.process.is_some()) {
        found.retain(|(holder, _)| holder.process.is_some());
    }
    let mut holders: Vec<Holder> = found.into_iter().map(|(holder, _)| holder).collect();
    holders.dedup();
    holders
}

fn conflicts(held: SocketAddr, wanted: SocketAddr) -> bool {
    let everywhere = held.ip().is_unspecified() && (held.is_ipv6() || wanted.is_ipv4());
    held.port() == wanted.port() && (held.ip() == wanted.ip() || everywhere)
}

/// Finds the owners of sockets by the links in `/proc/<pid>/fd`, of which a process sees those of its own user. Of parent and
/// child it is the parent: a child that is about to become another program has everything for a moment.
fn name_processes(sockets: &mut [(Holder, u64)]) {
    let Ok(processes) = std::fs::read_dir("/proc") else { return };
    for process in processes.flatten() {
        let Ok(pid) = process.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(descriptors) = std::fs::read_dir(process.path().join("fd")) else { continue };
        for target in descriptors.flatten().filter_map(|d| std::fs::read_link(d.path()).ok()) {
            let target = target.to_string_lossy();
            for (holder, inode) in sockets.iter_mut() {
                let is_it = target.strip_prefix("socket:[").and_then(|t| t.strip_suffix(']'))
                    == Some(&inode.to_string());
                let known = holder.process.as_ref().map(|(known, _)| *known);
                if is_it && known.is_none_or(|known| parent_of(known) == Some(pid)) {
                    let name = std::fs::read_to_string(process.path().join("comm")).unwrap_or_default();
                    holder.process = Some((pid, name.trim().to_owned()));
                }
            }
        }
    }
}

fn parent_of(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field, the name in parentheses, may contain blanks; the parent is the fourth.
    stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_parent() {
        assert_eq!(parent_of(std::process::id()), Some(std::os::unix::process::parent_id()));
        assert_eq!(parent_of(0), None);
    }

    #[test]
    fn an_address_is_taken_by_itself_and_by_all() {
        let at = |text: &str| text.parse::<SocketAddr>().unwrap();
        for (held, expected) in [
            ("127.0.0.2:4791", true),
            ("127.0.0.3:4791", false),
            ("127.0.0.2:4792", false),
            ("0.0.0.0:4791", true),
            ("[::]:4791", true),
        ] {
            assert_eq!(conflicts(at(held), at("127.0.0.2:4791")), expected, "{held}");
        }
        assert!(!conflicts(at("0.0.0.0:4791"), at("[::1]:4791")));
    }

    #[test]
    fn the_text_says_who_and_what_to_do() {
        let holder = |ip: &str, uid, process| Holder { address: ip.parse().unwrap(), uid, process };
        let taken = |holders| {
            OpenError::PortTaken { address: "127.0.0.2:4791".parse().unwrap(), holders }.to_string()
        };
        let text = taken(vec![holder("127.0.0.2:4791", 1000, Some((42, "ib_write_lat".to_owned())))]);
        assert!(
            text.contains("process 42 (ib_write_lat) of user 1000") && text.contains("HIGHWIRE_ADDR"),
            "{text}"
        );
        let text = taken(vec![holder("0.0.0.0:4791", 0, None)]);
        assert!(
            text.contains("rdma_rxe") && text.contains("unshare") && text.contains("every address"),
            "{text}"
        );
        assert!(!text.contains("/dev/shm"), "{text}");
        // Another Highwire: its processes, or its broker, are in a container with this network.
        for process in [None, Some((9, "highwire".to_owned()))] {
            let text = taken(vec![holder("127.0.0.2:4791", 0, process)]);
            assert!(text.contains("/dev/shm") && text.contains("HIGHWIRE_ADDR"), "{text}");
            assert!(!text.contains("rdma_rxe"), "{text}");
        }
    }
}
