//! The structures and numbers of `<rdma/rdma_cma.h>`, under their C names.
#![allow(non_camel_case_types, dead_code)]

use libc::{c_char, c_int, c_void, sockaddr, sockaddr_storage, socklen_t};

use crate::abi::{
    c_enum, ibv_ah_attr, ibv_comp_channel, ibv_context, ibv_cq, ibv_gid, ibv_pd, ibv_qp, ibv_qp_type,
    ibv_sa_path_rec, ibv_srq,
};

c_enum!(rdma_cm_event_type:
    RDMA_CM_EVENT_ADDR_RESOLVED = 0,
    RDMA_CM_EVENT_ADDR_ERROR = 1,
    RDMA_CM_EVENT_ROUTE_RESOLVED = 2,
    RDMA_CM_EVENT_ROUTE_ERROR = 3,
    RDMA_CM_EVENT_CONNECT_REQUEST = 4,
    RDMA_CM_EVENT_CONNECT_RESPONSE = 5,
    RDMA_CM_EVENT_CONNECT_ERROR = 6,
    RDMA_CM_EVENT_UNREACHABLE = 7,
    RDMA_CM_EVENT_REJECTED = 8,
    RDMA_CM_EVENT_ESTABLISHED = 9,
    RDMA_CM_EVENT_DISCONNECTED = 10,
    RDMA_CM_EVENT_DEVICE_REMOVAL = 11,
    RDMA_CM_EVENT_MULTICAST_JOIN = 12,
    RDMA_CM_EVENT_MULTICAST_ERROR = 13,
    RDMA_CM_EVENT_ADDR_CHANGE = 14,
    RDMA_CM_EVENT_TIMEWAIT_EXIT = 15,
    RDMA_CM_EVENT_ADDRINFO_RESOLVED = 16,
    RDMA_CM_EVENT_ADDRINFO_ERROR = 17,
    RDMA_CM_EVENT_USER = 18,
    RDMA_CM_EVENT_INTERNAL = 19,
);

c_enum!(rdma_port_space:
    RDMA_PS_IPOIB = 0x0002, RDMA_PS_TCP = 0x0106, RDMA_PS_UDP = 0x0111, RDMA_PS_IB = 0x013F);

