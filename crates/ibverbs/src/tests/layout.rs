//! Every structure and number that programs share with this library, compared with what a C compiler makes of the header.

use super::{output, skip};
use crate::abi::*;
use std::fmt::Write;
use std::mem::offset_of;
use std::process::Command;

/// Structures with their fields; `rust => c` where the names differ.
macro_rules! structures {
    ($($name:ident { $($($field:ident).+ $(=> $c:literal)?),* };)*) => {{
        let mut list: Vec<Structure> = Vec::new();
        $(list.push((
            stringify!($name),
            size_of::<$name>(),
            vec![$(Field {
                name: structures!(@c $($field).+, $($c)?),
                offset: offset_of!($name, $($field).+),
                bytes: bytes_of_field(|structure: &$name| &structure.$($field).+),
            }),*],
        ));)*
        list
    }};
    (@c $field:ident $(. $more:ident)*, $c:literal) => { $c };
    (@c $field:ident,) => { stringify!($field) };
}
pub(super) use structures;

/// A field, by the name that C has for it.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

pub(super) fn bytes_of_field<T, F>(_: impl Fn(&T) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! numbers {
    ($($name:ident),* $(,)?) => { vec![$((stringify!($name), $name as u64)),*] };
}

/// Name, size, and fields.
pub(super) type Structure = (&'static str, usize, Vec<Field>);

pub(super) fn all_structures() -> Vec<Structure> {
    structures! {
        ibv_gid { raw };
        ibv_gid_entry { gid, gid_index, port_num, gid_type, ndev_ifindex };
        ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class };
        ibv_grh { version_tclass_flow, paylen, next_hdr, hop_limit, sgid, dgid };
        ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num };
        ibv_ah { context, pd, handle };
        ibv_device { _ops, node_type, transport_type, name, dev_name, dev_path, ibdev_path };
        ibv_device_attr {
            fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id, vendor_part_id, hw_ver, max_qp,
            max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom,
            max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd,
            max_mw, max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach,
            max_total_mcast_qp_attach, max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge,
            max_pkeys, local_ca_ack_delay, phys_port_cnt
        };
        ibv_odp_caps {
            general_caps, rc_odp_caps => "per_transport_caps.rc_odp_caps",
            uc_odp_caps => "per_transport_caps.uc_odp_caps", ud_odp_caps => "per_transport_caps.ud_odp_caps"
        };
        ibv_tso_caps { max_tso, supported_qpts };
        ibv_rss_caps {
            supported_qpts, max_rwq_indirection_tables, max_rwq_indirection_table_size, rx_hash_fields_mask,
            rx_hash_function
        };
        ibv_packet_pacing_caps { qp_rate_limit_min, qp_rate_limit_max, supported_qpts };
        ibv_tm_caps { max_rndv_hdr_size, max_num_tags, flags, max_ops, max_sge };
        ibv_cq_moderation_caps { max_cq_count, max_cq_period };
        ibv_pci_atomic_caps { fetch_add, swap, compare_swap };
        ibv_device_attr_ex {
            orig_attr, comp_mask, odp_caps, completion_timestamp_mask, hca_core_clock, device_cap_flags_ex, tso_caps,
            rss_caps, max_wq_type_rq, packet_pacing_caps, raw_packet_caps, tm_caps, cq_mod_caps, max_dm_size,
            pci_atomic_caps, xrc_odp_caps, phys_port_cnt_ex
        };
        ibv_query_device_ex_input { comp_mask };
        ibv_port_attr {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr,
            pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width,
            active_speed, phys_state, link_layer, flags, port_cap_flags2
        };
        ibv_pd { context, handle };
        ibv_td { context };
        ibv_td_init_attr { comp_mask };
        ibv_parent_domain_init_attr { pd, td, comp_mask, alloc, free, pd_context };
        ibv_mr { context, pd, addr, length, handle, lkey, rkey };
        ibv_mw { context, pd, rkey, handle, type_ => "type" };
        ibv_mw_bind_info { mr, addr, length, mw_access_flags };
        ibv_mw_bind { wr_id, send_flags, bind_info };
        ibv_alloc_dm_attr { length, log_align_req, comp_mask };
        ibv_dm { context, memcpy_to_dm, memcpy_from_dm, comp_mask, handle };
        ibv_xrcd_init_attr { comp_mask, fd, oflags };
        ibv_xrcd { context };
        ibv_sge { addr, length, lkey };
        ibv_data_buf { addr, length };
        ibv_send_wr {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr,
            remote_srqn => "qp_type.xrc.remote_srqn", extra => "bind_mw"
        };
        ibv_recv_wr { wr_id, next, sg_list, num_sge };
        ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags, pkey_index, slid, sl,
            dlid_path_bits
        };
        ibv_comp_channel { context, fd, refcnt };
        ibv_cq {
            context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed, async_events_completed
        };
        ibv_poll_cq_attr { comp_mask };
        ibv_ops_wr {
            wr_id, next, opcode, flags, unexpected_cnt => "tm.unexpected_cnt", handle => "tm.handle", add => "tm.add"
        };
        ibv_wc_tm_info { tag, priv_ => "priv" };
        ibv_cq_ex {
            base.context => "context", comp_mask, status, wr_id, start_poll, next_poll, end_poll, read_opcode,
            read_vendor_err, read_byte_len, read_imm_data, read_qp_num, read_src_qp, read_wc_flags, read_slid,
            read_sl, read_dlid_path_bits, read_completion_ts, read_cvlan, read_flow_tag, read_tm_info,
            read_completion_wallclock_ns
        };
        ibv_cq_init_attr_ex {
            cqe, cq_context, channel, comp_vector, wc_flags, comp_mask, flags, parent_domain
        };
        ibv_moderate_cq { cq_count, cq_period };
        ibv_modify_cq_attr { attr_mask, moderate };
        ibv_srq_attr { max_wr, max_sge, srq_limit };
        ibv_srq_init_attr { srq_context, attr };
        ibv_tm_cap { max_num_tags, max_ops };
        ibv_srq_init_attr_ex { srq_context, attr, comp_mask, srq_type, pd, xrcd, cq, tm_cap };
        ibv_srq { context, srq_context, pd, handle, mutex, cond, events_completed };
        ibv_async_event { element, event_type };
        ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data };
        ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all };
        ibv_rx_hash_conf { rx_hash_function, rx_hash_key_len, rx_hash_key, rx_hash_fields_mask };
        ibv_flow_eth_filter { dst_mac, src_mac, ether_type, vlan_tag };
        ibv_flow_ipv4_filter { src_ip, dst_ip };
        ibv_flow_ipv4_ext_filter { src_ip, dst_ip, proto, tos, ttl, flags };
        ibv_flow_ipv6_filter { src_ip, dst_ip, flow_label, next_hdr, traffic_class, hop_limit };
        ibv_flow_esp_filter { spi, seq };
        ibv_flow_tcp_udp_filter { dst_port, src_port };
        ibv_flow_gre_filter { c_ks_res0_ver, protocol, key };
        ibv_flow_tunnel_filter { tunnel_id };
        ibv_flow_spec_eth { type_ => "type", size, val, mask };
        ibv_flow_spec_ipv4 { type_ => "type", size, val, mask };
        ibv_flow_spec_ipv4_ext { type_ => "type", size, val, mask };
        ibv_flow_spec_ipv6 { type_ => "type", size, val, mask };
        ibv_flow_spec_esp { type_ => "type", size, val, mask };
        ibv_flow_spec_tcp_udp { type_ => "type", size, val, mask };
        ibv_flow_spec_gre { type_ => "type", size, val, mask };
        ibv_flow_spec_tunnel { type_ => "type", size, val, mask };
        ibv_flow_spec_action_drop { type_ => "type", size };
        ibv_flow_spec_counter_action { type_ => "type", size, counters };
        ibv_flow_attr { comp_mask, type_ => "type", size, priority, num_of_specs, port, flags };
        ibv_flow { comp_mask, context, handle };
        ibv_counters_init_attr { comp_mask };
        ibv_counters { context };
        ibv_counter_attach_attr { counter_desc, index, comp_mask };
        ibv_wq_init_attr { wq_context, wq_type, max_wr, max_sge, pd, cq, comp_mask, create_flags };
        ibv_wq_attr { attr_mask, wq_state, curr_wq_state, flags, flags_mask };
        ibv_wq {
            context, wq_context, pd, cq, wq_num, handle, state, wq_type, post_recv, mutex, cond, events_completed,
            comp_mask
        };
        ibv_rwq_ind_table { context, ind_tbl_handle, ind_tbl_num, comp_mask };
        ibv_rwq_ind_table_init_attr { log_ind_tbl_size, ind_tbl, comp_mask };
        ibv_qp_init_attr_ex {
            qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, comp_mask, pd, xrcd, create_flags,
            max_tso_header, rwq_ind_tbl, rx_hash_conf, source_qpn, send_ops_flags
        };
        ibv_qp_open_attr { comp_mask, qp_num, xrcd, qp_context, qp_type };
        ibv_qp_attr {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags,
            cap, ah_attr, alt_ah_attr, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic,
            max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout,
            rate_limit
        };
        ibv_qp_rate_limit_attr { rate_limit, max_burst_sz, typical_pkt_sz, comp_mask };
        ibv_qp {
            context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex, cond,
            events_completed
        };
        ibv_qp_ex {
            qp_base, comp_mask, wr_id, wr_flags, wr_atomic_cmp_swp, wr_atomic_fetch_add, wr_bind_mw, wr_local_inv,
            wr_rdma_read, wr_rdma_write, wr_rdma_write_imm, wr_send, wr_send_imm, wr_send_inv, wr_send_tso,
            wr_set_ud_addr, wr_set_xrc_srqn, wr_set_inline_data, wr_set_inline_data_list, wr_set_sge,
            wr_set_sge_list, wr_start, wr_complete, wr_abort, wr_atomic_write
        };
        ibv_ece { vendor_id, options, comp_mask };
        ibv_context_ops {
            _compat_query_device, _compat_query_port, alloc_mw, bind_mw, dealloc_mw, poll_cq, req_notify_cq,
            post_srq_recv, post_send, post_recv
        };
        ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat };
        ibv_values_ex { comp_mask, raw_clock };
        verbs_context {
            query_port, advise_mr, alloc_null_mr, read_counters, attach_counters_point_flow,
            create_counters, destroy_counters, reg_dm_mr, alloc_dm, free_dm,
            modify_flow_action_esp, destroy_flow_action, create_flow_action_esp, modify_qp_rate_limit, alloc_parent_domain, dealloc_td,
            alloc_td, modify_cq, post_srq_ops, destroy_rwq_ind_table, create_rwq_ind_table,
            destroy_wq, modify_wq, create_wq, query_rt_values,
            create_cq_ex, private => "priv", query_device_ex, destroy_flow => "ibv_destroy_flow", create_flow => "ibv_create_flow",
            open_qp, create_qp_ex,
            get_srq_num, create_srq_ex, open_xrcd, close_xrcd, sz, context
        };
        ibv_sa_path_rec {
            dgid, sgid, dlid, slid, raw_traffic, flow_label, hop_limit, traffic_class, reversible, numb_path, pkey,
            sl, mtu_selector, mtu, rate_selector, rate, packet_life_time_selector, packet_life_time, preference
        };
    }
}

