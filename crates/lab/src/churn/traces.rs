//! The traces of an address after all processes have gone.

use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use highwire_link::shm::Registry;

/// A broker ends two seconds after the last process; a busy machine may take longer over it.
const BROKER_PATIENCE: Duration = Duration::from_secs(20);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);
const PORTS: [u16; 2] = [4791, 4794];

/// Files, sockets and processes of an address that are still there when its broker should be gone.
pub(super) fn of(address: IpAddr) -> Result<Vec<String>> {
    let registry = Registry::open()?;
    let deadline = Instant::now() + BROKER_PATIENCE;
    loop {
        let left = look(registry.root(), address)?;
        if left.is_empty() || Instant::now() > deadline {
            return Ok(left);
        }
        std::thread::sleep(LOOK_INTERVAL);
    }
}

fn look(root: &Path, address: IpAddr) -> Result<Vec<String>> {
    let mut left = Vec::new();
    let is_ours = |name: &str| {
        let name = name.trim_start_matches("broker-").trim_start_matches("stats-").trim_end_matches('+');
        name.split('@').next() == Some(&address.to_string())
    };
    for entry in std::fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_ours) {
            left.push(entry.path().display().to_string());
        }
    }
    left.extend(sockets(address));
    left.extend(brokers(address));
    Ok(left)
}

/// Bound sockets, as the kernel lists them: addresses as machine words in hexadecimal.
fn sockets(address: IpAddr) -> Vec<String> {
    let IpAddr::V4(v4) = address else { return Vec::new() };
    let table = std::fs::read_to_string("/proc/net/udp").unwrap_or_default();
    let word = u32::from_ne_bytes(v4.octets());
    let ports = PORTS.iter().filter(|port| table.contains(&format!(" {word:08X}:{port:04X} ")));
    ports.map(|port| format!("UDP {address}:{port}")).collect()
}

fn brokers(address: IpAddr) -> Vec<String> {
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let mut brokers = Vec::new();
    for process in processes.flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        let has = |word: &str| words.contains(&word.as_bytes());
        if has("broker") && has(&address.to_string()) {
            brokers.push(format!("broker {}", process.file_name().to_string_lossy()));
        }
    }
    brokers
}
