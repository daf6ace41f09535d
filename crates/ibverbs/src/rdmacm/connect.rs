//! Making and ending connections, and finding datagram services.

use highwire_cm::CallError;
use highwire_host::Gsi;
use highwire_wire::Qpn;
use highwire_wire::cm::{
    CmPath, IpCm, LID_NONE, RejectReason, Rep, Req, SidrRep, SidrReq, SidrStatus, TransportType,
};
use libc::{c_int, c_void};

use super::abi::{RDMA_CM_EVENT_USER, rdma_cm_event_type, rdma_cm_id, rdma_conn_param};
use super::channel::{in_steps, push};
use super::deliver::What;
use super::gsi::say;
use super::hub::{Hub, World, hub, now};
use super::id::{Id, Phase};
use super::{attributes, resolve, verbs};
use crate::abi::{
    IBV_EVENT_COMM_EST, IBV_QPS_RTR, IBV_QPS_RTS, IBV_QPT_UC, IBV_QPT_XRC_RECV, IBV_QPT_XRC_SEND, ibv_ece,
    ibv_event_type, ibv_qp,
};
use crate::boundary::{c_api, c_waits, input, minus_one};
use crate::refusal::refused;

/// Code of the packet rate in a REQ: 10 Gb/s. A software RNIC has no fixed rate, and no peer uses the field.
const PACKET_RATE: u8 = 3;
const RETRIES: u8 = 7;

/// Parameters of a connection, as the application gave them.
struct Parameters {
    c: Option<rdma_conn_param>,
    private_data: Vec<u8>,
}

impl Parameters {
    /// # Safety
    /// `param` is null or valid, and its private data as long as it says.
    unsafe fn read(param: *const rdma_conn_param, room: usize) -> Result<Parameters, c_int> {
        if param.is_null() {
            return Ok(Parameters { c: None, private_data: Vec::new() });
        }
        // SAFETY: the caller's promise.
        let c = unsafe { input(param) }?;
        // SAFETY: the caller's promise.
        let private_data = unsafe { bytes(c.private_data, c.private_data_len) }?;
        if private_data.len() > room {
            let asked = private_data.len();
            return Err(refused(libc::EINVAL, || {
                format!("private_data_len is {asked}; at most {room} fit here")
            }));
        }
        Ok(Parameters { c: Some(c), private_data: private_data.to_vec() })
    }
}

/// Private data.
///
/// # Safety
/// `data` is null or `length` bytes long.
unsafe fn bytes<'a>(data: *const c_void, length: u8) -> Result<&'a [u8], c_int> {
    if length == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(libc::EINVAL);
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(data.cast(), usize::from(length)) })
}

/// `bytes` and zeros behind them.
fn padded<const N: usize>(parts: &[&[u8]]) -> Result<[u8; N], c_int> {
    let (mut padded, mut at) = ([0; N], 0);
    for part in parts {
        padded.get_mut(at..at + part.len()).ok_or(libc::EINVAL)?.copy_from_slice(part);
        at += part.len();
    }
    Ok(padded)
}

fn errno(error: CallError) -> c_int {
    match error {
        CallError::UnknownId | CallError::WrongState => refused(libc::EINVAL, || {
            "the connection is not in the state for this: it has ended, or was answered already".to_string()
        }),
        CallError::TooLong => refused(libc::EINVAL, || "the private data is too long".to_string()),
        CallError::ServiceInUse => {
            refused(libc::EADDRINUSE, || "another listener has this service".to_string())
        }
    }
}

/// The queue pair of an identifier, if it has one.
///
/// # Safety
/// `c` is an identifier that is alive.
unsafe fn queue_pair(c: *mut rdma_cm_id) -> Option<*mut ibv_qp> {
    // SAFETY: the caller's promise.
    let qp = unsafe { (*c).qp };
    (!qp.is_null()).then_some(qp)
}

/// The number that peers are to know the queue pair by, and whether it has a shared receive queue.
fn number_of(c: *mut rdma_cm_id, parameters: &Parameters) -> (Qpn, bool) {
    // SAFETY: the identifier was looked up, and this call is the application's on it.
    match unsafe { queue_pair(c) } {
        // SAFETY: the queue pair is the identifier's.
        Some(qp) => unsafe { (Qpn::new((*qp).qp_num), !(*qp).srq.is_null()) },
        None => parameters.c.map_or((Qpn::default(), false), |c| (Qpn::new(c.qp_num), c.srq != 0)),
    }
}

/// The addresses that a request carries.
fn addresses(id: &Id) -> Result<[u8; IpCm::LEN], c_int> {
    let (source, destination) =
        (id.route.source.ok_or(libc::EINVAL)?, id.route.destination.ok_or(libc::EINVAL)?);
    let header = IpCm { source_port: source.port(), source: source.ip(), destination: destination.ip() };
    Ok(header.emit())
}

