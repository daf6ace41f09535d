//! Contexts: open devices. All contexts of a process for one entry of the list share one device of `highwire-host`.

use crate::abi::*;
use crate::boundary::{Failure, answer, at_exit, c_api, zeroed_mutex};
use crate::refusal::About;
use crate::registry::{self, Object, Used, Users};
use crate::{device, env, errno, faults, ops, reach, stock};
use highwire_host::{Device, DeviceConfig, EventQueue, EventTarget, Recording};
use highwire_verbs::Gid;
use std::cell::UnsafeCell;
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

/// An open device: C's structure, and the device behind it.
#[repr(C)]
pub(crate) struct Context {
    verbs: UnsafeCell<verbs_context>,
    pub(crate) device: Device,
    /// The device's place in the list.
    pub(crate) index: usize,
    /// How often a scenario had let the device come back before.
    pub(crate) generation: u32,
    /// The asynchronous events of this context's objects.
    pub(crate) events: EventQueue,
    /// Stands for `/dev/infiniband/uverbs0`: a file of its own that can be duplicated and passed on.
    command: CommandFile,
    users: Users,
    _open: Open,
}

// SAFETY: only C writes to `verbs` after it was made, under its own rules; the pointers in it are to objects
// that never move.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Object for Context {
    type C = ibv_context;
    const GARBLED: c_int = libc::EBADF;
    fn as_c(&self) -> *mut ibv_context {
        // SAFETY: the field is within the structure.
        unsafe { &raw mut (*self.verbs.get()).context }
    }
    fn handle(&self) -> u32 {
        // SAFETY: C's structure, which lives as long as the object.
        unsafe { (*self.as_c()).cmd_fd as u32 }
    }
}

impl Used for Context {
    fn users(&self) -> &Users {
        &self.users
    }
}

impl Context {
    fn open(entry: *mut ibv_device) -> Result<Arc<Context>, c_int> {
        let (index, generation) = device::place_of(entry).ok_or(libc::ENODEV)?;
        let open = Open::device(index)?;
        let device = open.device.clone();
        let events = device.event_queue().map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
        let command = CommandFile::create()?;
        let async_fd = events.fd().as_raw_fd();
        let (mutex, _) = zeroed_mutex();
        let context = ibv_context {
            device: entry,
            ops: faults::context_ops(ops::context_ops()),
            cmd_fd: command.as_raw_fd(),
            async_fd,
            num_comp_vectors: 1,
            mutex,
            abi_compat: VERBS_ABI_IS_EXTENDED,
        };
        let verbs = UnsafeCell::new(ops::verbs_context(context));
        let users = Users::default();
        Ok(Arc::new(Context { verbs, device, index, generation, events, command, users, _open: open }))
    }

    /// Whether a scenario has let its device fail.
    #[inline]
    pub(crate) fn is_dead(&self) -> bool {
        faults::may_refuse() && faults::is_dead(self.index, self.generation)
    }

    /// Where events of the object behind `pointer` go.
    pub(crate) fn event_target<T>(&self, pointer: *const T) -> EventTarget<'_> {
        EventTarget { queue: &self.events, tag: crate::boundary::tag(pointer) }
    }
}

/// A device of a process while it is open.
struct InUse {
    index: usize,
    device: Device,
    contexts: usize,
    process: u32,
}

/// The open devices of the process: one, or as many as a scenario has.
static DEVICES: Mutex<Vec<InUse>> = Mutex::new(Vec::new());

fn devices_in_use() -> MutexGuard<'static, Vec<InUse>> {
    let mut devices = DEVICES.lock().unwrap_or_else(PoisonError::into_inner);
    if devices.iter().any(|in_use| in_use.process != std::process::id()) {
        // Inherited through fork: their threads are not here, and their shared memory is the parent's.
        std::mem::forget(std::mem::take(&mut *devices));
    }
    devices
}

/// A device's GID while it is open.
pub(crate) fn open_gid(index: usize) -> Option<Gid> {
    devices_in_use().iter().find(|in_use| in_use.index == index).map(|in_use| in_use.device.gid())
}

/// Tells the report how the open devices stand, if no other thread opens or closes one.
pub(crate) fn report_at_end() {
    for_each_of_ours(crate::report::stands);
}

/// Devices that this process has open, unless another thread holds their list.
fn for_each_of_ours(run: impl Fn(&Device)) {
    if let Ok(devices) = DEVICES.try_lock() {
        let ours = devices.iter().filter(|in_use| in_use.process == std::process::id());
        ours.for_each(|in_use| run(&in_use.device));
    }
}

/// A program may end as soon as it has seen its last message. A card has acknowledged that by then.
fn acknowledge_at_end() {
    extern "C" fn at_end() {
        for_each_of_ours(Device::send_the_last);
    }
    static ASKED: Once = Once::new();
    at_exit(&ASKED, at_end);
}

/// The GIDs of the open devices, and which part of a shared address is this process's.
pub(crate) fn open_places() -> Vec<(Gid, Option<u8>)> {
    devices_in_use().iter().map(|in_use| (in_use.device.gid(), in_use.device.shard())).collect()
}

/// The service level in a UD receive's completion, which tells the kind of packet, as with RoCE cards. Bit 3
/// says UDP, the others the network layer, 1 for IPv6 and 2 for IPv4. UCX takes the length of addresses from
/// it.
static PACKET_KIND: AtomicU8 = AtomicU8::new(0);

/// The kind of packets that the open device receives.
#[inline]
pub(crate) fn packet_kind() -> u8 {
    PACKET_KIND.load(Ordering::Relaxed)
}