/// The Q_Key of every datagram queue pair and multicast group of `rdma_cm`.
pub(crate) const RDMA_UDP_QKEY: u32 = 0x0123_4567;
/// "As many as there are", in `responder_resources` and `initiator_depth`.
pub(crate) const RDMA_MAX_RESP_RES: u8 = 0xFF;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_ib_addr {
    pub(crate) sgid: ibv_gid,
    pub(crate) dgid: ibv_gid,
    pub(crate) pkey: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_addr {
    pub(crate) src: sockaddr_storage,
    pub(crate) dst: sockaddr_storage,
    pub(crate) ibaddr: rdma_ib_addr,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_route {
    pub(crate) addr: rdma_addr,
    pub(crate) path_rec: *mut ibv_sa_path_rec,
    pub(crate) num_paths: c_int,
}

#[repr(C)]
pub(crate) struct rdma_event_channel {
    pub(crate) fd: c_int,
}

#[repr(C)]
pub(crate) struct rdma_cm_id {
    pub(crate) verbs: *mut ibv_context,
    pub(crate) channel: *mut rdma_event_channel,
    pub(crate) context: *mut c_void,
    pub(crate) qp: *mut ibv_qp,
    pub(crate) route: rdma_route,
    pub(crate) ps: rdma_port_space,
    pub(crate) port_num: u8,
    pub(crate) event: *mut rdma_cm_event,
    pub(crate) send_cq_channel: *mut ibv_comp_channel,
    pub(crate) send_cq: *mut ibv_cq,
    pub(crate) recv_cq_channel: *mut ibv_comp_channel,
    pub(crate) recv_cq: *mut ibv_cq,
    pub(crate) srq: *mut ibv_srq,
    pub(crate) pd: *mut ibv_pd,
    pub(crate) qp_type: ibv_qp_type,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_conn_param {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) responder_resources: u8,
    pub(crate) initiator_depth: u8,
    pub(crate) flow_control: u8,
    pub(crate) retry_count: u8,
    pub(crate) rnr_retry_count: u8,
    pub(crate) srq: u8,
    pub(crate) qp_num: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_ud_param {
    pub(crate) private_data: *const c_void,
    pub(crate) private_data_len: u8,
    pub(crate) ah_attr: ibv_ah_attr,
    pub(crate) qp_num: u32,
    pub(crate) qkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) union EventParam {
    pub(crate) conn: rdma_conn_param,
    pub(crate) ud: rdma_ud_param,
    /// Of `RDMA_CM_EVENT_USER`.
    pub(crate) arg: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_cm_event {
    pub(crate) id: *mut rdma_cm_id,
    pub(crate) listen_id: *mut rdma_cm_id,
    pub(crate) event: rdma_cm_event_type,
    pub(crate) status: c_int,
    pub(crate) param: EventParam,
}

pub(crate) const RAI_PASSIVE: c_int = 1;
pub(crate) const RAI_NUMERICHOST: c_int = 2;
pub(crate) const RAI_NOROUTE: c_int = 4;
pub(crate) const RAI_FAMILY: c_int = 8;
pub(crate) const RAI_SA: c_int = 16;
pub(crate) const RAI_DNS: c_int = 32;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_addrinfo {
    pub(crate) ai_flags: c_int,
    pub(crate) ai_family: c_int,
    pub(crate) ai_qp_type: c_int,
    pub(crate) ai_port_space: c_int,
    pub(crate) ai_src_len: socklen_t,
    pub(crate) ai_dst_len: socklen_t,
    pub(crate) ai_src_addr: *mut sockaddr,
    pub(crate) ai_dst_addr: *mut sockaddr,
    pub(crate) ai_src_canonname: *mut c_char,
    pub(crate) ai_dst_canonname: *mut c_char,
    pub(crate) ai_route_len: usize,
    pub(crate) ai_route: *mut c_void,
    pub(crate) ai_connect_len: usize,
    pub(crate) ai_connect: *mut c_void,
    pub(crate) ai_next: *mut rdma_addrinfo,
}

pub(crate) const RDMA_CM_JOIN_MC_ATTR_ADDRESS: u32 = 1;
pub(crate) const RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS: u32 = 2;
pub(crate) const RDMA_MC_JOIN_FLAG_FULLMEMBER: u32 = 0;
pub(crate) const RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER: u32 = 1;

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct rdma_cm_join_mc_attr_ex {
    pub(crate) comp_mask: u32,
    pub(crate) join_flags: u32,
    pub(crate) addr: *mut sockaddr,
}

pub(crate) const RDMA_OPTION_ID: c_int = 0;
pub(crate) const RDMA_OPTION_IB: c_int = 1;
pub(crate) const RDMA_OPTION_ID_TOS: c_int = 0;
pub(crate) const RDMA_OPTION_ID_REUSEADDR: c_int = 1;
pub(crate) const RDMA_OPTION_ID_AFONLY: c_int = 2;
pub(crate) const RDMA_OPTION_ID_ACK_TIMEOUT: c_int = 3;
pub(crate) const RDMA_OPTION_IB_PATH: c_int = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    /// A C compiler's values of expressions over the header.
    fn of_c(expressions: &[&str]) -> Vec<usize> {
        let folder = std::env::temp_dir().join(format!("highwire-rdmacm-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a temporary folder");
        let (source, program) = (folder.join("layout.c"), folder.join("layout"));
        let mut text = String::from(
            "#include <stddef.h>\n#include <stdio.h>\n#include <rdma/rdma_cma.h>\nint main(void) {\n",
        );
        for expression in expressions {
            text.push_str(&format!("printf(\"%zu\\n\", (size_t)({expression}));\n"));
        }
        text.push_str("return 0; }\n");
        std::fs::write(&source, text).expect("a source file");
        let compiled = std::process::Command::new("cc").arg(&source).arg("-o").arg(&program).status();
        assert!(compiled.expect("a C compiler").success(), "the header is installed");
        let output = std::process::Command::new(&program).output().expect("it runs");
        std::fs::remove_dir_all(&folder).expect("it was made above");
        String::from_utf8_lossy(&output.stdout).lines().map(|line| line.parse().expect("a number")).collect()
    }

    #[test]
    fn structures_lie_as_a_c_compiler_lays_them() {
        let ours = [
            ("sizeof(struct rdma_cm_id)", size_of::<rdma_cm_id>()),
            ("offsetof(struct rdma_cm_id, route.addr.dst_addr)", offset_of!(rdma_cm_id, route.addr.dst)),
            (
                "offsetof(struct rdma_cm_id, route.addr.addr.ibaddr.pkey)",
                offset_of!(rdma_cm_id, route.addr.ibaddr.pkey),
            ),
            ("offsetof(struct rdma_cm_id, route.path_rec)", offset_of!(rdma_cm_id, route.path_rec)),
            ("offsetof(struct rdma_cm_id, ps)", offset_of!(rdma_cm_id, ps)),
            ("offsetof(struct rdma_cm_id, port_num)", offset_of!(rdma_cm_id, port_num)),
            ("offsetof(struct rdma_cm_id, event)", offset_of!(rdma_cm_id, event)),
            ("offsetof(struct rdma_cm_id, pd)", offset_of!(rdma_cm_id, pd)),
            ("offsetof(struct rdma_cm_id, qp_type)", offset_of!(rdma_cm_id, qp_type)),
            ("sizeof(struct rdma_cm_event)", size_of::<rdma_cm_event>()),
            ("offsetof(struct rdma_cm_event, param)", offset_of!(rdma_cm_event, param)),
            ("offsetof(struct rdma_conn_param, qp_num)", offset_of!(rdma_conn_param, qp_num)),
            ("offsetof(struct rdma_ud_param, ah_attr)", offset_of!(rdma_ud_param, ah_attr)),
            ("offsetof(struct rdma_ud_param, qkey)", offset_of!(rdma_ud_param, qkey)),
            ("sizeof(struct rdma_addrinfo)", size_of::<rdma_addrinfo>()),
            ("offsetof(struct rdma_addrinfo, ai_connect)", offset_of!(rdma_addrinfo, ai_connect)),
            ("sizeof(struct rdma_cm_join_mc_attr_ex)", size_of::<rdma_cm_join_mc_attr_ex>()),
        ];
        let expressions: Vec<&str> = ours.iter().map(|&(text, _)| text).collect();
        for ((text, ours), c) in ours.iter().zip(of_c(&expressions)) {
            assert_eq!(*ours, c, "{text}");
        }
    }
}
