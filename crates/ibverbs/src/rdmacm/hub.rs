//! The state of connection management in this process: one device, one connection manager, all identifiers.
//!
//! One lock guards all of it, that of the host's [`Driver`], whose thread takes arriving messages and watches
//! the clock: nothing here is on the data path. Every call that changes the connection manager calls
//! [`Hub::flush`] afterwards.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use highwire_cm::{CommId, Config, ConnectionManager, Event};
pub(super) use highwire_host::cm::now;
use highwire_host::cm::{Application, Driver};
use highwire_host::{Gsi, GsiError};
use highwire_stdx::Rng;
use highwire_verbs::Gid;
use libc::c_int;

use super::channel::{Channel, Gone};
use super::gsi::Services;
use super::id::Id;
use super::{removal, verbs};
use crate::abi::{ibv_context, ibv_gid, ibv_pd};
use crate::context::Context;
use crate::refusal::refused;
use crate::registry;

/// The device's limits that connections negotiate about.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
}

/// The immutable state, and the lock around the mutable one.
pub(super) struct Hub {
    /// The device as it is now: one that a scenario has taken out comes back as a new one.
    opened: Mutex<&'static Opened>,
    pub(super) gid: Gid,
    pub(super) mtu: u8,
    pub(super) limits: Limits,
    pub(super) gsi: Services,
    driver: Arc<Driver<World>>,
    /// Signalled whenever an event is acknowledged.
    pub(super) acknowledged: Condvar,
}

/// An open device. It stays open while the library is loaded (rdma_get_devices(3)).
pub(super) struct Opened {
    context: Pointer<ibv_context>,
    default_pd: OnceLock<Pointer<ibv_pd>>,
    /// Its place among all devices, and how often it had come back when it was opened.
    pub(super) place: (usize, u32),
}

/// The mutable state.
pub(super) struct World {
    pub(super) cm: ConnectionManager,
    /// Starting PSNs come from it.
    pub(super) rng: Rng,
    /// Every identifier, by the address of its C structure.
    pub(super) ids: HashMap<usize, Id>,
    /// Every event channel, likewise.
    pub(super) channels: HashMap<usize, Channel>,
    /// Channels that were destroyed a moment ago.
    pub(super) gone: VecDeque<Gone>,
    /// The identifier of each conversation.
    pub(super) by_comm: HashMap<CommId, usize>,
    /// The identifiers that listen for a service: one per address.
    pub(super) services: HashMap<u64, Vec<usize>>,
    /// Reserved ports, and the identifiers that hold them.
    pub(super) ports: HashMap<(u16, u16), Vec<usize>>,
    /// Events that applications hold, by address, and the identifier that waits for them to be acknowledged.
    pub(super) held: HashMap<usize, usize>,
    pub(super) limits: Limits,
    /// How many identifiers have got a device.
    pub(super) attached: u64,
    /// The last removal of a device that identifiers were told of.
    pub(super) told: u32,
}

/// An address that C gave and that outlives the process's use of it.
struct Pointer<T>(*mut T);

// SAFETY: verbs' objects may be used from every thread; the pointers are never changed.
unsafe impl<T> Send for Pointer<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Pointer<T> {}

/// The hub, and the process that made it: a child of `fork` has neither its device nor its thread.
static HUB: Mutex<Option<(u32, &'static Hub)>> = Mutex::new(None);

/// The hub, made on first use.
///
/// # Errors
/// ENODEV without a device; what opening it says.
pub(super) fn hub() -> Result<&'static Hub, c_int> {
    let mut slot = HUB.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if let Some((maker, hub)) = *slot
        && maker == process
    {
        return Ok(hub);
    }
    let hub: &'static Hub = Box::leak(Box::new(Hub::open()?));
    *slot = Some((process, hub));
    removal::expect(&hub.driver);
    Ok(hub)
}

impl Hub {
    fn open() -> Result<Hub, c_int> {
        let opened = Opened::new()?;
        let context = opened.context();
        let mut gid = ibv_gid::default();
        // SAFETY: the context is open, and the results are writable.
        verbs::done(unsafe { verbs::ibv_query_gid(context, 1, 0, &mut gid) })?;
        let (mtu, limits) = query(context)?;
        let gsi = Services::open(context)?;
        let guid = u64::from_be_bytes(crate::device::guid(opened.place.0));
        let mut rng =
            highwire_link::secret_rng().map_err(|error| error.raw_os_error().unwrap_or(libc::EIO))?;
        let cm = ConnectionManager::new(Config::new(guid, gsi.shard()), rng.fork(0));
        let world = World {
            cm,
            rng,
            ids: HashMap::new(),
            channels: HashMap::new(),
            gone: VecDeque::new(),
            by_comm: HashMap::new(),
            services: HashMap::new(),
            ports: HashMap::new(),
            held: HashMap::new(),
            limits,
            attached: 0,
            told: 0,
        };
        // Its thread runs as long as the process.
        let (driver, _) = Driver::start(gsi.gsi().clone(), world)
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EAGAIN))?;
        Ok(Hub {
            opened: Mutex::new(opened),
            gid: Gid(gid.raw),
            mtu,
            limits,
            gsi,
            driver,
            acknowledged: Condvar::new(),
        })
    }

    /// The device, opened anew if it has come back since.
    ///
    /// # Errors
    /// ENODEV while a scenario has taken it out.
    pub(super) fn device(&self) -> Result<&'static Opened, c_int> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if removal::has_left(opened.place) {
            *opened = Opened::new()?;
        }
        Ok(*opened)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        self.driver.lock()
    }

    /// Sends pending messages, hands out events, and makes sure that the thread wakes in time.
    pub(super) fn flush(&self, world: &mut World) {
        self.driver.flush(world);
    }

    /// The GID behind an address, as an application typed it.
    ///
    /// # Errors
    /// ENODEV where no device of ours leads there.
    pub(super) fn gid_of(&self, ip: IpAddr) -> Result<Gid, c_int> {
        self.gsi.gsi().gid_of(ip).ok_or_else(|| {
            let own = self.gid.to_ip();
            crate::env::log(|| {
                format!(
                    "{ip} cannot be reached from {own}: set HIGHWIRE_ADDR to an address of this machine that leads there"
                )
            });
            libc::ENODEV
        })
    }
}

