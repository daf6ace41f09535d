//! Steering rules, counters, work queues and their tables: refused calls, and objects that stay while they
//! are in use.

use super::arguments::{Open, errno, strangers};
use crate::abi::*;
use crate::{flow, qp, qp_attr, wq};
use std::ptr::{from_mut, null_mut};

#[test]
fn steering_calls_refuse_what_is_no_object_of_theirs() {
    // SAFETY: none of the calls follows a pointer that it does not know.
    unsafe {
        for stranger in strangers::<ibv_flow>() {
            assert_eq!(flow::destroy_flow(stranger), libc::EINVAL);
        }
        for stranger in strangers::<ibv_counters>() {
            assert_eq!(flow::destroy_counters(stranger), libc::EINVAL);
            assert_eq!(flow::read_counters(stranger, null_mut(), 0, 0), libc::EINVAL);
            assert_eq!(flow::attach_counters_point_flow(stranger, null_mut(), null_mut()), libc::EINVAL);
        }
        for stranger in strangers::<ibv_wq>() {
            assert_eq!(wq::destroy_wq(stranger), libc::EINVAL);
            assert_eq!(wq::modify_wq(stranger, null_mut()), libc::EINVAL);
        }
        for stranger in strangers::<ibv_rwq_ind_table>() {
            assert_eq!(wq::destroy_rwq_ind_table(stranger), libc::EINVAL);
        }
        for stranger in strangers::<ibv_context>() {
            assert!(wq::create_wq(stranger, null_mut()).is_null() && errno() == libc::EINVAL);
            assert!(wq::create_rwq_ind_table(stranger, null_mut()).is_null());
            assert!(flow::create_counters(stranger, null_mut()).is_null());
        }
        for stranger in strangers::<ibv_qp>() {
            assert!(flow::create_flow(stranger, null_mut()).is_null() && errno() == libc::EINVAL);
        }
    }
}

/// A rule with two specifications, as programs lay it out.
#[repr(C)]
#[derive(Clone, Copy)]
struct Rule {
    attr: ibv_flow_attr,
    ports: ibv_flow_spec_tcp_udp,
    more: ibv_flow_spec_tcp_udp,
}

fn rule(first: ibv_flow_spec_type, second: ibv_flow_spec_type) -> Rule {
    let zero = ibv_flow_tcp_udp_filter { dst_port: 0, src_port: 0 };
    let size = size_of::<ibv_flow_spec_tcp_udp>() as u16;
    let ports = |type_| ibv_flow_spec_tcp_udp { type_, size, val: zero, mask: zero };
    let attr = ibv_flow_attr {
        comp_mask: 0,
        type_: IBV_FLOW_ATTR_NORMAL,
        size: size_of::<Rule>() as u16,
        priority: 0,
        num_of_specs: 2,
        port: 1,
        flags: 0,
    };
    Rule { attr, ports: ports(first), more: ports(second) }
}

/// The errno of making a rule, 0 if it was made.
unsafe fn made(qp: *mut ibv_qp, mut rule: Rule) -> c_int {
    // SAFETY: the specifications lie behind the attributes.
    let flow = unsafe { flow::create_flow(qp, from_mut(&mut rule).cast()) };
    if flow.is_null() {
        return errno();
    }
    // SAFETY: it was just made.
    unsafe { flow::destroy_flow(flow) }
}

