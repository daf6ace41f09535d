//! Wrong arguments, and whole conversations within one process. Tests that need a device are skipped if there
//! is no broker.

use std::ffi::CStr;
use std::ptr::{NonNull, null, null_mut};

use libc::c_int;

use super::abi::*;
use super::{
    addrinfo, asked, attributes, channel, connect, endpoint, hub, id, listen, multicast, queue_pair, resolve,
};
use crate::abi::*;

fn errno() -> c_int {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// Pointers that are not objects of ours: null, and two to memory that is something else.
fn strangers<T>() -> [*mut T; 3] {
    static SOMETHING: [u64; 512] = [0xAA; 512];
    [null_mut(), SOMETHING.as_ptr().cast_mut().cast(), NonNull::<T>::dangling().as_ptr()]
}

/// Whether there is a device to test with.
fn has_device() -> bool {
    let is_there = hub::hub().is_ok();
    if !is_there {
        println!("skipped: no device, as no `highwire` was found that could be its broker");
    }
    is_there
}

fn loopback(port: u16) -> libc::sockaddr_storage {
    super::address::write(std::net::SocketAddr::from(([127, 0, 0, 1], port))).0
}

#[test]
fn calls_refuse_what_is_no_object_of_theirs() {
    let mut address = loopback(1);
    let address: *mut libc::sockaddr = (&raw mut address).cast();
    // SAFETY: none of the calls follows a pointer that it does not know.
    unsafe {
        for stranger in strangers::<rdma_cm_id>() {
            assert_eq!(id::rdma_destroy_id(stranger), -1);
            assert_eq!(id::rdma_migrate_id(stranger, null_mut()), -1);
            assert_eq!(id::rdma_set_option(stranger, 0, 0, address.cast(), 1), -1);
            assert_eq!(id::rdma_set_option(stranger, 0, 0, null_mut(), 1), -1);
            assert_eq!((id::rdma_get_src_port(stranger), id::rdma_get_dst_port(stranger)), (0, 0));
            assert_eq!(id::rdma_set_local_ece(stranger, null_mut()), -1);
            assert_eq!(id::rdma_get_remote_ece(stranger, null_mut()), -1);
            assert_eq!(resolve::rdma_bind_addr(stranger, address), -1);
            assert_eq!(resolve::rdma_bind_addr(stranger, null_mut()), -1);
            assert_eq!(resolve::rdma_resolve_addr(stranger, null_mut(), address, 1), -1);
            assert_eq!(resolve::rdma_resolve_route(stranger, 1), -1);
            assert_eq!(asked::rdma_resolve_addrinfo(stranger, c"127.0.0.1".as_ptr(), null(), null()), -1);
            assert_eq!(asked::rdma_query_addrinfo(stranger, null_mut()), -1);
            assert_eq!(listen::rdma_listen(stranger, 1), -1);
            assert_eq!(connect::rdma_connect(stranger, null_mut()), -1);
            assert_eq!(connect::rdma_accept(stranger, null_mut()), -1);
            assert_eq!(connect::rdma_reject(stranger, null(), 0), -1);
            assert_eq!(connect::rdma_reject_ece(stranger, null(), 9), -1);
            assert_eq!(connect::rdma_establish(stranger), -1);
            assert_eq!(connect::rdma_disconnect(stranger), -1);
            assert_eq!(connect::rdma_notify(stranger, IBV_EVENT_COMM_EST), -1);
            assert_eq!(connect::rdma_write_cm_event(stranger, RDMA_CM_EVENT_USER, 0, 0), -1);
            assert_eq!(queue_pair::rdma_create_qp(stranger, null_mut(), null_mut()), -1);
            assert_eq!(queue_pair::rdma_create_qp_ex(stranger, null_mut()), -1);
            assert_eq!(queue_pair::rdma_create_srq(stranger, null_mut(), null_mut()), -1);
            assert_eq!(queue_pair::rdma_create_srq_ex(stranger, null_mut()), -1);
            queue_pair::rdma_destroy_qp(stranger);
            queue_pair::rdma_destroy_srq(stranger);
            endpoint::rdma_destroy_ep(stranger);
            assert_eq!(endpoint::rdma_get_request(stranger, null_mut()), -1);
            assert_eq!(multicast::rdma_join_multicast(stranger, address, null_mut()), -1);
            assert_eq!(multicast::rdma_join_multicast_ex(stranger, null_mut(), null_mut()), -1);
            assert_eq!(multicast::rdma_leave_multicast(stranger, address), -1);
            assert_eq!(attributes::rdma_init_qp_attr(stranger, null_mut(), null_mut()), -1);
        }
        for stranger in strangers::<rdma_event_channel>() {
            let mut event = null_mut();
            assert_eq!(channel::rdma_get_cm_event(stranger, &mut event), -1);
            assert_eq!(channel::rdma_get_cm_event(stranger, null_mut()), -1);
            channel::rdma_destroy_event_channel(stranger);
        }
        for stranger in strangers::<rdma_cm_event>() {
            assert_eq!(channel::rdma_ack_cm_event(stranger), -1);
        }
        assert_eq!(id::rdma_create_id(null_mut(), null_mut(), null_mut(), RDMA_PS_TCP), -1);
        assert_eq!(endpoint::rdma_create_ep(null_mut(), null_mut(), null_mut(), null_mut()), -1);
        assert_eq!(addrinfo::rdma_getaddrinfo(null(), null(), null(), null_mut()), -1);
        let mut found = null_mut();
        assert_eq!(
            (addrinfo::rdma_getaddrinfo(null(), null(), null(), &mut found), errno()),
            (-1, libc::EINVAL)
        );
        addrinfo::rdma_freeaddrinfo(null_mut());
        endpoint::rdma_free_devices(null_mut());
    }
}

#[test]
fn events_have_names() {
    // SAFETY: the names are static.
    let name = |event| unsafe { CStr::from_ptr(channel::rdma_event_str(event)) }.to_str().expect("ASCII");
    assert_eq!(name(RDMA_CM_EVENT_ESTABLISHED), "RDMA_CM_EVENT_ESTABLISHED");
    assert_eq!(name(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT");
    assert_eq!(name(999), "UNKNOWN EVENT");
}

#[test]
fn names_become_addresses() {
    // SAFETY: names end with zeros, and the list is freed once.
    unsafe {
        let mut hints: rdma_addrinfo = std::mem::zeroed();
        hints.ai_port_space = RDMA_PS_UDP as c_int;
        let mut found = null_mut();
        let code = addrinfo::rdma_getaddrinfo(c"127.0.0.1".as_ptr(), c"7471".as_ptr(), &hints, &mut found);
        assert_eq!(code, 0);
        assert_eq!(
            ((*found).ai_qp_type, (*found).ai_port_space),
            (IBV_QPT_UD as c_int, RDMA_PS_UDP as c_int)
        );
        assert!((*found).ai_src_addr.is_null() && (*found).ai_dst_len == 16);
        assert_eq!(super::address::read((*found).ai_dst_addr), Ok(([127, 0, 0, 1], 7471).into()));
        addrinfo::rdma_freeaddrinfo(found);
        hints.ai_flags = RAI_PASSIVE;
        assert_eq!(addrinfo::rdma_getaddrinfo(null(), c"7471".as_ptr(), &hints, &mut found), 0);
        assert!((*found).ai_dst_addr.is_null() && !(*found).ai_src_addr.is_null());
        addrinfo::rdma_freeaddrinfo(found);
        hints.ai_flags = RAI_NUMERICHOST;
        assert_ne!(addrinfo::rdma_getaddrinfo(c"no.such".as_ptr(), null(), &hints, &mut found), 0);
    }
}

#[test]
fn names_are_looked_up_while_the_program_waits_for_the_event() {
    if !has_device() {
        return;
    }
    // SAFETY: every object is alive until it is destroyed, once, and lists are freed once.
    unsafe {
        let events = channel::rdma_create_event_channel();
        let mut c = null_mut();
        assert_eq!(id::rdma_create_id(events, &mut c, null_mut(), RDMA_PS_TCP), 0);
        let mut found = null_mut();
        assert_eq!((asked::rdma_query_addrinfo(c, &mut found), errno()), (-1, libc::ENODATA));
        let ask = |name: &CStr, flags| {
            let mut hints: rdma_addrinfo = std::mem::zeroed();
            (hints.ai_port_space, hints.ai_flags) = (RDMA_PS_TCP as c_int, flags);
            asked::rdma_resolve_addrinfo(c, name.as_ptr(), c"7499".as_ptr(), &hints)
        };
        let hear = || {
            let mut event = null_mut();
            assert_eq!(channel::rdma_get_cm_event(events, &mut event), 0);
            let heard = ((*event).id, (*event).event, (*event).status);
            assert_eq!(channel::rdma_ack_cm_event(event), 0);
            heard
        };
        assert_eq!(ask(c"127.0.0.1", RAI_NUMERICHOST | RAI_DNS), 0, "errno {}", errno());
        assert_eq!(hear(), (c, RDMA_CM_EVENT_ADDRINFO_RESOLVED, 0));
        // A program that asks twice gets two lists.
        for _ in 0..2 {
            assert_eq!(asked::rdma_query_addrinfo(c, &mut found), 0);
            assert_eq!(super::address::read((*found).ai_dst_addr), Ok(([127, 0, 0, 1], 7499).into()));
            assert_eq!(((*found).ai_port_space, (*found).ai_src_addr), (RDMA_PS_TCP as c_int, null_mut()));
            addrinfo::rdma_freeaddrinfo(found);
        }
        assert_eq!(ask(c"no.such", RAI_NUMERICHOST), 0);
        assert_eq!(hear(), (c, RDMA_CM_EVENT_ADDRINFO_ERROR, -libc::ENOENT));
        assert_eq!((asked::rdma_query_addrinfo(c, &mut found), errno()), (-1, libc::ENODATA));
        assert_eq!((ask(c"127.0.0.1", RAI_SA), errno()), (-1, libc::EOPNOTSUPP));
        assert_eq!((asked::rdma_resolve_addrinfo(c, null(), null(), null()), errno()), (-1, libc::EINVAL));
        assert_eq!((asked::rdma_query_addrinfo(c, null_mut()), errno()), (-1, libc::EINVAL));
        assert_eq!(id::rdma_destroy_id(c), 0);
        channel::rdma_destroy_event_channel(events);
        // Without a channel the call itself waits for the answer.
        assert_eq!(id::rdma_create_id(null_mut(), &mut c, null_mut(), RDMA_PS_TCP), 0);
        assert_eq!(
            asked::rdma_resolve_addrinfo(c, c"127.0.0.1".as_ptr(), null(), null()),
            0,
            "errno {}",
            errno()
        );
        assert_eq!((*(*c).event).event, RDMA_CM_EVENT_ADDRINFO_RESOLVED);
        assert_eq!(asked::rdma_query_addrinfo(c, &mut found), 0);
        addrinfo::rdma_freeaddrinfo(found);
        assert_eq!(id::rdma_destroy_id(c), 0);
    }
}

#[test]
fn hints_without_names_are_answered_with_what_they_bring() {
    let mut group = super::address::write(([239, 77, 0, 1], 0).into()).0;
    // SAFETY: the hints' address is alive, and each list is freed once.
    unsafe {
        let mut hints: rdma_addrinfo = std::mem::zeroed();
        (hints.ai_src_addr, hints.ai_src_len) = ((&raw mut group).cast(), 16);
        let mut found = null_mut();
        // An active address with only a source: that of a group to be joined.
        assert_eq!(addrinfo::rdma_getaddrinfo(null(), null(), &hints, &mut found), 0);
        assert_eq!(super::address::read((*found).ai_src_addr), Ok(([239, 77, 0, 1], 0).into()));
        assert!((*found).ai_dst_addr.is_null() && (*found).ai_family == libc::AF_INET);
        addrinfo::rdma_freeaddrinfo(found);
        let nothing: rdma_addrinfo = std::mem::zeroed();
        assert_eq!(addrinfo::rdma_getaddrinfo(null(), null(), &nothing, &mut found), 0);
        assert!((*found).ai_dst_addr.is_null() && (*found).ai_src_addr.is_null());
        addrinfo::rdma_freeaddrinfo(found);
    }
}

fn queue_pair_attributes() -> ibv_qp_init_attr {
    // SAFETY: zeros are attributes without anything.
    let mut attributes: ibv_qp_init_attr = unsafe { std::mem::zeroed() };
    attributes.cap =
        ibv_qp_cap { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline_data: 16 };
    attributes.qp_type = IBV_QPT_RC;
    attributes
}

/// A listener and the addresses for a client to reach it, both synchronous.
///
/// # Safety
/// The results are the caller's to take apart.
unsafe fn listener(port: &CStr, flags: c_int) -> (*mut rdma_cm_id, *mut rdma_addrinfo) {
    // SAFETY: all arguments are alive.
    unsafe {
        let mut hints: rdma_addrinfo = std::mem::zeroed();
        (hints.ai_port_space, hints.ai_flags) = (RDMA_PS_TCP as c_int, RAI_PASSIVE | flags);
        let mut found = null_mut();
        assert_eq!(addrinfo::rdma_getaddrinfo(c"127.0.0.1".as_ptr(), port.as_ptr(), &hints, &mut found), 0);
        let mut listener = null_mut();
        let code = endpoint::rdma_create_ep(&mut listener, found, null_mut(), &mut queue_pair_attributes());
        assert_eq!(code, 0, "errno {}", errno());
        addrinfo::rdma_freeaddrinfo(found);
        assert_eq!(listen::rdma_listen(listener, 4), 0, "errno {}", errno());
        hints.ai_flags = flags;
        assert_eq!(addrinfo::rdma_getaddrinfo(c"127.0.0.1".as_ptr(), port.as_ptr(), &hints, &mut found), 0);
        (listener, found)
    }
}

/// A pointer for another thread.
struct Sent<T>(*mut T);
// SAFETY: the calls may be made from any thread.
unsafe impl<T> Send for Sent<T> {}

impl<T> Sent<T> {
    fn pointer(&self) -> *mut T {
        self.0
    }
}

#[test]
fn endpoints_connect_talk_of_themselves_and_part() {
    if !has_device() {
        return;
    }
    // SAFETY: every object is alive until it is destroyed, once.
    unsafe {
        let (listener, found) = listener(c"7473", 0);
        let passive = Sent(listener);
        let server = std::thread::spawn(move || {
            let mut accepted = null_mut();
            assert_eq!(endpoint::rdma_get_request(passive.pointer(), &mut accepted), 0);
            let event = &*(*accepted).event;
            assert_eq!(event.event, RDMA_CM_EVENT_CONNECT_REQUEST);
            let private = std::slice::from_raw_parts(event.param.conn.private_data.cast::<u8>(), 56);
            assert_eq!((&private[..5], event.param.conn.private_data_len), (&b"hello"[..], 56));
            assert!(!(*accepted).qp.is_null() && accepted != passive.pointer());
            // A program that makes its queue pair itself takes the attributes from here, before it accepts.
            let (mut to, mut mask) = (ibv_qp_attr { qp_state: IBV_QPS_RTR, ..Default::default() }, 0);
            assert_eq!(attributes::rdma_init_qp_attr(accepted, &mut to, &mut mask), 0);
            assert_eq!(to.max_dest_rd_atomic, 2, "what the peer begins");
            to.qp_state = IBV_QPS_RTS;
            assert_eq!(attributes::rdma_init_qp_attr(accepted, &mut to, &mut mask), 0);
            assert_eq!(to.max_rd_atomic, 3, "what the peer answers");
            assert_eq!(connect::rdma_accept(accepted, null_mut()), 0, "errno {}", errno());
            assert_eq!((*(*accepted).event).event, RDMA_CM_EVENT_ESTABLISHED);
            assert_eq!(connect::rdma_disconnect(accepted), 0);
            endpoint::rdma_destroy_ep(accepted);
        });
        let mut client = null_mut();
        assert_eq!(endpoint::rdma_create_ep(&mut client, found, null_mut(), &mut queue_pair_attributes()), 0);
        let mut parameters: rdma_conn_param = std::mem::zeroed();
        (parameters.private_data, parameters.private_data_len) = (b"hello".as_ptr().cast(), 5);
        (parameters.responder_resources, parameters.initiator_depth) = (3, 2);
        (parameters.retry_count, parameters.rnr_retry_count) = (7, 7);
        assert_eq!(connect::rdma_connect(client, &mut parameters), 0, "errno {}", errno());
        assert_eq!((*(*client).event).event, RDMA_CM_EVENT_ESTABLISHED);
        assert_eq!((connect::rdma_connect(client, null_mut()), errno()), (-1, libc::EINVAL), "twice");
        assert_eq!(u16::from_be(id::rdma_get_dst_port(client)), 7473);
        // Both ends get the event, no matter which one disconnects first.
        connect::rdma_disconnect(client);
        server.join().expect("the server is content");
        endpoint::rdma_destroy_ep(client);
        endpoint::rdma_destroy_ep(listener);
        addrinfo::rdma_freeaddrinfo(found);
    }
}

#[test]
fn a_connection_to_nobody_is_refused_and_errors_have_numbers() {
    if !has_device() {
        return;
    }
    // SAFETY: every object is alive until it is destroyed, once.
    unsafe {
        let mut client = null_mut();
        assert_eq!(id::rdma_create_id(null_mut(), &mut client, null_mut(), RDMA_PS_TCP), 0);
        assert_eq!((connect::rdma_connect(client, null_mut()), errno()), (-1, libc::EINVAL), "no route");
        assert_eq!((resolve::rdma_resolve_route(client, 1), errno()), (-1, libc::EINVAL), "no address");
        let mut stranger = super::address::write(([203, 0, 113, 7], 1).into()).0;
        let stranger: *mut libc::sockaddr = (&raw mut stranger).cast();
        assert_eq!((resolve::rdma_bind_addr(client, stranger), errno()), (-1, libc::ENODEV));
        let mut there = loopback(9);
        let there: *mut libc::sockaddr = (&raw mut there).cast();
        assert_eq!(resolve::rdma_resolve_addr(client, null_mut(), there, 1000), 0, "errno {}", errno());
        assert_eq!((*(*client).event).event, RDMA_CM_EVENT_ADDR_RESOLVED);
        assert!(!(*client).verbs.is_null() && (*client).port_num == 1);
        // Programs make queue pairs of their own in the identifier's domain (rdma_create_qp(3)).
        let domain = (*client).pd;
        assert!(!domain.is_null() && (*domain).context == (*client).verbs);
        assert_eq!(resolve::rdma_resolve_route(client, 1000), 0);
        assert_eq!((*client).route.num_paths, 1);
        let mut wrong = queue_pair_attributes();
        wrong.qp_type = IBV_QPT_UD;
        assert_eq!((queue_pair::rdma_create_qp(client, null_mut(), &mut wrong), errno()), (-1, libc::EINVAL));
        assert_eq!(queue_pair::rdma_create_qp(client, null_mut(), &mut queue_pair_attributes()), 0);
        let mut long: rdma_conn_param = std::mem::zeroed();
        (long.private_data, long.private_data_len) = ([0u8; 57].as_ptr().cast(), 57);
        assert_eq!((connect::rdma_connect(client, &mut long), errno()), (-1, libc::EINVAL), "57 bytes");
        assert_eq!((connect::rdma_connect(client, null_mut()), errno()), (-1, libc::ECONNREFUSED));
        assert_eq!((*(*client).event).status, 8, "nobody listens");
        assert_eq!((connect::rdma_disconnect(client), errno()), (-1, libc::EINVAL));
        assert_eq!((id::rdma_set_option(client, 7, 7, there.cast(), 1), errno()), (-1, libc::ENOSYS));
        assert_eq!((id::rdma_set_option(client, 0, 0, there.cast(), 2), errno()), (-1, libc::EINVAL));
        queue_pair::rdma_destroy_qp(client);
        assert_eq!(id::rdma_destroy_id(client), 0);
        assert_eq!((id::rdma_destroy_id(client), errno()), (-1, libc::EINVAL), "twice");
    }
}

#[test]
fn an_address_has_one_listener() {
    if !has_device() {
        return;
    }
    // SAFETY: every object is alive until it is destroyed, once.
    unsafe {
        let channel = channel::rdma_create_event_channel();
        assert!(!channel.is_null());
        let [mut one, mut other] = [null_mut(); 2];
        assert_eq!(id::rdma_create_id(channel, &mut one, null_mut(), RDMA_PS_TCP), 0);
        assert_eq!(id::rdma_create_id(channel, &mut other, null_mut(), RDMA_PS_TCP), 0);
        let mut here = loopback(7475);
        let here: *mut libc::sockaddr = (&raw mut here).cast();
        assert_eq!(resolve::rdma_bind_addr(one, here), 0, "errno {}", errno());
        assert_eq!((resolve::rdma_bind_addr(other, here), errno()), (-1, libc::EADDRINUSE));
        assert_eq!((resolve::rdma_bind_addr(one, here), errno()), (-1, libc::EINVAL), "bound already");
        assert_eq!(listen::rdma_listen(one, 0), 0);
        assert_eq!((listen::rdma_listen(one, 0), errno()), (-1, libc::EINVAL), "listens already");
        // Nothing has happened: a channel that does not block says so.
        libc::fcntl((*channel).fd, libc::F_SETFL, libc::O_NONBLOCK);
        let mut event = null_mut();
        assert_eq!((channel::rdma_get_cm_event(channel, &mut event), errno()), (-1, libc::EAGAIN));
        assert_eq!(id::rdma_create_id(channel, null_mut(), null_mut(), 0), -1);
        assert_eq!(
            (id::rdma_create_id(channel, &mut event.cast(), null_mut(), 0x999), errno()),
            (-1, libc::EINVAL)
        );
        assert_eq!(id::rdma_destroy_id(one), 0);
        assert_eq!(resolve::rdma_bind_addr(other, here), 0, "free again");
        assert_eq!(id::rdma_destroy_id(other), 0);
        channel::rdma_destroy_event_channel(channel);
    }
}

#[test]
fn the_two_families_may_each_have_a_listener_on_a_port() {
    if !has_device() {
        return;
    }
    // SAFETY: every object is alive until it is destroyed, once.
    unsafe {
        let channel = channel::rdma_create_event_channel();
        assert!(!channel.is_null());
        let any = |ip: std::net::IpAddr| super::address::write(std::net::SocketAddr::new(ip, 7478)).0;
        let mut v4 = any(std::net::Ipv4Addr::UNSPECIFIED.into());
        let mut v6 = any(std::net::Ipv6Addr::UNSPECIFIED.into());
        let (v4, v6): (*mut libc::sockaddr, *mut libc::sockaddr) =
            ((&raw mut v4).cast(), (&raw mut v6).cast());
        let [mut one, mut other] = [null_mut(); 2];
        assert_eq!(id::rdma_create_id(channel, &mut one, null_mut(), RDMA_PS_TCP), 0);
        assert_eq!(id::rdma_create_id(channel, &mut other, null_mut(), RDMA_PS_TCP), 0);
        assert_eq!(
            (resolve::rdma_bind_addr(one, v4), listen::rdma_listen(one, 0)),
            (0, 0),
            "errno {}",
            errno()
        );
        assert_eq!((resolve::rdma_bind_addr(other, v6), errno()), (-1, libc::EADDRINUSE), "it would be both");
        let mut only: c_int = 1;
        let size = size_of::<c_int>();
        let option =
            id::rdma_set_option(other, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, (&raw mut only).cast(), size);
        assert_eq!(option, 0);
        let both = (resolve::rdma_bind_addr(other, v6), listen::rdma_listen(other, 0));
        assert_eq!(both, (0, 0), "errno {}", errno());
        assert_eq!(id::rdma_destroy_id(one), 0);
        assert_eq!(id::rdma_destroy_id(other), 0);
        channel::rdma_destroy_event_channel(channel);
    }
}
