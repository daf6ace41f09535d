//! Identifiers: `rdma_cm_id` and what lies behind it.

use std::net::SocketAddr;

use highwire_cm::CommId;
use highwire_verbs::Gid;
use highwire_wire::Psn;
use highwire_wire::cm::{Rep, Req};
use libc::{c_int, c_void};

use super::abi::{
    RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY,
    RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_TOS, RDMA_PS_IB, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP,
    RDMA_UDP_QKEY, rdma_cm_id, rdma_event_channel, rdma_port_space,
};
use super::asked::Asked;
use super::channel::{self, Channel};
use super::endpoint::Template;
use super::hub::{Hub, World, hub};
use super::multicast::Membership;
use crate::abi::{IBV_QPT_RC, IBV_QPT_UD, IBV_QPT_XRC_RECV, ibv_ece, ibv_qp_type, ibv_sa_path_rec};
use crate::boundary::{c_api, c_waits, minus_one};
use crate::cancel;
use crate::refusal::refused;

/// Where an identifier stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Nothing is known.
    Idle,
    /// It has a local address.
    Bound,
    /// It takes requests.
    Listening,
    /// It knows its peer.
    AddressResolved,
    /// It knows the route.
    RouteResolved,
    /// It asks, and waits for the answer.
    Connecting,
    /// A peer has asked for a connection, and this end has not answered.
    Requested,
    /// This end has accepted, or a datagram service was found: it can be used, as far as this end knows.
    Connected,
    /// It is over.
    Disconnected,
}

/// An identifier's state beside C's structure.
pub(super) struct Id {
    /// C's structure. Only calls of the application on this identifier touch it.
    pub(super) c: *mut rdma_cm_id,
    pub(super) phase: Phase,
    pub(super) qp_type: ibv_qp_type,
    pub(super) port_space: rdma_port_space,
    pub(super) channel: usize,
    /// Whether calls wait for their events.
    pub(super) is_synchronous: bool,
    pub(super) route: Route,
    pub(super) exchange: Exchange,
    pub(super) terms: Terms,
    pub(super) options: Options,
    /// The service that it listens for.
    pub(super) service: Option<u64>,
    pub(super) memberships: Vec<Membership>,
    /// The template for queue pairs of connections to a passive endpoint.
    pub(super) template: Option<Template>,
    /// Names that it has asked about, or what they stand for.
    pub(super) asked: Option<Asked>,
    /// The device that it has, from the moment at which it has an address.
    pub(super) attached: Option<Attached>,
    /// Whether it was told that its device is gone.
    pub(super) is_told: bool,
    pub(super) events: Events,
}

/// Between which addresses it is.
#[derive(Default)]
pub(super) struct Route {
    pub(super) source: Option<SocketAddr>,
    pub(super) destination: Option<SocketAddr>,
    pub(super) peer: Gid,
}

/// What it and its peer have said.
#[derive(Default)]
pub(super) struct Exchange {
    /// The conversation with the peer.
    pub(super) comm: Option<CommId>,
    pub(super) request: Option<Box<Req>>,
    pub(super) reply: Option<Box<Rep>>,
}

/// What the two ends of its queue pair go by.
pub(super) struct Terms {
    pub(super) psn: Psn,
    pub(super) qkey: u32,
    pub(super) remote_ece: ibv_ece,
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
    pub(super) retry_count: u8,
}

/// What the application has set.
pub(super) struct Options {
    pub(super) tos: u8,
    pub(super) is_reusable: bool,
    pub(super) is_family_only: bool,
    pub(super) ack_timeout: u8,
    pub(super) local_ece: ibv_ece,
}

/// Events that the application was given, and has given back.
#[derive(Default)]
pub(super) struct Events {
    pub(super) reported: u64,
    pub(super) acknowledged: u64,
}

/// An identifier's device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attached {
    /// Its place among all devices, and how often it had come back.
    pub(super) place: (usize, u32),
    /// Identifiers that got a device earlier have a smaller one.
    pub(super) order: u64,
}

// SAFETY: the pointer is an address to look up and to hand to C; the field `c` says which code may follow it.
unsafe impl Send for Id {}

/// The default timeout for lost packets: 4.096 µs · 2^18 = 1.07 s. Linux takes 19. Highwire's own peers
/// recover by IRN's shorter timeouts; with them this decides when a peer counts as gone.
const ACK_TIMEOUT: u8 = 18;

impl Id {
    pub(super) fn is_datagram(&self) -> bool {
        self.qp_type == IBV_QPT_UD
    }
}