/// Structures of ours that are longer than those of a header of 2023.
const LONGER: [&str; 3] = ["ibv_port_attr", "ibv_qp_ex", "verbs_context"];

fn all_numbers() -> Vec<(&'static str, u64)> {
    numbers![
        IBV_GID_TYPE_ROCE_V2,
        IBV_NODE_CA,
        IBV_TRANSPORT_IB,
        IBV_DEVICE_BAD_QKEY_CNTR,
        IBV_DEVICE_CURR_QP_STATE_MOD,
        IBV_DEVICE_SYS_IMAGE_GUID,
        IBV_DEVICE_RC_RNR_NAK_GEN,
        IBV_DEVICE_SRQ_RESIZE,
        IBV_DEVICE_MEM_WINDOW,
        IBV_DEVICE_XRC,
        IBV_DEVICE_MEM_MGT_EXTENSIONS,
        IBV_DEVICE_MEM_WINDOW_TYPE_2A,
        IBV_DEVICE_MEM_WINDOW_TYPE_2B,
        IBV_ATOMIC_HCA,
        IBV_ODP_SUPPORT,
        IBV_ODP_SUPPORT_SEND,
        IBV_ODP_SUPPORT_RECV,
        IBV_ODP_SUPPORT_WRITE,
        IBV_ODP_SUPPORT_READ,
        IBV_ODP_SUPPORT_ATOMIC,
        IBV_ODP_SUPPORT_SRQ_RECV,
        IBV_PORT_ACTIVE,
        IBV_LINK_LAYER_ETHERNET,
        IBV_PORT_CM_SUP,
        IBV_PORT_REINIT_SUP,
        IBV_PORT_IP_BASED_GIDS,
        IBV_QPF_GRH_REQUIRED,
        IBV_MTU_256,
        IBV_MTU_4096,
        IBV_ACCESS_LOCAL_WRITE,
        IBV_ACCESS_REMOTE_WRITE,
        IBV_ACCESS_REMOTE_READ,
        IBV_ACCESS_REMOTE_ATOMIC,
        IBV_ACCESS_MW_BIND,
        IBV_ACCESS_ZERO_BASED,
        IBV_ACCESS_ON_DEMAND,
        IBV_ACCESS_HUGETLB,
        IBV_ACCESS_OPTIONAL_RANGE,
        IBV_REREG_MR_CHANGE_TRANSLATION,
        IBV_REREG_MR_CHANGE_PD,
        IBV_REREG_MR_CHANGE_ACCESS,
        IBV_MW_TYPE_1,
        IBV_MW_TYPE_2,
        IBV_DM_MASK_HANDLE,
        IBV_ADVISE_MR_ADVICE_PREFETCH,
        IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE,
        IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
        IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_SEND,
        IBV_WR_SEND_WITH_IMM,
        IBV_WR_RDMA_READ,
        IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_ATOMIC_FETCH_AND_ADD,
        IBV_WR_LOCAL_INV,
        IBV_WR_BIND_MW,
        IBV_WR_SEND_WITH_INV,
        IBV_WR_TSO,
        IBV_WR_DRIVER1,
        IBV_WR_ATOMIC_WRITE,
        IBV_SEND_FENCE,
        IBV_SEND_SIGNALED,
        IBV_SEND_SOLICITED,
        IBV_SEND_INLINE,
        IBV_WC_SUCCESS,
        IBV_WC_LOC_LEN_ERR,
        IBV_WC_LOC_QP_OP_ERR,
        IBV_WC_LOC_PROT_ERR,
        IBV_WC_WR_FLUSH_ERR,
        IBV_WC_MW_BIND_ERR,
        IBV_WC_BAD_RESP_ERR,
        IBV_WC_LOC_ACCESS_ERR,
        IBV_WC_REM_INV_REQ_ERR,
        IBV_WC_REM_ACCESS_ERR,
        IBV_WC_REM_OP_ERR,
        IBV_WC_RETRY_EXC_ERR,
        IBV_WC_RNR_RETRY_EXC_ERR,
        IBV_WC_GENERAL_ERR,
        IBV_WC_TM_ERR,
        IBV_WC_TM_RNDV_INCOMPLETE,
        IBV_WC_TM_ADD,
        IBV_WC_TM_DEL,
        IBV_WC_TM_SYNC,
        IBV_WC_TM_RECV,
        IBV_WC_TM_NO_TAG,
        IBV_WC_TM_SYNC_REQ,
        IBV_WC_TM_MATCH,
        IBV_WC_TM_DATA_VALID,
        IBV_WR_TAG_ADD,
        IBV_WR_TAG_DEL,
        IBV_WR_TAG_SYNC,
        IBV_OPS_SIGNALED,
        IBV_OPS_TM_SYNC,
        IBV_TM_CAP_RC,
        IBV_WC_EX_WITH_TM_INFO,
        IBV_WC_SEND,
        IBV_WC_RDMA_WRITE,
        IBV_WC_RDMA_READ,
        IBV_WC_COMP_SWAP,
        IBV_WC_FETCH_ADD,
        IBV_WC_BIND_MW,
        IBV_WC_LOCAL_INV,
        IBV_WC_RECV,
        IBV_WC_RECV_RDMA_WITH_IMM,
        IBV_WC_GRH,
        IBV_WC_WITH_IMM,
        IBV_WC_WITH_INV,
        IBV_CQ_INIT_ATTR_MASK_FLAGS,
        IBV_CQ_INIT_ATTR_MASK_PD,
        IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
        IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN,
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP,
        IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
        IBV_CQ_ATTR_MODERATE,
        IBV_SRQ_MAX_WR,
        IBV_SRQ_LIMIT,
        IBV_SRQT_BASIC,
        IBV_SRQT_XRC,
        IBV_SRQ_INIT_ATTR_TYPE,
        IBV_SRQ_INIT_ATTR_PD,
        IBV_SRQ_INIT_ATTR_XRCD,
        IBV_SRQ_INIT_ATTR_CQ,
        IBV_EVENT_CQ_ERR,
        IBV_EVENT_QP_FATAL,
        IBV_EVENT_QP_REQ_ERR,
        IBV_EVENT_QP_ACCESS_ERR,
        IBV_EVENT_COMM_EST,
        IBV_EVENT_SQ_DRAINED,
        IBV_EVENT_DEVICE_FATAL,
        IBV_EVENT_PORT_ACTIVE,
        IBV_EVENT_SRQ_ERR,
        IBV_EVENT_SRQ_LIMIT_REACHED,
        IBV_EVENT_QP_LAST_WQE_REACHED,
        IBV_EVENT_GID_CHANGE,
        IBV_EVENT_WQ_FATAL,
        IBV_DEVICE_MANAGED_FLOW_STEERING,
        IBV_QP_INIT_ATTR_IND_TABLE,
        IBV_QP_INIT_ATTR_RX_HASH,
        IBV_RX_HASH_FUNC_TOEPLITZ,
        IBV_FLOW_ATTR_FLAGS_DONT_TRAP,
        IBV_FLOW_ATTR_FLAGS_EGRESS,
        IBV_FLOW_ATTR_NORMAL,
        IBV_FLOW_ATTR_ALL_DEFAULT,
        IBV_FLOW_ATTR_MC_DEFAULT,
        IBV_FLOW_ATTR_SNIFFER,
        IBV_FLOW_SPEC_ETH,
        IBV_FLOW_SPEC_IPV4,
        IBV_FLOW_SPEC_IPV6,
        IBV_FLOW_SPEC_IPV4_EXT,
        IBV_FLOW_SPEC_ESP,
        IBV_FLOW_SPEC_TCP,
        IBV_FLOW_SPEC_UDP,
        IBV_FLOW_SPEC_VXLAN_TUNNEL,
        IBV_FLOW_SPEC_GRE,
        IBV_FLOW_SPEC_MPLS,
        IBV_FLOW_SPEC_INNER,
        IBV_FLOW_SPEC_ACTION_TAG,
        IBV_FLOW_SPEC_ACTION_DROP,
        IBV_FLOW_SPEC_ACTION_HANDLE,
        IBV_FLOW_SPEC_ACTION_COUNT,
        IBV_COUNTER_PACKETS,
        IBV_COUNTER_BYTES,
        IBV_READ_COUNTERS_ATTR_PREFER_CACHED,
        IBV_WQT_RQ,
        IBV_WQ_INIT_ATTR_FLAGS,
        IBV_WQS_RESET,
        IBV_WQS_RDY,
        IBV_WQS_ERR,
        IBV_WQ_ATTR_STATE,
        IBV_WQ_ATTR_CURR_STATE,
        IBV_WQ_ATTR_FLAGS,
        IBV_QPT_RC,
        IBV_QPT_UC,
        IBV_QPT_UD,
        IBV_QPT_RAW_PACKET,
        IBV_QPT_XRC_SEND,
        IBV_QPT_XRC_RECV,
        IBV_QPT_DRIVER,
        IBV_QP_INIT_ATTR_PD,
        IBV_QP_INIT_ATTR_XRCD,
        IBV_QP_INIT_ATTR_CREATE_FLAGS,
        IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        IBV_QP_CREATE_BLOCK_SELF_MCAST_LB,
        IBV_QP_EX_WITH_RDMA_WRITE,
        IBV_QP_EX_WITH_SEND_WITH_INV,
        IBV_QP_EX_WITH_TSO,
        IBV_QP_EX_WITH_ATOMIC_WRITE,
        IBV_QP_OPEN_ATTR_NUM,
        IBV_QP_OPEN_ATTR_XRCD,
        IBV_QP_OPEN_ATTR_CONTEXT,
        IBV_QP_OPEN_ATTR_TYPE,
        IBV_QP_STATE,
        IBV_QP_CUR_STATE,
        IBV_QP_EN_SQD_ASYNC_NOTIFY,
        IBV_QP_ACCESS_FLAGS,
        IBV_QP_PKEY_INDEX,
        IBV_QP_PORT,
        IBV_QP_QKEY,
        IBV_QP_AV,
        IBV_QP_PATH_MTU,
        IBV_QP_TIMEOUT,
        IBV_QP_RETRY_CNT,
        IBV_QP_RNR_RETRY,
        IBV_QP_RQ_PSN,
        IBV_QP_MAX_QP_RD_ATOMIC,
        IBV_QP_ALT_PATH,
        IBV_QP_MIN_RNR_TIMER,
        IBV_QP_SQ_PSN,
        IBV_QP_MAX_DEST_RD_ATOMIC,
        IBV_QP_PATH_MIG_STATE,
        IBV_QP_CAP,
        IBV_QP_DEST_QPN,
        IBV_QP_RATE_LIMIT,
        IBV_QPS_RESET,
        IBV_QPS_INIT,
        IBV_QPS_RTR,
        IBV_QPS_RTS,
        IBV_QPS_SQD,
        IBV_QPS_SQE,
        IBV_QPS_ERR,
        IBV_VALUES_MASK_RAW_CLOCK,
    ]
}