/// This end's options beyond the standard, from the application or the queue pair.
fn local_ece(c: *mut rdma_cm_id, id: &Id) -> ibv_ece {
    let mut ece = id.options.local_ece;
    // SAFETY: as in `number_of`.
    let qp = unsafe { queue_pair(c) };
    if ece.vendor_id == 0
        && let Some(qp) = qp
        // SAFETY: the queue pair is the identifier's, and the result is writable.
        && unsafe { verbs::ibv_query_ece(qp, &mut ece) } != 0
    {
        ece = ibv_ece::default();
    }
    ece
}

fn connect(hub: &Hub, c: *mut rdma_cm_id, param: *const rdma_conn_param) -> Result<(), c_int> {
    let is_datagram = {
        let mut world = hub.lock();
        let id = world.id(c)?;
        if id.phase != Phase::RouteResolved {
            let reason = || {
                "rdma_resolve_addr and rdma_resolve_route come first, each with its event; once only".into()
            };
            return Err(refused(libc::EINVAL, reason));
        }
        id.is_datagram()
    };
    let room = if is_datagram { SidrReq::PRIVATE_LEN } else { Req::PRIVATE_LEN } - IpCm::LEN;
    // SAFETY: rdma_connect(3) says what the parameters are.
    let parameters = unsafe { Parameters::read(param, room) }?;
    let mut world = hub.lock();
    let comm = if is_datagram {
        let id = world.id(c)?;
        let service = resolve::service_of(id, id.route.destination.map_or(0, |to| to.port()));
        let data: [u8; SidrReq::PRIVATE_LEN] = padded(&[&addresses(id)?, &parameters.private_data])?;
        let peer = id.route.peer;
        world.cm.ask_service(now(), peer, service, 0xFFFF, &data).map_err(errno)?
    } else {
        let ece = local_ece(c, world.id(c)?);
        let request = request(hub, c, world.id(c)?, &parameters, &ece)?;
        let peer = world.id(c)?.route.peer;
        world.cm.connect(now(), peer, &request, ece.options)
    };
    let id = world.id(c)?;
    (id.exchange.comm, id.phase, id.exchange.reply) = (Some(comm), Phase::Connecting, None);
    world.by_comm.insert(comm, c as usize);
    hub.flush(&mut world);
    Ok(())
}

fn request(
    hub: &Hub,
    c: *mut rdma_cm_id,
    id: &mut Id,
    parameters: &Parameters,
    ece: &ibv_ece,
) -> Result<Req, c_int> {
    let (qpn, has_srq) = number_of(c, parameters);
    let given = parameters.c;
    id.terms.responder_resources =
        attributes::depth(given.map_or(u8::MAX, |g| g.responder_resources), hub.limits.responder_resources);
    id.terms.initiator_depth =
        attributes::depth(given.map_or(u8::MAX, |g| g.initiator_depth), hub.limits.initiator_depth);
    id.terms.retry_count = given.map_or(RETRIES, |g| g.retry_count.min(RETRIES));
    let primary = CmPath {
        local_lid: LID_NONE,
        remote_lid: LID_NONE,
        local_gid: hub.gid.0,
        remote_gid: id.route.peer.0,
        flow_label: id.terms.psn.value() & 0xF_FFFF,
        packet_rate: PACKET_RATE,
        traffic_class: id.options.tos,
        hop_limit: 64,
        service_level: 0,
        is_subnet_local: false,
        local_ack_timeout: id.options.ack_timeout,
    };
    Ok(Req {
        local_id: 0,
        ece_vendor: ece.vendor_id,
        service_id: resolve::service_of(id, id.route.destination.map_or(0, |to| to.port())),
        ca_guid: 0,
        qkey: 0,
        qpn,
        responder_resources: id.terms.responder_resources,
        initiator_depth: id.terms.initiator_depth,
        remote_response_timeout: 0,
        transport: match id.qp_type {
            IBV_QPT_UC => TransportType::Uc,
            IBV_QPT_XRC_SEND | IBV_QPT_XRC_RECV => TransportType::Xrc,
            _ => TransportType::Rc,
        },
        has_flow_control: given.is_some_and(|g| g.flow_control != 0),
        starting_psn: id.terms.psn,
        local_response_timeout: 0,
        retry_count: id.terms.retry_count,
        pkey: 0xFFFF,
        path_mtu: hub.mtu,
        rnr_retry_count: given.map_or(RETRIES, |g| g.rnr_retry_count.min(RETRIES)),
        max_cm_retries: 0,
        has_srq,
        primary,
        alternate: CmPath::default(),
        private_data: padded(&[&addresses(id)?, &parameters.private_data])?,
    })
}

