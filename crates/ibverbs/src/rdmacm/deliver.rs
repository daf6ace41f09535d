//! From the connection manager's events to the application's.
//!
//! [`dispatch`] runs in the thread that receives an event, and only queues it. [`prepare`] runs in the
//! application's thread when it takes the event: identifiers of new connections are made there, and queue
//! pairs changed.

use highwire_cm::{CommId, Event};
use highwire_host::Gsi;
use highwire_verbs::Gid;
use highwire_wire::cm::{IpCm, Rej, RejectReason, Rep, Req, SidrRep, SidrReq, SidrStatus, TransportType};
use libc::c_int;
use std::net::SocketAddr;

use super::abi::*;
use super::channel::{Held, Pending, push};
use super::gsi::say;
use super::hub::{Hub, World, now};
use super::id::{self, Phase};
use super::{attributes, multicast, verbs};
use crate::abi::{IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_XRC_RECV, ibv_ece, ibv_qp_type};

/// An event's contents.
pub(super) enum What {
    /// Only the event's type.
    Plain(rdma_cm_event_type),
    /// A request for a connection.
    Request { comm: CommId, from: Gid, addresses: Option<IpCm>, request: Box<Req>, ece_options: u32 },
    /// A request for a datagram service.
    Service { comm: CommId, from: Gid, addresses: Option<IpCm>, request: Box<SidrReq> },
    /// The peer accepted.
    Reply,
    /// The peer refused.
    Reject(Box<Rej>),
    /// A datagram service was found, or not.
    ServiceReply(Box<SidrRep>),
    /// A group was joined.
    Join(multicast::Joined),
    /// A value that the application wrote.
    User(u64),
}

/// Queues an event for the identifier that it concerns.
pub(super) fn dispatch(gsi: &Gsi, world: &mut World, event: Event) {
    match event {
        Event::Requested { id: comm, from, request, ece_options } => {
            let addresses = request.private_data.first_chunk().and_then(IpCm::parse);
            let Some(listener) = super::listen::find(world, request.service_id, addresses.as_ref()) else {
                let _ = world.cm.reject(comm, RejectReason::INVALID_SERVICE_ID, &[], &[]);
                return world.cm.release(now(), comm);
            };
            push(world, listener, What::Request { comm, from, addresses, request, ece_options }, 0);
        }
        Event::ServiceRequested { id: comm, from, request } => {
            let addresses = request.private_data.first_chunk().and_then(IpCm::parse);
            match super::listen::find(world, request.service_id, addresses.as_ref()) {
                Some(listener) => push(world, listener, What::Service { comm, from, addresses, request }, 0),
                None => {
                    let nobody = (Default::default(), 0);
                    let _ = world.cm.answer_service(now(), comm, SidrStatus::UNSUPPORTED, nobody, &[]);
                }
            }
        }
        event => tell(gsi, world, event),
    }
}

/// Queues an event about a conversation that has an identifier.
fn tell(gsi: &Gsi, world: &mut World, event: Event) {
    let limits = world.limits;
    let comm = event.id();
    let Some(&c) = world.by_comm.get(&comm) else { return };
    let Some(id) = world.ids.get_mut(&c) else { return };
    let (what, status) = match event {
        Event::Replied { reply, ece_options, .. } => {
            id.terms.remote_ece = ibv_ece { vendor_id: reply.ece_vendor, options: ece_options, comp_mask: 0 };
            // The peer may have lowered both.
            id.terms.initiator_depth = id.terms.initiator_depth.min(reply.responder_resources);
            id.terms.responder_resources = reply.initiator_depth.min(limits.responder_resources);
            id.exchange.reply = Some(reply);
            (What::Reply, 0)
        }
        Event::Established { .. } => {
            super::connect::on_connected(gsi, world, c);
            (What::Plain(RDMA_CM_EVENT_ESTABLISHED), 0)
        }
        Event::Rejected { reject, .. } => {
            id.phase = Phase::RouteResolved;
            let status = c_int::from(reject.reason.0);
            (What::Reject(reject), status)
        }
        Event::Unreachable { .. } | Event::ServiceUnreachable { .. } => {
            id.phase = Phase::RouteResolved;
            (What::Plain(RDMA_CM_EVENT_UNREACHABLE), -libc::ETIMEDOUT)
        }
        Event::Disconnected { .. } => {
            id.phase = Phase::Disconnected;
            say(gsi.revoke_last_message(comm.0));
            (What::Plain(RDMA_CM_EVENT_DISCONNECTED), 0)
        }
        Event::TimewaitExited { .. } => {
            id.exchange.comm = None;
            world.by_comm.remove(&comm);
            (What::Plain(RDMA_CM_EVENT_TIMEWAIT_EXIT), 0)
        }
        Event::ServiceAnswered { reply, .. } => {
            id.exchange.comm = None;
            id.phase =
                if reply.status == SidrStatus::SUCCESS { Phase::Connected } else { Phase::RouteResolved };
            world.by_comm.remove(&comm);
            let status = c_int::from(reply.status.0);
            (What::ServiceReply(reply), status)
        }
        Event::Requested { .. } | Event::ServiceRequested { .. } => return,
    };
    push(world, c, what, status);
}

