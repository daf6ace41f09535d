//! More rules for a scenario that is played: `highwire fault` sends them to a socket of each process whose scenario permits it.
//!
//! The socket lies in the folder that the processes of one user share, which no other user may enter. A message is a piece of a
//! scenario; the answer is empty, or says what is wrong with it.

use super::{Play, lock};
use crate::env;
use highwire_faults::Scenario;
use highwire_host::SignalMask;
use highwire_link::shm::Registry;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::atomic::Ordering;

/// A message is as long as this at most.
const MESSAGE_MAX: usize = 64 * 1024;

/// Starts the thread that takes them, once in each process.
pub(super) fn begin(play: &'static Play) {
    let process = std::process::id();
    if play.orders.swap(process, Ordering::SeqCst) == process {
        return;
    }
    let started = Registry::open().map_err(|error| error.to_string()).and_then(|registry| {
        remove_stale(registry.root());
        let path = registry.root().join(format!("fault-{process}.sock"));
        // A process that had the number before is gone.
        let _ = std::fs::remove_file(&path);
        let socket = UnixDatagram::bind(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let _masked = SignalMask::all();
        let thread = std::thread::Builder::new().name("highwire-orders".into());
        thread.spawn(move || run(play, &socket)).map_err(|error| error.to_string())
    });
    if let Err(error) = started {
        env::say(&format!("the scenario cannot be changed while it is played: {error}"));
    }
}

/// Removes the sockets of processes that are gone.
fn remove_stale(folder: &Path) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_socket = name.starts_with("fault-") && name.ends_with(".sock");
        let refuses = || {
            let connected = UnixDatagram::unbound().and_then(|socket| socket.connect(&path));
            connected.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
        };
        if is_socket && refuses() {
            let _ = std::fs::remove_file(&path);
        }
    }
}

fn run(play: &'static Play, socket: &UnixDatagram) {
    let mut message = vec![0; MESSAGE_MAX];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut message) else { return };
        let answer = carry_out(play, &message[..length]).err().unwrap_or_default();
        // Without the answer the command says that none came.
        let _ = socket.send_to_addr(answer.as_bytes(), &from);
    }
}

fn carry_out(play: &Play, message: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(message).map_err(|_| "it is no text".to_string())?;
    let more = Scenario::read_more("fault", text, lock(&play.course).scenario())
        .map_err(|error| error.to_string())?;
    let paths = more.paths.clone();
    play.ask(|course| {
        course.add(play.now(), more)?;
        play.heed.take(course.scenario());
        Ok::<_, String>(())
    })?;
    play.devices.add_paths(&paths);
    Ok(())
}
