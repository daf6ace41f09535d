//! The door: other programs of this user get queue pairs and registered memory from this process's device, and call no
//! native code for it.
//!
//! They ask for objects over a Unix-domain socket, and map the objects' files from the device's directory:
//! rings, doorbells and memory (`docs/uapi-server.md`, `docs/java.md`). On the data path this process sees only the
//! rings, which may hold anything.
//!
//! Invariant: a program's objects end with its connection, however that ended.

mod attributes;
mod bells;
mod protocol;
mod session;
mod shares;

pub use protocol::VERSION;

use crate::config::{DeviceConfig, Engine};
use crate::device::Device;
use crate::sys;
use bells::Bells;
use highwire_link::shm::{LocalEngine, Registry};
use protocol::{Kind, MAGIC, Refusal, Request, Status};
use session::Session;
use shares::{Program, Shares};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// The door's name in the device's directory.
pub const DOOR_NAME: &str = "door";
/// Between two attempts to let programs in where no descriptor is left.
const REST: Duration = Duration::from_millis(10);
/// Channels of a session among which closed ones are not looked for.
const CHANNELS_UNSWEPT: usize = 8;

/// An open door. Dropping it ends every session.
pub struct Door {
    shared: Arc<Shared>,
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    device: Device,
    local: Arc<LocalEngine>,
    visitors: Mutex<Visitors>,
    shares: Arc<Shares>,
    bells: Arc<Bells>,
    is_closing: AtomicBool,
}

/// The programs that are connected now.
struct Visitors {
    next: u64,
    /// When the last connection ended, or the door was opened.
    quiet_since: Instant,
    sockets: HashMap<u64, UnixStream>,
    threads: Vec<JoinHandle<()>>,
    /// Where each session's events go, by its token.
    sessions: HashMap<u64, Arc<Channels>>,
}

/// The connections over which a session is told of completions.
#[derive(Default)]
pub(crate) struct Channels(Mutex<Connections>);

#[derive(Default)]
struct Connections {
    last: u64,
    open: HashMap<u64, Arc<UnixStream>>,
    /// How many there may be before those that the program has closed are looked for.
    sweep_at: usize,
}

impl Visitors {
    fn new() -> Visitors {
        Visitors {
            next: 0,
            quiet_since: Instant::now(),
            sockets: HashMap::new(),
            threads: Vec::new(),
            sessions: HashMap::new(),
        }
    }

    fn leave(&mut self, number: u64) {
        self.sockets.remove(&number);
        self.quiet_since = Instant::now();
    }
}

/// Tells a program of a completion in a queue that it armed.
#[derive(Debug)]
pub(crate) struct Bell {
    socket: Arc<UnixStream>,
    word: [u8; 8],
}

impl Bell {
    fn new(socket: Arc<UnixStream>, cq: u64) -> Bell {
        Bell { socket, word: cq.to_le_bytes() }
    }

    pub(crate) fn ring(&self) {
        // A program that arms and never reads fills its own socket; the engine does not wait for it.
        let _ = (&*self.socket).write(&self.word);
    }
}

impl Channels {
    fn add(&self, socket: UnixStream) -> io::Result<u64> {
        socket.set_nonblocking(true)?;
        let mut channels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if channels.open.len() >= channels.sweep_at {
            channels.open.retain(|_, socket| !has_hung_up(socket));
            // As many again may come first, so that looking costs each newcomer the same however many there are.
            channels.sweep_at = 2 * channels.open.len() + CHANNELS_UNSWEPT;
        }
        channels.last += 1;
        let number = channels.last;
        channels.open.insert(number, Arc::new(socket));
        Ok(number)
    }

    /// Channels count from 1.
    fn find(&self, channel: u64) -> Result<Arc<UnixStream>, Refusal> {
        let channels = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        channels.open.get(&channel).cloned().ok_or_else(|| {
            Refusal::new(Status::NoSuchObject, format!("this session has no completion channel {channel}"))
        })
    }
}

/// Whether the program has closed its end. It sends nothing on such a connection.
fn has_hung_up(socket: &Arc<UnixStream>) -> bool {
    match (&**socket).read(&mut [0; 1]) {
        Ok(read) => read == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock && error.kind() != io::ErrorKind::Interrupted,
    }
}

