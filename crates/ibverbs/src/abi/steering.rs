//! Steering rules, counters, work queues and tables of them.

use super::*;

c_enum!(ibv_flow_flags: IBV_FLOW_ATTR_FLAGS_DONT_TRAP = 1 << 1, IBV_FLOW_ATTR_FLAGS_EGRESS = 1 << 2);

c_enum!(ibv_flow_attr_type:
    IBV_FLOW_ATTR_NORMAL = 0,
    IBV_FLOW_ATTR_ALL_DEFAULT = 1,
    IBV_FLOW_ATTR_MC_DEFAULT = 2,
    IBV_FLOW_ATTR_SNIFFER = 3,
);

c_enum!(ibv_flow_spec_type:
    IBV_FLOW_SPEC_ETH = 0x20,
    IBV_FLOW_SPEC_IPV4 = 0x30,
    IBV_FLOW_SPEC_IPV6 = 0x31,
    IBV_FLOW_SPEC_IPV4_EXT = 0x32,
    IBV_FLOW_SPEC_ESP = 0x34,
    IBV_FLOW_SPEC_TCP = 0x40,
    IBV_FLOW_SPEC_UDP = 0x41,
    IBV_FLOW_SPEC_VXLAN_TUNNEL = 0x50,
    IBV_FLOW_SPEC_GRE = 0x51,
    IBV_FLOW_SPEC_MPLS = 0x60,
    IBV_FLOW_SPEC_INNER = 0x100,
    IBV_FLOW_SPEC_ACTION_TAG = 0x1000,
    IBV_FLOW_SPEC_ACTION_DROP = 0x1001,
    IBV_FLOW_SPEC_ACTION_HANDLE = 0x1002,
    IBV_FLOW_SPEC_ACTION_COUNT = 0x1003,
);

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_flow_eth_filter {
    pub(crate) dst_mac: [u8; 6],
    pub(crate) src_mac: [u8; 6],
    pub(crate) ether_type: u16,
    pub(crate) vlan_tag: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_flow_ipv4_filter {
    pub(crate) src_ip: u32,
    pub(crate) dst_ip: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_flow_ipv4_ext_filter {
    pub(crate) src_ip: u32,
    pub(crate) dst_ip: u32,
    pub(crate) proto: u8,
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    pub(crate) flags: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_flow_ipv6_filter {
    pub(crate) src_ip: [u8; 16],
    pub(crate) dst_ip: [u8; 16],
    pub(crate) flow_label: u32,
    pub(crate) next_hdr: u8,
    pub(crate) traffic_class: u8,
    pub(crate) hop_limit: u8,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_flow_esp_filter {
    pub(crate) spi: u32,
    pub(crate) seq: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_flow_tcp_udp_filter {
    pub(crate) dst_port: u16,
    pub(crate) src_port: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_flow_gre_filter {
    pub(crate) c_ks_res0_ver: u16,
    pub(crate) protocol: u16,
    pub(crate) key: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_flow_tunnel_filter {
    pub(crate) tunnel_id: u32,
}

/// The beginning of every specification.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct SpecHeader {
    pub(crate) type_: ibv_flow_spec_type,
    pub(crate) size: u16,
}

macro_rules! specs {
    ($($name:ident: $filter:ident),* $(,)?) => {$(
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub(crate) struct $name {
            pub(crate) type_: ibv_flow_spec_type,
            pub(crate) size: u16,
            pub(crate) val: $filter,
            pub(crate) mask: $filter,
        }
    )*};
}

specs!(
    ibv_flow_spec_eth: ibv_flow_eth_filter,
    ibv_flow_spec_ipv4: ibv_flow_ipv4_filter,
    ibv_flow_spec_ipv4_ext: ibv_flow_ipv4_ext_filter,
    ibv_flow_spec_ipv6: ibv_flow_ipv6_filter,
    ibv_flow_spec_esp: ibv_flow_esp_filter,
    ibv_flow_spec_tcp_udp: ibv_flow_tcp_udp_filter,
    ibv_flow_spec_gre: ibv_flow_gre_filter,
    ibv_flow_spec_tunnel: ibv_flow_tunnel_filter,
);

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_flow_spec_action_drop {
    pub(crate) type_: ibv_flow_spec_type,
    pub(crate) size: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_flow_spec_counter_action {
    pub(crate) type_: ibv_flow_spec_type,
    pub(crate) size: u16,
    pub(crate) counters: *mut ibv_counters,
}

/// Specifications follow, `num_of_specs` of them.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_flow_attr {
    pub(crate) comp_mask: u32,
    pub(crate) type_: ibv_flow_attr_type,
    pub(crate) size: u16,
    pub(crate) priority: u16,
    pub(crate) num_of_specs: u8,
    pub(crate) port: u8,
    pub(crate) flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_flow {
    pub(crate) comp_mask: u32,
    pub(crate) context: *mut ibv_context,
    pub(crate) handle: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_counters_init_attr {
    pub(crate) comp_mask: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_counters {
    pub(crate) context: *mut ibv_context,
}

c_enum!(ibv_counter_description: IBV_COUNTER_PACKETS = 0, IBV_COUNTER_BYTES = 1);

pub(crate) const IBV_READ_COUNTERS_ATTR_PREFER_CACHED: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_counter_attach_attr {
    pub(crate) counter_desc: ibv_counter_description,
    pub(crate) index: u32,
    pub(crate) comp_mask: u32,
}

c_enum!(ibv_wq_type: IBV_WQT_RQ = 0);
c_enum!(ibv_wq_init_attr_mask: IBV_WQ_INIT_ATTR_FLAGS = 1);
c_enum!(ibv_wq_state: IBV_WQS_RESET = 0, IBV_WQS_RDY = 1, IBV_WQS_ERR = 2);
c_enum!(ibv_wq_attr_mask: IBV_WQ_ATTR_STATE = 1, IBV_WQ_ATTR_CURR_STATE = 1 << 1, IBV_WQ_ATTR_FLAGS = 1 << 2);

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_wq_init_attr {
    pub(crate) wq_context: *mut c_void,
    pub(crate) wq_type: ibv_wq_type,
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) cq: *mut ibv_cq,
    pub(crate) comp_mask: u32,
    pub(crate) create_flags: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_wq_attr {
    pub(crate) attr_mask: u32,
    pub(crate) wq_state: ibv_wq_state,
    pub(crate) curr_wq_state: ibv_wq_state,
    pub(crate) flags: u32,
    pub(crate) flags_mask: u32,
}

#[repr(C)]
pub(crate) struct ibv_wq {
    pub(crate) context: *mut ibv_context,
    pub(crate) wq_context: *mut c_void,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) cq: *mut ibv_cq,
    pub(crate) wq_num: u32,
    pub(crate) handle: u32,
    pub(crate) state: ibv_wq_state,
    pub(crate) wq_type: ibv_wq_type,
    pub(crate) post_recv:
        Option<unsafe extern "C-unwind" fn(*mut ibv_wq, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int>,
    pub(crate) mutex: pthread_mutex_t,
    pub(crate) cond: pthread_cond_t,
    pub(crate) events_completed: u32,
    pub(crate) comp_mask: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_rwq_ind_table {
    pub(crate) context: *mut ibv_context,
    pub(crate) ind_tbl_handle: c_int,
    pub(crate) ind_tbl_num: c_int,
    pub(crate) comp_mask: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ibv_rwq_ind_table_init_attr {
    pub(crate) log_ind_tbl_size: u32,
    pub(crate) ind_tbl: *mut *mut ibv_wq,
    pub(crate) comp_mask: u32,
}

pub(crate) const IBV_RX_HASH_FUNC_TOEPLITZ: u8 = 1;