/// Releases the resources of an event that the program will not take.
pub(super) fn give_up(world: &mut World, what: &What) {
    if let What::Request { comm, .. } | What::Service { comm, .. } = what {
        world.cm.release(now(), *comm);
    }
}

/// Turns a queued event into one that an application holds; `None` if the event is void by now.
pub(super) fn prepare(hub: &Hub, pending: Pending) -> Option<Box<Held>> {
    let (c, status) = (pending.id as *mut rdma_cm_id, pending.status);
    match pending.what {
        What::Plain(kind) => Some(Held::new(c, kind, status)),
        What::Request { comm, from, addresses, request, ece_options } => {
            connection_request(hub, c, comm, from, addresses, request, ece_options)
        }
        What::Service { comm, from, addresses, request } => {
            service_request(hub, c, comm, from, addresses, &request)
        }
        What::Reply => replied(hub, c),
        What::Reject(reject) => {
            fail_queue_pair(c);
            let mut held = Held::new(c, RDMA_CM_EVENT_REJECTED, status);
            let (private_data, private_data_len) = held.keep(&reject.private_data);
            held.event.param.conn = rdma_conn_param { private_data, private_data_len, ..no_parameters() };
            Some(held)
        }
        What::ServiceReply(reply) => service_replied(hub, c, &reply, status),
        What::Join(joined) => multicast::prepare(hub, c, joined, status),
        What::User(arg) => {
            let mut held = Held::new(c, RDMA_CM_EVENT_USER, status);
            held.event.param.arg = arg;
            Some(held)
        }
    }
}

fn no_parameters() -> rdma_conn_param {
    // SAFETY: zeros are valid parameters.
    unsafe { std::mem::zeroed() }
}

/// The queue pair of a refused connection goes into error, and sends nothing more.
fn fail_queue_pair(c: *mut rdma_cm_id) {
    // SAFETY: the identifier's events are taken by the application, which keeps it alive until it has given them back.
    let qp = unsafe { (*c).qp };
    if !qp.is_null() {
        // SAFETY: the application set it, or `rdma_create_qp` did.
        let _ = unsafe { verbs::fail(qp) };
    }
}

/// An identifier for a connection that a peer asks for.
fn accepted_id(
    hub: &Hub,
    world: &mut World,
    listener: *mut rdma_cm_id,
    (comm, from): (CommId, Gid),
    addresses: Option<IpCm>,
    qp_type: Option<ibv_qp_type>,
) -> Option<*mut rdma_cm_id> {
    let parent = world.ids.get(&(listener as usize))?;
    let (channel, port_space, is_synchronous) = (parent.channel, parent.port_space, parent.is_synchronous);
    let (qp_type, tos, ack_timeout) =
        (qp_type.unwrap_or(parent.qp_type), parent.options.tos, parent.options.ack_timeout);
    let port = parent.route.source.map_or(0, |source| source.port());
    // SAFETY: the application keeps the listener alive until it has given back the event that is being made.
    let context = unsafe { (*listener).context };
    let channel = if is_synchronous { super::channel::Channel::create(world).ok()? } else { channel };
    let c = id::create(world, channel, context, port_space, qp_type);
    let id = world.ids.get_mut(&(c as usize))?;
    (id.phase, id.exchange.comm, id.route.peer) = (Phase::Requested, Some(comm), from);
    (id.is_synchronous, id.options.tos, id.options.ack_timeout) = (is_synchronous, tos, ack_timeout);
    if let Some(addresses) = addresses {
        id.route.source = Some(SocketAddr::new(addresses.destination, port));
        id.route.destination = Some(SocketAddr::new(addresses.source, addresses.source_port));
    }
    world.by_comm.insert(comm, c as usize);
    // A device that is taken out at this moment is told of by an event, and the identifier's calls say so.
    let _ = super::resolve::attach(hub, world, c);
    Some(c)
}