fn accept(hub: &Hub, c: *mut rdma_cm_id, param: *const rdma_conn_param) -> Result<(), c_int> {
    let (comm, is_datagram) = {
        let mut world = hub.lock();
        let id = world.id(c)?;
        if id.phase != Phase::Requested {
            let reason = || {
                "only the id of a RDMA_CM_EVENT_CONNECT_REQUEST is accepted, once; the listener's own is not"
                    .into()
            };
            return Err(refused(libc::EINVAL, reason));
        }
        (id.exchange.comm.ok_or(libc::EINVAL)?, id.is_datagram())
    };
    let room = if is_datagram { SidrRep::PRIVATE_LEN } else { Rep::PRIVATE_LEN };
    // SAFETY: rdma_accept(3) says what the parameters are.
    let parameters = unsafe { Parameters::read(param, room) }?;
    let (qpn, has_srq) = number_of(c, &parameters);
    if is_datagram {
        let mut world = hub.lock();
        let target = (qpn, world.id(c)?.terms.qkey);
        let answered =
            world.cm.answer_service(now(), comm, SidrStatus::SUCCESS, target, &parameters.private_data);
        answered.map_err(errno)?;
        world.id(c)?.phase = Phase::Connected;
        hub.flush(&mut world);
        return Ok(());
    }
    {
        let mut world = hub.lock();
        let id = world.id(c)?;
        let request = id.exchange.request.as_ref().ok_or(libc::EINVAL)?;
        let (asked, offered) = (request.initiator_depth, request.responder_resources);
        let given = parameters.c;
        let (limits, limit_of) = (hub.limits, attributes::depth);
        id.terms.responder_resources =
            limit_of(given.map_or(asked, |g| g.responder_resources), limits.responder_resources);
        id.terms.initiator_depth =
            limit_of(given.map_or(offered, |g| g.initiator_depth), limits.initiator_depth).min(offered);
    }
    // SAFETY: the identifier was looked up, and this call is the application's on it.
    if let Some(qp) = unsafe { queue_pair(c) } {
        attributes::make_ready(hub, c, qp)?;
    }
    let mut world = hub.lock();
    let mut ece = local_ece(c, world.id(c)?);
    let id = world.id(c)?;
    // A peer that did not offer these options would refuse a reply that has them.
    if ece.vendor_id != id.terms.remote_ece.vendor_id {
        ece = ibv_ece::default();
    }
    let request = id.exchange.request.as_ref().ok_or(libc::EINVAL)?;
    let given = parameters.c;
    let reply = Rep {
        local_id: 0,
        remote_id: 0,
        qkey: 0,
        qpn,
        ece_vendor: ece.vendor_id,
        starting_psn: id.terms.psn,
        responder_resources: id.terms.responder_resources,
        initiator_depth: id.terms.initiator_depth,
        target_ack_delay: 15,
        failover: 0,
        has_flow_control: given.is_some_and(|g| g.flow_control != 0),
        rnr_retry_count: given.map_or(request.rnr_retry_count, |g| g.rnr_retry_count.min(RETRIES)),
        has_srq,
        ca_guid: 0,
        private_data: padded(&[&parameters.private_data])?,
    };
    world.cm.accept(now(), comm, &reply, ece.options).map_err(errno)?;
    world.id(c)?.phase = Phase::Connected;
    hub.flush(&mut world);
    Ok(())
}

fn reject(hub: &Hub, c: *mut rdma_cm_id, private_data: &[u8], reason: RejectReason) -> Result<(), c_int> {
    let mut world = hub.lock();
    let id = world.id(c)?;
    let (comm, is_datagram) = (id.exchange.comm.ok_or(libc::EINVAL)?, id.is_datagram());
    if is_datagram {
        if id.phase != Phase::Requested {
            return Err(libc::EINVAL);
        }
        let nobody = (Qpn::default(), 0);
        let refused = world.cm.answer_service(now(), comm, SidrStatus::REJECTED, nobody, private_data);
        refused.map_err(errno)?;
    } else {
        world.cm.reject(comm, reason, &[], private_data).map_err(errno)?;
    }
    world.id(c)?.phase = Phase::Disconnected;
    hub.flush(&mut world);
    Ok(())
}

/// A connection is in use: if this process ends without disconnecting, the broker tells the peer.
pub(super) fn on_connected(gsi: &Gsi, world: &mut World, c: usize) {
    let Some(id) = world.ids.get_mut(&c) else { return };
    id.phase = Phase::Connected;
    if let Some(comm) = id.exchange.comm
        && let Some(farewell) = world.cm.farewell(comm)
    {
        say(gsi.leave_last_message(comm.0, farewell.to.to_ip(), &farewell.mad));
    }
}