#[test]
fn malformed_rules_are_refused() {
    let Some(open) = Open::new() else { return super::skip("no device could be opened here") };
    let good = rule(IBV_FLOW_SPEC_TCP, IBV_FLOW_SPEC_INNER | IBV_FLOW_SPEC_UDP);
    let changed = |change: fn(&mut Rule)| {
        let mut rule = good;
        change(&mut rule);
        rule
    };
    // SAFETY: objects of ours, and structures of this function.
    unsafe {
        let [qp, datagrams] = [open.qp(IBV_QPT_RAW_PACKET), open.qp(IBV_QPT_UD)];
        assert_eq!(made(qp, good), 0);
        assert_eq!(made(datagrams, good), libc::EOPNOTSUPP);
        let invalid = [
            changed(|rule| rule.attr.type_ = 4),
            changed(|rule| rule.attr.port = 2),
            changed(|rule| rule.attr.comp_mask = 1),
            changed(|rule| rule.attr.flags = 1),
            changed(|rule| rule.attr.num_of_specs = 200),
            changed(|rule| rule.attr.type_ = IBV_FLOW_ATTR_SNIFFER),
            changed(|rule| rule.ports.size = 0),
            changed(|rule| rule.ports.size -= 1),
            changed(|rule| rule.ports.type_ = 0x99),
            changed(|rule| rule.ports.type_ = IBV_FLOW_SPEC_IPV4),
            changed(|rule| rule.ports.type_ = IBV_FLOW_SPEC_ACTION_COUNT),
            rule(IBV_FLOW_SPEC_TCP, IBV_FLOW_SPEC_UDP),
        ];
        for (index, rule) in invalid.into_iter().enumerate() {
            assert_eq!(made(qp, rule), libc::EINVAL, "rule {index}");
        }
        for kind in [IBV_FLOW_SPEC_MPLS, IBV_FLOW_SPEC_ACTION_TAG, IBV_FLOW_SPEC_ACTION_HANDLE] {
            assert_eq!(made(qp, rule(kind, IBV_FLOW_SPEC_UDP)), libc::EOPNOTSUPP);
        }
        assert_eq!(made(qp, changed(|rule| rule.attr.flags = IBV_FLOW_ATTR_FLAGS_EGRESS)), libc::EOPNOTSUPP);
        // A rule without specifications, which holds on to its queue pair.
        let mut rule = changed(|rule| rule.attr.num_of_specs = 0);
        let flow = flow::create_flow(qp, from_mut(&mut rule).cast());
        assert!(!flow.is_null());
        assert_eq!(qp::ibv_destroy_qp(qp), libc::EBUSY);
        assert_eq!((flow::destroy_flow(flow), flow::destroy_flow(flow)), (0, libc::EINVAL));
        assert_eq!((qp::ibv_destroy_qp(qp), qp::ibv_destroy_qp(datagrams)), (0, 0));
    }
}

#[test]
fn counters_have_their_points_before_their_rules() {
    #[repr(C)]
    struct Counted {
        attr: ibv_flow_attr,
        action: ibv_flow_spec_counter_action,
    }
    let Some(open) = Open::new() else { return super::skip("no device could be opened here") };
    // SAFETY: objects of ours, and structures of this function.
    unsafe {
        let qp = open.qp(IBV_QPT_RAW_PACKET);
        let counters = flow::create_counters(open.context, &mut ibv_counters_init_attr { comp_mask: 0 });
        let attach = |counter_desc, index| {
            let mut attr = ibv_counter_attach_attr { counter_desc, index, comp_mask: 0 };
            flow::attach_counters_point_flow(counters, &mut attr, null_mut())
        };
        assert_eq!(
            (attach(IBV_COUNTER_PACKETS, 1), attach(IBV_COUNTER_BYTES, 0), attach(7, 0)),
            (0, 0, libc::EINVAL)
        );
        let attr = ibv_flow_attr { num_of_specs: 1, ..rule(0, 0).attr };
        let size = size_of::<ibv_flow_spec_counter_action>() as u16;
        let action = ibv_flow_spec_counter_action { type_: IBV_FLOW_SPEC_ACTION_COUNT, size, counters };
        // Behind attributes of 20 bytes there are four of padding, which a program leaves out.
        let mut bytes = [0u8; size_of::<Counted>()];
        let at = size_of::<ibv_flow_attr>();
        bytes.as_mut_ptr().cast::<ibv_flow_attr>().write_unaligned(attr);
        bytes.as_mut_ptr().add(at).cast::<ibv_flow_spec_counter_action>().write_unaligned(action);
        let flow = flow::create_flow(qp, bytes.as_mut_ptr().cast());
        assert!(!flow.is_null(), "errno {}", errno());
        assert_eq!(flow::destroy_counters(counters), libc::EBUSY);
        assert_eq!(attach(IBV_COUNTER_BYTES, 2), libc::EBUSY);
        let mut values = [9; 2];
        assert_eq!(flow::read_counters(counters, values.as_mut_ptr(), 1, 0), libc::EINVAL);
        assert_eq!((flow::read_counters(counters, values.as_mut_ptr(), 2, 0), values), (0, [0, 0]));
        assert_eq!((flow::destroy_flow(flow), flow::destroy_counters(counters)), (0, 0));
        assert_eq!(qp::ibv_destroy_qp(qp), 0);
    }
}