/// Makes an identifier on a channel that exists.
pub(super) fn create(
    world: &mut World,
    channel: usize,
    context: *mut c_void,
    port_space: rdma_port_space,
    qp_type: ibv_qp_type,
) -> *mut rdma_cm_id {
    // SAFETY: zeros are a valid identifier: null pointers and addresses of no family.
    let mut c: Box<rdma_cm_id> = Box::new(unsafe { std::mem::zeroed() });
    c.channel = channel as *mut rdma_event_channel;
    c.context = context;
    c.ps = port_space;
    c.qp_type = qp_type;
    let c = Box::into_raw(c);
    let psn = Psn::new(world.rng.next_u32());
    let id = Id {
        c,
        phase: Phase::Idle,
        qp_type,
        port_space,
        channel,
        is_synchronous: false,
        route: Route::default(),
        exchange: Exchange::default(),
        terms: Terms {
            psn,
            qkey: RDMA_UDP_QKEY,
            remote_ece: ibv_ece::default(),
            responder_resources: 0,
            initiator_depth: 0,
            retry_count: 7,
        },
        options: Options {
            tos: 0,
            is_reusable: false,
            is_family_only: false,
            ack_timeout: ACK_TIMEOUT,
            local_ece: ibv_ece::default(),
        },
        service: None,
        memberships: Vec::new(),
        template: None,
        asked: None,
        attached: None,
        is_told: false,
        events: Events::default(),
    };
    world.ids.insert(c as usize, id);
    c
}

/// The queue pair type that a port space implies.
fn type_of(port_space: rdma_port_space) -> Result<ibv_qp_type, c_int> {
    match port_space {
        RDMA_PS_TCP | RDMA_PS_IB => Ok(IBV_QPT_RC),
        RDMA_PS_UDP | RDMA_PS_IPOIB => Ok(IBV_QPT_UD),
        _ => Err(refused(libc::EINVAL, || {
            format!("ps is {port_space:#x}; it is RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB or RDMA_PS_IPOIB")
        })),
    }
}

/// `rdma_create_id`, with a queue pair type of its own.
pub(super) fn create_on(
    hub: &Hub,
    channel: *mut rdma_event_channel,
    context: *mut c_void,
    port_space: rdma_port_space,
    qp_type: Option<ibv_qp_type>,
) -> Result<*mut rdma_cm_id, c_int> {
    let implied = type_of(port_space)?;
    let qp_type = qp_type.unwrap_or(implied);
    if !(IBV_QPT_RC..=IBV_QPT_UD).contains(&qp_type) && !(9..=IBV_QPT_XRC_RECV).contains(&qp_type) {
        return Err(libc::EINVAL);
    }
    let mut world = hub.lock();
    let is_synchronous = channel.is_null();
    let channel = if is_synchronous { Channel::create(&mut world)? } else { channel as usize };
    if !world.channels.contains_key(&channel) {
        return Err(refused(libc::EINVAL, || {
            "the event channel is none of this library, or was destroyed".to_string()
        }));
    }
    let c = create(&mut world, channel, context, port_space, qp_type);
    world.id(c)?.is_synchronous = is_synchronous;
    Ok(c)
}

/// Takes an identifier apart. Waits until all its events are acknowledged.
pub(super) fn destroy(hub: &Hub, c: *mut rdma_cm_id) -> Result<(), c_int> {
    let mut world = hub.lock();
    let own_event = {
        let id = world.any_id(c)?;
        // SAFETY: the identifier is alive, and this call is the application's on it.
        let event = unsafe { std::mem::replace(&mut (*id.c).event, std::ptr::null_mut()) };
        if id.is_synchronous || world.held.contains_key(&(event as usize)) {
            event
        } else {
            std::ptr::null_mut()
        }
    };
    drop(world);
    if !own_event.is_null() {
        channel::acknowledge(hub, own_event)?;
    }
    super::multicast::leave_all(hub, c);
    let mut world = hub.lock();
    // From here on the identifier gets no more events.
    channel::discard(&mut world, c as usize);
    super::listen::stop(hub, &mut world, c as usize);
    let id = world.any_id(c)?;
    if let Some(comm) = id.exchange.comm.take() {
        world.by_comm.remove(&comm);
        super::gsi::say(hub.gsi.gsi().revoke_last_message(comm.0));
        world.cm.release(super::hub::now(), comm);
    }
    hub.flush(&mut world);
    while world.ids.get(&(c as usize)).is_some_and(|id| id.events.acknowledged < id.events.reported) {
        let waited = hub.acknowledged.wait_timeout(world, cancel::PART);
        let timeout;
        (world, timeout) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        if timeout.timed_out() && cancel::end_part() {
            return Err(libc::EAGAIN);
        }
    }
    let Some(id) = world.ids.remove(&(c as usize)) else { return Err(libc::EINVAL) };
    if id.is_synchronous {
        Channel::destroy(&mut world, id.channel);
    }
    drop(world);
    // SAFETY: it was made by `create`, is in no table any more, and its route likewise.
    unsafe {
        let c = Box::from_raw(id.c);
        if !c.route.path_rec.is_null() {
            drop(Box::from_raw(c.route.path_rec.cast::<ibv_sa_path_rec>()));
        }
    }
    Ok(())
}