fn connection_request(
    hub: &Hub,
    listener: *mut rdma_cm_id,
    comm: CommId,
    from: Gid,
    addresses: Option<IpCm>,
    request: Box<Req>,
    ece_options: u32,
) -> Option<Box<Held>> {
    let qp_type = match request.transport {
        TransportType::Uc => IBV_QPT_UC,
        TransportType::Xrc => IBV_QPT_XRC_RECV,
        TransportType::Rc | TransportType::Rd => IBV_QPT_RC,
    };
    let mut world = hub.lock();
    let c = accepted_id(hub, &mut world, listener, (comm, from), addresses, Some(qp_type))?;
    let id = world.ids.get_mut(&(c as usize))?;
    id.terms.remote_ece = ibv_ece { vendor_id: request.ece_vendor, options: ece_options, comp_mask: 0 };
    let mut held = Held::new(c, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    held.event.listen_id = listener;
    let skipped = if addresses.is_some() { IpCm::LEN } else { 0 };
    let (private_data, private_data_len) = held.keep(&request.private_data[skipped..]);
    held.event.param.conn = rdma_conn_param {
        private_data,
        private_data_len,
        // The requests that the peer begins are those that this end answers, and the other way round.
        responder_resources: request.initiator_depth,
        initiator_depth: request.responder_resources,
        flow_control: u8::from(request.has_flow_control),
        retry_count: request.retry_count,
        rnr_retry_count: request.rnr_retry_count,
        srq: u8::from(request.has_srq),
        qp_num: request.qpn.value(),
    };
    // The peer's values, until the application accepts: an application that makes its queue pair itself takes
    // them from here.
    id.terms.responder_resources = request.initiator_depth.min(hub.limits.responder_resources);
    id.terms.initiator_depth = request.responder_resources.min(hub.limits.initiator_depth);
    id.exchange.request = Some(request);
    super::resolve::show_route(hub, id);
    Some(held)
}

fn service_request(
    hub: &Hub,
    listener: *mut rdma_cm_id,
    comm: CommId,
    from: Gid,
    addresses: Option<IpCm>,
    request: &SidrReq,
) -> Option<Box<Held>> {
    let mut world = hub.lock();
    let c = accepted_id(hub, &mut world, listener, (comm, from), addresses, None)?;
    let id = world.ids.get_mut(&(c as usize))?;
    let mut held = Held::new(c, RDMA_CM_EVENT_CONNECT_REQUEST, 0);
    held.event.listen_id = listener;
    let skipped = if addresses.is_some() { IpCm::LEN } else { 0 };
    let (private_data, private_data_len) = held.keep(&request.private_data[skipped..]);
    // SAFETY: zeros are valid parameters.
    let nothing: rdma_ud_param = unsafe { std::mem::zeroed() };
    held.event.param.ud = rdma_ud_param { private_data, private_data_len, ..nothing };
    super::resolve::show_route(hub, id);
    Some(held)
}

/// The peer accepted: with a queue pair, the connection is finished here and now; without, the application does it.
fn replied(hub: &Hub, c: *mut rdma_cm_id) -> Option<Box<Held>> {
    let reply: Rep = **hub.lock().ids.get(&(c as usize))?.exchange.reply.as_ref()?;
    // SAFETY: the application keeps the identifier alive until it has given back the event that is being made.
    let qp = unsafe { (*c).qp };
    let (mut kind, mut status) = (RDMA_CM_EVENT_CONNECT_RESPONSE, 0);
    if !qp.is_null() {
        let ready = attributes::make_ready(hub, c, qp);
        let mut world = hub.lock();
        let comm = world.ids.get(&(c as usize))?.exchange.comm?;
        match ready {
            Ok(()) => {
                kind = RDMA_CM_EVENT_ESTABLISHED;
                // The peer may have gone meanwhile; then another event follows.
                let _ = world.cm.establish(comm);
                super::connect::on_connected(hub.gsi.gsi(), &mut world, c as usize);
            }
            Err(errno) => {
                (kind, status) = (RDMA_CM_EVENT_CONNECT_ERROR, -errno);
                let _ = world.cm.reject(comm, RejectReason::CONSUMER, &[], &[]);
            }
        }
        hub.flush(&mut world);
    }
    let mut held = Held::new(c, kind, status);
    let (private_data, private_data_len) = held.keep(&reply.private_data);
    held.event.param.conn = rdma_conn_param {
        private_data,
        private_data_len,
        responder_resources: reply.initiator_depth,
        initiator_depth: reply.responder_resources,
        flow_control: u8::from(reply.has_flow_control),
        retry_count: 0,
        rnr_retry_count: reply.rnr_retry_count,
        srq: u8::from(reply.has_srq),
        qp_num: reply.qpn.value(),
    };
    Some(held)
}

fn service_replied(hub: &Hub, c: *mut rdma_cm_id, reply: &SidrRep, status: c_int) -> Option<Box<Held>> {
    let is_found = reply.status == SidrStatus::SUCCESS;
    let kind = if is_found { RDMA_CM_EVENT_ESTABLISHED } else { RDMA_CM_EVENT_UNREACHABLE };
    let mut held = Held::new(c, kind, status);
    let (private_data, private_data_len) = held.keep(&reply.private_data);
    let world = hub.lock();
    let id = world.ids.get(&(c as usize))?;
    let ah_attr = attributes::route(id, id.route.peer);
    let (qp_num, qkey) = (reply.qpn.value(), reply.qkey);
    held.event.param.ud = rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey };
    Some(held)
}
