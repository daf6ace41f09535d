//! Finding the broker of an address, or starting it.
//!
//! One lock of the registry makes that free of races: who looks for a broker holds it until connected, and a broker that wants
//! to end takes it first, looks once more whether anybody has come, and removes its socket before letting go.

use super::client::JoinError;
use super::sys;
use highwire_link::shm::Registry;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The environment variable that names the program with the `broker` command.
pub const BROKER_VARIABLE: &str = "HIGHWIRE_BROKER";
const PROGRAM: &str = "highwire";
/// What a broker says when it is ready.
pub(super) const READY: &str = "ready\n";

/// A connection to the broker of `address`, which is started if need be.
pub(super) fn connect(registry: &Registry, address: IpAddr) -> Result<OwnedFd, JoinError> {
    let path = registry.broker_socket(address);
    let _lock = registry.lock_brokers()?;
    match sys::connect(&path) {
        Ok(connection) => return Ok(connection),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ECONNREFUSED)) => {}
        Err(error) => return Err(error.into()),
    }
    reap(registry);
    start(registry, address)?;
    Ok(sys::connect(&path)?)
}

/// Removes what brokers that were killed left behind. Under the lock nobody is between making such a socket and listening.
fn reap(registry: &Registry) {
    for address in registry.shared_gids().unwrap_or_default() {
        let path = registry.broker_socket(address);
        if sys::connect(&path).is_err_and(|error| error.raw_os_error() == Some(libc::ECONNREFUSED)) {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Starts a broker and waits until it is ready.
fn start(registry: &Registry, address: IpAddr) -> Result<(), JoinError> {
    let Some(program) = program() else {
        return Err(JoinError::NoBroker(format!(
            "no program `{PROGRAM}` beside this one or in PATH; {BROKER_VARIABLE} says where it is"
        )));
    };
    let mut command = Command::new(&program);
    command
        .args(["broker", "--address", &address.to_string(), "--registry"])
        .arg(std::path::absolute(registry.root())?)
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    detach_from_us(&mut command);
    let failed = |error: io::Error| JoinError::NoBroker(format!("{}: {error}", program.display()));
    let mut child = command.spawn().map_err(failed)?;
    let mut said = String::new();
    let mut output = child.stdout.take().expect("it is piped");
    output.read_to_string(&mut said).map_err(failed)?;
    // It leaves the work to a child of its own and ends at once. A program that collects all children may be faster.
    let _ = child.wait();
    match said.strip_suffix(READY) {
        Some("") => Ok(()),
        _ if said.is_empty() => {
            Err(JoinError::NoBroker(format!("{} broker: it ended without a word", program.display())))
        }
        _ => Err(JoinError::NoBroker(said.trim_end().to_owned())),
    }
}

#[allow(unsafe_code)]
fn detach_from_us(command: &mut Command) {
    // SAFETY: one system call that touches no memory, between fork and exec.
    unsafe {
        command.pre_exec(|| {
            sys::close_others_on_exec();
            Ok(())
        });
    }
}

/// `HIGHWIRE_BROKER`, or else `highwire` beside this code's file, in the directory above, or in PATH.
fn program() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(BROKER_VARIABLE).filter(|name| !name.is_empty()) {
        return Some(named.into());
    }
    let own = sys::own_file();
    let beside = own.as_deref().and_then(Path::parent);
    let above = beside.and_then(Path::parent);
    let near = beside.into_iter().chain(above).map(|directory| directory.join(PROGRAM));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|directory| directory.join(PROGRAM)).collect::<Vec<_>>();
    near.chain(in_path).find(|program| is_program(program))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
