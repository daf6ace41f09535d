//! The cluster's key: 256 random bits that all nodes have, in a file for their owner only or in a variable.

use super::random;
use crate::config::{ClusterConfig, NodeConfig};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::ToSocketAddrs as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Takes the place of the file.
const VARIABLE: &str = "HIGHWIRE_STORE_KEY";
const DIGITS: usize = 64;
const OTHERS: u32 = 0o077;

/// Makes a key, in a file that must not be there yet.
///
/// # Errors
/// The file is there or cannot be written; the system has no random numbers.
pub fn make_key(path: &Path) -> io::Result<()> {
    let key: [u8; 32] = random()?;
    let text: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(format!("{text}\n").as_bytes())?;
    file.sync_all()
}

/// A cluster's key, if it has one.
pub(crate) fn of(config: &ClusterConfig) -> Result<Option<[u8; 32]>, String> {
    if let Some(text) = std::env::var_os(VARIABLE) {
        let key = text.to_str().and_then(parse);
        return key.map(Some).ok_or_else(|| format!("{VARIABLE} is no key: {DIGITS} hexadecimal digits"));
    }
    config.key.as_deref().map(read).transpose()
}

fn read(path: &Path) -> Result<[u8; 32], String> {
    let fail = |what: &dyn std::fmt::Display| format!("the cluster's key {}: {what}", path.display());
    let file = File::open(path).map_err(|error| fail(&error))?;
    let mode = file.metadata().map_err(|error| fail(&error))?.mode();
    if mode & OTHERS != 0 {
        return Err(fail(&format_args!(
            "others may read or write it (mode {:03o}): chmod 600",
            mode & 0o777
        )));
    }
    let mut text = String::new();
    file.take(4096).read_to_string(&mut text).map_err(|error| fail(&error))?;
    parse(text.trim_end()).ok_or_else(|| fail(&format_args!("it holds no {DIGITS} hexadecimal digits")))
}

fn parse(text: &str) -> Option<[u8; 32]> {
    if text.len() != DIGITS || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut key = [0; 32];
    for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(key)
}

/// Whether a node without a key is out of others' reach.
pub(crate) fn check_loopback(own: &NodeConfig) -> Result<(), String> {
    let advice = "a cluster without a key listens on loopback addresses only; make one with `highwire store key FILE`, \
                  copy it to all nodes, and name it in the cluster's file: key = \"FILE\"";
    if let Some(address) = own.address.filter(|address| !address.to_canonical().is_loopback()) {
        return Err(format!("node {} has the address {address}: {advice}", own.id));
    }
    // What cannot be resolved cannot be bound either, and that error is the better one.
    let mut addresses = own.door.to_socket_addrs().into_iter().flatten();
    match addresses.find(|address| !address.ip().to_canonical().is_loopback()) {
        Some(address) => Err(format!("node {} listens at {address}: {advice}", own.id)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fresh::fresh_name;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    fn node(door: &str, address: Option<&str>) -> NodeConfig {
        let address = address.map(|address| address.parse().expect("an address"));
        NodeConfig { id: 0, door: door.into(), address, data: None }
    }

    #[test]
    fn a_key_is_for_its_owner_and_is_read_as_it_was_made() {
        let folder = std::env::temp_dir().join(format!("highwire-key-{}", fresh_name().expect("a name")));
        fs::create_dir_all(&folder).expect("a folder");
        let path = folder.join("cluster.key");
        make_key(&path).expect("made");
        let key = read(&path).expect("a key");
        assert_ne!(key, [0; 32]);
        assert!(make_key(&path).is_err(), "a key is not replaced");
        assert_eq!(read(&path), Ok(key));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
        assert!(read(&path).expect_err("others may read it").contains("chmod 600"));
        for wrong in ["", "12", &"g".repeat(64), &"1".repeat(63), &"1".repeat(66), &"+1".repeat(32)] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        fs::remove_dir_all(&folder).expect("removed");
    }

    #[test]
    fn without_a_key_a_node_listens_on_loopback_only() {
        for door in ["127.0.0.1:7400", "localhost:7400", "[::1]:7400"] {
            assert_eq!(check_loopback(&node(door, None)), Ok(()), "{door}");
        }
        assert_eq!(check_loopback(&node("127.0.0.1:1", Some("127.1.2.3"))), Ok(()));
        for (door, address) in
            [("0.0.0.0:7400", None), ("192.0.2.1:7400", None), ("127.0.0.1:1", Some("192.0.2.1"))]
        {
            let error = check_loopback(&node(door, address)).expect_err(door);
            assert!(error.contains("highwire store key"), "{error}");
        }
    }
}