/// Moves an identifier and its waiting events to another channel, or to one of its own.
pub(super) fn migrate(hub: &Hub, c: *mut rdma_cm_id, to: *mut rdma_event_channel) -> Result<(), c_int> {
    let mut world = hub.lock();
    let (from, was_synchronous, event) = {
        let id = world.id(c)?;
        // SAFETY: the identifier is alive, and this call is the application's on it.
        (id.channel, id.is_synchronous, unsafe { (*id.c).event })
    };
    let is_synchronous = to.is_null();
    if is_synchronous && was_synchronous {
        return Err(libc::EINVAL);
    }
    let to = if is_synchronous { Channel::create(&mut world)? } else { to as usize };
    if !world.channels.contains_key(&to) {
        return Err(libc::EINVAL);
    }
    if was_synchronous && !event.is_null() {
        // SAFETY: as above.
        unsafe { (*c).event = std::ptr::null_mut() };
        drop(world);
        channel::acknowledge(hub, event)?;
        world = hub.lock();
    }
    // A thread that holds an event of the old channel has to give it back first.
    while world.ids.get(&(c as usize)).is_some_and(|id| id.events.acknowledged < id.events.reported) {
        let waited = hub.acknowledged.wait_timeout(world, cancel::PART);
        let timeout;
        (world, timeout) = waited.unwrap_or_else(std::sync::PoisonError::into_inner);
        if timeout.timed_out() && cancel::end_part() {
            return Err(libc::EAGAIN);
        }
    }
    channel::hand_over(&mut world, c as usize, from, to);
    let id = world.id(c)?;
    (id.channel, id.is_synchronous) = (to, is_synchronous);
    // SAFETY: as above.
    unsafe { (*c).channel = to as *mut rdma_event_channel };
    if was_synchronous {
        Channel::destroy(&mut world, from);
    }
    Ok(())
}

fn set_option(c: *mut rdma_cm_id, level: c_int, name: c_int, value: &[u8]) -> Result<(), c_int> {
    let byte = || value.first().copied().filter(|_| value.len() == 1).ok_or(libc::EINVAL);
    let flag =
        || <[u8; 4]>::try_from(value).map(|bytes| c_int::from_ne_bytes(bytes) != 0).map_err(|_| libc::EINVAL);
    let mut world = hub()?.lock();
    let id = world.id(c)?;
    match (level, name) {
        (RDMA_OPTION_ID, RDMA_OPTION_ID_TOS) => id.options.tos = byte()?,
        (RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR) => id.options.is_reusable = flag()?,
        (RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY) => id.options.is_family_only = flag()?,
        (RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT) => {
            id.options.ack_timeout = byte().and_then(|n| if n < 32 { Ok(n) } else { Err(libc::EINVAL) })?;
        }
        // There is one path to every destination, so the path's contents do not matter, but they must be well
        // formed.
        (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) if !value.is_empty() && value.len().is_multiple_of(72) => {}
        (RDMA_OPTION_IB, RDMA_OPTION_IB_PATH) => return Err(libc::EINVAL),
        _ => return Err(libc::ENOSYS),
    }
    Ok(())
}

c_api! {
    fn rdma_create_id(
        channel: *mut rdma_event_channel,
        id: *mut *mut rdma_cm_id,
        context: *mut c_void,
        ps: rdma_port_space,
    ) -> c_int {
        minus_one((|| {
            if id.is_null() {
                return Err(libc::EINVAL);
            }
            *id = create_on(hub()?, channel, context, ps, None)?;
            Ok(())
        })())
    }

    fn rdma_set_option(
        id: *mut rdma_cm_id,
        level: c_int,
        optname: c_int,
        optval: *mut c_void,
        optlen: usize,
    ) -> c_int {
        if optval.is_null() || optlen > 1 << 16 {
            return minus_one(Err(libc::EINVAL));
        }
        minus_one(set_option(id, level, optname, std::slice::from_raw_parts(optval.cast(), optlen)))
    }

    fn rdma_get_src_port(id: *mut rdma_cm_id) -> u16 {
        hub().ok().and_then(|hub| hub.lock().id(id).ok()?.route.source).map_or(0, |address| address.port().to_be())
    }

    fn rdma_get_dst_port(id: *mut rdma_cm_id) -> u16 {
        hub().ok().and_then(|hub| hub.lock().id(id).ok()?.route.destination).map_or(0, |address| address.port().to_be())
    }

    fn rdma_set_local_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
        minus_one((|| {
            let ece = crate::boundary::input(ece)?;
            // Only a vendor and its options can be set.
            if ece.vendor_id == 0 || ece.vendor_id >> 24 != 0 || ece.comp_mask != 0 {
                return Err(libc::EINVAL);
            }
            hub()?.lock().id(id)?.options.local_ece = ece;
            Ok(())
        })())
    }

    fn rdma_get_remote_ece(id: *mut rdma_cm_id, ece: *mut ibv_ece) -> c_int {
        minus_one((|| {
            if ece.is_null() {
                return Err(libc::EINVAL);
            }
            *ece = hub()?.lock().id(id)?.terms.remote_ece;
            Ok(())
        })())
    }
}

c_waits! {
    fn rdma_destroy_id(id: *mut rdma_cm_id) -> c_int |_: &mut ()| {
        minus_one(hub().and_then(|hub| destroy(hub, id)))
    }

    fn rdma_migrate_id(id: *mut rdma_cm_id, channel: *mut rdma_event_channel) -> c_int |_: &mut ()| {
        minus_one(hub().and_then(|hub| migrate(hub, id, channel)))
    }
}
