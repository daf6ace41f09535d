//! Finds the broker of an address, or starts it.
//!
//! One lock of the registry for each address prevents races: a client that looks for a broker holds it until
//! it is connected. A broker that wants to end takes the lock first, looks once more for new clients, and
//! removes its socket before it releases the lock. A client that waits for a change releases the lock
//! meanwhile.

use super::error::JoinError;
use super::socket_store::SocketStore;
use super::sys;
use highwire_link::environment;
use highwire_link::shm::Registry;
use highwire_link::shm::stats;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The environment variable that names the program with the `broker` command.
pub const BROKER_VARIABLE: &str = "HIGHWIRE_BROKER";
const PROGRAM: &str = "highwire";
/// The line that a broker prints when it is ready.
pub(super) const READY: &str = "ready\n";

/// How long a newcomer waits until the sharers of an address have restored its broker, and how often it
/// looks. The sharers need a moment; on a busy machine each of them may wait for a processor.
pub(super) const SUCCESSION_MAX: Duration = Duration::from_secs(20);
pub(super) const LOOK_INTERVAL: Duration = Duration::from_millis(20);
/// How long a killed process may take to lose its sockets.
const EXIT_MAX: Duration = Duration::from_secs(2);

/// Connects to the broker of `address`, which is started if there is none.
pub(super) fn connect(registry: &Registry, address: IpAddr) -> Result<OwnedFd, JoinError> {
    let path = registry.broker_socket(address);
    let begun = Instant::now();
    let mut was_killed = false;
    loop {
        let lock = registry.lock_broker(address)?;
        if let Some(connection) = try_connect(&path)? {
            return Ok(connection);
        }
        was_killed |= path.exists();
        let sharers = sharers_of(registry, address);
        let is_late = begun.elapsed() > SUCCESSION_MAX;
        // Only the sharers can start the next broker: they have the sockets.
        if sharers.is_empty() || is_late {
            reap(registry, address);
            match start(registry, address, None) {
                Ok(()) => match try_connect(&path)? {
                    Some(connection) => return Ok(connection),
                    None if is_late => {
                        return Err(JoinError::NoBroker("each one ends as soon as it has begun".into()));
                    }
                    None => was_killed = true,
                },
                Err(JoinError::NoBroker(_)) if !sharers.is_empty() => {
                    return Err(JoinError::NoBroker(abandoned(address, &sharers)));
                }
                // Its sockets may stay for a moment longer than itself.
                Err(_) if was_killed && begun.elapsed() < EXIT_MAX => {}
                Err(error) => return Err(error),
            }
        }
        drop(lock);
        std::thread::sleep(LOOK_INTERVAL);
    }
}

fn abandoned(address: IpAddr, sharers: &[u32]) -> String {
    let pids: Vec<String> = sharers.iter().map(u32::to_string).collect();
    format!(
        "the broker of {address} was killed, and those who share the address do not bring it back: process {}. \
         Let them go on if they are stopped, or end them",
        pids.join(", ")
    )
}

/// Connects to the successor of a broker that was killed. If there is none yet, starts it with the former
/// one's socket store.
pub(super) fn reconnect(
    registry: &Registry,
    address: IpAddr,
    socket_store: &SocketStore,
) -> io::Result<OwnedFd> {
    let path = registry.broker_socket(address);
    let _lock = registry.lock_broker(address)?;
    if let Some(connection) = try_connect(&path)? {
        return Ok(connection);
    }
    start(registry, address, Some(socket_store)).map_err(|error| match error {
        JoinError::Io(error) => error,
        other => io::Error::other(other),
    })?;
    sys::connect(&path)
}

/// `None` if no broker listens there.
fn try_connect(path: &Path) -> io::Result<Option<OwnedFd>> {
    match sys::connect(path) {
        Ok(connection) => Ok(Some(connection)),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ECONNREFUSED)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// The living processes that share an address.
fn sharers_of(registry: &Registry, address: IpAddr) -> Vec<u32> {
    let sharers = stats::sharing(registry, address).unwrap_or_default();
    sharers.into_iter().map(|device| device.pid).collect()
}

/// Removes the sockets of brokers that were killed: that of `own` and those that no client looks for right
/// now. Under the lock no broker is between making such a socket and listening.
fn reap(registry: &Registry, own: IpAddr) {
    for address in registry.shared_gids().unwrap_or_default() {
        let is_own = address == own.to_canonical();
        let lock = if is_own { None } else { registry.try_lock_broker(address).ok().flatten() };
        if !is_own && lock.is_none() {
            continue;
        }
        let path = registry.broker_socket(address);
        let is_dead =
            sys::connect(&path).is_err_and(|error| error.raw_os_error() == Some(libc::ECONNREFUSED));
        // While a process that shares the address lives, it will start another broker.
        if is_dead && sharers_of(registry, address).is_empty() {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Starts a broker, the first or the next, and waits until it is ready.
fn start(registry: &Registry, address: IpAddr, socket_store: Option<&SocketStore>) -> Result<(), JoinError> {
    let Some(program) = program() else {
        return Err(JoinError::NoBroker(format!(
            "no program `{PROGRAM}` beside this one or in PATH; {BROKER_VARIABLE} says where it is"
        )));
    };
    let parcel = socket_store.map(SocketStore::parcel).transpose()?;
    let mut command = Command::new(&program);
    command
        .args(["broker", "--address", &address.to_string(), "--registry"])
        .arg(std::path::absolute(registry.root())?)
        .args(parcel.as_ref().map(|_| "--succeed"))
        .env_remove("LD_PRELOAD")
        .stdin(parcel.map_or_else(Stdio::null, Stdio::from))
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if environment::is_privileged() {
        command.env_clear();
    }
    detach_from_us(&mut command);
    let failed = |source: io::Error| JoinError::Start { program: program.clone(), source };
    let mut child = command.spawn().map_err(failed)?;
    let mut said = String::new();
    let mut output = child.stdout.take().expect("it is piped");
    output.read_to_string(&mut said).map_err(failed)?;
    // The program leaves the work to a child of its own and ends at once. A program that collects all
    // children may be faster.
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
    if let Some(named) = environment::variable(BROKER_VARIABLE) {
        return Some(named.into());
    }
    let own = sys::own_file();
    let beside = own.as_deref().and_then(Path::parent);
    let above = beside.and_then(Path::parent);
    let near = beside.into_iter().chain(above).map(|directory| directory.join(PROGRAM));
    let path = environment::variable("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|directory| directory.join(PROGRAM)).collect::<Vec<_>>();
    near.chain(in_path).find(|program| is_program(program))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