fn establish(hub: &Hub, c: *mut rdma_cm_id) -> Result<(), c_int> {
    let mut world = hub.lock();
    let comm = world.id(c)?.exchange.comm.ok_or(libc::EINVAL)?;
    // SAFETY: the identifier was looked up, and this call is the application's on it.
    if unsafe { queue_pair(c) }.is_some() {
        return Err(libc::EINVAL);
    }
    world.cm.establish(comm).map_err(errno)?;
    on_connected(hub.gsi.gsi(), &mut world, c as usize);
    hub.flush(&mut world);
    Ok(())
}

/// Returns whether an event will tell of the end.
fn disconnect(hub: &Hub, c: *mut rdma_cm_id) -> Result<bool, c_int> {
    let comm = {
        let mut world = hub.lock();
        let id = world.id(c)?;
        if id.is_datagram() || !matches!(id.phase, Phase::Connected | Phase::Disconnected | Phase::Connecting)
        {
            let reason =
                || "the identifier is not connected, or a datagram's, which has no connection".to_string();
            return Err(refused(libc::EINVAL, reason));
        }
        id.exchange.comm
    };
    // SAFETY: the identifier was looked up, and this call is the application's on it.
    if let Some(qp) = unsafe { queue_pair(c) } {
        // SAFETY: the queue pair is the identifier's.
        unsafe { verbs::fail(qp) }?;
    }
    // The peer has ended the connection already, so it need not be told.
    let Some(comm) = comm else { return Ok(false) };
    let mut world = hub.lock();
    let told = world.cm.disconnect(now(), comm, &[]);
    hub.flush(&mut world);
    drop(world);
    Ok(told.is_ok())
}

fn notify(hub: &Hub, c: *mut rdma_cm_id, event: ibv_event_type) -> Result<(), c_int> {
    let mut world = hub.lock();
    let comm = world.id(c)?.exchange.comm.ok_or(libc::EINVAL)?;
    if event != IBV_EVENT_COMM_EST {
        return Err(libc::EINVAL);
    }
    if world.cm.is_established(comm) {
        return Err(libc::EISCONN);
    }
    world.cm.notify_established(comm).map_err(errno)?;
    hub.flush(&mut world);
    Ok(())
}

/// The application has made a datagram queue pair: it can be used at once.
pub(super) fn make_datagrams_flow(hub: &Hub, c: *mut rdma_cm_id, qp: *mut ibv_qp) -> Result<(), c_int> {
    attributes::advance(hub, c, qp, IBV_QPS_RTR)?;
    attributes::advance(hub, c, qp, IBV_QPS_RTS)
}

/// Puts an event of the application's own on an identifier's channel.
fn write_event(c: *mut rdma_cm_id, event: rdma_cm_event_type, status: c_int, arg: u64) -> Result<(), c_int> {
    if event != RDMA_CM_EVENT_USER {
        return Err(libc::EINVAL);
    }
    let mut world = hub()?.lock();
    world.id(c)?;
    push(&mut world, c as usize, What::User(arg), status);
    Ok(())
}

c_api! {
    fn rdma_write_cm_event(id: *mut rdma_cm_id, event: rdma_cm_event_type, status: c_int, arg: u64) -> c_int {
        minus_one(write_event(id, event, status, arg))
    }

    fn rdma_reject(id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8) -> c_int {
        minus_one((|| reject(hub()?, id, bytes(private_data, private_data_len)?, RejectReason::CONSUMER))())
    }

    fn rdma_reject_ece(id: *mut rdma_cm_id, private_data: *const c_void, private_data_len: u8) -> c_int {
        minus_one((|| reject(hub()?, id, bytes(private_data, private_data_len)?, RejectReason::VENDOR_OPTION))())
    }

    fn rdma_establish(id: *mut rdma_cm_id) -> c_int {
        minus_one(hub().and_then(|hub| establish(hub, id)))
    }

    fn rdma_notify(id: *mut rdma_cm_id, event: ibv_event_type) -> c_int {
        minus_one(hub().and_then(|hub| notify(hub, id, event)))
    }
}

c_waits! {
    fn rdma_connect(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int |kept| {
        minus_one(hub().and_then(|hub| in_steps(hub, id, kept, || connect(hub, id, conn_param).map(|()| true))))
    }

    fn rdma_accept(id: *mut rdma_cm_id, conn_param: *mut rdma_conn_param) -> c_int |kept| {
        minus_one(hub().and_then(|hub| in_steps(hub, id, kept, || accept(hub, id, conn_param).map(|()| true))))
    }

    fn rdma_disconnect(id: *mut rdma_cm_id) -> c_int |kept| {
        minus_one(hub().and_then(|hub| in_steps(hub, id, kept, || disconnect(hub, id))))
    }
}