impl Opened {
    fn new() -> Result<&'static Opened, c_int> {
        let context = open_device()?;
        let place = |context: &Context| (context.index, context.generation);
        let place = registry::with::<Context, _>(context, place).ok_or(libc::ENODEV)?;
        Ok(Box::leak(Box::new(Opened { context: Pointer(context), default_pd: OnceLock::new(), place })))
    }

    pub(super) fn context(&self) -> *mut ibv_context {
        self.context.0
    }

    /// The protection domain for callers that bring none.
    pub(super) fn default_pd(&self) -> Result<*mut ibv_pd, c_int> {
        if let Some(pd) = self.default_pd.get() {
            return Ok(pd.0);
        }
        // SAFETY: the context is open.
        let pd = verbs::made(unsafe { verbs::ibv_alloc_pd(self.context()) })?;
        // If two threads come here at once, both domains are good, and one of them stays unused.
        Ok(self.default_pd.get_or_init(|| Pointer(pd)).0)
    }
}

impl Application for World {
    fn manager(&mut self) -> &mut ConnectionManager {
        &mut self.cm
    }

    fn on_event(&mut self, gsi: &Gsi, event: Event) {
        super::deliver::dispatch(gsi, self, event);
    }

    fn on_turn(&mut self, gsi: &Gsi) {
        removal::tell(self, gsi);
    }

    fn on_unsent(&mut self, to: Gid, error: &GsiError) {
        crate::env::log(|| format!("a message to {to} is lost: {error}"));
    }
}

impl World {
    /// The identifier at `pointer`, to do something with it.
    ///
    /// # Errors
    /// EINVAL if there is none, EIO if its device was taken out.
    pub(super) fn id<T>(&mut self, pointer: *mut T) -> Result<&mut Id, c_int> {
        let id = self.any_id(pointer)?;
        if id.has_lost_its_device() {
            return Err(refused(libc::EIO, || {
                "the scenario has taken the identifier's device out".to_string()
            }));
        }
        Ok(id)
    }

    /// The identifier at `pointer`, to take it apart.
    ///
    /// # Errors
    /// EINVAL if there is none.
    pub(super) fn any_id<T>(&mut self, pointer: *mut T) -> Result<&mut Id, c_int> {
        self.ids.get_mut(&(pointer as usize)).ok_or(libc::EINVAL)
    }
}

/// The first device of ours.
fn open_device() -> Result<*mut ibv_context, c_int> {
    let mut count = 0;
    // SAFETY: the count is writable; the list is freed below.
    let list = verbs::made(unsafe { verbs::ibv_get_device_list(&mut count) })?;
    let name = crate::env::settings().map(|settings| settings.name.clone()).unwrap_or_default();
    let devices = (0..count.max(0) as usize).map(|n| {
        // SAFETY: the list has `count` devices.
        unsafe { *list.add(n) }
    });
    let is_ours = |device: &*mut crate::abi::ibv_device| {
        // SAFETY: devices live as long as the list, and their names end with a zero.
        let c = unsafe { std::ffi::CStr::from_ptr((**device).name.as_ptr()) };
        c.to_bytes() == name.as_bytes()
    };
    let opened = match devices.into_iter().find(is_ours) {
        // SAFETY: the device is of the list.
        Some(device) => verbs::made(unsafe { verbs::ibv_open_device(device) }),
        None => Err(refused(libc::ENODEV, || format!("{name} is not in the list of devices"))),
    };
    // SAFETY: it came from ibv_get_device_list.
    unsafe { verbs::ibv_free_device_list(list) };
    opened
}

/// The port's MTU code and the device's limits.
fn query(context: *mut ibv_context) -> Result<(u8, Limits), c_int> {
    // SAFETY: zeros are valid attributes, and the context is open.
    let (port, device) = unsafe {
        let mut port: crate::abi::ibv_port_attr = std::mem::zeroed();
        verbs::done(verbs::ibv_query_port(context, 1, &mut port))?;
        let mut device: crate::abi::ibv_device_attr = std::mem::zeroed();
        verbs::done(verbs::ibv_query_device(context, &mut device))?;
        (port, device)
    };
    let byte = |n: c_int| n.clamp(1, 254) as u8;
    let limits = Limits {
        responder_resources: byte(device.max_qp_rd_atom),
        initiator_depth: byte(device.max_qp_init_rd_atom),
    };
    Ok((port.active_mtu.clamp(1, 5) as u8, limits))
}