/// A reference to the device; the last one closes it.
pub(crate) struct Open {
    device: Device,
    index: usize,
}

impl Open {
    fn device(index: usize) -> Result<Open, c_int> {
        let settings = env::settings().ok_or(libc::ENODEV)?;
        let mut devices = devices_in_use();
        if let Some(in_use) = devices.iter_mut().find(|in_use| in_use.index == index) {
            in_use.contexts += 1;
            return Ok(Open { device: in_use.device.clone(), index });
        }
        let mut config: DeviceConfig = settings.device.clone();
        config.address = device::named_address(index);
        faults::configure(index, &mut config);
        config.capture = config.capture.as_deref().map(|path| capture_of_this_process(path, index));
        config.record = crate::record::recorder()
            .map(|recorder| Recording { recorder, name: device::name(index).to_string() });
        if env::is_loud() {
            highwire_host::log_to(|line| crate::env::log(|| line.to_string()));
        }
        let device = Device::open(&config).map_err(|error| {
            // Programs only report that there is no such device, so the reason is always printed.
            let lines = std::iter::once(error.to_string()).chain(reach::missing());
            lines.for_each(|line| {
                env::say(&line);
                crate::report::note(&line);
                crate::record::note(About::Trouble, 0, &line);
            });
            crate::refusal::was_said();
            errno::of_open(&error)
        })?;
        PACKET_KIND.store(if device.gid().to_ip().is_ipv4() { 0b1010 } else { 0b1001 }, Ordering::Relaxed);
        devices.push(InUse { index, device: device.clone(), contexts: 1, process: std::process::id() });
        crate::report::opened(&device, device::name(index));
        acknowledge_at_end();
        Ok(Open { device, index })
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut devices = devices_in_use();
        if let Some(place) = devices.iter().position(|in_use| in_use.index == self.index) {
            devices[place].contexts -= 1;
            if devices[place].contexts == 0 {
                crate::report::stands(&devices[place].device);
                devices.remove(place);
            }
        }
    }
}

/// The first process writes to the file that was named, others each to one of their own beside it; so do further devices.
fn capture_of_this_process(path: &Path, index: usize) -> PathBuf {
    if index > 0 {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        return path.with_file_name(format!("{name}-{}-{index}.pcap", std::process::id()));
    }
    static HELD: Mutex<Option<(u32, File)>> = Mutex::new(None);
    let process = std::process::id();
    let mut held = HELD.lock().unwrap_or_else(PoisonError::into_inner);
    let file = OpenOptions::new().create(true).append(true).open(path);
    match file {
        Ok(file)
            if held.as_ref().is_some_and(|(holder, _)| *holder == process) || file.try_lock().is_ok() =>
        {
            held.get_or_insert((process, file));
            path.to_path_buf()
        }
        _ => {
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            path.with_file_name(format!("{stem}-{process}.pcap"))
        }
    }
}

/// The file behind `cmd_fd`. No byte is written to it; it tells contexts apart.
#[derive(Debug)]
struct CommandFile {
    fd: Option<OwnedFd>,
    identity: Option<(u64, u64)>,
}

impl CommandFile {
    fn create() -> Result<CommandFile, c_int> {
        let fd = memory_file()?;
        Ok(CommandFile { identity: identity(fd.as_raw_fd()), fd: Some(fd) })
    }
}

impl AsRawFd for CommandFile {
    fn as_raw_fd(&self) -> c_int {
        self.fd.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }
}

impl Drop for CommandFile {
    /// The program may have closed the number, and opened another file under it, which stays open.
    fn drop(&mut self) {
        if let Some(fd) = self.fd.take()
            && identity(fd.as_raw_fd()) != self.identity
        {
            std::mem::forget(fd);
        }
    }
}

fn memory_file() -> Result<OwnedFd, c_int> {
    // SAFETY: the name is a C string.
    let fd = unsafe { libc::memfd_create(c"highwire-uverbs".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EMFILE));
    }
    // SAFETY: it is new, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

c_api! {
    fn ibv_open_device(entry: *mut ibv_device) -> *mut ibv_context {
        if stock::is_device(entry) {
            return stock::open(entry);
        }
        if device::place_of(entry).is_none() {
            return Failure::failure(libc::ENODEV);
        }
        let opened = Context::open(entry).and_then(registry::publish);
        if opened.is_ok() {
            faults::begin();
        }
        answer(opened)
    }

    fn ibv_close_device(context: *mut ibv_context) -> c_int {
        if let Some(result) = stock::close(context) {
            return result;
        }
        if registry::find::<Context>(context).is_err() {
            return crate::boundary::minus_one(Err(libc::EINVAL));
        }
        // Objects made from the context that still live keep it in memory.
        registry::withdraw::<Context>(context);
        0
    }

    fn ibv_import_device(command: c_int) -> *mut ibv_context {
        let same = registry::first::<Context>(|context| is_same_file(context.command.as_raw_fd(), command));
        let entry = same.as_ref().and_then(|context| device::at(context.index));
        answer(match (same, entry) {
            (Some(_), Some(entry)) => Context::open(entry).and_then(registry::publish),
            _ if stock::has_devices() => return stock::import(command),
            // Another process's device cannot be imported: its objects live in that process's memory.
            _ => Err(libc::EOPNOTSUPP),
        })
    }
}

fn is_same_file(one: c_int, other: c_int) -> bool {
    identity(one).is_some() && identity(one) == identity(other)
}

fn identity(fd: c_int) -> Option<(u64, u64)> {
    // SAFETY: a structure of numbers, written by the call.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    (unsafe { libc::fstat(fd, &mut stat) } == 0).then_some((stat.st_dev, stat.st_ino))
}