#[test]
fn work_queues_are_kept_while_they_are_in_a_table() {
    let Some(open) = Open::new() else { return super::skip("no device could be opened here") };
    // SAFETY: objects of ours, and structures of this function.
    unsafe {
        let mut init = ibv_wq_init_attr {
            wq_context: null_mut(),
            wq_type: IBV_WQT_RQ,
            max_wr: 4,
            max_sge: 0,
            pd: open.pd,
            cq: open.cq,
            comp_mask: 0,
            create_flags: 0,
        };
        let queue = wq::create_wq(open.context, &mut init);
        assert!(!queue.is_null() && init.max_sge == 1);
        let refused = |change: fn(&mut ibv_wq_init_attr)| {
            let mut init = init;
            change(&mut init);
            wq::create_wq(open.context, &mut init).is_null().then(errno)
        };
        assert_eq!(refused(|init| init.max_wr = 0), Some(libc::EINVAL));
        assert_eq!(refused(|init| init.wq_type = 1), Some(libc::EINVAL));
        assert_eq!(refused(|init| (init.comp_mask, init.create_flags) = (1, 2)), Some(libc::EOPNOTSUPP));
        let modify = |wq_state| {
            let attr_mask = IBV_WQ_ATTR_STATE;
            let mut attr = ibv_wq_attr { attr_mask, wq_state, curr_wq_state: 0, flags: 0, flags_mask: 0 };
            wq::modify_wq(queue, &mut attr)
        };
        let mut receive = ibv_recv_wr { wr_id: 0, next: null_mut(), sg_list: null_mut(), num_sge: 0 };
        let post = (*queue).post_recv.expect("a function");
        assert_eq!(post(queue, &mut receive, &mut null_mut()), libc::EINVAL, "it is in RESET");
        assert_eq!((modify(IBV_WQS_ERR), modify(7), modify(IBV_WQS_RDY)), (libc::EINVAL, libc::EINVAL, 0));
        assert_eq!(((*queue).state, post(queue, &mut receive, &mut null_mut())), (IBV_WQS_RDY, 0));
        assert_eq!((modify(IBV_WQS_ERR), modify(IBV_WQS_RDY), modify(IBV_WQS_RESET)), (0, libc::EINVAL, 0));

        let mut places = [queue, queue];
        let ind_tbl = places.as_mut_ptr();
        let mut table = ibv_rwq_ind_table_init_attr { log_ind_tbl_size: 1, ind_tbl, comp_mask: 0 };
        let queues = wq::create_rwq_ind_table(open.context, &mut table);
        assert!(!queues.is_null());
        assert_eq!(wq::destroy_wq(queue), libc::EBUSY);
        table.log_ind_tbl_size = 11;
        assert!(wq::create_rwq_ind_table(open.context, &mut table).is_null() && errno() == libc::EINVAL);

        let mut key = [7; 40];
        let mut init: ibv_qp_init_attr_ex = std::mem::zeroed();
        (init.qp_type, init.pd, init.rwq_ind_tbl) = (IBV_QPT_RAW_PACKET, open.pd, queues);
        init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_IND_TABLE | IBV_QP_INIT_ATTR_RX_HASH;
        init.rx_hash_conf = ibv_rx_hash_conf {
            rx_hash_function: IBV_RX_HASH_FUNC_TOEPLITZ,
            rx_hash_key_len: 40,
            rx_hash_key: key.as_mut_ptr(),
            rx_hash_fields_mask: 3,
        };
        let spreading = qp::create_qp_ex(open.context, &mut init);
        assert!(!spreading.is_null());
        let attr = &mut ibv_qp_attr::default();
        assert_eq!(qp_attr::ibv_modify_qp(spreading, attr, IBV_QP_STATE as c_int), libc::EOPNOTSUPP);
        assert_eq!(wq::destroy_rwq_ind_table(queues), libc::EBUSY);
        let refused = |change: fn(&mut ibv_qp_init_attr_ex)| {
            let mut init = init;
            change(&mut init);
            qp::create_qp_ex(open.context, &mut init).is_null().then(errno)
        };
        assert_eq!(refused(|init| init.rx_hash_conf.rx_hash_key_len = 39), Some(libc::EINVAL));
        assert_eq!(refused(|init| init.rx_hash_conf.rx_hash_fields_mask = 1 << 9), Some(libc::EINVAL));
        assert_eq!(refused(|init| init.rx_hash_conf.rx_hash_key = null_mut()), Some(libc::EINVAL));
        assert_eq!(refused(|init| init.comp_mask &= !IBV_QP_INIT_ATTR_RX_HASH), Some(libc::EINVAL));
        assert_eq!(refused(|init| init.qp_type = IBV_QPT_RC), Some(libc::EINVAL));
        assert_eq!(qp::ibv_destroy_qp(spreading), 0);
        assert_eq!((wq::destroy_rwq_ind_table(queues), wq::destroy_wq(queue)), (0, 0));
    }
}