impl Door {
    /// Opens a device's door.
    ///
    /// # Errors
    /// The device has no directory that others can see, or was not opened with [`DeviceConfig::has_door`]; or those of
    /// binding a socket.
    pub fn open(device: &Device) -> io::Result<Door> {
        let has_bells = !device.inner().guests.boards.is_empty();
        let local = device.inner().local.as_ref().filter(|_| has_bells);
        let local = local.ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, "the device keeps its doorbells to itself")
        })?;
        let path = local.directory().join(DOOR_NAME);
        local.guests().welcome();
        let listener = UnixListener::bind(&path)?;
        let shared = Arc::new(Shared {
            device: device.clone(),
            local: Arc::clone(local),
            visitors: Mutex::new(Visitors::new()),
            shares: Shares::new(device.inner().guests.door_share),
            bells: Bells::new(local.directory().to_path_buf()),
            is_closing: AtomicBool::new(false),
        });
        let for_thread = Arc::clone(&shared);
        let thread =
            Builder::new().name("highwire-door".into()).spawn(move || for_thread.accept(&listener))?;
        Ok(Door { shared, path, thread: Some(thread) })
    }

    /// Where programs connect.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Closes the door to newcomers if no program has been connected for `idle`. Otherwise nothing changes, and the answer says how long
    /// that takes at least.
    ///
    /// A program that was about to connect finds no door, or a connection that ends before its first answer; no session is ever ended so.
    pub fn close_if_idle(&self, idle: Duration) -> Option<Duration> {
        let visitors = self.shared.visitors();
        let quiet = visitors.quiet_since.elapsed();
        if !visitors.sockets.is_empty() {
            return Some(idle);
        }
        if quiet < idle {
            return Some(idle - quiet);
        }
        // Wakes the thread that accepts, which finds no door to connect to later. It waits for the lock, and lets no one in behind it.
        let Ok(_waker) = UnixStream::connect(&self.path) else { return Some(idle) };
        self.shared.is_closing.store(true, Ordering::SeqCst);
        let _ = std::fs::remove_file(&self.path);
        None
    }

    /// How many sessions there are.
    pub fn sessions(&self) -> usize {
        self.shared.visitors().sessions.len()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shared.is_closing.store(true, Ordering::SeqCst);
        let _ = UnixStream::connect(&self.path);
        if let Some(thread) = self.thread.take() {
            // If it panicked, its message has been printed already.
            let _ = thread.join();
        }
        let threads = {
            let mut visitors = self.shared.visitors();
            visitors.sockets.values().for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
            std::mem::take(&mut visitors.threads)
        };
        threads.into_iter().for_each(|thread| drop(thread.join()));
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Shared {
    fn visitors(&self) -> MutexGuard<'_, Visitors> {
        self.visitors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accept(self: &Arc<Shared>, listener: &UnixListener) {
        for socket in listener.incoming() {
            if self.is_closing.load(Ordering::SeqCst) {
                return;
            }
            // No descriptor is left, so this program cannot be served yet; it stays in the listener's queue, which is no reason to
            // turn without a rest.
            let Ok(socket) = socket else {
                std::thread::sleep(REST);
                continue;
            };
            let Ok(copy) = socket.try_clone() else { continue };
            let mut visitors = self.visitors();
            if self.is_closing.load(Ordering::SeqCst) {
                return;
            }
            visitors.threads.retain(|thread| !thread.is_finished());
            let number = visitors.next;
            visitors.next += 1;
            visitors.sockets.insert(number, copy);
            let shared = Arc::clone(self);
            let spawned = Builder::new().name("highwire-session".into()).spawn(move || {
                shared.serve(socket);
                shared.visitors().leave(number);
            });
            match spawned {
                Ok(thread) => visitors.threads.push(thread),
                Err(_) => visitors.leave(number),
            }
        }
    }

    /// Serves one connection from its first frame to its end. Any error of the socket counts as the program's
    /// end.
    fn serve(&self, mut socket: UnixStream) {
        let Ok(Some(first)) = Request::read(&mut socket) else { return };
        match self.greet(&first) {
            Ok(Greeting::Session(token)) => {
                let channels = Arc::new(Channels::default());
                self.visitors().sessions.insert(token, Arc::clone(&channels));
                let program = match sys::peer_process(&socket) {
                    Ok(process) if process != 0 => Program::Process(process),
                    _ => Program::Session(token),
                };
                let shares = Arc::clone(&self.shares);
                let mut session =
                    Session::new(&self.device, &self.local, channels, (shares, program), &self.bells);
                if protocol::answer(&mut socket, first.kind, &Ok(self.welcome(token))).is_ok() {
                    while let Ok(Some(request)) = Request::read(&mut socket) {
                        let answer = session.handle(&request);
                        if protocol::answer(&mut socket, request.kind, &answer).is_err() {
                            break;
                        }
                    }
                }
                drop(session);
                self.visitors().sessions.remove(&token);
            }
            Ok(Greeting::Events(channels)) => {
                // The program may arm as soon as it knows the number, so the answer goes first.
                let Ok(mut copy) = socket.try_clone() else { return };
                let number = channels.add(socket);
                let number = number.map(|number| vec![number]).map_err(Refusal::refused);
                let _ = protocol::answer(&mut copy, first.kind, &number);
            }
            Err(refusal) => drop(protocol::answer(&mut socket, first.kind, &Err(refusal))),
        }
    }

    fn greet(&self, first: &Request) -> Result<Greeting, Refusal> {
        match Kind::from_u16(first.kind) {
            Some(Kind::Hello) => {
                let [magic, version] = first.words()?;
                check_version(magic, version)?;
                let token = highwire_link::random_u64().map_err(Refusal::refused)?;
                Ok(Greeting::Session(token))
            }
            Some(Kind::Events) => {
                let [magic, version, token] = first.words()?;
                check_version(magic, version)?;
                let channels = self.visitors().sessions.get(&token).cloned();
                let channels =
                    channels.ok_or_else(|| Refusal::new(Status::NoSuchObject, "there is no such session"))?;
                Ok(Greeting::Events(channels))
            }
            _ => Err(Refusal::new(Status::Malformed, "the first frame must say hello")),
        }
    }

    /// The device's attributes, for a program.
    fn welcome(&self, token: u64) -> Vec<u64> {
        let gid = self.device.gid().0;
        let word =
            |range: std::ops::Range<usize>| u64::from_le_bytes(gid[range].try_into().expect("eight bytes"));
        let board = &self.device.inner().guests.boards[0];
        let limits = self.device.limits();
        vec![
            VERSION,
            token,
            u64::from(std::process::id()),
            word(0..8),
            word(8..16),
            u64::from(board.id()),
            board.window().len() as u64,
            u64::from(highwire_wire::UDP_PORT),
            u64::from(self.device.mtu().bytes()),
            u64::from(limits.max_wr),
            u64::from(limits.max_sge),
            u64::from(limits.max_inline),
            u64::from(limits.max_cqe),
        ]
    }
}

enum Greeting {
    Session(u64),
    Events(Arc<Channels>),
}

fn check_version(magic: u64, version: u64) -> Result<(), Refusal> {
    if magic != MAGIC {
        return Err(Refusal::new(Status::Malformed, "this is the door of a Highwire device"));
    }
    if version != VERSION {
        let text =
            format!("this engine serves version {VERSION} of the mapping, the program wants {version}");
        return Err(Refusal::new(Status::Version, text));
    }
    Ok(())
}

/// Opens a device with a door, says where it is, and serves until the process is told to end, or until no program has been connected for
/// `idle`.
///
/// # Errors
/// The device or its door could not be opened, with words for a person.
pub fn serve(
    config: &DeviceConfig,
    idle: Option<Duration>,
    is_open: impl FnOnce(&Device, &Door),
) -> io::Result<()> {
    let ends = sys::EndSignals::block();
    // A device could do without the registry, over UDP alone; a door cannot, so this reports why it is
    // missing.
    Registry::open().map_err(io::Error::other)?;
    let config = DeviceConfig { has_door: true, engine: Engine::Background, ..config.clone() };
    let device = Device::open(&config).map_err(io::Error::other)?;
    let door = Door::open(&device)?;
    is_open(&device, &door);
    match idle {
        None => {
            ends.wait();
        }
        Some(idle) => {
            let mut rest = idle;
            while !ends.wait_for(rest) {
                match door.close_if_idle(idle) {
                    Some(more) => rest = more,
                    None => break,
                }
            }
        }
    }
    Ok(())
}