/// A C program that prints the lines of `expected`.
fn program() -> (String, String) {
    let mut source = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n#include <infiniband/sa.h>\nint main(void) {\n",
    );
    let mut expected = String::new();
    for (name, size, fields) in all_structures() {
        if !LONGER.contains(&name) {
            let _ = writeln!(source, "  printf(\"{name} %zu\\n\", sizeof(struct {name}));");
            let _ = writeln!(expected, "{name} {size}");
        }
        // The one union among them.
        let kind = if name == "ibv_gid" { "union" } else { "struct" };
        source = source.replace("sizeof(struct ibv_gid)", "sizeof(union ibv_gid)");
        for Field { name: field, offset, .. } in fields {
            // This structure grows at its beginning, so offsets count from the end.
            let (c, offset) = match name {
                "verbs_context" => {
                    (format!("sizeof({kind} {name}) - offsetof({kind} {name}, {field})"), size - offset)
                }
                _ => (format!("offsetof({kind} {name}, {field})"), offset),
            };
            let _ = writeln!(source, "  printf(\"{name}.{field} %zu\\n\", {c});");
            let _ = writeln!(expected, "{name}.{field} {offset}");
        }
    }
    for (name, value) in all_numbers() {
        let _ = writeln!(source, "  printf(\"{name} %llu\\n\", (unsigned long long){name});");
        let _ = writeln!(expected, "{name} {value}");
    }
    source += "  return 0;\n}\n";
    (source, expected)
}

#[test]
fn structures_and_numbers_are_those_of_the_header() {
    let (source, expected) = program();
    let folder = std::env::temp_dir().join(format!("highwire-layout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (c, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&c, source).expect("a source file");
    let header =
        output(Command::new("cc").args(["-E", "-include", "infiniband/verbs.h", "-x", "c", "/dev/null"]));
    if header.is_none() {
        skip("needs a C compiler and libibverbs-dev: apt-get install gcc libibverbs-dev");
    } else {
        let compiled = Command::new("cc").arg("-w").arg(&c).arg("-o").arg(&binary).status().expect("cc runs");
        assert!(compiled.success(), "the header lacks something; see {}", c.display());
        let printed = output(&mut Command::new(&binary)).expect("it runs");
        for (found, expected) in printed.lines().zip(expected.lines()) {
            assert_eq!(found, expected, "the header's, ours");
        }
        assert_eq!(printed.lines().count(), expected.lines().count());
    }
    std::fs::remove_dir_all(&folder).expect("nothing is left behind");
}
