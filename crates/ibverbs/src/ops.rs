//! The tables of functions that the header's inline functions call through.

use crate::abi::*;
use crate::{cq, cq_ex, dm, flow, mr, mw, pd, post, qp, qp_attr, query, srq, tags, wq, xrc};

pub(crate) fn context_ops() -> ibv_context_ops {
    ibv_context_ops {
        _compat_query_device: Some(query::ibv_query_device),
        _compat_query_port: Some(query::ibv_query_port),
        _compat_memory: [None; 5],
        alloc_mw: Some(mw::alloc_mw),
        bind_mw: Some(mw::bind_mw),
        dealloc_mw: Some(mw::dealloc_mw),
        _compat_create_cq: None,
        poll_cq: Some(cq::poll_cq),
        req_notify_cq: Some(cq::req_notify_cq),
        _compat_queues: [None; 7],
        post_srq_recv: Some(srq::post_srq_recv),
        _compat_queue_pairs: [None; 4],
        post_send: Some(post::post_send),
        post_recv: Some(post::post_recv),
        _compat_addresses: [None; 5],
    }
}

pub(crate) fn verbs_context(context: ibv_context) -> verbs_context {
    verbs_context {
        query_port: Some(query::query_port),
        advise_mr: Some(mr::advise_mr),
        alloc_null_mr: Some(mr::alloc_null_mr),
        read_counters: Some(flow::read_counters),
        attach_counters_point_flow: Some(flow::attach_counters_point_flow),
        create_counters: Some(flow::create_counters),
        destroy_counters: Some(flow::destroy_counters),
        reg_dm_mr: Some(dm::reg_dm_mr),
        alloc_dm: Some(dm::alloc_dm),
        free_dm: Some(dm::free_dm),
        flow_actions: [None; 3],
        modify_qp_rate_limit: Some(qp_attr::modify_qp_rate_limit),
        alloc_parent_domain: Some(pd::alloc_parent_domain),
        dealloc_td: Some(pd::dealloc_td),
        alloc_td: Some(pd::alloc_td),
        modify_cq: Some(cq::modify_cq),
        post_srq_ops: Some(tags::post_srq_ops),
        destroy_rwq_ind_table: Some(wq::destroy_rwq_ind_table),
        create_rwq_ind_table: Some(wq::create_rwq_ind_table),
        destroy_wq: Some(wq::destroy_wq),
        modify_wq: Some(wq::modify_wq),
        create_wq: Some(wq::create_wq),
        query_rt_values: Some(query::query_rt_values),
        create_cq_ex: Some(cq_ex::create_cq_ex),
        private: std::ptr::null_mut(),
        query_device_ex: Some(query::query_device_ex),
        destroy_flow: Some(flow::destroy_flow),
        _abi_placeholder2: None,
        create_flow: Some(flow::create_flow),
        _abi_placeholder1: None,
        open_qp: Some(qp::open_qp),
        create_qp_ex: Some(qp::create_qp_ex),
        get_srq_num: Some(xrc::get_srq_num),
        create_srq_ex: Some(srq::create_srq_ex),
        open_xrcd: Some(xrc::open_xrcd),
        close_xrcd: Some(xrc::close_xrcd),
        _abi_placeholder3: 0,
        sz: size_of::<verbs_context>(),
        context,
    }
}
